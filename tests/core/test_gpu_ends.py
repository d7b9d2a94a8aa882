"""What the GPU says ends an incident, proves it over, bears it out or speaks against it; its silence does none of that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest

from tests.nvml.states import HEALTHY
from xidwatch.core.census import Card, Slot
from xidwatch.core.census import noted as noted_card
from xidwatch.core.codec import decode, encode
from xidwatch.core.engine import Engine
from xidwatch.core.event import Context, Event
from xidwatch.core.gpu import EccCount, GpuAnswer, GpuProcess, GpuState, Lost, NotFound, ResetRequired, RowRemap, Unresponsive
from xidwatch.core.incident import Incident
from xidwatch.core.pci import PciAddress
from xidwatch.core.record import Record
from xidwatch.core.standing import Seen, checks, named_readings, noted, was_reset, worth_keeping
from xidwatch.render.answer import gpu_says
from xidwatch.rulefiles import load_rules

BOOT, HOST = "b00t", "node1"
START_US = 1_700_000_000_000_000
ONE, TWO = PciAddress(0, 0x1B, 0), PciAddress(0, 0x43, 0)
LOST = Lost(code=15, text="GPU is lost", at_us=0)
BUSY = replace(HEALTHY, processes=(GpuProcess(pid=7, kind="compute", used_bytes=1, gpu_instance=None, compute_instance=None),))
IDLE = replace(HEALTHY, processes=())
OFF_BUS = "79, pid=4711, name=python3, GPU has fallen off the bus."
GSP = "119, pid=4711, name=python3, Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76."
DOUBLE_BIT = (
    "48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer."
)
REMAP = "63, pid='<unknown>', name=<unknown>, Row Remapper: New row (0x18f31d80) marked for remapping, reset gpu to activate."


@dataclass
class Node:
    """A core without a daemon around it: lines and answers at given seconds after the start."""

    engine: Engine = field(default_factory=lambda: Engine(load_rules(())))
    states: dict[PciAddress, list[GpuState]] = field(default_factory=dict)
    kept: list[tuple[str, Event | Context, int]] = field(default_factory=list)
    lines: int = 0

    def line(self, second: float, text: str, *, pci: PciAddress = ONE, read_s: float | None = None) -> None:
        """The driver prints an Xid; it is read then, or at `read_s`."""
        self.say(second, f"NVRM: Xid (PCI:{pci.domain:04x}:{pci.bus:02x}:00): {text}", read_s=read_s)

    def say(self, second: float, text: str, *, read_s: float | None = None) -> None:
        """The kernel prints lines."""
        at_us = START_US + round(second * 1e6)
        now_us = at_us if read_s is None else START_US + round(read_s * 1e6)
        for one in text.split("\n"):
            self.lines += 1
            record = Record(
                text=one, seq=self.lines, line=self.lines, wall_us=at_us, since_boot_us=round(second * 1e6), boot_id=BOOT,
                host=HOST, trusted="kernel", time_source="log", timed=True,
            )  # fmt: skip
            self.engine.feed("kmsg", record, now_us)
        for settled in self.engine.settle(now_us, everything=True):
            self.kept.append((settled.identity, settled.item, now_us))
        self.engine.changes(now_us)

    def answers(self, second: float, answer: GpuAnswer | None, *, pci: PciAddress = ONE, on_bus: bool = True) -> None:
        """NVML was asked, and each incident hears it."""
        now_us = START_US + round(second * 1e6)
        if isinstance(answer, GpuState):
            answer = replace(answer, at_us=now_us)
            self.states.setdefault(pci, []).append(answer)
        slot = Slot(pci=pci, on_bus=on_bus, driver="nvidia", answer=answer)
        for incident in list(self.engine.incidents.values()):
            if str(pci) in incident.gpus and (incident.state != "resolved" or incident.end_reason == "unconfirmed_old"):
                self._ask(incident, slot, now_us)
        self.engine.changes(now_us)

    def card(self, second: float, name: str, heard_s: float | None = None) -> None:
        """This card answers in the slot; before another one took its place the slot was last heard of then."""
        now_us = START_US + round(second * 1e6)
        until_us = START_US + round(heard_s * 1e6) if heard_s is not None else None
        context = noted_card(ONE, Card(gpu_uuid=f"GPU-{name}"), now_us, HOST, until_us)
        self.engine.note(context)
        self.kept.append((f"card/{now_us}", context, now_us))
        self.engine.changes(now_us)

    def _ask(self, incident: Incident, slot: Slot, now_us: int) -> None:
        first = incident.members[0].finding.event.record.wall_us or 0
        last = max(member.last.last_record.wall_us or 0 for member in incident.members)
        states = self.states.get(slot.pci, [])
        before = [state for state in states if state.at_us < first]
        since = [state for state in states if state.at_us >= last]
        names, links = named_readings(incident, slot.pci)
        seen = Seen(
            slot=slot, before=before[-1] if before else None, since_us=first, last_us=last, reset=was_reset(since), links=links
        )  # fmt: skip
        known = {(check.pci, dict(check.facts)["check"]): check for check in incident.checks}
        for check in checks(names, seen, now_us):
            if worth_keeping(check, known.get((slot.pci, check.name))):
                context = noted(check, HOST, BOOT)
                self.engine.note(context)
                self.kept.append((f"check/{check.name}/{now_us}", context, now_us))

    def incident(self) -> Incident:
        """The only one."""
        (found,) = self.engine.incidents.values()
        return found

    def stands(self) -> tuple[str, str | None]:
        """Its state and why it ended."""
        return self.incident().state, self.incident().end_reason

    def replayed(self) -> Node:
        """A later daemon that has read what this one kept."""
        other = Node()
        for identity, item, then_us in self.kept:
            other.engine.replay(identity, decode(encode(item)), then_us)
        other.engine.changes(self.kept[-1][2])
        return other


def rows(*, pending: bool, action: int) -> GpuState:
    """One row was remapped; the driver asks for this."""
    return replace(
        IDLE, recovery_action=action, row_remap=RowRemap(correctable=0, uncorrectable=1, pending=pending, failed=False)
    )


def volatile(count: int, life: int = 1) -> GpuState:
    """So many uncorrected errors since the driver was loaded, and in its life."""
    return replace(IDLE, ecc=tuple(
        EccCount(lifetime=lifetime, severity="uncorrected", location="total", count=number)  # type: ignore[arg-type]
        for lifetime, number in (("volatile", count), ("aggregate", life))
    ))  # fmt: skip


def test_both_the_row_and_the_demand_must_be_done_with() -> None:
    """The driver withdraws its demand while the row still waits: nothing is over; once none waits, all is."""
    node = Node()
    node.line(0, REMAP)
    node.answers(5, rows(pending=True, action=4))
    node.answers(60, rows(pending=True, action=0))
    assert ("active", None) == node.stands()
    node.answers(120, rows(pending=False, action=0))
    assert ("resolved", "gpu_recovered") == node.stands()
    assert ("sure", False) == (node.incident().confidence, "contradicts" in node.incident().sentence)
    assert "no longer" in gpu_says(node.incident())[-1]
    assert node.stands() == node.replayed().stands()


@pytest.mark.parametrize("answer", [
    ResetRequired(code=16, text="reset", at_us=0), NotFound(at_us=0), Unresponsive(since_us=1, last_good=None, why="stuck"), None,
])  # fmt: skip
def test_only_a_gpu_that_answers_well_is_back(answer: GpuAnswer | None) -> None:
    """A lost GPU that must be reset, is not found, is silent or was not asked is still lost."""
    node = Node()
    node.line(0, OFF_BUS)
    for second, said in ((5, LOST), (60, answer), (7200, answer)):
        node.answers(second, said)
    assert ("active", None) == node.stands()
    assert "reboot_node" == node.incident().recovery.rung


def test_a_lost_gpu_that_is_back_must_work_for_an_hour() -> None:
    """Back, it awaits its proof; an hour idle proves nothing, an hour with work at its end does; a restart changes nothing."""
    node = Node()
    node.line(0, OFF_BUS)
    node.answers(5, LOST)
    node.answers(600, BUSY)
    assert ("awaiting_verification", "gpu_recovered") == node.stands()
    node.answers(1200, BUSY)
    node.answers(4300, IDLE)
    assert "awaiting_verification" == node.incident().state
    assert node.incident().id == node.replayed().incident().id
    assert node.stands() == node.replayed().stands()
    node.answers(8000, BUSY)
    assert ("resolved", "proven") == node.stands()
    assert node.stands() == node.replayed().stands()


def test_an_interrupted_hour_begins_anew() -> None:
    """Silence within the hour is no proof of anything: the hour counts from the next good answer."""
    node = Node()
    node.line(0, OFF_BUS)
    silent = Unresponsive(since_us=1, last_good=None, why="stuck")
    for second, answer in ((5, LOST), (600, BUSY), (3000, silent), (3600, BUSY), (4300, BUSY)):
        node.answers(second, answer)
    assert "awaiting_verification" == node.incident().state
    node.answers(7300, BUSY)
    assert "proven" == node.incident().end_reason


def test_an_answer_within_two_seconds_of_the_last_line_ends_nothing() -> None:
    """The sample may have been taken while the GPU was still falling."""
    node = Node()
    node.line(0, OFF_BUS)
    node.answers(0.5, LOST)
    node.answers(1.5, BUSY)
    assert ("active", None) == node.stands()
    node.answers(3, BUSY)
    assert "awaiting_verification" == node.incident().state


def test_a_line_that_the_gpu_contradicts_is_said_to_be_so() -> None:
    """NVML finds it well all along: the sentence says so, the confidence falls, and after an hour it only awaits a proof."""
    node = Node()
    node.answers(-30, BUSY)
    node.line(0, OFF_BUS)
    node.line(1, "45, pid=4711, name=python3, Ch 00000008")
    assert "sure" == node.incident().confidence
    node.answers(10, BUSY)
    incident = node.incident()
    assert ("likely", "critical", "active") == (incident.confidence, incident.severity, incident.state)
    assert "contradicts" in incident.sentence
    node.answers(3000, BUSY)
    assert "active" == node.incident().state
    node.answers(3700, BUSY)
    assert "awaiting_verification" == node.incident().state


def test_every_gpu_of_an_incident_must_be_back() -> None:
    """Two are lost together: with one of them back the node still has one that is not."""
    node = Node()
    node.line(0, OFF_BUS)
    node.line(1, OFF_BUS, pci=TWO)
    for pci in (ONE, TWO):
        node.answers(10, LOST, pci=pci)
    node.answers(100, BUSY)
    assert ("active", None) == node.stands()
    node.answers(110, BUSY, pci=TWO)
    assert "awaiting_verification" == node.incident().state
    node.answers(3800, BUSY)
    assert "awaiting_verification" == node.incident().state
    node.answers(3900, BUSY, pci=TWO)
    node.answers(7500, BUSY)
    assert "proven" == node.incident().end_reason


def test_a_task_that_still_hangs_asks_on() -> None:
    """The GPU answers again; the process that the driver holds in D state still needs the reboot."""
    node = Node()
    node.line(0, GSP)
    node.say(
        130,
        """INFO: task python3:4711 blocked for more than 120 seconds.
      Tainted: P           OE     5.15.0-91-generic #101-Ubuntu
