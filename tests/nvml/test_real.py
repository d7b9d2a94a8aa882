"""A real GPU, where there is one: `pytest -m gpu`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nvml.fake import children, sampled
from xidwatch.core.gpu import Driver, GpuState, Memory, Pcie
from xidwatch.nvml.client import NvmlClient

pytestmark = pytest.mark.gpu


def test_a_real_gpu_answers_and_is_let_go() -> None:
    """Every GPU tells who it is and how it is; afterwards no /dev/nvidia* is open."""
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
    assert [] == [where for where in held if where.startswith("/dev/nvidia")]
