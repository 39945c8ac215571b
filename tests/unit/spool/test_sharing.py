"""Who may use a spool's files (DSPARK_SPOOL_ACCESS): real users of a real group, as containers of several uids are."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spool_support import open_to_all, read_lines, record, records, settings

from dspark_json.spool.layout import read_identity
from dspark_json.spool.reader import SpoolReader
from dspark_json.spool.schemas import SchemaStore
from dspark_json.spool.sharing import Sharing
from dspark_json.spool.writer import LaneWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parents[2]
SERVER, OTHER, READER, STRANGER = 23_001, 23_002, 23_003, 23_004
GROUP = 24_000
MODES = {"user": (0o700, 0o600), "group-read": (0o2750, 0o640), "group-write": (0o2770, 0o660)}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs to become other users")


def fill(folder: Path, sharing: str, start: int = 0) -> None:
    """A writer's whole life: several segments, an older one deleted, counters, a schema."""
    with LaneWriter.open(folder, settings(segment_bytes=500, sharing=Sharing(sharing))) as writer:
        writer.append(records(start, start + 30))
        SchemaStore(folder).put(f"h{start}", {"name": "n"})
        writer.sync()
        writer.maintain()


def modes(folder: Path) -> set[tuple[str, int]]:
    return {
        ("folder" if path.is_dir() else "file", stat.S_IMODE(path.stat().st_mode))
        for path in [folder, *folder.rglob("*")]
    }


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
@pytest.mark.parametrize("sharing", MODES)
def test_every_file_and_folder_has_the_mode_of_the_setting_whatever_the_umask(
    tmp_path: Path, sharing: str, umask: int
) -> None:
    before = os.umask(umask)
    try:
        fill(tmp_path / "spool", sharing)
        fill(tmp_path / "spool", sharing, 30)
    finally:
        os.umask(before)
    folder, file = MODES[sharing]
    assert modes(tmp_path / "spool") == {("folder", folder), ("file", file)}
    assert all(mode & 0o007 == 0 for _, mode in modes(tmp_path / "spool"))


@pytest.mark.parametrize("before", MODES)
@pytest.mark.parametrize("after", MODES)
def test_a_changed_setting_changes_what_is_there(tmp_path: Path, before: str, after: str) -> None:
    fill(tmp_path / "spool", before)
    fill(tmp_path / "spool", after, 30)
    inside = {mode for path in (tmp_path / "spool").iterdir() for mode in modes(path)}
    assert inside == {("folder", MODES[after][0]), ("file", MODES[after][1])}


@pytest.mark.parametrize("mode", [0o755, 0o2770, 0o1777, 0o777])
def test_an_administrators_folder_keeps_its_mode_and_what_is_inside_is_the_users_alone(
    tmp_path: Path, mode: int
) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    folder.chmod(mode)
    fill(folder, "user")
    assert stat.S_IMODE(folder.stat().st_mode) == mode
    assert {found for path in folder.iterdir() for found in modes(path)} == {("folder", 0o700), ("file", 0o600)}


def test_a_folder_that_everybody_may_write_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    folder.chmod(0o777)
    fill(folder, "user")
    assert f"everybody on this machine may write the folder {folder}" in caplog.text


@pytest.mark.parametrize(("mode", "times"), [(0o755, 1), (0o2754, 1), (0o750, 0), (0o711, 0), (0o700, 0)])
def test_a_folder_that_everybody_may_list_is_warned_about_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, times: int
) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    folder.chmod(mode)
    for start in (0, 30):
        fill(folder, "user", start)
    assert caplog.text.count(f"everybody on this machine may list the folder {folder}") == times
    assert caplog.text.count("chmod o-rx") == times


