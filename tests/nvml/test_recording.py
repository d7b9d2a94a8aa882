"""A recorded scenario answers as the GPUs did that it was recorded from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.nvml.fake import Fake, sampled
from tests.nvml.recording import scenario
from xidwatch.core.gpu import Activity, GpuState, NodeAnswer


@pytest.mark.parametrize(
    "name", ["healthy", "mig", "blackwell", "throttled", "remap_pending", "sram_threshold", "nvlink_down", "gpm", "old_driver"]
)
def test_recorded_answers_are_the_answers(fake: Fake, tmp_path: Path, name: str) -> None:
    """Every reading comes back; only what is masked and when it was read differ."""
    fake.use(name)
    with fake.client() as client:
        before = sampled(client)
        recorded = tmp_path / "recorded.txt"
        recorded.write_text(scenario(before, where="the fake"), encoding="ascii")
        fake.play(recorded)
        after = sampled(client)
    assert unmasked(before) == unmasked(after)


def unmasked(node: NodeAnswer) -> list[object]:
    """The readings without times and without what a recording masks; refusals by their kind."""
    shown: list[object] = []
    for _, state in sorted(node.gpus.items()):
        assert isinstance(state, GpuState)
        activity = replace(state.activity, over_s=0.0) if isinstance(state.activity, Activity) else None
        mig = getattr(state.mig, "devices", ())
        values = {name: getattr(state, name) for name in GpuState.__dataclass_fields__}
        for name in ("identity", "at_us", "activity", "mig", "gsp"):
            del values[name]
        shown.append([activity, [(one.gpu_instance, one.compute_instance) for one in mig], state.identity.name])
        shown.append({name: plain(value) for name, value in values.items()})
    return shown


def plain(value: object) -> object:
    """A refusal is compared by its kind, inside other values too."""
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    if hasattr(value, "__dataclass_fields__"):
        if hasattr(value, "code"):
            return type(value).__name__
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value
