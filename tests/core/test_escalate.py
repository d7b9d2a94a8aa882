"""The ladder by history: an application restart, a reset, a reboot, and what follows when none of them helped."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from xidwatch.core.codec import decode, encode
from xidwatch.core.engine import Engine
from xidwatch.core.incident import Incident
from xidwatch.core.record import Record
from xidwatch.explain import ExplainOptions, explain
from xidwatch.rulefiles import load_rules

RPC = "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20808513 0x4)."
CONTAINED = "Contained: SM (0x1). RST: No, D-RST: No"
REMAP = "Row Remapper: New row (0x0000000018f31d80) marked for remapping, reset gpu to activate."
DBE = "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr 0x18f31d80 partition 9."
WARP = "Graphics SM Warp Exception on (GPC 3, TPC 1, SM 0): Out Of Range Address"
BOOT = "Linux version 6.8.0-60-generic (buildd@x) (gcc 13) #63-Ubuntu SMP"
LOAD = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@build)"


def at(clock: str, text: str) -> str:
    """One line of a syslog; `clock` is a time of 20 November 2026, or `22T05:53` of another day."""
    day, _, time = clock.rpartition("T")
    return f"2026-11-{day or '20'}T{time}:00+00:00 node7 kernel: {text}\n"


def xid(clock: str, code: int, text: str, *, pid: int = 4711, name: str = "python3", gpu: str = "0000:3b:00") -> str:
    """One Xid."""
    return at(clock, f"NVRM: Xid (PCI:{gpu}): {code}, pid={pid}, name={name}, {text}")


def was_reset(clock: str, gpu: str = "0000:3b:00") -> str:
    """The driver's own word that its demand is met."""
    return at(clock, f"NVRM: Xid (PCI:{gpu}): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")


def asks_reset(clock: str, gpu: str = "0000:3b:00") -> str:
    """The driver's demand."""
    return at(clock, f"NVRM: Xid (PCI:{gpu}): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")


def latest(log: str, tmp_path: Path) -> Incident:
    """The incident that began last."""
    path = tmp_path / "kern.log"
    path.write_text(log, encoding="utf-8")
    found = explain([str(path)], ExplainOptions(tz=timezone.utc), load_rules()).incidents
    return max(found, key=lambda one: one.members[one.root].finding.event.record.seq)


def looks(incident: Incident) -> set[str]:
    """What is to be looked into."""
    return {demand.rung for demand in incident.investigate}


def test_a_reset_that_did_not_help_asks_for_a_reboot(tmp_path: Path) -> None:
    """With when it was reset and how long it held."""
    log = xid("01:00", 119, RPC) + asks_reset("01:01") + was_reset("02:13") + xid("02:53", 119, RPC, pid=9711)
    incident = latest(log, tmp_path)
    assert ("reboot_node", "now") == (incident.recovery.rung, incident.recovery.when)
    assert incident.recovery.why.startswith("the GPU was reset at 02:13 and failed again the same way 40 minutes later")
    assert "failed again the same way 40 minutes after the GPU was reset at 02:13" in incident.sentence


@pytest.mark.parametrize(("code", "text"), [(119, RPC), (79, "GPU has fallen off the bus."), (62, "00ab 1234 5678")])
def test_a_reboot_that_did_not_help_asks_for_power_and_diagnostics(code: int, text: str, tmp_path: Path) -> None:
    """What keeps its power through a reboot needs a power cycle; the field diagnostic decides about the RMA."""
    incident = latest(xid("01:00", code, text) + at("03:20", BOOT) + xid("22T05:53", code, text, pid=9), tmp_path)
    assert "power_cycle" == incident.recovery.rung
    assert {"run_diagnostic", "field_diagnostic", "contact_support"} <= looks(incident)
    assert "the node was booted at 2026-11-20 03:20" in incident.recovery.why


def test_a_reboot_that_did_not_help_leads_to_the_field_diagnostic(tmp_path: Path) -> None:
    """Engine and memory faults keep their own rung; a reset alone is not the answer any more."""
    log = xid("01:00", 95, "Uncontained: FBHUB. RST: Yes, D-RST: No") + at("03:20", BOOT) + at("03:21", LOAD)
    incident = latest(log + xid("05:53", 95, "Uncontained: FBHUB. RST: Yes, D-RST: No", pid=9), tmp_path)
    assert "reset_gpu" == incident.recovery.rung
    assert {"run_diagnostic", "field_diagnostic", "contact_support"} <= looks(incident)
    assert "the node was booted at 03:20 and it failed again the same way 3 hours later" in incident.recovery.why


def test_each_rung_follows_the_one_before(tmp_path: Path) -> None:
    """Restart, reset, reboot, diagnostics: one card, one log."""
    log = xid("01:00", 94, CONTAINED)
    assert "restart_app" == latest(log, tmp_path).recovery.rung
    log += xid("02:00", 94, CONTAINED, pid=5000)
    second = latest(log, tmp_path)
    assert ("reset_gpu", "after_drain") == (second.recovery.rung, second.recovery.when)
    assert "it failed the same way at 01:00 in an earlier run" in second.recovery.why
    log += asks_reset("02:01") + was_reset("02:30") + xid("03:30", 94, CONTAINED, pid=6000)
    assert "reboot_node" == latest(log, tmp_path).recovery.rung
    log += at("04:00", BOOT) + xid("06:00", 94, CONTAINED, pid=7000)
    assert {"run_diagnostic", "field_diagnostic", "contact_support"} <= looks(latest(log, tmp_path))


