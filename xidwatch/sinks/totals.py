"""Which counters an event or an incident raises. All pure: the history keeps them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import get_args

from xidwatch.core.classify import RuleTable
from xidwatch.core.event import Attribution, Event, HungTaskDetail, LockupDetail, OomDetail, SxidDetail
from xidwatch.core.incident import Finding, Incident
from xidwatch.core.rule import SEVERITIES, FaultClass
from xidwatch.sinks.history import TotalKey

MOST_SERIES = {"xidwatch_xid_events_total": 1400, "xidwatch_sxid_events_total": 200}
"""56 MIG instances with 25 codes each; 8 switches with 25. All others have closed vocabularies."""
_LAST = {
    "xidwatch_xid_events_total": ("xidwatch_xid_last_timestamp_seconds", frozenset({"gi", "ci"})),
    "xidwatch_sxid_events_total": ("xidwatch_sxid_last_timestamp_seconds", frozenset[str]()),
}
_FATAL_WORDS = {"fatal", "1"}
"""What an SXid line, or the `Severity` line behind it, says for fatal (nvswitch driver)."""


def counters_for(finding: Finding) -> tuple[TotalKey, ...]:
    """The counters that one event raises by one, once it is complete: a stack or a severity word comes after the first line.

    None for what user space wrote, nor for what /proc showed: the counters are the log's.
    A rumour inside another program's text is no critical fault until something agrees.
    """
    event, rule = finding.event, finding.rule
    if event.record.trusted == "no" or (isinstance(event.detail, HungTaskDetail) and event.detail.seen_by is not None):
        return ()
    severity = "warning" if event.record.glued and rule.severity == "critical" else rule.severity
    fault: TotalKey = ("xidwatch_faults_total", (("class", rule.fault_class), ("severity", severity)))
    return (*_of_kind(finding), fault)


def early_counters(event: Event) -> tuple[TotalKey, ...]:
    """Of these the ones that no later line can change: they may be shown as soon as the event is born.

    A stack tells for what a task waits, a word whether an SXid is fatal; an Xid's number and place stand in its first line.
    """
    if event.kind != "xid" or event.pci is None or event.record.trusted == "no":
        return ()
    return (xid_counter(event),)


def incident_counter(incident: Incident) -> TotalKey:
    """The counter that an incident raises when it opens."""
    labels = (("class", incident.fault_class), ("origin", incident.origin), ("severity", incident.severity))
    return "xidwatch_incidents_total", labels


def timestamp_of(key: TotalKey) -> TotalKey | None:
    """The `_last_timestamp_seconds` that goes with an Xid's or SXid's counter; None for the others."""
    if (last := _LAST.get(key[0])) is None:
        return None
    name, dropped = last
    return name, tuple(label for label in key[1] if label[0] not in dropped)


def xid_counter(event: Event) -> TotalKey:
    """The counter of an Xid event."""
    labels = ("gpu", _text(event.pci)), ("gi", _text(event.gpu_instance)), ("ci", _text(event.compute_instance))
    return "xidwatch_xid_events_total", (*labels, ("xid", _text(event.code)))


def zero_totals(rules: RuleTable) -> dict[TotalKey, float]:
    """Counters that are born at 0, so that `increase()` sees their first rise: what these rules can make of a line.

    A rule's company may change its severity, so each (class, origin) of a rule stands with every severity.
    """
    judged = sorted({(rule.fault_class, rule.origin) for rule in rules.rules() if not rule.context})
    keys: list[TotalKey] = [
        ("xidwatch_faults_total", (("class", word), ("severity", severity)))
        for word in get_args(FaultClass)
        for severity in SEVERITIES
    ]
    keys += [
        ("xidwatch_incidents_total", (("class", word), ("origin", origin), ("severity", severity)))
        for word, origin in judged
        for severity in SEVERITIES
    ]
    keys += [("xidwatch_hung_tasks_total", (("attribution", word),)) for word in get_args(Attribution)]
    keys += [("xidwatch_soft_lockups_total", (("scope", scope),)) for scope in ("gpu", "node")]
    keys += [("xidwatch_oom_kills_total", (("scope", scope),)) for scope in ("memcg", "node")]
    return dict.fromkeys(keys, 0.0)


class SeriesBudget:
    """Keeps the number of series bounded: addresses and numbers in a rumour are whatever a user chose to write."""

    def __init__(self, known: Iterable[TotalKey]) -> None:
        """`known` are the counters that exist already; they stay."""
        self._known: defaultdict[str, set[TotalKey]] = defaultdict(set)
        for key in known:
            self._known[key[0]].add(key)

    def admit(self, keys: Iterable[TotalKey]) -> tuple[TotalKey, ...]:
        """The same counters; once their metric has its fill, a new one is counted with every label `other`."""
        return tuple(self._admitted(key) for key in keys)

    def _admitted(self, key: TotalKey) -> TotalKey:
        metric, labels = key
        if metric not in MOST_SERIES or key in self._known[metric]:
            return key
        if len(self._known[metric]) >= MOST_SERIES[metric]:
            return metric, tuple((name, "other") for name, _ in labels)
        self._known[metric].add(key)
        return key


def _of_kind(finding: Finding) -> tuple[TotalKey, ...]:
    event, detail = finding.event, finding.event.detail
    if event.kind == "xid":
        return (xid_counter(event),)
    if isinstance(detail, SxidDetail):
        fatal = ("fatal", "true" if _fatal(detail, finding) else "false")
        return (("xidwatch_sxid_events_total", (("nvswitch", _switch(event, detail)), ("sxid", _text(event.code)), fatal)),)
    if isinstance(detail, HungTaskDetail):
        return (("xidwatch_hung_tasks_total", (("attribution", detail.attribution),)),)
    if isinstance(detail, LockupDetail) and event.kind == "soft_lockup":
        return (("xidwatch_soft_lockups_total", (("scope", "gpu" if detail.gpu_related else "node"),)),)
    if isinstance(detail, OomDetail):
        return (("xidwatch_oom_kills_total", (("scope", "memcg" if detail.memcg else "node"),)),)
    return ()


def _fatal(detail: SxidDetail, finding: Finding) -> bool:
    """By the printed word; without one by the rule."""
    if detail.severity_word is None:
        return finding.rule.severity == "critical"
    return detail.severity_word.lower() in _FATAL_WORDS


def _switch(event: Event, detail: SxidDetail) -> str:
    if event.pci is not None:
        return str(event.pci)
    return f"nvswitch{detail.switch}" if detail.switch is not None else ""


def _text(value: object) -> str:
    """A label's text; "" is Prometheus' own word for a label that is not there."""
    return "" if value is None else str(value)
