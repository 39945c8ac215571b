"""A real vLLM on the CPU in a process group of its own, and the environment it runs in."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import httpx

from dspark_json.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "build" / "vllm"
PYTHON: Final = FOLDER / "env" / "bin" / "python"
TINY: Final = FOLDER / "models" / "tiny"
DRAFT: Final = FOLDER / "models" / "draft"
HOOK: Final = ("--middleware", "dspark_json.JsonOutputHook")
MODEL_KEY: Final = "key-to-ask-the-model"
HOOK_KEY: Final = "key-to-read-all-answers"

_SETTINGS: Final = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "OMP_NUM_THREADS": "1",
    "PYTHONSAFEPATH": "1",
}
_ARGUMENTS: Final = (
    *("--served-model-name", "tiny", "--max-model-len", "4096", "--enforce-eager"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
)
_START_SEC: Final = 600.0
_PORTS: Final = range(20_000, 32_000)  # below those that the kernel gives to whoever asks for any
_STOP_SEC: Final = 30.0


def own_port() -> int:
    """A free port that stays free for the half minute until vLLM takes it."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@dataclass
class Vllm:
    """``vllm serve`` with the hook; a context manager that starts it and ends it in good order.

    ``folder`` gets the spool (``spool``) and the log (``vllm.log``); ``settings`` are environment variables beside the
    usual ones; ``hooked=False`` leaves the hook out.
    """

    folder: Path
    arguments: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    hooked: bool = True
    port: int = field(default_factory=own_port)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    @property
    def log(self) -> Path:
        return self.folder / "vllm.log"

    @property
    def pid(self) -> int:
        """The process that was started; with one API server it is that one."""
        return self._process.pid

    def reader(self) -> SpoolReader:
        """The spool as a reader on this machine sees it."""
        return SpoolReader(self.spool)

    def start(self) -> None:
        """Start it and wait until it takes requests."""
        self.folder.mkdir(parents=True, exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("DSPARK_", "PYTHON"))}
        environment |= _SETTINGS | {"DSPARK_SPOOL": str(self.spool), "DSPARK_DURABILITY": "write"} | self.settings
        command = [str(PYTHON), "-m", "vllm.entrypoints.cli.main", "serve", str(TINY), *_ARGUMENTS, *self.arguments]
        command += ["--host", "127.0.0.1", "--port", str(self.port), *(HOOK if self.hooked else ())]
        with self.log.open("ab") as log:
            self._log_begins = log.tell()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=self.folder,
                start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + _START_SEC
        while not self._answers():
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"vLLM did not start:\n{self.log.read_text(errors='replace')[-6000:]}")
            time.sleep(0.25)

    def _answers(self) -> bool:
        with self.log.open("rb") as log:  # who answers could be another server, if it took the port in the meantime
            log.seek(self._log_begins)
            if b"Application startup complete" not in log.read():
                return False
        try:
            return httpx.get(f"{self.address}/health", timeout=5, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def stop(self) -> None:
        """End it as an operator does, with SIGTERM."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SEC)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to all its processes: nothing is flushed, nothing is told."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
