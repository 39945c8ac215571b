"""Pack what ``make test-gpu`` needs on a machine with a GPU and no network: pylibcudf, orjson and the native module.

``python scripts/gpu_bundle.py OUT.tar.xz``. The wheels of cuDF are several hundred MB, nearly all of it machine code
for other GPUs; what is not for the architectures asked for (``--arch 90``) is replaced by zeros, which pack to nothing.
nvCOMP, which libcudf wants at its start and uses for compressed files alone, is replaced by a library with its names.
For CPython 3.12 on x86-64 and CUDA 13; ``tests/gpu/run.py`` unpacks it from ``build/gpu-bundle.tar.xz``.
"""

from __future__ import annotations

import argparse
import lzma
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "libcudf-cu13==26.10.2",
    "pylibcudf-cu13==26.10.2",
    "librmm-cu13==26.10.0",
    "rmm-cu13==26.10.0",
    "libkvikio-cu13==26.10.0",
    "nvidia-libnvcomp-cu13==5.3.0.16",
    "rapids-logger==0.3.0",
    "orjson>=3.10",
)
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_24_x86_64", "manylinux2014_x86_64")
# What is on a machine with cupy for CUDA 13 already: cuda-bindings, cuda-pathfinder, nvJitLink, NVRTC, cuFile, numpy.
NOT_NEEDED = frozenset({"include", "cmake", "tests", "benchmarks", "bin", "share"})
SOURCES = frozenset({".pyx", ".pxd", ".pyi", ".h", ".hpp", ".cuh", ".a"})
LARGEST_MIB = 55  # with the tree of this repository it has to fit into 64 MiB
NVCOMP_ERROR = 11  # nvcompErrorNotSupported

# A section .nv_fatbin is a row of containers, each a row of images for one architecture
# (cuobjdump shows the same): container magic, u16 version, u16 header size, u64 size; image: u16 kind, u16, u32 header
# size, u64 size, and the architecture as u32 at 28.
CONTAINER = struct.Struct("<IHHQ")
IMAGE = struct.Struct("<HHIQ")
CONTAINER_MAGIC = 0xBA55ED50
ARCHITECTURE_AT = 28
SMALLEST_IMAGE = 32


def download(folder: Path) -> None:
    """Fetch the wheels."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(folder)]
    command += [
        "--python-version",
        "3.12",
        "--implementation",
        "cp",
        "--abi",
        "cp312",
        "--abi",
        "abi3",
        "--abi",
        "none",
    ]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    subprocess.run([*command, *PACKAGES], check=True)  # noqa: S603 - all of it stands above


def fat_sections(data: bytes) -> list[tuple[int, int]]:
    """Where the sections ``.nv_fatbin`` of an ELF file (64 bits, little endian) lie: offset and size."""
    if data[:6] != b"\x7fELF\x02\x01":
        return []
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    sections = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    strings = sections[names][4]
    found = []
    for section in sections:
        start = strings + section[0]
        if data[start : data.index(b"\0", start)] == b".nv_fatbin":
            found.append((section[4], section[5]))
    return found


def keep_architectures(library: Path, wanted: set[int]) -> None:
    """Replace the machine code for other architectures by zeros."""
    data = bytearray(library.read_bytes())
    sections = fat_sections(bytes(data))
    for begin, size in sections:
        at, end = begin, begin + size
        while at < end - CONTAINER.size:
            magic, _, header, length = CONTAINER.unpack_from(data, at)
            if magic != CONTAINER_MAGIC:
                at += 8
                continue
            image, following = at + header, at + header + length
            while image < following - SMALLEST_IMAGE:
                _, _, image_header, image_size = IMAGE.unpack_from(data, image)
                (architecture,) = struct.unpack_from("<I", data, image + ARCHITECTURE_AT)
                if architecture not in wanted:
                    data[image + image_header : image + image_header + image_size] = bytes(image_size)
                image += image_header + image_size
            at = following
    if sections:
        library.write_bytes(data)


def replace_nvcomp(site: Path) -> None:
    """Put a library in nvCOMP's place that has the functions libcudf names, each of which only fails."""
    place = site / "nvidia/libnvcomp/lib64"
    (library,) = place.glob("libnvcomp.so.*")
    listed = subprocess.run(  # noqa: S603 - our own arguments
        ["nm", "-D", "--undefined-only", site / "libcudf/lib64/libcudf.so"],  # noqa: S607
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    names = sorted({line.split()[-1] for line in listed.splitlines() if line.split()[-1].startswith("nvcomp")})
    text = "".join(f"int {name}(void) {{ return {NVCOMP_ERROR}; }}\n" for name in names)
    for other in place.glob("*.so*"):
        other.unlink()
    subprocess.run(  # noqa: S603 - as above
        ["cc", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-x", "c", "-", "-o", library],  # noqa: S607
        check=True,
        input=text,
        text=True,
    )


def share_namespace(site: Path) -> None:
    """Let ``nvidia`` be one package with the machine's own: some wheels make it a regular one, which hides others."""
    text = '__path__ = __import__("pkgutil").extend_path(__path__, __name__)\n'
    (site / "nvidia/__init__.py").write_text(text, encoding="utf-8")


def pack(site: Path, out: Path) -> None:
    """Write the folder's content as a tar, packed as small as xz can (its filter for x86 code helps)."""
    filters = [
        {"id": lzma.FILTER_X86},
        {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 128 << 20},
    ]
    partial = out.with_name(out.name + ".tmp")
    with lzma.open(partial, "wb", filters=filters) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(site, arcname=".")
    partial.replace(out)


def main() -> int:
    """Make the bundle."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--arch", type=int, action="append", help="architecture to keep, such as 90 (the default)")
    given = parser.parse_args()
    native = sorted((ROOT / "dspark_json").glob("_native*.so"))
    if not native:
        print("the native module is not built: make lint builds it", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name:
        wheels, site = Path(name, "wheels"), Path(name, "site")
        download(wheels)
        for wheel in sorted(wheels.glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)  # noqa: S202 - wheels that pip has checked
        for folder in sorted(path for path in site.rglob("*") if path.is_dir() and path.name in NOT_NEEDED):
            shutil.rmtree(folder, ignore_errors=True)
        for path in site.rglob("*"):
            if path.is_file() and (path.suffix in SOURCES or path.name == "RECORD"):
                path.unlink()
        replace_nvcomp(site)
        share_namespace(site)
        for library in site.rglob("*.so*"):
            if library.is_file():
                keep_architectures(library, set(given.arch or [90]))
        shutil.copy(native[0], site / native[0].name)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        pack(site, given.out)
    size = given.out.stat().st_size / 2**20
    print(f"{given.out}: {size:.1f} MiB")
    if size > LARGEST_MIB:
        print(f"that is more than {LARGEST_MIB} MiB", file=sys.stderr)
    return size > LARGEST_MIB


if __name__ == "__main__":
    sys.exit(main())
