"""The kernel's records out of the running systemd journal, as they are written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from xidwatch.core.journal import parse_journal
from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record
from xidwatch.sources.journalread import (
    INVALIDATED,
    MISSED_ID,
    NOTHING,
    ROOTS,
    Entry,
    journal_boots,
    journal_files,
    open_reader,
)
from xidwatch.sources.journalspan import Progress
from xidwatch.sources.kmsgblock import Ask, is_wanted
from xidwatch.sources.live import MOST_WORTH, RETRY_S, Bell, SourceHealth, Tally

_MISSED_TEXT = lazy(r"Missed (\d+) kernel messages")
_MOST_BROKEN = 100
_MOST_CHANGES = 4
_BOOTS_AT_FIRST = 2


class JournalSource:
    """Every kernel record of the journal once, in its order, those of earlier boots first. See `LiveSource`.

    What journald wrote about kernel messages that it missed is not handed out but counted as that many lost records.
    """

    name = "journal"

    def __init__(
        self, resume: str | None = None, directory: str | None = None, *, stream: int = 1, retry_s: Sequence[float] = RETRY_S
    ) -> None:
        """Open it.

        Args:
            resume: An earlier `position`; without one it begins with the boot before this one.
            directory: A folder of journal files in place of this machine's.
            stream: `Record.stream` of what is read.
            retry_s: Waits before attempts to open it again.

        Raises:
            XidwatchError: python-systemd is not installed.
        """
        self._directory = directory
        self._stream = stream
        self._cursor = resume or ""
        self._seq = 0
        self._fed = 0
        self._boot_id: str | None = None
        self._tally = Tally()
        self._bell = Bell(retry_s)
        self._reader: Any = None
        self._first: Entry | None = None
        self._roots: tuple[object, ...] = ()
        self._progress = Progress()
        self._growing: tuple[Path, ...] = ()
        self._open()

    def fileno(self) -> int:
        """Readable when there is something to do."""
        return self._bell.fileno()

    def position(self) -> str:
        """The cursor of the last record handed out."""
        return self._cursor

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
        if self._reader is None and not (due and self._reopened()):
            return []
        records: list[Record] = []
        try:
            self._read(records, most)
        except OSError as reason:
            self._fail(reason.strerror or str(reason))
        return records

    def follow(self, ask: Ask, most: int = MOST_WORTH) -> Iterator[Record]:
        """The next records that matter. See `LiveSource`."""
        for record in self.read(most):
            if self._is_wanted(record, ask):
                self._fed = record.seq
                yield record

    def _is_wanted(self, record: Record, ask: Ask) -> bool:
        if record.boot_id != self._boot_id:
            self._boot_id = record.boot_id
            return True
        return is_wanted(record.text, ask(), record.seq - self._fed)

    def _read(self, records: list[Record], most: int) -> None:
        """Read to the end before looking at what journald did to its files: removed ones can no longer be read then."""
        changes = 0
        self._progress.begin(self._growing)
        while len(records) < most and changes < _MOST_CHANGES:
            if (entry := self._next()) is not None:
                if (record := self._accept(entry)) is not None:
                    records.append(record)
                continue
            change = self._reader.process()
            if change == NOTHING:
                self._progress.all_read()
                self._bell.all_well()
                return
            changes += 1
            if change == INVALIDATED and not self._still_there():
                return
        self._bell.ring_now()

    def _next(self) -> Entry | None:
        """The next entry; None at the end. One that cannot be read is counted and passed over.

        Raises:
            OSError: so many cannot be read that the journal had better be opened anew.
        """
        if self._first is not None:
            entry, self._first = self._first, None
            return entry
        for _ in range(_MOST_BROKEN):
            try:
                return self._reader.get_next() or None
            except OSError as reason:
                self._tally.malformed += 1
                broken = reason
        raise broken

    def _accept(self, entry: Entry) -> Record | None:
        self._cursor = str(entry["__CURSOR"])
        self._progress.took(self._cursor)
        if entry.get("_TRANSPORT") == "driver":
            missed = _MISSED_TEXT.match(str(entry.get("MESSAGE", "")))
            self._tally.lost += int(missed[1]) if missed else 0
            return None
        record = parse_journal(entry, kernel_trust="kernel")
        if record is None:
            self._tally.malformed += 1
            return None
        self._seq += 1
        record = replace(record, stream=self._stream, seq=self._seq, line=self._seq)
        self._tally.passed(1, record.wall_us)
        self._tally.look(record)
        return record

    # --- opening ---

    def _reopened(self) -> bool:
        self._open()
        if self._reader is None:
            return False
        self._tally.restarts += 1
        return True

    def _open(self) -> None:
        try:
            self._roots = self._identities()
            if not self._look_at_files():
                self._fail("no journal files")
                return
            self._reader = reader = open_reader(self._directory)
            self._bell.watch(reader.fileno())  # before anything is read: from here on no change is missed
            reader.add_match(_TRANSPORT="kernel")
            reader.add_disjunction()
            reader.add_match(_TRANSPORT="driver", MESSAGE_ID=MISSED_ID)
            self._first = self._seek(reader)
        except OSError as reason:
            self._fail(reason.strerror or str(reason))
        else:
            self._tally.why = None
            self._bell.ring_now()

    def _seek(self, reader: Any) -> Entry | None:
        """Go to where reading begins. Returns the entry there if going there has taken it."""
        if self._cursor and _sought(reader, self._cursor):
            entry: Entry = reader.get_next()
            if entry and _same_entry(self._cursor, str(entry["__CURSOR"])):
                return None
            self._tally.gaps += 1  # vacuumed meanwhile: the journal goes on at the next one that it still has
            return entry or None
        if self._cursor:
            self._tally.gaps += 1
        boots = journal_boots(self._directory)[-_BOOTS_AT_FIRST:]
        if not boots or not _sought(reader, boots[0].cursor):
            reader.seek_head()
        return None

    def _still_there(self) -> bool:
        """False when the files are gone, or moved to where this reader does not look: then it is opened anew."""
        if not (files := self._look_at_files()):
            self._fail("no journal files any more")
            return False
        self._tally.gaps += self._progress.skipped(files)
        if self._identities() != self._roots:
            self._drop()
            self._tally.why = "its folders have changed"
            self._bell.ring_now()
            return False
        return True

    def _look_at_files(self) -> list[Path]:
        files = journal_files(self._directory)
        self._growing = tuple(file for file in files if "@" not in file.name)
        return files

    def _identities(self) -> tuple[object, ...]:
        """Which folders there are: journald moves from one to another, and a folder made anew is another one."""
        found: list[object] = []
        for root in (self._directory,) if self._directory is not None else ROOTS:
            with contextlib.suppress(OSError):
                state = Path(root).stat()
                found.append((root, state.st_dev, state.st_ino))
        return tuple(found)

    def _fail(self, why: str) -> None:
        self._drop()
        self._tally.why = f"{self._directory or ' and '.join(ROOTS)}: {why}"
        self._bell.ring_for_retry()

    def _drop(self) -> None:
        self._bell.forget()
        self._first = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _sought(reader: Any, cursor: str) -> bool:
    """Go there; False when it is no cursor at all."""
    try:
        reader.seek_cursor(cursor)
    except (OSError, ValueError):
        return False
    return True


def _same_entry(cursor: str, other: str) -> bool:
    """Whether two cursors mean one entry, though journald may have copied it to another file and counted it anew there.

    They agree in boot, both clocks and the hash. Source: systemd, sd-journal.c, sd_journal_get_cursor.
    """
    return _lasting(cursor) == _lasting(other)


def _lasting(cursor: str) -> list[str]:
    return [part for part in cursor.split(";") if part[:2] not in ("s=", "i=")]
