"""A whole daemon on a stage: the GPU's own word confirms an incident, contradicts it, and ends it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.nvml.fake import SCENARIOS
from tests.system.live import Daemon, following, scraped, until

GPU, BUS = "0000:61:00.0", "0000:61:00"
LOST = f"NVRM: Xid (PCI:{BUS}): 79, pid=4711, name=python3, GPU has fallen off the bus."
REMAP = f"NVRM: Xid (PCI:{BUS}): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row (0x0000000018f31d80) marked for remapping, reset gpu to activate."


class Staged:
    """A daemon, its scenario and its pipe."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.scenario, self.pipe = folder, folder / "scenario.txt", folder / "kmsg"
        os.mkfifo(self.pipe)
        self.kmsg = os.open(self.pipe, os.O_RDWR)
        self.seq = 0
        self.play("healthy")
        self.daemon = self.started()

    def started(self) -> Daemon:
        """Another run with the same history."""
        one = Daemon(self.folder, "--scenario", str(self.scenario), "--kmsg", str(self.pipe))
        until(lambda: scraped(one.port) or one.child.poll(), what="the first scrape")
        return one

    def play(self, name: str, *lines: str) -> None:
        """From the next question on the GPUs answer so."""
        include = os.path.relpath(SCENARIOS / f"{name}.txt", self.folder)
        text = "\n".join([f"include {include}", "node timing 5 0.2 0.1", *lines, ""])
        new = self.folder / "scenario.new"
        new.write_text(text, encoding="ascii")
        new.replace(self.scenario)

    def say(self, text: str) -> None:
        """The kernel prints a line."""
        self.seq += 1
        now = int(float(Path("/proc/uptime").read_text(encoding="ascii").split()[0]) * 1e6)
        os.write(self.kmsg, f"4,{self.seq},{now},-;{text}\n".encode())

    def state(self) -> dict[str, Any]:
        """state.json; empty before it is there."""
        try:
            found: dict[str, Any] = json.loads((self.folder / "run" / "state.json").read_text(encoding="utf-8"))
            return found
        except (OSError, ValueError):
            return {}

    def incident(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The one incident, once it is so."""

        def look() -> dict[str, Any] | None:
            found = [one for one in self.state().get("incidents", ()) if holds(one)]
            return found[0] if found else None

        return until(look, what="the incident")

    def ended(self, messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
        """Incidents that a follower has heard to be over, and why."""
        over = [message["incident"] for message in messages if message["change"] == "ended"]
        return [(one["id"], one["end_reason"]) for one in over]

    def checks(self, incident: dict[str, Any]) -> dict[str, str]:
        """The answers by reading."""
        return {check["check"]: check["answer"] for check in incident["checks"]}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Staged]:
    """A healthy node of eight, sampled at least once."""
    one = Staged(tmp_path)
    try:
        until(lambda: one.daemon.total("xidwatch_nvml_up") == 1.0, what="the first sample")
        yield one
    finally:
        one.daemon.stop()
        os.close(one.kmsg)


def answered(node: Staged, **wanted: str) -> dict[str, Any]:
    """The incident once the GPU has answered so."""
    return node.incident(lambda one: wanted.items() <= node.checks(one).items())


def test_a_lost_gpu_is_confirmed_and_its_return_waits_for_a_proof(node: Staged) -> None:
    """The line alone is likely; NVML's loss makes it sure, also after a restart; back again, it is not yet proven well."""
    node.play("healthy", "3 fail * 15")
    node.say(LOST)
    incident = answered(node, gpu_not_found="confirmed")
    assert ("sure", "critical", "active") == (incident["confidence"], incident["severity"], incident["state"])
    assert not any("nvidia-smi -L`" in text and "still finds" in text for text in incident["unknowns"])
    node.daemon.stop()
    node.daemon = node.started()
    again = answered(node, gpu_not_found="confirmed")
    assert (incident["id"], "sure") == (again["id"], again["confidence"])
    node.play("healthy")
    back = node.incident(lambda one: one["state"] == "awaiting_verification")
    assert (incident["id"], "gpu_recovered") == (back["id"], back["end_reason"])


def test_a_pending_row_ends_with_the_reset(node: Staged) -> None:
    """The GPU says that a row waits, then that none does: a reset has taken it over, and the incident is over."""
    node.play("healthy", "3 remapped_rows 0 1 1 0", "3 field.230 4")
    node.say(REMAP)
    incident = answered(node, row_remap_pending="confirmed", recovery_action="confirmed")
    assert "drain and reset" in incident["driver_word"]
    with following(node.folder / "run") as messages:
        node.play("healthy", "3 remapped_rows 0 1 0 0")
        ended = until(lambda: node.ended(messages), what="the incident's end")
    assert [(incident["id"], "gpu_recovered")] == ended


def test_silence_ends_nothing(node: Staged) -> None:
    """A GPU that was lost and then gives no answer at all is still an open incident."""
    node.play("healthy", "3 fail * 15")
    node.say(LOST)
    incident = answered(node, gpu_not_found="confirmed")
    node.play("healthy", "3 block nvmlDeviceGetPowerUsage")
    gpu = until(
        lambda: next((one for one in node.state()["gpus"] if one["pci"] == GPU and one["answer"] == "unresponsive"), None), 60.0
    )
    assert gpu["serial"] == "1652923000103"
    assert [(incident["id"], "active")] == [(one["id"], one["state"]) for one in node.state()["incidents"]]


def test_a_healthy_answer_contradicts(node: Staged) -> None:
    """The driver says lost and NVML finds it well: both are told, the line is still believed, and nobody need guess."""
    node.say(LOST)
    incident = answered(node, gpu_not_found="contradicted")
    assert ("critical", "active") == (incident["severity"], incident["state"])
    assert "contradicted" in node.daemon.command("status")


def test_another_card_in_the_slot_ends_what_the_old_one_had(node: Staged) -> None:
    """A failed remap lives in the card: it ends when the card is replaced, and the new one starts clean."""
    node.play("healthy", "3 remapped_rows 0 512 1 1")
    node.say(f"NVRM: Xid (PCI:{BUS}): 64, pid='<unknown>', name=<unknown>, Row remapping table is full")
    incident = answered(node, row_remap_failure="confirmed")
    with following(node.folder / "run") as messages:
        node.play("healthy", "3 uuid GPU-00000000-0000-4000-8000-00000000abcd", "3 serial 1652923000999")
        ended = until(lambda: node.ended(messages), what="the incident's end")
    assert [(incident["id"], "gpu_replaced")] == ended


def test_a_card_that_is_gone_at_the_start_is_missed(node: Staged) -> None:
    """Seen by one run and absent in the next, without any line: named by slot and serial, until it is accepted."""
    until(lambda: [one for one in node.state().get("gpus", ()) if one["serial"] == "1652923000107"], what="the eighth GPU")
    node.daemon.stop()
    node.play("gone")
    node.daemon = node.started()
    missing = until(lambda: [one for one in node.state().get("gpus", ()) if one["missing"]], what="the missing GPU")
    assert [("0000:df:00.0", "1652923000107")] == [(one["pci"], one["serial"]) for one in missing]
    assert 1.0 == node.daemon.total("xidwatch_gpu_missing", gpu="0000:df:00.0")
    assert "MISSING" in node.daemon.command("gpus")
    found = node.incident(lambda one: "0000:df:00.0" in one["gpus"] and one["confidence"] == "sure")
    assert ("warning", "power_cycle", "active") == (found["severity"], found["recovery"]["rung"], found["state"])
    node.daemon.stop()
    node.daemon = node.started()
    assert found["id"] == node.incident(lambda one: "0000:df:00.0" in one["gpus"])["id"]
    node.daemon.command("gpus", "accept")
    until(lambda: not [one for one in node.state()["gpus"] if one["missing"]], what="the acceptance")
    until(lambda: not node.state()["incidents"], what="the end of the incident")
