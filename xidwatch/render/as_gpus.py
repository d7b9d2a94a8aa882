"""The GPUs of a node, as state.json has them, for a person: what is wrong first, which card it is, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xidwatch.core.answered import worth_telling
from xidwatch.core.census import banks_text
from xidwatch.core.daemonstate import read_gpu, stuck_s
from xidwatch.core.node import Gpu
from xidwatch.core.slower import lanes_text, links_down, links_text, slowdown_text
from xidwatch.render.layout import visible

_SILENT = {
    "lost": "NVML has lost it",
    "reset_required": "NVML says that it must be reset",
    "unresponsive": "does not answer NVML",
    "not_found": "NVML does not find it",
    "unknown_error": "fails at every question of NVML's",
}


def gpu_lines(state: Mapping[str, Any], now_us: int) -> list[str]:
    """Lines for `status`: only GPUs with something to say, and how many there are; none on a machine without."""
    gpus = state.get("gpus") or []
    lines = []
    for gpu, troubles in _troubled(gpus):
        if troubles:
            lines.append(f"GPU {gpu['pci']}  {'; '.join(troubles)}")
            lines.append(f"  {_card(gpu)}")
    if unnamed := state.get("missing_without_a_name"):
        lines.append(f"{unnamed} GPU{'s' if unnamed != 1 else ''} fewer than the configuration expects, in slots never seen")
    if gpus and not lines:
        answering = sum(gpu["answer"] == "state" for gpu in gpus)
        lines.append(f"{len(gpus)} GPUs on the bus, {answering} answer NVML, none missing")
    if missing := [gpu["pci"] for gpu in gpus if gpu["missing"]]:
        lines.append(f"  taken out on purpose? xidwatch gpus accept  # then {_these(missing)} no longer missed")
    way = state.get("nvml") or {}
    if way.get("released"):
        lines.append("NVML is released: no GPU is asked until `xidwatch nvml resume`")
    elif silent_s := stuck_s(way, (now_us - state["time_us"]) / 1e6):
        lines.append(f"NVML has not answered for {silent_s:.0f} s: {visible(str(way.get('why') or 'no reason known'))}")
    elif way.get("up") is False:
        lines.append(f"NVML does not answer: {visible(str(way.get('why') or 'no reason known'))}")
    return ["", *lines] if lines else []


def check_lines(incident: Mapping[str, Any]) -> list[str]:
    """Lines for an incident in `status`: what its GPUs say of it."""
    shown = worth_telling(incident.get("checks") or [], driver_told=bool(incident.get("driver_word")))
    return [f"  The GPU: {word}: {visible(check['said'])}" for word, check in shown]


def gpu_table(state: Mapping[str, Any]) -> list[str]:
    """Every GPU in two lines, for `xidwatch gpus`."""
    lines = []
    for gpu, troubles in _troubled(state.get("gpus") or []):
        lines.append(f"{gpu['pci']}  {'; '.join(troubles) or _well(gpu)}")
        lines.append(f"  {_card(gpu)}")
    return lines or ["no NVIDIA GPU is on the bus, and none was seen before"]


def is_missing_any(state: Mapping[str, Any]) -> bool:
    """Whether a GPU is missing that should be there."""
    return bool(state.get("missing_without_a_name")) or any(gpu.get("missing") for gpu in state.get("gpus") or [])


def _troubled(gpus: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], list[str]]]:
    """Each GPU with what is wrong with it."""
    cards = [read_gpu(gpu) for gpu in gpus]
    return ((gpu, [*_troubles(gpu), *_slower(card, cards)]) for gpu, card in zip(gpus, cards, strict=True))


def _troubles(gpu: Mapping[str, Any]) -> Iterator[str]:
    if gpu["missing"]:
        yield "MISSING: " + (
            "it is not on the PCI bus" if not gpu["on_bus"] else "it is on the bus, and the driver does not know it"
        )
    elif gpu["answer"] in _SILENT and gpu["driver"] in ("nvidia", None):
        dead = ", its PCI config space reads all ones" if gpu.get("config_space_dead") else ""
        yield f"{_SILENT[gpu['answer']]}{dead}"
    if gpu["row_remap_failed"]:
        yield "a row could not be remapped: field diagnostic, then RMA"
    elif gpu["row_remap_pending"]:
        yield "memory waits to be repaired: drain, then reset"
    if gpu["pages_pending"]:
        yield "memory pages wait to be retired: drain, then reset"
    if gpu["sram_threshold_exceeded"]:
        yield "SRAM error threshold exceeded: field diagnostic"
    banks = gpu.get("banks_without_spare_rows") or {}
    if banks.get("none_left") or banks.get("one_left"):
        yield banks_text(banks["none_left"], banks["one_left"])
    if gpu["recovery_action"] not in (None, "none"):
        yield f"the driver asks: {gpu['recovery_action'].replace('_', ' ')}"
    if gpu["mig_pending"] is not None and gpu["mig_pending"] != gpu["mig_enabled"]:
        yield f"MIG will be {'on' if gpu['mig_pending'] else 'off'} after a reset"


def _slower(own: Gpu, all_: Sequence[Gpu]) -> Iterator[str]:
    if slowed := slowdown_text(own):
        yield slowed
    if links := links_down(own, all_):
        yield links_text(links, own.nvlinks)
    if lanes := lanes_text(own.pcie_width, own.pcie_max_width):
        yield f"PCIe {lanes}"


def _well(gpu: Mapping[str, Any]) -> str:
    if gpu["answer"] == "state":
        return "answers NVML"
    driver = gpu["driver"]
    return (
        f"bound to {visible(str(driver))}" if driver not in (None, "nvidia") else "on the bus; NVML has not answered about it"
    )


def _card(gpu: Mapping[str, Any]) -> str:
    serial = f"serial {gpu['serial']}" if gpu["serial"] else None
    return (
        visible(", ".join(filter(None, (gpu["name"], serial, gpu["gpu_uuid"], gpu["place"]))))
        or "which card it is, nobody told"
    )


def _these(missing: list[str]) -> str:
    return f"{missing[0]} is" if len(missing) == 1 else f"these {len(missing)} are"
