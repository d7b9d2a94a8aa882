"""Storms made short: the same event again and again within moments is one run with a count.

800,000 lines of Xid 95 cost the memory of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xidwatch.core.event import Context, Event, UserspaceDetail, XidDetail
from xidwatch.core.record import gap_s

RUN_GAP_S = 5.0
"""Equal events further apart than this are told apart, so that what happened between them keeps its place."""
_MOST_HOT = 512


@dataclass(slots=True)
class Run:
    """Equal events in a row. `event` is the first, `last` the latest; `lines` counts printed lines."""

    event: Event
    last: Event
    count: int
    lines: int
    count_is_minimum: bool


def fold_key(event: Event) -> tuple[object, ...]:
    """What makes two events one entry with a count, as the JSON contract lists it (the host is the case's)."""
    detail = event.detail
    seen = (event.kind, event.code, event.what, event.pci, event.gpu_instance, event.compute_instance, event.pid, event.process)
    if type(detail) is XidDetail:
        return (*seen, detail.subcode, detail.link)
    if isinstance(detail, UserspaceDetail):
        return (*seen, detail.rank, detail.seq, detail.op, detail.tried)
    return (*seen, *(getattr(detail, name, None) for name in ("link", "cpu", "bank")))


class Runs:
    """Collects the events and context of one stream, equal ones folded."""

    def __init__(self) -> None:
        self._items: list[Run | Context] = []
        self._hot: dict[tuple[object, ...], Run] = {}

    def add(self, item: Event | Context) -> None:
        """Take the next item in the order of the log."""
        if isinstance(item, Context):
            self._items.append(item)
            return
        key = (item.record.host, item.record.trusted, item.record.boot_id, *fold_key(item))
        run = self._hot.get(key)
        if run is not None and _same_moment(run, item):
            run.last = item
            run.count += 1
            run.lines += item.lines
            run.count_is_minimum |= item.count_is_minimum
            return
        run = Run(item, item, 1, item.lines, item.count_is_minimum)
        self._items.append(run)
        if len(self._hot) >= _MOST_HOT:
            self._hot.clear()
        self._hot[key] = run

    def __len__(self) -> int:
        """How many distinct ones are collected."""
        return len(self._items)

    def take(self) -> Iterator[Run | Context]:
        """Everything collected, in order; the collection is empty afterwards."""
        items, self._items = self._items, []
        self._hot.clear()
        yield from items


def _same_moment(run: Run, event: Event) -> bool:
    gap = gap_s(run.last.last_record, event.record)
    if gap is None or not -RUN_GAP_S <= gap <= RUN_GAP_S:
        return False
    one, other = run.event.detail, event.detail
    if not isinstance(one, XidDetail) or not isinstance(other, XidDetail):
        return one == other
    return (
        one.recovery_action is other.recovery_action is None
        and one.reset_flags == other.reset_flags
        and one.caused_by == other.caused_by
        and one.places == other.places
        and one.registers == other.registers
        and one.unit == other.unit
    )
