"""What a Spark with the connector holds while nothing is under way, and whether that grows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What may come and go between two looks, whatever the run's length: code that was just compiled, an allocator's pages,
# what Spark's own cleaner has yet to let go. Over 500 micro-batches both were seen to move by 0.1 MiB.
_NOISE_BYTES: Final = {"heap": 512 << 10, "worker": 512 << 10}
# What may stay of each micro-batch. One that left behind an offset's text, a plan or a batch would leave some hundred
# bytes and more.
_A_BATCH_BYTES: Final = 48
# A large read has some 30 MiB in the worker and in Arrow memory while it lasts, and a query that is started leaves
# objects of Spark's: what is looked for are whole reads.
_NOISE_CUT_BYTES: Final = {"heap": 4 << 20, "worker": 32 << 20}
_A_CUT_BYTES: Final = 16 << 10
_NOISE_FILES: Final = 4


@dataclass(frozen=True, slots=True)
class Held:
    """What was held after so many micro-batches: memory in bytes, of the JVM after a collection of its garbage.

    ``arrow`` and ``allocators`` are the memory of the connector's allocators and how many of them are open, ``direct``
    the memory of direct buffers; ``files`` and ``worker_files`` are open files and sockets.
    """

    after: str
    batches: int
    arrow: int
    allocators: int
    heap: int
    direct: int
    files: int
    worker: int
    worker_threads: int
    worker_files: int

    def __str__(self) -> str:
        mib = 1 << 20
        return (
            f"after {self.after}: heap {self.heap / mib:.2f} MiB, Arrow {self.arrow} bytes in {self.allocators} "
            f"allocators, direct buffers {self.direct / mib:.2f} MiB, {self.files} files; worker "
            f"{self.worker / mib:.2f} MiB, {self.worker_threads} threads, {self.worker_files} files"
        )


def growth(looks: Sequence[Held]) -> list[str]:
    """What grew over a run, in words: the least of its second and of its last quarter are compared.

    Before, caches and pools fill up. The least, since garbage that a collection has left is not held. Of Arrow memory
    nothing may be left at any look.
    """
    quarter = len(looks) // 4
    before, after = looks[quarter : 2 * quarter], looks[-quarter:]
    batches = after[-1].batches - before[-1].batches
    return left_over(looks) + _grown(before, after, batches, _NOISE_BYTES, _A_BATCH_BYTES)


def left_over(looks: Sequence[Held]) -> list[str]:
    """Arrow memory that was not given back, in words."""
    return [
        f"after {held.after} {held.arrow} bytes of Arrow memory are left in {held.allocators} allocators"
        for held in looks
        if held.arrow or held.allocators
    ]


def growth_by_cuts(before: Held, after: Held, times: int) -> list[str]:
    """What grew while so many large reads were cut short, in words."""
    return left_over([before, after]) + _grown([before], [after], times, _NOISE_CUT_BYTES, _A_CUT_BYTES)


def _grown(before: Sequence[Held], after: Sequence[Held], times: int, noise: Mapping[str, int], each: int) -> list[str]:
    found = []
    for name in (*noise, "files", "worker_files", "worker_threads"):
        first, last = (min(getattr(held, name) for held in looks) for looks in (before, after))
        if last - first > (noise[name] + each * times if name in noise else _NOISE_FILES):
            found.append(f"{name} grew from {first} to {last} over {times} times")
    return found
