"""What GPUs tell, as series."""

from __future__ import annotations

from dataclasses import replace

from tests.nvml.states import HEALTHY
from xidwatch.core.gpu import SpareRows
from xidwatch.sinks.gpu_readings import readings


def test_banks_near_their_end_have_a_series() -> None:
    """Banks with one spare row left or none are counted; a GPU without such banks, or that does not tell, has no series."""

    def banks(low: int, none: int) -> dict[str, float]:
        state = replace(HEALTHY, spare_rows=SpareRows(max=2550, high=9, partial=0, low=low, none=none))
        series = readings({state.identity.pci: state})
        return {
            dict(labels)["spare_rows"]: value for (name, labels), value in series.items() if name == "xidwatch_memory_banks"
        }

    assert ({"one": 3.0, "none": 1.0}, {"one": 1.0}, {}) == (banks(3, 1), banks(1, 0), banks(0, 0))
    assert not [name for name, _ in readings({HEALTHY.identity.pci: HEALTHY}) if name == "xidwatch_memory_banks"]
