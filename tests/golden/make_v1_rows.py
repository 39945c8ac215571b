"""Make the golden rows of format 1 by hand: what the columns of DESIGN §5 and §6 hold for each record of ``v1/spool``.

Run as ``python tests/golden/make_v1_rows.py FOLDER``; it writes ``FOLDER/rows/rows.jsonl``. Only the standard library,
literal values, and ``answers.ndjson`` go in, as for ``make_v1.py``. One row a line, records by lane and number, all
columns in their order; TIMESTAMP as ISO 8601 text, MAP as an object. There is no content type: ``parsed`` is the JSON
text.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from pathlib import Path
from typing import Any

ANSWERS = [
    json.loads(line) for line in Path(__file__).with_name("answers.ndjson").read_text(encoding="utf-8").splitlines()
]
ORDER, TOOL_CALL, THREE, LOGPROBS, BAD_SCHEMA, _RISK, LEFT_STREAM, NON_ASCII = ANSWERS
SPOOL_ID = "0b7f6a52-3c1e-4d89-9f60-5a2b8c4d7e01"
T = 1_795_970_578_000_000

# The columns: None is a value, a dictionary a struct, a list with a dictionary in it an array of structs.
Columns = dict[str, Any]
TOKEN: Columns = dict.fromkeys(["token", "logprob", "bytes"])
CHAT_LOGPROBS = [{**TOKEN, "top_logprobs": [TOKEN]}]
COLUMNS: Columns = {
    "id": None,
    "object": None,
    "created": None,
    "model": None,
    "choices": [
        {
            "index": None,
            "message": {
                "role": None,
                "content": None,
                "reasoning": None,
                "refusal": None,
                "tool_calls": [
                    {
                        "id": None,
                        "type": None,
                        "function": dict.fromkeys(["name", "arguments", "parsed_arguments", "arguments_status"]),
                    }
                ],
                "function_call": dict.fromkeys(["name", "arguments"]),
                "annotations": None,
                "audio": dict.fromkeys(["id", "data", "expires_at", "transcript"]),
            },
            "text": None,
            "parsed": None,
            "parse_status": None,
            "finish_reason": None,
            "stop_reason": None,
            "logprobs": {
                "content": CHAT_LOGPROBS,
                "refusal": CHAT_LOGPROBS,
                **dict.fromkeys(["text_offset", "token_logprobs", "tokens", "top_logprobs"]),
            },
            "token_ids": None,
            "routed_experts": None,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
        }
    ],
    "usage": {
        **dict.fromkeys(["prompt_tokens", "completion_tokens", "total_tokens"]),
        "prompt_tokens_details": dict.fromkeys(
            ["cached_tokens", "created_cache_tokens", "audio_tokens", "multimodal_tokens"]
        ),
        "completion_tokens_details": dict.fromkeys(
            ["reasoning_tokens", "audio_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens"]
        ),
    },
    "metrics": {
        **dict.fromkeys(
            ["time_to_first_token_ms", "generation_time_ms", "queue_time_ms", "mean_itl_ms", "tokens_per_second"]
        ),
        "speculative_decoding": dict.fromkeys(
            [
                "mean_acceptance_length",
                "draft_acceptance_rate",
                "acceptance_histogram",
                "num_accepted_draft_tokens",
                "num_draft_tokens",
                "num_spec_steps",
                "num_spec_tokens",
                "per_step_accepted",
                "per_step_drafted",
            ]
        ),
    },
    "service_tier": None,
    "system_fingerprint": None,
    "error": dict.fromkeys(["message", "type", "param", "code"]),
    "metadata": None,
    "prompt_logprobs": None,
    "prompt_token_ids": None,
    "prompt_text": None,
    "kv_transfer_params": None,
    "ec_transfer_params": None,
    "_dspark": {
        **dict.fromkeys(
            [
                "spool_id",
                "lane",
                "seq",
                "appended_at",
                "request_id",
                "path",
                "model",
                "status",
                "stream",
                "received_at",
                "first_byte_ms",
                "duration_ms",
                "completed",
                "disconnected",
            ]
        ),
        "error": dict.fromkeys(["message", "type", "code"]),
        "schema": dict.fromkeys(["name", "hash"]),
        "request": dict.fromkeys(
            [
                "temperature",
                "top_p",
                "top_k",
                "min_p",
                "max_tokens",
                "max_completion_tokens",
                "n",
                "seed",
                "stop",
                "presence_penalty",
                "frequency_penalty",
                "repetition_penalty",
                "logprobs",
                "top_logprobs",
                "response_format",
                "structured_outputs",
                "guided_json",
                "tool_choice",
                "parallel_tool_calls",
                "reasoning_effort",
                "stream_options",
                "ignore_eos",
                "priority",
                "body",
            ]
        ),
        "body": None,
    },
    "_rescued_data": None,
    "_corrupt_record": None,
}


def laid_out(value: Any, columns: Any) -> Any:
    """A value with every field of its columns, in their order; a field that columns don't have is an error."""
    if value is None or columns is None:
        return value
    if isinstance(columns, list):
        return [laid_out(item, columns[0]) for item in value]
    assert set(value) <= set(columns), set(value) - set(columns)
    return {name: laid_out(value.get(name), part) for name, part in columns.items()}


