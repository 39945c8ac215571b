"""What a command line names with one word: servers' addresses, or a spool folder."""

from __future__ import annotations

import os
import re
from typing import Final

from dspark_json.errors import InvalidOptionError

__all__ = ["is_remote", "meant_address", "target_option"]

_SCHEMES: Final = ("http://", "https://", "dns+http://", "dns+https://")
_WITH_PORT: Final = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}(/.*)?|localhost/.*")
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_DEFAULT_PORT: Final = 8000
_LAST_PORT: Final = 65_535


def is_remote(target: str) -> bool:
    """Whether a target names servers: it is an address, or one of several, separated by commas, is."""
    return any(part.strip().lower().startswith(_SCHEMES) for part in target.split(","))


def target_option(target: str) -> dict[str, str]:
    """A target as the option of a reader that it stands for, ``vllm_endpoint`` or ``path``.

    Raises ``InvalidOptionError`` where one of several addresses is none.
    """
    if not is_remote(target):
        return {"path": target}
    for part in map(str.strip, target.split(",")):
        if part and not part.lower().startswith(_SCHEMES):
            meant = meant_address(part)
            raise InvalidOptionError(
                f'"{part}" stands among addresses and is none',
                remedy=f"Did you mean {meant}?" if meant else "A spool folder is named alone.",
            )
    return {"vllm_endpoint": target}


def meant_address(target: str) -> str | None:
    """The address that a target without a scheme may have been meant as; None where it is a path, or looks like one."""
    if os.path.exists(target):  # noqa: PTH110 - Path.exists raises where the operating system refuses to tell
        return None
    if _WITH_PORT.fullmatch(target):
        return f"http://{target}"
    if _PORT.fullmatch(target) and int(target) <= _LAST_PORT:
        return f"http://localhost:{target}"
    return f"http://{target}:{_DEFAULT_PORT}" if _HOST.fullmatch(target) else None
