"""Whether a server with the hook keeps its memory over many answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dspark_json.cli.bench.load import Load
from dspark_json.cli.bench.measured import bench_server
from dspark_json.cli.bench.statistics import slope

_SLICES: Final = 20
_STREAMED_EVERY: Final = 10  # of ten answers one is streamed: it takes the server ten times as long
_MIB: Final = 1 << 20
_PER: Final = 100_000

Say = Callable[[str], None]


def measure_memory(answers: int, clients: int, say: Say, *, durability: str = "async") -> dict[str, Any]:
    """Serve ``answers`` answers and look at the server's resident memory twenty times meanwhile.

    ``growth_mib_per_100000`` is the slope over the last three quarters: what comes before is caches filling up.
    """
    samples: list[tuple[float, float]] = []
    unrecorded = served = 0
    with bench_server(hook=True, durability=durability) as server:
        for number in range(_SLICES):
            count = answers * (number + 1) // _SLICES - answers * number // _SLICES
            streamed = count // _STREAMED_EVERY
            for stream, requests in ((False, count - streamed), (True, streamed)):
                if requests:
                    spent = server.measure(Load(server.host, server.port, stream, clients, requests))
                    unrecorded += spent.unrecorded
                    served += spent.got.answers
            samples.append((served, server.memory_bytes() / _MIB))
            say(f"{served:>9} answers: {samples[-1][1]:.1f} MiB")
    return {
        "answers": served,
        "unrecorded": unrecorded,
        "first_mib": round(samples[0][1], 1),
        "last_mib": round(samples[-1][1], 1),
        "growth_mib_per_100000": round(slope(samples[_SLICES // 4 :]) * _PER, 3),
        "samples": [{"answers": int(count), "mib": round(mib, 2)} for count, mib in samples],
    }
