"""A writer at full speed against readers in other processes: no byte that was overwritten is ever handed on.

``make soak`` runs it for longer.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from unit.device.rings import process

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = float(os.environ.get("DSPARK_RACE_SECONDS", "10"))

WRITER = """
import sys, time
from pathlib import Path
from unit.device.rings import line, open_writer

lane, seconds = Path(sys.argv[1]), float(sys.argv[2])
writer = open_writer(lane, 20_011, 256)
print("ready", flush=True)
seq, deadline = 0, time.monotonic() + seconds
while time.monotonic() < deadline:
    count = 1 + seq * 31 % 17
    writer.append(seq, [line(number) for number in range(seq, seq + count)])
    seq += count
    (lane / "next").write_text(f"{seq:020d}")
    if seq % 50_000 < count:  # now and then a new ring
        writer = open_writer(lane, 20_011, 256)
writer.close()
"""

READER = """
import json, sys, time
from pathlib import Path
from unit.device.rings import index_of, line
from dspark_json.device.reader import RingReader

lane, pause, seconds = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
counts = {"right": 0, "wrong": 0, "missing": 0, "overwritten": 0, "generations": 0}
reader = None

class Slow:
    "The ring's memory, read slowly: the writer overtakes."
    def __init__(self, memory):
        self.memory = memory
    def take(self, moves, size):
        first = self.memory.take(moves[:1], size)
        time.sleep(pause)
        for move in moves[1:]:
            part = self.memory.take([type(move)(move.source, 0, move.length)], move.length)
            first.fill(move.target, part.to_host())
        return first
    def close(self):
        self.memory.close()

deadline = time.monotonic() + seconds + 60
while time.monotonic() < deadline:
    if reader is None:
        reader, why = RingReader.open(lane)
        if reader is None:
            if (lane / "end").exists():
                break
            time.sleep(0.01)
            continue
        counts["generations"] += 1
        if pause:
            reader._memory = Slow(reader._memory)
    try:
        newest = int((lane / "next").read_text() or "0")
    except (FileNotFoundError, ValueError):
        continue
    first = max(0, newest - 120)
    lines = [line(seq) for seq in range(first, newest + 8)]
    index = index_of(lines, first)
    part = reader.take(index)
    if part is None:
        reader.close()
        reader = None
        continue
    view, missing = part.taken.to_host(), set(part.missing)
    counts["overwritten"] += part.overwritten
    for position, one in enumerate(lines):
        if position in missing:
            counts["missing"] += 1
        else:
            good = view[index.ends[position] - len(one) : index.ends[position]] == one
            counts["right" if good else "wrong"] += 1
print(json.dumps(counts))
"""


def test_readers_that_race_a_writer_get_right_bytes_or_none(tmp_path: Path) -> None:
    with process(WRITER, tmp_path, SECONDS) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        with process(READER, tmp_path, 0, SECONDS) as quick, process(READER, tmp_path, 0.002, SECONDS) as slow:
            assert writer.wait(SECONDS + 60) == 0
            (tmp_path / "end").touch()
            counts = [json.loads(reader.communicate(timeout=60)[0]) for reader in (quick, slow)]
    print(*counts, sep="\n")
    assert [count["wrong"] for count in counts] == [0, 0]
    for count in counts:
        assert count["right"] > 1000, counts
        assert count["generations"] >= 1
    assert counts[1]["overwritten"] > 0, "the slow reader was overtaken, and noticed"
