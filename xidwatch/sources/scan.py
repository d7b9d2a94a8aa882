"""Find the lines worth reading in a big log: those with one of our words in them, and their neighbours."""

from __future__ import annotations

import itertools
import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from xidwatch.core.parse import NOTHING, Further
from xidwatch.sources.literals import Hits, count_lines, find_hits, line_searches, together

if TYPE_CHECKING:
    import queue

CHUNK_BYTES = 1 << 20
LINE_BYTES = 1 << 16
"""A longer line is read as pieces of this length that share its number."""
SMALL_BYTES = 1 << 18
"""An input below this is yielded whole."""
FIRST_LINES = 20
LAST_LINES = 150
BEFORE = 2
_HALF_LINE = LINE_BYTES // 2
_NEWLINE = ord(b"\n")
_DATE_BYTES = len("Jan 31")
_WORDS_BYTES = 1 << 16
_MOST_WORKERS = 4
_MOST_AHEAD = 8
"""Blocks that were taken and wait to be dealt with, or are being searched."""
_PATIENCE_S = 0.0005
"""So long a thread that has found something waits for Python's lock: with the usual 5 ms it would idle most of the time."""

NumberedLine = tuple[int, bytes]
Ask = Callable[[], Further]
"""Asked when a line has been dealt with: which of the lines behind it are wanted."""


def scan_lines(
    chunks: Iterable[bytes], literals: Sequence[str], after: int | Ask, *, sampled: bool = False
) -> Iterator[NumberedLine]:
    """(number from 1, line without its newline) of every line worth reading, in order, each once.

    Worth reading: a line with a literal (case matters), the two before it, the first twenty and the last lines of the
    input, and as many behind those as `after` says; a number counts from the latest line with a literal.
    `sampled` adds the first line of a chunk that begins with another date. An input below SMALL_BYTES is yielded whole,
    without loading the scanner.
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
        yield from every_line(head)
        return
    scanner = _Scanner(line_searches(tuple(literals)), after, sampled=sampled)
    yield from scanner.read(head, feed)


def every_line(chunks: Iterable[bytes]) -> Iterator[NumberedLine]:
    """All lines and pieces of lines."""
    lines = _Lines()
    for block in _whole_lines(_blocks(chunks)):
        yield from lines.all(block.bytes, block.start, block.stop)


# --- lines ---


class _Block(NamedTuple):
    """Whole lines: those of `bytes` from `start` to `stop`, `lines` in number; `hits` may lie outside."""

    bytes: bytes
    start: int
    stop: int
    hits: Sequence[int] = ()
    lines: int = 0


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

    def __init__(self, searches: Sequence[Hits], after: int | Ask, *, sampled: bool) -> None:
        self._searches = searches
        self._hits = together(searches)
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

    def read(self, head: Iterable[bytes], feed: Iterator[bytes]) -> Iterator[NumberedLine]:
        """The lines worth reading of `head` and then `feed`."""
        for block in _Crew(_whole_lines(_blocks(head, feed)), self._searches).blocks():
            if self._lines.inside or _has_long_line(block):
                yield from self._pieces(block)
            else:
                yield from self._block(block)
        yield from self._last(LAST_LINES)

    def _block(self, block: _Block) -> Iterator[NumberedLine]:
        """Lines that nobody asked for are counted, not cut."""
        text, at, stop, _, lines = block
        first = self._lines.number
        hits = [*block.hits, stop]
        upcoming, ask = 0, self._ask
        self._searched = (0, 0, ())
        if self._sampled and stop - at > LINE_BYTES and text[at : at + _DATE_BYTES] != self._sample:
            self._sample = text[at : at + _DATE_BYTES]
            self._left = max(self._left, 1)
        while at < stop:
            while hits[upcoming] < at:
                upcoming += 1
            hit = min(hits[upcoming], stop)
            if not self._left:
                start = hit if hit in (at, stop) else text.rfind(b"\n", at, hit) + 1 or at
                word = self._next_word(text, at, start) if self._among and start > at else None
                if word is None and start == stop:
                    break
                if start > at:
                    self._pass(text, at, start if word is None else word)
                    at = start if word is None else word
                if word is None and self._passed:
                    yield from self._last(BEFORE)
            end = text.find(b"\n", at, stop)
            end = stop if end < 0 else end
            self._left = max(self._left - 1, self._after if hit < end else 0)
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

    def _heed(self, further: Further) -> None:
        if further is NOTHING:
            self._among = 0
            return
        self._left = max(self._left, further.whole)
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
        while len(self._passed) > 1:
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

    def _pieces(self, block: _Block) -> Iterator[NumberedLine]:
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


def _blocks(*sources: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks, none longer than CHUNK_BYTES, small ones (of an unpacked file) several together."""
    small: list[bytes] = []
    size = 0
    for chunk in itertools.chain(*sources):
        if len(chunk) + size < CHUNK_BYTES:
            small.append(chunk)
            size += len(chunk)
            continue
        if small:
            yield b"".join(small)
            small, size = [], 0
        for at in range(0, len(chunk), CHUNK_BYTES):
            yield chunk if len(chunk) <= CHUNK_BYTES else chunk[at : at + CHUNK_BYTES]
    if small:
        yield b"".join(small)


