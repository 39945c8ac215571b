"""The check that another process can read what this one puts into a ring: over CUDA IPC, or over a file."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dspark_json.device.reader import RingReader
from dspark_json.device.writer import ControlFile, RingWriter
from dspark_json.errors import DSparkJsonError
from dspark_json.scratch import scratch_folder
from dspark_json.spool.access import IndexSlice

if TYPE_CHECKING:
    from collections.abc import Callable

    from dspark_json.device.memory import DeviceMemory

__all__ = ["RING_BYTES", "ring_problem"]

RING_BYTES: Final = 1 << 20
_LINES: Final = tuple(b'{"n":%d,"pad":"%s"}\n' % (n, b"x" * (100 + 7 * n)) for n in range(50))
_SECONDS: Final = 120


def ring_problem(make: Callable[[Path], DeviceMemory]) -> str:
    """Put records into a ring of a folder and let a second process read them; what goes wrong, empty if nothing.

    ``make`` allocates ``RING_BYTES``, for a lane's folder. Raises what it raises.
    """
    with scratch_folder("dspark-doctor-") as lane:
        ring = RingWriter(ControlFile(lane), make(lane))
        try:
            ring.append(0, _LINES)
            child = subprocess.run(  # noqa: S603 - our own module
                [sys.executable, "-m", "dspark_json.doctor.ipc", str(lane)],
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"the second process did not end within {_SECONDS} s"
        finally:
            ring.close()
    return "" if child.returncode == 0 else (child.stdout.strip() or child.stderr.strip()[-300:])


def main() -> int:
    """The second process: read the ring of the folder that is named; says what goes wrong."""
    ends: list[int] = []
    for line in _LINES:
        ends.append((ends[-1] if ends else 0) + len(line))
    index = IndexSlice(0, ends, [0] * len(ends), [zlib.crc32(line) for line in _LINES])
    reader, why = RingReader.open(Path(sys.argv[1]))
    if reader is None:
        print(why)  # noqa: T201 - read by the first process
        return 1
    with reader:
        try:
            part = reader.take(index)
        except DSparkJsonError as error:
            print(error)  # noqa: T201
            return 1
        if part is None or part.missing or bytes(part.taken.to_host()) != b"".join(_LINES):
            print("it read other bytes than were put there")  # noqa: T201
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
