"""Postmortems built by hand: a GPU that fell off the bus, a job that ended, a log with nothing in it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest

from xidwatch.core.classify import Entry, Key, Knowledge, RuleTable, TableName
from xidwatch.core.event import AerDetail, Context, Event, HungTaskDetail, XidDetail
from xidwatch.core.incident import Demand, Finding, HostReport, Incident, InputReport, Member, Postmortem, Recurrence
from xidwatch.core.pci import PciAddress
from xidwatch.core.record import Record
from xidwatch.core.rule import INVESTIGATIONS, RUNGS, Action, Combination, Command, Precondition, Rule, Source

GPU = PciAddress(0, 0x4E, 0)
HOST = "train-a3-017"
UUID = "GPU-1b2c3d4e-1111-2222-3333-44445555abcd"
SERIAL = "1650123000001"
MIDNIGHT_US = round(datetime(2026, 11, 30, 1, 0, tzinfo=timezone.utc).timestamp() * 1e6)
SOURCES = (Source(url="https://docs.nvidia.com/deploy/xid-errors/", checked="2026-11-30"),)


def rule(rule_id: str, title: str, **more: object) -> Rule:
    """A rule with everything that a test does not care about."""
    values: dict[str, object] = {
        "phrase": "did something",
        "fault_class": "platform",
        "origin": "hardware",
        "severity": "critical",
        "scope": "gpu",
        "recovery": "none",
        "rank": 50,
        "explain": "What it means.\nWhat to look at.",
        "sources": SOURCES,
        "examples": (f"an example of {rule_id}",),
        "file": "xid.toml",
    }
    return Rule(id=rule_id, title=title, **{**values, **more})  # type: ignore[arg-type]  # test values


XID_79 = rule(
    "xid-79",
    "GPU has fallen off the bus",
    xid=79,
    phrase="fell off the PCIe bus",
    recovery="power_cycle",
    explain="The GPU no longer answers over PCIe. Look at AER lines just before it. Do not try a reset.",
    tenant="Restart the job elsewhere from its last checkpoint.",
    vendor_immediate="RESTART_BM",
    vendor_investigate="CONTACT_SUPPORT",
)
XID_154 = rule("xid-154", "the driver asks for a node reboot", xid=154, recovery="reboot_node")
XID_45 = rule(
    "xid-45", "channel removed", xid=45, fault_class="compute", origin="application", severity="info", phrase="was torn down",
    explain="A channel was removed because its program ended.", departs="At the end of a job it is ordinary teardown",
)  # fmt: skip
XID_94 = rule("xid-94", "contained memory error", xid=94, fault_class="memory", severity="warning", recovery="restart_app")
XID_94_RESET = rule(
    "xid-94-reset", "contained memory error that needs a reset", xid=94, fault_class="memory", recovery="reset_gpu",
    where=(("reset_flags", ("RST",)),),
)  # fmt: skip
HUNG = rule("hung-task-gpu", "waits for the GPU driver", kind="hung_task", fault_class="compute", origin="driver")
AER = rule("aer-uncorrected", "uncorrectable PCIe error", kind="aer", context=True)
UNKNOWN = rule(
    "xid-unknown", "unknown Xid", kind="xid", fault_class="unknown", origin="unknown", severity="warning",
    investigate=("contact_support",), explain="No rule knows this number.",
)  # fmt: skip
RULES = (XID_79, XID_154, XID_45, XID_94, XID_94_RESET, HUNG, AER, UNKNOWN)
COMMANDS = {
    "power_cycle": Command(argv=("ipmitool", "-H", "<bmc>", "chassis", "power", "cycle"), destructive=True),
    "reset_gpu": Command(argv=("nvidia-smi", "--gpu-reset", "-i", "<gpu>"), destructive=True, needs_root=True),
    "reboot_node": Command(argv=("systemctl", "reboot"), destructive=True),
    "check_seating": Command(argv=("lspci", "-vvv", "-s", "<gpu>")),
    "check_app": Command(argv=("ps", "-o", "args=", "-p", "<pid>")),
    "check_host": Command(argv=("ssh", "<node>", "sh", "-c", "dmesg | tail")),
}


def action(name: str) -> Action:
    """An action with one command where a test needs one."""
    commands = (COMMANDS[name],) if name in COMMANDS else ()
    verify = (Command(argv=("nvidia-smi", "-L")),) if name == "power_cycle" else ()
    preconditions = (Precondition(say="drain the node"),) if name == "power_cycle" else ()
    return Action(
        id=name, say=name.replace("_", " "), explain="How.", commands=commands, preconditions=preconditions, verify=verify
    )


def entry(table: TableName, value: Knowledge, entry_id: str, key: Key | None = None) -> Entry:
    """A table entry that is already read."""
    return Entry(table=table, id=entry_id, key=key, file="xid.toml", load=lambda: value)


def key_of(one: Rule) -> Key:
    """What a rule is about."""
    return ("xid", one.xid) if one.xid is not None else ("kind", one.kind or "")


@pytest.fixture
def few_rules() -> RuleTable:
    """A small table that no change of the shipped rules moves."""
    together = Combination(
        id="xid-94-with-63", member="xid-94", together=("xid-63",), explain="A row waits to be remapped.", sources=SOURCES
    )
    return RuleTable(
        [
            *(entry("rule", one, one.id, key_of(one)) for one in RULES),
            *(entry("action", action(name), name) for name in (*RUNGS, *INVESTIGATIONS)),
            entry("combination", together, together.id),
        ]
    )


def record(text: str, after_s: float, line: int, **more: object) -> Record:
    """A line of kern.log, some seconds after 02:00 in a zone one hour east of Greenwich."""
    values: dict[str, object] = {
        "seq": line,
        "line": line,
        "wall_us": MIDNIGHT_US + round(after_s * 1e6),
        "host": HOST,
        "timed": True,
        "time_source": "log",
        "utc_offset_s": 3600,
    }
    return Record(text=text, **{**values, **more})  # type: ignore[arg-type]  # test values


def event(kind: str, text: str, after_s: float, line: int, **more: object) -> Event:
    """An event of one line."""
    at = record(text, after_s, line)
    values = {"uid": (0, line, 0), "kind": kind, "record": at, "last_record": at, **more}
    return Event(**values)  # type: ignore[arg-type]  # test values


def member(of: Event, judged_by: Rule, role: str = "consequence", count: int = 1, last: Event | None = None) -> Member:
    """A member of an incident."""
    return Member(
        finding=Finding(event=of, rule=judged_by), count=count, lines=count, last=last or of, role=role  # type: ignore[arg-type]
    )  # fmt: skip


def torn_down(pid: int, after_s: float, line: int, caused_by: int | None = 79) -> Event:
    """A channel removed with its process."""
    return event(
        "xid", f"NVRM: Xid (PCI:0000:4e:00): 45, pid={pid}, name=vllm_worker, Ch 00000008", after_s, line,
        code=45, pci=GPU, pid=pid, pid_role="owner", process="vllm_worker", detail=XidDetail(message="Ch", caused_by=caused_by),
    )  # fmt: skip


def lost_gpu() -> Incident:
    """A GPU off the bus, with its AER line before and everything that followed."""
    root = event(
        "xid", "NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.", 785.123, 3, code=79, pci=GPU,
        detail=XidDetail(message="GPU has fallen off the bus."),
    )  # fmt: skip
    asks = event(
        "xid", "NVRM: Xid (PCI:0000:4e:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
        785.14, 4, code=154, pci=GPU, detail=XidDetail(recovery_action=2, recovery_action_from=0),
    )  # fmt: skip
    stuck = event(
        "hung_task", "INFO: task vllm_worker:7711 blocked for more than 120 seconds.", 910.0, 4005, pid=7711,
        process="vllm_worker",
        detail=HungTaskDetail(blocked_s=120, stack=("nvidia_unlocked_ioctl",), gpu_related=True, killable=False),
    )  # fmt: skip
    before = event(
        "aer", "pcieport 0000:4d:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer", 784.99, 2,
        pci=PciAddress(0, 0x4D, 0), detail=AerDetail(severity_word="Uncorrectable (Fatal)", error_type="Transaction Layer"),
    )  # fmt: skip
    storm = torn_down(7711, 785.2, 5)
    members = (
        member(before, AER, "context"),
        member(root, XID_79, "root"),
        member(asks, XID_154),
        member(storm, XID_45, count=3998, last=torn_down(7711, 787.2, 4002)),
        member(torn_down(7712, 785.3, 6), XID_45),
        member(torn_down(7713, 785.4, 7), XID_45),
        member(stuck, HUNG),
    )
    return Incident(
        id="0123456789ab",
        title="GPU has fallen off the bus",
        state="active",
        fault_class="platform",
        origin="hardware",
        severity="critical",
        confidence="sure",
        scope="gpu",
        gpus=(str(GPU),),
        hosts=(HOST,),
        members=members,
        root=1,
        recovery=Demand(rung="power_cycle", when="now", why="Xid 79: GPU has fallen off the bus"),
        investigate=(Demand(rung="check_seating", why="AER just before it"), Demand(rung="contact_support")),
        recurrence=Recurrence(count=2, since=event("xid", "NVRM: Xid 79", -800_000, 1, code=79)),
        context=(
            Context(kind="link_down", record=record("mlx5_core 0000:51:00.0 eth0: Link down, peer 10.11.12.13", 784.5, 1)),
        ),
        excluded=("the application: no fault of its own stands before it",),
        unknowns=("whether NVML still finds the GPU: `nvidia-smi -L`",),
        sentence="GPU 0000:4e:00.0 fell off the PCIe bus at 02:13:05 and took 3 processes with it.",
    )


def report(path: str = "/home/alice/logs/kern.log.1.gz", records: int = 10_000_000) -> InputReport:
    """What was read."""
    return InputReport(
        path=path, format="syslog", bytes=1 << 30, records=records,
        first=record("first", 0, 1) if records else None, last=record("last", 3600, records) if records else None,
    )  # fmt: skip


def postmortem_of(*incidents: Incident) -> Postmortem:
    """A postmortem of one host's log."""
    host = HostReport(
        host=HOST, driver_version="580.95.05", module_flavour="open", kernel="6.8.0-60", gpus={str(GPU): (UUID, SERIAL)}
    )
    return Postmortem(inputs=(report(),), hosts=(host,), incidents=incidents, records=10_000_000, gpu_lines=4007)


@pytest.fixture
def off_the_bus() -> Postmortem:
    """One incident: Xid 79 with its consequences."""
    return postmortem_of(lost_gpu())


@pytest.fixture
def job_end() -> Postmortem:
    """One incident: Xid 45 alone, at the end of a job."""
    root = member(torn_down(4711, 100.0, 10, caused_by=None), XID_45, "root", count=8)
    return postmortem_of(
        replace(
            lost_gpu(),
            id="ba9876543210",
            title="channel removed",
            state="resolved",
            end_reason="quiet",
            end=root.last,
            fault_class="compute",
            origin="application",
            severity="info",
            confidence="likely",
            scope="process",
            members=(root,),
            root=0,
            recovery=Demand(rung="none", why="ordinary teardown"),
            investigate=(),
            recurrence=None,
            context=(),
            excluded=(),
            unknowns=(),
            sentence="vllm_worker (pid 4711) was torn down on GPU 0000:4e:00.0 at 02:01:40.",
        )
    )


@pytest.fixture
def nothing() -> Postmortem:
    """A log without a fault."""
    return Postmortem(inputs=(report(records=1234),), hosts=(), incidents=(), records=1234)
