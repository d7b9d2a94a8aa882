"""The one sentence that says what happened, and short names for events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone, tzinfo

from xidwatch.core.account import NO_XID, NO_XID_SEEN
from xidwatch.core.answered import gpus_say
from xidwatch.core.event import Context, Event, HungTaskDetail
from xidwatch.core.incident import Incident, Member
from xidwatch.core.job import job_words
from xidwatch.core.links import interface_of, is_ordinary
from xidwatch.core.record import Record

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
DAY_S = 86_400.0
_MANY = 299
"""The correlator keeps so many members of one rule apart."""
_NAMES = {
    "hung_task": "D state",
    "soft_lockup": "soft lockup",
    "hard_lockup": "hard lockup",
    "rcu_stall": "RCU stall",
    "oom_kill": "OOM kill",
    "aer": "PCIe error (AER)",
    "mce": "machine check",
    "torch_oom": "torch out of memory",
    "vllm_preemption": "vLLM preemption",
    "nccl_timeout": "NCCL time-out",
    "cuda_error": "CUDA error",
}
_NVRM_NAMES = {
    "rm_init_adapter_failed": "driver could not start the GPU",
    "fallen_off_bus": "driver: GPU off the bus",
    "probe_failed": "driver probe failed",
    "api_mismatch": "driver API mismatch",
    "reset_required": "driver: reset required",
    "gpu_lost": "driver: GPU lost",
    "gpu_missing": "GPU missing",
    "gsp_timeout": "GSP time-out",
    "gsp_crash_report": "GSP crash report",
    "pmu_halted": "PMU halted",
    "kernel_oops": "kernel oops in the driver",
    "other": "driver message",
}


def event_name(event: Event) -> str:
    """What a person calls it: `Xid 79`, `SXid 20034`, `D state`, `GSP time-out`."""
    if event.kind == "xid":
        return f"Xid {event.code}"
    if event.kind == "sxid":
        return f"SXid {event.code}"
    if event.kind == "nvrm":
        return _NVRM_NAMES.get(event.what or "other", (event.what or "other").replace("_", " "))
    return _NAMES[event.kind]


def wall_time(record: Record, zone: tzinfo) -> datetime | None:
    """Wall-clock time in the record's own zone, else in the given one; None when it has none that a calendar holds."""
    if record.wall_us is None:
        return None
    try:
        if record.utc_offset_s is not None:
            zone = timezone(timedelta(seconds=record.utc_offset_s))
        return (_EPOCH + timedelta(microseconds=record.wall_us)).astimezone(zone)
    except (OverflowError, ValueError):
        return None


def clock_text(record: Record, zone: tzinfo, *, dated: bool) -> str:
    """`02:13`, with its date where that is asked for; "" for a record without a wall-clock time."""
    at = wall_time(record, zone)
    return "" if at is None else f"{at:%Y-%m-%d %H:%M}" if dated else f"{at:%H:%M}"


