"""What a reader counts, by the names that users see; ``docs/metrics.md`` is made from these tables.

The connector has the first table once more, with the classes that Spark wants for it (``ReadMetric.java``).
"""

from __future__ import annotations

from typing import Final

__all__ = ["READ_METRICS", "STREAM_METRICS"]

# Added up over all tasks: at the scan in the SQL tab, and in lastProgress.
READ_METRICS: Final = {
    "records": "Answers read.",
    "bytes": "Bytes of their JSON.",
    "parse_time_ms": "Time to parse them.",
    "serialize_time_ms": "Time to make Arrow streams of their columns.",
    "send_time_ms": "Time to send these to Spark.",
    "wait_time_ms": "Time that tasks waited for all of that, receiving included.",
    "arrow_bytes": "Bytes of columns that came to Spark.",
    "mismatches": "Values of another type than declared, as far as the selected columns show them.",
    "invalid": "Contents that are not JSON, likewise.",
    "truncated": "Contents that were cut off, likewise.",
    "corrupt_records": "Records that can't be read at all.",
    "dropped_records": "Left out by `mode`.",
    "filtered_records": "Left out by `responseSchema` or `toolSchema`.",
    "lost_records": "Gone before they were read, with `failOnDataLoss=false`.",
    "dspark_gpu_kernel_time_ms": "Time to parse on a GPU; 0 where the CPU parsed.",
    "dspark_gpu_fallback_records": "Records that a GPU engine left to the CPU.",
    "resumed_reads": "Reads that went on with a new worker process.",
}
# In lastProgress alone, from the planner.
STREAM_METRICS: Final = {
    "adapter": "`jvm`.",
    "lag_records": "Answers that wait to be read; `lag_records.<spool id>.<lane>` for each lane.",
    "lost_records": "Gone before they were planned; added to those above.",
    "endpoints_down": "Times that a server did not answer at a trigger.",
    "spools_replaced": "Spools whose folder was made anew.",
    "dspark_schema_update_count": "Schemas of the server that were not seen before.",
}
