"""Records in, events and context out: the one place that knows which families exist."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from types import ModuleType
from typing import NamedTuple

from xidwatch.core import context, hung_task, lockup, nvrm, oom, pcie, sxid, userspace, xid
from xidwatch.core.event import Context, Event, MalformedLine
from xidwatch.core.logtext import unglued
from xidwatch.core.record import Record

FAMILIES: tuple[ModuleType, ...] = (xid, sxid, nvrm, hung_task, lockup, oom, pcie, userspace)
"""Each family module has:

LITERALS            strings of which a line must contain one to start an event
start(record)       the events that begin on this record; raises MalformedLine for a wording it should know and does not
extend(event, record)
                    the same event (same uid) made richer by a later record, or None: not mine
open_for(event)     how many further records may extend it
FURTHER             strings of which a record must contain one to extend an event, where it has none of LITERALS and is not
                    among the six behind the event or its latest record, in which wrapped text may go on
"""
LITERALS: tuple[str, ...] = tuple(dict.fromkeys(text for family in (*FAMILIES, context) for text in family.LITERALS))
"""Everything that makes a line worth reading, in one list: the scanner looks for these."""
_BY_LITERAL = tuple((literal, family) for family in FAMILIES for literal in family.LITERALS)
_MOST_OPEN = 16
_NEAR = 6
_ESCAPED = ('{"', '{ "', "\x1b", "^[[", "#0")
"""Behind these a line may hide a word in another spelling."""


class Further(NamedTuple):
    """Which of the lines to come may matter, beside those with one of LITERALS.

    Attributes:
        whole: So many of the next, whatever they say.
        among: So many of the next, if they hold one of `words`.
    """

    whole: int = 0
    among: int = 0
    words: tuple[str, ...] = ()


NOTHING = Further()


@dataclass(slots=True)
class _Open:
    event: Event
    family: ModuleType
    left: int
    near: int = _NEAR


@dataclass(slots=True)
class Parser:
    """The parsers of one stream, with the events that later lines may still extend.

    Attributes:
        malformed: Lines that are ours in a wording that no parser knows; the first thousand are kept.
        malformed_total: How many there were.
    """

    malformed: list[Record] = field(default_factory=list)
    malformed_total: int = 0
    _open: deque[_Open] = field(default_factory=lambda: deque(maxlen=_MOST_OPEN))
    _seq: int = 0
    _wish: Further | None = None

    def feed(self, record: Record) -> Iterator[Event | Context]:
        """Events that begin on this record, events that it extends (same uid as before), and context."""
        passed, self._seq = record.seq - self._seq - 1, record.seq
        self._wish = None
        if self._open and passed > 0:
            self._pass(passed)
        if self._open and (extended := self._extend(record)) is not None:
            if not extended.provisional:
                yield extended
            return
        record = unglued(record)
        try:
            family, started = _start(record)
        except MalformedLine:
            self.malformed_total += 1
            if len(self.malformed) < 1000:
                self.malformed.append(record)
            return
        for event in started:
            if family is not None and (left := family.open_for(event)) and not (left == 1 and _is_whole(event)):
                self._open.appendleft(_Open(event, family, left))
            if not event.provisional:
                yield event
        if not started:
            yield from context.start(record)

    def still_open(self) -> set[tuple[int, int, int]]:
        """Events that a later record may still extend."""
        return {item.event.uid for item in self._open if item.left > 0}

    def close(self, uid: tuple[int, int, int]) -> None:
        """Extend an event no more: it has been taken for complete, and what comes later is another."""
        self._wish = None
        self._open = deque((item for item in self._open if item.event.uid != uid), maxlen=_MOST_OPEN)

    def further(self) -> Further:
        """What the open events wish to see. Skipped lines show in `Record.seq`."""
        if self._wish is None:
            self._wish = self._wished() if self._open else NOTHING
        return self._wish

    def _wished(self) -> Further:
        whole = among = 0
        for item in self._open:
            whole, among = max(whole, min(item.near, item.left)), max(among, item.left)
        return Further(whole, among, _words(frozenset(item.family for item in self._open)))

    def done_with(self, event: Event) -> bool:
        """Whether nothing is open, but for the rest of this Xid's text on the next line, which no other Xid line can be."""
        return all(item.event is event and item.left == 1 and event.kind == "xid" for item in self._open)

    def programs_alone(self) -> bool:
        """Whether only errors of programs are open: none of their lines goes on with another that begins as they do."""
        return all(item.family is userspace and not item.event.provisional for item in self._open)

    def _pass(self, records: int) -> None:
        """So many records were lost or left out."""
        for item in self._open:
            item.left -= records
            item.near -= records
        self._open = deque((item for item in self._open if item.left > 0), maxlen=_MOST_OPEN)

    def _extend(self, record: Record) -> Event | None:
        found: Event | None = None
        spent = False
        for item in self._open:
            item.left -= 1
            item.near -= 1
            spent = spent or item.left <= 0
            richer: Event | None = item.family.extend(item.event, record) if found is None else None
            if richer is not None:
                found = item.event = richer
                item.near = _NEAR
        if spent:
            self._open = deque((item for item in self._open if item.left > 0), maxlen=_MOST_OPEN)
        return found


def _is_whole(event: Event) -> bool:
    """Whether an Xid's text cannot go on in the next record: the kernel itself, unlike a mail program, wraps no line."""
    return event.kind == "xid" and event.record.trusted in ("kernel", "injected")


def _start(record: Record) -> tuple[ModuleType | None, tuple[Event, ...]]:
    """The first family to which the record belongs, and its events; a record tells of one family only."""
    text, tried = record.text, None
    for literal, family in _BY_LITERAL:
        if literal in text and family is not tried:
            tried = family
            if started := family.start(record):
                return family, started
    return None, ()


@lru_cache(maxsize=64)
def _words(families: frozenset[ModuleType]) -> tuple[str, ...]:
    """The same tuple for the same families, so that what is made of it can be kept."""
    return tuple(dict.fromkeys((*_ESCAPED, *(word for family in families for word in family.FURTHER))))
