"""One cause for time-outs on several nodes: a GPU, a link or a program that failed on one of them.

NCCL's watchdog speaks on every rank minutes after the fault, and seldom on the one at fault. Time-outs of the same collective
are one job's; what failed somewhere when they began to wait is the likeliest cause.
Clocks of nodes differ, so a cause may be written later than what followed from it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from xidwatch.core.event import GPU_KINDS, Context, Event, HungTaskDetail, UserspaceDetail
from xidwatch.core.links import interface_of, is_ordinary, is_virtual
from xidwatch.core.rule import LEAST_CAUSE, RUNGS, Rule
from xidwatch.core.zones import hours_apart, waited_s

if TYPE_CHECKING:
    from xidwatch.core.correlate import Case, Correlator

SKEW_S = 30.0
"""Clocks of two nodes may differ by so much when nothing compares them."""
_EARLY_S, _LATE_S = 600.0, 120.0
"""A step of a training run may last minutes: so long before, or behind, the others begin to wait may the fault be."""
_WEAK_S = 60.0
"""The same for a fault that many programs have without any job noticing."""
_HOME_S = 30.0
"""How much nearer a fault counts on a node of the job itself."""
_MOMENTS_S = 10.0
_MOST_SHOWN = 8
_PROGRAMS = ("torch_oom", "cuda_error")
_STUCK = ("hung_task", "soft_lockup", "hard_lockup", "mce", "oom_kill")
_Ups = dict[tuple[str, str], list[int]]
"""When each interface of each host came up, in microseconds, in order."""
_FLAP_US = 2_000_000


@dataclass(slots=True)
class _Job:
    """Time-outs that belong together.

    Attributes:
        began_us, gave_up_us: When its first rank began to wait, and gave up; None without a wall clock.
        spread_us: How far apart its nodes wrote the time-out of the same collective.
    """

    cases: list[Case]
    began_us: float | None = None
    gave_up_us: float | None = None
    spread_us: float = 0.0
    ranks: set[int] = field(default_factory=set)
    streams: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Cause:
    """Something that may have kept a rank from a collective; a `context` line where no event tells it.

    Attributes:
        strong: Few programs have it without noticing.
        certain: Whatever ran there has stopped: the GPU is lost or needs a reset, or the node panicked.
    """

    at_us: float
    host: str
    strong: bool
    certain: bool = False
    case: Case | None = None
    context: Context | None = None


def join_fleet(correlator: Correlator) -> None:
    """Put time-outs of one job, on whatever nodes, and what they followed from into one case. Cost: n log n in the cases."""
    waiting = [case for case in correlator.cases if any(_timeouts(case))]
    if not waiting:
        return
    jobs = _jobs(waiting)
    ups = _came_up(correlator)
    causes = sorted(_causes(correlator, ups), key=lambda cause: cause.at_us)
    times = [cause.at_us for cause in causes]
    blinks, alone = _blinks(correlator, ups), _only_one(correlator)
    for job in jobs:
        cause = _likeliest(job, causes, times)
        if cause is None and alone is not None and (job.began_us is None or not causes or _zone_apart(job, alone)):
            cause = alone
        rivals = _rivals(cause, job, causes, times) if cause is not None and cause is not alone else []
        into = _put_together(correlator, job, cause)
        into.rivals = [rival.context or _head(rival.case) for rival in rivals if rival.case is not into]
        into.context[:0] = [one.context for one in rivals if one.context is not None and one.context not in into.context]
        _note_blinks(correlator, job, into, blinks)


def _timeouts(case: Case) -> Iterator[tuple[Event, Event]]:
    """Each distinct time-out of a case, first and latest."""
    for fold in case.folds.values():
        if fold.finding.event.kind == "nccl_timeout":
            yield fold.finding.event, fold.last


# which time-outs are one job's


def _jobs(waiting: Sequence[Case]) -> list[_Job]:
    """Cases in which different ranks waited for the same collective at the same time."""
    job_of = {id(case): _job(case) for case in waiting}
    seen: dict[tuple[object, ...], list[tuple[float | None, Case]]] = {}
    for case in waiting:
        for key, at in _collectives(case).items():
            seen.setdefault(key, []).append((at, case))
    for found in seen.values():
        found.sort(key=lambda pair: pair[0] or 0.0)
        for (one_at, one), (other_at, other) in pairwise(found):
            mine, theirs = job_of[id(one)], job_of[id(other)]
            near = one_at is None or other_at is None or other_at - one_at <= (_LATE_S + SKEW_S) * 1e6
            if mine is not theirs and near and not mine.ranks & theirs.ranks and mine.streams.isdisjoint(theirs.streams):
                if one_at is not None and other_at is not None:
                    mine.spread_us = max(mine.spread_us, theirs.spread_us, other_at - one_at)
                _absorb(mine, theirs)
                job_of.update({id(case): mine for case in theirs.cases})
    return list({id(job): job for job in job_of.values()}.values())


def _absorb(job: _Job, other: _Job) -> None:
    job.cases += other.cases
    job.ranks |= other.ranks
    job.streams |= other.streams
    job.began_us = _earlier(job.began_us, other.began_us)
    job.gave_up_us = _earlier(job.gave_up_us, other.gave_up_us)


def _earlier(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return min(known, default=None)


def _job(case: Case) -> _Job:
    job = _Job([case], ranks={call.rank for call in case.calls})
    for event, _ in _timeouts(case):
        detail, at = event.detail, event.record.wall_us
        job.streams.add(event.record.stream)
        if at is None or not isinstance(detail, UserspaceDetail):
            continue
        job.gave_up_us = _earlier(job.gave_up_us, at)
        job.began_us = _earlier(job.began_us, at - waited_s(detail) * 1e6)
    return job


def _collectives(case: Case) -> dict[tuple[object, ...], float | None]:
    """What its ranks waited for, with the first time; only what a number and an operation make known."""
    found: dict[tuple[object, ...], float | None] = {}
    for event, _ in _timeouts(case):
        detail = event.detail
        if isinstance(detail, UserspaceDetail) and detail.seq is not None and detail.op is not None:
            key = (detail.seq, detail.op, detail.timeout_ms)
            at = event.record.wall_us
            found[key] = _earlier(found.get(key), float(at) if at is not None else None)
    return found


# what may have begun it


def _causes(correlator: Correlator, ups: _Ups) -> Iterator[_Cause]:
    for case in correlator.cases:
        folds = [fold.finding for fold in case.folds.values() if fold.finding.event.kind != "nccl_timeout"]
        able = [(at, strong) for finding in folds for at, strong in [_able(finding.event, finding.rule)] if at is not None]
        if able:
            at = min(at for at, _ in able)
            certain = any(finding.event.kind in GPU_KINDS and _kept_from_work(finding.event, finding.rule) for finding in folds)
            yield _Cause(at, case.host, any(strong for _, strong in able), certain, case=case)
    for context in correlator.context:
        logged_us = context.record.wall_us
        if logged_us is None or context.record.glued or context.kind not in ("link_down", "panic", "nccl_network_error"):
            continue
        host = correlator.host_of(context.record)
        if context.kind == "link_down" and (is_virtual(context) or _down_us(ups, host, context) is not None):
            continue
        yield _Cause(float(logged_us), host, not is_ordinary(context), context.kind == "panic", context=context)


def _able(event: Event, rule: Rule) -> tuple[float | None, bool]:
    """When it may have kept a rank from its work, None if it cannot; and whether it certainly did so to some program."""
    at = event.record.wall_us
    if at is None or event.record.glued or rule.context:
        return None, False
    detail = event.detail
    if isinstance(detail, HungTaskDetail):
        return at - (detail.blocked_s or 0) * 1e6, True
    possible = event.kind in (*_STUCK, *_PROGRAMS) or (event.kind in GPU_KINDS and rule.rank > LEAST_CAUSE)
    return (float(at) if possible else None), _kept_from_work(event, rule)


def _kept_from_work(event: Event, rule: Rule) -> bool:
    """Whether some program certainly stopped: the GPU is lost or needs a reset, or a task or a CPU was stuck."""
    if event.record.glued or rule.context:
        return False
    if event.kind in GPU_KINDS:
        return rule.rank > LEAST_CAUSE and (rule.lost or RUNGS.index(rule.recovery) > RUNGS.index("restart_app"))
    return event.kind in _STUCK and event.kind != "oom_kill"


def _only_one(correlator: Correlator) -> _Cause | None:
    """The only fault that certainly stopped a program, for where times cannot tell: one of several would be a guess."""
    strong = [
        case for case in correlator.cases
        if any(_kept_from_work(fold.finding.event, fold.finding.rule) for fold in case.folds.values())
    ]  # fmt: skip
    return _Cause(0.0, strong[0].host, strong=True, case=strong[0]) if len(strong) == 1 else None


def _zone_apart(job: _Job, cause: _Cause) -> bool:
    """Whether a program of the same node writes local time: whole hours lie between its waiting and the fault."""
    fault = cause.case.first.record if cause.case is not None else None
    unsaid = all(event.record.utc_offset_s is None for case in job.cases for event, _ in _timeouts(case))
    at_home = any(case.host == cause.host for case in job.cases)
    if fault is None or fault.wall_us is None or job.began_us is None or not unsaid or not at_home:
        return False
    gap = (job.began_us - fault.wall_us) / 1e6
    return hours_apart(gap) is not None


def _came_up(correlator: Correlator) -> _Ups:
    ups: _Ups = {}
    for context in correlator.context:
        if context.kind == "link_up" and context.record.wall_us is not None:
            ups.setdefault((correlator.host_of(context.record), interface_of(context)), []).append(context.record.wall_us)
    return {place: sorted(times) for place, times in ups.items()}


def _down_us(ups: _Ups, host: str, context: Context) -> int | None:
    """How long it was down, where it came back within a second or two: a link that was brought up, not one that was lost."""
    times, down_us = ups.get((host, interface_of(context)), ()), context.record.wall_us or 0
    place = bisect_left(times, down_us)
    return times[place] - down_us if place < len(times) and times[place] - down_us <= _FLAP_US else None


def _blinks(correlator: Correlator, ups: _Ups) -> list[tuple[Context, float]]:
    """Links that went down and were back at once, with the seconds between."""
    downs = [context for context in correlator.context if context.kind == "link_down" and context.record.wall_us is not None]
    return [
        (context, lasted_us / 1e6) for context in downs if not context.record.glued and not is_virtual(context)
        and (lasted_us := _down_us(ups, correlator.host_of(context.record), context)) is not None
    ]  # fmt: skip


def _note_blinks(correlator: Correlator, job: _Job, into: Case, blinks: Sequence[tuple[Context, float]]) -> None:
    """Links that blinked about when the ranks began to wait stand in the picture, and why they are not the cause."""
    for context, lasted_s in blinks:
        at = context.record.wall_us
        if job.began_us is None or at is None or abs(at - job.began_us) > (_WEAK_S + SKEW_S) * 1e6:
            continue
        if len(into.flaps) < _MOST_SHOWN:
            into.flaps[correlator.host_of(context.record), interface_of(context)] = lasted_s
            if context not in into.context:
                into.context.append(context)


def _likeliest(job: _Job, causes: Sequence[_Cause], times: Sequence[float]) -> _Cause | None:
    """The cause nearest to the moment at which the ranks began to wait; one on a node of the job's own counts as nearer.

    Nearness within what clocks may differ by tells nothing: there a lost GPU, which stops a rank for certain, goes before a
    link, which may carry nothing of the job's.
    """
    fitting, began, hosts = _fitting(job, causes, times), job.began_us or 0.0, {case.host for case in job.cases}
    nearest = min(fitting, key=lambda cause: _distance_s(cause, began, hosts), default=None)
    if nearest is None or nearest.context is None or nearest.certain:
        return nearest
    surer = [cause for cause in fitting if cause.certain and _as_near(cause, nearest, began)]
    return min(surer, key=lambda cause: _distance_s(cause, began, hosts), default=nearest)


def _as_near(cause: _Cause, nearest: _Cause, began_us: float) -> bool:
    """Whether clocks that differ may have made the other one seem nearer."""
    return min(abs(cause.at_us - nearest.at_us), abs(cause.at_us - began_us)) <= SKEW_S * 1e6


def _fitting(job: _Job, causes: Sequence[_Cause], times: Sequence[float]) -> list[_Cause]:
    if job.began_us is None or job.gave_up_us is None:
        return []
    first = bisect_left(times, job.began_us - _EARLY_S * 1e6)
    last = bisect_right(times, min(job.began_us + (_LATE_S + SKEW_S) * 1e6, job.gave_up_us + SKEW_S * 1e6))
    hosts = {case.host for case in job.cases}
    return [cause for cause in causes[first:last] if _fits(cause, job, hosts)]


def _rivals(chosen: _Cause, job: _Job, causes: Sequence[_Cause], times: Sequence[float]) -> list[_Cause]:
    """What may as well have begun it: a lost GPU elsewhere, or a link of the job's, as near as the lost GPU that was chosen."""
    if not chosen.certain:
        return []
    hosts = {case.host for case in job.cases}
    able = [
        cause for cause in _fitting(job, causes, times)
        if cause is not chosen and abs(cause.at_us - chosen.at_us) <= SKEW_S * 1e6
        and (cause.certain or (cause.strong and cause.context is not None and cause.context.kind == "link_down"))
        and (cause.host in hosts or chosen.host not in hosts)
    ]  # fmt: skip
    return list({(cause.host, cause.certain): cause for cause in reversed(able)}.values())[::-1][:_MOST_SHOWN]


