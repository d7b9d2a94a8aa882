"""Find the lines worth reading in a big log: those with one of our words in them, and their neighbours."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

CHUNK_BYTES = 1 << 20
LINE_BYTES = 1 << 16
"""A longer line is read as pieces of this length that share its number."""
SMALL_BYTES = 1 << 18
"""An input below this is yielded whole."""
FIRST_LINES = 20
BEFORE = 2
_HALF_LINE = LINE_BYTES // 2
_GROUP = 48

Hits = Callable[[bytes], list[int]]
NumberedLine = tuple[int, bytes]


def scan_lines(chunks: Iterable[bytes], literals: Sequence[str], after: int) -> Iterator[NumberedLine]:
    """(number from 1, line without its newline) of every line worth reading, in order, each once.

    Worth reading: a line with a literal (case matters), the two before it, the `after` lines behind it, and the first
    twenty lines and the last line of the input. An input below SMALL_BYTES is yielded whole, without loading the scanner.
    """
    feed = iter(chunks)
    head: list[bytes] = []
    size = 0
    for chunk in feed:
        head.append(chunk)
        size += len(chunk)
        if size >= SMALL_BYTES:
            break
    else:
        yield from _Lines().all(b"".join(head))
        return
    scanner = _Scanner(find_hits(literals), after)
    yield from scanner.read(head, feed)


def find_hits(literals: Sequence[str]) -> Hits:
    """A function that gives where in a block of bytes the literals stand, ascending, by the fastest library at hand.

    A literal that contains another is left to that one. Beyond 64 patterns aho-corasick drops its vectorised search and
    becomes five times slower, so they are looked for in groups, sorted since patterns that begin alike cost less together.
    """
    patterns = sorted(text.encode() for text in _needed(literals))
    try:
        from ahocorasick_rs import BytesAhoCorasick, MatchKind
    except ImportError:
        return find_hits_slowly(literals)
    groups = [patterns[at : at + _GROUP] for at in range(0, len(patterns), _GROUP)]
    automata = [BytesAhoCorasick(group, matchkind=MatchKind.LeftmostFirst) for group in groups]

    def hits(block: bytes) -> list[int]:
        found = [start for automaton in automata for _, start, _ in automaton.find_matches_as_indexes(block)]
        found.sort()
        return found

    return hits


def find_hits_slowly(literals: Sequence[str]) -> Hits:
    """The same with the standard library alone."""
    pattern = re.compile(b"|".join(re.escape(literal.encode()) for literal in _needed(literals)) or rb"(?!)")

    def hits(block: bytes) -> list[int]:
        return [match.start() for match in pattern.finditer(block)]

    return hits


def _needed(literals: Sequence[str]) -> list[str]:
    distinct = list(dict.fromkeys(literals))
    return [one for one in distinct if not any(other != one and other in one for other in distinct)]


class _Lines:
    """Cuts blocks into numbered lines and pieces of lines; a block that ends inside a line ends with a whole piece."""

    def __init__(self) -> None:
        self.number = 1
        self.inside = False

    def all(self, block: bytes) -> Iterator[NumberedLine]:
        """Every line and piece of a block."""
        at = 0
        while at < len(block):
            end = block.find(b"\n", at, at + LINE_BYTES + 1)
            if end < 0:
                yield self.number, block[at : at + LINE_BYTES]
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

    def __init__(self, hits: Hits, after: int) -> None:
        self._hits = hits
        self._after = after
        self._left = FIRST_LINES
        self._lines = _Lines()
        self._before: deque[NumberedLine] = deque(maxlen=BEFORE)
        self._last: NumberedLine | None = None

    def read(self, head: Iterable[bytes], feed: Iterator[bytes]) -> Iterator[NumberedLine]:
        """The lines worth reading of `head` and then `feed`."""
        rest = b""
        for block in _blocks(head, feed):
            end = block.rfind(b"\n") + 1
            whole = b"".join((rest, memoryview(block)[:end])) if end else b""
            rest = block[end:] if end else rest + block
            if whole:
                yield from self._block(whole)
            if len(rest) > LINE_BYTES:
                pieces = len(rest) // LINE_BYTES * LINE_BYTES
                yield from self._pieces(rest[:pieces])
                rest = rest[pieces:]
        if rest:
            yield from self._pieces(rest)
        if self._last is not None:
            yield self._last

    def _block(self, block: bytes) -> Iterator[NumberedLine]:
        """Whole lines. Lines that nobody asked for are counted, not cut."""
        if self._lines.inside or _has_long_line(block):
            yield from self._pieces(block)
            return
        hits = self._hits(block)
        at = upcoming = 0
        while True:
            if self._left:
                end = block.find(b"\n", at)
                if end < 0:
                    return
                found = False
                while upcoming < len(hits) and hits[upcoming] < end:
                    upcoming += 1
                    found = True
                self._left = max(self._left - 1, self._after if found else 0)
                self._last = None
                yield self._lines.number, block[at:end]
                self._lines.number += 1
                at = end + 1
                continue
            if upcoming == len(hits):
                break
            start = block.rfind(b"\n", 0, hits[upcoming]) + 1
            yield from self._pass(block, at, start)
            at = start
            self._left = 1
        for _ in self._pass(block, at, len(block), keep=True):
            pass

    def _pass(self, block: bytes, at: int, stop: int, *, keep: bool = False) -> Iterator[NumberedLine]:
        """Count the lines from `at` to `stop`; yield the last two of them, or keep them for a hit in the next block."""
        start, found = stop, 0
        while found < BEFORE and start > at:
            start = block.rfind(b"\n", at, start - 1) + 1 or at
            start, found = max(start, at), found + 1
        self._lines.number += block.count(b"\n", at, start)
        near: list[NumberedLine] = []
        while start < stop:
            end = block.find(b"\n", start)
            near.append((self._lines.number, block[start:end]))
            self._lines.number += 1
            start = end + 1
        self._before.extend(near)
        if keep:
            self._last = near[-1] if near else self._last
            return
        yield from self._before
        self._before.clear()

    def _pieces(self, block: bytes) -> Iterator[NumberedLine]:
        """Line by line, for blocks with very long lines."""
        for number, piece in self._lines.all(block):
            if self._hits(piece):
                yield from self._before
                self._before.clear()
                self._left = max(self._left, self._after + 1)
            if self._left:
                self._left -= 1
                self._last = None
                yield number, piece
            else:
                self._before.append((number, piece))
                self._last = (number, piece)


def _blocks(head: Iterable[bytes], feed: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks, none longer than CHUNK_BYTES."""
    for source in (head, feed):
        for chunk in source:
            for at in range(0, len(chunk), CHUNK_BYTES):
                yield chunk if len(chunk) <= CHUNK_BYTES else chunk[at : at + CHUNK_BYTES]


def _has_long_line(block: bytes) -> bool:
    """Whether a line might be longer than LINE_BYTES: some half of one has no newline."""
    return any(block.find(b"\n", at, at + _HALF_LINE) < 0 for at in range(0, len(block) - _HALF_LINE, _HALF_LINE))
