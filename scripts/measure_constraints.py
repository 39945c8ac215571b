"""What `checkConstraints` costs: recorded orders, varied with a seed, made rows of with and without it, in turn.

    python scripts/measure_constraints.py [MEGABYTES] [ROUNDS]

Prints CPU seconds and their ratio, medians over the rounds, for all columns and for the typed answers alone.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from dspark_json.cli.bench.answers import MEGABYTE, content_type, write_answers
from dspark_json.engine.base import build_plan
from dspark_json.engine.native import NativeEngine
from dspark_json.replay.recording import packaged_request
from dspark_json.source.rows import row_batches
from dspark_json.spool.access import Chunk

_CHUNK_RECORDS = 5_000


def chunks(size: int) -> list[Chunk]:
    """Records whose requests hold their schema, as the hook keeps them."""
    asked = json.dumps(packaged_request("chat_order")["response_format"]).encode()
    with tempfile.TemporaryDirectory() as folder:
        file = write_answers(Path(folder) / "answers", size, 0.0)
        lines = file.path.read_bytes().splitlines(keepends=True)
    lines = [line.replace(b'"request":{', b'"request":{"response_format":' + asked + b",", 1) for line in lines]
    found = []
    for start in range(0, len(lines), _CHUNK_RECORDS):
        part = lines[start : start + _CHUNK_RECORDS]
        ends = list(itertools.accumulate(map(len, part)))
        found.append(Chunk("", "0000", start, memoryview(b"".join(part)), ends, [0] * len(part)))
    return found


def main() -> None:
    """Measure and print."""
    given = [int(word) for word in sys.argv[1:]]
    megabytes, rounds = given + [30, 5][len(given) :]
    answers = chunks(megabytes * MEGABYTE)
    records, size = sum(map(len, answers)), sum(chunk.buffer.nbytes for chunk in answers)
    print(f"{records:,} records of {size / records / 1000:.2f} KB")
    engine = NativeEngine()
    everything = {on: build_plan(content_type=content_type(), check_constraints=on) for on in (False, True)}
    for title, fields in (("all columns", None), ("parsed, parse_status", ("parsed", "parse_status", "violations"))):
        seconds: dict[bool, list[float]] = {False: [], True: []}
        violating = 0
        for _, on in itertools.product(range(rounds), (False, True)):
            plan = everything[on]
            if fields is not None:
                choice = plan.declared.field("choices").type.value_type
                kept = pa.struct([field for field in choice if field.name in fields])
                plan = build_plan(
                    pa.schema([("choices", pa.list_(kept))]), content_type=content_type(), check_constraints=on
                )
            started = time.process_time()
            made = list(row_batches(answers, engine, plan, plan.columns))
            seconds[on].append(time.process_time() - started)
            if on:
                choices = [row["choices"][0] for batch in made for row in batch.select(["choices"]).to_pylist()]
                violating = sum(bool(choice["violations"]) for choice in choices)
        off, on_s = (statistics.median(seconds[on]) for on in (False, True))
        print(
            f"{title}: {off:.3f} s without, {on_s:.3f} s with: {on_s / off:.2f} times, "
            f"{(on_s - off) / records * 1e6:.1f} µs a record ({violating:,} violate something)"
        )


if __name__ == "__main__":
    main()
