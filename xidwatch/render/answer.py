"""What every report for a person says of an incident beside its timeline: what to do and when, how sure, how it stands."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING

from xidwatch.core.answered import worth_telling
from xidwatch.core.incident import Demand, Incident, InputReport, Postmortem
from xidwatch.core.rule import When
from xidwatch.core.verdict import event_name, gpus_answer
from xidwatch.render.layout import visible
from xidwatch.render.steps import say
from xidwatch.render.timeline import Times, times
from xidwatch.render.wording import END_REASONS, counted, filter_note, names

if TYPE_CHECKING:
    from xidwatch.core.classify import RuleTable

WHEN: dict[When | None, str] = {
    "now": "",
    "after_drain": "let running jobs finish (drain), then ",
    "when_idle": "not urgent; once it is idle, ",
    None: "",
}
CONFIDENCE = {
    "sure": "sure (independent lines agree)",
    "likely": "likely (one kind of line says so)",
    "unconfirmed": "unconfirmed (one line inside other text)",
}
_TELLING = {
    "nccl_network_error": "a transfer that failed", "nccl_peer_error": "a peer that is gone (look at its log)",
    "nccl_error": "an NCCL error (look at the other ranks' logs)", "link_down": "a network link that went down",
    "panic": "a kernel panic",
}  # fmt: skip
_MOST_TOLD = 3
SILENCE = (
    "a program that runs out of GPU memory leaves no Xid: its message is in the program's own log",
    "the kernel stops reporting hung tasks after kernel.hung_task_warnings of them (10 unless changed)",
    "the driver prints an Xid at level warning: a log that keeps only errors has none",
    "a node that died hard may have lost its last lines: look at its BMC or at a remote log",
)


def look_now(incident: Incident) -> Demand | None:
    """What to look into at once, where nothing is to be recovered and yet somebody has to act."""
    urgent = incident.recovery.rung == "none" and incident.severity != "info" and incident.state == "active"
    return incident.investigate[0] if urgent and incident.investigate else None


def do_now(rules: RuleTable, incident: Incident) -> str:
    """`let running jobs finish (drain), then reset the GPU`; `nothing to recover; check the application`."""
    if (look := look_now(incident)) is not None:
        return f"nothing to recover; {say(rules, look.rung, incident)}"
    if incident.state == "awaiting_verification" and incident.recovery.rung == "none":
        return "nothing to recover; show that it is well before it takes work again"
    where = f" ({visible(incident.at_fault[0])})" if len(incident.hosts) > 1 and len(incident.at_fault) == 1 else ""
    told = WHEN[incident.recovery.when] + say(rules, incident.recovery.rung, incident)
    return told + (where if incident.recovery.rung not in ("none", "restart_app") else "")


def reason(demand: Demand, incident: Incident) -> str:
    """Why it is asked for, where the verdict has not just said so."""
    root, why = incident.members[incident.root].finding, demand.why.rstrip(".")
    return "" if why in (root.rule.title, f"{event_name(root.event)}: {root.rule.title}") else visible(why)


def confidence(incident: Incident) -> str:
    """How sure it is, and why."""
    said = gpus_answer(incident)
    if said == "confirmed":
        return "sure (the GPU itself agrees)"
    return f"{incident.confidence} (the GPU itself contradicts it)" if said else CONFIDENCE[incident.confidence]


def judgement(incident: Incident) -> str:
    """`platform · hardware · critical · sure (independent lines agree)`."""
    return f"{incident.fault_class} · {incident.origin} · {incident.severity} · {confidence(incident)}"


def gpu_says(incident: Incident) -> list[str]:
    """`confirmed: 0000:3b:00.0: NVML has lost it`, what bears the log out first; what several GPUs say alike stands once."""
    found: dict[tuple[str, str], list[str]] = {}
    checks = [{"gpu": str(check.pci), "said": check.record.text, **dict(check.facts)} for check in incident.checks]
    for word, check in worth_telling(checks, driver_told=incident.driver_word is not None):
        gpu = check["gpu"]
        found.setdefault((word, check["said"].removeprefix(f"{gpu}: ")), []).append(gpu)
    return [f"{answer}: {names(gpus)}: {text}" for (answer, text), gpus in sorted(found.items(), key=_against_last)]


def _against_last(said: tuple[tuple[str, str], list[str]]) -> bool:
    return said[0][0] != "confirmed"


def for_the_job(incident: Incident) -> str | None:
    """What the job's owner can do, where that differs from what the node's admin has to do."""
    root = incident.members[incident.root]
    if incident.lag is not None and incident.lag.ranks:
        from xidwatch.core.collective import ranks_text

        named = ranks_text(incident.lag.ranks)
        if incident.lag.verdict == "apart":
            return f"Look at {named} first, and at what the program did there: {incident.lag.text}."
        return f"Look at {named} first: log, node and stack (py-spy dump); restart the job without a node at fault."
    return next((member.finding.rule.tenant for member in (root, *incident.members) if member.finding.rule.tenant), None)


def state(incident: Incident, shown: Times) -> str:
    """How an incident that is no longer active stands."""
    ended = END_REASONS.get(incident.end_reason or "", "")
    word = "after" if incident.end_reason == "quiet" else "at"
    at = f" {word} {shown.of(incident.end.record)}" if incident.end is not None else ""
    if incident.state == "awaiting_verification":
        return f"seems over ({ended}{at}), but nothing in the log proves it; verify before it takes work"
    return f"over: {ended}{at}"


def again(incident: Incident, zone: tzinfo | None) -> str | None:
    """`seen 2 times before in this log, first 2026-11-21 02:13:05`; None when it was not."""
    if (before := incident.recurrence) is None:
        return None
    since = times([before.since.record], zone)
    when = f"{since.heading.split(',')[0]} {since.of(before.since.record)}".strip()
    return f"seen {counted(before.count, 'time')} before in this log, first {when}"


def covered(report: InputReport, zone: tzinfo | None) -> str:
    """What was read of one input, and from when to when it reaches."""
    span = ""
    if report.first is not None and report.last is not None:
        shown = times([report.first, report.last], zone)
        span = f", {shown.of(report.first)} to {shown.of(report.last)}"
        span += f" ({shown.heading})" if shown.heading else ""
    read = "not read" if _is_unread(report) else counted(report.records, "line")
    return f"{visible(report.path)}: {read}{span}"


def _is_unread(report: InputReport) -> bool:
    return report.format == "not read" or (report.unread and not report.records)


def all_notes(postmortem: Postmortem) -> list[str]:
    """What was left out for the options given, then what the reader of each input should know."""
    notes = [f"only a part was asked for: {filter_note(postmortem.filtered)}"] if postmortem.filtered is not None else []
    notes += [first] if (first := first_fault(postmortem)) else []
    notes += [] if postmortem.incidents else _worth_a_look(postmortem)
    return notes + _notes_of(postmortem.inputs)


def _notes_of(inputs: Sequence[InputReport]) -> list[str]:
    """What is to be said of each input; what is true of several is said once."""
    told: dict[str, list[str]] = {}
    for report in inputs:
        for note in reading_notes(report):
            told.setdefault(note, []).append(visible(report.path))
    return [
        f"{paths[0]}: {note}" if len(paths) == 1 else f"{paths[0]} and {counted(len(paths) - 1, 'more input')}: {note}"
        for note, paths in told.items()
    ]


def _worth_a_look(postmortem: Postmortem) -> list[str]:
    """What a log without a fault of a GPU tells all the same: the network's and NCCL's own errors."""
    found = [one for one in postmortem.context if one.kind in _TELLING]
    shown = [
        f"no fault of a GPU, but line {one.record.line} tells of {_TELLING[one.kind]}: {visible(one.record.text)[:160]}"
        for one in found[:_MOST_TOLD]
    ]
    return shown + ([f"and {counted(len(found) - _MOST_TOLD, 'more line')} like these"] if len(found) > _MOST_TOLD else [])


def first_fault(postmortem: Postmortem) -> str | None:
    """Which of several nodes' faults came first, by their own clocks."""
    if (first := postmortem.first_fault) is None:
        return None
    number = postmortem.incidents.index(first) + 1
    nodes = len({host for one in postmortem.incidents for host in one.hosts})
    said = f"first fault on {nodes} nodes, by their own clocks (they may differ by seconds)"
    return f"{said}: incident {number}, {visible(first.sentence)}"


def reading_notes(report: InputReport) -> list[str]:
    """What the reader of one input should know: times that were guessed, records that were lost."""
    notes = [visible(note) for note in report.notes]
    if report.lost_records:
        notes.append(f"{counted(report.lost_records, 'record')} lost before they could be read")
    return notes
