"""The routes whose answers are kept (DESIGN §2 rule 2)."""

from __future__ import annotations

from typing import Final

from dspark_json.schema.protocol import RESPONSES

__all__ = ["CHAT", "COMPLETIONS", "COVERED", "RESPONSES"]

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"

COVERED: Final = frozenset({CHAT, COMPLETIONS, RESPONSES})
