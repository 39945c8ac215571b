"""What a reader was asked to do: its options as typed values, and the key."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from dspark_json.errors import InvalidOptionError, MissingOptionError
from dspark_json.key_file import UnreadableError, first_line
from dspark_json.options import is_key, reader_values
from dspark_json.source.admission import ReadLimits
from dspark_json.source.type_settings import TypeSettings, type_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ReaderSettings", "reader_settings"]

_READ_LOCALLY: Final = "A spool is read from a local folder, or over HTTP with vllm_endpoint."
_KEPT_LOCALLY: Final = "schemaLocation is a local folder of the driver, not one of a cluster's file system."


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """A reader's settings. ``addresses`` are servers, or (with ``local``) the one spool folder of ``.load(path)``.

    ``starting`` is ``earliest``, ``latest`` or the JSON of an offset; ``starting_timestamp`` is in microseconds.
    """

    addresses: tuple[str, ...]
    local: bool
    key: str | None = field(repr=False)
    starting: str
    starting_timestamp: int | None
    limits: ReadLimits
    min_partitions: int | None
    fail_on_data_loss: bool
    timeout_s: float
    parse_mode: str
    gpu_share: int = 12
    parse_threads: int = 1
    types: TypeSettings = field(default_factory=TypeSettings)


def reader_settings(given: Mapping[str, str], environment: Mapping[str, str] | None = None) -> ReaderSettings:
    """Read a reader's options; an ``OptionError`` names what is wrong with them."""
    values = reader_values(given)
    types = type_settings(values)
    endpoints, path = values["vllm_endpoint"], values["path"]
    assert isinstance(endpoints, tuple)
    if path is not None and endpoints:
        raise InvalidOptionError(
            "both a path and vllm_endpoint are given",
            remedy="Give .load(path) to read a spool folder, or vllm_endpoint to ask servers.",
        )
    if path is None and not endpoints:
        raise MissingOptionError(
            "neither vllm_endpoint nor a path is given",
            remedy='Add .option("vllm_endpoint", "http://localhost:8000"), or give a spool folder to .load(path).',
        )
    return ReaderSettings(
        addresses=endpoints or (_folder(str(path), _READ_LOCALLY),),
        local=path is not None,
        key=_key(values, os.environ if environment is None else environment),
        starting=str(values["startingOffsets"]),
        starting_timestamp=_whole(values["startingTimestamp"]),
        limits=ReadLimits(_whole(values["maxRecordsPerTrigger"]), _whole(values["maxBytesPerTrigger"])),
        min_partitions=_whole(values["minPartitions"]),
        fail_on_data_loss=values["failOnDataLoss"] is True,
        timeout_s=float(str(values["endpointTimeoutSec"])),
        parse_mode=str(values["parse_mode"]),
        gpu_share=_whole(values["gpuShare"]) or 0,
        parse_threads=_whole(values["parse_kernel_threads"]) or 1,
        types=types if types.location is None else replace(types, location=_folder(types.location, _KEPT_LOCALLY)),
    )


def _whole(value: object) -> int | None:
    assert value is None or isinstance(value, int)
    return value


def _folder(path: str, remedy: str) -> str:
    """A folder's absolute path, from a path or a ``file:`` URI (Spark makes one of the path of a table)."""
    if path.startswith("file:"):
        refusal = InvalidOptionError(f'"{path}" is not the URI of a local folder', remedy="Give an absolute path.")
        try:
            parts = urlsplit(path)
        except ValueError:
            raise refusal from None
        path = unquote(parts.path)
        if parts.netloc not in {"", "localhost"} or parts.query or parts.fragment or not path or "\0" in path:
            raise refusal
    elif re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path):
        raise InvalidOptionError(f'"{path}" is not a local folder', remedy=remedy)
    return str(Path(path).absolute())


def _key(values: Mapping[str, object], environment: Mapping[str, str]) -> str | None:
    """The hook's key: option, else file, else environment. Its text appears in no error."""
    key, file = values["vllm_api_key"], values["vllm_api_key_file"]
    source = "vllm_api_key"
    if key is None and file is not None:
        source = f"the first line of vllm_api_key_file {file}"
        try:
            key = first_line(Path(str(file)))
        except UnreadableError as why:
            raise InvalidOptionError(
                f'vllm_api_key_file "{file}" can\'t be read: {why}',
                remedy="It is read where the query is planned: give a path that the driver can open.",
            ) from None
    elif key is None:
        source, key = "DSPARK_API_KEY", environment.get("DSPARK_API_KEY") or None
    if key is None:
        return None
    text = str(key).strip()
    if not is_key(text):
        raise InvalidOptionError(
            f"{source} is not a key: allowed are visible ASCII characters, without blanks (its value is not shown)"
        )
    return text
