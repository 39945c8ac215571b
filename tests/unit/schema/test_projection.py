"""A user's schema is a projection by name of the declared rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dspark_json.errors import SchemaError
from dspark_json.schema.envelope import row_schema
from dspark_json.schema.fields import wire_names
from dspark_json.schema.projection import project

DECLARED = row_schema()


def test_any_subset_in_any_order_is_taken_at_every_level() -> None:
    wanted = pa.schema(
        [
            pa.field("usage", pa.struct([("total_tokens", pa.int64()), ("prompt_tokens", pa.int64())]), nullable=False),
            pa.field("created", pa.timestamp("us", tz="Europe/Berlin")),
            pa.field("choices", pa.list_(pa.struct([("message", pa.struct([("content", pa.string())]))]))),
            pa.field("prompt_logprobs", pa.list_(pa.map_(pa.string(), pa.struct([("rank", pa.int64())])))),
        ]
    )
    made = project(DECLARED, wanted)
    assert made.names == wanted.names
    assert made.field("usage").nullable
    assert made.field("created").type == pa.timestamp("us", tz="UTC")
    assert wire_names(made.field("created")) == ("created", "created_at")
    assert wire_names(made.field("usage").type.field("prompt_tokens")) == ("prompt_tokens", "input_tokens")
    assert made.field("choices").type == wanted.field("choices").type
    assert made.field("prompt_logprobs").type == wanted.field("prompt_logprobs").type


def test_the_whole_is_a_projection_of_itself_and_nothing_is_one_too() -> None:
    assert project(DECLARED, DECLARED).equals(DECLARED, check_metadata=True)
    assert len(project(DECLARED, pa.schema([]))) == 0


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (pa.schema([("usages", pa.int64())]), 'no "usages".*Did you mean "usage"'),
        (pa.schema([("usage", pa.struct([("tokens", pa.int64())]))]), 'no "usage.tokens".*total_tokens'),
        (pa.schema([("created", pa.int64())]), '"created" is BIGINT .* TIMESTAMP'),
        (pa.schema([("created", pa.timestamp("us"))]), '"created" is timestamp'),
        (pa.schema([("usage", pa.struct([("total_tokens", pa.int32())]))]), '"usage.total_tokens" is INT .* BIGINT'),
        (pa.schema([("choices", pa.struct([("index", pa.int64())]))]), '"choices" is STRUCT'),
        (pa.schema([("choices", pa.list_(pa.struct([])))]), "has no fields"),
        (pa.schema([("metadata", pa.map_(pa.int64(), pa.string()))]), '"metadata.key" is BIGINT'),
        (pa.schema([("id", pa.string()), ("id", pa.string())]), "twice"),
        (pa.schema([("id", pa.null())]), '"id" is null'),
    ],
)
def test_an_unknown_name_or_another_type_is_an_error_that_names_what_is_declared(wanted: pa.Schema, says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        project(DECLARED, wanted)
