"""A driver's library (NVML) that says what a test wants: compiled, loaded and called as the real one is."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HAS_COMPILER = shutil.which("cc") is not None

_SOURCE = """
#include <string.h>
const char* nvmlErrorString(int status) { return status == 9 ? "Driver Not Loaded" : "Unknown Error"; }
int nvmlInit_v2(void) { return %(init)d; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) { strncpy(text, "%(version)s", size); return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = %(count)d; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) { *device = (void*)(long)(index + 1); return 0; }
int nvmlDeviceGetName(void* device, char* text, unsigned size) { strncpy(text, "NVIDIA H200", size); return 0; }
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  *major = %(major)d; *minor = 0; return 0; }
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) { memory[0] = 150754820096ULL; return 0; }
int nvmlDeviceGetMigMode(void* device, unsigned* mode, unsigned* pending) { *mode = *pending = %(mig)d; return 0; }
"""


def driver_library(
    folder: Path, *, init: int = 0, version: str = "580.65.06", count: int = 1, major: int = 9, mig: int = 0
) -> str:
    """The path of a library that answers so."""
    (folder / "nvml.c").write_text(
        _SOURCE % {"init": init, "version": version, "count": count, "major": major, "mig": mig}
    )
    path = folder / f"libnvidia-ml-{len(list(folder.iterdir()))}.so"  # one that is loaded once stays what it is
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, folder / "nvml.c"], check=True)
    return str(path)
