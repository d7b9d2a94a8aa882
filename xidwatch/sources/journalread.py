"""Journal files opened and asked, live or from elsewhere. The only module that imports python-systemd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from xidwatch.errors import XidwatchError
from xidwatch.sources.journalspan import cursor_span

ROOTS = ("/var/log/journal", "/run/log/journal")
"""Where journald keeps its files: those that outlive a boot, and those that do not."""
MISSED_ID = "e9bf28e6e834481bb6f48f548ad13606"
"""journald's own word that it missed kernel messages. Source: systemd, sd-messages.h, SD_MESSAGE_JOURNAL_MISSED."""
NOTHING, INVALIDATED = 0, 2
"""What `Reader.process` answers. Source: systemd, sd-journal.h, SD_JOURNAL_NOP and SD_JOURNAL_INVALIDATE."""
_LARGEST_FIELD = 1 << 20

Entry = dict[str, Any]


def open_reader(directory: str | None = None, files: Sequence[str] | None = None) -> Any:
    """A journal.Reader of this machine's journal, of a folder of journal files, or of single files.

    Raises:
        XidwatchError: python-systemd is not installed; the text names the way.
        OSError: it cannot be opened.
    """
    try:
        from systemd import journal
    except ImportError:
        raise XidwatchError(
            "the systemd journal needs the journal extra: pip install 'xidwatch[journal]' "
            "(libsystemd-dev, pkg-config and gcc must be there)"
        ) from None
    if files is not None:
        reader = journal.Reader(files=list(files))
    else:
        reader = journal.Reader(path=directory) if directory is not None else journal.Reader()
    reader.data_threshold = _LARGEST_FIELD
    return reader


def journal_files(directory: str | None = None) -> list[Path]:
    """The journal files of a folder and its folders, or of this machine."""
    roots = [Path(directory)] if directory is not None else [Path(root) for root in ROOTS]
    return sorted(
        file
        for root in roots
        for pattern in ("*.journal", "*/*.journal", "*.journal~", "*/*.journal~")
        for file in root.glob(pattern)
    )


@dataclass(frozen=True, slots=True)
class Boot:
    """One boot that a journal has entries of.

    Attributes:
        boot_id: 32 hex digits.
        cursor: Of its first entry.
        first: When that was written.
    """

    boot_id: str
    cursor: str
    first: datetime


def journal_boots(directory: str | None = None) -> tuple[Boot, ...]:
    """The boots that a journal knows, oldest first. Same as: journalctl --list-boots.

    Raises:
        XidwatchError: python-systemd is not installed.
        OSError: the journal cannot be read.
    """
    with open_reader(directory) as reader:
        boots = [boot for found in reader.query_unique("_BOOT_ID") if (boot := _boot(reader, _hex(found))) is not None]
    spans = [cursor_span(boot.cursor) for boot in boots]
    if len({span.count_id if span else "" for span in spans}) == 1:  # one count for all: better than a clock that may be set
        order = {boot.boot_id: span.first if span else 0 for boot, span in zip(boots, spans, strict=True)}
        return tuple(sorted(boots, key=lambda boot: order[boot.boot_id]))
    return tuple(sorted(boots, key=lambda boot: boot.first))


def boot_entries(boot_id: str, directory: str | None = None) -> Iterator[Entry]:
    """All entries of one boot, oldest first."""
    with open_reader(directory) as reader:
        reader.add_match(_BOOT_ID=boot_id)
        reader.seek_head()
        yield from reader


def last_entries(boot_id: str, most: int, directory: str | None = None) -> list[Entry]:
    """The last entries of one boot, newest first."""
    entries: list[Entry] = []
    with open_reader(directory) as reader:
        reader.add_match(_BOOT_ID=boot_id)
        reader.seek_tail()
        while len(entries) < most and (entry := reader.get_previous()):
            entries.append(entry)
    return entries


def _boot(reader: Any, boot_id: str) -> Boot | None:
    reader.flush_matches()
    reader.add_match(_BOOT_ID=boot_id)
    reader.seek_head()
    entry: Entry = reader.get_next()
    return Boot(boot_id, str(entry["__CURSOR"]), entry["__REALTIME_TIMESTAMP"]) if entry else None


def _hex(boot_id: object) -> str:
    return str(getattr(boot_id, "hex", boot_id))
