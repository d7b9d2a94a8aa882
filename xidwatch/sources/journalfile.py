"""Journal files that lie somewhere, read once: the entries worth reading, in the order in which they were written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from xidwatch.errors import XidwatchError
from xidwatch.sources.journalread import Entry, open_reader
from xidwatch.sources.literals import Hits
from xidwatch.sources.scan import FIRST_LINES

SUFFIXES = (".journal", ".journal~")
_MOST_BROKEN = 100
_AT_ONCE = 256


class JournalFiles:
    """The entries of some files as one journal. An entry costs a tenth when nobody has to look at it whole.

    Attributes:
        entries: How many were there, complete at the end.
        notes: What could not be read, and why.
    """

    def __init__(self, paths: Sequence[str], hits: Hits, after: int) -> None:
        """Args: `hits` tells where a message has words of ours; the `after` entries behind such a one are wanted too."""
        self.entries = 0
        self.notes: list[str] = []
        self._hits = hits
        self._after = after
        self._reader = self._opened(paths)

    def __iter__(self) -> Iterator[tuple[int, Entry]]:
        """(number from 1, entry) of the first twenty entries, those with words of ours, those behind them, and the last."""
        if self._reader is None:
            return
        with self._reader:
            wanted, near, given = FIRST_LINES, 0, 0
            while True:
                near = near or (0 if wanted else self._pass_over())
                if not self._step():
                    break
                self.entries += 1
                near = max(0, near - 1)
                wanted = self._after + 1 if self._hits(self._words()) else wanted
                if wanted and (entry := self._whole()):
                    yield self.entries, entry
                    given = self.entries
                wanted = max(0, wanted - 1)
            if self.entries > max(FIRST_LINES, given):
                yield from self._last()

    def _pass_over(self) -> int:
        """Go on to where some of the next entries have words of ours; how many have to be looked at one by one.

        A search in the text of many costs little more than in that of one.
        """
        while True:
            cursor: str | None = None
            texts: list[bytes] = []
            while len(texts) < _AT_ONCE and self._step():
                cursor = cursor or self._reader._get_cursor()
                texts.append(self._words())
            if texts and self._hits(b"\n".join(texts)):
                self._reader.seek_cursor(cursor)
                return len(texts)
            self.entries += len(texts)
            if len(texts) < _AT_ONCE:
                return 0

    def _opened(self, paths: Sequence[str]) -> Any:
        """A reader of all files that can be opened; None when none can."""
        try:
            return open_reader(files=paths)
        except OSError as reason:
            if len(paths) == 1:
                self._damaged(paths[0], reason)
                return None
        sound = []
        for path in paths:
            try:
                open_reader(files=[path]).close()
                sound.append(path)
            except OSError as reason:
                self._damaged(path, reason)
        return open_reader(files=sound) if sound else None

    def _damaged(self, path: str, reason: OSError) -> None:
        self.notes.append(f"{path}: journal file is damaged or of another kind ({reason.strerror or reason})")

    def _step(self) -> bool:
        """Go to the next entry; False at the end."""
        for _ in range(_MOST_BROKEN):
            try:
                return bool(self._reader._next())
            except OSError as reason:
                self._broken(reason)
        return False

    def _words(self) -> bytes:
        """Identifier and message: journald moves the first word of a line that user space wrote into the identifier."""
        words = []
        for name in ("SYSLOG_IDENTIFIER", "MESSAGE"):
            try:
                words.append(self._reader._get(name))
            except (KeyError, OSError):
                continue
        return b": ".join(words)

    def _whole(self) -> Entry | None:
        try:
            fields: Entry = self._reader._get_all()
            fields["__REALTIME_TIMESTAMP"] = self._reader._get_realtime()
            fields["__MONOTONIC_TIMESTAMP"] = self._reader._get_monotonic()[0]
        except OSError as reason:
            self._broken(reason)
            return None
        return fields

    def _last(self) -> Iterator[tuple[int, Entry]]:
        with contextlib.suppress(OSError):
            self._reader.seek_tail()
            if self._reader._previous() and (entry := self._whole()):
                yield self.entries, entry

    def _broken(self, reason: OSError) -> None:
        text = f"some entries could not be read ({reason.strerror or reason}); the others were"
        if text not in self.notes:
            self.notes.append(text)


def need_journal_extra(path: str) -> None:
    """See that journal files can be read.

    Raises:
        XidwatchError: they cannot; the text names two ways.
    """
    try:
        import systemd.journal  # noqa: F401 - whether it is there decides
    except ImportError:
        raise XidwatchError(
            f"{path}: a binary journal file needs the journal extra (pip install 'xidwatch[journal]'); "
            f"or pipe it: journalctl --file {path} -o json | xidwatch explain -"
        ) from None
