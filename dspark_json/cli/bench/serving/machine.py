"""The machine that a load was sent from, for reports."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dspark_json import __version__


def machine() -> dict[str, Any]:
    """What it is, how busy it was just now, and the time."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "dspark_json": __version__,
    }


def sentence(found: dict[str, Any]) -> str:
    """The same as a line of a report."""
    return (
        f"{found['time']}, {found['cores']} cores of {found['processor']}, {found['system']}, load average "
        f"{found['load_average']} at the end, Python {found['python']}, dspark-json {found['dspark_json']}"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or "an unnamed processor"
