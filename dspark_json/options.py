"""The one table of options, for the reader (``spark.readStream.option(...)``) and the hook (``DSPARK_*`` variables).

Parsing, aliases, the suggestion for an unknown name, the documentation table (`docs/options.md`) all come from here.

A name is matched without regard to case, because Spark hands option names to a Python source in lower case.
"""

from __future__ import annotations

import datetime as dt
import difflib
import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from dspark_json.errors import InvalidOptionError, UnknownOptionError
from dspark_json.printable import printable

__all__ = [
    "HOOK_OPTIONS",
    "READER_OPTIONS",
    "Option",
    "Scope",
    "hook_values",
    "is_key",
    "options_table",
    "reader_values",
    "secret_names",
]

Value = str | int | float | bool | tuple[str, ...] | None

_HIGHEST: Final = 2**63 - 1  # of a whole number that Spark and the spool's files can hold
_SHOWN: Final = 100  # characters of a bad value


class Scope(Enum):
    """Who reads an option."""

    READER = "reader"
    HOOK = "hook"


class _Refusal(Exception):  # noqa: N818 - never leaves this module
    """A parser's word for "not allowed"; its text says what is."""


class _Unwanted(Exception):  # noqa: N818 - never leaves this module
    """A parser's word for an option that is known and taken with no value at all; its text says why."""


Parser = Callable[[str], Value]


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    ``parse`` turns the text given into the value (or refuses it); ``default`` is the value when nothing was given;
    ``shown_default`` is what the documentation says where the default is not a constant.
    """

    name: str
    parse: Parser
    default: Value
    doc: str
    aliases: tuple[str, ...] = ()
    scope: Scope = Scope.READER
    shown_default: str | None = None
    secret: bool = False


def _one_of(*allowed: str) -> Parser:
    """One of some words, whatever the case it is given in; the value is as it stands here."""

    def parse(text: str) -> str:
        for word in allowed:
            if text.strip().lower() == word.lower():
                return word
        raise _Refusal("allowed are " + ", ".join(f'"{a}"' for a in allowed))

    return parse


def _integer(minimum: int, maximum: int = _HIGHEST) -> Parser:
    def parse(text: str) -> int:
        bounds = f"a whole number of at least {minimum}" + ("" if maximum == _HIGHEST else f" and at most {maximum}")
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text.strip()):
            raise _Refusal(f"allowed is {bounds}{_without_unit(text)}")
        value = int(text)
        if not minimum <= value <= maximum:
            raise _Refusal(f"allowed is {bounds}")
        return value

    return parse


def _number(minimum: int, maximum: int, *, exclusive: bool = False) -> Parser:
    def parse(text: str) -> float:
        words = f"a number {'above' if exclusive else 'of at least'} {minimum} and at most {maximum}"
        if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text.strip()):
            raise _Refusal(f"allowed is {words}{_without_unit(text)}")
        value = float(text)
        if not minimum <= value <= maximum or (exclusive and value == minimum):
            raise _Refusal(f"allowed is {words}")
        return value

    return parse


def _without_unit(text: str) -> str:
    return ", without a unit" if re.fullmatch(r"[0-9.]+\s*[A-Za-z%]+", text.strip()) else ""


def _device(text: str) -> str:
    """A GPU's number as text, or ``host``."""
    word = text.strip().lower()
    if word != "host" and not re.fullmatch(r"[0-9]{1,3}", word):
        raise _Refusal('allowed are the number of a GPU, as CUDA counts those that the server sees, and "host"')
    return word if word == "host" else str(int(word))


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in {"true", "false"}:
        raise _Refusal('allowed are "true" and "false"')
    return lowered == "true"


_BYTE_UNITS: Final = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "kb": 1 << 10,
    "m": 1 << 20,
    "mb": 1 << 20,
    "g": 1 << 30,
    "gb": 1 << 30,
}


