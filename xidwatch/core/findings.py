"""An event and what is known around it -> a finding: the step between parsing and correlating."""

from __future__ import annotations

from dataclasses import replace

from xidwatch.core.classify import RuleTable
from xidwatch.core.correlate import Correlator
from xidwatch.core.event import Event, HungTaskDetail
from xidwatch.core.incident import Finding
from xidwatch.core.rule import Severity

_PHRASES = {
    "gpu": "is stuck in the GPU driver; whether it can be killed is not known",
    "storage": "waits for storage; whether it can be killed is not known",
    "network": "waits for the network; whether it can be killed is not known",
}


def judge_event(event: Event, correlator: Correlator, rules: RuleTable) -> Finding:
    """Classify an event with what the log has told so far: the slot of a UUID, the driver version, whose pid it is."""
    host = correlator.host_of(event.record)
    if event.pci is None and event.gpu_uuid is not None:
        event = replace(event, pci=correlator.book.slot(host, event.gpu_uuid))
    detail = event.detail
    if isinstance(detail, HungTaskDetail) and (tie := correlator.gpu_tie(host, event)) is not None:
        event = replace(event, detail=replace(detail, attribution="gpu", why=tie))
    finding = rules.classify(event, driver_version=correlator.book.driver_version(host))
    return _as_seen(finding, detail) if isinstance(detail, HungTaskDetail) and detail.seen_by is not None else finding


def _as_seen(finding: Finding, detail: HungTaskDetail) -> Finding:
    """What a look at /proc shows wakes nobody by itself: the kernel's report does, or the alert on waits that go on.

    The kernel reports only what SIGKILL does not end; /proc shows killable waits as well, and often does not tell which it is.
    """
    rule = finding.rule
    phrase = _PHRASES.get(detail.attribution, rule.phrase) if detail.killable is None else rule.phrase
    severity: Severity = "warning" if rule.severity == "critical" else rule.severity
    return replace(finding, rule=replace(rule, severity=severity, phrase=phrase))