"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.
task:python3         state:D stack:    0 pid: 4711 ppid:     1 flags:0x00004002
Call Trace:
 <TASK>
 __schedule+0x2cd/0x890
 schedule+0x69/0x110
 rwsem_down_write_slowpath+0x1f5/0x4e0
 os_acquire_rwlock_write+0x35/0x50 [nvidia]
 </TASK>""",
    )
    assert "reboot_node" == node.incident().recovery.rung
    node.answers(140, ResetRequired(code=16, text="reset", at_us=0))
    node.answers(300, BUSY)
    assert ("active", "reboot_node") == (node.incident().state, node.incident().recovery.rung)


def test_a_reset_shows_by_counters_that_fell() -> None:
    """Nothing waited and the driver asked nothing, but counters that only a reset sets back have fallen since."""
    node = Node()
    node.answers(-30, volatile(0, 0))
    node.line(0, DOUBLE_BIT)
    node.answers(10, volatile(1))
    assert "sure" == node.incident().confidence
    node.answers(70, volatile(1))
    assert ("active", None) == node.stands()
    node.answers(130, volatile(0))
    assert ("resolved", "reset_seen") == node.stands()
    assert node.stands() == node.replayed().stands()


def test_counters_that_fell_before_the_fault_are_no_sign() -> None:
    """A reset between the last good sample and the fault did not cure the fault."""
    node = Node()
    node.answers(-30, volatile(5))
    node.line(0, DOUBLE_BIT)
    node.answers(10, volatile(1))
    node.answers(70, volatile(1))
    assert ("active", None) == node.stands()


def test_a_failed_remap_asks_for_the_field_diagnostic() -> None:
    """The log tells of a row that waits; the GPU tells that remapping has failed: that is looked into, and ends with the card."""
    node = Node()
    node.line(0, REMAP)
    assert "field_diagnostic" not in rungs(node.incident())
    failed = replace(IDLE, row_remap=RowRemap(correctable=0, uncorrectable=9, pending=True, failed=True))
    node.engine.rejudge(node.engine.rules)
    node.line(1, "64, pid='<unknown>', name=<unknown>, Row Remapper: Error writing to the InfoROM")
    node.answers(10, failed)
    assert "field_diagnostic" in rungs(node.incident())


def rungs(incident: Incident) -> list[str]:
    """What is to be looked into."""
    return [demand.rung for demand in incident.investigate]


def test_a_rumour_needs_the_reading_that_its_rule_names() -> None:
    """Text inside another line is not borne out by a demand of the driver for another reason, but by a GPU that is gone."""
    node = Node()
    node.say(0, f"process 'x NVRM: Xid (PCI:0000:1b:00): {OFF_BUS}' started with executable stack")
    assert "unconfirmed" == node.incident().confidence
    node.answers(10, replace(BUSY, recovery_action=1))
    assert ("unconfirmed", "none") == (node.incident().confidence, node.incident().recovery.rung)
    node.answers(20, LOST)
    incident = node.incident()
    assert ("sure", "critical", "reboot_node") == (incident.confidence, incident.severity, incident.recovery.rung)


def test_an_old_fault_opens_when_the_gpu_bears_it_out() -> None:
    """Read hours later it is born closed; the GPU that is still lost opens it, one that is well does not."""
    stands = []
    for answer in (LOST, BUSY):
        node = Node()
        node.line(0, OFF_BUS, read_s=7200)
        assert ("resolved", "unconfirmed_old") == node.stands()
        node.answers(7210, answer)
        stands.append((node.incident().state, node.incident().recovery.rung))
        assert node.stands() == node.replayed().stands()
    assert [("active", "reboot_node"), ("resolved", "none")] == stands


def test_what_changes_nothing_is_not_kept() -> None:
    """A day of equal samples costs an entry an hour, not one a minute."""
    node = Node()
    node.line(0, OFF_BUS)
    node.answers(5, LOST)
    before = len(node.kept)
    for minute in range(1, 1440):
        node.answers(60 * minute, IDLE)
    assert len(node.kept) - before < 40


def texts(found: Iterable[Context]) -> str:
    """All of them."""
    return "\n".join(one.record.text for one in found)


def test_each_answer_says_how_old_it_is() -> None:
    """The reading, its age, and that of the reading that it was compared with."""
    node = Node()
    node.answers(-40, volatile(0, 0))
    node.line(0, DOUBLE_BIT)
    node.answers(20, volatile(1))
    assert "read 20 s after the first line; before: 60 s earlier" in texts(node.incident().checks)


def test_what_the_gpu_has_written_down_outlives_a_boot() -> None:
    """An Xid 64 of any wording, with the failure flag set, stands after a boot as it did before; without the flag it ends."""
    failed = replace(HEALTHY, row_remap=RowRemap(correctable=0, uncorrectable=9, pending=False, failed=True))
    for answer, state in ((failed, "active"), (HEALTHY, "resolved")):
        node = Node()
        node.line(1, "64, pid='<unknown>', name=<unknown>, Row Remapper: remapping of a row failed.")
        node.answers(5, answer)
        node.say(6, "Linux version 6.8.0-31-generic (buildd@lcy02) #31-Ubuntu SMP")
        assert state == node.incident().state


def test_a_row_that_is_remapped_at_once_bears_the_line_out() -> None:
    """No row waits, and there is one more than before: the repair is told, and is no contradiction."""
    node = Node()
    node.answers(-30, IDLE)
    node.line(0, REMAP)
    node.answers(10, rows(pending=True, action=0))
    node.answers(20, rows(pending=False, action=0))
    assert "the row is remapped, and none waits any more (1 remapped for uncorrectable errors, 0 before)" in texts(
        node.incident().checks
    )


def test_errors_are_counted_where_they_show_first() -> None:
    """The count in the InfoROM may lag: errors since the driver was loaded bear the fault out as well."""
    node = Node()
    node.answers(-30, volatile(0, 3))
    node.line(0, DOUBLE_BIT)
    node.answers(10, volatile(1, 3))
    assert "sure" == node.incident().confidence
    assert "1 uncorrected errors since the driver was loaded, 0 before" in texts(node.incident().checks)


def said(incident: Incident) -> dict[tuple[str, str], str]:
    """The answers by GPU and reading."""
    facts = [(str(check.pci), dict(check.facts)) for check in incident.checks]
    return {(gpu, fact["check"]): fact["answer"] for gpu, fact in facts}


def test_what_spoke_against_a_loss_is_withdrawn_when_it_shows() -> None:
    """It answers well at first, then is lost: nothing says any more that the driver asks nothing of it, or that it was found."""
    node = Node()
    node.answers(-30, BUSY)
    node.line(0, OFF_BUS)
    node.answers(1, BUSY)
    assert "contradicts" not in node.incident().sentence
    node.answers(6, BUSY)
    assert "contradicts" in node.incident().sentence
    node.answers(31, LOST)
    incident = node.incident()
    assert ("sure", None) == (incident.confidence, incident.driver_word)
    assert "contradicts" not in incident.sentence
    assert "contradicted" not in said(incident).values()
    assert node.incident().checks == node.replayed().incident().checks


def test_a_gpu_is_asked_only_about_its_own_lines() -> None:
    """One is lost and another cannot remap, in one incident: neither is held against what the other's lines say."""
    node = Node()
    node.line(0, OFF_BUS)
    node.line(
        1,
        "64, pid=4711, name=python3, Row Remapper Error: (0x00000000a4c1e000) - All reserved rows for bank are remapped",
        pci=TWO,
    )
    node.answers(10, LOST)
    node.answers(10, replace(IDLE, row_remap=RowRemap(correctable=0, uncorrectable=9, pending=False, failed=True)), pci=TWO)
    answers = said(node.incident())
    assert "confirmed" == answers[str(ONE), "gpu_not_found"] == answers[str(TWO), "row_remap_failure"]
    assert {(str(TWO), "gpu_not_found"), (str(ONE), "row_remap_failure")}.isdisjoint(answers)
    (why,) = (demand.why for demand in node.incident().investigate if demand.rung == "field_diagnostic")
    assert str(TWO) in why and str(ONE) not in why


