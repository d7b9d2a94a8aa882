"""Slow or hung: a wait that the log tells of, set against the least time that the workload's largest step can take."""

from __future__ import annotations

from dataclasses import replace

from xidwatch.core.event import Event, HungTaskDetail, LockupDetail, UserspaceDetail
from xidwatch.core.floor import SLOW_FACTOR, Floor, judge_stall, largest_step
from xidwatch.core.incident import Incident


def with_floor(incident: Incident, floor: Floor | None) -> Incident:
    """The incident with what the floor says of its longest wait: a slow kernel ruled out, or not.

    Waits that are known to be for storage or the network have nothing to do with a kernel on the GPU.
    """
    waited_s = max((_waited_s(member.last) for member in incident.members), default=0.0)
    if floor is None or not waited_s:
        return incident
    said = judge_stall(waited_s, floor)
    if waited_s >= SLOW_FACTOR * largest_step(floor).seconds:
        return replace(incident, excluded=(*incident.excluded, f"a slow kernel: {said}"))
    return replace(incident, unknowns=(*incident.unknowns, f"whether it is only slow: {said}"))


def _waited_s(event: Event) -> float:
    """How long something waited for the GPU, in seconds; 0 when the event tells of no such wait."""
    match event.detail:
        case HungTaskDetail(blocked_s=int(seconds), attribution="gpu" | "unknown"):
            return seconds
        case LockupDetail(stuck_s=int(seconds), gpu_related=True):
            return seconds
        case UserspaceDetail(ran_ms=int(milliseconds)) if event.kind == "nccl_timeout":
            return milliseconds / 1000
    return 0.0
