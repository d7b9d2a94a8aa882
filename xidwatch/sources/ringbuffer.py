"""This machine's kernel ring buffer, read once to its end."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from xidwatch.core.kmsg import parse_kmsg
from xidwatch.core.record import Record
from xidwatch.errors import XidwatchError

_LARGEST_RECORD = 1 << 16
_FORBIDDEN = "the kernel does not show its log to you (kernel.dmesg_restrict=1 asks for CAP_SYSLOG); try: sudo xidwatch explain"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class RingBuffer:
    """The records of /dev/kmsg, oldest first.

    Attributes:
        lost: Records that the kernel overwrote: before the first one that is left, and while reading.
        bytes: Read so far.
        boot_id: Of the running boot.
    """

    def __init__(self, path: str = "/dev/kmsg") -> None:
        self.path = path
        self.lost = 0
        self.bytes = 0
        self.boot_id = running_boot_id()

    def __iter__(self) -> Iterator[Record]:
        """The records.

        Raises:
            XidwatchError: this machine has no /dev/kmsg or does not let you read it; the text names the next step.
        """
        descriptor = self._open()
        boot_us = time.time_ns() // 1000 - time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        host = os.uname().nodename
        upcoming: int | None = None
        try:
            for raw in self._read(descriptor):
                record = parse_kmsg(raw)
                if record is None or record.since_boot_us is None:
                    continue
                if upcoming is not None and record.seq > upcoming:
                    self.lost += record.seq - upcoming
                upcoming = record.seq + 1
                yield replace(
                    record,
                    host=host,
                    boot_id=self.boot_id,
                    wall_us=boot_us + record.since_boot_us,
                    time_source="boot_offset",
                    uncertainty_s=1.0,
                )
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError:
            raise XidwatchError(f"{self.path}: {_FORBIDDEN}") from None
        except OSError as reason:
            raise XidwatchError(
                f"{self.path}: {reason.strerror or reason}; give a log file instead: xidwatch explain /var/log/kern.log"
            ) from None

    def _read(self, descriptor: int) -> Iterator[bytes]:
        """One record a read; a pipe or a file in its place may give several, and ends with an empty read."""
        while True:
            try:
                chunk = os.read(descriptor, _LARGEST_RECORD)
            except BlockingIOError:
                return
            except OSError as reason:
                if reason.errno == errno.EPIPE:  # overwritten under our eyes; the gap in seq says how many
                    continue
                if reason.errno in (errno.EPERM, errno.EACCES):
                    raise XidwatchError(f"{self.path}: {_FORBIDDEN}") from None
                raise XidwatchError(f"{self.path}: {reason.strerror or reason} while reading; try again") from None
            if not chunk:
                return
            self.bytes += len(chunk)
            yield from _records(chunk)


def _records(chunk: bytes) -> Iterator[bytes]:
    """Records of a chunk; lines that begin with a blank continue the one before."""
    begun: list[bytes] = []
    for line in chunk.splitlines():
        if begun and not line.startswith(b" "):
            yield b"\n".join(begun)
            begun = []
        begun.append(line)
    if begun:
        yield b"\n".join(begun)


def running_boot_id() -> str | None:
    """The boot id of the running kernel without dashes, as the journal spells it; None where /proc does not tell."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip().replace("-", "")
    except OSError:
        return None
