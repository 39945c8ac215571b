"""The routes whose answers are kept (DESIGN §2 rule 2)."""

from __future__ import annotations

from typing import Final

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
RESPONSES: Final = "/v1/responses"

COVERED: Final = frozenset({CHAT, COMPLETIONS, RESPONSES})
