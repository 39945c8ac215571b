"""``dspark-json doctor``: verdicts, evidence, remedies, exit status, and the table for troubleshooting."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from serving import elsewhere, free_port, hook, serving
from spool_support import records, settings

from dspark_json import errors
from dspark_json.doctor import spool
from dspark_json.doctor.check import (
    Check,
    attempted,
    attempted_all,
    failed,
    fine,
    is_failure,
    skipped,
    to_document,
    warned,
)
from dspark_json.doctor.examination import examine
from dspark_json.doctor.losses import check_counts
from dspark_json.doctor.packages import check_delta, check_jar, check_java, check_native, check_python, check_spark
from dspark_json.doctor.server import check_endpoint, check_local_folder
from dspark_json.doctor.troubleshooting import CHECKS, TROUBLES
from dspark_json.errors import DSparkJsonError
from dspark_json.spool.stats import Counters, save_counters
from dspark_json.spool.writer import LaneWriter

if TYPE_CHECKING:
    from collections.abc import Iterable

KEY = "the-hooks-key"


def run(*arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dspark_json", "doctor", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})})


# Runs a command as a user whom the modes of files bind: root, without the capabilities that they do not bind.
WITHOUT_RIGHTS = (
    "import ctypes, os, sys\n"
    "for capability in (1, 2):\n    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)\n"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


def by_name(checks: Iterable[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with LaneWriter.open(tmp_path / "spool") as writer:
        writer.append(records(0, 7))
    return tmp_path / "spool"


def test_a_good_spool_is_ok_and_its_numbers_are_the_evidence(folder: Path) -> None:
    found = by_name(check_local_folder(folder))
    assert found["spool"].verdict == "ok"
    assert found["spool"].evidence.endswith("1 lane(s), 7 record(s)")
    assert found["spool_losses"].evidence.startswith("none in 7 record(s) as of ")
    assert found["schemas"].verdict == "warn"
    assert set(found) == {"spool", "spool_losses", "spool_space", "schemas", "shared_memory"}


@pytest.mark.parametrize("name", ["", "lanes"])
def test_a_spool_that_everybody_may_look_into_is_a_warning(folder: Path, name: str) -> None:
    (folder / name).chmod(0o755)
    found = by_name(check_local_folder(folder))["spool"]
    assert found.verdict == "warn"
    assert found.evidence.endswith(f"everybody on this machine may look into {folder / name}")
    assert found.remedy.endswith(f"chmod o-rwx {folder / name}")


def test_a_folder_that_is_no_spool_fails_with_the_errors_own_remedy(tmp_path: Path) -> None:
    found = by_name(check_local_folder(tmp_path))
    assert found["spool"].verdict == "fail"
    assert "spool.json is missing" in found["spool"].evidence
    assert found["spool"].remedy
    for name in ("spool_losses", "spool_space", "schemas"):
        assert (found[name].verdict, found[name].evidence) == ("skipped", "needs spool"), name


@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("suffix", ["ndjson", "index"])
def test_a_lane_that_can_not_be_read_fails_in_whatever_segment_that_is(
    number: int, suffix: str, tmp_path: Path
) -> None:
    with LaneWriter.open(tmp_path, settings(segment_bytes=400)) as writer:
        writer.append(records(0, 20))
    assert by_name(check_local_folder(tmp_path))["spool"].verdict == "ok"
    file = sorted(tmp_path.glob(f"lanes/0000/*.{suffix}"))[number]
    file.write_bytes(b"x" * file.stat().st_size)
    found = by_name(check_local_folder(tmp_path))
    assert found["spool"].verdict == "fail"
    assert "20 record(s), not all of which can be read" in found["spool"].evidence
    assert str(file) in found["spool"].evidence
    assert found["spool"].remedy
    assert found["spool_space"].verdict != "skipped"


@pytest.mark.parametrize(
    ("closed", "fails"),
    [
        ("", {"spool", "pid_namespace"}),
        ("..", {"spool"}),
        ("spool.json", {"spool"}),
        ("lanes", {"spool", "pid_namespace"}),
        ("lanes/0000", {"spool", "pid_namespace"}),
        ("lanes/0000/00000000000000000000.ndjson", {"spool"}),
        ("lanes/0000/00000000000000000000.index", {"spool"}),
        ("lanes/0000/lock", set()),
        ("lanes/0000/stats.json", set()),
        ("schemas", {"schemas"}),
    ],
)
def test_what_this_user_may_not_look_at_fails_its_own_checks_and_all_others_are_done(
    folder: Path, closed: str, fails: set[str]
) -> None:
    path = (folder / closed).resolve()
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_RIGHTS, sys.executable, "-m", "dspark_json", "doctor", folder, "--json"],
            capture_output=True,
            text=True,
        )
    finally:
        path.chmod(mode)
    assert done.stderr == ""
    found = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == bool(fails)
    assert {name for name, check in found.items() if check["verdict"] == "fail"} == fails
    for name in fails:
        assert "ermission denied" in found[name]["evidence"]
        assert found[name]["remedy"]
    if closed.startswith("lanes/0000/") and not fails:
        assert found["spool_losses"]["verdict"] == "warn"
        assert (
            closed in found["spool_losses"]["evidence"]
            or "lane 0000 can't be read" in found["spool_losses"]["evidence"]
        )
    assert found.keys() >= {"spool", "spool_losses", "spool_space", "schemas", "shared_memory", "mps"}
    assert list(found)[-2:] == ["pid_namespace", "container"]


def test_spools_that_this_user_may_not_look_into_are_told_where_none_is_named(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path / "dspark_vllm_8000"), LaneWriter.open(tmp_path / "dspark_vllm_8001"):
        (tmp_path / "dspark_vllm_8001").chmod(0)
        code = (
            "import sys; from pathlib import Path; from dspark_json.doctor import spool; "
            "from dspark_json.doctor.examination import examine; spool.SHARED_MEMORY = Path(sys.argv[1])\n"
            "for check in examine(None, key_file=None, gpu=False):\n"
            "    print(check.name, check.verdict, check.evidence)"
        )
        said = subprocess.run(
            [sys.executable, "-c", WITHOUT_RIGHTS, sys.executable, "-c", code, tmp_path],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        (tmp_path / "dspark_vllm_8001").chmod(0o700)
    assert f"spool warn 1 folder(s) in {tmp_path} that this user may not look into: dspark_vllm_8001\n" in said
    assert f"spool ok {tmp_path}/dspark_vllm_8000, id " in said
    assert "container " in said


def test_what_the_operating_system_refuses_fails_one_check() -> None:
    def refuse() -> Check:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "/some/path")

    found = attempted("spool_space", refuse)
    assert (found.name, found.verdict) == ("spool_space", "fail")
    assert found.evidence == "/some/path can't be looked at: Input/output error"
    assert found.remedy
    several = list(attempted_all("gpu_driver", lambda: (one() for one in (lambda: fine("a", "x"), refuse))))
    assert [(check.name, check.verdict) for check in several] == [("a", "ok"), ("gpu_driver", "fail")]


def test_answers_that_were_lost_are_a_warning_with_their_number(folder: Path) -> None:
    save_counters(folder / "lanes/0000", Counters({"records": 7, "dropped_records": 3, "unrecorded_answers": 1}))
    found = check_counts(folder)
    assert (found.verdict, found.evidence) == ("warn", "dropped_records 3, unrecorded_answers 1")
    assert "DSPARK_HOLD_MS" in found.remedy


def test_shared_memory_that_is_small_fails_where_a_spool_is_in_it(tmp_path: Path) -> None:
    assert spool.check_shared_memory(None, tmp_path / "none").verdict == "warn"
    small = _small_file_system()
    if small is None:
        pytest.skip("no file system below 1 GiB here")
    assert spool.check_shared_memory(None, small).verdict == "fail"
    assert spool.check_shared_memory(small / "x", small).verdict == "fail"
    assert spool.check_shared_memory(Path("/elsewhere"), small).verdict == "warn"


def _small_file_system() -> Path | None:
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        place = Path(line.split()[1])
        try:
            found = os.statvfs(place)
        except OSError:
            continue
        if place.is_dir() and 0 < found.f_blocks * found.f_frsize < 1 << 30:
            return place
    return None


def test_a_server_is_checked_from_the_address_to_the_records(folder: Path) -> None:
    with serving(hook(folder, KEY)) as address:
        found = by_name(check_endpoint(address, KEY, 5))
        assert found["server"].verdict == "ok"
        assert found["hook"].verdict == "ok"
        assert found["spool"].verdict == "ok"
        assert str(folder) in found["spool"].evidence
        assert KEY not in json.dumps(to_document(list(found.values())))


def test_a_server_elsewhere_needs_the_key_and_a_wrong_one_fails(folder: Path) -> None:
    with serving(elsewhere(hook(folder, KEY))) as address:
        found = by_name(check_endpoint(address, KEY, 5))
        assert found["key"].verdict == "ok"
        assert (found["spool"].verdict, found["spool"].evidence) == ("warn", "read over HTTP: 1 lane(s), 7 record(s)")
        for key in (None, "wrong"):
            checks = by_name(check_endpoint(address, key, 5))
            assert checks["hook"].verdict == "ok", key
            assert checks["key"].verdict == "fail", key
            assert checks["key"].remedy


def test_a_server_that_is_down_and_one_without_the_hook_are_told_apart() -> None:
    async def plain(_scope: object, _receive: object, send: object) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b"no"})  # type: ignore[operator]

    down = by_name(check_endpoint(f"http://127.0.0.1:{free_port()}", None, 5))
    assert down["server"].verdict == "fail"
    assert "hook" not in down
    with serving(plain) as address:  # type: ignore[arg-type]
        other = by_name(check_endpoint(address, None, 5))
    assert (other["server"].verdict, other["hook"].verdict) == ("ok", "fail")
    assert "--middleware dspark_json.JsonOutputHook" in other["hook"].remedy


def test_what_is_installed_is_ok_here_and_an_old_java_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for check in (check_python(), check_native(), check_java(), check_spark(), check_delta()):
        assert check.verdict == "ok", check
    assert check_jar().verdict in {"ok", "skipped"}
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "is Java 11, and Spark needs 17" in check_java().evidence
    assert check_java().verdict == "fail"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    assert check_java().verdict == "fail"


def test_the_command_prints_lines_for_people_or_one_document_and_its_status_is_the_verdict(folder: Path) -> None:
    done = run(folder)
    assert done.returncode == 0, done.stdout
    assert f"ok      spool           {folder}, id " in done.stdout
    assert "→" in done.stdout
    document = json.loads(run(folder, "--json").stdout)
    assert {"name", "verdict", "evidence", "remedy"} == set(document["checks"][0])
    assert {check["name"] for check in document["checks"]} <= set(CHECKS)
    assert {check["verdict"] for check in document["checks"]} <= {"ok", "warn", "fail", "skipped"}
    lost = run(folder.parent, "--json")
    assert lost.returncode == 1
    assert [c["name"] for c in json.loads(lost.stdout)["checks"] if c["verdict"] == "fail"] == ["spool"]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("/no/such/folder",), "spool"),
        (("http://127.0.0.1:1",), "server"),
        (("http://user:secret@127.0.0.1:1",), "target"),
        (("http://127.0.0.1:1", "--key-file", "/no/such/key"), "target"),
        (("imp,http://127.0.0.1:1",), "target"),
    ],
)
def test_a_bad_target_is_a_check_that_fails_and_no_traceback(arguments: tuple[str, ...], name: str) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert f"fail    {name}" in done.stdout
    assert "secret" not in done.stdout
    assert done.stderr == ""


def test_of_several_spools_each_check_names_its_own_and_the_memory_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "SHARED_MEMORY", tmp_path)
    with contextlib.ExitStack() as stack:
        for port in (8000, 8001):
            writer = stack.enter_context(LaneWriter.open(tmp_path / f"dspark_vllm_{port}"))
            writer.append(records(0, port - 7998))
            writer.maintain()
        found = list(examine(None, key_file=None, gpu=False))
    names = [check.name for check in found]
    assert (names.count("spool"), names.count("shared_memory")) == (2, 1)
    assert [check.evidence for check in found if check.name == "spool_losses"] == [
        "dspark_vllm_8000: none in 2 record(s)",
        "dspark_vllm_8001: none in 3 record(s)",
    ]


def test_several_spools_that_no_server_writes_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "SHARED_MEMORY", tmp_path)
    for port in range(8001, 8008):
        LaneWriter.open(tmp_path / f"dspark_vllm_{port}").close()
    with LaneWriter.open(tmp_path / "dspark_vllm_8000"):
        found = [check for check in examine(None, key_file=None, gpu=False) if check.name.startswith("spool")]
    assert [check.name for check in found] == ["spool", "spool_losses", "spool_space", "spool"]
    assert "dspark_vllm_8000, id " in found[0].evidence
    assert found[-1].verdict == "skipped"
    assert found[-1].evidence.startswith(f"7 spool(s) in {tmp_path} that no server writes: dspark_vllm_8001, ")
    assert found[-1].evidence.endswith(" and 4 more")
    assert found[-1].remedy


@pytest.mark.parametrize(
    ("target", "meant"),
    [
        ("imp", "http://imp:8000"),
        ("localhost:8001", "http://localhost:8001"),
        ("gpu7.example.org", "http://gpu7.example.org:8000"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("18710", "http://localhost:18710"),
    ],
)
def test_a_target_that_may_be_a_servers_name_is_asked_about(
    target: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = by_name(examine(target, key_file=None, gpu=False))["spool"]
    assert found.verdict == "fail"
    assert found.remedy.startswith(f"Did you mean {meant}? ")
    (tmp_path / target).mkdir()
    assert "Did you mean" not in by_name(examine(target, key_file=None, gpu=False))["spool"].remedy


def test_the_servers_behind_a_name_are_checked_each(folder: Path) -> None:
    with serving(hook(folder, KEY)) as address:
        name = address.replace("http://127.0.0.1", "dns+http://localhost")
        (folder.parent / "key").write_text(KEY)
        found = by_name(examine(name, key_file=folder.parent / "key", gpu=False))
    assert found["server"].evidence == f"{address} answers"
    assert found["spool"].verdict == "ok"
    missing = by_name(examine("dns+http://no-such-host.invalid:8000", key_file=None, gpu=False))
    assert missing["server"].verdict == "fail"
    assert "can't be looked up" in missing["server"].evidence


def test_a_gpu_that_is_wanted_and_not_there_fails() -> None:
    done = run("--gpu", "--json", env={"CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 1
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert "fail" in {checks["gpu_driver"]["verdict"], checks["gpu_device"]["verdict"]}
    assert run("--json", env={"CUDA_VISIBLE_DEVICES": ""}).returncode == 0


def test_every_error_code_has_its_row_for_troubleshooting() -> None:
    def leaves(cls: type[DSparkJsonError]) -> set[str]:
        children = [child for child in cls.__subclasses__() if child.__module__ == errors.__name__]
        return set().union(*map(leaves, children)) if children else {cls.code}

    assert {trouble.code for trouble in TROUBLES} == leaves(DSparkJsonError)
    assert len(TROUBLES) == len({trouble.code for trouble in TROUBLES})
    for trouble in TROUBLES:
        assert set(trouble.checks) <= set(CHECKS), trouble
        assert "|" not in trouble.cause + trouble.remedy


def test_only_a_failure_makes_the_status_1() -> None:
    good = [fine("a", "x"), warned("b", "x", "y"), skipped("c", "x")]
    assert not is_failure(good)
    assert is_failure([*good, failed("d", "x", "y")])