def as_user(user: int, folder: Path, code: str, *, group: int = GROUP, groups: tuple[int, ...] = ()) -> str:
    """Run code as another user, as a container would; what it printed."""
    # Everything is imported first: the interpreter's own files may be for this user alone.
    prelude = (
        "import codecs, os, sys, time\ncodecs.lookup('ascii')\n"
        "from pathlib import Path\nsys.path[:0] = sys.argv[2:]\nfrom spool_support import *\n"
        "from unit.spool.test_sharing import fill\nfrom dspark_json.errors import *\n"
        "from dspark_json.spool.reader import SpoolReader\nfrom dspark_json.spool.sharing import Sharing\n"
        "from dspark_json.spool.writer import LaneWriter\nfolder = Path(sys.argv[1])\n"
        f"os.umask(0o077)\nos.setgroups({list(groups)})\nos.setgid({group})\nos.setuid({user})\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", prelude + code, str(folder), str(TESTS), str(TESTS.parent)],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder of the group, as a volume that several containers mount."""
    with open_to_all() as place:
        folder = place / "spool"
        folder.mkdir()
        os.chown(folder, SERVER, GROUP)
        folder.chmod(0o2770)
        yield folder


READ = "print(SpoolReader(folder).offsets().lanes['0000'].next, len(SpoolReader(folder).read('0000', 0, 1)))"
TRY = "try:\n    {}\nexcept SpoolPermissionError as error:\n    print(error)\n"


@needs_root
@pytest.mark.parametrize("sharing", ["group-read", "group-write"])
def test_readers_of_the_group_read_and_others_do_not(shared: Path, sharing: str) -> None:
    as_user(SERVER, shared, f"fill(folder, {sharing!r})")
    assert as_user(READER, shared, READ) == "30 1\n"
    assert as_user(READER, shared, READ, group=READER, groups=(GROUP,)) == "30 1\n"
    assert "may not be read by this user" in as_user(STRANGER, shared, TRY.format(READ), group=STRANGER)


@needs_root
def test_by_default_not_even_the_group_reads(shared: Path) -> None:
    as_user(SERVER, shared, "fill(folder, 'user')")
    assert "may not be read by this user" in as_user(READER, shared, TRY.format(READ))


@needs_root
def test_servers_of_the_group_share_one_spool_and_one_anothers_lanes(shared: Path) -> None:
    as_user(SERVER, shared, "fill(folder, 'group-write')")
    spool_id = read_identity(shared).spool_id
    as_user(OTHER, shared, "fill(folder, 'group-write', 30)", group=OTHER, groups=(GROUP,))
    as_user(SERVER, shared, "fill(folder, 'group-write', 60)")
    assert read_identity(shared).spool_id == spool_id
    offsets = SpoolReader(shared).offsets()
    assert set(offsets.lanes) == {"0000"}, "a lane without a writer is taken by whoever comes"
    assert offsets.lanes["0000"].next == 90
    assert read_lines(shared) == {n: record(n).line(n, "0000") for n in range(90)}
    assert {path.stat().st_gid for path in shared.rglob("*")} == {GROUP}
    assert {mode for _, mode in modes(shared)} == {0o2770, 0o660}


@needs_root
def test_two_servers_of_the_group_at_once_have_a_lane_each(shared: Path) -> None:
    code = """
with LaneWriter.open(folder, settings(sharing=Sharing.GROUP_WRITE)) as writer:
    (folder / f"here-{os.getuid()}").touch()
    until = time.monotonic() + 20
    while len(list(folder.glob("here-*"))) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    for n in range(50):
        writer.append([record(n)])
        writer.maintain()
    print(writer.lane)
"""
    with ThreadPoolExecutor(2) as both:
        lanes = list(both.map(lambda user: as_user(user, shared, code), (SERVER, OTHER)))
    assert sorted(lanes) == ["0000\n", "0001\n"]
    assert [SpoolReader(shared).offsets().lanes[lane].next for lane in ("0000", "0001")] == [50, 50]


@needs_root
@pytest.mark.parametrize(
    ("sharing", "user", "group"),
    [("user", OTHER, GROUP), ("group-read", OTHER, GROUP), ("group-write", STRANGER, STRANGER)],
)
def test_a_server_of_another_user_is_refused_by_name_unless_the_setting_lets_it_in(
    shared: Path, sharing: str, user: int, group: int
) -> None:
    as_user(SERVER, shared, "fill(folder, 'group-write')")
    shared.chmod(0o2777)  # so that only the rule is in the way
    said = as_user(user, shared, TRY.format(f"fill(folder, {sharing!r}, 30)"), group=group)
    assert f"{shared} belongs to another user (uid {SERVER})" in said
    assert "DSPARK_SPOOL_ACCESS=group-write" in said
    assert SpoolReader(shared).offsets().lanes["0000"].next == 30


@needs_root
def test_a_link_in_the_folder_changes_no_other_files_mode(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch()
    secret.chmod(0o600)
    folder = tmp_path / "spool"
    fill(folder, "user")
    (folder / "lanes/0000/link").symlink_to(secret)
    fill(folder, "group-write", 30)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_the_setting_has_three_values(tmp_path: Path) -> None:
    from dspark_json.capture.settings import HookSettings
    from dspark_json.errors import InvalidOptionError

    for value, sharing in (
        ("", Sharing.USER),
        ("Group-Read", Sharing.GROUP_READ),
        ("group-write", Sharing.GROUP_WRITE),
    ):
        assert HookSettings.from_environment({"DSPARK_SPOOL_ACCESS": value}).writer.sharing is sharing
    for value in ("0777", "world", "group"):
        with pytest.raises(InvalidOptionError, match="DSPARK_SPOOL_ACCESS"):
            HookSettings.from_environment({"DSPARK_SPOOL_ACCESS": value})
