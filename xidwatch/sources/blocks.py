"""A log as blocks of whole lines, searched by threads of their own."""

from __future__ import annotations

import atexit
import itertools
import os
import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from xidwatch.sources.literals import Hits, count_lines, together

if TYPE_CHECKING:
    import queue

CHUNK_BYTES = 1 << 20
LINE_BYTES = 1 << 16
"""A longer line is read as pieces of this length that share its number."""
BEFORE = 2
"""So many lines before one of ours are worth reading."""
_HALF_LINE = LINE_BYTES // 2
_MOST_WORKERS = 4
_MOST_AHEAD = 8
"""Blocks that were taken and wait to be dealt with, or are being searched."""
_PATIENCE_S = 0.0005
"""So long a thread that has found something waits for Python's lock: with the usual 5 ms it would idle most of the time."""
_FAREWELL_S = 0.5
_FREED_AT_ONCE = 16 << 20
"""Freeing so much makes glibc keep freed blocks for the next ones (free() raises M_TRIM_THRESHOLD to twice what was mapped);
else each block's pages would be given back and faulted in anew, a quarter of all cost."""
KEPT_LINES = 600
"""More than any event stays open for: so many lines behind one of ours may be asked for."""
_MOST_KEPT = 16 << 20
_LAST_BLOCKS = 4
_STRIDE_BYTES = 1 << 12


class Block(NamedTuple):
    """Whole lines: those of `bytes` from `start` to `stop`, `lines` in number; `hits` may lie outside.

    `opens` is set where a chunk of what was read begins. A block without bytes stands for lines that were not kept.
    """

    bytes: bytes
    start: int
    stop: int
    hits: Sequence[int] = ()
    lines: int = 0
    opens: bool = False


def chunked(*sources: Iterable[bytes]) -> Iterator[bytes]:
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


def whole_lines(chunks: Iterable[bytes]) -> Generator[Block, None, None]:
    """The chunks, free of the half lines at their ends; those come in blocks of their own."""
    rest = b""
    for chunk in chunks:
        stop = chunk.rfind(b"\n") + 1
        start = 0
        if stop and rest:
            start = chunk.find(b"\n") + 1
            rest += chunk[:start]
            yield Block(rest, 0, len(rest))
            rest = b""
        if start < stop:
            yield Block(chunk, start, stop, opens=True)
        rest += chunk[stop:]
        if len(rest) > LINE_BYTES:
            pieces = len(rest) // LINE_BYTES * LINE_BYTES
            yield Block(rest[:pieces], 0, pieces)
            rest = rest[pieces:]
    if rest:
        yield Block(rest, 0, len(rest))


def has_long_line(block: Block) -> bool:
    """Whether a line might be longer than LINE_BYTES: some half of one has no newline."""
    text, start, stop = block[:3]
    return any(text.find(b"\n", at, at + _HALF_LINE) < 0 for at in range(start, stop - _HALF_LINE, _HALF_LINE))


def searched(blocks: Iterator[Block], searches: Sequence[Hits]) -> Generator[Block, None, None]:
    """The same blocks in their order, with their hits and the number of their lines."""
    return _Crew(blocks, searches).blocks()


def searched_alone(blocks: Iterable[Block], searches: Sequence[Hits]) -> Iterator[Block]:
    """The same without threads, for a few blocks."""
    hits = together(searches)
    return (_with_hits(block, hits) for block in blocks)


def _with_hits(block: Block, hits: Hits) -> Block:
    return block._replace(hits=hits(block.bytes), lines=count_lines(*block[:3]))


class _Found(NamedTuple):
    """What one thread took and searched; the last of all is marked."""

    blocks: list[Block]
    last: bool


class _Crew:
    """Threads that each take the next block, search it and count its lines, while this one deals with what they found.

    A block of a packed log is unpacked by the thread that takes it, while another searches the one before: reading,
    unpacking and searching do without Python's lock.
    """

    def __init__(self, blocks: Iterator[Block], searches: Sequence[Hits]) -> None:
        import queue
        import threading

        self._blocks = blocks
        self._hits = together(searches)
        self._taking = threading.Lock()
        self._over = False
        self._room = threading.Semaphore(_MOST_AHEAD)
        self._answer: Callable[[], queue.SimpleQueue[_Found | BaseException]] = queue.SimpleQueue
        self._taken: queue.SimpleQueue[queue.SimpleQueue[_Found | BaseException]] = queue.SimpleQueue()
        self._workers = [
            threading.Thread(target=self._work, name="scan", daemon=True)
            for _ in range(max(1, min(_MOST_WORKERS, len(os.sched_getaffinity(0)))))
        ]

    def blocks(self) -> Generator[Block, None, None]:
        """The same blocks in their order, with their hits and the number of their lines."""
        atexit.register(self._stop)
        bytes(_FREED_AT_ONCE)
        for worker in self._workers:
            worker.start()
        patience_s = sys.getswitchinterval()
        sys.setswitchinterval(_PATIENCE_S)
        try:
            last = False
            while not last:
                found = self._taken.get().get()
                if isinstance(found, BaseException):
                    raise found
                self._room.release()
                yield from found.blocks
                last = found.last
        finally:
            sys.setswitchinterval(patience_s)
            atexit.unregister(self._stop)
            self._stop()

    def _stop(self) -> None:
        """End the threads: one that still searched when Python ends would abort the process, being in the middle of Rust.

        A thread that waits for an input that is silent is left; where it waits it does no harm.
        """
        self._over = True
        self._room.release(len(self._workers))
        for worker in self._workers:
            worker.join(_FAREWELL_S)

    def _work(self) -> None:
        while True:
            self._room.acquire()
            answer = self._answer()
            try:
                with self._taking:
                    if self._over:
                        return
                    self._taken.put(answer)
                    blocks, self._over = _next_large(self._blocks)
                    last = self._over
                answer.put(_Found([_with_hits(block, self._hits) for block in blocks], last))
            except BaseException as reason:  # noqa: BLE001 - raised again where the blocks are used
                self._over = True
                answer.put(reason)