@pytest.mark.parametrize("between", [was_reset("02:00"), at("02:00", BOOT), at("02:00", LOAD), ""])
@pytest.mark.parametrize(
    ("code", "text"),
    [(13, WARP), (31, "Ch 0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 faulted"), (43, "Ch 0000000a")],
)
def test_applications_do_not_climb(code: int, text: str, between: str, tmp_path: Path) -> None:
    """A program with a fault has it after every reset and reboot too."""
    incident = latest(xid("01:00", code, text) + between + xid("03:00", code, text.replace("GPC 3", "GPC 5"), pid=9), tmp_path)
    assert incident.recovery.rung in ("restart_app", "none")
    assert "field_diagnostic" not in looks(incident)


def test_a_repair_that_waits_is_no_failure(tmp_path: Path) -> None:
    """Another row after a reset is remapped as the first one was: drain and reset, no reboot."""
    log = xid("01:00", 48, DBE) + xid("01:00", 63, REMAP) + asks_reset("01:01") + was_reset("02:00")
    log += xid("05:00", 48, DBE.replace("18f31d80", "28f31d80"), pid=9) + xid("05:00", 63, REMAP.replace("18f", "28f"), pid=9)
    incident = latest(log, tmp_path)
    assert ("reset_gpu", "after_drain") == (incident.recovery.rung, incident.recovery.when)
    assert not any("again the same way" in phrase for phrase in incident.patterns)


@pytest.mark.parametrize(
    "second",
    [
        xid("05:00", 119, RPC, pid=9, gpu="0000:9b:00"),
        xid("05:00", 109, "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x4", pid=9),
        xid("22T05:00", 119, RPC, pid=9),
    ],
    ids=["another card", "another fault", "two days later"],
)
def test_only_the_same_fault_on_the_same_card_soon_after_climbs(second: str, tmp_path: Path) -> None:
    """Anything else begins at its own rung."""
    log = xid("01:00", 119, RPC) + asks_reset("01:01") + was_reset("02:00") + second
    assert "reset_gpu" == latest(log, tmp_path).recovery.rung


@pytest.mark.parametrize(("address", "rung"), [("00000000:3B:00.0", "reboot_node"), ("00000000:9B:00.0", "reset_gpu")])
def test_a_reset_that_a_tool_told_of_counts_for_its_own_gpu(address: str, rung: str, tmp_path: Path) -> None:
    """An older driver prints no 154: the word of nvidia-smi in the system's log says what was tried, and ends nothing."""
    word = f"2026-11-20T02:13:00+00:00 node7 maintenance.sh[411]: GPU {address} was successfully reset.\n"
    assert rung == latest(xid("01:00", 119, RPC) + word + xid("02:53", 119, RPC, pid=9711), tmp_path).recovery.rung


def test_nothing_was_done_so_nothing_climbs(tmp_path: Path) -> None:
    """The same demand twice, with nobody having met the first."""
    incident = latest(xid("01:00", 119, RPC) + xid("02:00", 119, RPC, pid=9), tmp_path)
    assert "reset_gpu" == incident.recovery.rung
    assert not any("again the same way" in phrase for phrase in incident.patterns)


def test_another_card_in_the_slot_begins_anew(tmp_path: Path) -> None:
    """History belongs to the card, not to the slot."""
    uuid = "NVRM: GPU at PCI:0000:3b:00: GPU-{}b2c3d4e-0000-1111-2222-333344445555"
    log = at("00:59", uuid.format("1")) + xid("01:00", 119, RPC) + at("03:00", BOOT) + at("03:30", uuid.format("2"))
    assert "reset_gpu" == latest(log + xid("05:00", 119, RPC, pid=9), tmp_path).recovery.rung


def test_a_fault_that_is_over_again_asks_for_nothing_but_is_looked_into(tmp_path: Path) -> None:
    """Booted since: no recovery, and the diagnostics stay."""
    log = xid("01:00", 119, RPC) + at("03:00", BOOT) + xid("05:00", 119, RPC, pid=9) + at("06:00", BOOT)
    incident = latest(log, tmp_path)
    assert "none" == incident.recovery.rung
    assert "field_diagnostic" in looks(incident)


def record(hours: float, text: str, boot: str) -> Record:
    """A kernel record of a boot, hours after the start of 20 November 2026."""
    when = datetime(2026, 11, 20, tzinfo=timezone.utc) + timedelta(hours=hours)
    return Record(
        text=text, wall_us=round(when.timestamp() * 1e6), boot_id=boot, host="node7", trusted="kernel", seq=int(hours * 60)
    )


def test_the_daemon_climbs_across_boots_and_its_own_restarts() -> None:
    """What the history kept of the boot before makes the fault of this boot the second one."""
    fault = f"NVRM: Xid (PCI:0000:3b:00): 119, pid=4711, name=python3, {RPC}"
    first, kept = Engine(load_rules()), []
    one = record(1, fault, "boot-a")
    first.feed("kmsg", one, one.wall_us or 0)
    for settled in first.settle((one.wall_us or 0) + 3_000_000, everything=True):
        kept.append((settled.identity, encode(settled.item), (one.wall_us or 0) + 3_000_000))

    second = Engine(load_rules())
    for identity, item, stored_us in kept:
        second.replay(identity, decode(item), stored_us)
    second.changes(record(3, "", "boot-b").wall_us or 0)
    for two in (record(3, BOOT, "boot-b"), record(30, fault.replace("4711", "900"), "boot-b")):
        second.feed("kmsg", two, two.wall_us or 0)
    now_us = (record(30, "", "boot-b").wall_us or 0) + 3_000_000
    second.settle(now_us, everything=True)
    second.changes(now_us)
    (now,) = [incident for incident in second.incidents.values() if incident.state == "active"]
    assert "power_cycle" == now.recovery.rung
    assert "the node was booted at 2026-11-20 03:00 and it failed again the same way 27 hours later" in now.recovery.why
    assert "field_diagnostic" in looks(now)
