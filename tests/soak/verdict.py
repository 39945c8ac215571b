"""Whether a soak held: every answer in each table once, counters at 0, memory flat."""

from __future__ import annotations

import collections
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from soak.clients import Account

_FLAT_MIB: Final = 8.0
_FLAT_SHARE: Final = 0.05
_FLAT_SEC: Final = 120.0  # before, caches and pools are filling up
_SHOWN: Final = 3


@dataclass(slots=True)
class Table:
    """What is wrong with a table: requests, or (lane, number) of records. All empty is right."""

    rows: int = 0
    lost: list[str] = field(default_factory=list)
    lost_of_left: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    holes: list[str] = field(default_factory=list)

    def problems(self) -> dict[str, list[str]]:
        """Those there are."""
        found = {
            "lost": self.lost,
            "lost of clients that left": self.lost_of_left,
            "twice": self.twice,
            "other than the client's": self.wrong,
            "holes": self.holes,
        }
        return {name: cases for name, cases in found.items() if cases}


def judge_table(rows: Iterable[Mapping[str, Any]], account: Account, ends: Mapping[str, int], steady: int) -> Table:
    """Hold a table against what the clients noted; ``ends`` are the lanes' next numbers, all of which begin at 0.

    A request whose client left is owed a record by the ``steady`` server alone: the others were killed meanwhile.
    """
    table = Table()
    by_request: dict[str, list[Mapping[str, Any]]] = collections.defaultdict(list)
    numbers: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    for row in rows:
        table.rows += 1
        by_request[row["request_id"]].append(row)
        numbers[row["lane"]][row["seq"]] += 1
    table.twice = [name for name, found in by_request.items() if len(found) > 1]
    for name, whole in account.whole.items():
        found = by_request.get(name)
        if not found:
            table.lost.append(name)
            continue
        row = found[0]
        is_good = whole.status == 200
        told = (row["id"], row["status"], row["completed"], row["disconnected"])
        if told != (whole.answer, whole.status, is_good, False):
            table.wrong.append(f"{name}: {told} for {whole.answer}")
    table.lost_of_left = [name for name, server in account.left.items() if server == steady and name not in by_request]
    for lane, end in ends.items():
        counts = numbers.pop(lane, collections.Counter())
        table.holes.extend(f"{lane}/{seq}" for seq in range(end) if seq not in counts)
        table.twice.extend(f"{lane}/{seq}" for seq, count in counts.items() if count > 1)
        table.holes.extend(f"{lane}/{seq} beyond the end" for seq in counts if seq >= end)
    table.holes.extend(f"lane {lane}" for lane in numbers)
    return table


@dataclass(frozen=True, slots=True)
class Memory:
    """A process's own memory over a run, in MiB: the means of its second and of its last quarter, and the most."""

    before: float
    after: float
    most: float
    is_flat: bool


def judge_memory(samples: Sequence[float], seconds: float) -> Memory:
    """``samples`` at even distances, in MiB; a short run is always taken for flat."""
    quarter = max(1, len(samples) // 4)
    before = statistics.mean(samples[quarter : 2 * quarter] or samples)
    after = statistics.mean(samples[-quarter:])
    allowed = max(_FLAT_MIB, _FLAT_SHARE * before)
    return Memory(
        round(before, 1), round(after, 1), round(max(samples), 1), seconds < _FLAT_SEC or after - before <= allowed
    )


def failures(
    tables: Mapping[str, Table],
    memory: Mapping[str, Memory],
    counters: Mapping[str, int],
    reader_errors: Mapping[str, int],
    log_lines: Sequence[str],
) -> list[str]:
    """Everything that did not hold, in words."""
    found = []
    for name, table in tables.items():
        for problem, cases in table.problems().items():
            found.append(f"{name}: {len(cases)} {problem} ({', '.join(cases[:_SHOWN])})")
    found += [
        f"{counter} {counters[counter]}"
        for counter in ("unrecorded_answers", "dropped_records", "hook_exceptions")
        if counters.get(counter)
    ]
    # A server that is killed while it is asked over HTTP: the query fails, and is restarted.
    found += [f"a reader failed: {code}" for code in reader_errors if code != "DSPARK_JSON_ENDPOINT_UNREACHABLE"]
    found += [
        f"memory of the {name} grew from {m.before} to {m.after} MiB" for name, m in memory.items() if not m.is_flat
    ]
    if log_lines:
        found.append(f"{len(log_lines)} lines in servers' logs, the first one: {log_lines[0]}")
    return found
