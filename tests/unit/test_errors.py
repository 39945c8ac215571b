"""The error tree: codes, texts, pickling, documentation."""

from __future__ import annotations

import inspect
import pickle
import re
import subprocess
import sys

import dspark_json
from dspark_json import errors
from dspark_json.errors import DSparkJsonError, RecordsExpiredError, UnknownOptionError

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, DSparkJsonError)]


def test_every_leaf_has_a_code_of_its_own_that_the_tree_shows() -> None:
    leaves = [c for c in CLASSES if not c.__subclasses__()]
    assert len({c.code for c in leaves}) == len(leaves)
    for leaf in leaves:
        assert re.search(rf"{leaf.__name__}\s+{leaf.code}\n", errors.__doc__ + "\n"), leaf


def test_a_text_is_code_then_what_happened_then_what_to_do() -> None:
    assert str(UnknownOptionError("it broke", remedy="Mend it.")) == "DSPARK_JSON_UNKNOWN_OPTION: it broke. Mend it."
    assert str(UnknownOptionError("it broke")) == "DSPARK_JSON_UNKNOWN_OPTION: it broke"


def test_errors_survive_pickling_with_all_they_know() -> None:
    error = pickle.loads(pickle.dumps(RecordsExpiredError("gone", first=7, remedy="Start later.")))
    assert isinstance(error, RecordsExpiredError)
    assert (error.first, str(error)) == (7, "DSPARK_JSON_RECORDS_EXPIRED: gone. Start later.")


def test_the_public_names_are_few_and_listed() -> None:
    assert dspark_json.__all__ == ["DSparkJsonError", "JsonOutputHook", "__version__", "configure_spark"]
    for name in dspark_json.__all__:
        assert getattr(dspark_json, name)


def test_importing_the_package_imports_neither_spark_nor_cuda_nor_a_server() -> None:
    code = (
        "import sys, dspark_json; dspark_json.JsonOutputHook; dspark_json.configure_spark\n"
        "heavy = {'pyspark', 'pyarrow', 'vllm', 'cudf', 'cupy', 'uvicorn', 'starlette', 'httpx', 'delta'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
