"""The folder a demo writes to, and what in it is the demo's."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dspark_json.errors import InvalidOptionError

if TYPE_CHECKING:
    from pathlib import Path

_MARK: Final = ".dspark-json-demo"
_FOLDERS: Final = ("spool", "table", "checkpoint", "spark")
_FILES: Final = ("server.log", "spark.log", "key")


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """Where a demo keeps its spool, its table, the query's checkpoint and the logs."""

    path: Path

    @classmethod
    def prepare(cls, path: Path) -> DemoFolder:
        """Make the folder, or empty it of what an earlier demo left; anything else in it stays.

        Raises ``InvalidOptionError`` if it holds something under one of the demo's names that no demo wrote.
        """
        folder = cls(path.absolute())
        names = (*_FOLDERS, *_FILES)
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
            found = [name for name in names if (folder.path / name).exists()]
            if found and not (folder.path / _MARK).exists():
                raise InvalidOptionError(
                    f'{folder.path} holds "{found[0]}", which no earlier demo wrote',
                    remedy="Choose another folder with --dir.",
                )
            (folder.path / _MARK).touch()
            for name in _FOLDERS:
                shutil.rmtree(folder.path / name, ignore_errors=True)
            for name in _FILES:
                (folder.path / name).unlink(missing_ok=True)
            folder.spark.mkdir()
        except OSError as error:
            raise InvalidOptionError(
                f"can't write to {folder.path}: {error.strerror}", remedy="Choose another folder with --dir."
            ) from error
        return folder

    @property
    def spool(self) -> Path:
        """The server's spool."""
        return self.path / "spool"

    @property
    def table(self) -> Path:
        """The Delta table."""
        return self.path / "table"

    @property
    def checkpoint(self) -> Path:
        """The streaming query's checkpoint."""
        return self.path / "checkpoint"

    @property
    def spark(self) -> Path:
        """Spark's scratch files."""
        return self.path / "spark"

    @property
    def server_log(self) -> Path:
        """What the replay server logs."""
        return self.path / "server.log"

    @property
    def spark_log(self) -> Path:
        """What Spark and Ivy log."""
        return self.path / "spark.log"

    def write_key(self, key: str) -> Path:
        """Keep the hook's key in a file that only this user can read; returns the file."""
        file = self.path / "key"
        file.touch(mode=0o600)
        file.write_text(key + "\n")
        return file
