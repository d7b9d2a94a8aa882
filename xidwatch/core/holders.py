"""Who holds the GPUs, now and a moment ago: the pid in an Xid line is dead within milliseconds of being printed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from xidwatch.core.blocked import Moment
from xidwatch.core.job import Job

KEPT_S = 600.0
"""How long a dead one is remembered: the kernel reports a hung task two minutes late, a person asks later still."""
MOST = 4096
_SLACK_US = 2_000_000
"""How far the clocks of a log line and of a process's start may disagree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that has, or had, a GPU open, or that a line of the log named.

    Attributes:
        start: When it started, in clock ticks after boot: tells a reused pid.
        started_us: The same on the wall clock.
        comm: Its name, which it chooses itself.
        gpus: PCI addresses; empty when only the device files, or only a log line, told of it.
        devices: Device files that it holds open; None when they could not be read.
        dead_s, dead_us: When it was found gone (steady, wall clock); None while it lives.
    """

    pid: int
    start: int
    started_us: int
    comm: str
    job: Job | None = None
    gpus: tuple[str, ...] = ()
    devices: tuple[str, ...] | None = None
    dead_s: float | None = None
    dead_us: int | None = None


class Holders:
    """A rolling table; bounded in time and number."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Holder] = {}

    def living(self) -> list[Holder]:
        """Those not known to be dead, by pid."""
        return sorted((one for one in self._known.values() if one.dead_s is None), key=lambda one: one.pid)

    def keep(self, holder: Holder) -> None:
        """Enter one, or what is new of it; what an earlier entry knew and this one does not stays."""
        key = holder.pid, holder.start
        if (before := self._known.pop(key, None)) is not None:
            holder = replace(
                holder,
                job=holder.job or before.job,
                gpus=holder.gpus or before.gpus,
                devices=before.devices if holder.devices is None else holder.devices,
            )
        self._known[key] = holder
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]

    def knows_job(self, pid: int, start: int) -> bool:
        """Whether it is known whose work this process is."""
        holder = self._known.get((pid, start))
        return holder is not None and holder.job is not None

    def died(self, pid: int, start: int, now: Moment) -> None:
        """It is gone."""
        if (holder := self._known.get((pid, start))) is not None and holder.dead_s is None:
            self._known[pid, start] = replace(holder, dead_s=now.steady_s, dead_us=now.wall_us)

    def forget(self, now_s: float) -> None:
        """Drop those that died long ago."""
        for key in [key for key, one in self._known.items() if one.dead_s is not None and now_s - one.dead_s > KEPT_S]:
            del self._known[key]

    def table(self) -> tuple[Holder, ...]:
        """All that are remembered, the living first."""
        return tuple(sorted(self._known.values(), key=lambda one: (one.dead_s is not None, one.pid, one.start)))


def who(holders: Iterable[Holder], pid: int, wall_us: int | None) -> Holder | None:
    """Who had this pid at that time; None when nobody known had. Without a time: who has it, or had it last."""
    fitting = [one for one in holders if one.pid == pid and (wall_us is None or _lived(one, wall_us))]
    return max(fitting, key=lambda one: one.start, default=None)


def sole_job(holders: Iterable[Holder], gpu: str, wall_us: int | None) -> Job | None:
    """The one job that had this GPU (PCI address) at that time; None where there was none, or more than one.

    Services of the node, such as monitors, hold every GPU and are nobody's work.
    """
    here = [one.job for one in holders if gpu in one.gpus and one.job and (wall_us is None or _lived(one, wall_us))]
    work = {job for job in here if job.slurm_job or job.pod or job.container}
    if len(work) > 1:
        work = {_without_part(job) for job in work}
    return work.pop() if len(work) == 1 else None


def _without_part(job: Job) -> Job:
    """The Slurm job without its step, the pod without its container."""
    if job.slurm_job:
        return replace(job, slurm_step=None, container=None, runtime=None)
    return replace(job, container=None, runtime=None, uid=None, user=None) if job.pod else job


def _lived(holder: Holder, wall_us: int) -> bool:
    ended_us = wall_us if holder.dead_us is None else holder.dead_us + _SLACK_US
    return holder.started_us - _SLACK_US <= wall_us <= ended_us


def with_gpus(holders: Iterable[Holder], by_minor: dict[int, str]) -> tuple[Holder, ...]:
    """The same with the slots that their device files (`/dev/nvidia3`) stand for, where NVML has not told."""
    return tuple(replace(one, gpus=_slots(one.devices, by_minor)) if one.devices and not one.gpus else one for one in holders)


def _slots(devices: tuple[str, ...], by_minor: dict[int, str]) -> tuple[str, ...]:
    numbers = [name.removeprefix("/dev/nvidia") for name in devices]
    return tuple(by_minor[int(text)] for text in numbers if text.isdecimal() and int(text) in by_minor)
