"""Words that every report shares: the name of an event, what its line says, how many, how long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xidwatch.core.event import (
    AerDetail,
    Event,
    HungTaskDetail,
    LockupDetail,
    MceDetail,
    NvrmDetail,
    OomDetail,
    SxidDetail,
    UserspaceDetail,
    XidDetail,
)
from xidwatch.core.incident import Filtered, Finding, Incident, Postmortem
from xidwatch.core.shortage import size
from xidwatch.render.layout import visible

KIND_NAMES = {
    "nvrm": "NVRM", "hung_task": "D state", "soft_lockup": "soft lockup", "hard_lockup": "hard lockup",
    "rcu_stall": "RCU stall",
    "oom_kill": "OOM kill", "aer": "PCIe AER", "mce": "MCE", "torch_oom": "torch OOM", "vllm_preemption": "vLLM",
    "nccl_timeout": "NCCL", "cuda_error": "CUDA",
}  # fmt: skip
END_REASONS = {
    "quiet": "nothing more was heard", "reset_seen": "the GPU was reset", "driver_reload": "the driver was loaded again",
    "boot": "the host booted again", "gpu_replaced": "another GPU is in the slot",
    "recovered_154": "the driver withdrew its demand", "gpu_recovered": "the GPU itself says that it is well again",
    "proven": "the GPU has been well since, and has worked",
    "released": "the stuck tasks went on or ended",
    "operator": "an operator closed it", "unconfirmed_old": "it is old and the present state does not confirm it",
}  # fmt: skip


def sentence(incident: Incident) -> str:
    """The incident's own sentence, with a warning in front when nothing else confirms it."""
    text = incident.sentence or f"{incident.title[:1].upper()}{incident.title[1:]}."
    return f"Unconfirmed: {text}" if incident.confidence == "unconfirmed" else text


def nothing_found(postmortem: Postmortem) -> str:
    """The verdict of a log without a fault."""
    missing = names(report.path for report in postmortem.inputs if report.unread)
    unread = f"; not read: {missing}" if missing else ""
    if not postmortem.records:
        empty = names(report.path for report in postmortem.inputs if not report.unread and report.format != "not read")
        return f"Nothing was read: the input is empty ({empty}){unread}." if empty else f"Nothing was read{unread}."
    read = names(report.path for report in postmortem.inputs if report.records)
    lines = f"{counted(postmortem.records, 'line')} of {read or names(report.path for report in postmortem.inputs)}"
    if postmortem.filtered is not None and postmortem.filtered.incidents:
        return f"No GPU fault left by the filter in {lines}; {filter_note(postmortem.filtered)}{unread}."
    return f"No GPU fault found in {lines}{unread}."


def filter_note(filtered: Filtered) -> str:
    """`--class memory leaves out 2 incidents (worst: critical)`."""
    verb = "leaves" if len(filtered.options) == 1 else "leave"
    options = " and ".join(visible(option) for option in filtered.options)
    hidden = f"{counted(filtered.incidents, 'incident')} (worst: {filtered.worst})" if filtered.incidents else "no incident"
    undated = f"; {counted(filtered.undated, 'event')} without a date kept" if filtered.undated else ""
    return f"{options} {verb} out {hidden}{undated}"


def memory_or_compute(incident: Incident) -> str:
    """The article's first question, answered."""
    answers = {
        "memory": "Memory, not compute.",
        "compute": "Compute, not memory.",
        "unknown": "Not known.",
        "interconnect": "Neither: the interconnect (NVLink, NVSwitch, fabric).",
        "platform": "Neither: the platform (PCIe, power, thermal, host, storage, network).",
        "software": "Neither: software (driver, versions, configuration).",
    }
    return answers[incident.fault_class]


def number(value: int) -> str:
    """`4,000`, `10.0 M`."""
    return f"{value / 1e6:.1f} M" if value >= 10_000_000 else f"{value:,}"


