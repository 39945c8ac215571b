"""The address that a serving command listens on, from its argument."""

from __future__ import annotations

import argparse
import re
from typing import Final

_PLACE: Final = re.compile(r"(?:\[(?P<literal>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})")


def place(text: str) -> tuple[str, int]:
    """``HOST:PORT`` (an IPv6 address in brackets) as host and port; port 0 lets the system choose."""
    match = _PLACE.fullmatch(text)
    if match is None or int(match["port"]) > 65_535:
        raise argparse.ArgumentTypeError(f'"{text}" is not HOST:PORT, such as 127.0.0.1:8001 or [::]:8001')
    return match["literal"] or match["name"], int(match["port"])
