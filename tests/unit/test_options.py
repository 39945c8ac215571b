"""The table of options: names, values, suggestions, secrets."""

from __future__ import annotations

import pytest

from dspark_json.errors import InvalidOptionError, OptionError, UnknownOptionError
from dspark_json.options import HOOK_OPTIONS, READER_OPTIONS, hook_values, options_table, reader_values


def test_names_match_whatever_their_case() -> None:
    values = reader_values({"maxrecordspertrigger": "7", "FAILONDATALOSS": "False", "Parse_Mode": "CPU"})
    assert values["maxRecordsPerTrigger"] == 7
    assert values["failOnDataLoss"] is False
    assert values["parse_mode"] == "cpu"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("mode", "failfast", "FAILFAST"),
        ("schemaEvolutionMode", "ADDNEWCOLUMNS", "addNewColumns"),
        ("contentRepair", "Strict", "strict"),
        ("rescuedDataColumn", " rest ", "rest"),
        ("schema_cache_ttl_sec", "0", 0.0),
    ],
)
def test_a_word_is_taken_in_any_case_and_has_one_spelling_after_it(name: str, text: str, value: object) -> None:
    assert reader_values({name: text})[name] == value


@pytest.mark.parametrize(
    ("alias", "name", "text", "value"),
    [("maxOffsetsPerTrigger", "maxRecordsPerTrigger", "5", 5), ("dspark.json.parse_mode", "parse_mode", "cpu", "cpu")],
)
def test_an_alias_sets_the_option_it_stands_for(alias: str, name: str, text: str, value: object) -> None:
    assert reader_values({alias: text})[name] == value


def test_two_names_of_one_option_are_refused() -> None:
    with pytest.raises(InvalidOptionError, match="two names of one option"):
        reader_values({"maxOffsetsPerTrigger": "5", "maxRecordsPerTrigger": "5"})


def test_an_option_is_named_in_an_error_as_the_table_spells_it() -> None:
    with pytest.raises(InvalidOptionError, match='not a value for "endpointTimeoutSec"'):
        reader_values({"endpointtimeoutsec": "0"})
    with pytest.raises(InvalidOptionError, match='not a value for "maxOffsetsPerTrigger"'):
        reader_values({"maxoffsetspertrigger": "0"})
    with pytest.raises(InvalidOptionError, match='"maxOffsetsPerTrigger" and "maxRecordsPerTrigger"'):
        reader_values({"maxoffsetspertrigger": "5", "maxrecordspertrigger": "5"})


def test_an_option_that_is_taken_with_no_value_says_what_to_do_instead() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        reader_values({"timestampformat": "yyyy"})
    assert str(caught.value) == (
        'DSPARK_JSON_INVALID_OPTION: the option "timestampFormat" is not taken: created is a TIMESTAMP already, made '
        "from Unix seconds. Leave it out, and give the column the form you want with date_format()."
    )


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("maxOfsetsPerTrigger", "maxOffsetsPerTrigger"),
        ("vllm_endpiont", "vllm_endpoint"),
        ("startingOffset", "startingOffsets"),
        ("parsemode", "parse_mode"),
    ],
)
def test_an_unknown_option_is_an_error_that_names_the_closest_one(given: str, meant: str) -> None:
    with pytest.raises(UnknownOptionError) as caught:
        reader_values({given: "x"})
    assert str(caught.value) == f'DSPARK_JSON_UNKNOWN_OPTION: "{given}" is not an option. Did you mean "{meant}"?'


