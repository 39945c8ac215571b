"""What a load asks: chat requests, streamed, for JSON by the schemas that come with the package."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Task:
    """What one kind of request wants: a text, and the JSON Schema (``name``) of its answers."""

    name: str
    text: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asking:
    """How all requests of a load ask; ``grammar``: the server is to hold the model to the schema.

    The schema is in the prompt either way, so that answers with and without a grammar differ by nothing else.
    ``temperature`` None leaves that to the server.
    """

    tasks: tuple[Task, ...]
    max_tokens: int
    temperature: float | None = None
    grammar: bool = True

    def question(self, model: str, number: int) -> Question:
        """The request with this number; the schemas take turns, and no two prompts are the same."""
        task = self.tasks[number % len(self.tasks)]
        schema = json.dumps(task.schema, separators=(",", ":"))
        body: dict[str, Any] = {
            "model": model,
            "messages": [
                {"role": "system", "content": f"Answer with one JSON object alone, of this JSON Schema: {schema}"},
                {"role": "user", "content": f"{task.text} This is number {number}."},
            ],
            "max_tokens": self.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if self.grammar:
            json_schema = {"name": task.name, "schema": task.schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": json_schema}
        return Question(task.name, json.dumps(body, separators=(",", ":")).encode())


@dataclass(frozen=True, slots=True)
class Question:
    """A request's body, and the name of the schema that its answer is to follow."""

    schema: str
    body: bytes


def packaged_tasks(names: Sequence[str] = ()) -> tuple[Task, ...]:
    """The tasks with these schemas, by default all; ``KeyError`` for a name that there is not."""
    text = resources.files(__package__).joinpath("schemas.json").read_bytes()
    known = {name: Task(name, one["task"], one["schema"]) for name, one in json.loads(text).items()}
    return tuple(known[name] for name in names or known)
