"""The ring over CUDA IPC, between real processes."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

from unit.device.rings import held, line, open_reader, process
from unit.device.test_race import READER

from dspark_json.device import layout
from dspark_json.device.cuda import CudaMemory
from dspark_json.device.reader import RingReader
from dspark_json.device.writer import ControlFile, RingWriter
from dspark_json.doctor.gpu import check_gpu

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 10
WRITER = """
import sys, time
from pathlib import Path
from dspark_json.device.cuda import CudaMemory
from dspark_json.device.writer import ControlFile, RingWriter
from unit.device.rings import line

lane, seconds = Path(sys.argv[1]), float(sys.argv[2])
writer = RingWriter(ControlFile(lane), CudaMemory.make(0, 20_011), 256)
print("ready", flush=True)
seq, deadline = 0, time.monotonic() + seconds
while time.monotonic() < deadline:
    count = 1 + seq * 31 % 17
    writer.append(seq, [line(number) for number in range(seq, seq + count)])
    seq += count
    (lane / "next").write_text(f"{seq:020d}")
writer.close()
"""


def test_all_checks_of_the_doctor_hold() -> None:
    checks = check_gpu(wanted=True)
    assert [check for check in checks if check.verdict not in {"ok", "warn"}] == []


def test_readers_that_race_a_writer_get_right_bytes_or_none(tmp_path: Path) -> None:
    with process(WRITER, tmp_path, SECONDS) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        with process(READER, tmp_path, 0, SECONDS) as quick, process(READER, tmp_path, 0.002, SECONDS) as slow:
            assert writer.wait(SECONDS + 60) == 0
            (tmp_path / "end").touch()
            counts = [json.loads(reader.communicate(timeout=90)[0]) for reader in (quick, slow)]
    assert [count["wrong"] for count in counts] == [0, 0]
    assert all(count["right"] > 100 for count in counts), counts


def test_a_writer_that_is_killed_leaves_a_ring_that_is_left_alone_after_its_heartbeat(tmp_path: Path) -> None:
    with process(WRITER, tmp_path, 60) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with open_reader(tmp_path) as reader:
            assert reader.header.kind == layout.CUDA
        writer.kill()
        writer.wait()
    subprocess.run(["sleep", "6"], check=True)
    assert RingReader.open(tmp_path)[0] is None


def test_records_larger_than_the_staging_go_round_the_ring(tmp_path: Path) -> None:
    writer = RingWriter(ControlFile(tmp_path), CudaMemory.make(0, 24 << 20))
    lines = [line(seq, 5_000_003) for seq in range(9)]
    for seq, one in enumerate(lines):
        writer.append(seq, [one])
    # In one process an IPC handle can't be opened where it was made, so another one reads.
    code = (
        "import sys\nfrom pathlib import Path\nfrom unit.device.rings import held, line, open_reader\n"
        "with open_reader(Path(sys.argv[1])) as reader:\n"
        "    print(sorted(held(reader, [line(seq, 5_000_003) for seq in range(9)], 0)))"
    )
    with process(code, tmp_path) as reader:
        assert reader.communicate(timeout=90)[0].strip() == "[5, 6, 7, 8]"
    writer.close()
    assert held  # the other process uses it