@pytest.mark.parametrize("given", ["url", "foo", "dspark.json.foo", "x" * 500, "", "header", "spark.sql.shuffle"])
def test_an_unknown_option_that_is_close_to_none_is_given_no_other(given: str) -> None:
    with pytest.raises(UnknownOptionError) as caught:
        reader_values({given: "x"})
    assert caught.value.remedy == "See docs/options.md."


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("failOnDataLoss", "yes", '"true" and "false"'),
        ("maxRecordsPerTrigger", "0", "at least 1"),
        ("maxRecordsPerTrigger", "ten", "a whole number"),
        ("maxRecordsPerTrigger", "9" * 30, "a whole number"),
        ("minPartitions", "-3", "at least 1"),
        ("maxBytesPerTrigger", "64q", "a number of bytes"),
        ("maxBytesPerTrigger", "0", "above 0"),
        ("startingOffsets", "newest", '"earliest", "latest"'),
        ("startingTimestamp", "yesterday", "milliseconds since 1970"),
        ("startingTimestamp", "2026-11-29T08:00:00", "time zone"),
        ("parse_mode", "gpu", '"gpu-accelerated"'),
        ("endpointTimeoutSec", "0", "above 0"),
        ("endpointTimeoutSec", "nan", "a number"),
        ("endpointTimeoutSec", "5 s", "at most 86400, without a unit"),
        ("maxRecordsPerTrigger", "10k", "at least 1, without a unit"),
        ("endpointTimeoutSec", "9" * 400, "at most 86400"),
        ("schema_cache_ttl_sec", "9" * 400, "at most 31536000"),
        ("maxRecordsPerTrigger", "9" * 19, "a whole number"),
        ("maxRecordsPerTrigger", "٣", "a whole number"),
        ("maxBytesPerTrigger", "9999999999g", "a number of bytes"),
        ("path", "a\0b", "NUL"),
        ("vllm_endpoint", "http://[::1", "can't be read as an address"),
        ("vllm_endpoint", "http://[::g]", "address"),
        ("vllm_endpoint", "http://..", "a host is a name"),
        ("vllm_endpoint", "http://" + "a" * 300, "a host is a name"),
        ("vllm_endpoint", "http://xn--", "a host is a name"),
        ("vllm_endpoint", "http://xn--a.example", "a host is a name"),
        ("vllm_endpoint", "http://a b", "no blanks"),
        ("vllm_endpoint", "http://h\x7f/", "no control characters"),
        ("vllm_endpoint", "http://h\n:1", "no control characters"),
        ("vllm_endpoint", "http://a%zz", "a host is a name"),
        ("vllm_endpoint", "http://h:0", "a port"),
        ("vllm_endpoint", "localhost:8000", '"http://"'),
        ("vllm_endpoint", "http://", "names a host"),
        ("vllm_endpoint", "http://h:99999", "a port"),
        ("vllm_endpoint", "http://h,,http://i", "empty"),
        ("vllm_endpoint", "http://h/v1,http://h/", "listed twice"),
        ("vllm_endpoint", "http://h/?a=1", '"?"'),
        ("mode", "STRICT", '"PERMISSIVE", "DROPMALFORMED", "FAILFAST"'),
        ("contentRepair", "none", '"auto", "strict"'),
        ("schemaEvolutionMode", "add", '"addNewColumns"'),
        ("fieldNames", "unsafe", '"safe", "exact"'),
        ("schema_cache_ttl_sec", "-1", "at least 0"),
        ("contentSchema", " ", "must not be empty"),
        ("responseSchema", "", "must not be empty"),
        ("rescuedDataColumn", "a b", "a column's name"),
        ("columnNameOfCorruptRecord", "a.b", "a column's name"),
        ("timestampFormat", "yyyy", "created is a TIMESTAMP already"),
    ],
)
def test_a_bad_value_names_what_is_allowed(name: str, text: str, allowed: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        reader_values({name: text})
    assert allowed in str(caught.value)
    assert name in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://localhost:8000/", "http://localhost:8000"),
        ("http://localhost:8000/v1", "http://localhost:8000"),
        ("http://localhost:8000/v1/", "http://localhost:8000"),
        ("http://localhost:8000/v1/chat/completions", "http://localhost:8000"),
        ("https://gw.example/models/a/v1/chat/completions", "https://gw.example/models/a"),
        (" http://[::1]:8000/v1/completions ", "http://[::1]:8000"),
        ("HTTP://Host:80/v1/responses", "http://host:80"),
        ("http://vllm_1.my-net.:8000", "http://vllm_1.my-net.:8000"),
        ("http://bücher.example", "http://bücher.example"),
        ("http://xn--bcher-kva.example", "http://xn--bcher-kva.example"),
    ],
)
def test_an_endpoint_is_taken_with_or_without_the_path_of_the_api(text: str, address: str) -> None:
    assert reader_values({"vllm_endpoint": text})["vllm_endpoint"] == (address,)


def test_several_endpoints_keep_their_order() -> None:
    values = reader_values({"vllm_endpoint": "http://b:1/v1, http://a:2"})
    assert values["vllm_endpoint"] == ("http://b:1", "http://a:2")


@pytest.mark.parametrize(("text", "size"), [("100", 100), ("64m", 64 << 20), ("1 GB", 1 << 30), ("3k", 3072)])
def test_byte_sizes_take_units(text: str, size: int) -> None:
    assert reader_values({"maxBytesPerTrigger": text})["maxBytesPerTrigger"] == size


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1764400000000", 1_764_400_000_000_000),
        ("2025-11-29T07:06:40Z", 1_764_400_000_000_000),
        ("2025-11-29T08:06:40.000001+01:00", 1_764_400_000_000_001),
    ],
)
def test_a_starting_time_is_milliseconds_or_iso_text(text: str, micros: int) -> None:
    assert reader_values({"startingTimestamp": text})["startingTimestamp"] == micros


