"""The declared rows: what the answers of a vLLM or OpenAI-compatible server look like as columns (DESIGN §5).

Declared from vLLM's protocol (``vllm/entrypoints/openai/chat_completion/protocol.py``,
``.../completion/protocol.py``, ``.../responses/protocol.py``), never inferred from data. Every field is nullable, no
type is void, no struct is empty: Delta refuses those.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from dspark_json.schema.fields import BIGINT, BOOLEAN, DOUBLE, INT, STRING, TIMESTAMP, field

__all__ = ["CORRUPT_COLUMN", "RECORD_COLUMN", "RESCUED_COLUMN", "VIOLATIONS_FIELD", "row_schema"]

RECORD_COLUMN: Final = "_dspark"
RESCUED_COLUMN: Final = "_rescued_data"
CORRUPT_COLUMN: Final = "_corrupt_record"
VIOLATIONS_FIELD: Final = "violations"

_MADE_BY_THE_READER: Final[tuple[str, ...]] = ()


def _struct(*fields: pa.Field) -> pa.DataType:
    return pa.struct(list(fields))


def _derived(name: str, kind: pa.DataType) -> pa.Field:
    return field(name, kind, wire=_MADE_BY_THE_READER)


_TOKEN_LOGPROB: Final = (field("token", STRING), field("logprob", DOUBLE), field("bytes", pa.list_(BIGINT)))

# Of chat and of responses.
_CHAT_LOGPROBS: Final = pa.list_(_struct(*_TOKEN_LOGPROB, field("top_logprobs", pa.list_(_struct(*_TOKEN_LOGPROB)))))

# Chat fills `content`, completions the four after `refusal`.
_LOGPROBS: Final = _struct(
    field("content", _CHAT_LOGPROBS),
    field("refusal", _CHAT_LOGPROBS),
    field("text_offset", pa.list_(BIGINT)),
    field("token_logprobs", pa.list_(DOUBLE)),
    field("tokens", pa.list_(STRING)),
    field("top_logprobs", pa.list_(pa.map_(STRING, DOUBLE))),
)

# One map a prompt token, from token id to what was thought of it; the first one is null.
_PROMPT_LOGPROBS: Final = pa.list_(
    pa.map_(STRING, _struct(field("logprob", DOUBLE), field("rank", BIGINT), field("decoded_token", STRING)))
)


def _tool_call(tool_type: pa.DataType | None) -> pa.DataType:
    function = _struct(
        field("name", STRING),
        field("arguments", STRING),
        _derived("parsed_arguments", STRING if tool_type is None else tool_type),
        _derived("arguments_status", STRING),
    )
    return _struct(field("id", STRING), field("type", STRING), field("function", function))


def _message(tool_type: pa.DataType | None) -> pa.DataType:
    return _struct(
        field("role", STRING),
        field("content", STRING),
        field("reasoning", STRING, wire=("reasoning", "reasoning_content")),
        field("refusal", STRING),
        field("tool_calls", pa.list_(_tool_call(tool_type))),
        field("function_call", _struct(field("name", STRING), field("arguments", STRING))),
        # OpenAI sends a list of annotations, vLLM declares a single one: the text takes both.
        field("annotations", STRING),
        field(
            "audio",
            _struct(
                field("id", STRING),
                field("data", STRING),
                field("expires_at", TIMESTAMP, unit="s"),
                field("transcript", STRING),
            ),
        ),
    )


_USAGE: Final = _struct(
    field("prompt_tokens", BIGINT, wire=("prompt_tokens", "input_tokens")),
    field("completion_tokens", BIGINT, wire=("completion_tokens", "output_tokens")),
    field("total_tokens", BIGINT),
    field(
        "prompt_tokens_details",
        _struct(
            field("cached_tokens", BIGINT),
            field("created_cache_tokens", BIGINT, wire=("created_cache_tokens", "cache_write_tokens")),
            field("audio_tokens", BIGINT),
            # By modality: image, audio, video.
            field("multimodal_tokens", pa.map_(STRING, BIGINT)),
            # Of a response that called the server's own tools: one entry a turn of the model.
            field("input_tokens_per_turn", pa.list_(BIGINT)),
            field("cached_tokens_per_turn", pa.list_(BIGINT)),
        ),
        wire=("prompt_tokens_details", "input_tokens_details"),
    ),
    field(
        "completion_tokens_details",
        _struct(
            field("reasoning_tokens", BIGINT),
            field("audio_tokens", BIGINT),
            field("accepted_prediction_tokens", BIGINT),
            field("rejected_prediction_tokens", BIGINT),
            field("tool_output_tokens", BIGINT),
            field("output_tokens_per_turn", pa.list_(BIGINT)),
            field("tool_output_tokens_per_turn", pa.list_(BIGINT)),
        ),
        wire=("completion_tokens_details", "output_tokens_details"),
    ),
)

# `--enable-per-request-metrics`; lengths in tokens, rates from 0 to 1. Entry i of the histogram: steps that accepted i
# tokens.
_METRICS: Final = _struct(
    field("time_to_first_token_ms", DOUBLE),
    field("generation_time_ms", DOUBLE),
    field("queue_time_ms", DOUBLE),
    field("mean_itl_ms", DOUBLE),
    field("tokens_per_second", DOUBLE),
    field(
        "speculative_decoding",
        _struct(
            field("mean_acceptance_length", DOUBLE),
            field("draft_acceptance_rate", DOUBLE),
            field("acceptance_histogram", pa.list_(BIGINT)),
            field("num_accepted_draft_tokens", BIGINT),
            field("num_draft_tokens", BIGINT),
            field("num_spec_steps", BIGINT),
            field("num_spec_tokens", BIGINT),
            field("per_step_accepted", pa.list_(BIGINT)),
            field("per_step_drafted", pa.list_(BIGINT)),
        ),
    ),
)

_RESPONSE_PART: Final = _struct(
    field("type", STRING),
    field("text", STRING),
    field("refusal", STRING),
    field("annotations", STRING),
    field("logprobs", _CHAT_LOGPROBS),
)

# The items of `/v1/responses`, of which `choices` is made. Those of the server's own tools have the fields after
# `arguments`; what is an object of a form of its own there is its JSON text.
_RESPONSE_ITEM: Final = _struct(
    field("id", STRING),
    field("type", STRING),
    field("status", STRING),
    field("role", STRING),
    field("phase", STRING),
    field("content", pa.list_(_RESPONSE_PART)),
    field("summary", pa.list_(_struct(field("type", STRING), field("text", STRING)))),
    field("encrypted_content", STRING),
    field("call_id", STRING),
    field("name", STRING),
    field("namespace", STRING),
    field("arguments", STRING),
    field("input", STRING),
    field("output", STRING),
    field("error", STRING),
    field("server_label", STRING),
    field("approval_request_id", STRING),
    field("action", STRING),
    field("code", STRING),
    field("container_id", STRING),
    field("outputs", STRING),
    field("queries", STRING),
    field("results", STRING),
    field("result", STRING),
)

# What a response says of itself, after what it has in common with the other two.
_RESPONSE: Final = (
    field("status", STRING),
    field("incomplete_details", _struct(field("reason", STRING))),
    field("output", pa.list_(_RESPONSE_ITEM)),
    field("previous_response_id", STRING),
    field("completed_at", TIMESTAMP, unit="s"),
    field("background", BOOLEAN),
    field("store", BOOLEAN),
    field("user", STRING),
    field("temperature", DOUBLE),
    field("top_p", DOUBLE),
    field("presence_penalty", DOUBLE),
    field("frequency_penalty", DOUBLE),
    field("max_output_tokens", BIGINT),
    field("max_tool_calls", BIGINT),
    field("top_logprobs", BIGINT),
    field("truncation", STRING),
    field("parallel_tool_calls", BOOLEAN),
    field("tool_choice", STRING),
    field("reasoning", _struct(field("effort", STRING), field("summary", STRING), field("generate_summary", STRING))),
    field("text", STRING),
    # What echoes the request: null unless the hook keeps requests whole.
    field("instructions", STRING),
    field("prompt", STRING),
    field("tools", STRING),
    field("input_messages", STRING),
    field("output_messages", STRING),
)

_ERROR: Final = _struct(field("message", STRING), field("type", STRING), field("param", STRING), field("code", STRING))

# What was asked. Settings that may be a word, a number or an object on the wire are STRING.
_REQUEST: Final = _struct(
    field("temperature", DOUBLE),
    field("top_p", DOUBLE),
    field("top_k", BIGINT),
    field("min_p", DOUBLE),
    field("max_tokens", BIGINT),
    field("max_completion_tokens", BIGINT),
    field("max_output_tokens", BIGINT),
    field("min_tokens", BIGINT),
    field("n", BIGINT),
    field("best_of", BIGINT),
    field("echo", BOOLEAN),
    field("seed", BIGINT),
    field("stop", STRING),
    field("presence_penalty", DOUBLE),
    field("frequency_penalty", DOUBLE),
    field("repetition_penalty", DOUBLE),
    field("logprobs", STRING),
    field("top_logprobs", BIGINT),
    field("response_format", STRING),
    field("structured_outputs", STRING),
    field("guided_json", STRING),
    field("tool_choice", STRING),
    field("parallel_tool_calls", BOOLEAN),
    field("max_tool_calls", BIGINT),
    field("reasoning", STRING),
    field("reasoning_effort", STRING),
    field("include_reasoning", BOOLEAN),
    field("stream_options", STRING),
    field("ignore_eos", BOOLEAN),
    field("priority", BIGINT),
    field("service_tier", STRING),
    field("truncation", STRING),
    field("background", BOOLEAN),
    field("store", BOOLEAN),
    field("previous_response_id", STRING),
    field("body", STRING),
)

_RECORD: Final = _struct(
    _derived("spool_id", STRING),
    field("lane", STRING),
    field("seq", BIGINT),
    _derived("appended_at", TIMESTAMP),
    field("request_id", STRING),
    field("path", STRING),
    field("model", STRING),
    field("status", INT),
    field("stream", BOOLEAN),
    field("received_at", TIMESTAMP, unit="us"),
    field("first_byte_ms", DOUBLE),
    field("duration_ms", DOUBLE),
    field("completed", BOOLEAN),
    field("disconnected", BOOLEAN),
    field("error", _struct(field("message", STRING), field("type", STRING), field("code", STRING))),
    field("schema", _struct(field("name", STRING), field("hash", STRING))),
    field("request", _REQUEST),
    field("body", STRING),
)


def _choice(content_type: pa.DataType | None, tool_type: pa.DataType | None, *, violations: bool) -> pa.DataType:
    return _struct(
        field("index", BIGINT),
        field("message", _message(tool_type)),
        field("text", STRING),
        _derived("parsed", STRING if content_type is None else content_type),
        _derived("parse_status", STRING),
        *((_derived(VIOLATIONS_FIELD, pa.list_(STRING)),) if violations else ()),
        field("finish_reason", STRING),
        field("stop_reason", STRING),
        field("logprobs", _LOGPROBS),
        field("token_ids", pa.list_(BIGINT)),
        field("routed_experts", STRING),
        field("prompt_logprobs", _PROMPT_LOGPROBS),
        field("prompt_token_ids", pa.list_(BIGINT)),
    )


def row_schema(
    content_type: pa.DataType | None = None, tool_type: pa.DataType | None = None, *, violations: bool = False
) -> pa.Schema:
    """The declared rows.

    ``content_type`` is that of ``choices[].parsed``, ``tool_type`` that of ``function.parsed_arguments`` (``None``:
    STRING, the JSON text). ``violations``: whether choices tell which constraints of their schema they violate.
    """
    return pa.schema(
        [
            field("id", STRING),
            field("object", STRING),
            field("created", TIMESTAMP, wire=("created", "created_at"), unit="s"),
            field("model", STRING),
            field("choices", pa.list_(_choice(content_type, tool_type, violations=violations))),
            field("usage", _USAGE),
            field("metrics", _METRICS),
            field("service_tier", STRING),
            field("system_fingerprint", STRING),
            field("error", _ERROR),
            field("metadata", pa.map_(STRING, STRING)),
            field("prompt_logprobs", _PROMPT_LOGPROBS),
            field("prompt_token_ids", pa.list_(BIGINT)),
            field("prompt_text", STRING),
            field("kv_transfer_params", STRING),
            field("ec_transfer_params", STRING),
            *_RESPONSE,
            field(RECORD_COLUMN, _RECORD),
            _derived(RESCUED_COLUMN, STRING),
            _derived(CORRUPT_COLUMN, STRING),
        ]
    )
