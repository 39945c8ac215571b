"""The first step of ``make test-gpu``: whether what the others need can be imported, and of which version it is."""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import PackageNotFoundError, distributions, version

MODULES = (
    "numpy",
    "pyarrow",
    "orjson",
    "httpx",
    "pytest",
    "pytest_timeout",
    "dspark_json._native",
    "cupy",
    "pylibcudf",
)
CUDA = ("cuda-bindings", "cuda-pathfinder", "libcudf", "librmm", "libkvikio", "nvidia-libnvcomp", "nvidia-nvjitlink")
# What an import that fails most likely lacks.
REMEDIES = {
    "libnvJitLink": "nvJitLink is missing: pip install nvidia-nvjitlink, or put its folder on LD_LIBRARY_PATH",
    "libnvrtc": "NVRTC is missing: pip install nvidia-cuda-nvrtc, or put its folder on LD_LIBRARY_PATH",
    "libcufile": "cuFile, which KvikIO loads, is missing: pip install nvidia-cufile",
    "libcudf.so": "one of libcudf's own libraries did not load; `ldd` on it in build/gpu-site/libcudf/lib64 says which",
    "cuda.bindings": "pip install 'cuda-bindings>=13.0.1,<14'",
    "GLIBC": "the machine's C library is older than what the module was built for: make the bundle on such a machine",
}


def main() -> int:
    """Import all, and say what came of each."""
    failed = 0
    for name in MODULES:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - whatever a library raises
            failed += 1
            said = f"{type(error).__name__}: {error}"
            remedy = next((text for part, text in REMEDIES.items() if part in said), "")
            print(f"{name}: {said.splitlines()[0]}" + (f"\n  → {remedy}" if remedy else ""))
        else:
            print(f"{name}: {_version(name)}")
    installed = {one.metadata["Name"]: one.version for one in distributions() if one.metadata["Name"]}
    for name in CUDA:
        found = [f"{full} {number}" for full, number in sorted(installed.items()) if full.startswith(name)]
        print(f"{name}: {', '.join(found) or 'not installed as a package'}")
    return 1 if failed else 0


def _version(module: str) -> str:
    for name in (module.partition(".")[0].replace("_", "-"), f"{module}-cuda13x", f"{module}-cu13"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "of no known version"


if __name__ == "__main__":
    sys.exit(main())
