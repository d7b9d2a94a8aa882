"""Which entries a journal's files hold by journald's own count, to see when some went away before they were read.

Once a file is removed a reader drops what it has not read of it, without a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from xidwatch.core.pattern import lazy

_SIGNATURE = b"LPKSHHRH"
_HEADER_BYTES = 184
_CURSOR = lazy(r"s=([0-9a-f]{32});i=([0-9a-f]{1,16});")


@dataclass(frozen=True, slots=True)
class Span:
    """The entries of one file: from number `first` to `last` of the count `count_id`, which other files may share."""

    count_id: str
    first: int
    last: int


def read_span(path: Path) -> Span | None:
    """What one file holds; None when it is empty, or no journal file.

    Source: systemd, docs/JOURNAL_FILE_FORMAT.md, Header: seqnum_id, n_entries, tail_entry_seqnum, head_entry_seqnum.
    """
    try:
        with path.open("rb", buffering=0) as file:
            header = file.read(_HEADER_BYTES)
    except OSError:
        return None
    if len(header) < _HEADER_BYTES or not header.startswith(_SIGNATURE):
        return None
    entries, last, first = (int.from_bytes(header[at : at + 8], "little") for at in (152, 160, 168))
    return Span(header[72:88].hex(), first, last) if entries else None


def cursor_span(cursor: str) -> Span | None:
    """The one entry that a cursor names."""
    found = _CURSOR.match(cursor)
    return Span(found[1], int(found[2], 16), int(found[2], 16)) if found else None


class Progress:
    """How far a journal has been read, by its files' counts."""

    def __init__(self) -> None:
        self._read_to: dict[str, int] = {}
        self._ahead: tuple[Span, ...] = ()

    def begin(self, files: Sequence[Path]) -> None:
        """Reading begins: what the files hold now will have been read when `all_read` is called."""
        self._ahead = tuple(span for file in files if (span := read_span(file)) is not None)

    def all_read(self) -> None:
        """Reading has come to the end."""
        for span in self._ahead:
            self._advance(span)

    def took(self, cursor: str) -> None:
        """An entry was read."""
        if (span := cursor_span(cursor)) is not None:
            self._advance(span)

    def skipped(self, files: Iterable[Path]) -> bool:
        """Whether entries between what was read and what the files still hold are gone; each gap is told once."""
        spans = sorted((span for file in files if (span := read_span(file)) is not None), key=lambda span: span.first)
        found = False
        for count_id, read_to in list(self._read_to.items()):
            covered = read_to
            for span in spans:
                if span.count_id == count_id and span.last > covered:
                    if span.first > covered + 1:
                        found = True
                        self._read_to[count_id] = span.first - 1
                    covered = span.last
        return found

    def _advance(self, span: Span) -> None:
        self._read_to[span.count_id] = max(self._read_to.get(span.count_id, 0), span.last)
