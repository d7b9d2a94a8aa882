"""Is it fit: the judgments that take time, or a machine nobody has at hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xidwatch.core.fitness import Finding, Fitness, judge_fitness, judge_strictly
from xidwatch.core.node import BusGpu, Daemon, DaemonSource, Gpu, Node, Tree
from xidwatch.core.remark import Remark

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
