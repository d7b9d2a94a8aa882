"""Programs that write local time without saying so: whole hours then lie between their errors and the kernel's fault."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xidwatch.core.event import GPU_KINDS, PROGRAM_KINDS, Event, UserspaceDetail
from xidwatch.core.rule import LEAST_CAUSE, selected

if TYPE_CHECKING:
    from xidwatch.core.correlate import Case
    from xidwatch.core.incident import Finding

NEAR_S = 120.0
"""How near to a whole number of hours the difference must be."""
_MOST_HOURS = 14
_USUAL_TIMEOUT_S = 600.0
"""PyTorch's own limit since 2.2, where the line gives none."""
_MOST_FAULTS = 50


def hours_apart(gap_s: float) -> int | None:
    """How many whole hours this is, if it is about that; None for less than one and for more than any two zones differ by."""
    hours = round(gap_s / 3600)
    return hours if 1 <= abs(hours) <= _MOST_HOURS and abs(gap_s - 3600 * hours) <= NEAR_S else None


def waited_s(timeout: UserspaceDetail) -> float:
    """How long a rank had waited for a collective when it gave up."""
    waited_ms = timeout.ran_ms if timeout.ran_ms is not None else timeout.timeout_ms
    return waited_ms / 1000 if waited_ms is not None else _USUAL_TIMEOUT_S


def hint_zones(cases: Sequence[Case]) -> None:
    """Mark the cases of programs whose every line would stand beside one fault of a GPU if it were whole hours off."""
    faults = [(case.host, fault) for case in cases for fault in _faults(case)][:_MOST_FAULTS]
    if not faults:
        return
    for case in cases:
        said = [fold.finding for fold in case.folds.values()]
        if any(one.event.kind not in PROGRAM_KINDS or one.event.record.utc_offset_s is not None for one in said):
            continue
        waits = any(one.event.kind == "nccl_timeout" for one in said)
        found: dict[int, Event] = {}
        for host, fault in faults:
            if (waits or "" in (host, case.host) or host == case.host) and (hours := _common_shift(said, fault)) is not None:
                found.setdefault(hours, fault.event)
        if len(found) == 1:
            case.zone_hint = next(iter(found.items()))


def _faults(case: Case) -> Iterator[Finding]:
    for fold in case.folds.values():
        event, record = fold.finding.event, fold.finding.event.record
        able = event.kind in GPU_KINDS and fold.finding.rule.rank > LEAST_CAUSE and not record.glued
        if able and record.wall_us is not None and record.utc_offset_s is not None:
            yield fold.finding


def _common_shift(said: Sequence[Finding], fault: Finding) -> int | None:
    """The hours by which all of a program's errors miss the fault; None where they differ."""
    first = _shift(said[0], fault)
    return first if first is not None and all(_shift(one, fault) == first for one in said) else None


def _shift(said: Finding, fault: Finding) -> int | None:
    """Hours between a program's error, or the moment at which it began to wait, and a fault of which it may tell."""
    at, fault_at, follows = said.event.record.wall_us, fault.event.record.wall_us, said.rule.follows
    if at is None or fault_at is None or (follows is not None and not any(selected(fault.rule, name) for name in follows)):
        return None
    detail = said.event.detail
    waited = waited_s(detail) if said.event.kind == "nccl_timeout" and isinstance(detail, UserspaceDetail) else 0.0
    return hours_apart((at - fault_at) / 1e6 - waited)
