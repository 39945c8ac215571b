"""The native module, for what the spool does with many records at once; ``native`` is None where there is none."""

from __future__ import annotations

__all__ = ["is_native", "native"]

try:
    from dspark_json import _native as native
except ImportError:
    native = None  # type: ignore[assignment]
is_native: bool = native is not None
