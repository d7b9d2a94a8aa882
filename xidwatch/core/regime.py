"""What bound a GPU's work when it was last looked at: memory, arithmetic, the host, nothing, or a wait that burns cycles.

A sample is not a profile. The thresholds are round numbers between what the cases show; where the figures fit none,
the regime is unknown, and the figures stand beside every answer.

Source: nvml.h (nvmlUtilization_t, NVML_GPM_METRIC_*): utilisation is the share of time in which some kernel ran, whatever it
did, so a collective that polls for its peers counts as 100 %. Only power, or GPM's activity of tensor cores and DRAM, tells
it from work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from xidwatch.core.correlate import REGIME_S
from xidwatch.core.gpu import Activity, GpuState, Mig, Utilization

Regime = Literal["memory_bound", "compute_bound", "overhead_bound", "spinning", "idle", "unknown"]

_IDLE, _ALWAYS = 0.05, 0.95
"""Shares of time in which a kernel ran."""
_NEAR_ROOF = 0.4
"""Share of the peak of DRAM or tensor cores from which it is what binds; real kernels seldom pass 0.8."""
_BUSY_MEMORY, _BUSY = 0.4, 0.7
"""Without GPM: shares of time in which memory was read or written, and in which a kernel ran."""
_WORKING_WATTS, _WAITING_WATTS = 0.8, 0.35
"""Shares of the power limit: arithmetic draws more than the first, polling less than the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One sample, judged.

    Attributes:
        at_us: Wall clock of the sample.
        why: The figures that decided, for a person.
    """

    at_us: int
    regime: Regime
    why: str


@dataclass(frozen=True, slots=True)
class _Figures:
    busy: float
    memory: float
    power: float | None
    activity: Activity | None
    capped: bool
    said: str


def look(state: GpuState) -> Look:
    """What bound the GPU's work in this sample."""
    figures = _figures(state)
    if isinstance(figures, str):
        return Look(at_us=state.at_us, regime="unknown", why=figures)
    return Look(at_us=state.at_us, regime=_judged(figures), why=figures.said)


def latest_before(looks: Iterable[Look], fault_us: int) -> Look | None:
    """The last look before a fault, None when there is none that is fresh enough."""
    before = [one for one in looks if 0 <= fault_us - one.at_us <= REGIME_S * 1e6]
    return max(before, key=lambda one: one.at_us, default=None)


def _figures(state: GpuState) -> _Figures | str:
    """The figures, or why there are none."""
    if isinstance(state.mig, Mig) and state.mig.enabled:
        return "MIG is on: the card's own figures say nothing about one instance"
    if not isinstance(state.utilization, Utilization):
        return "NVML gives no utilisation"
    activity = state.activity if isinstance(state.activity, Activity) else None
    watts = state.power_watts if isinstance(state.power_watts, float) else None
    limit = state.power_limit_watts if isinstance(state.power_limit_watts, float) else None
    said = [f"utilisation {state.utilization.gpu_ratio:.0%}"]
    if activity is not None:
        said += [f"tensor cores {activity.tensor_ratio:.0%}", f"DRAM {activity.dram_ratio:.0%} of their peaks"]
    else:
        said.append(f"memory busy {state.utilization.memory_ratio:.0%}")
    if watts is not None:
        said.append(f"{watts:.0f}{f' of {limit:.0f}' if limit else ''} W")
    return _Figures(
        busy=state.utilization.gpu_ratio,
        memory=state.utilization.memory_ratio,
        power=watts / limit if watts is not None and limit else None,
        activity=activity,
        capped=isinstance(state.clock_reasons, tuple) and "sw_power_cap" in state.clock_reasons,
        said=", ".join(said),
    )


def _judged(figures: _Figures) -> Regime:
    if figures.busy <= _IDLE:
        return "idle"
    return _by_utilization(figures) if figures.activity is None else _by_activity(figures, figures.activity)


def _by_activity(figures: _Figures, activity: Activity) -> Regime:
    """With GPM: the roof that is nearer binds."""
    nearer = max(activity.dram_ratio, activity.tensor_ratio)
    if nearer >= _NEAR_ROOF:
        return "memory_bound" if activity.dram_ratio >= activity.tensor_ratio else "compute_bound"
    if nearer <= _IDLE and _polls(figures):
        return "spinning"
    # Arithmetic outside the tensor cores: every SM is busy, at the power of real work.
    if activity.sm_ratio >= _BUSY and (figures.capped or (figures.power or 0) >= _WORKING_WATTS):
        return "compute_bound"
    return "overhead_bound" if activity.sm_ratio < _BUSY else "unknown"


def _by_utilization(figures: _Figures) -> Regime:
    """Without GPM: times of activity and the power that it drew."""
    if figures.memory <= _IDLE and _polls(figures):
        return "spinning"
    if figures.busy < _BUSY:
        return "overhead_bound"
    if figures.memory >= _BUSY_MEMORY:
        return "memory_bound"
    return "compute_bound" if figures.capped or (figures.power or 0) >= _WORKING_WATTS else "unknown"


def _polls(figures: _Figures) -> bool:
    return figures.busy >= _ALWAYS and figures.power is not None and figures.power <= _WAITING_WATTS
