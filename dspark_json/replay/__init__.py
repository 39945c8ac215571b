"""A small server that replays recorded answers of a real vLLM server, with their pacing: for demos, tests and tours.

``ReplayApp`` is the ASGI application, ``RunningServer`` runs it (or another one) in a process of its own.
"""

from __future__ import annotations

from dspark_json.replay.app import ReplayApp
from dspark_json.replay.process import RunningServer

__all__ = ["ReplayApp", "RunningServer"]