def _byte_size(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,15})\s*([a-z]{0,2})", text.strip().lower())
    size = int(match[1]) * _BYTE_UNITS.get(match[2], 0) if match is not None else 0
    if not 0 < size <= _HIGHEST:
        raise _Refusal('allowed is a number of bytes above 0, perhaps with "k", "m" or "g" behind it (such as "64m")')
    return size


def _text(text: str) -> str:
    if not text.strip():
        raise _Refusal("it must not be empty")
    return text


def _path(text: str) -> str:
    if "\0" in text:
        raise _Refusal("a path has no NUL character")
    return _text(text)


def _home_path(text: str) -> str:
    """A path that may begin with ``~`` or ``~user``, still as it was given."""
    path = _path(text)
    try:
        Path(path).expanduser()
    except RuntimeError:
        raise _Refusal('the home folder that "~" stands for is not known here; give an absolute path') from None
    return path


def _column_name(text: str) -> str:
    name = text.strip()
    if not name or re.search(r"[ ,;{}()\n\t=`.]", name):
        raise _Refusal("allowed is a column's name, without blanks, dots, backticks and any of ,;{}()=")
    return name


_API_PATHS: Final = re.compile(r"(/v1)?(/(chat/completions|completions|responses))?/*$")


def _endpoints(text: str) -> tuple[str, ...]:
    """Addresses as ``scheme://host[:port][/prefix]``, in the order given."""
    found: list[str] = []
    for item in text.split(","):
        address = item.strip()
        if not address:
            raise _Refusal(
                'an address is empty; allowed are "http://host:port" and several of them, separated by commas'
            )
        parts = _split(address)
        if parts.scheme == "dns+https":
            raise _Refusal('"dns+" goes with "http://" alone: certificates are made out to names, not to addresses')
        if parts.scheme not in {"http", "https", "dns+http"} or not parts.hostname:
            raise _Refusal('an address begins with "http://" or "https://" and names a host ("http://localhost:8000")')
        if parts.username is not None or parts.password is not None:
            raise _Refusal("an address must not hold a user or password; give the key as vllm_api_key")
        if "?" in address or "#" in address:
            raise _Refusal('an address has no "?" or "#" part')
        try:
            port = parts.port
        except ValueError:
            raise _Refusal("a port is a number from 1 to 65535") from None
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        if port == 0 or not _is_host(parts.hostname):
            raise _Refusal("a host is a name or an IP address, and a port is a number from 1 to 65535")
        place = host if port is None else f"{host}:{port}"
        normal = f"{parts.scheme}://{place}{_API_PATHS.sub('', parts.path)}"
        if normal in found:
            raise _Refusal(f'"{normal}" is listed twice')
        found.append(normal)
    return tuple(found)


def _split(address: str) -> SplitResult:
    if not address.isprintable() or " " in address:
        raise _Refusal("an address has no blanks and no control characters")
    try:
        return urlsplit(address)
    except ValueError as error:
        raise _Refusal(f"it can't be read as an address ({error})") from None


def _is_host(host: str) -> bool:
    """Whether a host can be asked for: an IP address, or a name that the domain name system could hold."""
    if ":" in host:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            return False
        return True
    try:
        name = host.encode("idna").decode("ascii")
        name.encode("ascii").decode("idna")
    except UnicodeError:
        return False
    labels = name.removesuffix(".").split(".")
    return len(name) <= 254 and all(re.fullmatch(r"[A-Za-z0-9_-]{1,63}", label) for label in labels)


def _starting_offsets(text: str) -> str:
    stripped = text.strip()
    if stripped.lower() in {"earliest", "latest"}:
        return stripped.lower()
    if stripped.startswith("{"):
        return stripped  # the planner checks it against the spools it finds
    raise _Refusal('allowed are "earliest", "latest" and the JSON of an offset')


