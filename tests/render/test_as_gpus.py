"""GPUs for a person: what is wrong, and nothing where nothing is."""

from __future__ import annotations

from typing import Any

from tests.nvml.states import HEALTHY
from xidwatch.core.census import Card, card_of, census, slot_object
from xidwatch.core.gpu import NotFound
from xidwatch.core.pci import PciAddress
from xidwatch.render.as_gpus import check_lines, gpu_lines, gpu_table

SLOT = PciAddress(0, 0x1B, 0)


def state(driver: str | None) -> dict[str, Any]:
    """state.json of a GPU that NVML does not know any more, bound to this driver."""
    slots = census({SLOT: driver}, {SLOT: NotFound(at_us=5, last_good=HEALTHY)}, {SLOT: card_of(HEALTHY) or Card()}, {})
    return {"time_us": 0, "gpus": [slot_object(slot) for slot in slots], "nvml": {}}


def test_one_that_a_guest_has_is_no_trouble() -> None:
    """Bound to vfio-pci it is told as that, and nothing is held against it; bound to nvidia it is missed."""
    assert "0000:1b:00.0  bound to vfio-pci" in gpu_table(state("vfio-pci"))
    assert "0000:1b:00.0" not in " ".join(gpu_lines(state("vfio-pci"), 0))
    assert "MISSING" in " ".join(gpu_lines(state("nvidia"), 0))


def test_the_summary_is_left_out_where_a_reading_says_the_same() -> None:
    """One line a reading; what is over is said to be; the driver's demand has a line of its own."""
    checks = [
        {"gpu": "a", "check": "gpu_not_found", "answer": "contradicted", "said": "a: back", "was": "confirmed"},
        {"gpu": "a", "check": "gpu_state", "answer": "contradicted", "said": "a: well"},
        {"gpu": "a", "check": "recovery_action", "answer": "confirmed", "said": "a: asks"},
        {"gpu": "b", "check": "gpu_state", "answer": "open", "said": "b: silent\x1b[31m"},
    ]
    lines = check_lines({"checks": checks, "driver_word": "asks more"})
    assert ["  The GPU: no longer: a: back", "  The GPU: open: b: silent"] == [line.split("\\x1b")[0] for line in lines]
