"""A ring in a GPU's memory, on a CUDA runtime that is the host's: the calls made, their order, and what they refuse."""

from __future__ import annotations

import ctypes
import inspect
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from unit.device.rings import held, line, open_reader

from dspark_json.device import layout
from dspark_json.device.cuda import CudaMemory
from dspark_json.device.reader import RingReader
from dspark_json.device.writer import ControlFile, RingWriter
from dspark_json.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Of cupy 14.2's runtime.pyx: the parameters of what is called.
SIGNATURES = {
    "malloc": "size",
    "free": "ptr",
    "ipcGetMemHandle": "devPtr",
    "ipcOpenMemHandle": "handle flags=",
    "ipcCloseMemHandle": "devPtr",
    "memcpyAsync": "dst src size kind stream",
    "getDeviceCount": "",
    "getDevice": "",
    "getDeviceProperties": "device",
}


class CudaError(Exception):
    """What a CUDA call raises."""


class Pinned(ctypes.Structure):
    """Pinned memory as cupy gives it: a buffer of signed bytes with a pointer and a size."""

    _fields_ = (("data", ctypes.c_byte * 4096),)

    @property
    def ptr(self) -> int:
        return ctypes.addressof(self)

    def size(self) -> int:
        return 4096


@dataclass
class HostCuda:
    """CUDA's runtime in the host's memory; ``waiting`` are copies that no stream has been synchronised for."""

    calls: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    blocks: dict[int, Any] = field(default_factory=dict)
    waiting: list[tuple[int, int, int]] = field(default_factory=list)
    device: int = 0
    refused: str = ""

    def call(self, name: str, *values: Any) -> Any:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [
            inspect.Parameter(one.rstrip("="), kind, default=0 if one.endswith("=") else inspect.Parameter.empty)
            for one in SIGNATURES[name].split()
        ]
        inspect.Signature(parameters).bind(*values)
        self.calls.append((name, values))
        if name == self.refused:
            raise CudaError(f"cudaErrorNotSupported: {name}")
        return getattr(self, name)(*values)

    def malloc(self, size: int) -> int:
        block = ctypes.create_string_buffer(size)
        self.blocks[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def free(self, pointer: int) -> None:
        del self.blocks[pointer]

    def ipcGetMemHandle(self, pointer: int) -> bytes:  # noqa: N802 - CUDA's names
        return pointer.to_bytes(64, "little")

    def ipcOpenMemHandle(self, handle: bytes) -> int:  # noqa: N802
        return int.from_bytes(handle, "little")

    def ipcCloseMemHandle(self, pointer: int) -> None:  # noqa: N802
        assert pointer in self.blocks

    def memcpyAsync(self, target: int, source: int, size: int, kind: int, stream: int) -> None:  # noqa: N802
        assert kind in {1, 3}
        assert stream == 77
        self.waiting.append((target, source, size))

    def synchronize(self) -> None:
        self.calls.append(("synchronize", ()))
        for target, source, size in self.waiting:
            ctypes.memmove(target, source, size)
        self.waiting.clear()

    def getDeviceCount(self) -> int:  # noqa: N802
        return 2

    def getDevice(self) -> int:  # noqa: N802
        return self.device

    def getDeviceProperties(self, number: int) -> dict[str, bytes]:  # noqa: N802
        return {"uuid": b"gpu-%d" % number}

    def module(self) -> ModuleType:
        """What ``import cupy`` gives."""
        cupy = ModuleType("cupy")
        runtime = SimpleNamespace(
            memcpyHostToDevice=1,
            memcpyDeviceToDevice=3,
            CUDARuntimeError=CudaError,
            deviceSynchronize=lambda: self.calls.append(("deviceSynchronize", ())),
        )
        for name in SIGNATURES:
            setattr(runtime, name, self.named(name))

        @contextmanager
        def use(number: int) -> Iterator[None]:
            before, self.device = self.device, number
            yield
            self.device = before

        cupy.cuda = SimpleNamespace(  # type: ignore[attr-defined]
            runtime=runtime,
            driver=SimpleNamespace(CUDADriverError=CudaError),
            memory=SimpleNamespace(OutOfMemoryError=MemoryError),
            compiler=SimpleNamespace(CompileException=CudaError),
            Device=use,
            Stream=lambda *, non_blocking: SimpleNamespace(ptr=77 * non_blocking, synchronize=self.synchronize),
            alloc_pinned_memory=lambda _size: Pinned(),
        )
        np = pytest.importorskip("numpy")

        class Array(np.ndarray):  # type: ignore[misc, name-defined]
            """An array with what a cupy one has besides."""

            @property
            def data(self) -> SimpleNamespace:
                return SimpleNamespace(ptr=self.ctypes.data)

            def get(self) -> Any:
                return np.array(self)

            def set(self, other: Any) -> None:
                self[:] = other

        cupy.uint8 = np.uint8  # type: ignore[attr-defined]
        cupy.zeros = lambda size, kind: np.zeros(size, kind).view(Array)  # type: ignore[attr-defined]
        return cupy

    def named(self, name: str) -> Any:
        def called(*values: Any) -> Any:
            return self.call(name, *values)

        called.__name__ = name
        return called


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> HostCuda:
    made = HostCuda()
    monkeypatch.setitem(sys.modules, "cupy", made.module())
    return made


def test_a_ring_goes_through_the_runtime_and_each_copy_is_done_before_it_is_published(
    cuda: HostCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = CudaMemory.make(0, 30_000)
    writer = RingWriter(ControlFile(tmp_path), memory, 64)
    lines = [line(seq, 9_000) for seq in range(6)]  # more than the pinned memory takes at once
    for seq, one in enumerate(lines):
        writer.append(seq, [one])
        assert cuda.waiting == []
    monkeypatch.setattr("dspark_json.device.cuda.CudaTaken.checksums", _checksums)
    with open_reader(tmp_path) as reader:
        assert reader.header.kind == layout.CUDA
        assert reader.header.device == b"gpu-0".ljust(16, b"\0")
        assert list(held(reader, lines, 0)) == [3, 4, 5]
    writer.close()
    assert cuda.blocks == {}
    names = [name for name, _ in cuda.calls]
    assert names.index("ipcGetMemHandle") > names.index("malloc")
    assert names.count("ipcOpenMemHandle") == names.count("ipcCloseMemHandle") == 1


def test_what_the_ring_lacks_is_filled_in_and_there_before_anybody_reads_it(cuda: HostCuda) -> None:
    memory = CudaMemory.make(0, 100)
    taken = memory.take([], 10)
    taken.fill(3, memoryview(b"abc"))
    assert cuda.calls[-1] == ("deviceSynchronize", ())
    assert bytes(taken.to_host()) == bytes(3) + b"abc" + bytes(4)
    memory.close()


def _checksums(taken: Any, ends: Any) -> list[int]:
    from dspark_json.device.memory import checksums

    return checksums(taken.to_host(), ends)


def test_what_is_shared_is_whole_blocks_of_two_mib(cuda: HostCuda) -> None:
    for size, allocated in ((1, 2 << 20), (2 << 20, 2 << 20), (3 << 20, 4 << 20)):
        memory = CudaMemory.make(0, size)
        assert memory.size == size
        assert ("malloc", (allocated,)) in cuda.calls
        memory.close()


def test_a_ring_in_another_gpu_than_the_one_that_parses_is_left_alone(cuda: HostCuda, tmp_path: Path) -> None:
    writer = RingWriter(ControlFile(tmp_path), CudaMemory.make(1, 1 << 20))
    reader, why = RingReader.open(tmp_path)
    assert reader is None
    assert "the ring is in GPU 1 of this process, and cuDF parses on GPU 0" in why
    assert "CUDA_VISIBLE_DEVICES" in why
    writer.close()


@pytest.mark.parametrize("refused", ["malloc", "ipcGetMemHandle", "getDeviceCount"])
def test_what_cuda_refuses_is_an_error_that_names_the_call_and_leaves_no_memory(cuda: HostCuda, refused: str) -> None:
    cuda.refused = refused
    with pytest.raises(DeviceError, match=f"CUDA refuses {refused}: cudaErrorNotSupported"):
        CudaMemory.make(0, 1 << 20)
    assert cuda.blocks == {}


def test_a_device_that_is_not_there_and_a_ring_of_a_device_that_is_not_seen_are_errors(
    cuda: HostCuda, tmp_path: Path
) -> None:
    with pytest.raises(DeviceError, match=r"sees 2 GPU\(s\), so there is no device 2"):
        CudaMemory.make(2, 1 << 20)
    writer = RingWriter(ControlFile(tmp_path), CudaMemory.make(0, 1 << 20))
    raw = (tmp_path / layout.RING_FILE).read_bytes()
    header = layout.unpack_header(raw)
    assert header is not None
    other = layout.RingHeader(
        header.kind, header.entries, header.generation, header.size, b"x" * 16, header.handle, header.pid
    )
    with (tmp_path / layout.RING_FILE).open("r+b") as file:
        file.write(other.pack())
    assert "none of them is the one that the ring is in" in RingReader.open(tmp_path)[1]
    writer.close()
    assert cuda.blocks == {}
