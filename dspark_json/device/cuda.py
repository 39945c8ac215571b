"""A ring's block in the memory of a GPU, shared with other processes over CUDA IPC; needs cupy.

Only CUDA's runtime is used, through cupy: ``malloc`` (an IPC handle stands for a whole ``cudaMalloc`` allocation, so no
pool is used), ``ipcGetMemHandle``, ``ipcOpenMemHandle``, and copies on a stream of its own. What is allocated is a
multiple of 2 MiB: CUDA may cut smaller blocks out of one of that size, and a handle opens all of it to the reader, with
whatever else of the writer's lies there (CUDA Programming Guide, Interprocess Communication).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dspark_json.device import layout
from dspark_json.errors import DeviceError
from dspark_json.extras import installing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark_json.device.layout import RingHeader
    from dspark_json.device.memory import Move

__all__ = ["CudaMemory", "device_number", "import_cupy"]

_STAGING_BYTES: Final = 4 << 20
_BLOCK_BYTES: Final = 2 << 20
_THREADS: Final = 128

# One thread a record, one byte at a time: the records of a batch are many, and the arithmetic is the host's (zlib).
CHECKSUM_SOURCE: Final = r"""
extern "C" __global__ void record_checksums(const unsigned char* data, const long long* ends, const unsigned int* table,
                                            unsigned int* checksums, long long count) {
  long long record = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (record >= count) return;
  long long begin = record == 0 ? 0 : ends[record - 1];
  unsigned int crc = 0xFFFFFFFFu;
  for (long long at = begin; at < ends[record]; ++at) crc = table[(crc ^ data[at]) & 0xFFu] ^ (crc >> 8);
  checksums[record] = crc ^ 0xFFFFFFFFu;
}
"""


def import_cupy() -> Any:
    """The cupy module. Raises ``DeviceError`` where it is not installed or can't be loaded."""
    try:
        import cupy
    except Exception as error:
        raise DeviceError(
            f"cupy can't be imported ({type(error).__name__}: {error})",
            remedy=f"Install it, for CUDA 12: {installing('gpu')}; for CUDA 13: {installing('gpu-cu13')}.",
        ) from error
    return cupy


def device_number(cupy: Any, device: bytes) -> int:
    """The number that the device with this UUID has in this process; ``DeviceError`` where it does not see it."""
    count = _checked(cupy, cupy.cuda.runtime.getDeviceCount)
    for number in range(count):
        if _uuid(cupy, number) == device:
            return number
    raise DeviceError(
        f"this process sees {count} GPU(s), and none of them is the one that the ring is in ({device.hex()})",
        remedy="Let it see the server's GPU: CUDA_VISIBLE_DEVICES, and in a container --gpus.",
    )


def crc_table() -> list[int]:
    """The 256 words that CRC-32 (zlib's polynomial) goes through a byte at a time with."""
    table = []
    for byte in range(256):
        word = byte
        for _ in range(8):
            word = word >> 1 ^ (0xEDB88320 if word & 1 else 0)
        table.append(word)
    return table