def test_nothing_conflicts_where_the_program_is_at_fault() -> None:
    """A program's own error asks nothing of the GPU, and nor does the driver: nobody is told of a contradiction."""
    node = Node()
    node.answers(-30, BUSY)
    node.line(
        0,
        "31, pid=4711, name=python3, Ch 00000008, intr 10000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f29_a0000000. Fault is of type FAULT_PDE ACCESS_TYPE_READ",
    )
    node.answers(10, BUSY)
    incident = node.incident()
    assert ("restart_app", None) == (incident.recovery.rung, incident.driver_word)
    assert not [text for text in gpu_says(incident) if "asks nothing of it" in text]


def test_a_new_cards_fault_is_not_ended_with_the_old_ones() -> None:
    """A line between the last word of the old card and the first of the new one is the new one's: its incident stands."""
    node = Node()
    node.card(-30, "old")
    node.line(4.9, DOUBLE_BIT)
    node.answers(10, IDLE)
    node.line(17.033, DOUBLE_BIT)
    node.card(17.07, "new", heard_s=10.02)
    for one in (node, node.replayed()):
        found = {
            (incident.state, incident.end_reason, incident.members[0].count, incident.members[0].finding.event.gpu_uuid)
            for incident in one.engine.incidents.values()
        }
        assert {("resolved", "gpu_replaced", 1, "GPU-old"), ("active", None, 1, "GPU-new")} == found


def test_a_line_of_the_new_card_alone_stays_its_own() -> None:
    """All lines came since the slot was last heard of: nothing ends; what came before ends all the same."""
    stands = []
    for heard_s in (-10.0, 5.0, None):
        node = Node()
        node.card(-30, "old")
        node.line(0, DOUBLE_BIT)
        node.card(6, "new", heard_s=heard_s)
        stands.append((node.incident().state, node.incident().members[0].finding.event.gpu_uuid))
    assert [("active", "GPU-new"), ("resolved", "GPU-old"), ("resolved", "GPU-old")] == stands