def counted(value: int, noun: str) -> str:
    """`1 line`, `4,000 lines`."""
    return f"{number(value)} {noun}{'' if value == 1 else 's'}"


def names(texts: Iterable[str], most: int = 3) -> str:
    """`a, b, c and 4 more`, each once and made visible."""
    distinct = list(dict.fromkeys(visible(text) for text in texts))
    shown = ", ".join(distinct[:most])
    return f"{shown} and {len(distinct) - most} more" if len(distinct) > most else shown


def seconds(value: float) -> str:
    """`2 s`, `14 min`, `3 h`, `9 days`."""
    if value < 120:
        return f"{value:.0f} s" if value >= 1 else "1 s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.0f} h" if value < 172_800 else f"{value / 86_400:.0f} days"


def label(event: Event) -> str:
    """`Xid 79`, `SXid 20034`, `D state`."""
    if event.kind == "xid":
        return f"Xid {event.code}"
    return f"SXid {event.code}" if event.kind == "sxid" else KIND_NAMES[event.kind]


def owner(event: Event) -> str | None:
    """`python3 (4711)`, or what is known of it."""
    if event.process is None:
        return f"pid {event.pid}" if event.pid is not None else None
    name = visible(event.process)
    return f"{name} ({event.pid})" if event.pid is not None else name


def said(finding: Finding) -> list[str]:
    """What the line itself says beyond its code, in phrases; read off the event, never guessed."""
    event = finding.event
    decoded = visible(finding.decoded) if finding.decoded else ""
    phrases = [phrase for phrase in _said(event) if phrase not in decoded]
    if decoded:
        phrases.insert(0, decoded.rstrip("."))
    if event.gpu_instance is not None:
        compute = f"/{event.compute_instance}" if event.compute_instance is not None else ""
        phrases.append(f"MIG instance {event.gpu_instance}{compute}")
    return phrases


def _said(event: Event) -> Iterator[str]:
    match event.detail:
        case XidDetail() as detail:
            yield from _xid_said(detail)
        case SxidDetail() as detail:
            yield from _sxid_said(detail)
        case NvrmDetail() as detail:
            yield from _nvrm_said(detail)
        case HungTaskDetail() as detail:
            yield from _hung_said(detail)
        case LockupDetail() as detail:
            yield from _lockup_said(detail)
        case OomDetail() as detail:
            yield from _oom_said(detail)
        case AerDetail() as detail:
            yield visible(", ".join(part for part in (detail.severity_word, detail.error_type) if part)) or "no details"
        case MceDetail() as detail:
            yield from _mce_said(detail)
        case UserspaceDetail() as detail:
            yield from _program_said(detail)
        case None:
            return


def _sxid_said(detail: SxidDetail) -> Iterator[str]:
    if detail.switch is not None:
        yield f"NVSwitch {detail.switch}"
    if detail.link is not None:
        yield f"link {detail.link}"
    if detail.severity_word:
        yield f"the line says {visible(detail.severity_word)}"


def _lockup_said(detail: LockupDetail) -> Iterator[str]:
    if detail.cpu is not None:
        yield f"CPU {detail.cpu}" + (f" stuck for {detail.stuck_s} s" if detail.stuck_s else "")
    if detail.gpu_related:
        yield "with a GPU driver on its stack"


def _oom_said(detail: OomDetail) -> Iterator[str]:
    yield (
        "the kernel panicked"
        if detail.panic
        else "its memory cgroup was full"
        if detail.memcg
        else "the host's memory was full"
    )
    if detail.anon_rss_bytes is not None:
        yield f"{size(detail.anon_rss_bytes)} resident"