def _head(case: Case | None) -> Event:
    """The fault that a case is about: the one furthest upstream."""
    assert case is not None
    return max((fold.finding for fold in case.folds.values()), key=lambda finding: finding.rule.rank).event


def _distance_s(cause: _Cause, began_us: float, hosts: set[str]) -> float:
    away = abs(cause.at_us - began_us) / 1e6
    return away + (0.0 if cause.strong else _WEAK_S) - (_HOME_S if cause.host in hosts else 0.0)


def _fits(cause: _Cause, job: _Job, hosts: set[str]) -> bool:
    if cause.context is not None and cause.context.kind == "nccl_network_error":
        return cause.host in hosts
    if cause.strong or any(cause.case is case for case in job.cases):
        return True
    if abs(cause.at_us - (job.began_us or 0.0)) > (_WEAK_S + SKEW_S) * 1e6:
        return False
    events = [fold.finding.event for fold in cause.case.folds.values()] if cause.case is not None else []
    return cause.case is None or any(event.kind not in _PROGRAMS or _of_the_job(event, job) for event in events)


def _of_the_job(event: Event, job: _Job) -> bool:
    """A program's own error: in the job's own log, or of a rank that has not reported."""
    detail = event.detail
    if event.record.stream in job.streams:
        return True
    return isinstance(detail, UserspaceDetail) and detail.rank is not None and detail.rank not in job.ranks


