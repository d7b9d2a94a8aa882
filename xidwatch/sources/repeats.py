"""Storms of one fault: lines that would only be counted are counted without being read."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator

from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record
from xidwatch.sources.scan import NumberedLine

Told = Callable[[], tuple[Record, Hashable] | None]
"""The latest record, and what its one event shares with those that are counted with it; None where that is not certain."""
_FRACTION = lazy(rb"(?<=\d[.,])\d{6}(?!\d)")
_ZERO = lazy(rb"\D0+[.,]\Z")
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_MOST_MESSAGES = 1 << 14
_NONE = 0


class _Row:
    """Lines of one second that are counted together: those not read yet."""

    __slots__ = ("_before", "_count", "_last", "_least", "_lowest")

    def __init__(self) -> None:
        self._last: NumberedLine | None = None
        self._lowest: NumberedLine | None = None
        self._count = self._before = self._least = 0

    def add(self, number: int, line: bytes, delay: int) -> None:
        """One more."""
        if self._last is None or delay < self._least:
            self._least, self._lowest, self._before = delay, (number, line), self._count
        self._last = number, line
        self._count += 1

    def take(self) -> Iterator[tuple[int, bytes, int]]:
        """(number, line, how many before it are left out) of those that must be read."""
        last, lowest, count, before = self._last, self._lowest, self._count, self._before
        self._last = self._lowest = None
        self._count = self._before = self._least = 0
        if last is None or lowest is None:
            return
        if lowest[0] != last[0]:
            yield *lowest, before
            count -= before + 1
        yield *last, count - 1


class Repeats:
    """Leaves out lines that say the same as one before, within the same second of the same clock.

    A line may be left out when its time differs from that of one that was read only in the fraction of a second, and its
    message at most in what events are not told apart by; which messages those are shows when they are read. The first and the
    last line of such a row are read, and between them the one that was written with the least delay: by that the clock goes.

    Attributes:
        count: Lines that were left out before the latest one given out, and belong to it.
    """

    def __init__(self, told: Told) -> None:
        self.count = 0
        self._told = told
        self._kinds: dict[bytes, int] = {}
        self._numbers: dict[Hashable, int] = {}
        self._shape = b""
        self._rows: dict[int, _Row] = {}
        self._fractions: tuple[tuple[int, int, int, bytes], ...] = ()
        """(start, stop, end of the text behind, that text) of each fraction of a second in front of the message."""
        self._front = b""
        self._length = 0

    def fold(self, lines: Iterable[NumberedLine]) -> Iterator[NumberedLine]:
        """The lines without the repeats."""
        held = False
        for number, line in lines:
            if self._rows and (row := self._rows.get(self._kinds.get(line[self._length :], _NONE))) and self._goes_with(line):
                row.add(number, line, self._delay(line) if len(self._fractions) > 1 else 0)
                held = True
                continue
            if held:
                yield from self._last_of_rows()
                held = False
            yield number, line
            self._learn(number, line)
        if held:
            yield from self._last_of_rows()

    def _last_of_rows(self) -> Iterator[NumberedLine]:
        given = sorted((number, line, count) for row in self._rows.values() for number, line, count in row.take())
        for number, line, self.count in given:
            yield number, line
        self.count = 0

    def _goes_with(self, line: bytes) -> bool:
        """Whether the part before the message is the same, but for fractions of a second."""
        if not line.startswith(self._front):
            return False
        for at, stop, end, behind in self._fractions:  # noqa: SIM110 - a million times a storm: `all` takes twice as long
            if not line[at:stop].isdigit() or line[stop:end] != behind:
                return False
        return True

    def _delay(self, line: bytes) -> int:
        """Wall clock minus printk's clock, within the second."""
        (at, stop, *_), (begin, end, *_) = self._fractions
        return int(line[at:stop]) - int(line[begin:end])

    def _learn(self, number: int, line: bytes) -> None:
        """Take the line that was just read as one that further lines are held against."""
        told = self._told()
        if told is None or told[0].line != number:
            self._rows.clear()
            return
        message = told[0].text.encode()
        front = line[: len(line) - len(message)]
        spans = tuple(found.span() for found in _FRACTION.finditer(front))
        # At the very beginning of printk's clock a boot is noticed by the zeros.
        if not line.endswith(message) or len(spans) > 2 or any(_ZERO.search(front, 0, at) for at, _ in spans[-1:]):
            self._rows.clear()
            return
        if len(front) != self._length or not self._goes_with(line):
            self._rows.clear()
        shape = front.translate(_DIGITS)
        if shape != self._shape or len(self._kinds) > _MOST_MESSAGES:
            self._shape = shape
            self._kinds.clear()
            self._numbers.clear()
            self._rows.clear()
        kind = self._kinds[message] = self._numbers.setdefault(told[1], len(self._numbers) + 1)
        self._rows.setdefault(kind, _Row())
        self._length = len(front)
        ends = [*(at for at, _ in spans), len(front)]
        self._front = front[: ends[0]]
        self._fractions = tuple((at, stop, end, front[stop:end]) for (at, stop), end in zip(spans, ends[1:], strict=True))