def _whole_lines(chunks: Iterable[bytes]) -> Generator[_Block, None, None]:
    """The chunks, free of the half lines at their ends; those come in blocks of their own."""
    rest = b""
    for chunk in chunks:
        stop = chunk.rfind(b"\n") + 1
        start = 0
        if stop and rest:
            start = chunk.find(b"\n") + 1
            rest += chunk[:start]
            yield _Block(rest, 0, len(rest))
            rest = b""
        if start < stop:
            yield _Block(chunk, start, stop)
        rest += chunk[stop:]
        if len(rest) > LINE_BYTES:
            pieces = len(rest) // LINE_BYTES * LINE_BYTES
            yield _Block(rest[:pieces], 0, pieces)
            rest = rest[pieces:]
    if rest:
        yield _Block(rest, 0, len(rest))


def _has_long_line(block: _Block) -> bool:
    """Whether a line might be longer than LINE_BYTES: some half of one has no newline."""
    text, start, stop = block[:3]
    return any(text.find(b"\n", at, at + _HALF_LINE) < 0 for at in range(start, stop - _HALF_LINE, _HALF_LINE))


class _Crew:
    """Threads that each take the next block, search it and count its lines, while this one deals with what they found.

    A block of a packed log is unpacked by the thread that takes it, while another searches the one before: reading,
    unpacking and searching do without Python's lock.
    """

    def __init__(self, blocks: Iterator[_Block], searches: Sequence[Hits]) -> None:
        import queue
        import threading

        self._blocks = blocks
        self._hits = together(searches)
        self._taking = threading.Lock()
        self._over = False
        self._room = threading.Semaphore(_MOST_AHEAD)
        self._answer: Callable[[], queue.SimpleQueue[_Block | BaseException | None]] = queue.SimpleQueue
        self._taken: queue.SimpleQueue[queue.SimpleQueue[_Block | BaseException | None]] = queue.SimpleQueue()
        self._workers = [
            threading.Thread(target=self._work, name="scan", daemon=True)
            for _ in range(max(1, min(_MOST_WORKERS, len(os.sched_getaffinity(0)))))
        ]

    def blocks(self) -> Generator[_Block, None, None]:
        """The same blocks in their order, with their hits and the number of their lines."""
        for worker in self._workers:
            worker.start()
        patience_s = sys.getswitchinterval()
        sys.setswitchinterval(_PATIENCE_S)
        try:
            while (found := self._taken.get().get()) is not None:
                if isinstance(found, BaseException):
                    raise found
                self._room.release()
                yield found
        finally:
            sys.setswitchinterval(patience_s)
            self._over = True
            self._room.release(len(self._workers))

    def _work(self) -> None:
        while True:
            self._room.acquire()
            answer = self._answer()
            try:
                with self._taking:
                    if self._over:
                        return
                    self._taken.put(answer)
                    if (block := next(self._blocks, None)) is None:
                        self._over = True
                answer.put(self._searched(block) if block is not None else None)
            except BaseException as reason:  # noqa: BLE001 - raised again where the blocks are used
                self._over = True
                answer.put(reason)

    def _searched(self, block: _Block) -> _Block:
        text, start, stop = block[:3]
        return block._replace(hits=self._hits(text), lines=count_lines(text, start, stop))
