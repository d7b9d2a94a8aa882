"""Raw records of /dev/kmsg by the hundred: which of them anybody wants to see, without looking at each.

Almost every record of a kernel's log is nobody's business here. A block of them is checked as a whole - every record well
formed, no number left out - and searched at once; only what matters is cut out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from xidwatch.core.parse import LITERALS, Further
from xidwatch.core.pattern import lazy
from xidwatch.sources.literals import line_searches, together

Ask = Callable[[], Further]
"""Asked when a record has been dealt with: which of those to come are wanted, beside those with one of our words."""
_RECORD = lazy(rb"\n\d{1,10},(\d{1,20}),\d{1,20},[^;\n]*;")
_NUMBER = lazy(rb"\d{1,10},(\d{1,20})[,;]")
_LATEST = lazy(rb"\d{1,10},\d{1,20},(\d{1,20}),")
_ESCAPE = "\\x"
"""Behind it a byte is told by its number: what such a record says shows only once it is read."""


class Block:
    """Whole raw records, one behind the other, each with its newline; lines that begin with a blank belong to the one before.

    Attributes:
        first, last: Numbers of its first and last record; None where it must be read record by record, because one is not
            well formed or its numbers do not follow on each other.
        count: How many records it holds, as far as `first` is known.
    """

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0
        self._hits: list[int] | None = None
        self._nth = 0
        numbers = [int(number) for number in _RECORD.findall(b"\n" + raw)]
        self.count = len(numbers)
        self.first: int | None = None
        self.last: int | None = None
        lines = raw.count(b"\n") - raw.count(b"\n ") - raw.startswith(b" ")
        if numbers and lines == self.count and numbers == list(range(numbers[0], numbers[0] + self.count)):
            self.first, self.last = numbers[0], numbers[-1]

    def latest_us(self) -> int:
        """Printk's clock of the last record; only where `last` is known."""
        at = self._raw.rfind(b"\n", 0, len(self._raw) - 1) + 1
        while self._raw.startswith(b" ", at):
            at = self._raw.rfind(b"\n", 0, at - 1) + 1
        found = _LATEST.match(self._raw, at)
        return int(found[1]) if found else 0

    def every(self) -> Iterator[bytes]:
        """The records that are left."""
        while (line := self._line()) is not None:
            if line and not line.startswith(b" "):
                yield line

    def wanted(self, ask: Ask, fed: int) -> Iterator[bytes]:
        """Those left that hold one of our words, or that `ask` wants; `fed` is the number of the latest that was dealt with."""
        while True:
            further = ask()
            if further.among or further.whole:
                if (line := self._next_among(further, fed)) is None:
                    return
            elif (line := self._next_hit()) is None:
                return
            fed = _number(line, fed)
            yield line

    def _next_among(self, further: Further, fed: int) -> bytes | None:
        """The next record that somebody wants while `further` holds; beyond it the next with a word of ours."""
        words = _as_bytes(further.words)
        while (line := self._line()) is not None:
            if not line or line.startswith(b" "):
                continue
            behind = _number(line, fed) - fed
            if behind > max(further.whole, further.among):
                self._at -= len(line) + 1
                return self._next_hit()
            if behind <= further.whole or self._is_hit(line) or any(word in line for word in words):
                return line
        return None

    def _is_hit(self, line: bytes) -> bool:
        """Whether a word of ours stands in the line just taken."""
        return 0 <= self._next_place(self._at - len(line) - 1) < self._at

    def _next_hit(self) -> bytes | None:
        while (place := self._next_place(self._at)) >= 0:
            self._at = self._raw.rfind(b"\n", 0, place) + 1
            line = self._line()
            if line and not line.startswith(b" "):
                return line
        self._at = len(self._raw)
        return None

    def _next_place(self, start: int) -> int:
        """Where the first word of ours at or behind a place stands; -1: nowhere."""
        if self._hits is None:
            self._hits = _find()(self._raw)
        while self._nth < len(self._hits) and self._hits[self._nth] < start:
            self._nth += 1
        return self._hits[self._nth] if self._nth < len(self._hits) else -1

    def _line(self) -> bytes | None:
        end = self._raw.find(b"\n", self._at)
        if end < 0:
            return None
        line, self._at = self._raw[self._at : end], end + 1
        return line


def number_of(record: bytes) -> int | None:
    """The number of a raw record; None when it has none that can be read."""
    found = _NUMBER.match(record)
    return int(found[1]) if found else None


def _number(record: bytes, otherwise: int) -> int:
    return otherwise if (number := number_of(record)) is None else number


def is_wanted(text: str, further: Further, behind: int) -> bool:
    """Whether a record's text holds one of our words, may hide one, or is asked for.

    Args:
        behind: How many records it lies behind the latest that was dealt with.
    """
    if behind <= further.whole or _find()(text.encode("utf-8", "surrogateescape")):
        return True
    return behind <= further.among and any(word in text for word in further.words)


@lru_cache(maxsize=1)
def _find() -> Callable[[bytes], list[int]]:
    return together(line_searches((*LITERALS, _ESCAPE)))


@lru_cache(maxsize=64)
def _as_bytes(words: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(word.encode() for word in (*words, _ESCAPE))
