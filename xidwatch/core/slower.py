"""What makes a GPU slower without being a fault: its own brakes, NVLinks that are down, a narrow PCIe link. Words for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xidwatch.core.node import Gpu

_WIDEST = 32
"""Lanes of a PCIe link; a lost device reads 63."""
_BRAKES = {
    "hw_thermal": "too hot",
    "hw_power_brake": "power brake asserted from outside (power supply or chassis)",
    "hw_slowdown": "temperature, power or the chassis asks for it",
}


def slowdown_text(gpu: Gpu) -> str | None:
    """`slowed down by its hardware: too hot (91 °C)`; None when it is not, or not known to be.

    Same as: nvidia-smi -q -d PERFORMANCE, "HW Slowdown".
    """
    if not gpu.slowed_by:
        return None
    named = [reason for reason in gpu.slowed_by if reason != "hw_slowdown"] or gpu.slowed_by
    heat = f" ({gpu.temperature_celsius} °C)" if gpu.temperature_celsius is not None else ""
    return f"slowed down by its hardware: {', '.join(_BRAKES[reason] for reason in named)}{heat}"


def links_down(gpu: Gpu, peers: Iterable[Gpu]) -> tuple[int, ...]:
    """Numbers of its NVLinks that are down and should not be: others on the node have more that are up.

    Links that no bridge joins are down on all GPUs alike, and a card without any bridge has none up: neither is a fault. With
    an NVLink fabric a card without any link up is one. MIG takes links down.
    """
    if not gpu.nvlinks_down or gpu.mig_enabled:
        return ()
    up = _up(gpu)
    if not up and gpu.fabric in (None, "not_supported"):
        return ()
    return gpu.nvlinks_down if up < max(map(_up, peers), default=0) else ()


def links_text(links: Sequence[int], of: int | None) -> str:
    """`NVLink 2 is down`, `2 of 18 NVLinks are down: 2, 3`."""
    if len(links) == 1:
        return f"NVLink {links[0]} is down"
    return f"{len(links)}{f' of {of}' if of else ''} NVLinks are down: {', '.join(map(str, links))}"


def lanes_text(width: int | None, most: int | None) -> str | None:
    """`x8 of x16`; None where the PCIe link is as wide as card and slot allow, or it is not known."""
    return f"x{width} of x{most}" if width and most and width < most <= _WIDEST else None


def _up(gpu: Gpu) -> int:
    return (gpu.nvlinks or 0) - len(gpu.nvlinks_down or ())
