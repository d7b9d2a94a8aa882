"""What a whole daemon makes of each scenario: state, metrics and words; and of faults whose GPUs say different things."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.nvml.fake import SLOTS
from tests.nvml.staged import Staged, staged, write_scenario
from tests.nvml.test_stuck_daemon import children_of
from tests.system.live import until
from xidwatch.nvml.scenario import shipped_scenarios
from xidwatch.render.as_gpus import gpu_table, is_missing_any

GPUS = tuple(map(str, SLOTS))
OWN = {"old_driver", "blackwell"}
"""Scenarios of another machine: each has a daemon of its own."""


@dataclass(frozen=True)
class Case:
    """One scenario.

    Attributes:
        gpu: Number of the GPU that it is about.
        says: What `gpus[]` has of it.
        metrics: Series that it has, with their values.
        words: What `xidwatch gpus` prints.
        fit: Whether no GPU is missing.
    """

    name: str
    gpu: int = 0
    says: dict[str, Any] = field(default_factory=dict)
    metrics: tuple[tuple[str, dict[str, str], float], ...] = ()
    words: str = ""
    fit: bool = True


CASES = (
    Case("healthy", 0, {"answer": "state", "recovery_action": "none", "row_remap_pending": False, "pcie_width": 16},
         (("xidwatch_gpus", {"source": "nvml"}, 8), ("xidwatch_nvml_up", {}, 1)), "answers NVML"),
    Case("lost", 3, {"answer": "lost", "missing": False, "config_space_dead": True, "serial": "1652923000103"},
         (("xidwatch_gpus", {"source": "nvml"}, 7), ("xidwatch_gpus", {"source": "pci"}, 8)), "reads all ones"),
    Case("lost_inside", 3, {"answer": "lost"}, (("xidwatch_gpus", {"source": "nvml"}, 7),), "NVML has lost it"),
    Case("gone", 7, {"answer": "not_found", "on_bus": True, "missing": True, "serial": "1652923000107"},
         (("xidwatch_gpu_missing", {"gpu": GPUS[7]}, 1), ("xidwatch_gpus_expected", {}, 8)), "MISSING", fit=False),
    Case("replaced", 3, {"gpu_uuid": "GPU-00000000-0000-4000-8000-0000000000ff", "serial": "1652923000999", "missing": False},
         (("xidwatch_gpu_info", {"gpu": GPUS[3], "serial": "1652923000999"}, 1),), "1652923000999"),
    Case("remap_pending", 5, {"row_remap_pending": True, "row_remap_failed": False, "recovery_action": "drain_and_reset"},
         (("xidwatch_row_remap_pending", {"gpu": GPUS[5]}, 1), ("xidwatch_row_remap_failure", {"gpu": GPUS[5]}, 0),
          ("xidwatch_driver_recovery_action", {"gpu": GPUS[5], "action": "drain_and_reset", "source": "nvml"}, 1)),
         "drain, then reset"),
    Case("remap_failure", 5, {"row_remap_failed": True, "banks_without_spare_rows": {"one_left": 0, "none_left": 1}},
         (("xidwatch_row_remap_failure", {"gpu": GPUS[5]}, 1),), "field diagnostic, then RMA"),
    Case("sram_threshold", 2, {"sram_threshold_exceeded": True, "ecc_uncorrected": {"volatile": 0, "aggregate": 5}},
         (("xidwatch_ecc_errors_total", {"gpu": GPUS[2], "kind": "aggregate_uncorrected"}, 5),), "SRAM error threshold"),
    Case("reset_required", 6, {"answer": "reset_required", "missing": False}, (("xidwatch_gpus", {"source": "nvml"}, 7),),
         "must be reset"),
    Case("unknown_error", 6, {"answer": "unknown_error"}, (("xidwatch_gpus", {"source": "nvml"}, 7),), "fails at every question"),
    Case("unknown_error_once", 6, {"answer": "state", "recovery_action": None}, (("xidwatch_gpus", {"source": "nvml"}, 8),)),
    Case("throttled", 1, {"pcie_width": 8, "pcie_max_width": 16, "temperature_celsius": 91,
                          "clock_reasons": ["hw_slowdown", "hw_thermal"]},
         (("xidwatch_throttle_active", {"gpu": GPUS[1], "reason": "hw_thermal"}, 1),),
         "slowed down by its hardware: too hot (91 °C); PCIe x8 of x16"),
    Case("nvlink_down", 4, {"answer": "state", "nvlinks": 18, "nvlinks_down": [2]},
         (("xidwatch_gpus", {"source": "nvml"}, 8),), f"{GPUS[4]}  NVLink 2 is down\n"),
    Case("mig", 0, {"mig_enabled": True, "row_remap_pending": None, "utilization": None},
         (("xidwatch_gpu_info", {"gpu": GPUS[0]}, 1),)),
    Case("gpm", 3, {"answer": "state"}, (("xidwatch_regime", {"gpu": GPUS[3], "regime": "spinning"}, 1),)),
    Case("slow", 7, {"answer": "state"}, (("xidwatch_nvml_up", {}, 1),)),
    Case("leak", 7, {"answer": "state"}, (("xidwatch_nvml_up", {}, 1),)),
    Case("no_permission_inside", 0, {"answer": "state", "serial": "1652923000100"}, (("xidwatch_gpus", {"source": "nvml"}, 8),)),
    Case("no_permission", 0, {"answer": "no_permission"}, (("xidwatch_nvml_up", {}, 0),)),
    Case("not_loaded", 0, {"answer": "driver_not_loaded", "missing": False}, (("xidwatch_nvml_up", {}, 0),)),
    Case("version_mismatch", 0, {"answer": "version_mismatch"}, (("xidwatch_nvml_up", {}, 0),)),
    Case("crash", 3, {"answer": "unresponsive", "missing": False}, (("xidwatch_nvml_up", {}, 0),), "does not answer NVML"),
    Case("blocked", 3, {"answer": "unresponsive", "serial": "1652923000103"}, (("xidwatch_nvml_up", {}, 0),)),
    Case("blocked_init", 0, {"answer": "unresponsive"}, (("xidwatch_nvml_up", {}, 0),)),
    Case("old_driver", 0, {"answer": "state", "recovery_action": None, "row_remap_pending": None, "serial": "0324918000000"},
         (("xidwatch_gpus", {"source": "nvml"}, 1),), "memory pages wait to be retired"),
    Case("blackwell", 0, {"place": "chassis 1820224000123, slot 9, tray 4, module 2"}, (), "tray 4"),
)  # fmt: skip
ASKED_BY_EVENTS = {"persistence_off"}
NEEDS_A_FREEZE = {"d_state"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staged]:
    """A daemon whose GPUs change from case to case."""
    folder = tmp_path_factory.mktemp("node")
    write_scenario(folder, "healthy")
    with staged(folder) as one:
        one.wait(lambda state: sum(gpu["answer"] == "state" for gpu in state["gpus"]) == 8)
        yield one


def test_every_scenario_is_tried() -> None:
    """A scenario that ships has its case here, in the test of events only, or in that of a frozen disk."""
    shipped = {path.stem for path in shipped_scenarios().glob("*.txt")}
    assert shipped == {case.name for case in CASES} | ASKED_BY_EVENTS | NEEDS_A_FREEZE


@pytest.mark.parametrize("case", [case for case in CASES if case.name not in OWN], ids=lambda case: case.name)
def test_scenario(case: Case, node: Staged) -> None:
    """State, metrics, words and exit status are those of the scenario; afterwards all is well again."""
    write_scenario(node.folder, case.name)
    holds(case, node)
    write_scenario(node.folder, "healthy")
    node.wait(lambda state: all(gpu["answer"] == "state" and not gpu["missing"] for gpu in state["gpus"]))


@pytest.mark.parametrize("case", [case for case in CASES if case.name in OWN], ids=lambda case: case.name)
def test_scenario_of_another_machine(case: Case, tmp_path: Path) -> None:
    """The same on a machine of another kind."""
    write_scenario(tmp_path, case.name)
    with staged(tmp_path) as one:
        holds(case, one)


def holds(case: Case, node: Staged) -> None:
    """All that the case says."""
    pci = GPUS[case.gpu] if case.name != "old_driver" else "0000:3b:00.0"

    def as_said(state: dict[str, Any]) -> bool:
        return any(gpu["pci"] == pci and case.says.items() <= gpu.items() for gpu in state["gpus"])

    node.wait(as_said)
    wanted = [value for _, _, value in case.metrics]
    until(lambda: wanted == [node.scrape().total(name, **labels) for name, labels, _ in case.metrics], what=f"{case.metrics}")
    state = node.state() or {}
    assert case.words in "\n".join(gpu_table(state))
    assert case.fit == (not is_missing_any(state))


@dataclass(frozen=True)
class Fault:
    """A line about one GPU, and what becomes of it.

    Attributes:
        line: The Xid and its message.
        rows: What its GPU answers, of the scenario's keys.
        checks: Answers that stand beside the incident, by reading.
        said: Words of one of them.
        rung: The recovery, which is the vendor's.
        look: What is to be looked into besides.
        driver: Words about what the driver asks.
    """

    line: str
    rows: tuple[str, ...]
    checks: dict[str, str]
    said: str
    rung: str
    look: str = ""
    driver: str = ""


FAULTS = (
    Fault("48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer.",
          (), {"ecc_uncorrected": "contradicted"}, "still 0 uncorrected errors", "reset_gpu", driver="asks nothing"),
    Fault("94, pid=4711, name=python3, Contained: SM (0x1). RST: No, D-RST: No",
          ("ecc.volatile.uncorrected 1 0 0 1 0 0 0 0 0", "ecc.aggregate.uncorrected 1 0 0 1 0 0 0 0 0"),
          {"ecc_uncorrected": "confirmed"}, "in dram 1", "restart_app"),
    Fault("64, pid='<unknown>', name=<unknown>, Row Remapper: Error writing new row into the InfoROM",
          ("remapped_rows 0 8 0 1", "spare_rows 2558 1 0 0 1"), {"row_remap_failure": "confirmed", "spare_rows": "confirmed"},
          "evidence for an RMA", "reset_gpu", look="field_diagnostic"),
    Fault("119, pid=4712, name=python3, Timeout after 6s of waiting for RPC response from GPU3 GSP! Expected function 76 (GSP_RM_CONTROL).",
          ("block nvmlDeviceGetPowerUsage",), {"nvml_stuck": "confirmed"}, "gets no answer", "reset_gpu"),
    Fault("79, pid=4713, name=python3, GPU has fallen off the bus.", ("fail * 15", "config_space ffffffff"),
          {"gpu_not_found": "confirmed"}, "reads all ones", "reboot_node"),
    Fault("63, pid='<unknown>', name=<unknown>, Row Remapper: New row (0x18f31d80) marked for remapping, reset gpu to activate.",
          ("remapped_rows 0 1 1 0", "field.230 4"), {"row_remap_pending": "confirmed", "recovery_action": "confirmed"},
          "drain and reset when convenient", "reset_gpu", driver="asks the same"),
    Fault("31, pid=4714, name=python3, Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7fc1_0. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
          ("field.230 1",), {"recovery_action": "confirmed"}, "reset gpu", "restart_app", driver="asks more"),
    Fault("74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 2(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
          ("nvlinks 1 1 0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",), {"nvlink_errors": "confirmed"}, "link 2 down", "reset_gpu"),
)  # fmt: skip


def test_faults_and_what_their_gpus_say(tmp_path: Path) -> None:
    """Eight faults on eight GPUs at once: each stands beside its own GPU's answer, with the vendor's advice."""
    write_scenario(tmp_path, "healthy", timing="5 0.2 0.05")
    with staged(tmp_path) as node:
        node.wait(lambda state: sum(gpu["answer"] == "state" for gpu in state["gpus"]) == 8)
        rows = [f"{number} {row}" for number, fault in enumerate(FAULTS) for row in fault.rows]
        write_scenario(tmp_path, "healthy", *rows, timing="5 0.2 0.05")
        # Far apart in time as the kernel tells it: faults of one moment are one fault of the node.
        for number, fault in enumerate(FAULTS):
            node.say(f"NVRM: Xid (PCI:{GPUS[number].removesuffix('.0')}): {fault.line}", before_s=1000.0 - 100 * number)
        for number, fault in enumerate(FAULTS):
            incident = node.wait(partial(heard, GPUS[number], fault), 60.0)
            assert fault.rung == incident["recovery"]["rung"], fault.line
            assert fault.look in ["", *(demand["rung"] for demand in incident["investigate"])]
            assert fault.driver in (incident["driver_word"] or "")


def heard(gpu: str, fault: Fault, state: dict[str, Any]) -> dict[str, Any] | None:
    """The incident of a GPU, once the GPU has answered as it should."""
    for incident in state["incidents"]:
        answers = {check["check"]: check["answer"] for check in incident["checks"] if check["gpu"] == gpu}
        said = "\n".join(check["said"] for check in incident["checks"])
        if gpu in incident["gpus"] and fault.checks.items() <= answers.items() and fault.said in said:
            found: dict[str, Any] = incident
            return found
    return None


def test_an_upgraded_driver_is_taken_up(node: Staged) -> None:
    """The module goes and comes back in another version: no GPU is missing meanwhile, and the new version is told."""
    write_scenario(node.folder, "not_loaded")
    node.wait(lambda state: state["nvml"]["up"] is False and {gpu["answer"] for gpu in state["gpus"]} == {"driver_not_loaded"})
    assert not is_missing_any(node.state() or {})
    write_scenario(node.folder, "healthy", "node driver 590.44.01")
    node.wait(lambda state: state["driver_version"] == "590.44.01" and all(gpu["answer"] == "state" for gpu in state["gpus"]))
    until(lambda: node.scrape().total("xidwatch_gpu_info", driver_version="590.44.01") == 8, what="the new version")
    assert 0 == node.scrape().total("xidwatch_gpu_info", driver_version="580.95.05")


def test_released_gpus_are_left_alone(node: Staged) -> None:
    """After `nvml release` nothing is asked until `resume`, and that is said; what was known keeps its age."""
    assert 0 == node.command("nvml", "release").returncode
    node.wait(lambda state: state["nvml"]["released"])
    assert "NVML is released" in node.command("status").stdout
    write_scenario(node.folder, "remap_pending")
    assert 0 == node.command("nvml", "resume").returncode
    node.wait(lambda state: any(gpu["row_remap_pending"] for gpu in state["gpus"]) and not state["nvml"]["released"])
    write_scenario(node.folder, "healthy")


def test_state_tells_at_once_how_the_way_to_nvml_is(tmp_path: Path) -> None:
    """First answer, silence, the stuck child's end, release: each is in state.json when it happens, not a minute later."""
    write_scenario(tmp_path, "healthy", timing="2 0.5 0.05")
    with staged(tmp_path) as node:
        node.wait(lambda state: state["nvml"]["up"])
        write_scenario(tmp_path, "d_state", timing="2 0.5 0.05")
        node.wait(lambda state: state["nvml"]["stuck_s"] and "still blocked" in state["nvml"]["why"])
        # Nothing more is written while it stays so; whoever reads it counts on.
        until(lambda: "not answered for 3 s" in node.command("status").stdout, what="seconds that grow")
        (child,) = children_of(node.child.pid)
        assert "still blocked" in node.command("status").stdout
        write_scenario(tmp_path, "blocked_init", timing="2 0.5 0.05")
        node.wait(lambda state: state["nvml"]["why"] == f"child {child} did not answer in 2 s, and has ended since")
        assert 0 == node.command("nvml", "release").returncode
        node.wait(lambda state: state["nvml"]["released"])