def _timestamp(text: str) -> int:
    """Microseconds since the epoch, from epoch milliseconds (as Kafka's ``startingTimestamp``) or ISO 8601 text."""
    stripped = text.strip()
    if re.fullmatch(r"[0-9]{1,15}", stripped):
        return int(stripped) * 1000
    try:
        moment = dt.datetime.fromisoformat(stripped)
    except ValueError:
        raise _Refusal('allowed are milliseconds since 1970 and ISO 8601 text such as "2026-11-29T08:00:00Z"') from None
    if moment.tzinfo is None:
        raise _Refusal('the time zone is missing: add "Z" or an offset such as "+02:00"')
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def _refuse_timestamp_format(_text: str) -> Value:
    raise _Unwanted("created is a TIMESTAMP already, made from Unix seconds")


READER_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "vllm_endpoint",
        _endpoints,
        (),
        "Address of the server, with or without `/v1/chat/completions`; several, separated by commas, for replicas. "
        "`dns+http://name:port` stands for all addresses that the name has, looked up anew at each trigger.",
        shown_default="none; this or `path` is needed",
    ),
    Option(
        "path",
        _path,
        None,
        "A spool folder, read directly (the same as `.load(path)`); no server is asked.",
        shown_default="none; this or `vllm_endpoint` is needed",
    ),
    Option(
        "vllm_api_key",
        _text,
        None,
        "The hook's key (`DSPARK_API_KEY` of the server), not the key for asking the model. "
        "Needed where the spool folder can't be opened.",
        shown_default="`vllm_api_key_file`, else the environment's `DSPARK_API_KEY`",
        secret=True,
    ),
    Option("vllm_api_key_file", _path, None, "A file whose first line is the hook's key.", shown_default="none"),
    Option(
        "startingOffsets",
        _starting_offsets,
        "earliest",
        "Where a new stream begins: `earliest`, `latest`, or the first record of each lane, as JSON: "
        '`{"v":1,"spools":{"<spool id>":{"lanes":{"0000":{"next":12}}}}}`. A checkpoint takes precedence.',
    ),
    Option(
        "startingTimestamp",
        _timestamp,
        None,
        "A new stream begins at the first record written at or after this time: milliseconds since 1970 or ISO 8601 "
        "text with a time zone. A stream can't begin in the future: it would read what is written until then too. "
        "Takes precedence over `startingOffsets`.",
        shown_default="none",
    ),
    Option(
        "maxRecordsPerTrigger",
        _integer(1),
        None,
        "The most records of one micro-batch, shared among the lanes in proportion to what waits in each.",
        aliases=("maxOffsetsPerTrigger",),
        shown_default="no limit",
    ),
    Option(
        "maxBytesPerTrigger",
        _byte_size,
        None,
        "The most bytes of one micro-batch (`64m`, `1g`); at least one record is always taken.",
        shown_default="no limit",
    ),
    Option(
        "minPartitions",
        _integer(1, 100_000),
        None,
        "The fewest tasks of a micro-batch, where it has that many records; lanes are cut to reach it.",
        shown_default="one task a lane",
    ),
    Option(
        "failOnDataLoss",
        _boolean,
        True,
        "Whether the query fails when records it had yet to read are gone. `false`: a warning and a count instead.",
    ),
    Option(
        "endpointTimeoutSec",
        _number(0, 86_400, exclusive=True),
        10.0,
        "How long a server may take to answer, in seconds; also the deadline of asking all servers at a trigger, and "
        "how long a task asks for planned records again and again where the server is gone.",
    ),
    Option(
        "parse_mode",
        _one_of("auto", "cpu", "gpu-accelerated"),
        "auto",
        "`auto`, `cpu`, or `gpu-accelerated`, which fails where no GPU engine can run: there is no silent fallback. "
        "The log says which engine it is and why.",
        aliases=("dspark.json.parse_mode",),
    ),
    Option(
        "gpuShare",
        _integer(1, 100),
        12,
        "The most of a GPU's threads that parsing takes, in percent, where CUDA's multi-process service (MPS) divides "
        "them; without it a warning says that this can't be kept.",
    ),
    Option(
        "parse_kernel_threads",
        _integer(1, 1024),
        1,
        "Threads that parse at once in each task; rows keep their order. More than one helps where a task has more "
        "than one core to itself.",
        aliases=("dspark.json.parse_kernel_threads",),
    ),
    Option(
        "workerPython",
        _path,
        None,
        "The Python interpreter that the JVM connector runs its worker process with, on the driver and on the "
        "executors. The Python source has no such process.",
        shown_default="`spark.dspark.python`, else the one that Spark uses for Python",
    ),
    Option(
        "contentSchema",
        _text,
        None,
        "The type of `choices[].parsed`, the answer as a value: Spark DDL (`amount DOUBLE, items ARRAY<STRING>`) or a "
        "JSON Schema, as text or as the path of a file (`.json`, `.ddl`, `.sql`). Types: STRING, BIGINT, INT, DOUBLE, "
        "BOOLEAN, STRUCT, ARRAY, MAP.",
        shown_default="the type of `responseSchema`, else STRING: the JSON text",
    ),
    Option(
        "responseSchema",
        _text,
        None,
        "Name of a schema that requests to the server ask for, or the first 6 or more digits of its hash: only the "
        "answers asked for with it are kept, failed ones too, and it gives `parsed` its type. `*`: all schemas "
        "merged, all answers.",
        shown_default="none: all answers",
    ),
    Option(
        "toolSchema",
        _text,
        None,
        "Name of a tool that requests define with `strict`, or the first 6 or more digits of its schema's hash: only "
        "the answers that call it are kept, and `function.parsed_arguments` has the type of its parameters.",
        shown_default="none: all answers, arguments as JSON text",
    ),
    Option(
        "contentRepair",
        _one_of("auto", "strict"),
        "auto",
        "`auto` takes off a byte order mark and thinking before the value, one fence around all the rest, and text "
        "after the value, and takes raw control characters in strings as if escaped; prose before a value is never "
        "skipped. `strict` calls all of that `invalid`.",
    ),
    Option(
        "checkConstraints",
        _boolean,
        False,
        "Whether `choices[].violations` says which constraints of the schema that the request asked for an answer "
        "violates (`minimum`, `enum`, `pattern`, `required`, …; [answers.md](answers.md)). Needs `pip install "
        "'dspark-json[checks]'`.",
    ),
    Option(
        "mode",
        _one_of("PERMISSIVE", "DROPMALFORMED", "FAILFAST"),
        "PERMISSIVE",
        "What happens to an answer that can't be read: a row with nulls and the reason, no row (counted), or the query "
        "fails and names the record.",
    ),
    Option(
        "columnNameOfCorruptRecord",
        _column_name,
        "_corrupt_record",
        "Name of the column that holds the line of a record that can't be read.",
    ),
    Option(
        "rescuedDataColumn",
        _column_name,
        "_rescued_data",
        "Name of the column that holds, as JSON, the values that have no column or another type than their column.",
    ),
    Option(
        "schemaEvolutionMode",
        _one_of("rescue", "addNewColumns", "failOnNewColumns", "none"),
        "rescue",
        "What happens when the server sees a schema with new fields under the name of `responseSchema` or "
        "`toolSchema`. `rescue`: the type stays, they are kept in the rescued data. `addNewColumns`: the query fails, "
        "and has the columns when it is started again (needs `schemaLocation`, and `mergeSchema` of a Delta sink). "
        "`failOnNewColumns`: it fails. `none`: "
        "the type stays, and no unknown field is rescued.",
    ),
    Option(
        "schemaLocation",
        _path,
        None,
        "A local folder that keeps the types of `responseSchema` and `toolSchema`, so that a restarted query has the "
        "same columns whatever the server has seen since. One for each query; inside its checkpoint where Delta's "
        "session extension is on, which insists on that for every option of this name.",
        shown_default="none: asked of the server at each start",
    ),
    Option(
        "schemaHints",
        _text,
        None,
        "Types for some fields of the content type, by their paths: `amount DOUBLE, customer.zip STRING`. A field that "
        "the type does not have is added.",
        shown_default="none",
    ),
    Option(
        "schema_cache_ttl_sec",
        _number(0, 31_536_000),
        300.0,
        "How long a server's answer about its schemas is used, in seconds. A folder's schemas are looked at at each "
        "trigger, and so are a server's where new columns must be noticed before they are read (`addNewColumns`, "
        "`failOnNewColumns`).",
    ),
    Option(
        "fieldNames",
        _one_of("safe", "exact"),
        "safe",
        "`safe`: characters that Delta refuses in names become `_`, and names that differ only by case get `_2`, `_3`. "
        "`exact`: the schema's names.",
    ),
    Option(
        "profile",
        _text,
        None,
        "Fields that a known server or model adds to its answers, as columns: names of shipped profiles (`openai`, "
        "`vllm`, `deepseek`, `deepseek-coder`, `sglang`) and paths of files of your own (`.json`), separated by "
        "commas; a later one wins.",
        shown_default="none: the declared rows",
    ),
    Option(
        "timestampFormat",
        _refuse_timestamp_format,
        None,
        "Refused: `created` is a TIMESTAMP already.",
        shown_default="none",
    ),
)

