"""The answers that the notebooks read: a shop's orders as two models write them, with the faults that models make.

All of it is made up from a seed. ``record`` sends the exchanges through the hook, which keeps them in a spool as it
would in a server; so everything after that is what a server's answers give.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

START = 1_790_812_800  # 2026-10-01 00:00 UTC
HOURS = 48
MODELS = ("shop-8b", "shop-1b")
COUNTRIES = {"DE": "EUR", "FR": "EUR", "US": "USD", "CH": "CHF"}

_ITEM = {"type": "object", "properties": {"sku": {"type": "string"}, "quantity": {"type": "integer"}}}
_FIELDS: dict[str, Any] = {
    "order_id": {"type": "string"},
    "country": {"type": "string"},
    "amount": {"type": "number"},
    "currency": {"type": "string"},
    "items": {"type": "array", "items": _ITEM},
}
_NEW_FIELDS: dict[str, Any] = {"discount": {"type": "number"}, "channel": {"type": "string"}}

# Of a thousand answers: the large model holds to its schema, the small one runs without a grammar.
_FAULTS = {
    MODELS[0]: {"cut": 25, "extra": 15},
    MODELS[1]: {"fence": 90, "thinking": 70, "goodbye": 50, "cut": 60, "text amount": 60, "prose": 40, "extra": 80},
}


def schema(version: int = 1) -> dict[str, Any]:
    """The JSON Schema that requests name as ``order``; version 2 has two fields more."""
    return {"type": "object", "properties": _FIELDS | (_NEW_FIELDS if version > 1 else {}), "required": [*_FIELDS]}


def exchanges(count: int, *, version: int = 1, first: int = 0, seed: int = 7) -> Iterator[dict[str, Any]]:
    """Requests for an order and their answers, spread over 48 hours; one in 50 requests is refused."""
    chance = random.Random(f"{seed} {version} {first}")
    for number in range(first, first + count):
        model = MODELS[chance.random() < 0.4]
        request = {
            "model": model,
            "messages": [{"role": "user", "content": f"order {number}"}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "order", "schema": schema(version)}},
        }
        if chance.random() < 0.02:
            error = {"message": "the engine has too many requests", "type": "TooManyRequests", "code": 429}
            yield {
                "path": "/v1/chat/completions",
                "request": request,
                "status": 429,
                "content_type": "application/json",
                "chunks": [json.dumps({"error": error})],
            }
            continue
        created = START + (number - first) * HOURS * 3600 // count
        yield {"request": request, "body": json.dumps(_answer(number, version, model, created, chance))}


def record(some: Iterable[dict[str, Any]], spool: Path) -> None:
    """Send exchanges through the hook, which keeps their answers in ``spool``."""
    lines = "\n".join(map(json.dumps, some))
    command = [sys.executable, "-m", "dspark_json", "replay", "-", "--spool", str(spool)]
    subprocess.run(command, input=lines, text=True, check=True, capture_output=True)  # noqa: S603 - our own


def _answer(number: int, version: int, model: str, created: int, chance: random.Random) -> dict[str, Any]:
    content, reason = _content(_order(number, version, chance), model, chance)
    tokens = len(content) // 4 + 1
    return {
        "id": f"chatcmpl-{version}-{number:05}",
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": reason}],
        "usage": {"prompt_tokens": 20, "completion_tokens": tokens, "total_tokens": 20 + tokens},
    }


def _order(number: int, version: int, chance: random.Random) -> dict[str, Any]:
    country = chance.choices(list(COUNTRIES), (5, 3, 3, 1))[0]
    skus = chance.sample(range(40), chance.randint(1, 3))
    items = [{"sku": f"S{sku:02}", "quantity": chance.randint(1, 4)} for sku in skus]
    order: dict[str, Any] = {
        "order_id": f"A{number:05}" if chance.random() > 0.02 else "",
        "country": country,
        "amount": round(chance.lognormvariate(3.7, 0.6), 2) * (-1 if chance.random() < 0.015 else 1),
        "currency": COUNTRIES[country],
        "items": items,
    }
    if version > 1:
        order |= {"discount": chance.choice((0, 0, 0.1, 0.25)), "channel": chance.choice(("web", "app"))}
    return order


def _content(order: dict[str, Any], model: str, chance: random.Random) -> tuple[str, str]:
    """The answer's text with at most one fault, and its finish reason."""
    faults = _FAULTS[model]
    fault = chance.choices([*faults, ""], [*faults.values(), 1000 - sum(faults.values())])[0]
    if fault == "text amount":
        order["amount"] = f"{order['amount']} {order['currency']}"
    elif fault == "extra":
        order[chance.choice(("note", "vat", "shipping"))] = chance.choice(("gift", "19%", "express"))
    text = json.dumps(order)
    if fault == "cut":
        return text[: chance.randint(len(text) // 3, len(text) - 2)], "length"
    texts = {
        "fence": f"```json\n{text}\n```",
        "thinking": f"<think>One order, from {order['country']}.</think>{text}",
        "goodbye": f"{text}\nAnything else?",
        "prose": f"Here is the order: {text}",
    }
    return texts.get(fault, text), "stop"
