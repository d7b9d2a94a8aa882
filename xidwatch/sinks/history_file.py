"""The history's SQLite file: its tables, what makes it unusable, and every statement that writes to it.

Each function here may block for as long as the disk does, so the daemon's loop calls none of them.

WAL, so that `xidwatch history` and an operator's note never wait for the daemon nor it for them.
`synchronous=FULL` and not NORMAL: NORMAL survives kill -9, but a power cut may take the last transactions with it, and a sick
GPU is often answered by exactly that (a power cycle, or a node that died by itself). The kernel's ring is gone with the boot,
so what is not on the disk by then is nowhere. The price is one fsync a transaction, at most twenty a second, none in silence.

Deleted pages are used again, so a file at its limit does not grow; `auto_vacuum=INCREMENTAL` lets a file that is bigger than
its limit (which was lowered) give them back in small slices instead of one long VACUUM.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

VERSION = 1
"""Raised whenever an older xidwatch could no longer read the file."""
TotalKey = tuple[str, tuple[tuple[str, str], ...]]
"""A counter: the metric's name and its labels as (name, value) pairs."""

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE entries (
    id INTEGER PRIMARY KEY, identity TEXT NOT NULL UNIQUE, stored_us INTEGER NOT NULL, wall_us INTEGER, boot_id TEXT,
    kind TEXT, code INTEGER, gpu TEXT, source TEXT, item TEXT
);
CREATE TABLE totals (metric TEXT, labels TEXT, value REAL NOT NULL, PRIMARY KEY (metric, labels)) WITHOUT ROWID;
CREATE TABLE positions (source TEXT PRIMARY KEY, position TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE notes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, wall_us INTEGER NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL
);
"""
_TABLES = {"meta", "entries", "totals", "positions", "notes"}
_BUSY_S = 5.0
_SLICE_ROWS = 500
_SLICE_PAGES = 256
_KEPT_ASIDE = 3
_WAL_BYTES = 8 << 20


class Unusable(Exception):
    """The file is torn, is not a history, or a newer xidwatch wrote it; says which."""


class Row(NamedTuple):
    """What the file keeps of one entry. `identity` None: only the position moves. `item` None: the details were dropped."""

    identity: str | None
    wall_us: int | None
    boot_id: str | None
    kind: str | None
    code: int | None
    gpu: str | None
    source: str | None
    item: str | None
    position: str | None
    totals: tuple[TotalKey, ...]


class Note(NamedTuple):
    """An operator's act.

    Attributes:
        id: Ascending; never used twice.
        wall_us: When it was done, microseconds since 1970.
        kind: `incident_close`, `maintenance_start` or `maintenance_end`.
        data: What the act says, by name: an incident's id and the reason, until when.
    """

    id: int
    wall_us: int
    kind: str
    data: dict[str, Any]


@dataclass(slots=True)
class Stored:
    """What is known to be on the disk."""

    totals: dict[TotalKey, float] = field(default_factory=dict)
    positions: dict[str, str] = field(default_factory=dict)


def open_file(
    path: Path, now_us: int, *, torn: str | None = None, thorough: bool = False
) -> tuple[sqlite3.Connection, str | None]:
    """Open the history for writing, begin it where there is none, set it aside where it cannot be used.

    Args:
        torn: Why the file is already known to be unusable.
        thorough: Check every page (a second or so for the largest file). A file of no bytes then counts as torn; otherwise it
            is what a full disk left of an attempt to begin one.

    Returns:
        The connection, and a sentence for the operator if a file was set aside.

    Raises:
        OSError, sqlite3.Error: it cannot be opened for writing now; it may later.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if torn is None:
        try:
            if thorough and path.exists() and not path.stat().st_size:
                raise Unusable("it is empty")
            return _connect(path, thorough=thorough), None
        except Unusable as found:
            torn = str(found)
    aside = _set_aside(path, now_us)
    said = f"the history {path} cannot be used ({torn}); kept as {aside.name}, and a new one was begun"
    return _connect(path, thorough=False), said