HOOK_OPTIONS: Final[tuple[Option, ...]] = tuple(
    Option(
        name,
        parse,
        default,
        doc,
        aliases=("vllm.json_output_buffer_size_mb",) if name == "DSPARK_DEVICE_BUFFER_MB" else (),
        scope=Scope.HOOK,
        shown_default=shown,
        secret=name == "DSPARK_API_KEY",
    )
    for name, parse, default, doc, shown in (
        (
            "DSPARK_SPOOL",
            _home_path,
            None,
            (
                "The spool folder, one of its own: empty or yet to be made (one that holds other things is taken with "
                "a warning). Set it to a folder on a disk to keep the spool over a reboot. Readers on the same machine "
                "find the default folder by themselves; for another one they need the key, or `.load(folder)`. While "
                "its file system has less than 10 % free, whoever fills it, every answer is dropped, counted and "
                "logged: free space then, or give the spool a file system of its own."
            ),
            "`/dev/shm/dspark_vllm_<port>`",
        ),
        (
            "DSPARK_SPOOL_ACCESS",
            _one_of("user", "group-read", "group-write"),
            "user",
            (
                "Who may use the spool's files beside the server's user: nobody, readers of the folder's group, or "
                "servers of that group too (one spool for containers with several uids)."
            ),
            None,
        ),
        (
            "DSPARK_API_KEY",
            _text,
            None,
            (
                "The key of the control routes: visible ASCII characters, without blanks. Without one they answer 403, "
                "all but `/dspark/metrics` and the short answer of `/health/json-schema`, which need none."
            ),
            "none",
        ),
        (
            "DSPARK_DURABILITY",
            _one_of("async", "write", "fsync"),
            "async",
            (
                "`async`: serving never waits; a kill may lose what is in memory. `write`: what a client has is in "
                "the kernel. `fsync`: it is on the disk."
            ),
            None,
        ),
        (
            "DSPARK_HOLD_MS",
            _integer(1, 60_000),
            1000,
            (
                "`write` and `fsync`: the longest time the end of an answer is held back for its record. Counted is "
                "time in which the server's event loop has its turns."
            ),
            None,
        ),
        (
            "DSPARK_CAPTURE_REQUESTS",
            _one_of("none", "settings", "full"),
            "settings",
            (
                "What is kept of a request: nothing (`none`; schemas are not registered either, so there is none for "
                "`responseSchema` and `toolSchema`), its sampling settings and schema, or all of it, prompts too "
                "(`full`). Unless `full`, what an answer echoes or an error repeats of the request is taken out of the "
                "record, and a body that can't be read but may hold some of it is left out."
            ),
            None,
        ),
        ("DSPARK_MAX_RECORD_MB", _integer(1, 1024), 64, "The largest answer that is kept whole, in MiB.", None),
        ("DSPARK_ASSEMBLY_MB", _integer(1, 65_536), 512, "Memory for answers under way, all together, in MiB.", None),
        (
            "DSPARK_QUEUE_MB",
            _integer(1, 65_536),
            64,
            "Memory for answers that wait to be written, in MiB. What does not fit is dropped, counted and logged.",
            None,
        ),
        (
            "DSPARK_SEGMENT_MB",
            _integer(1, 1024),
            None,
            "Size at which a segment file is full and the next one begins, in MiB.",
            "an eighth of `DSPARK_RETENTION_MB`, 64 at most",
        ),
        (
            "DSPARK_RETENTION_MB",
            _integer(1, 1 << 30),
            None,
            (
                "Size of the spool above which its oldest segments are deleted, in MiB. It limits the spool, not what "
                "else fills its file system, and below 10 % free there every answer is dropped: see `DSPARK_SPOOL`."
            ),
            "512, or a quarter of the file system if that is less",
        ),
        (
            "DSPARK_RETENTION_HOURS",
            _number(0, 876_600, exclusive=True),
            None,
            "Age above which segments are deleted, in hours.",
            "no limit",
        ),
        (
            "DSPARK_DEVICE_RING",
            _one_of("auto", "on", "off"),
            "off",
            (
                "Whether the newest records are mirrored in a GPU's memory, for a reader on the same machine that "
                "parses there ([gpu.md](gpu.md)). `auto`: where cupy and a GPU are there. `on`: that there is none is "
                "an error in the log, and counted. Either way the server serves and the spool is written."
            ),
            None,
        ),
        (
            "DSPARK_DEVICE_BUFFER_MB",
            _integer(1, 65_536),
            128,
            "Size of that mirror, in MiB.",
            None,
        ),
        (
            "DSPARK_DEVICE",
            _device,
            "0",
            (
                "The GPU that the mirror is in, by its number among those that the server sees; `host`: a file in the "
                "lane's folder, to try the mirror without a GPU."
            ),
            None,
        ),
    )
)

