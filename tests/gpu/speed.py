"""Speed of the GPU engine against the native one on 1, 4 and 16 cores, and its memory; a table for docs/performance.md.

MB of lines per second of wall time, the median of some tries. "host" are lines in the host's memory, "device" those
that lie in the GPU's already, as in a device ring. Each row is printed, and kept (``DSPARK_GPU_SPEED``), once it is
measured.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dspark_json.cli.bench.answers import AnswerFile, content_type, write_answers
from dspark_json.engine import build_plan
from dspark_json.engine.cudf import CudfEngine
from dspark_json.engine.native import NativeEngine
from dspark_json.engine.selftest import self_test
from dspark_json.spool.access import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dspark_json.engine.base import ParsePlan, RecordSpans

CORES = (1, 4, 16)
TRIES = 3


def chunks(file: AnswerFile, size: int, pieces: int) -> list[Chunk]:
    """The first ``size`` bytes of a file, cut into so many pieces."""
    data = memoryview(file.path.read_bytes())
    count = file.within(size)
    bounds = [count * k // pieces for k in range(pieces + 1)]
    made = []
    for first, stop in pairwise(bounds):
        begin = file.ends[first - 1] if first else 0
        ends = [end - begin for end in file.ends[first:stop]]
        if ends:
            made.append(Chunk("s", "0000", first, data[begin : begin + ends[-1]], ends, [0] * len(ends)))
    return made


def speed(work: Callable[[], object], size: int) -> float:
    """MB per second, the median of some tries after one that does not count."""
    work()
    taken = []
    for _ in range(TRIES):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return size / 1e6 / statistics.median(taken)


def shown(work: Callable[[], object], size: int) -> int | str:
    """The speed for a cell of the table, or what was raised: the other cells are worth having."""
    try:
        return round(speed(work, size))
    except Exception as error:  # noqa: BLE001 - CUDA, cuDF and rmm raise errors of many kinds
        return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def native_on(
    pool: ThreadPoolExecutor, engines: Sequence[NativeEngine], parts: Sequence[Chunk], plan: ParsePlan
) -> None:
    """Parse the parts, each with an engine of its own."""
    for done in [pool.submit(engine.parse, part, plan) for engine, part in zip(engines, parts, strict=True)]:
        done.result()


class PeakMemory:
    """The most of a GPU's memory that was in use meanwhile, in bytes, as against before; looked at every 2 ms."""

    def __init__(self, free: Callable[[], int]) -> None:
        self.most = 0
        self._free = free
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, args=(free(),), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self, before: int) -> None:
        while not self._over.wait(0.002):
            self.most = max(self.most, before - self._free())


def measure(
    gpu: CudfEngine,
    to_device: Callable[[Chunk], RecordSpans] | None,
    sizes: Sequence[int],
    free: Callable[[], int] = lambda: 0,
) -> Iterator[dict[str, object]]:
    """The rows of the table; ``to_device`` puts a chunk into the GPU's memory (None: there is none)."""
    with tempfile.TemporaryDirectory() as name:
        file = write_answers(Path(name, "answers"), max(sizes) << 20, 0.0)
        for mib, typed in itertools.product(sizes, (True, False)):
            plan = build_plan(content_type=content_type() if typed else None)
            (whole,) = chunks(file, mib << 20, 1)
            size = whole.ends[-1]
            row: dict[str, object] = {"content": "typed" if typed else "text", "MiB": mib}
            with PeakMemory(free) as memory:
                row["GPU, host"] = shown(partial(gpu.parse, whole, plan), size)
            if isinstance(row["GPU, host"], int):
                if to_device is not None:
                    row["GPU, device"] = shown(partial(gpu.parse, to_device(whole), plan), size)
                _, stats = gpu.parse(whole, plan)
                row["% on the GPU"] = round(100 * stats.gpu_ns / max(1, stats.parse_ns))
                row["% left over"] = round(100 * stats.fallback / max(1, stats.records))
                row["GPU memory"] = memory.most >> 20
            for cores in CORES:
                with ThreadPoolExecutor(cores) as pool:
                    parts = chunks(file, mib << 20, cores)
                    engines = [NativeEngine() for _ in parts]
                    named = "native, 1 core" if cores == 1 else f"{cores} cores"
                    row[named] = shown(partial(native_on, pool, engines, parts, plan), size)
            yield row


def tell(row: dict[str, object]) -> None:
    """Print a row, and add it to the file that the report is made of."""
    print(json.dumps(row), flush=True)
    report = os.environ.get("DSPARK_GPU_SPEED")
    if report:
        with Path(report).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def main() -> int:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="1,16,64,256", metavar="MIB,…")
    sizes = [int(size) for size in parser.parse_args().sizes.split(",")]
    from dspark_json.device.cuda import CudaTaken, import_cupy
    from dspark_json.engine.cudf_reader import CudfTextReader, import_pylibcudf
    from dspark_json.source.device_reading import DeviceChunk

    cupy = import_cupy()

    def to_device(chunk: Chunk) -> DeviceChunk:
        taken = CudaTaken(cupy, 0, len(chunk.buffer))
        taken.fill(0, chunk.buffer)
        return DeviceChunk(chunk.spool_id, chunk.lane, chunk.first_seq, taken, chunk.ends, chunk.appended_at)

    def free() -> int:
        found: int = cupy.cuda.runtime.memGetInfo()[0]
        return found

    native = NativeEngine()
    reader = CudfTextReader(import_pylibcudf())
    started = time.perf_counter()
    try:
        problem = self_test(reader, native)
    except Exception as error:  # noqa: BLE001 - as above
        problem = f"{type(error).__name__}: {error}"
    took = time.perf_counter() - started
    tell({f"self-test before {sizes[0]} MiB": problem or f"holds, {took:.1f} s with the start of CUDA"})
    for row in measure(CudfEngine(reader, native), to_device, sizes, free):
        tell(row)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    tell({f"most memory of the process on the host, to {sizes[-1]} MiB": f"{peak:.0f} MiB"})
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