def _xid_said(detail: XidDetail) -> Iterator[str]:
    if detail.caused_by is not None:
        yield f"caused by previous Xid {detail.caused_by}"
    if detail.recovery_action is not None:
        before = detail.recovery_action_from
        yield f"recovery action {detail.recovery_action}" + (f", before {before}" if before is not None else "")
    if detail.engine or detail.access or detail.address is not None:
        where = f" at {detail.address:#x}" if detail.address is not None else ""
        yield visible(" ".join(part for part in (detail.engine, detail.access, detail.fault_type) if part)) + where
    if detail.places:
        gpc, tpc, sm = detail.places[0]
        more = f" and {len(detail.places) - 1} more places" if len(detail.places) > 1 else ""
        yield f"GPC {gpc}, TPC {tpc}, SM {sm}{more}"
    elif detail.gpc is not None:
        yield f"GPC {detail.gpc}" + (f", TPC {detail.tpc}" if detail.tpc is not None else "")
    if detail.subcode:
        yield visible(f"{detail.subcode} {detail.severity_word or ''}".rstrip())
    if detail.link is not None and detail.link >= 0:
        yield f"link {detail.link}"
    if detail.link_down_reason is not None:
        yield f"link-down reason {detail.link_down_reason}"
    if detail.cross_contained:
        yield "the cause may sit at the remote end (XC1)"
    if detail.reset_flags is not None:
        yield ", ".join(f"{flag}: Yes" for flag in detail.reset_flags) or "RST: No, D-RST: No"
    if detail.function:
        yield f"waited for {visible(detail.function)}"
    if detail.physical_address is not None:
        yield f"physical address {detail.physical_address:#x}"


def _nvrm_said(detail: NvrmDetail) -> Iterator[str]:
    if detail.init_step_name:
        yield f"at {visible(detail.init_step_name)}"
    elif detail.init_step is not None:
        yield f"at step {detail.init_step:#x}"
    if detail.status is not None:
        yield f"status {detail.status:#x}"
    if detail.client_version or detail.module_version:
        yield visible(f"client {detail.client_version or '?'}, kernel module {detail.module_version or '?'}")
    if detail.serial:
        yield f"serial {visible(detail.serial)}"


def _hung_said(detail: HungTaskDetail) -> Iterator[str]:
    if detail.blocked_s is not None:
        yield f"blocked for more than {detail.blocked_s} s" + (" (seen in /proc)" if detail.seen_by else "")
    if detail.why:
        yield visible(detail.why)
    elif detail.stack:
        yield f"waits in {visible(detail.stack[0])}"
    if detail.blocked_by:
        yield f"{detail.lock or 'lock'} held by {visible(detail.blocked_by)}"
    if detail.killable is not None:
        yield "kill -9 works on it" if detail.killable else "SIGKILL will not end it"


def _mce_said(detail: MceDetail) -> Iterator[str]:
    places = [f"{name} {value}" for name, value in (("CPU", detail.cpu), ("bank", detail.bank)) if value is not None]
    if detail.location:
        places.append(visible(detail.location))
    if places:
        yield ", ".join(places)
    if detail.corrected is not None:
        yield "corrected" if detail.corrected else "uncorrected"


def _program_said(detail: UserspaceDetail) -> Iterator[str]:
    if detail.tried is not None:
        parts = [f"wanted {size(detail.tried)}"]
        if detail.free is not None:
            of_total = f" of {size(detail.total)}" if detail.total is not None else ""
            parts.append(f"{size(detail.free)}{of_total} was free")
        if detail.reserved_unallocated is not None:
            parts.append(f"{size(detail.reserved_unallocated)} reserved but unallocated")
        yield ", ".join(parts)
    if detail.op:
        facts = [visible(detail.op), *(f"{n} {v}" for n, v in (("seq", detail.seq), ("rank", detail.rank)) if v is not None)]
        limit = f" gave up after {seconds(detail.timeout_ms / 1000)}" if detail.timeout_ms else ""
        yield " ".join(facts) + limit
    if detail.mode:
        yield f"mode {visible(detail.mode)}"
    if detail.cumulative is not None:
        yield f"{counted(detail.cumulative, 'preemption')} so far"