# Keys that Spark itself puts among a source's options: none for spark.read, spark.readStream and temporary views, these
# for a table (its reserved properties, and each option a second time behind "option.").
_SPARK_KEYS: Final[frozenset[str]] = frozenset(
    {"collation", "comment", "external", "is_managed_location", "location", "owner", "provider"}
)
_SPARK_PREFIX: Final = "option."
_COMMON: Final = re.compile(r"^(dspark_|dspark\.json\.)")


def is_key(text: str) -> bool:
    """Whether ``text`` can be the hook's key: visible ASCII without blanks, which any HTTP header can carry."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def reader_values(given: Mapping[str, str]) -> dict[str, Value]:
    """Parse a reader's options.

    ``given`` is what Spark hands over (names in any case). Returns a value for every option of the table, by its name.
    Raises ``UnknownOptionError`` for a name that is not in the table and ``InvalidOptionError`` for a bad value.
    """
    by_key: dict[str, tuple[Option, str]] = {}
    for option in READER_OPTIONS:
        for name in (option.name, *option.aliases):
            by_key[name.lower()] = option, name
    values: dict[str, Value] = {option.name: option.default for option in READER_OPTIONS}
    seen: dict[str, str] = {}
    for key, text in given.items():
        lowered = key.lower()
        if lowered in _SPARK_KEYS or lowered.startswith(_SPARK_PREFIX):
            continue
        if lowered not in by_key:
            raise UnknownOptionError(f'"{key}" is not an option', remedy=_suggestion(key, READER_OPTIONS))
        known, spelled = by_key[lowered]
        if known.name in seen:
            raise InvalidOptionError(
                f'"{seen[known.name]}" and "{spelled}" are two names of one option', remedy="Give one of them."
            )
        seen[known.name] = spelled
        values[known.name] = _parsed(known, spelled, text)
    return values


def secret_names() -> frozenset[str]:
    """The names, in lower case, of the reader's options whose values must not be shown."""
    return frozenset(
        name.lower() for option in READER_OPTIONS if option.secret for name in (option.name, *option.aliases)
    )


