"""Words of the servers' protocol by which the hook and the readers judge alike (DESIGN §2, §5)."""

from __future__ import annotations

from typing import Final

__all__ = ["RESPONSES", "UNFINISHED"]

RESPONSES: Final = "/v1/responses"
UNFINISHED: Final = ("abort", "error")  # finish reasons of a choice that did not end by itself
