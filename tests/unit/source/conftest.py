"""A worker process for the tests of a file, and a connection for each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .worker_support import running_worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .worker_support import Connection, WorkerProcess


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    with running_worker(tmp_path_factory.mktemp("worker") / "log") as process:
        yield process


@pytest.fixture
def connection(worker: WorkerProcess) -> Iterator[Connection]:
    with worker.connected() as taken:
        yield taken
