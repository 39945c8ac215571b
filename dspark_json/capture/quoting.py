"""What the text of an error quotes of the request, blanked out (DESIGN §2 rule 8).

Validation errors show the input: vLLM's as Python's repr of a dict (``{'type': …, 'input': …}``), pydantic's own text
as ``[type=…, input_value=…, input_type=…]``, others as JSON.
"""

from __future__ import annotations

import re
from typing import Final

# What a request's texts are called in the request and in what answers repeat of it.
REQUEST_MEMBERS: Final = frozenset(
    {
        "chat_template",
        "chat_template_kwargs",
        "documents",
        "input",
        "input_messages",
        "instructions",
        "messages",
        "prompt",
        "prompt_logprobs",
        "prompt_text",
        "prompt_token_ids",
        "suffix",
        "tools",
    }
)
# In the errors about it also the client's own tags. In an answer they are what the client wants back.
QUOTED: Final = REQUEST_MEMBERS | {"metadata"}
NOT_KEPT: Final = "<not kept>"
_QUOTE: Final = re.compile(
    r"""(?<!\\)(?P<escape>\\*)(?P<quote>['"])(?:"""
    + "|".join(sorted(QUOTED))
    + r""")\\*(?P=quote)\s*:\s*|\binput_value="""
)
_AFTER_INPUT_VALUE: Final = ", input_type="
_STEP: Final = re.compile(r"""'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*"|[\[({\])},\n'"]""", re.DOTALL)


def without_quotes(text: str) -> str:
    """The text of an error with ``<not kept>`` for each value that it gives for something of the request.

    A value ends where Python's repr or JSON ends; where that can't be told, nothing after it is kept.
    """
    kept: list[str] = []
    position = 0
    while (quote := _QUOTE.search(text, position)) is not None:
        kept += (text[position : quote.end()], NOT_KEPT)
        if quote["quote"] is None:
            position = text.find(_AFTER_INPUT_VALUE, quote.end())
            position = len(text) if position < 0 else position
        else:
            position = len(text) if quote["escape"] else _end_of_value(text, quote.end())
    if not kept:
        return text
    kept.append(text[position:])
    return "".join(kept)


def _end_of_value(text: str, start: int) -> int:
    depth = 0
    for step in _STEP.finditer(text, start):
        sign = step[0]
        if sign in "'\"":  # a string without an end
            return len(text)
        if sign in "[({":
            depth += 1
        elif sign in "])}":
            if depth == 0:
                return step.start()
            depth -= 1
        elif sign in ",\n" and depth == 0:
            return step.start()
    return len(text)
