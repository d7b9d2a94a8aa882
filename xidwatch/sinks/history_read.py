"""The history as other processes use it: read while the daemon writes, and noted in by an operator."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from xidwatch.core.codec import decode
from xidwatch.core.event import Context, Event
from xidwatch.core.pci import parse_pci
from xidwatch.errors import XidwatchError
from xidwatch.sinks.history_file import Note, Unusable, examine, lossy_text, notes_after

_BUSY_S = 5.0
_SLICE_ROWS = 1000
_COLUMNS = "id, identity, stored_us, wall_us, boot_id, kind, code, gpu, source, item"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry:
    """One entry of the history.

    Attributes:
        id: Ascending in the order of storing.
        identity: The same for one kernel line from any source.
        stored_us: When it was stored, microseconds since 1970.
        wall_us: When the line says it happened; None when it does not.
        kind, code, gpu: Of the event; `gpu` as the metric label has it. `kind` of a context line is its own.
        source: Who brought it first.
        item: The event or context; None when its details were dropped (the disk did not keep up) or cannot be read any more.
        damaged: Its details are there and cannot be read.
    """

    id: int
    identity: str
    stored_us: int
    wall_us: int | None
    boot_id: str | None
    kind: str | None
    code: int | None
    gpu: str | None
    source: str
    item: Event | Context | None
    damaged: bool = False


def read_history(path: Path, since_us: int | None = None, gpu: str | None = None) -> Iterator[StoredEntry]:
    """Entries in the order they were stored, read without disturbing a daemon that writes.

    Args:
        since_us: Only what happened (or, where the line has no time, was stored) from then on; microseconds since 1970.
        gpu: Only this GPU: a PCI address in any spelling, its end (`4e:00`), or `GPU-<uuid>` where the line itself names it.

    Raises:
        XidwatchError: there is no history, or it cannot be read.
    """
    with _told(path), opened_for_reading(path) as connection:
        last_id = 0
        # By slices: one long read would keep the daemon's log file from being emptied.
        while rows := _rows_after(connection, last_id, since_us):
            for row in rows:
                entry = stored_entry(row)
                if gpu is None or _is_of(entry, gpu):
                    yield entry
            last_id = rows[-1][0]


def read_notes(path: Path, since_us: int | None = None) -> list[Note]:
    """An operator's acts, in order.

    Raises:
        XidwatchError: there is no history, or it cannot be read.
    """
    with _told(path), opened_for_reading(path) as connection:
        return [note for note in notes_after(connection, 0) if since_us is None or note.wall_us >= since_us]


def add_note(path: Path, kind: str, data: dict[str, Any]) -> Note:
    """Write down an operator's act; a running daemon sees it within about a second.

    Raises:
        XidwatchError: there is no history, or it cannot be written.
    """
    wall_us = time.time_ns() // 1000
    with _told(path):
        path.stat()
    with _told(path), closing(sqlite3.connect(_uri(path, "rw"), uri=True, timeout=_BUSY_S, isolation_level=None)) as connection:
        examine(connection)
        connection.execute("PRAGMA synchronous=FULL")
        written = connection.execute(
            "INSERT INTO notes (wall_us, kind, data) VALUES (?, ?, ?)", (wall_us, kind, json.dumps(data))
        )
        return Note(written.lastrowid or 0, wall_us, kind, data)


def latest_entries(connection: sqlite3.Connection, limit: int) -> Iterator[StoredEntry]:
    """The last entries that came from a log, oldest first; one at a time, since all of them together would fill the memory."""
    told = "source IS NOT NULL AND item IS NOT NULL"
    oldest = f"SELECT id FROM entries WHERE {told} ORDER BY id DESC LIMIT 1 OFFSET ?"
    found = connection.execute(
        f"SELECT {_COLUMNS} FROM entries WHERE {told} AND id >= coalesce(({oldest}), 0) ORDER BY id", (limit - 1,)
    )
    return map(stored_entry, found)


def stored_entry(row: tuple[Any, ...]) -> StoredEntry:
    """A row of the table as a value; a damaged one too."""
    item, damaged = None, False
    if row[-1] is not None:
        try:
            item = decode(json.loads(row[-1]))
        except (ValueError, TypeError, KeyError, AttributeError):
            damaged = True
    names = _COLUMNS.split(", ")[:-1]
    return StoredEntry(**dict(zip(names, row[:-1], strict=True)), item=item, damaged=damaged)


@contextmanager
def opened_for_reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that changes nothing, also where nothing can be changed (a dead node's disk mounted read-only).

    Raises:
        Unusable: this version cannot read the file.
        OSError, sqlite3.Error: it cannot be read.
    """
    with ExitStack() as stack:
        yield _reader(path, stack)


def _reader(path: Path, stack: ExitStack) -> sqlite3.Connection:
    path.stat()
    try:
        return _examined(_uri(path, "ro"), stack)
    except sqlite3.OperationalError:
        if os.access(path.parent, os.W_OK):
            raise
    # A WAL database wants its index file, and none can be made in a folder that is read-only.
    log = path.with_name(path.name + "-wal")
    if not log.exists() or not log.stat().st_size:
        return _examined(_uri(path, "ro") + "&immutable=1", stack)
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    for part in (path, log):
        shutil.copyfile(part, Path(folder, part.name))
    return _examined(_uri(Path(folder, path.name), "rw"), stack)


def _examined(uri: str, stack: ExitStack) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_S, isolation_level=None)
    stack.callback(connection.close)
    connection.text_factory = lossy_text
    examine(connection)
    return connection


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path.absolute()))}?mode={mode}"


def _rows_after(connection: sqlite3.Connection, last_id: int, since_us: int | None) -> list[tuple[Any, ...]]:
    chosen = "source IS NOT NULL AND id > :last AND (:since IS NULL OR coalesce(wall_us, stored_us) >= :since)"
    return connection.execute(
        f"SELECT {_COLUMNS} FROM entries WHERE {chosen} ORDER BY id LIMIT :most",
        {"last": last_id, "since": since_us, "most": _SLICE_ROWS},
    ).fetchall()


def _is_of(entry: StoredEntry, gpu: str) -> bool:
    asked = gpu.lower()
    if asked.startswith("gpu-"):
        return isinstance(entry.item, Event) and (entry.item.gpu_uuid or "").lower() == asked
    if entry.gpu is None:
        return False
    if (address := parse_pci(gpu)) is not None and asked.count(":") > 1:
        return entry.gpu == str(address)
    return entry.gpu.removesuffix(".0").endswith(asked.removesuffix(".0"))


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Errors of the disk as sentences for the person at the command line."""
    try:
        yield
    except FileNotFoundError:
        raise XidwatchError(f"{path}: no history there; start the service, or name its folder with --state-dir") from None
    except PermissionError:
        raise XidwatchError(f"{path}: not allowed to read it; run as root or as the service's user") from None
    except (OSError, sqlite3.Error, Unusable) as error:
        raise XidwatchError(f"{path}: {error}") from None
