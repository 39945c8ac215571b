"""The optional parts of this package (``extras`` of ``pyproject.toml``), and how one is installed."""

from __future__ import annotations

__all__ = ["installing"]


def installing(extra: str) -> str:
    """The command that installs an extra, for an installed package and for a checkout, which no index may have."""
    return f"pip install 'dspark-json[{extra}]' (in a checkout: pip install '.[{extra}]')"