def _connect(path: Path, *, thorough: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
    connection.text_factory = lossy_text
    try:
        new = not _tables(connection)
        if not new:
            # First of all: what is not ours or is torn stays as it was found.
            _check(connection, thorough=thorough)
        else:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA secure_delete=OFF")
        # Pages that do not fit stand in the system's own cache; a storm is no slower for it.
        connection.execute("PRAGMA cache_size=-256")
        connection.execute(f"PRAGMA journal_size_limit={_WAL_BYTES}")
        # Also finds out now, and not at the first entry, that nothing can be written.
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            if new:
                _make_tables(connection)
    except (Unusable, sqlite3.Error) as error:
        connection.close()
        if is_torn(error):
            raise Unusable(str(error)) from error
        raise
    return connection


def _check(connection: sqlite3.Connection, *, thorough: bool) -> None:
    examine(connection)
    load(connection)
    if thorough:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise Unusable(" ".join(verdict.split()))


def _make_tables(connection: sqlite3.Connection) -> None:
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)
    connection.execute("INSERT INTO meta VALUES ('version', ?)", (VERSION,))


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def lossy_text(stored: bytes) -> str:
    """Text of a column; bytes that are none (a damaged page) become U+FFFD, so that one bad row does not end a reading."""
    return stored.decode("utf-8", "replace")


def is_torn(error: Exception) -> bool:
    """Whether an error of SQLite says that the file itself is damaged, not that the disk is full, locked or read-only.

    SQLITE_CORRUPT and SQLITE_NOTADB are raised as DatabaseError itself (CPython, Modules/_sqlite/util.c);
    `sqlite_errorcode` is only there from Python 3.11 on.
    """
    return type(error) is sqlite3.DatabaseError


def examine(connection: sqlite3.Connection) -> None:
    """Check that this version of xidwatch can use the file.

    Raises:
        Unusable: it cannot.
        sqlite3.Error: it cannot be read.
    """
    there = _tables(connection)
    if "meta" not in there:
        raise Unusable("it is not a history of xidwatch")
    row = connection.execute("SELECT value FROM meta WHERE name = 'version'").fetchone()
    if row is None or not isinstance(row[0], int):
        raise Unusable("it does not say its version")
    if row[0] > VERSION:
        raise Unusable(f"a newer xidwatch wrote it: version {row[0]}, this one knows {VERSION}")
    if missing := _TABLES - there:
        raise Unusable(f"it lacks the table {min(missing)}")


def _set_aside(path: Path, now_us: int) -> Path:
    """Rename the file and its log; returns the new path. The three latest of such files are kept."""
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=now_us)
    stem = f"{path.name}.broken-{moment:%Y%m%dT%H%M%SZ}"
    aside, again = path.with_name(stem), 0
    while aside.exists():
        again += 1
        aside = path.with_name(f"{stem}-{again}")
    path.rename(aside)
    with suppress(FileNotFoundError):
        path.with_name(path.name + "-wal").rename(aside.with_name(aside.name + "-wal"))
    path.with_name(path.name + "-shm").unlink(missing_ok=True)
    older = sorted(one for one in path.parent.glob(f"{path.name}.broken-*") if not one.name.endswith(("-wal", "-shm")))
    for one in older[:-_KEPT_ASIDE]:
        for part in (one, one.with_name(one.name + "-wal"), one.with_name(one.name + "-shm")):
            part.unlink(missing_ok=True)
    return aside


def load(connection: sqlite3.Connection) -> Stored:
    """Totals and positions as the file has them.

    Raises:
        Unusable: a total in it is none.
        sqlite3.Error: it cannot be read.
    """
    totals: dict[TotalKey, float] = {}
    try:
        for metric, labels, value in connection.execute("SELECT metric, labels, value FROM totals"):
            totals[metric, tuple((str(name), str(label)) for name, label in json.loads(labels))] = float(value)
    except (ValueError, TypeError) as error:
        raise Unusable(f"a total in it cannot be read: {error}") from error
    return Stored(totals, dict(connection.execute("SELECT source, position FROM positions")))


def latest_identities(connection: sqlite3.Connection, most: int) -> list[str]:
    """Identities of the last entries, oldest first."""
    found = connection.execute("SELECT identity FROM entries ORDER BY id DESC LIMIT ?", (most,))
    return [identity for (identity,) in found][::-1]


