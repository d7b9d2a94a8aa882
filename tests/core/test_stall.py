"""Slow or hung: what the workload's floor says of an incident's longest wait."""

from __future__ import annotations

from datetime import timezone
from pathlib import Path

import pytest

from tests.postmortems import FIXTURES
from xidwatch.config import Workload
from xidwatch.core.classify import RuleTable
from xidwatch.core.engine import Engine
from xidwatch.core.floor import Floor
from xidwatch.core.incident import Incident
from xidwatch.errors import XidwatchError
from xidwatch.explain import ExplainOptions, explain
from xidwatch.rulefiles import load_rules
from xidwatch.sources.logfile import LogInputs
from xidwatch.workload import read_workload

SERVED = Workload(params="70B", tp=8, prompt="32K", accelerator="H100 SXM")
SLOW = Workload(params="70B", tp=1, prompt="2000K", accelerator="T4")


def incidents(case: str, floor: Floor | None) -> tuple[Incident, ...]:
    """What `explain` makes of a shipped case."""
    return explain([str(FIXTURES / case / "input.log")], ExplainOptions(floor=floor), load_rules()).incidents


def test_two_minutes_are_no_slow_kernel() -> None:
    """A task stuck in the driver for 120 s: the largest step needs less than a second, so a slow kernel is ruled out."""
    (one,) = incidents("article_box", read_workload(SERVED).floor())
    (said,) = [text for text in one.excluded if text.startswith("a slow kernel: ")]
    assert "a prefill of 32,768 tokens" in said
    assert said.endswith("120 s is not a slow kernel")


def test_a_bare_line_is_enough(tmp_path: Path) -> None:
    """Without a stack, where nobody can say what the task waits for, the same is ruled out."""
    log = tmp_path / "kern.log"
    log.write_text("INFO: task python3:49112 blocked for more than 120 seconds.\n", encoding="ascii")
    (one,) = explain([str(log)], ExplainOptions(floor=read_workload(SERVED).floor()), load_rules()).incidents
    assert 1 == len([text for text in one.excluded if text.startswith("a slow kernel: ")])


def test_a_wait_within_reach_of_the_work_is_left_open() -> None:
    """Two million tokens on a small card may well take that long, and nothing is ruled out."""
    (one,) = incidents("article_box", read_workload(SLOW).floor())
    assert [] == [text for text in one.excluded if "slow kernel" in text]
    assert [True] == ["whether it is only slow: " in text for text in one.unknowns if "slow" in text]


@pytest.mark.parametrize("case", ["hung_promtail_ext4", "slurm_48_63_94_remap"])
def test_other_waits_are_not_compared(case: str) -> None:
    """A task that waits for a disk, and a fault without a wait, have nothing to do with the length of a kernel."""
    assert incidents(case, None) == incidents(case, read_workload(SERVED).floor())


def test_a_collective_that_timed_out_is_compared() -> None:
    """NCCL says how long the collective ran."""
    found = incidents("nccl_watchdog_pg_id_guid", read_workload(SERVED).floor())
    assert any("a slow kernel: " in text for one in found for text in one.excluded)


def test_the_card_is_the_one_that_nvml_names() -> None:
    """Without a card in the configuration NVML's name is taken, and without both nothing is known."""
    unnamed = Workload(params="70B", tp=8, prompt="32K")
    assert read_workload(unnamed).floor() is None
    floor = read_workload(unnamed).floor("NVIDIA H100 80GB HBM3")
    assert floor is not None
    assert "H100 SXM" == floor.accelerator.name


def test_the_daemon_says_it_too(rules: RuleTable) -> None:
    """The same sentence beside the same incident, as soon as the floor is known."""
    engine, now_us = Engine(rules), 1_796_000_000_000_000
    for record in LogInputs([str(FIXTURES / "article_box" / "input.log")], tz=timezone.utc, year=2026, now_us=now_us):
        engine.feed("log", record, now_us)
    engine.settle(now_us, everything=True)
    (before,) = [change.incident for change in engine.changes(now_us)]
    engine.floor = read_workload(SERVED).floor()
    engine.rejudge(rules)
    (after,) = [change.incident for change in engine.changes(now_us)]
    assert ["a slow kernel"] == [text.partition(":")[0] for text in after.excluded if text not in before.excluded]


@pytest.mark.parametrize(
    "workload",
    [
        Workload(accelerator="nosuch", params="70B"),
        Workload(accelerator="T4"),
        Workload(accelerator="T4", model=Path("/nowhere")),
    ],
)
def test_what_cannot_be_counted_is_said(workload: Workload) -> None:
    """No such card, no model, a model that cannot be read: one sentence."""
    with pytest.raises(XidwatchError):
        read_workload(workload).floor()
