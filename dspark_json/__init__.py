"""Every JSON answer of a vLLM server, as a typed row of a Spark stream, once.

The server side is one class, ``JsonOutputHook`` (``vllm serve MODEL --middleware dspark_json.JsonOutputHook``).
The Spark side is found by name (``spark.readStream.format("dspark-json")``); ``configure_spark`` adds the JVM connector
to a session. Importing this package imports neither Spark nor vLLM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dspark_json.errors import DSparkJsonError

if TYPE_CHECKING:
    from dspark_json.capture.hook import JsonOutputHook
    from dspark_json.spark import configure_spark

__version__ = "0.1.0"

__all__ = ["DSparkJsonError", "JsonOutputHook", "__version__", "configure_spark"]


def __getattr__(name: str) -> object:
    if name == "JsonOutputHook":
        from dspark_json.capture.hook import JsonOutputHook

        return JsonOutputHook
    if name == "configure_spark":
        from dspark_json.spark import configure_spark

        return configure_spark
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
