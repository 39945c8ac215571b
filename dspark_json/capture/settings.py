"""The hook's settings, from ``DSPARK_*`` variables."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast

from dspark_json.errors import InvalidOptionError
from dspark_json.options import hook_values, is_key
from dspark_json.spool.sharing import Sharing
from dspark_json.spool.writer import WriterSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

MIB: Final = 1 << 20
DEFAULT_PORT: Final = 8000

Durability = Literal["async", "write", "fsync"]
RequestCapture = Literal["none", "settings", "full"]


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """The mirror in a GPU's memory: ``device`` is its number, or ``host`` for a file; ``size`` is in bytes."""

    ring: Literal["auto", "on", "off"] = "off"
    device: str = "0"
    size: int = 128 * MIB


@dataclass(frozen=True, slots=True)
class HookSettings:
    """What the hook was told; sizes in bytes, times in seconds.

    ``spool`` is None where the default applies, which needs the server's port (``folder``). ``warnings`` are about
    ``DSPARK_`` variables that no option has.
    """

    spool: Path | None
    api_key: str | None = field(repr=False)
    durability: Durability
    hold: float
    capture_requests: RequestCapture
    max_record: int
    assembly: int
    queue: int
    writer: WriterSettings
    device: DeviceSettings = DeviceSettings()
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> HookSettings:
        """Read ``DSPARK_*``; raises ``InvalidOptionError`` for a bad value."""
        values, warnings = hook_values(environment)
        spool = cast("str | None", values["DSPARK_SPOOL"])
        return cls(
            spool=None if spool is None else Path(spool).expanduser().absolute(),
            api_key=_key(cast("str | None", values["DSPARK_API_KEY"])),
            durability=cast("Durability", values["DSPARK_DURABILITY"]),
            hold=cast("int", values["DSPARK_HOLD_MS"]) / 1000,
            capture_requests=cast("RequestCapture", values["DSPARK_CAPTURE_REQUESTS"]),
            max_record=cast("int", values["DSPARK_MAX_RECORD_MB"]) * MIB,
            assembly=cast("int", values["DSPARK_ASSEMBLY_MB"]) * MIB,
            queue=cast("int", values["DSPARK_QUEUE_MB"]) * MIB,
            writer=_writer_settings(values),
            device=DeviceSettings(
                ring=cast("Literal['auto', 'on', 'off']", values["DSPARK_DEVICE_RING"]),
                device=cast("str", values["DSPARK_DEVICE"]),
                size=cast("int", values["DSPARK_DEVICE_BUFFER_MB"]) * MIB,
            ),
            warnings=tuple(warnings),
        )

    def folder(self, port: int | None) -> Path:
        """The spool's folder for a server on this port (None: not known)."""
        return self.spool or Path(f"/dev/shm/dspark_vllm_{port or DEFAULT_PORT}")  # noqa: S108 - DESIGN §3's default


def _key(text: str | None) -> str | None:
    """The hook's key, by the rule that readers have for theirs; another one could be set but never given."""
    if text is None:
        return None
    key = text.strip()
    if not is_key(key):
        raise InvalidOptionError(
            "DSPARK_API_KEY is not a key: allowed are visible ASCII characters, without blanks (its value is not "
            "shown)",
            remedy="Readers refuse any other key; generate one with `openssl rand -hex 32`.",
        )
    return key


def _writer_settings(values: Mapping[str, object]) -> WriterSettings:
    segment = cast("int | None", values["DSPARK_SEGMENT_MB"])
    retention = cast("int | None", values["DSPARK_RETENTION_MB"])
    hours = cast("float | None", values["DSPARK_RETENTION_HOURS"])
    return WriterSettings(
        segment_bytes=None if segment is None else segment * MIB,
        retention_bytes=None if retention is None else retention * MIB,
        retention_us=None if hours is None else int(hours * 3_600_000_000),
        sharing=Sharing(values["DSPARK_SPOOL_ACCESS"]),
    )
