"""A real vLLM with the hook, 500 answers that the official client received from it, and their records.

`make test-vllm` makes the environment (scripts/make_vllm_environment.py) and runs these tests; `make test` leaves them
out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from integration.conftest import adapter, spark
from real_vllm.asking import TALLY, Asked, ask
from real_vllm.costs import COSTS
from real_vllm.questions import CHAT, COMPLETIONS, RESPONSES, both_ways, leaving, questions
from real_vllm.server import HOOK_KEY, MODEL_KEY, PYTHON, Vllm

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["adapter", "spark"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A server takes half a minute to start, and the first test that needs it waits for it."""
    for item in items:
        if "real_vllm" in item.path.parts:
            item.add_marker(pytest.mark.timeout(900))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was asked and found in all, and what the hook cost."""
    for line in (str(TALLY), *COSTS):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def environment() -> None:
    """The environment must be there."""
    if not PYTHON.exists():
        pytest.fail(f"{PYTHON} is missing: run these tests with `make test-vllm`", pytrace=False)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    """A server with both keys set, that asks vLLM's for answers and the hook's for reading them."""
    folder = tmp_path_factory.mktemp("vllm")
    with Vllm(folder, ["--api-key", MODEL_KEY], {"DSPARK_API_KEY": HOOK_KEY}) as started:
        yield started


@pytest.fixture(scope="session")
def asked(server: Vllm) -> Asked:
    """500 questions of every kind, and some clients that left, asked by 16 clients at once."""
    wanted = [*questions(CHAT, COMPLETIONS, RESPONSES), *leaving()]
    return ask(server, wanted, key=MODEL_KEY)


@pytest.fixture(scope="session")
def asked_both_ways(server: Vllm) -> Asked:
    """Questions with seeds, asked streamed and not, one at a time, so that the model says the same."""
    return ask(server, [one for pairs in both_ways().values() for one in pairs], key=MODEL_KEY, clients=1)