def hook_setting_meant(name: str, environment: Mapping[str, str]) -> str:
    """What to say where the hook's setting ``name`` is not set but others seem to mean it; empty where none does.

    ``dspark_api_key`` is none of the settings: their names are in upper case.
    """
    if environment.get(name, "").strip():
        return ""
    meant = f'Did you mean "{name}"?'
    return " ".join(text for text in _no_settings(environment) if text.endswith(meant))


def hook_values(environment: Mapping[str, str]) -> tuple[dict[str, Value], list[str]]:
    """Parse the hook's ``DSPARK_*`` variables.

    Returns a value for every option, and a warning for each ``DSPARK_`` variable that no option has, be it for its case
    (a server must not be kept from starting by somebody else's variable). Raises ``InvalidOptionError`` for a bad
    value: a server that starts with another durability than was asked for would be worse than one that does not start.
    """
    values: dict[str, Value] = {option.name: option.default for option in HOOK_OPTIONS}
    by_name = {name: option for option in HOOK_OPTIONS for name in (option.name, *option.aliases)}
    given: dict[str, str] = {}
    for name, text in sorted(environment.items()):
        known = by_name.get(name)
        if known is not None and text.strip():
            if known.name in given:
                raise InvalidOptionError(
                    f'"{given[known.name]}" and "{name}" are two names of one setting', remedy="Give one of them."
                )
            given[known.name] = name
            values[known.name] = _parsed(known, name, text)
    return values, _no_settings(environment)


