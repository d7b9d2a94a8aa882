"""What the GPUs say, as series of the metrics. Pure: only what a GPU told now has a series, the rest is absent."""

from __future__ import annotations

from collections.abc import Mapping

from xidwatch.core.answered import RECOVERY_ACTIONS
from xidwatch.core.gpu import Driver, DriverAnswer, GpuAnswer, GpuState, RowRemap, SpareRows
from xidwatch.core.pci import PciAddress
from xidwatch.core.regime import look
from xidwatch.sinks.history import TotalKey

_NO_THROTTLE = frozenset({"idle", "applications_clocks", "display_clocks"})
"""Clock reasons that are somebody's choice."""


def readings(gpus: Mapping[PciAddress, GpuAnswer], driver: DriverAnswer | None = None) -> dict[TotalKey, float]:
    """Series of `xidwatch_gpu_info`, `_gpus`, `_driver_recovery_action`, `_regime`, of memory and of clocks.

    The memory errors of a GPU that is silent now are told as they were last, since a total never falls.
    Without an answer by NVML as a whole, how many GPUs it knows is unknown.
    """
    series: dict[TotalKey, float] = {}
    for pci, answer in gpus.items():
        if isinstance(answer, GpuState):
            series |= _state(str(pci), answer, _text(driver.driver_version) if isinstance(driver, Driver) else "")
        elif answer.last_good is not None:
            series |= _ecc(str(pci), answer.last_good)
    if isinstance(driver, Driver):
        series["xidwatch_gpus", (("source", "nvml"),)] = sum(isinstance(answer, GpuState) for answer in gpus.values())
    return series


def _state(gpu: str, state: GpuState, driver_version: str) -> dict[TotalKey, float]:
    card = state.identity
    info = (
        ("gpu", gpu), ("uuid", _text(card.gpu_uuid)), ("index", str(card.index)), ("name", _text(card.name)),
        ("serial", _text(card.serial)), ("driver_version", driver_version),
    )  # fmt: skip
    series: dict[TotalKey, float] = {("xidwatch_gpu_info", info): 1.0, **_ecc(gpu, state)}
    if isinstance(state.recovery_action, int) and 0 <= state.recovery_action < len(RECOVERY_ACTIONS):
        action = (("gpu", gpu), ("action", RECOVERY_ACTIONS[state.recovery_action]), ("source", "nvml"))
        series["xidwatch_driver_recovery_action", action] = 1.0
    if isinstance(state.row_remap, RowRemap):
        series["xidwatch_row_remap_pending", (("gpu", gpu),)] = float(state.row_remap.pending)
        series["xidwatch_row_remap_failure", (("gpu", gpu),)] = float(state.row_remap.failed)
    if isinstance(state.spare_rows, SpareRows):
        for left, banks in (("none", state.spare_rows.none), ("one", state.spare_rows.low)):
            if banks:
                series["xidwatch_memory_banks", (("gpu", gpu), ("spare_rows", left))] = float(banks)
    series["xidwatch_regime", (("gpu", gpu), ("regime", look(state).regime))] = 1.0
    if isinstance(state.clock_reasons, tuple):
        for reason in state.clock_reasons:
            if reason not in _NO_THROTTLE:
                series["xidwatch_throttle_active", (("gpu", gpu), ("reason", reason))] = 1.0
    return series


def _ecc(gpu: str, state: GpuState) -> dict[TotalKey, float]:
    return {
        ("xidwatch_ecc_errors_total", (("gpu", gpu), ("kind", f"{one.lifetime}_{one.severity}"))): float(one.count)
        for one in state.ecc
        if one.location == "total"
    }


def _text(value: object) -> str:
    """A label's text; "" is Prometheus' own word for a label that is not there."""
    return value if isinstance(value, str) else ""
