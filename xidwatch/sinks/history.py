"""The daemon's memory that outlives it: entries, totals and positions in one SQLite file, written by a thread of its own.

The loop calls `append`, which never waits: it raises the totals in memory and puts the entry into a bounded backlog.
The thread writes the backlog in transactions of up to 200 entries; an entry, the totals it raises and the position behind it
are on the disk together or not at all. After kill -9 the source resumes at `positions()`, what it brings again is known by its
identity, and so each event is counted and kept exactly once. The file and its settings: `history_file`.

A disk that is full, read-only or frozen stops the thread and nothing else. When the backlog is full an entry loses its details
but keeps its identity, its key columns and its place in the totals.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from xidwatch.core.identity import LatestNames
from xidwatch.sinks import history_file as file
from xidwatch.sinks.history_file import Note, Row, Stored, TotalKey
from xidwatch.sinks.history_read import StoredEntry, add_note, latest_entries, opened_for_reading, read_history, read_notes

__all__ = [
    "Entry", "History", "HistoryHealth", "Limits", "Note", "StoredEntry", "TotalKey", "add_note", "read_history", "read_notes",
]  # fmt: skip

_BATCH_ROWS = 200
_BEHIND_ROWS = 1000
_ANSWERS_US = 500_000
_GATHER_S = 0.05
_RETRY_FIRST_S = 0.1
_PATIENCE_S = 3.0
_MOST_MESSAGES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One event or context line on its way into the history.

    Attributes:
        identity: Of its first record (`core.identity`); with `/1`, `/2` ... appended for further events of the same record.
        source, position: Who brought it, and where to resume once it is stored. It must not lie behind a record whose events
            are not appended yet. None for what is only counted (an incident that opened).
        wall_us, boot_id: Of its record.
        item: What `core.codec.encode` made; None for what is only counted.
        totals: Counters that it raises by one.
    """

    identity: str
    source: str | None = None
    position: str | None = None
    wall_us: int | None = None
    boot_id: str | None = None
    item: dict[str, Any] | None = None
    totals: tuple[TotalKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much the history keeps.

    Attributes:
        age_s: Entries stored longer ago are deleted.
        size_bytes: Pages in use; the oldest entries beyond are deleted. The log file beside it may take 8 MiB more.
        backlog: Entries that wait for the disk.
        seen: Identities known in memory, the latest ones. Also how many entries may wait without their details.
        poll_s: How often notes of other processes are looked for.
        age_check_s: How often one slice of old entries is deleted: slowly, so that a clock wrong for a while costs little.
        retry_s: The longest pause after a failed write.
    """

    age_s: float = 90 * 86400.0
    size_bytes: int = 200_000_000
    backlog: int = 10_000
    seen: int = 25_000
    poll_s: float = 2.0
    age_check_s: float = 60.0
    retry_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryHealth:
    """How the writing goes.

    Attributes:
        up: The thread lives.
        backlog: Entries that are not on the disk yet.
        dropped_total: Entries that lost their details because the backlog was full.
        write_failures_total: Attempts that failed; they are repeated.
        set_aside_total: Files that could not be used and were renamed.
        damaged_total: Stored entries that could not be read back.
        last_error: Of the latest attempt; None when it succeeded.
        last_write_us: When the disk last took something, microseconds since 1970; None before the first time.
    """

    up: bool
    backlog: int
    dropped_total: int
    write_failures_total: int
    set_aside_total: int
    damaged_total: int
    last_error: str | None
    last_write_us: int | None


@dataclass(slots=True)
class _Waiting:
    """What is not on the disk yet.

    Attributes:
        rows: In order.
        bare: Entries without their details: the backlog was full. They may be written before rows that came earlier: identity
            and totals go together, and no position rests on them.
        unnamed: Raises of entries that were too many even for that.
    """

    rows: deque[Row] = field(default_factory=deque)
    bare: deque[Row] = field(default_factory=deque)
    unnamed: Counter[TotalKey] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.rows or self.bare or self.unnamed)


class History:
    """Made by `open`. Only `open`, `recent_entries`, `flush` and `close` may wait; all else answers whatever the disk does."""

    def __init__(self, path: Path, limits: Limits, clock_us: Callable[[], int]) -> None:
        self._path = path
        self._limits = limits
        self._clock_us = clock_us
        # Held for microseconds only, never while the disk is touched.
        lock = threading.Lock()
        self._wake, self._idle, self._room = (threading.Condition(lock) for _ in range(3))
        self._waiting = _Waiting()
        self._seen = LatestNames(limits.seen)
        self._totals: dict[TotalKey, float] = {}
        self._owed: dict[TotalKey, float] = {}
        self._stored = Stored()
        self._loaded = False
        self._notes: list[Note] = []
        self._last_note = 0
        self._messages: deque[str] = deque(maxlen=_MOST_MESSAGES)
        self._closing = False
        self._dropped = self._failures = self._set_aside = self._damaged = 0
        self._last_error: str | None = None
        self._last_write_us: int | None = None
        # The thread's own, after `open`.
        self._inode = 0
        self._poll_due_s = self._age_due_s = 0.0
        self._trimming, self._version = True, -1
        self._opening = threading.Thread(target=self._first_look, name="history-open", daemon=True)
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)

    @classmethod
    def open(cls, path: Path, limits: Limits | None = None, clock_us: Callable[[], int] | None = None) -> History:
        """Load what is stored and start the thread; waits some seconds for a disk that does not answer, then goes on without.

        A file that is torn or from a newer version is renamed and a new one begun; where none can be written the history lives
        in memory and the thread keeps trying. Either is told by `take_messages` and `health`.

        Args:
            clock_us: Tells the time, microseconds since 1970.
        """
        history = cls(path, limits or Limits(), clock_us or (lambda: time.time_ns() // 1000))
        first = history._opening
        first.start()
        first.join(_PATIENCE_S)
        if first.is_alive():
            with history._wake:
                history._failures += 1
                history._last_error = "the disk does not answer"
                history._messages.append(
                    f"the disk under {path} does not answer; watching goes on, the past is read when it does"
                )
        history._thread.start()
        return history

    def _first_look(self) -> None:
        try:
            self._open_file(thorough=True).close()
        except (OSError, sqlite3.Error) as error:
            self._failed(error)
            # A file system that went read-only still tells the totals.
            with suppress(OSError, sqlite3.Error, file.Unusable), opened_for_reading(self._path) as connection:
                self._adopt(connection)

    def append(self, entry: Entry) -> bool:
        """Count an entry and have it stored; True when its identity is new, False when only the position moves."""
        with self._wake:
            new = entry.identity not in self._seen
            if new:
                row = _row(entry)
                self._seen.add(entry.identity)
                self._raise(entry.totals)
            elif entry.source is not None and entry.position is not None:
                row = _position_row(entry.source, entry.position)
            else:
                return False
            self._wait_for_disk(row)
        return new

    def make_way(self, most_s: float) -> None:
        """Let the thread work for a moment if it is behind and the disk takes what it is given; never longer than `most_s`.

        Whoever reads faster than a disk writes only fills the memory. A disk that does not answer is not waited for.
        """
        with self._wake:
            since_us = self._clock_us() - (self._last_write_us or 0)
            if len(self._waiting.rows) > _BEHIND_ROWS and 0 <= since_us < _ANSWERS_US:
                self._room.wait(most_s)

    def advance(self, source: str, position: str) -> None:
        """Where to resume when nothing was worth an entry for a while."""
        with self._wake:
            self._wait_for_disk(_position_row(source, position))

    def knows(self, identity: str) -> bool:
        """Whether an entry of this identity is among the latest."""
        with self._wake:
            return identity in self._seen

    def totals(self) -> dict[TotalKey, float]:
        """Counters, with everything appended so far; none ever falls."""
        with self._wake:
            return dict(self._totals)

    def positions(self) -> dict[str, str]:
        """Source -> where to resume so that nothing is lost; only what is on the disk counts."""
        with self._wake:
            return dict(self._stored.positions)

    def take_notes(self) -> list[Note]:
        """Operators' acts since the last call, in order; the first call gives all that are stored."""
        with self._wake:
            notes, self._notes = self._notes, []
        return notes

    def take_messages(self) -> list[str]:
        """Sentences for the operator since the last call."""
        with self._wake:
            messages = list(self._messages)
            self._messages.clear()
        return messages

    def health(self) -> HistoryHealth:
        """How the writing goes."""
        with self._wake:
            return HistoryHealth(
                up=self._thread.is_alive(),
                backlog=len(self._waiting.rows) + len(self._waiting.bare),
                dropped_total=self._dropped,
                write_failures_total=self._failures,
                set_aside_total=self._set_aside,
                damaged_total=self._damaged,
                last_error=self._last_error,
                last_write_us=self._last_write_us,
            )

    def recent_entries(self, limit: int = 20_000) -> Iterator[StoredEntry]:
        """The last stored events and context lines, oldest first, for a replay at the start; reads the disk.

        Those that cannot be decoded are left out and counted in `damaged_total`; none while the disk does not answer.
        """
        if self._opening.is_alive():
            return
        with suppress(OSError, sqlite3.Error, file.Unusable), opened_for_reading(self._path) as connection:
            for entry in latest_entries(connection, limit):
                if not entry.damaged:
                    yield entry
                else:
                    with self._wake:
                        self._damaged += 1

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was appended is stored; False when the time ran out."""
        with self._wake:
            return self._idle.wait_for(lambda: not self._waiting, timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Store what waits and end the thread; False when the disk did not let it, and the process may exit all the same."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # called with the lock held

    def _raise(self, keys: Iterable[TotalKey]) -> None:
        for key in keys:
            if self._owed.get(key, 0.0) >= 1.0:
                self._owed[key] -= 1.0
            else:
                self._totals[key] = self._totals.get(key, 0.0) + 1.0

    def _wait_for_disk(self, row: Row) -> None:
        waiting = self._waiting
        if len(waiting.rows) < self._limits.backlog:
            waiting.rows.append(row)
            if len(waiting.rows) in (1, _BATCH_ROWS):
                self._wake.notify_all()
        elif row.identity is not None:
            self._dropped += 1
            if len(waiting.bare) < self._limits.seen:
                waiting.bare.append(row._replace(item=None, position=None))
            else:
                waiting.unnamed.update(row.totals)

    def _settle(self) -> None:
        """Once nothing waits, memory and disk must agree.

        Memory is ahead when an identity that had left `_seen` came again and the file knew it. A total may not fall, so it
        stands until as many true events have caught up.
        """
        for key, value in self._stored.totals.items():
            self._totals[key] = max(value, self._totals.get(key, 0.0))
        ahead = {key: value - self._stored.totals.get(key, 0.0) for key, value in self._totals.items()}
        self._owed = {key: by for key, by in ahead.items() if by > 0}

    # the thread

    def _run(self) -> None:
        # The connection stays in this frame: at exit nobody else may close it while the disk holds this thread.
        connection: sqlite3.Connection | None = None
        pause_s, torn = _RETRY_FIRST_S, None
        while not self._done():
            try:
                if connection is None:
                    connection, torn = self._open_file(torn), None
                self._turn(connection)
                pause_s = _RETRY_FIRST_S
            except (OSError, sqlite3.Error) as error:
                self._failed(error)
                torn = torn or (str(error) if file.is_torn(error) else None)
                if connection is not None:
                    connection.close()
                    connection = None
                if not self._done():
                    self._pause(pause_s)
                    pause_s = min(pause_s * 2, self._limits.retry_s)
        if connection is not None:
            connection.close()

    def _done(self) -> bool:
        with self._wake:
            return self._closing and not self._waiting

    def _pause(self, seconds: float) -> None:
        with self._wake:
            if self._closing:
                self._wake.wait(seconds)
            else:
                self._wake.wait_for(lambda: self._closing, seconds)

    def _open_file(self, torn: str | None = None, *, thorough: bool = False) -> sqlite3.Connection:
        connection, said = file.open_file(self._path, self._clock_us(), torn=torn, thorough=thorough)
        try:
            if said is not None:
                with self._wake:
                    self._set_aside += 1
                    self._messages.append(said)
                    self._last_note = 0
            self._inode = self._path.stat().st_ino
            self._adopt(connection)
        except (OSError, sqlite3.Error):
            connection.close()
            raise
        return connection

    def _adopt(self, connection: sqlite3.Connection) -> None:
        """Take over what the file has; give it what it lacks, when it is a new one or was removed while we ran."""
        found = file.load(connection)
        identities = [] if self._loaded else file.latest_identities(connection, self._limits.seen)
        with self._wake:
            known = self._stored
            totals = {key: max(found.totals.get(key, 0.0), known.totals.get(key, 0.0)) for key in found.totals | known.totals}
            self._stored = Stored(totals, known.positions | found.positions)
            if not self._loaded:
                self._loaded = True
                for key, value in found.totals.items():
                    self._totals[key] = self._totals.get(key, 0.0) + value
                for identity in identities:
                    self._seen.add(identity)
        self._version = -1
        self._read_notes(connection)
        if self._stored != found:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                file.put(connection, self._stored)

    def _turn(self, connection: sqlite3.Connection) -> None:
        """Write what waits, or wait for it; then what is due."""
        if batch := self._next_batch():
            after = file.write(connection, chain(batch.rows, batch.bare), batch.unnamed, self._stored, self._clock_us())
            self._written(batch, after)
        if time.monotonic() >= self._poll_due_s:
            self._poll_due_s = time.monotonic() + self._limits.poll_s
            self._check_file()
            if (version := file.changes_of_others(connection)) != self._version:
                self._version = version
                self._read_notes(connection)
        if batch or self._trimming or time.monotonic() >= self._age_due_s:
            self._trimming = bool(self._trim(connection))
        with self._wake:
            if self._last_error is not None:
                self._last_error = None
                self._messages.append(f"the history {self._path} is written again")

    def _next_batch(self) -> _Waiting:
        """Up to 200 rows once there are as many or 50 ms have passed since the first; nothing when something else is due."""
        waiting = self._waiting
        with self._wake:
            due_s = 0.0 if self._trimming else self._poll_due_s - time.monotonic()
            self._wake.wait_for(lambda: waiting or self._closing, max(0.0, due_s))
            if waiting:
                self._wake.wait_for(lambda: len(waiting.rows) >= _BATCH_ROWS or self._closing, _GATHER_S)
            # The rows first, then all that lost its details: no position may be stored before an entry that came before it.
            return _Waiting(deque(islice(waiting.rows, _BATCH_ROWS)), waiting.bare.copy(), waiting.unnamed.copy())

    def _written(self, batch: _Waiting, after: Stored) -> None:
        with self._wake:
            self._stored = after
            for _ in batch.rows:
                self._waiting.rows.popleft()
            for _ in batch.bare:
                self._waiting.bare.popleft()
            self._waiting.unnamed -= batch.unnamed
            self._last_write_us = self._clock_us()
            self._room.notify_all()
            if not self._waiting:
                self._settle()
                self._idle.notify_all()

    def _check_file(self) -> None:
        """Raises OSError when the path no longer leads to the file that is open: what is written there would be gone."""
        if self._path.stat().st_ino != self._inode:
            raise FileNotFoundError(f"{self._path} was replaced")

    def _read_notes(self, connection: sqlite3.Connection) -> None:
        if found := file.notes_after(connection, self._last_note):
            with self._wake:
                self._notes += found
                self._last_note = found[-1].id

    def _trim(self, connection: sqlite3.Connection) -> int:
        done = file.delete_oldest_over(connection, self._limits.size_bytes)
        if time.monotonic() >= self._age_due_s:
            self._age_due_s = time.monotonic() + self._limits.age_check_s
            file.delete_before(connection, self._clock_us() - int(self._limits.age_s * 1e6))
        return done

    def _failed(self, error: Exception) -> None:
        with self._wake:
            self._failures += 1
            if self._last_error is None:
                self._messages.append(f"the history {self._path} cannot be written ({error}); it goes on in memory")
            self._last_error = str(error)


def _row(entry: Entry) -> Row:
    item = entry.item or {}
    return Row(
        identity=entry.identity,
        wall_us=_column(entry.wall_us),
        boot_id=entry.boot_id,
        kind=item.get("kind"),
        code=_column(item.get("code")),
        gpu=item.get("pci"),
        source=entry.source,
        item=None if entry.item is None else json.dumps(entry.item, separators=(",", ":")),
        position=entry.position,
        totals=entry.totals,
    )


def _position_row(source: str, position: str) -> Row:
    nothing = Row(None, None, None, None, None, None, None, None, None, ())
    return nothing._replace(source=source, position=position)


def _column(value: int | None) -> int | None:
    """None for what SQLite's 64 bits cannot hold: log text is hostile. The item keeps it."""
    return value if value is not None and -(1 << 63) <= value < 1 << 63 else None
