"""What the daemon asks of a live source, and what such sources share: their counters and the bell that wakes the loop."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from xidwatch.core.parse import LITERALS
from xidwatch.core.record import Record
from xidwatch.sources.kmsgblock import Ask

MOST_WORTH = 200
"""Records that matter, dealt with at one go before the loop looks at everything else."""
RETRY_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds to wait before the first, second, ... attempt to open a source again; the last one goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHealth:
    """How a source is.

    Attributes:
        up: It is open and being read.
        why: What is wrong, for a person; None while up.
        records_total: Records read, whether anybody wanted to see them or not.
        lost_records_total: Records that were overwritten before they could be read, exactly.
        gaps_total: Stretches of unknown length that are gone: the journal no longer had the place to resume from.
        restarts_total: How often it was opened again.
        untrusted_total: Records that user space wrote and that would have been read for a fault's.
        malformed_total: What could not be read as a record.
        last_record_wall_us: Wall clock of the newest record handed out; None before the first.
    """

    up: bool
    why: str | None
    records_total: int
    lost_records_total: int
    gaps_total: int
    restarts_total: int
    untrusted_total: int
    malformed_total: int
    last_record_wall_us: int | None


class LiveSource(Protocol):
    """A stream of records that goes on. No call blocks or raises for what may mend itself: `health` tells of it."""

    @property
    def name(self) -> str:
        """The `source` label of the metrics: "kmsg" or "journal"."""

    def fileno(self) -> int:
        """A descriptor, the same for the source's whole life, that is readable whenever `read` has something to do."""

    def read(self, most: int = 1000) -> list[Record]:
        """The next records, at most `most`; fewer only when no more are there now. `Record.seq` ascends."""

    def follow(self, ask: Ask, most: int = MOST_WORTH) -> Iterator[Record]:
        """The next records that matter, at most `most`; to be taken to the end before anything else is asked.

        The first of a boot, those with one of the parsers' words, and those that `ask` wants; it is asked again when the one
        before has been dealt with. All others are counted and skipped, which shows in `Record.seq`.
        """

    def position(self) -> str:
        """Where to resume behind the records handed out so far; "" before anything is known."""

    def health(self) -> SourceHealth:
        """Counters since it was made."""

    def close(self) -> None:
        """Let go of everything; `read` must not be called any more."""


@dataclass(slots=True)
class Tally:
    """The counters behind a `SourceHealth`; attributes as there."""

    why: str | None = "not opened yet"
    records: int = 0
    lost: int = 0
    gaps: int = 0
    restarts: int = 0
    untrusted: int = 0
    malformed: int = 0
    last_wall_us: int | None = None

    def passed(self, records: int, last_wall_us: int | None) -> None:
        """Count records that were read."""
        self.records += records
        self.last_wall_us = last_wall_us

    def look(self, record: Record) -> None:
        """Count a record that user space wrote and that reads like a fault's."""
        if record.trusted == "no" and any(literal in record.text for literal in LITERALS):
            self.untrusted += 1

    def health(self) -> SourceHealth:
        """The counters as they stand."""
        return SourceHealth(
            up=self.why is None,
            why=self.why,
            records_total=self.records,
            lost_records_total=self.lost,
            gaps_total=self.gaps,
            restarts_total=self.restarts,
            untrusted_total=self.untrusted,
            malformed_total=self.malformed,
            last_record_wall_us=self.last_wall_us,
        )


class Bell:
    """One descriptor that is readable when the watched one is, or when a time has come.

    The loop can keep it registered while the source behind it comes and goes, and nothing has to wake up to look.
    """

    def __init__(self, retry_s: Sequence[float] = RETRY_S) -> None:
        self._epoll = select.epoll()
        self._timer = _timer()
        self._epoll.register(self._timer, select.EPOLLIN)
        self._watched: int | None = None
        self._retry_s = tuple(retry_s)
        self._failures = 0

    def fileno(self) -> int:
        """To be waited for."""
        return self._epoll.fileno()

    def watch(self, descriptor: int) -> None:
        """Ring whenever it is readable or hung up.

        Raises:
            OSError: it is none that can be waited for.
        """
        self.forget()
        self._epoll.register(descriptor, select.EPOLLIN)
        self._watched = descriptor

    def forget(self) -> None:
        """Watch it no more; to be called before it is closed."""
        if self._watched is not None:
            with contextlib.suppress(OSError):  # its owner may have closed it, which takes it out as well
                self._epoll.unregister(self._watched)
            self._watched = None

    def ring_now(self) -> None:
        """Ring at once: there is more to do than was done."""
        _set_timer(self._timer, 1)

    def ring_for_retry(self) -> None:
        """Ring when it is time for the next attempt: each failure in a row makes it later."""
        wait_s = self._retry_s[min(self._failures, len(self._retry_s) - 1)]
        self._failures += 1
        _set_timer(self._timer, max(1, round(wait_s * 1e9)))

    def all_well(self) -> None:
        """Forget earlier failures."""
        self._failures = 0

    def time_has_come(self) -> bool:
        """Whether a time set earlier is over; it is told once."""
        try:
            return bool(os.read(self._timer, 8))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Close the descriptors."""
        self.forget()
        os.close(self._timer)
        self._epoll.close()


_libc = ctypes.CDLL(None, use_errno=True)


def _timer() -> int:
    """A timer as a descriptor; os.timerfd_create has it from Python 3.13 on."""
    descriptor = int(_libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "timerfd_create")
    return descriptor


def _set_timer(descriptor: int, nanoseconds: int) -> None:
    """One ring, `nanoseconds` from now. Source: struct itimerspec, interval and value, each seconds and nanoseconds."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    if _libc.timerfd_settime(descriptor, 0, ctypes.byref((ctypes.c_long * 4)(0, 0, seconds, rest)), None) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "timerfd_settime")
