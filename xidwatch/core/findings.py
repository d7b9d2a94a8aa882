"""An event and what is known around it -> a finding: the step between parsing and correlating."""

from __future__ import annotations

from dataclasses import replace

from xidwatch.core.classify import RuleTable
from xidwatch.core.correlate import Correlator
from xidwatch.core.event import Event, HungTaskDetail
from xidwatch.core.incident import Finding


def judge_event(event: Event, correlator: Correlator, rules: RuleTable) -> Finding:
    """Classify an event with what the log has told so far: the slot of a UUID, the driver version, whose pid it is."""
    host = correlator.host_of(event.record)
    if event.pci is None and event.gpu_uuid is not None:
        event = replace(event, pci=correlator.book.slot(host, event.gpu_uuid))
    detail = event.detail
    if isinstance(detail, HungTaskDetail) and (tie := correlator.gpu_tie(host, event)) is not None:
        event = replace(event, detail=replace(detail, attribution="gpu", why=tie))
    finding = rules.classify(event, driver_version=correlator.book.driver_version(host))
    if isinstance(detail, HungTaskDetail) and detail.seen_by is not None and finding.rule.severity == "critical":
        # What one look at /proc shows wakes nobody by itself: the kernel's report does, or the alert on waits that go on.
        finding = replace(finding, rule=replace(finding.rule, severity="warning"))
    return finding