def iso(microseconds: int) -> str:
    moment = dt.datetime.fromtimestamp(microseconds // 1_000_000, dt.UTC).replace(microsecond=microseconds % 1_000_000)
    return moment.isoformat(timespec="microseconds")


def record(seq: int, lane: str, request_id: str | None, status: int, received: int, appended: int, **rest: Any) -> Any:
    return {
        "spool_id": SPOOL_ID,
        "lane": lane,
        "seq": seq,
        "appended_at": iso(T + appended),
        "request_id": request_id,
        "path": "/v1/chat/completions",
        "model": "tiny",
        "status": status,
        "stream": False,
        "received_at": iso(T + received),
        "completed": True,
        "disconnected": False,
        **rest,
    }


def row(dspark: Any, answer: Any = None, parsed: tuple[Any, ...] = (), **rest: Any) -> Any:
    """The row of an answer; ``parsed`` has (parsed, parse_status) for each of its choices."""
    columns = dict(answer or {})
    if "created" in columns:
        columns["created"] = iso(columns["created"] * 1_000_000)
    if "choices" in columns:
        columns["choices"] = [
            {**choice, "parsed": text, "parse_status": status}
            for choice, (text, status) in zip(columns["choices"], parsed, strict=True)
        ]
    return laid_out({**columns, "_dspark": dspark, **rest}, COLUMNS)


ORDER_TEXT = (
    '{ "order_id":"]GjuwEURAEU"  ,  "amount":7e-6122     ,   "paid":  true,   "currency":    "CNY","items"  :'
    '[{"sku":  "=nur; nu","qty":93  }]  , "customer": null}'
)
ARGUMENTS = (
    '{"order_id": ",ckZvEUR brE", "amount": 13698, "paid": true, "currency": "EUR", '
    '"items": [{"sku": "]curr;:y", "qty": 63}], "customer": null}'
)
# The arguments of a tool call are JSON by the API: they always have a status.
TOOL_CALL["choices"][0]["message"]["tool_calls"][0]["function"] |= {
    "parsed_arguments": ARGUMENTS,
    "arguments_status": "ok",
}
GRAMMAR_ERROR = {"message": "Grammar error: Invalid type: nonsense", "type": "BadRequestError", "code": "400"}

ROWS = [
    row(
        record(
            0,
            "0000",
            "req-0001",
            200,
            10_000,
            640_000,
            first_byte_ms=623.5,
            duration_ms=624.25,
            schema={"name": "order", "hash": "3f6c1d0a9be24785"},
            request={"max_tokens": 256, "seed": 1},
        ),
        ORDER,
        ((ORDER_TEXT, "ok"),),
    ),
    # A choice with tool calls and no content has no parse_status.
    row(
        record(
            1,
            "0000",
            "req-0002",
            200,
            20_000,
            1_720_000,
            first_byte_ms=1690.125,
            duration_ms=1690.5,
            request={"max_tokens": 256, "seed": 6, "tool_choice": "required"},
        ),
        TOOL_CALL,
        ((None, None),),
    ),
    row(
        record(
            2,
            "0000",
            "req-0003",
            200,
            30_000,
            1_720_000,
            first_byte_ms=1680.0,
            duration_ms=1680.75,
            schema={"name": "risk", "hash": "a41c77e5d2036b98"},
            request={"max_tokens": 256, "n": 3, "temperature": 1.0, "seed": 3},
        ),
        THREE,
        (
            ('{"score" : 1, "risk_level": "mid"}', "ok"),
            ('{"score":0.123612  , "risk_level":  "low","reasons":["lafency$)rufoN0."]  }', "ok"),
            ('{"score":1.0, "risk_level": "mid","reasons":["Uicurr jumpsown"]    }', "ok"),
        ),
    ),
    # Nobody asked for JSON here, and it is none.
    row(
        record(
            3,
            "0000",
            "req-0004",
            200,
            1_900_000,
            2_000_000,
            first_byte_ms=98.0,
            duration_ms=98.5,
            # `logprobs` is a boolean or a number on the wire, so the column is STRING.
            request={"max_tokens": 5, "logprobs": "true", "top_logprobs": 3},
        ),
        LOGPROBS,
        ((None, None),),
    ),
    row(
        record(
            4,
            "0000",
            "req-0005",
            400,
            2_090_000,
            2_100_000,
            first_byte_ms=8.5,
            duration_ms=8.75,
            completed=False,
            error=GRAMMAR_ERROR,
            request={"max_tokens": 256},
        ),
        # Codes are strings.
        error={**BAD_SCHEMA["error"], "code": "400"},
    ),
    row(
        record(
            5,
            "0000",
            "req-0006",
            502,
            2_200_000,
            2_300_000,
            first_byte_ms=99.0,
            duration_ms=99.0,
            completed=False,
            request={"max_tokens": 256, "seed": 2},
            body="<html>\r\n<body>502 Bad Gateway – “upstream” \\ gone</body>\n</html>\n",
        ),
    ),
    row(
        record(
            10,
            "0001",
            "req-0101",
            200,
            2_950_000,
            3_000_000,
            stream=True,
            first_byte_ms=12.5,
            duration_ms=48.0,
            completed=False,
            disconnected=True,
            request={"max_tokens": 400, "stream_options": '{"include_usage":true}', "ignore_eos": True},
        ),
        LEFT_STREAM,
        ((None, None),),
    ),
    row(
        record(
            11,
            "0001",
            None,
            200,
            3_050_000,
            3_200_000,
            duration_ms=140.0,
            completed=False,
            disconnected=True,
            body="null",
        ),
    ),
    # Nobody asked for JSON (that the record tells of), so there is no status; the content is JSON all the same.
    row(
        record(
            12,
            "0001",
            "req-0103",
            200,
            3_100_000,
            3_200_000,
            first_byte_ms=80.5,
            duration_ms=80.75,
            request={"max_tokens": 24},
        ),
        NON_ASCII,
        (('{"stadt":"Zürich","税":"含む","note":"Straße – 🚀"}', None),),
    ),
]


def main() -> None:
    folder = Path(sys.argv[1]) / "rows"
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in ROWS)
    (folder / "rows.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
