"""Is it fit: the judgments that take time, or a machine nobody has at hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from xidwatch.core.fitness import Finding, Fitness, judge_fitness, judge_strictly
from xidwatch.core.node import BusGpu, Daemon, DaemonSource, Gpu, Node, Tree
from xidwatch.core.remark import Remark
from xidwatch.core.remarks import remarks_on

NOW_US = 1_796_000_000_000_000
SLOT = "0000:1b:00.0"
NODE = Node(now_us=NOW_US, host="node1", tree=Tree(), bus=(BusGpu(pci=SLOT, driver="nvidia"),), nvml="asked",
            gpus=(Gpu(pci=SLOT, answer="state"),))  # fmt: skip
DAEMON = Daemon(age_s=1.0, sources=(DaemonSource(name="kmsg", up=True),), nvml_asks=True, nvml_up=True)


def silent(since_s: float | None) -> tuple[Gpu, ...]:
    """One GPU that has not answered for so long."""
    return (Gpu(pci=SLOT, answer="unresponsive", since_us=None if since_s is None else NOW_US - round(since_s * 1e6)),)


@pytest.mark.parametrize(
    ("node", "verdict"),
    [
        (replace(NODE, nvml="blocked", gpus=silent(3600)), "not_fit"),
        (replace(NODE, nvml="blocked", gpus=silent(20)), "not_known"),
        (replace(NODE, nvml="blocked", gpus=silent(None)), "not_known"),
        (replace(NODE, nvml="silent", gpus=silent(3600)), "not_known"),
        (replace(NODE, nvml="daemon", daemon=DAEMON, gpus=silent(61)), "not_fit"),
        (replace(NODE, nvml="daemon", daemon=DAEMON, gpus=silent(59)), "not_known"),
    ],
)
def test_silence_becomes_a_fault_with_time(node: Node, verdict: str) -> None:
    """A minute of silence that somebody has witnessed is a fault; the time of one question of ours is not."""
    assert verdict == judge_fitness(node).verdict


@pytest.mark.parametrize("nvml", ["released", "off", "asleep"])
def test_a_daemon_that_reads_the_log_is_enough(nvml: str) -> None:
    """Without NVML's word the daemon's still says that nothing happened; without both nobody can say it."""
    node = replace(NODE, nvml=nvml, gpus=())  # type: ignore[arg-type]  # one of its words
    assert "fit" == judge_fitness(replace(node, daemon=DAEMON)).verdict
    assert "not_known" == judge_fitness(node).verdict


def test_a_known_fault_weighs_more_than_a_doubt() -> None:
    """One GPU lost and one that does not answer: not fit, and the doubt is told beside it."""
    found = judge_fitness(replace(NODE, gpus=(Gpu(pci="0000:43:00.0", answer="lost"), *silent(None))))
    assert ("not_fit", ["gpu_lost"], ["gpu_unresponsive"]) == (
        found.verdict, [one.id for one in found.reasons], [one.id for one in found.unknowns],
    )  # fmt: skip


def test_a_fault_that_the_site_counts_as_one() -> None:
    """A warning takes the node out of service where the site says so."""
    node = replace(NODE, gpus=(Gpu(pci=SLOT, answer="state", row_remap_pending=True),))
    assert "fit" == judge_fitness(node).verdict
    assert "not_fit" == judge_fitness(node, warnings_count=True).verdict


def test_strictly() -> None:
    """A remark or a warning is a reason; without either nothing changes."""
    fit = Fitness(verdict="fit", summary="8 GPUs")
    remark = Remark(id="sysrq", what="kernel.sysrq is 0", why="", command="")
    assert fit == judge_strictly(fit, ())
    assert "set-up: sysrq" == judge_strictly(fit, (remark,)).reasons[0].short
    warned = replace(fit, warnings=(Finding(id="incident", short="x", what="x"),))
    assert ("not_fit", ()) == (judge_strictly(warned, ()).verdict, judge_strictly(warned, ()).warnings)


def linked(down: tuple[int, ...], pci: str = SLOT, **more: Any) -> Gpu:
    """One GPU with 18 NVLinks, some of them down."""
    return Gpu(pci=pci, answer="state", nvlinks=18, nvlinks_down=down, **more)


@pytest.mark.parametrize(
    ("gpus", "warned"),
    [
        ((linked(()), linked((2,), "0000:43:00.0")), ["nvlink_down"]),
        ((linked(()), linked(tuple(range(18)), "0000:43:00.0", fabric="completed")), ["nvlink_down"]),
        ((linked(()), linked(tuple(range(18)), "0000:43:00.0", fabric="not_supported")), []),
        ((linked(()), linked((2,), "0000:43:00.0", mig_enabled=True)), []),
        ((linked((2, 3)), linked((2, 3), "0000:43:00.0")), []),
        ((linked((2,)),), []),
        ((Gpu(pci=SLOT, answer="state", slowed_by=("hw_thermal", "hw_slowdown"), temperature_celsius=91),), ["slowdown"]),
        ((Gpu(pci=SLOT, answer="state", slowed_by=("hw_power_brake",)),), ["slowdown"]),
        ((Gpu(pci=SLOT, answer="state", slowed_by=(), temperature_celsius=91),), []),
    ],
)
def test_what_makes_it_slow_is_a_warning(gpus: tuple[Gpu, ...], warned: list[str]) -> None:
    """A hardware brake, and NVLinks down while others' are up, are told and leave the node fit; links without a bridge are not."""
    found = judge_fitness(replace(NODE, gpus=gpus))
    assert ("fit", warned) == (found.verdict, [one.id for one in found.warnings])


def test_the_width_of_the_link_by_nvmls_word() -> None:
    """Where sysfs does not tell the lanes, NVML's reading does."""
    narrow = replace(NODE, gpus=(Gpu(pci=SLOT, answer="state", pcie_width=8, pcie_max_width=16),))
    assert [f"PCIe link narrower than the card: {SLOT} x8 of x16"] == [
        one.what for one in remarks_on(narrow) if one.id == "pcie_width"
    ]
