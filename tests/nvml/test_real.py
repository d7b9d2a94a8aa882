"""A real GPU, where there is one: `pytest -m gpu`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.nvml.fake import children, sampled
from tests.nvml.recording import scenario
from xidwatch.core.gpu import Driver, GpuState, Memory, Pcie
from xidwatch.nvml.client import NvmlClient

pytestmark = pytest.mark.gpu


def test_a_real_gpu_answers_and_is_let_go(tmp_path: Path) -> None:
    """Every GPU tells who it is and how it is; afterwards no /dev/nvidia* is open. Its answers become a scenario.

    $XIDWATCH_RECORD names the folder where that is kept; without it, it goes with the test.
    """
    client = NvmlClient()
    node = sampled(client)
    held = [str(link.readlink()) for pid in children() for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    client.close()
    assert isinstance(node.driver, Driver)
    assert node.driver.gpu_count == len(node.gpus)
    for state in node.gpus.values():
        assert isinstance(state, GpuState)
        assert isinstance(state.memory, Memory) and isinstance(state.pcie, Pcie) and isinstance(state.temperature_celsius, int)
        assert str(state.identity.gpu_uuid).startswith("GPU-")
    folder = Path(os.environ.get("XIDWATCH_RECORD") or tmp_path)
    kept = folder / f"recorded-{node.driver.driver_version}.txt"
    kept.write_text(scenario(node, where=f"driver {node.driver.driver_version}"), encoding="utf-8")
    assert f"count {node.driver.gpu_count}" in kept.read_text(encoding="utf-8").splitlines()
    assert [] == [where for where in held if where.startswith("/dev/nvidia")]