def span_text(seconds: float) -> str:
    """`40 minutes`, `3 days`: the largest unit of which there are two."""
    for size, unit in ((DAY_S, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} seconds"


def sentence(incident: Incident, zone: tzinfo = timezone.utc) -> str:
    """Subject, what it did, when, and what came of it; no advice."""
    root = incident.members[incident.root]
    if incident.cause is not None:
        parts = [f"{_began(incident.cause, incident)}{_when(incident.cause.record, zone)}{_toll(incident, incident.cause)}"]
    else:
        when = _when(root.finding.event.record, zone)
        parts = [f"{_subject(incident, root)} {root.finding.rule.phrase}{_place(incident, root)}{when}{_toll(incident)}"]
    parts[0] += f": {incident.figures}." if incident.figures else "."
    if NO_XID_SEEN in incident.excluded:
        parts.append(NO_XID)
    if incident.patterns:
        parts.append(f"{'It' if incident.gpus else 'This'} {incident.patterns[0]}.")
    if gpus_answer(incident) == "contradicted":
        parts.append("What the GPU itself says contradicts it.")
    if incident.confidence == "unconfirmed":
        parts.append("Only text inside other lines says so; nothing confirms it.")
    return " ".join(parts)


def gpus_answer(incident: Incident) -> str | None:
    """Whether the GPUs bear the root out: "confirmed" or "contradicted"; None where they say nothing that settles it."""
    findings = [member.finding for member in incident.members]
    return gpus_say(findings[incident.root].rule, findings, incident.checks)


def _began(cause: Context, incident: Incident) -> str:
    """A context line as the sentence's subject: `The network link ibs1 of node03 went down`."""
    facts = dict(cause.facts)
    host = cause.record.host or (incident.hosts[0] if len(incident.hosts) == 1 else None)
    of = f" of {host}" if host else ""
    if cause.kind == "link_down":
        name = facts.get("interface")
        return f"The network link {name}{of} went down" if name else f"A network link{of} went down"
    if cause.kind == "panic":
        return f"{host or 'The node'} panicked"
    return f"The network failed a transfer{of}"


def _subject(incident: Incident, root: Member) -> str:
    event, scope = root.finding.event, root.finding.rule.scope
    host = incident.hosts[0] if incident.hosts else None
    if scope == "process":
        return _waiting(incident) or _program(event) if event.kind == "nccl_timeout" else _program(event)
    struck = [m.finding.event.pci for m in incident.members if m.finding.rule.id == root.finding.rule.id]
    cards = {pci for pci in struck if pci is not None}
    if len(cards) > 1 and incident.scope in ("node", "fabric"):
        return f"{len(cards)} {'NVSwitches' if event.kind == 'sxid' else 'GPUs'}{f' of {host}' if host else ''}"
    if event.kind == "sxid" and event.pci is not None:
        return f"NVSwitch {event.pci}"
    if scope == "gpu" or event.pci is not None:
        of = f" of {host}" if len(incident.hosts) > 1 and host else ""
        return f"GPU {event.pci}{of}" if event.pci is not None else f"A GPU{of} (the line does not say which)"
    return host or "The node"


def _program(event: Event) -> str:
    if event.process is None and event.pid is None:
        return "A program"
    name = event.process or "A process"
    whose = f", {words}," if (words := job_words(event.job)) else ""
    return f"{name} (pid {event.pid}){whose}" if event.pid is not None else name


def _waiting(incident: Incident) -> str:
    """`Ranks 0, 1 and 2`, without the one that is known to differ from them; "" when no line names a rank."""
    from xidwatch.core.collective import ranks_text

    apart = incident.lag.apart if incident.lag is not None else frozenset()
    if not (ranks := incident.ranks - apart or incident.ranks):
        return ""
    text = ranks_text(sorted(ranks))
    return text[:1].upper() + text[1:]


def _place(incident: Incident, root: Member) -> str:
    event = root.finding.event
    if root.finding.rule.scope != "process" or event.pci is None:
        return ""
    if len(incident.gpus) > 1:
        return f" on {len(incident.gpus)} GPUs"
    slice_ = f", MIG instance {event.gpu_instance}" if event.gpu_instance is not None else ""
    return f" on GPU {event.pci}{slice_}"


def _when(record: Record, zone: tzinfo) -> str:
    if (at := wall_time(record, zone)) is not None:
        return f" at {at:%H:%M:%S}"
    if record.since_boot_us is not None:
        return f" {record.since_boot_us / 1e6:.2f} s after boot"
    return ""


def _toll(incident: Incident, cause: Context | None = None) -> str:
    """Whom it hit: processes whose channels were torn down, tasks stuck in D state, ranks that waited in vain."""
    own = None if cause is not None else incident.root
    followers = [member for i, member in enumerate(incident.members) if i != own and member.role != "context"]
    torn = {m.finding.event.pid for m in followers if m.finding.event.kind == "xid" and m.finding.event.pid_role == "owner"}
    torn.discard(incident.members[incident.root].finding.event.pid)
    stuck = [m.finding.event for m in followers if isinstance(m.finding.event.detail, HungTaskDetail)]
    timeouts = [m.finding.event for m in followers if m.finding.event.kind == "nccl_timeout"]
    if own is not None and incident.members[own].finding.event.kind == "nccl_timeout":
        timeouts = []
    nameless = any(_is_nameless(event) for event in timeouts)
    ranks = (len(incident.ranks) + nameless) if timeouts else 0
    elsewhere = dict.fromkeys(event.record.host for event in timeouts if event.record.host) if len(incident.hosts) > 1 else {}
    said, doubt = [], ""
    if torn - {None}:
        said.append(
            f"took {'at least ' if len(torn) >= _MANY else ''}{len(torn)} process{'es' if len(torn) != 1 else ''} with it"
        )
    if stuck:
        names = ", ".join(dict.fromkeys(f"{event.process or 'task'} ({event.pid})" for event in stuck[:2]))
        more = f" and {len(stuck) - 2} more" if len(stuck) > 2 else ""
        said.append(f"left {names}{more} stuck in D state")
    if ranks:
        whom = f"{ranks:,} NCCL rank{'s' if ranks != 1 else ''}{_on(list(elsewhere))}"
        if incident.rivals or (cause is not None and is_ordinary(cause)):
            other = f"or {rivals_text(incident.rivals)}, or neither" if incident.rivals else "or not"
            doubt = f"; {whom} timed out, because of this {other}"
        else:
            said.append(f"made {whom} time out")
    return (f" and {' and '.join(said)}" if said else "") + doubt


def rivals_text(rivals: Sequence[Context | Event]) -> str:
    """`the network link ib0 of node03 that went down`, `Xid 79 of node05 and 2 more`: what may as well have begun it."""
    named = []
    for rival in rivals:
        of = f" of {rival.record.host}" if rival.record.host else ""
        if isinstance(rival, Event):
            named.append(f"{event_name(rival)} on GPU {rival.pci}{of}" if rival.pci is not None else f"{event_name(rival)}{of}")
        elif rival.kind == "panic":
            named.append(f"the panic{of}")
        else:
            named.append(f"the network link {interface_of(rival)}{of} that went down".replace("  ", " "))
    return f"{' or '.join(named[:2])}{f' or {len(named) - 2} more' if len(named) > 2 else ''}"


def _is_nameless(timeout: Event) -> bool:
    """Whether its line names no rank."""
    from xidwatch.core.collective import call_of

    return call_of(timeout) is None


def _on(hosts: list[str]) -> str:
    """` on node02 and node03`, ` on 14 nodes`; "" for none."""
    if len(hosts) > 3:
        return f" on {len(hosts)} nodes"
    return f" on {' and '.join(filter(None, (', '.join(hosts[:-1]), hosts[-1])))}" if hosts else ""
