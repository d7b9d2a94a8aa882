"""What the daemon makes of the GPUs' word, from their first sample to its own restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.nvml.staged import staged, write_scenario


def answering(state: dict[str, Any]) -> int:
    """How many GPUs told their state."""
    return sum(gpu["answer"] == "state" for gpu in state["gpus"])


def test_a_card_that_is_absent_at_the_next_start_is_missed(tmp_path: Path) -> None:
    """A card seen by an earlier run and gone at the start of this one is missing by slot, serial and UUID, until it is accepted."""
    write_scenario(tmp_path, "healthy")
    with staged(tmp_path) as first:
        first.wait(lambda state: answering(state) == 8)
    write_scenario(tmp_path, "gone")
    with staged(tmp_path) as second:
        (missing,) = second.wait(lambda state: [gpu for gpu in state["gpus"] if gpu["missing"]])
        assert ("0000:df:00.0", "1652923000107", False) == (missing["pci"], missing["serial"], missing["on_bus"])
        assert missing["gpu_uuid"] == "GPU-00000000-0000-4000-8000-000000000007"
        assert second.scrape().total("xidwatch_gpu_missing", gpu="0000:df:00.0") == 1
        said = second.command("status")
        assert (1, True) == (said.returncode, "MISSING" in said.stdout and "1652923000107" in said.stdout)
    with staged(tmp_path) as third:
        assert third.wait(lambda state: [gpu["pci"] for gpu in state["gpus"] if gpu["missing"]]) == ["0000:df:00.0"]
        assert third.command("gpus", "accept").returncode == 0
        third.wait(lambda state: not any(gpu["missing"] for gpu in state["gpus"]))
    with staged(tmp_path) as fourth:
        fourth.wait(lambda state: answering(state) == 7 and len(state["gpus"]) == 7)
