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


def run_key(event: Event) -> tuple[object, ...] | None:
    """What two events of one second share when they are counted together; None for one that is not."""
    told = _told(event)
    return None if told is None else (event.count_is_minimum, told, *fold_key(event))


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
        run, repeats = self._hot.get(key), item.record.repeats
        if run is not None and _same_moment(run, item):
            run.last = item
            run.count += 1 + repeats
            run.lines += item.lines + repeats
            run.count_is_minimum |= item.count_is_minimum
            return
        run = Run(item, item, 1 + repeats, item.lines + repeats, item.count_is_minimum)
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
    one, other = _told(run.event), _told(event)
    return one is not None and one == other


def _told(event: Event) -> object:
    """What equal events must agree in; None for one that stands alone."""
    detail = event.detail
    if not isinstance(detail, XidDetail):
        return detail or ()
    if detail.recovery_action is not None:
        return None
    return (detail.reset_flags, detail.caused_by, detail.places, detail.registers, detail.unit)
