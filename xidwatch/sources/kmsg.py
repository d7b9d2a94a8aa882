"""The running kernel's log from /dev/kmsg, as it is written."""

from __future__ import annotations

import os
import select
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from xidwatch.core.kmsg import parse_kmsg
from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record
from xidwatch.sources.live import RETRY_S, Bell, SourceHealth, Tally
from xidwatch.sources.printk_clock import PrintkClock
from xidwatch.sources.ringbuffer import running_boot_id

_LARGEST_READ = 1 << 16
_NUMBER = lazy(rb"\d{1,10},(\d{1,20})[,;]")


class KmsgSource:
    """Every record of /dev/kmsg once, the oldest in the ring first. See `LiveSource`.

    Source: linux Documentation/ABI/testing/dev-kmsg.
    """

    name = "kmsg"

    def __init__(
        self,
        path: str = "/dev/kmsg",
        resume: str | None = None,
        *,
        stream: int = 0,
        retry_s: Sequence[float] = RETRY_S,
        clock: PrintkClock | None = None,
    ) -> None:
        """Open it.

        Args:
            path: A pipe may stand in for the device.
            resume: An earlier `position`: what it covers is left out. After another boot everything is new.
            stream: `Record.stream` of what is read.
            retry_s: Waits before attempts to open it again.
            clock: Tests give their own.
        """
        self._path = path
        self._stream = stream
        self._clock = clock or PrintkClock()
        self._caught_up = False
        self._boot_id = running_boot_id()
        self._host = os.uname().nodename
        self._resume = resume or ""
        self._last = _resumed(self._resume, self._boot_id)
        self._tally = Tally()
        self._bell = Bell(retry_s)
        self._descriptor: int | None = None
        self._is_device = False
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._open()

    def fileno(self) -> int:
        """Readable when there is something to do."""
        return self._bell.fileno()

    def position(self) -> str:
        """`boot_id:seq` of the last record handed out."""
        return self._resume if self._last is None or self._last < 0 else f"{self._boot_id or ''}:{self._last}"

    def health(self) -> SourceHealth:
        """Counters since it was made."""
        return self._tally.health()

    def close(self) -> None:
        """Let go of everything."""
        self._drop()
        self._bell.close()
        self._tally.why = "closed"

    def read(self, most: int = 1000) -> list[Record]:
        """The next records, at most `most`."""
        due = self._bell.time_has_come()
        if self._descriptor is None and not (due and self._reopened()):
            return []
        records: list[Record] = []
        self._clock.look()
        try:
            for raw in self._raw():
                if (record := self._accept(raw)) is not None:
                    records.append(record)
                    if len(records) >= most:
                        self._caught_up = False
                        self._bell.ring_now()  # a pipe's bytes may all be here already
                        break
            else:
                self._caught_up = True
                self._bell.all_well()
        except OSError as reason:
            self._fail(reason.strerror or str(reason))
        return records

    def _reopened(self) -> bool:
        self._open()
        if self._descriptor is None:
            return False
        self._tally.restarts += 1
        return True

    def _open(self) -> None:
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._is_device = stat.S_ISCHR(os.fstat(self._descriptor).st_mode)
            self._bell.watch(self._descriptor)
        except PermissionError:
            self._fail("not readable: it asks for CAP_SYSLOG where kernel.dmesg_restrict is 1")
        except OSError as reason:
            self._fail(reason.strerror or str(reason))
        else:
            self._lines.clear()
            self._rest = b""
            self._tally.why = None

    def _fail(self, why: str) -> None:
        self._drop()
        self._caught_up = False
        self._tally.why = f"{self._path}: {why}"
        self._bell.ring_for_retry()

    def _drop(self) -> None:
        self._bell.forget()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _raw(self) -> Iterator[bytes]:
        """Records as long as some are there.

        Raises:
            OSError: it cannot be read any more.
        """
        if not self._is_device:
            yield from self._raw_lines()
            return
        descriptor = self._descriptor
        while descriptor is not None:
            try:
                raw = os.read(descriptor, _LARGEST_READ)
            except BlockingIOError:
                return
            except BrokenPipeError:  # the record we stood at was overwritten; the gap in the numbers says how many
                continue
            if not raw:
                raise OSError("no device that keeps a log")
            yield raw

    def _raw_lines(self) -> Iterator[bytes]:
        """The same from a pipe, where one read gives many records and may cut one."""
        while True:
            while self._lines:
                line = self._lines.popleft()
                if line and not line.startswith(b" "):
                    yield line
            chunk = self._chunk()
            if chunk is None:
                return
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            self._lines.extend(lines)

    def _chunk(self) -> bytes | None:
        """What is in the pipe; None when nothing is. A pipe that nobody has opened for writing yet is empty, not at its end."""
        if self._descriptor is None:
            return None
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        if not poll.poll(0):
            return None
        if chunk := os.read(self._descriptor, _LARGEST_READ):
            return chunk
        raise OSError("its writer is gone")

    def _accept(self, raw: bytes) -> Record | None:
        record = parse_kmsg(raw)
        if record is None or record.since_boot_us is None:
            number = _NUMBER.match(raw)
            self._tally.malformed += number is None or self._advance(int(number[1]))
            return None
        if not self._advance(record.seq):
            return None
        if self._caught_up:
            self._clock.arrived(record.since_boot_us)
        wall_us, uncertainty_s = self._clock.tell(record.since_boot_us)
        record = replace(
            record,
            stream=self._stream,
            host=self._host,
            boot_id=self._boot_id,
            wall_us=wall_us,
            time_source="boot_offset",
            uncertainty_s=uncertainty_s,
        )
        self._tally.take(record)
        return record

    def _advance(self, seq: int) -> bool:
        """Move on to a record; False when it was had before. Numbers left out are lost records."""
        if self._last is not None:
            if seq <= self._last:
                return False
            self._tally.lost += seq - self._last - 1
        self._last = seq
        return True


def _resumed(resume: str, boot_id: str | None) -> int | None:
    """The number of the last record had; -1 in a later boot, of which all are wanted; None when nothing is known."""
    boot, _, seq = resume.rpartition(":")
    if not boot or not seq.isdecimal():
        return None
    return int(seq) if boot == boot_id else -1
