"""The running kernel's log from /dev/kmsg, as it is written."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace

from xidwatch.core.kmsg import parse_kmsg
from xidwatch.core.record import Record
from xidwatch.sources.kmsgblock import Ask, Block, is_wanted, number_of
from xidwatch.sources.live import MOST_WORTH, RETRY_S, Bell, SourceHealth, Tally
from xidwatch.sources.printk_clock import PrintkClock
from xidwatch.sources.ringbuffer import running_boot_id

_LARGEST_READ = 1 << 16
_LARGEST_RECORD = 1 << 13
"""Source: linux kernel/printk/internal.h, PRINTK_MESSAGE_MAX and CONSOLE_EXT_LOG_MAX."""
_MOST_IN_BLOCK = 512
_MOST_BYTES = 1 << 18
"""Read at one go before the loop looks at everything else: some milliseconds' worth."""
_PIPE_BYTES = 1 << 20


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
        self._block: Block | None = None
        self._passing = False
        self._fresh = True
        self._fed = -1
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
        return list(self._follow(None, most))

    def follow(self, ask: Ask, most: int = MOST_WORTH) -> Iterator[Record]:
        """The next records that matter. See `LiveSource`."""
        return self._follow(ask, most)

    def _follow(self, ask: Ask | None, most: int) -> Iterator[Record]:
        due = self._bell.time_has_come()
        if self._descriptor is None and not (due and self._reopened()):
            return
        self._clock.look()
        read = 0
        try:
            while most > 0 and read < _MOST_BYTES:
                if self._block is None and not (raw := self._raw()):
                    self._caught_up = True
                    self._bell.all_well()
                    return
                if self._block is None:
                    read += len(raw)
                    self._begin(Block(raw), ask)
                for record in self._wanted(ask):
                    yield record
                    most -= 1
                    if most <= 0:
                        break
        except OSError as reason:
            self._fail(reason.strerror or str(reason))
            return
        self._caught_up = False
        self._bell.ring_now()  # a pipe's bytes may all be here already

    def _begin(self, block: Block, ask: Ask | None) -> None:
        """Take a whole block in at once, if it goes on where the last one ended and nobody needs to see each of its records."""
        self._block, self._passing = block, False
        if block.first is None or ask is None or self._fresh:
            return
        if self._last is not None and block.first <= self._last:
            return
        self._passing = True
        if self._last is not None:
            self._tally.lost += block.first - self._last - 1

    def _wanted(self, ask: Ask | None) -> Iterator[Record]:
        """What is wanted of the block; it is gone when that is all."""
        block = self._block
        if block is None:
            return
        if ask is not None and self._passing:
            for raw in block.wanted(ask, self._fed):
                if (record := parse_kmsg(raw)) is not None and record.since_boot_us is not None:
                    self._last = self._fed = record.seq
                    yield self._told(record)
            self._pass(block)
        else:
            for raw in block.every():
                if (record := self._accept(raw)) is not None and self._is_wanted(record, ask):
                    self._last = self._fed = record.seq
                    yield record
        self._block = None

    def _is_wanted(self, record: Record, ask: Ask | None) -> bool:
        if ask is None or self._fresh:
            self._fresh = False
            return True
        return is_wanted(record.text, ask(), record.seq - self._fed)

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
            if not self._is_device:
                # So that a writer who does not wait may write on while we are busy; refused beyond the user's limit.
                with contextlib.suppress(OSError):
                    fcntl.fcntl(self._descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            self._block, self._fresh = None, True
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

    def _raw(self) -> bytes:
        """What is there, whole records only; empty when nothing is.

        Raises:
            OSError: it cannot be read any more.
        """
        if not self._is_device:
            return self._raw_of_pipe()
        records: list[bytes] = []
        descriptor = self._descriptor
        while descriptor is not None and len(records) < _MOST_IN_BLOCK:
            try:
                raw = os.read(descriptor, _LARGEST_RECORD)
            except BlockingIOError:
                break
            except BrokenPipeError:  # the record we stood at was overwritten; the gap in the numbers says how many
                if records:
                    break
                continue
            if not raw:
                raise OSError("no device that keeps a log")
            records.append(raw)
        return b"".join(records)

    def _raw_of_pipe(self) -> bytes:
        """The same from a pipe, where one read gives many records and may cut one."""
        while (chunk := self._chunk()) is not None:
            whole, newline, rest = chunk.rpartition(b"\n")
            if newline:
                raw, self._rest = self._rest + whole + newline, rest
                return raw
            self._rest += chunk
            if len(self._rest) > _MOST_BYTES:
                self._rest = b""
                self._tally.malformed += 1
        return b""

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

    def _pass(self, block: Block) -> None:
        """Done with a block of which most was passed over: it counts as read."""
        if self._caught_up:
            self._clock.arrived(block.latest_us())
        self._last = block.last
        self._tally.passed(block.count, self._clock.tell(block.latest_us())[0])

    def _accept(self, raw: bytes) -> Record | None:
        record = parse_kmsg(raw)
        if record is None or record.since_boot_us is None:
            number = number_of(raw)
            self._tally.malformed += number is None or self._advance(number)
            return None
        if not self._advance(record.seq):
            return None
        if self._caught_up:
            self._clock.arrived(record.since_boot_us)
        record = self._told(record)
        self._tally.passed(1, record.wall_us)
        return record

    def _told(self, record: Record) -> Record:
        """The record with what the source knows of it."""
        wall_us, uncertainty_s = self._clock.tell(record.since_boot_us or 0)
        record = replace(
            record,
            stream=self._stream,
            host=self._host,
            boot_id=self._boot_id,
            wall_us=wall_us,
            time_source="boot_offset",
            uncertainty_s=uncertainty_s,
        )
        self._tally.look(record)
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