def _next_large(blocks: Iterator[Block]) -> tuple[list[Block], bool]:
    """(the next large block and the small ones before it, whether they are the last)."""
    taken: list[Block] = []
    for block in blocks:
        taken.append(block)
        if len(block.bytes) >= LINE_BYTES:
            return taken, False
    return taken, True


class Ahead(NamedTuple):
    """A log that was searched to its end before it is read.

    Attributes:
        blocks: Lines of ours with their neighbourhood, the first and the last lines, and how many lines lie between; None
            when that is too much to be kept.
        tail: The last bytes.
    """

    blocks: list[Block] | None
    tail: bytes


def search_ahead(chunks: Iterable[bytes], searches: Sequence[Hits], tail_bytes: int) -> Ahead:
    """Read and search everything, and keep what may be worth reading: a packed log shows its end only so."""
    latest: deque[Block] = deque()
    kept: list[Block] | None = []
    size = more = 0
    inside = False
    for block in searched(whole_lines(chunked(chunks)), searches):
        latest.append(block)
        if len(latest) <= _LAST_BLOCKS:
            continue
        oldest = latest.popleft()
        if kept is None:
            continue
        whole = not kept or inside or has_long_line(oldest) or not oldest.lines
        inside = oldest.bytes[oldest.stop - 1 : oldest.stop] != b"\n"
        parts, more = ([oldest], KEPT_LINES) if whole else _worth_keeping(oldest, more)
        kept += parts
        size += sum(len(part.bytes) for part in parts)
        if size > _MOST_KEPT:
            kept = None
    tail = b"".join(block.bytes[block.start : block.stop] for block in latest)[-tail_bytes:]
    return Ahead(None if kept is None else [*kept, *latest], tail)


def _worth_keeping(block: Block, more: int) -> tuple[list[Block], int]:
    """The parts of a block that may be asked for, with gaps; `more` lines at its beginning are, and at the next one's."""
    text, start, stop = block[:3]
    hits = [hit for hit in block.hits if start <= hit < stop]
    parts: list[Block] = []
    begin, seen = start, 0
    end, more = _behind(text, start, stop, max(1, more))
    while True:
        while seen < (inside := bisect_left(hits, end)):
            reach, lacking = _behind(text, hits[inside - 1], stop, 1 + KEPT_LINES)
            seen, end, more = inside, max(end, reach), max(more, lacking)
        parts.append(_part(block, begin, end))
        if seen == len(hits):
            break
        begin = _before(text, hits[seen], end)
        parts.append(_gap(text, end, begin))
        end = hits[seen] + 1
    return [*parts, Block(b"", 0, 0, lines=block.lines - sum(part.lines for part in parts))], more


def _gap(text: bytes, start: int, stop: int) -> Block:
    return Block(b"", 0, 0, lines=count_lines(text, start, stop))


def _before(text: bytes, hit: int, start: int) -> int:
    """Where the lines begin that are wanted before this one, none of them before `start`."""
    for _ in range(1 + BEFORE):
        hit = text.rfind(b"\n", start, hit)
        if hit < 0:
            return start
    return hit + 1


def _part(block: Block, begin: int, end: int) -> Block:
    text = block.bytes[begin:end]
    hits = [hit - begin for hit in block.hits if begin <= hit < end]
    return Block(text, 0, len(text), hits, count_lines(text, 0, len(text)), opens=begin == block.start)


def _behind(text: bytes, at: int, stop: int, lines: int) -> tuple[int, int]:
    """(where so many lines end, how many of them the block lacks)."""
    while (there := at + _STRIDE_BYTES) < stop and (ended := count_lines(text, at, there)) < lines:
        at, lines = there, lines - ended
    for nth in range(lines):
        at = text.find(b"\n", at, stop) + 1
        if not at:
            return stop, lines - nth
    return at, 0
