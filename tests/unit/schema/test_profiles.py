"""Profiles: what they add, what they may not touch, and that each shipped one fits Delta and real answers."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from engine_support import line, row

from dspark_json.engine import build_plan
from dspark_json.errors import InvalidOptionError
from dspark_json.schema.ddl import columns_to_ddl, to_ddl
from dspark_json.schema.envelope import row_schema
from dspark_json.schema.fields import BIGINT, DOUBLE, STRING, wire_names
from dspark_json.schema.profiles import load_profiles, shipped_profiles, with_profiles
from dspark_json.source.settings import reader_settings


def types(kind: pa.DataType) -> list[pa.DataType]:
    """A type and all inside it."""
    if pa.types.is_struct(kind):
        inner = [t for i in range(kind.num_fields) for t in types(kind.field(i).type)]
    elif pa.types.is_map(kind):
        inner = [*types(kind.key_type), *types(kind.item_type)]
    else:
        inner = types(kind.value_type) if pa.types.is_list(kind) else []
    return [kind, *inner]


def structs(kind: pa.DataType) -> list[pa.DataType]:
    return [one for one in types(kind) if pa.types.is_struct(one)]


def at(schema: pa.Schema, *path: str) -> pa.Field:
    """The field at a path; items of arrays are stepped into."""
    fields = {field.name: field for field in schema}
    for step in path:
        found = fields[step]
        kind = found.type
        while pa.types.is_list(kind) and not pa.types.is_map(kind):
            kind = kind.value_type
        fields = {kind.field(i).name: kind.field(i) for i in range(kind.num_fields)} if pa.types.is_struct(kind) else {}
    return found


def own(folder: Path, fields: Any, **members: Any) -> str:
    file = folder / "mine.json"
    file.write_text(json.dumps({"name": "mine", "about": "", "source": "", "fields": fields, **members}))
    return str(file)


def test_the_profiles_of_known_servers_are_there() -> None:
    assert set(shipped_profiles()) >= {"openai", "vllm", "deepseek", "deepseek-coder", "sglang"}


@pytest.mark.parametrize("name", shipped_profiles())
def test_a_shipped_profile_says_what_it_is_and_where_its_names_come_from(name: str) -> None:
    (profile,) = load_profiles(name)
    assert profile.name == name
    assert profile.about
    assert profile.source


@pytest.mark.parametrize("name", [*shipped_profiles(), ",".join(shipped_profiles())])
def test_rows_with_a_shipped_profile_are_what_delta_takes(name: str) -> None:
    rows = with_profiles(row_schema(), load_profiles(name))
    root = pa.struct(list(rows))
    assert not any(pa.types.is_null(kind) for kind in types(root))
    for struct in structs(root):
        names = [struct.field(i).name.lower() for i in range(struct.num_fields)]
        assert names
        assert len(set(names)) == len(names)
        assert not any(set(one) & set(" ,;{}()\n\t=") for one in names)
        assert all(struct.field(i).nullable for i in range(struct.num_fields))
    assert columns_to_ddl(rows)


def test_without_a_profile_the_rows_stay_as_they_are() -> None:
    assert with_profiles(row_schema(), ()).equals(row_schema(), check_metadata=True)


def test_deepseek_replaces_the_type_of_metadata() -> None:
    metadata = at(with_profiles(row_schema(), load_profiles("deepseek")), "metadata")
    assert to_ddl(metadata.type) == (
        "STRUCT<inference_time_ms: DOUBLE, kv_cache_hit_rate: DOUBLE, gpu_utilization_pct: DOUBLE>"
    )


def test_a_new_column_stands_before_those_of_the_reader() -> None:
    names = with_profiles(row_schema(), load_profiles("sglang")).names
    assert names[-4:] == ["sglext", "_dspark", "_rescued_data", "_corrupt_record"]


def test_a_new_field_stands_behind_its_siblings_and_the_rest_is_untouched(tmp_path: Path) -> None:
    plain = row_schema()
    rows = with_profiles(
        plain, load_profiles(own(tmp_path, {"choices[].message.tool_calls[].function.cost": "DOUBLE"}))
    )
    function = at(rows, "choices", "message", "tool_calls", "function").type
    assert function.field(function.num_fields - 1).equals(pa.field("cost", DOUBLE))
    assert wire_names(at(rows, "choices", "message", "reasoning")) == ("reasoning", "reasoning_content")
    assert [f for f in rows if f.name != "choices"] == [f for f in plain if f.name != "choices"]


def test_a_replaced_field_keeps_its_names_on_the_wire(tmp_path: Path) -> None:
    rows = with_profiles(row_schema(), load_profiles(own(tmp_path, {"usage.prompt_tokens": "DOUBLE"})))
    assert at(rows, "usage", "prompt_tokens").type == DOUBLE
    assert wire_names(at(rows, "usage", "prompt_tokens")) == ("prompt_tokens", "input_tokens")


def test_a_name_that_differs_by_case_from_a_sibling_is_numbered_and_found_on_the_wire(tmp_path: Path) -> None:
    rows = with_profiles(row_schema(), load_profiles(own(tmp_path, {"Usage": "STRING", "my field": "BIGINT"})))
    assert rows.field("Usage_2").type == STRING
    assert wire_names(rows.field("Usage_2")) == ("Usage",)
    assert rows.field("my_field").type == BIGINT
    assert wire_names(rows.field("my_field")) == ("my field",)


def test_several_profiles_add_up_and_the_later_one_wins(tmp_path: Path) -> None:
    names = f"deepseek, deepseek-coder ,{own(tmp_path, {'metadata': 'STRING'})}"
    rows = with_profiles(row_schema(), load_profiles(names))
    assert rows.field("metadata").type == STRING
    assert at(rows, "usage", "prompt_cache_hit_tokens").type == BIGINT
    assert at(rows, "choices", "message", "code_blocks").name == "code_blocks"


def test_the_type_of_parsed_stays_where_a_profile_adds_beside_it() -> None:
    kind = pa.struct([pa.field("a", BIGINT)])
    assert at(with_profiles(row_schema(kind), load_profiles("sglang")), "choices", "parsed").type == kind


def test_a_profile_goes_to_other_machines_without_its_file(tmp_path: Path) -> None:
    file = own(tmp_path, {"x": "STRING"})
    pickled = pickle.dumps(load_profiles(file))
    Path(file).unlink()
    assert "x" in with_profiles(row_schema(), pickle.loads(pickled)).names


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("opnai", 'Did you mean "openai"?'),
        ("DeepSeek", 'Did you mean "deepseek"?'),
        ("openai,", 'there is no profile ""'),
        ("/no/such/profile.json", "can't be read: No such file"),
        ("no-such.json", "can't be read: No such file"),
    ],
)
def test_an_unknown_profile_is_told_with_the_closest_one(name: str, said: str) -> None:
    with pytest.raises(InvalidOptionError, match="profile") as caught:
        load_profiles(name)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it is not JSON"),
        ("[1]", "it is not a JSON object"),
        ("{}", '"fields" is not an object'),
        ('{"fields": {}}', '"fields" is not an object'),
        ('{"feilds": {"a": "STRING"}}', '"feilds" is none of name'),
        ('{"name": 1, "fields": {"a": "STRING"}}', '"name" is not a string'),
        ('{"fields": {"a": 1}}', 'the type of "a" is not a string'),
        ('{"fields": {"a": "DECIMAL(3)"}}', 'the type of "a" is not one'),
        ('{"fields": {"a": "STRUCT<>"}}', 'the type of "a" is not one'),
        ('{"fields": {"a": "TIMESTAMP"}}', 'the type of "a" is not one'),
        ('{"fields": {"a..b": "STRING"}}', "is not a path"),
        ('{"fields": {"a[0].b": "STRING"}}', "is not a path"),
        ('{"fields": {"": "STRING"}}', "is not a path"),
        ('{"fields": {"a[]": "STRING"}}', "ends with []"),
    ],
)
def test_a_broken_file_is_told_with_what_is_wrong_in_it(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.json"
    file.write_text(text)
    with pytest.raises(InvalidOptionError) as caught:
        load_profiles(str(file))
    assert said in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    file = tmp_path / "binary.json"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidOptionError, match="not UTF-8"):
        load_profiles(str(file))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("choices[].parsed", "made by the reader"),
        ("choices[].parsed.x", "made by the reader"),
        ("_dspark.x", "made by the reader"),
        ("_rescued_data", "made by the reader"),
        ("choices", "the reader needs it"),
        ("choices[].message", "the reader needs it"),
        ("choices[].message.content", "the reader needs it"),
        ("error", "the reader needs it"),
        ("choices.message", "write [] behind it"),
        ("usage[].x", "no array"),
        ("metadata.x", "has no fields"),
        ("nothing.x", 'the rows have no "nothing"'),
    ],
)
def test_a_field_that_can_not_stand_there_is_told(path: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        with_profiles(row_schema(), load_profiles(own(tmp_path, {path: "STRING"})))
    assert said in str(caught.value)


ANSWERS: dict[str, dict[str, Any]] = {
    "deepseek": {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi", "reasoning_content": "hm"}}],
        "usage": {"prompt_tokens": 10, "prompt_cache_hit_tokens": 6, "prompt_cache_miss_tokens": 4},
        "metadata": {"inference_time_ms": 87, "kv_cache_hit_rate": 0.5, "gpu_utilization_pct": 91.5, "node": "g7"},
    },
    "deepseek-coder": {
        "choices": [{"message": {"code_blocks": [{"language": "python", "code": "print(1)", "file": "a.py"}]}}],
    },
    "openai": {
        "choices": [
            {
                "message": {
                    "annotations": [{"type": "url_citation", "url_citation": {"start_index": 1, "url": "u"}}],
                    "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}],
                }
            }
        ]
    },
    "sglang": {
        "choices": [{"text": "x", "matched_stop": 2, "meta_info": {"e2e_latency": 0.25}}],
        "usage": {"reasoning_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1, "image_tokens": 2}},
        "sglext": {"cached_tokens_details": {"device": 5, "host": 0}},
        "metadata": {"weight_version": "default"},
    },
    "vllm": {
        "choices": [{"message": {"annotations": {"type": "url_citation", "url_citation": {"title": "t"}}}}],
        "kv_transfer_params": {"do_remote_prefill": True, "remote_port": 5600, "remote_block_ids": [[1, 2]]},
    },
}


# What a profile's own field does not name is rescued by its path, as everywhere.
LEFT = {"deepseek": {"metadata.node": "g7"}, "deepseek-coder": {"choices[0].message.code_blocks[0].file": "a.py"}}


def values(of: Any) -> Any:
    """What is not null of a row."""
    if isinstance(of, dict):
        return {name: values(item) for name, item in of.items() if item is not None}
    return [values(item) for item in of] if isinstance(of, list) else of


@pytest.mark.parametrize("name", shipped_profiles())
def test_an_answer_with_the_fields_of_a_shipped_profile_is_read_without_spark(name: str) -> None:
    answer = line(json.dumps(ANSWERS[name])[1:-1])
    with_it = row(answer, build_plan(profiles=load_profiles(name)))
    made = {member: values(with_it[member]) for member in ANSWERS[name]}
    assert json.loads(with_it["_rescued_data"] or "{}") == LEFT.get(name, {})
    if name == "deepseek":
        assert made["metadata"] == {"inference_time_ms": 87.0, "kv_cache_hit_rate": 0.5, "gpu_utilization_pct": 91.5}
        assert made["usage"] == {"prompt_tokens": 10, "prompt_cache_hit_tokens": 6, "prompt_cache_miss_tokens": 4}
    elif name == "deepseek-coder":
        assert made["choices"][0]["message"] == {"code_blocks": [{"language": "python", "code": "print(1)"}]}
    elif name == "openai":
        message = made["choices"][0]["message"]
        assert message["annotations"] == [{"type": "url_citation", "url_citation": {"start_index": 1, "url": "u"}}]
        assert message["tool_calls"][0]["custom"] == {"name": "sql", "input": "select 1"}
    elif name == "sglang":
        assert made["choices"][0] == {"text": "x", "matched_stop": "2", "meta_info": {"e2e_latency": "0.25"}}
        assert made["usage"] == ANSWERS[name]["usage"]
        assert made["sglext"] == ANSWERS[name]["sglext"]
    else:
        assert made["kv_transfer_params"]["remote_block_ids"] == "[[1, 2]]"
        assert made["choices"][0]["message"]["annotations"]["url_citation"] == {"title": "t"}


def test_a_value_of_another_type_than_the_profile_says_is_rescued() -> None:
    made = row(line('"metadata":{"inference_time_ms":"fast"}'), build_plan(profiles=load_profiles("deepseek")))
    assert made["metadata"]["inference_time_ms"] is None
    assert json.loads(made["_rescued_data"]) == {"metadata.inference_time_ms": "fast"}


def test_a_projection_by_name_reaches_a_profiles_fields() -> None:
    wanted = pa.schema([("metadata", pa.struct([("kv_cache_hit_rate", DOUBLE)]))])
    made = row(line('"metadata":{"kv_cache_hit_rate":1}'), build_plan(wanted, profiles=load_profiles("deepseek")))
    assert made == {"metadata": {"kv_cache_hit_rate": 1.0}}


def test_a_readers_option_names_them() -> None:
    given = {"path": "/spool", "PROFILE": "deepseek, sglang"}
    assert reader_settings(given, {}).types.profiles == load_profiles("deepseek,sglang")
    assert reader_settings({"path": "/spool"}, {}).types.profiles == ()
