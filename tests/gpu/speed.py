"""Speed of the GPU engine against the native one on 1, 4 and 16 cores, and its memory; a table for docs/performance.md.

MB of lines per second of wall time, the median of some tries. "host" are lines in the host's memory, "device" those
that lie in the GPU's already, as in a device ring.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_json.cli.bench.answers import AnswerFile, content_type, write_answers
from dspark_json.engine import build_plan
from dspark_json.engine.cudf import CudfEngine
from dspark_json.engine.native import NativeEngine
from dspark_json.spool.access import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dspark_json.engine.base import ParsePlan, RecordSpans

SIZES_MIB = (1, 16, 64, 256)
CORES = (1, 4, 16)
TRIES = 5


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


def native_on(
    pool: ThreadPoolExecutor, engines: Sequence[NativeEngine], parts: Sequence[Chunk], plan: ParsePlan
) -> None:
    """Parse the parts, each with an engine of its own."""
    for done in [pool.submit(engine.parse, part, plan) for engine, part in zip(engines, parts, strict=True)]:
        done.result()


def measure(gpu: CudfEngine, to_device: Callable[[Chunk], RecordSpans] | None, sizes: Sequence[int]) -> list[str]:
    """The rows of the table; ``to_device`` puts a chunk into the GPU's memory (None: there is none)."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for typed in (True, False):
            plan = build_plan(content_type=content_type() if typed else None)
            file = write_answers(Path(name, "answers"), max(sizes) << 20, 0.0)
            for mib in sizes:
                (whole,) = chunks(file, mib << 20, 1)
                size = whole.ends[-1]
                cells = [f"{speed(partial(gpu.parse, whole, plan), size):.0f}"]
                if to_device is not None:
                    there = to_device(whole)
                    cells.append(f"{speed(partial(gpu.parse, there, plan), size):.0f}")
                _, stats = gpu.parse(whole, plan)
                cells.append(f"{stats.gpu_ns / max(1, stats.parse_ns):.0%}")
                for cores in CORES:
                    with ThreadPoolExecutor(cores) as pool:
                        parts = chunks(file, mib << 20, cores)
                        engines = [NativeEngine() for _ in parts]
                        cells.append(f"{speed(partial(native_on, pool, engines, parts, plan), size):.0f}")
                rows.append(f"| {'typed' if typed else 'text'} | {mib} | {' | '.join(cells)} |")
                print(rows[-1], flush=True)
    return rows


def main() -> int:
    """Measure, print and write the report."""
    from dspark_json.device.cuda import CudaTaken, import_cupy
    from dspark_json.engine.cudf_reader import CudfTextReader, import_pylibcudf
    from dspark_json.source.device_reading import DeviceChunk

    cupy = import_cupy()

    def to_device(chunk: Chunk) -> DeviceChunk:
        taken = CudaTaken(cupy, 0, len(chunk.buffer))
        taken.fill(0, chunk.buffer)
        return DeviceChunk(chunk.spool_id, chunk.lane, chunk.first_seq, taken, chunk.ends, chunk.appended_at)

    before = cupy.cuda.runtime.memGetInfo()[0]
    rows = measure(CudfEngine(CudfTextReader(import_pylibcudf()), NativeEngine()), to_device, SIZES_MIB)
    used = (before - cupy.cuda.runtime.memGetInfo()[0]) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    lines = [
        f"{name}, {os.cpu_count()} cores; MB/s, medians of {TRIES}.",
        "",
        "| content | MiB | GPU, host | GPU, device | of it on the GPU | native, 1 core | 4 cores | 16 cores |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        f"GPU memory kept after it: {used:.0f} MiB; the process's most memory on the host: {peak:.0f} MiB.",
    ]
    report = os.environ.get("DSPARK_GPU_REPORT")
    if report:
        Path(report).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