# putting together


def _put_together(correlator: Correlator, job: _Job, cause: _Cause | None) -> Case:
    into = cause.case if cause is not None and cause.case is not None else None
    job.cases.sort(key=lambda case: case.order)
    pure = [case for case in job.cases if case is not into and not _explained(case)]
    if into is None:
        into = pure.pop(0) if pure else job.cases[0]
    for case in pure:
        correlator.merge(into, case)
    if cause is not None and cause.context is not None and not _explained(into):
        together = _together(correlator, cause.context, cause.host)
        into.cause = together[0]
        into.context[:0] = [context for context in together if context not in into.context]
        if cause.host and cause.host != into.host:
            into.hosts[cause.host] = None
    if len({into.host, *into.hosts}) > 1:
        into.clock_spread_s = job.spread_us / 1e6
    return into


def _together(correlator: Correlator, cause: Context, host: str) -> list[Context]:
    """The cause with its like on the same node within moments, the first one first: a port and the interface above it."""
    near = [
        context for context in correlator.context
        if context.kind == cause.kind and correlator.host_of(context.record) == host and not context.record.glued
        and not is_virtual(context) and is_ordinary(context) <= is_ordinary(cause)
        and abs((context.record.wall_us or 0) - (cause.record.wall_us or 0)) <= _MOMENTS_S * 1e6
    ]  # fmt: skip
    return sorted(near, key=lambda context: context.record.wall_us or 0)[:_MOST_SHOWN]


def _explained(case: Case) -> bool:
    """Whether something in it may have begun a time-out: more than time-outs and what a dying program leaves (Xid 45)."""
    return any(_able(fold.finding.event, fold.finding.rule)[0] is not None for fold in case.folds.values())
