"""Find the lines worth reading in a big log: those with one of our words in them, and their neighbours."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from xidwatch.core.parse import NOTHING, Further
from xidwatch.core.pattern import lazy
from xidwatch.sources.blocks import (
    BEFORE,
    CHUNK_BYTES,
    LINE_BYTES,
    Block,
    chunked,
    has_long_line,
    searched,
    searched_alone,
    whole_lines,
)
from xidwatch.sources.literals import Hits, count_lines, find_hits, line_searches, together

SMALL_BYTES = 1 << 16
"""An input below this is yielded whole."""
FIRST_LINES = 20
LAST_LINES = 150
_NEWLINE = ord(b"\n")
_DATE_BYTES = len("Jan 31")
_WORDS_BYTES = 1 << 16

_STANDS_ALONE = lazy(
    rb"(?:<\d+>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d |\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|\[ {0,11}\d+\.\d{6}\] )"
    rb"(?!.*(?: std(?:out|err) |\{|Linux version | 0\.0))(?:[^\[\n]{0,99}(?:\[\d+\])?: ?(\[ {0,11}\d+\.\d{6}\]))?"
)
"""A line with a time of its own, no boot's first one, and not one that a container's runtime may have cut. Where the group
matches it has a second time, since boot, by which a boot shows when the line before is known."""

NumberedLine = tuple[int, bytes]
Ask = Callable[[], Further]
"""Asked when a line has been dealt with: which of the lines behind it are wanted."""


def scan_lines(
    chunks: Iterable[bytes], literals: Sequence[str], after: int | Ask, *, sampled: bool = False
) -> Iterator[NumberedLine]:
    """(number from 1, line without its newline) of every line worth reading, in order, each once.

    Worth reading: a line with a literal (case matters), the two before it (fewer where it has a time of its own), the first
    twenty and the last lines of the input, and as many behind those as `after` says; a number counts from the latest line
    with a literal.
    `sampled` adds the first line of a chunk that begins with another date. An input below SMALL_BYTES is yielded whole,
    without loading the scanner.
    """
    feed = iter(chunks)
    head: list[bytes] = []
    size = 0
    for chunk in feed:
        head.append(chunk)
        size += len(chunk)
        if size >= CHUNK_BYTES:
            break
    if size < SMALL_BYTES:
        yield from every_line(head)
        return
    searches = line_searches(tuple(literals))
    blocks = whole_lines(chunked(head, feed))
    found = searched(blocks, searches) if size >= CHUNK_BYTES else searched_alone(blocks, searches)
    yield from _Scanner(together(searches), after, sampled=sampled).read(found)


def scan_blocks(
    blocks: Iterable[Block], literals: Sequence[str], after: int | Ask, *, sampled: bool = False
) -> Iterator[NumberedLine]:
    """The same of a log that has been searched for these literals."""
    yield from _Scanner(together(line_searches(tuple(literals))), after, sampled=sampled).read(blocks)


def every_line(chunks: Iterable[bytes]) -> Iterator[NumberedLine]:
    """All lines and pieces of lines."""
    lines = _Lines()
    for block in whole_lines(chunked(chunks)):
        yield from lines.all(block.bytes, block.start, block.stop)


# --- lines ---


class _Lines:
    """Cuts blocks into numbered lines and pieces of lines; a block that ends inside a line ends with a whole piece."""

    def __init__(self) -> None:
        self.number = 1
        self.inside = False

    def all(self, block: bytes, at: int, stop: int) -> Iterator[NumberedLine]:
        """Every line and piece of a block."""
        while at < stop:
            end = block.find(b"\n", at, min(stop, at + LINE_BYTES + 1))
            if end < 0:
                piece = block[at : min(stop, at + LINE_BYTES)]
                yield self.number, piece
                self.inside = True
                at += LINE_BYTES
                continue
            if end > at or not self.inside:
                yield self.number, block[at:end]
            self.number += 1
            self.inside = False
            at = end + 1


class _Scanner:
    """The state of one scan."""

    def __init__(self, hits: Hits, after: int | Ask, *, sampled: bool) -> None:
        self._hits = hits
        self._ask = after if callable(after) else None
        self._after = 0 if callable(after) else after
        self._sampled = sampled
        self._sample = b""
        self._left = FIRST_LINES
        self._among = 0
        self._words: tuple[str, ...] = ()
        self._word_hits: dict[tuple[str, ...], Hits] = {}
        self._found: deque[int] = deque()
        self._searched: tuple[int, int, tuple[str, ...]] = (0, 0, ())
        self._lines = _Lines()
        self._passed: deque[tuple[int, bytes, int, int]] = deque(maxlen=LAST_LINES)
        """(number of the line behind, block, start, stop), one behind the other."""

    def read(self, blocks: Iterable[Block]) -> Iterator[NumberedLine]:
        """The lines worth reading of blocks that have been searched."""
        for block in blocks:
            if not block.bytes:
                self._skip(block.lines)
            elif self._lines.inside or has_long_line(block):
                yield from self._pieces(block)
            else:
                yield from self._block(block)
        yield from self._last(LAST_LINES)

    def _skip(self, lines: int) -> None:
        """Lines that are not there."""
        self._lines.number += lines
        self._left, self._among = max(0, self._left - lines), max(0, self._among - lines)
        self._passed.clear()

    def _block(self, block: Block) -> Iterator[NumberedLine]:
        """Lines that nobody asked for are counted, not cut."""
        text, at, stop, _, lines, opens = block
        first = self._lines.number
        hits = [*block.hits, stop]
        upcoming, ask = 0, self._ask
        self._searched = (0, 0, ())
        if self._sampled and opens and text[at : at + _DATE_BYTES] != self._sample:
            self._sample = text[at : at + _DATE_BYTES]
            self._left = max(self._left, 1)
        while at < stop:
            while hits[upcoming] < at:
                upcoming += 1
            hit = hits[upcoming]
            if not self._left:
                start, before = self._leap(text, at, min(hit, stop), stop)
                if start < 0:
                    break
                at = start
                yield from before
            end = text.find(b"\n", at, stop)
            end = stop if end < 0 else end
            left = self._left - 1 if self._left else 0
            self._left = self._after if hit < end and self._after > left else left
            self._passed.clear()
            yield self._lines.number, text[at:end]
            if ask is not None:
                self._heed(ask())
            self._lines.number += 1
            at = end + 1
        if at < stop:
            if self._among:
                self._among = max(0, self._among - count_lines(text, at, min(stop, at + _WORDS_BYTES)))
            self._pass(text, at, stop, lines - (self._lines.number - first))

    def _leap(self, text: bytes, at: int, hit: int, stop: int) -> tuple[int, list[NumberedLine]]:
        """(where the next line begins that is wanted, -1 for none before `stop`; those before it that are wanted with it)."""
        start = hit if hit in (at, stop) else text.rfind(b"\n", at, hit) + 1 or at
        word = self._next_word(text, at, start) if self._among and start > at else None
        if word is not None:
            self._pass(text, at, word)
            return word, []
        if start == stop:
            return -1, []
        if start > at:
            self._pass(text, at, start)
        if not self._passed:
            return start, []
        alone = _STANDS_ALONE.match(text, start, start + LINE_BYTES)
        return start, self._last(BEFORE if alone is None else alone.lastindex or 0)

    def _heed(self, further: Further) -> None:
        if further is NOTHING:
            self._among = 0
            return
        if further.whole > self._left:  # noqa: PLR1730 - a million times a storm: `max` takes four times as long
            self._left = further.whole
        self._among, self._words = further.among, further.words

    def _next_word(self, text: bytes, at: int, stop: int) -> int | None:
        """The next line before `stop`, among those that are wanted for their words, that has one."""
        end = at
        for _ in range(self._among):
            end = text.find(b"\n", end, stop) + 1
            if not end:
                end = stop
                break
        start, searched, words = self._searched
        if words is not self._words or not start <= at or searched < end:
            searched = max(end, min(len(text), at + _WORDS_BYTES))
            self._found = deque(at + hit for hit in self._hits_of(self._words)(text[at:searched]))
            self._searched = (at, searched, self._words)
        while self._found and self._found[0] < at:
            self._found.popleft()
        if not self._found or self._found[0] >= end:
            return None
        return text.rfind(b"\n", at, self._found[0]) + 1 or at

    def _hits_of(self, words: tuple[str, ...]) -> Hits:
        if words not in self._word_hits:
            self._word_hits[words] = find_hits(words)
        return self._word_hits[words]

    def _pass(self, text: bytes, start: int, stop: int, lines: int | None = None) -> None:
        """Count lines that nobody asked for; they may be looked at once more as the last before a hit or the end."""
        while self._passed and self._lines.number - self._passed[0][0] >= LAST_LINES:
            self._passed.popleft()
        self._lines.number += count_lines(text, start, stop) if lines is None else lines
        self._passed.append((self._lines.number, text, start, stop))

    def _last(self, most: int) -> list[NumberedLine]:
        """The last of the lines passed since the latest one that was given out."""
        lines: list[NumberedLine] = []
        while self._passed and len(lines) < most:
            number, text, start, stop = self._passed.pop()
            while stop > start and len(lines) < most:
                ended = text[stop - 1] == _NEWLINE
                begin = text.rfind(b"\n", start, stop - 1) + 1 or start
                number -= ended
                lines.append((number, text[begin : stop - ended]))
                stop = begin
        self._passed.clear()
        return lines[::-1]

    def _pieces(self, block: Block) -> Iterator[NumberedLine]:
        """Line by line, for blocks with very long lines."""
        for number, piece in self._lines.all(block.bytes, block.start, block.stop):
            hit = bool(self._hits(piece))
            if hit:
                yield from self._last(BEFORE)
                self._left = max(self._left, self._after + 1)
            elif self._among:
                self._among -= 1
                hit = bool(self._hits_of(self._words)(piece))
            if self._left or hit:
                self._left = max(0, self._left - 1)
                self._passed.clear()
                yield number, piece
                if self._ask is not None:
                    self._heed(self._ask())
            else:
                self._passed.append((number + 1, piece + b"\n", 0, len(piece) + 1))
