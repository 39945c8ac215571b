"""The hook's mirror: what was appended to the lane, once more in a device ring (DESIGN §7).

Nothing here may cost the server a record: a failure ends the mirror, is told in one loud line and counted, and the
spool has all records anyway.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from dspark_json.capture.notices import LOGGER
from dspark_json.errors import DeviceError
from dspark_json.spool.layout import lane_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from dspark_json.capture.settings import DeviceSettings
    from dspark_json.device.memory import DeviceMemory
    from dspark_json.device.writer import RingWriter
    from dspark_json.spool.writer import LaneWriter

__all__ = ["DeviceMirror"]

_CLOSE_SECONDS: Final = 2.0


class DeviceMirror:
    """Mirrors one lane at a time; all calls come from the writer thread.

    The memory is allocated when the first record was appended: by then the model server's engine has taken the memory
    it wants, and whatever process it forks is forked. A thread of its own does that, since the first use of CUDA takes
    seconds; records appended meanwhile are not mirrored.
    """

    def __init__(self, settings: DeviceSettings, count: Callable[[str, int], None]) -> None:
        """``count`` adds to a counter of the hook."""
        self._settings = settings
        self._count = count
        self._lane: Path | None = None
        self._ring: RingWriter | None = None
        self._changing = threading.Lock()
        self._opening: threading.Thread | None = None
        self._ended = settings.ring == "off"

    def attach(self, writer: LaneWriter) -> None:
        """Mirror this lane from now on, if a mirror is wanted."""
        if self._ended:
            return
        self._withdraw()
        self._opening = None
        self._lane = lane_folder(writer.folder, writer.lane)
        writer.after_append = self.append

    def append(self, first_seq: int, lines: Sequence[bytes]) -> None:
        """Put the lines that were appended under the numbers from ``first_seq`` on; never raises."""
        if self._ended:
            return
        ring = self._ring
        if ring is None:
            if self._opening is None:
                self._opening = threading.Thread(
                    target=self._open, args=(self._lane,), name="dspark-json-device", daemon=True
                )
                self._opening.start()
            return
        try:
            left_out = ring.append(first_seq, lines)
        except Exception as error:  # noqa: BLE001 - whatever CUDA raises, the server must go on
            self._fail("a record could not be put into the device ring", error)
            return
        self._count("device_ring_records", len(lines) - left_out)
        if left_out:
            self._count("device_ring_left_out", left_out)

    def beat(self) -> None:
        """About once a second: tell readers that the ring is alive."""
        if self._ring is not None:
            try:
                self._ring.beat()
            except Exception as error:  # noqa: BLE001 - as above
                self._fail("the device ring could not be renewed", error)

    def close(self) -> None:
        """Withdraw the ring."""
        self._ended = True
        if self._opening is not None:
            self._opening.join(_CLOSE_SECONDS)
        self._withdraw()

    # -- the opening thread -------------------------------------------------------------------------------------------

    def _open(self, lane: Path) -> None:
        from dspark_json.device.writer import ControlFile, RingWriter

        try:
            memory = self._allocate(lane)
        except Exception as error:  # noqa: BLE001 - as above
            if self._settings.ring == "auto" and isinstance(error, DeviceError):
                self._ended = True
                LOGGER.info("DSpark JSON: no device ring (DSPARK_DEVICE_RING is auto): %s", error)
            else:
                self._fail("the device ring could not be made", error)
            return
        try:
            ring = RingWriter(ControlFile(lane), memory)
        except Exception as error:  # noqa: BLE001 - as above
            memory.close()
            self._fail("the device ring could not be made", error)
            return
        with self._changing:
            wanted = not self._ended and self._lane == lane
            if wanted:
                self._ring = ring
        if not wanted:
            ring.close()
            return
        LOGGER.info(
            "DSpark JSON: device ring of %d MiB for lane %s (device %s)",
            memory.size >> 20,
            lane.name,
            self._settings.device,
        )

    def _allocate(self, lane: Path) -> DeviceMemory:
        if self._settings.device == "host":
            from dspark_json.device.memory import HostMemory

            return HostMemory.make(lane, self._settings.size)
        from dspark_json.device.cuda import CudaMemory

        return CudaMemory.make(int(self._settings.device), self._settings.size)

    # -- from both ----------------------------------------------------------------------------------------------------

    def _fail(self, what: str, error: Exception) -> None:
        self._ended = True
        self._count("device_ring_failures", 1)
        told = str(error) if isinstance(error, DeviceError) else f"{type(error).__name__}: {error}"
        LOGGER.error(
            "DSpark JSON: %s, there is none until the server is started again; serving and the spool go on: %s",
            what,
            told,
        )
        self._withdraw()

    def _withdraw(self) -> None:
        with self._changing:
            ring, self._ring = self._ring, None
        if ring is None:
            return
        try:
            ring.close()
        except Exception as error:  # noqa: BLE001 - as above; readers see by the heartbeat that it ended
            LOGGER.debug("DSpark JSON: the device ring was not closed: %s", error)