@pytest.mark.parametrize("text", ["http://user:hunter2@host", "http://hunter2@host"])
def test_an_address_with_credentials_is_refused_without_showing_them(text: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        reader_values({"vllm_endpoint": text})
    assert "hunter2" not in str(caught.value)
    assert "vllm_api_key" in str(caught.value)


@pytest.mark.parametrize("text", ["http://h/?key=hunter2", "http://h/#hunter2", "http://h/v1?hunter2", "h?hunter2"])
def test_what_stands_behind_a_question_mark_in_an_address_is_not_shown(text: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        reader_values({"vllm_endpoint": text})
    assert "hunter2" not in str(caught.value)


def test_a_bad_key_is_not_shown() -> None:
    with pytest.raises(OptionError) as caught:
        reader_values({"vllm_api_key": "  "})
    assert "(not shown)" in str(caught.value)


def test_the_hook_refuses_a_bad_value_and_warns_of_an_unknown_name() -> None:
    values, warnings = hook_values({"DSPARK_DURABILTY": "write", "DSPARK_HOLD_MS": "50", "PATH": "/bin"})
    assert values["DSPARK_HOLD_MS"] == 50
    assert values["DSPARK_DURABILITY"] == "async"
    assert warnings == ['DSPARK_DURABILTY is not a setting of the hook. Did you mean "DSPARK_DURABILITY"?']
    with pytest.raises(InvalidOptionError, match="DSPARK_DURABILITY"):
        hook_values({"DSPARK_DURABILITY": "wirte"})


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("dspark_spool", "DSPARK_SPOOL"),
        ("Dspark_Api_Key", "DSPARK_API_KEY"),
        ("dspark_durabilty", "DSPARK_DURABILITY"),
        ("VLLM.JSON_OUTPUT_BUFFER_SIZE_MB", "vllm.json_output_buffer_size_mb"),
    ],
)
def test_the_hook_warns_of_a_name_in_another_case_with_the_right_one_and_does_not_take_it(
    given: str, meant: str
) -> None:
    values, warnings = hook_values({given: "hunter2"})
    assert values == hook_values({})[0]
    assert warnings == [f'{given} is not a setting of the hook. Did you mean "{meant}"?']


@pytest.mark.parametrize("name", ["DSPARK_FOO", "dspark_foo", "DSPARK_URL", "DSPARK_", "DSPARK_JAVA_HOME"])
def test_a_name_that_is_close_to_no_setting_is_given_no_other(name: str) -> None:
    assert hook_values({name: "1"})[1] == [f"{name} is not a setting of the hook. See docs/options.md."]


@pytest.mark.parametrize(
    ("given", "meant"),
    [("KEY", "API_KEY"), ("SPOOLS", "SPOOL"), ("RETENTION", "RETENTION_MB"), ("SEGMENT_SIZE_MB", "SEGMENT_MB")],
)
def test_a_name_that_is_close_to_a_setting_is_told_that_one(given: str, meant: str) -> None:
    assert f'Did you mean "DSPARK_{meant}"?' in hook_values({f"DSPARK_{given}": "1"})[1][0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("DSPARK_RETENTION_HOURS", "9" * 400),
        ("DSPARK_RETENTION_MB", "9" * 19),
        ("DSPARK_SPOOL", "~no-such-user-here/spool"),
        ("DSPARK_SPOOL", "/a\0b"),
    ],
)
def test_the_hook_refuses_a_value_that_it_could_do_nothing_with(name: str, text: str) -> None:
    with pytest.raises(InvalidOptionError, match=name):
        hook_values({name: text})


def test_a_spool_folder_may_begin_with_the_home_folder() -> None:
    assert hook_values({"DSPARK_SPOOL": "~/spool"})[0]["DSPARK_SPOOL"] == "~/spool"


def test_an_empty_variable_counts_as_not_given() -> None:
    values, warnings = hook_values({"DSPARK_SPOOL": "", "DSPARK_API_KEY": " "})
    assert (values["DSPARK_SPOOL"], values["DSPARK_API_KEY"], warnings) == (None, None, [])


def test_every_option_is_documented() -> None:
    for options in (READER_OPTIONS, HOOK_OPTIONS):
        table = options_table(options)
        for option in options:
            assert f"`{option.name}`" in table
            assert option.doc.endswith(".")
