"""Asking a real vLLM with the official client, and finding the records of what was asked."""

from __future__ import annotations

import collections
import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from real_vllm.questions import kind
from real_vllm.server import PYTHON

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from real_vllm.questions import Question
    from real_vllm.server import Vllm

    from dspark_json.spool.access import SpoolAccess

    Json = dict[str, Any]

CLIENT: Final = Path(__file__).with_name("official_client.py")
_RECORD_SEC: Final = 30.0


@dataclass
class Tally:
    """What all tests together asked and found: answers that clients received whole, records missing or too many."""

    answers: int = 0
    lost: int = 0
    twice: int = 0

    def add(self, received: Iterable[Json], records: Mapping[str, list[Json]]) -> None:
        """Count the answers that came whole, by how many records each has."""
        found = [len(records.get(one["number"], ())) for one in received if one["outcome"] == "complete"]
        self.answers += len(found)
        self.lost += found.count(0)
        self.twice += sum(count > 1 for count in found)


TALLY: Final = Tally()


@dataclass(frozen=True)
class Asked:
    """Questions, what the clients received for each of them, and all records of the spool; by the question's number."""

    server: Vllm
    questions: dict[str, Question]
    received: dict[str, Json]
    records: dict[str, list[Json]]

    def of(self, *kinds: str) -> Iterator[tuple[Json, Json]]:
        """What was received and recorded of the answers of these kinds (all, if none is named) that came whole."""
        for number, received in self.received.items():
            if received["outcome"] == "complete" and (not kinds or kind(number) in kinds):
                yield received, self.records[number][0]


def ask(server: Vllm, wanted: Sequence[Question], *, key: str = "none", clients: int = 16) -> Asked:
    """Ask all questions, and wait until the spool has a record of each."""
    received = receive(server, wanted, key=key, clients=clients)
    numbers = {question["number"]: question for question in wanted}
    records = wait_for_records(server, numbers)
    TALLY.add(received, records)
    return Asked(server, numbers, {one["number"]: one for one in received}, records)


def receive(server: Vllm, wanted: Sequence[Question], *, key: str = "none", clients: int = 16) -> list[Json]:
    """Ask all questions; what the clients received, in the order it came."""
    with client_process(server, wanted, key=key, clients=clients) as client:
        output, _ = client.communicate()
    assert client.returncode == 0
    return [json.loads(line) for line in output.splitlines()]


def client_process(
    server: Vllm, wanted: Sequence[Question], *, key: str = "none", clients: int = 16
) -> subprocess.Popen[str]:
    """The client, asking; its standard output has what it received."""
    command = [str(PYTHON), "-P", str(CLIENT), "--address", server.address, "--key", key, "--clients", str(clients)]
    folder = server.folder / "questions.jsonl"
    folder.write_text("".join(json.dumps(question) + "\n" for question in wanted))
    with folder.open() as lines:
        return subprocess.Popen(command, stdin=lines, stdout=subprocess.PIPE, text=True, env={"PATH": "/usr/bin"})


def wait_for_records(server: Vllm, numbers: Iterable[str]) -> dict[str, list[Json]]:
    """All records by number, once each of these has one, or half a minute has passed."""
    wanted = set(numbers)
    deadline = time.monotonic() + _RECORD_SEC
    while not wanted <= (records := records_of(server)).keys() and time.monotonic() < deadline:
        time.sleep(0.1)
    return records


def records_of(server: Vllm) -> dict[str, list[Json]]:
    """The records of a spool by the number that the client gave its request."""
    found: dict[str, list[Json]] = collections.defaultdict(list)
    for line in lines_of(server.reader()):
        record = json.loads(line)
        found[record["_dspark"]["request_id"]].append(record)
    return dict(found)


def lines_of(access: SpoolAccess) -> Iterator[bytes]:
    """All lines that the spool keeps, lane by lane."""
    for lane, extent in access.offsets().lanes.items():
        seq = extent.first
        while seq < extent.next:
            chunk = access.read(lane, seq, extent.next)
            begin = 0
            for end in chunk.ends:
                yield bytes(chunk.buffer[begin:end])
                begin = end
            seq = chunk.next_seq
