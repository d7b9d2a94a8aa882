"""Records in, events and context out: the one place that knows which families exist."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType

from xidwatch.core import context, hung_task, lockup, nvrm, oom, pcie, sxid, userspace, xid
from xidwatch.core.event import Context, Event, MalformedLine
from xidwatch.core.record import Record

FAMILIES: tuple[ModuleType, ...] = (xid, sxid, nvrm, hung_task, lockup, oom, pcie, userspace)
"""Each family module has:

LITERALS            strings of which a line must contain one to start an event
start(record)       the events that begin on this record; raises MalformedLine for a wording it should know and does not
extend(event, record)
                    the same event (same uid) made richer by a later record, or None: not mine
open_for(event)     how many further records may extend it
"""
LITERALS: tuple[str, ...] = tuple(dict.fromkeys(text for family in (*FAMILIES, context) for text in family.LITERALS))
"""Everything that makes a line worth reading, in one list: the scanner looks for these."""
_MOST_OPEN = 16


@dataclass(slots=True)
class _Open:
    event: Event
    family: ModuleType
    left: int


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

    def feed(self, record: Record) -> Iterator[Event | Context]:
        """Events that begin on this record, events that it extends (same uid as before), and context."""
        if self._open and (extended := self._extend(record)) is not None:
            if not extended.provisional:
                yield extended
            return
        try:
            family, started = _start(record)
        except MalformedLine:
            self.malformed_total += 1
            if len(self.malformed) < 1000:
                self.malformed.append(record)
            return
        for event in started:
            if family is not None and (left := family.open_for(event)):
                self._open.appendleft(_Open(event, family, left))
            if not event.provisional:
                yield event
        if not started and _hit(context, record.text):
            yield from context.start(record)

    def still_open(self) -> set[tuple[int, int, int]]:
        """Events that a later record may still extend."""
        return {item.event.uid for item in self._open if item.left > 0}

    def _extend(self, record: Record) -> Event | None:
        found: Event | None = None
        spent = False
        for item in self._open:
            item.left -= 1
            spent = spent or item.left <= 0
            richer: Event | None = item.family.extend(item.event, record) if found is None else None
            if richer is not None:
                found = item.event = richer
        if spent:
            self._open = deque((item for item in self._open if item.left > 0), maxlen=_MOST_OPEN)
        return found


def _start(record: Record) -> tuple[ModuleType | None, tuple[Event, ...]]:
    """The first family to which the record belongs, and its events; a record tells of one family only."""
    text = record.text
    for family in FAMILIES:
        if _hit(family, text) and (started := family.start(record)):
            return family, started
    return None, ()


def _hit(family: ModuleType, text: str) -> bool:
    return any(literal in text for literal in family.LITERALS)
