"""The prompt in front of an answer's text (``echo``), taken out where prompts are not kept (DESIGN §2 rule 8).

vLLM puts a prompt before the text of a completion, and the last message before the content of a chat completion where
both have the same role (vllm/entrypoints/openai/completion/serving.py, .../chat_completion/serving.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dspark_json.capture.endpoints import CHAT, COMPLETIONS
from dspark_json.capture.jsontext import dumps, loads
from dspark_json.capture.scanner import value_spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dspark_json.capture.pacing import Pacer
    from dspark_json.capture.scanner import Path

# What a server takes for false (pydantic's booleans).
_FALSE: Final = frozenset({"0", "0.0", "false", "f", "no", "n", "off", "none", ""})
# An answer has one of these roles only without a prompt for another (``add_generation_prompt``), or on a server that
# was started with it.
_ASKING: Final = frozenset({"system", "developer", "user", "tool", "function"})


@dataclass(frozen=True, slots=True)
class Echo:
    """What a request lets the answer begin with: ``prompts``, the longest first; none where that is not known.

    ``in_logprobs``: the tokens of the prompt are among those of the answer. ``role``: only a message of this role
    begins with it.
    """

    prompts: tuple[str, ...] = ()
    in_logprobs: bool = False
    role: str | None = None

    def cut(self, text: object) -> str | None:
        """The text without the prompt; None where it can't be told which part of it is the prompt."""
        if isinstance(text, str):
            for prompt in self.prompts:
                if text.startswith(prompt) and (prompt or len(self.prompts) == 1):
                    return text[len(prompt) :]
        return None


def requested_echo(path: str | None, request: Mapping[str, Any]) -> Echo | None:
    """What the answer to a request (its parsed body) may begin with; None where nothing is echoed."""
    if _is_false(request.get("echo")):
        return None
    if path == COMPLETIONS:
        if request.get("return_token_ids"):
            return Echo(("",), in_logprobs=True)  # the prompt's text is left out, as its token ids are here
        prompt = request.get("prompt")
        prompts = prompt if isinstance(prompt, list) else [prompt]
        texts = (text for text in prompts if isinstance(text, str))
        return Echo(tuple(sorted(texts, key=len, reverse=True)), in_logprobs=True)
    if path == CHAT:
        messages = request.get("messages")
        last = messages[-1] if isinstance(messages, list) and messages else None
        if not isinstance(last, dict):
            return None
        role = last.get("role")
        is_asked = isinstance(role, str) and role in _ASKING and not _is_false(request.get("add_generation_prompt", 1))
        return Echo(tuple(_content(last.get("content"))), role=role if is_asked else None)
    return None


def _is_false(value: object) -> bool:
    return str(value).strip().lower() in _FALSE


def _content(content: object) -> Iterator[str]:
    """The text that a message begins an answer with; none where that can't be told."""
    if isinstance(content, str):
        yield content
    elif content is None:
        yield ""
    elif isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        texts = [text for text in parts if isinstance(text, str)]
        if len(texts) == len(parts):
            yield "\n".join(texts)


def cut_from_object(answer: dict[str, Any], echo: Echo) -> None:
    """Take the prompt out of an answer (parsed, changed in place); of a completion's tokens nothing is kept."""
    choices = answer.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, dict):
            continue
        message = choice.get("message")
        if (
            isinstance(message, dict)
            and message.get("content") is not None
            and echo.role in (None, message.get("role"))
        ):
            message["content"] = echo.cut(message["content"])
        if "text" in choice:
            choice["text"] = echo.cut(choice["text"])
        if echo.in_logprobs and "logprobs" in choice:
            choice["logprobs"] = None


def cut_from_text(text: bytes, echo: Echo, pacer: Pacer) -> Iterator[tuple[int, int, bytes]]:
    """The same for the JSON text of an answer: what stands where, and what is to stand there.

    ``ValueError`` if the text is no JSON.
    """

    def may_hold_a_prompt(path: Path, key: str) -> bool:
        if path == ("choices", None):
            return key == "text" or (key == "logprobs" and echo.in_logprobs)
        return path == ("choices", None, "message") and key == "content"

    if echo.role is not None and not any(_strings_at(("choices", None, "message"), "role", echo.role, text, pacer)):
        return
    for start, end, _ in value_spans(text, may_hold_a_prompt, pacer):
        value = text[start:end]
        if value.startswith(b'"'):
            yield start, end, dumps(echo.cut(loads(value)))
        elif value != b"null":
            yield start, end, b"null"


def _strings_at(place: Path, key: str, value: str, text: bytes, pacer: Pacer) -> Iterator[bool]:
    """For each member of this name at this place, whether it has this value."""
    spans = value_spans(text, lambda path, name: path == place and name == key, pacer)
    return (loads(text[start:end]) == value for start, end, _ in spans)
