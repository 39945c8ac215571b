"""Counters and lane extents as Prometheus text (exposition format 0.0.4)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dspark_json.spool.access import LaneExtent

# A name that may stand in a metric's; other ones in a damaged stats.json are left out.
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
# Shown from the start, so that an alert can be written before the first of its kind. docs/metrics.md is made from both.
COUNTERS: Final = {
    "records": "Answers kept in the spool.",
    "bytes": "Bytes of the answers kept.",
    "dropped_records": "Answers that could not be kept.",
    "dropped_bytes": "Bytes of the answers that could not be kept.",
    "unrecorded_answers": "Answers that went to a client without a record although durability is write or fsync.",
    "disconnected": "Answers whose client left before the end.",
    "errors": "Answers with an error or an error status.",
    "hook_exceptions": "Exceptions inside the hook that were caught.",
    "oversize_records": "Answers too large to be kept whole.",
    "oversize_bytes": "Bytes of the answers too large to be kept whole.",
    "schema_overflow": "Answer schemas that found no room in the registry.",
    "retention_deleted_records": "Records deleted by retention.",
    "retention_deleted_bytes": "Bytes deleted by retention.",
    "json_object_without_schema": "Requests for json_object without a schema.",
    "device_ring_records": "Records that were mirrored in the device ring.",
    "device_ring_left_out": "Records that were too large for the device ring.",
    "device_ring_failures": "Times that the device ring failed and was given up.",
}
LANE_GAUGES: Final = {
    "first": "Number of the oldest record kept.",
    "next": "Number the next record will get.",
    "bytes": "Bytes of the records kept.",
}


def metrics_text(counters: Mapping[str, int], lanes: Mapping[str, LaneExtent]) -> str:
    """One counter ``dspark_<name>_total`` each, and the gauges ``dspark_lane_first``, ``_next`` and ``_bytes``."""
    lines: list[str] = []
    for name in (*COUNTERS, *sorted(name for name in counters.keys() - COUNTERS.keys() if _NAME.fullmatch(name))):
        metric = f"dspark_{name}_total"
        if name in COUNTERS:
            lines.append(f"# HELP {metric} {COUNTERS[name]}")
        lines += (f"# TYPE {metric} counter", f"{metric} {counters.get(name, 0)}")
    for name, text in LANE_GAUGES.items():
        metric = f"dspark_lane_{name}"
        lines += (f"# HELP {metric} {text}", f"# TYPE {metric} gauge")
        lines += (f'{metric}{{lane="{lane}"}} {getattr(lanes[lane], name)}' for lane in sorted(lanes))
    return "\n".join(lines) + "\n"