class CudaMemory:
    """A block of a GPU's memory."""

    kind: Final = layout.CUDA

    def __init__(self, cupy: Any, number: int, pointer: int, size: int, handle: bytes, *, own: bool) -> None:
        """Use ``make`` or ``open``."""
        self.size = size
        self.handle = handle
        self.device = _uuid(cupy, number)
        self._cupy = cupy
        self._number = number
        self._pointer = pointer
        self._own = own
        self._staging: Any = None
        with cupy.cuda.Device(number):
            self._stream = cupy.cuda.Stream(non_blocking=True)

    @classmethod
    def make(cls, number: int, size: int) -> CudaMemory:
        """The writer's side: allocate on the device with this number. Raises ``DeviceError``."""
        cupy = import_cupy()
        runtime = cupy.cuda.runtime
        count = _checked(cupy, runtime.getDeviceCount)
        if number >= count:
            raise DeviceError(f"this process sees {count} GPU(s), so there is no device {number}")
        with cupy.cuda.Device(number):
            pointer = _checked(cupy, runtime.malloc, -(-size // _BLOCK_BYTES) * _BLOCK_BYTES)
            try:
                handle = bytes(_checked(cupy, runtime.ipcGetMemHandle, pointer))
                memory = cls(cupy, number, pointer, size, handle, own=True)
                memory._staging = _checked(cupy, cupy.cuda.alloc_pinned_memory, min(size, _STAGING_BYTES))
            except BaseException:
                runtime.free(pointer)
                raise
        return memory

    @classmethod
    def open(cls, header: RingHeader) -> CudaMemory:
        """The reader's side. Raises ``DeviceError``."""
        cupy = import_cupy()
        number = device_number(cupy, header.device)
        current = _checked(cupy, cupy.cuda.runtime.getDevice)
        if number != current:
            raise DeviceError(
                f"the ring is in GPU {number} of this process, and cuDF parses on GPU {current}",
                remedy="Let the process see the ring's GPU alone: CUDA_VISIBLE_DEVICES.",
            )
        with cupy.cuda.Device(number):
            pointer = _checked(cupy, cupy.cuda.runtime.ipcOpenMemHandle, header.handle)
        return cls(cupy, number, pointer, header.size, header.handle, own=False)

    def write(self, offset: int, data: bytes) -> None:
        """See ``DeviceMemory.write``."""
        runtime = self._cupy.cuda.runtime
        with self._cupy.cuda.Device(self._number):
            room = self._staging.size()
            for start in range(0, len(data), room):
                part = data[start : start + room]
                memoryview(self._staging).cast("B")[: len(part)] = part
                _checked(
                    self._cupy,
                    runtime.memcpyAsync,
                    self._pointer + offset + start,
                    self._staging.ptr,
                    len(part),
                    runtime.memcpyHostToDevice,
                    self._stream.ptr,
                )
                _checked(self._cupy, self._stream.synchronize)

    def take(self, moves: Sequence[Move], size: int) -> CudaTaken:
        """See ``DeviceMemory.take``."""
        runtime = self._cupy.cuda.runtime
        with self._cupy.cuda.Device(self._number):
            taken = CudaTaken(self._cupy, self._number, size)
            for move in moves:
                _checked(
                    self._cupy,
                    runtime.memcpyAsync,
                    taken.pointer + move.target,
                    self._pointer + move.source,
                    move.length,
                    runtime.memcpyDeviceToDevice,
                    self._stream.ptr,
                )
            _checked(self._cupy, self._stream.synchronize)
        return taken

    def close(self) -> None:
        """See ``DeviceMemory.close``."""
        runtime = self._cupy.cuda.runtime
        with self._cupy.cuda.Device(self._number):
            _checked(self._cupy, runtime.free if self._own else runtime.ipcCloseMemHandle, self._pointer)


class CudaTaken:
    """Records in memory of a GPU; also the way in for records of the host (``fill``)."""

    def __init__(self, cupy: Any, number: int, size: int) -> None:
        """Room for ``size`` bytes on the device with this number."""
        self._cupy = cupy
        self._number = number
        with cupy.cuda.Device(number):
            # Zeros on the null stream; synchronised, since the copies come on streams that do not wait for it.
            self.array = _checked(cupy, cupy.zeros, size, cupy.uint8)
            _checked(cupy, cupy.cuda.runtime.deviceSynchronize)

    @property
    def pointer(self) -> int:
        """See ``Taken.pointer``."""
        pointer: int = self.array.data.ptr
        return pointer

    def fill(self, target: int, data: bytes | memoryview) -> None:
        """See ``Taken.fill``."""
        import numpy as np

        with self._cupy.cuda.Device(self._number):
            place = self.array[target : target + len(data)]
            _checked(self._cupy, place.set, np.frombuffer(data, np.uint8))
            # The copy is one of cupy's stream; whoever reads the memory may use another.
            _checked(self._cupy, self._cupy.cuda.runtime.deviceSynchronize)

    def checksums(self, ends: Sequence[int]) -> list[int]:
        """See ``Taken.checksums``."""
        cupy = self._cupy
        with cupy.cuda.Device(self._number):
            kernel = _checked(cupy, cupy.RawKernel, CHECKSUM_SOURCE, "record_checksums")
            found = cupy.empty(len(ends), cupy.uint32)
            blocks = -(-len(ends) // _THREADS)
            arguments = (
                self.array,
                cupy.asarray(list(ends), cupy.int64),
                cupy.asarray(crc_table(), cupy.uint32),
                found,
                cupy.int64(len(ends)),
            )
            _checked(cupy, kernel, (blocks,), (_THREADS,), arguments)
            values: list[int] = _checked(cupy, found.get).tolist()
        return values

    def to_host(self) -> memoryview:
        """See ``Taken.to_host``."""
        return memoryview(_checked(self._cupy, self.array.get)).cast("B").toreadonly()


def _uuid(cupy: Any, number: int) -> bytes:
    uuid = _checked(cupy, cupy.cuda.runtime.getDeviceProperties, number)["uuid"]
    return bytes(uuid)[:16].ljust(16, b"\0")


def _checked(cupy: Any, call: Any, *arguments: Any) -> Any:
    """What a call gives; an error of CUDA's as a ``DeviceError``."""
    try:
        return call(*arguments)
    except (
        cupy.cuda.runtime.CUDARuntimeError,
        cupy.cuda.driver.CUDADriverError,
        cupy.cuda.memory.OutOfMemoryError,
        cupy.cuda.compiler.CompileException,
    ) as error:
        raise DeviceError(
            f"CUDA refuses {getattr(call, '__name__', 'a call')}: {error}",
            remedy="`dspark-json doctor --gpu` says what is missing.",
        ) from error