def write(
    connection: sqlite3.Connection, rows: Iterable[Row], raised: Counter[TotalKey], before: Stored, now_us: int
) -> Stored:
    """Entries, the totals they raise and the positions behind them, in one transaction.

    A total is written as its absolute value: what was `before`, plus what the rows that were really new raise, plus `raised`.

    Returns:
        What is on the disk now.

    Raises:
        sqlite3.Error: nothing was written, or all of it and its end was not heard: `load` before writing again.
    """
    raised, positions = Counter(raised), dict(before.positions)
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        for row in rows:
            if row.identity is not None and _insert(connection, row, now_us):
                raised.update(row.totals)
            if row.source is not None and row.position is not None:
                positions[row.source] = row.position
        after = Stored(before.totals | {key: before.totals.get(key, 0.0) + by for key, by in raised.items()}, positions)
        put(connection, Stored({key: after.totals[key] for key in raised}, dict(positions.items() - before.positions.items())))
    return after


def _insert(connection: sqlite3.Connection, row: Row, now_us: int) -> bool:
    """True when no entry of this identity was there."""
    cursor = connection.execute(
        "INSERT OR IGNORE INTO entries (identity, stored_us, wall_us, boot_id, kind, code, gpu, source, item)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (row.identity, now_us, row.wall_us, row.boot_id, row.kind, row.code, row.gpu, row.source, row.item),
    )
    return cursor.rowcount == 1


def put(connection: sqlite3.Connection, what: Stored) -> None:
    """Write totals and positions over those in the file, within the transaction that is open."""
    connection.executemany(
        "INSERT OR REPLACE INTO totals VALUES (?, ?, ?)",
        [(metric, json.dumps(labels), value) for (metric, labels), value in what.totals.items()],
    )
    connection.executemany("INSERT OR REPLACE INTO positions VALUES (?, ?)", list(what.positions.items()))


def notes_after(connection: sqlite3.Connection, last_id: int) -> list[Note]:
    """Notes with a higher id, in order; one whose text is no JSON object (nothing of ours writes such) is passed over."""
    found = connection.execute(
        "SELECT id, wall_us, kind, data FROM notes"
        " WHERE id > ? AND iif(json_valid(data), json_type(data) = 'object', 0) ORDER BY id",
        (last_id,),
    )
    return [Note(number, wall_us, kind, json.loads(text)) for number, wall_us, kind, text in found]


def changes_of_others(connection: sqlite3.Connection) -> int:
    """Another number whenever another connection has written something."""
    return _pragma(connection, "data_version")


def delete_oldest_over(connection: sqlite3.Connection, size_bytes: int) -> int:
    """Bring the file nearer to a size by one small slice; returns the rows or pages given up, 0 when it is small enough."""
    page_bytes, pages, free = (_pragma(connection, name) for name in ("page_size", "page_count", "freelist_count"))
    if (pages - free) * page_bytes > size_bytes:
        oldest = "DELETE FROM entries WHERE id IN (SELECT id FROM entries ORDER BY id LIMIT ?)"
        return connection.execute(oldest, (_SLICE_ROWS,)).rowcount
    if pages * page_bytes > size_bytes and free:
        # Not execute(): it takes one step of a statement without columns, and each step gives back one page (CPython 3.11).
        connection.executescript(f"PRAGMA incremental_vacuum({_SLICE_PAGES})")
        return pages - _pragma(connection, "page_count")
    return 0


def delete_before(connection: sqlite3.Connection, cutoff_us: int) -> int:
    """Delete one slice of what was stored before a moment; returns how many entries.

    The newest note of each kind stays: it says whether maintenance is on.
    """
    connection.execute(
        "DELETE FROM notes WHERE wall_us < ? AND id NOT IN (SELECT max(id) FROM notes GROUP BY kind)", (cutoff_us,)
    )
    oldest = "SELECT id, stored_us FROM entries ORDER BY id LIMIT ?"
    return connection.execute(
        f"DELETE FROM entries WHERE id IN (SELECT id FROM ({oldest}) WHERE stored_us < ?)", (_SLICE_ROWS, cutoff_us)
    ).rowcount


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