def options_table(options: tuple[Option, ...]) -> str:
    """The options as a Markdown table: name (aliases), default, meaning."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for option in options:
        names = ", ".join(f"`{name}`" for name in (option.name, *option.aliases))
        default = option.shown_default if option.shown_default is not None else f"`{_as_text(option.default)}`"
        lines.append(f"| {names} | {default} | {option.doc} |")
    return "\n".join(lines) + "\n"


def _no_settings(environment: Mapping[str, str]) -> list[str]:
    """A warning for each variable that looks like a setting of the hook and is none."""
    known = {name for option in HOOK_OPTIONS for name in (option.name, *option.aliases)}
    in_any_case = {name.lower() for name in known}
    return [
        f"{name} is not a setting of the hook. {_suggestion(name, HOOK_OPTIONS)}"
        for name in sorted(environment)
        if name not in known and (name.lower().startswith("dspark_") or name.lower() in in_any_case)
    ]


def _as_text(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _parsed(option: Option, key: str, text: str) -> Value:
    try:
        return option.parse(text)
    except _Unwanted as reason:
        raise InvalidOptionError(
            f'the option "{key}" is not taken: {reason}',
            remedy="Leave it out, and give the column the form you want with date_format().",
        ) from None
    except _Refusal as refusal:
        # "?", "#" and "@" in an address: what stands there may be somebody's key or password.
        hidden = option.secret or any(mark in text for mark in "@?#")
        shown = "the value (not shown)" if hidden else f'"{printable(text, _SHOWN)}"'
        raise InvalidOptionError(f'{shown} is not a value for "{key}": {refusal}') from None


def _suggestion(name: str, options: tuple[Option, ...]) -> str:
    names = {_bare(n): n for option in options for n in (*option.aliases, option.name)}  # the name wins over an alias
    close = difflib.get_close_matches(_bare(name), names, n=1)
    return f'Did you mean "{names[close[0]]}"?' if close else "See docs/options.md."


def _bare(name: str) -> str:
    """A name without what many have in common, which would make any two of them close."""
    return _COMMON.sub("", name.lower())
