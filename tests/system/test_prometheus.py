"""The rules in a real Prometheus, its alerts in a real Alertmanager, the message at whoever is paged."""

from __future__ import annotations

import queue
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.monitoring import (
    DEADLINE_S,
    ROOT,
    Exporter,
    ask,
    exporting,
    needs,
    receiving,
    running_alertmanager,
    running_prometheus,
)

pytestmark = [pytest.mark.system, needs("prometheus"), needs("prometheus-alertmanager")]

WELL = """\
xidwatch_build_info{version="0.1.0",rules_version="5f3c0e1a"} 1
xidwatch_maintenance 0
xidwatch_gpus{source="pci"} 8
xidwatch_gpus{source="nvml"} 8
xidwatch_nvml_up 1
xidwatch_source_up{source="kmsg"} 1
xidwatch_rules_reload_success 1
"""
GSP_TIMEOUT = """\
xidwatch_incident_active{gpu="0000:3b:00.0",class="compute",origin="firmware",severity="critical",root="xid 119"} 1
xidwatch_recovery_needed{gpu="0000:3b:00.0",rung="reset_gpu",when="now"} 1
"""
LOST = """\
xidwatch_incident_active{gpu="0000:3b:00.0",class="platform",origin="hardware",severity="critical",root="xid 79"} 1
xidwatch_recovery_needed{gpu="0000:3b:00.0",rung="reboot_node",when="now"} 1
"""
TEARDOWN = """\
xidwatch_incident_active{gpu="0000:5e:00.0",class="compute",origin="application",severity="info",root="xid 45"} 1
xidwatch_xid_events_total{gpu="0000:5e:00.0",gi="",ci="",xid="45"} 12000
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A node's metrics page, Prometheus with the shipped rules, Alertmanager with the shipped routes, and who is told."""

    page: Path
    exporter: Exporter
    prometheus: str
    messages: queue.SimpleQueue[tuple[str, dict[str, Any]]]

    def show(self, text: str) -> None:
        """Let the node say this from its next scrape on."""
        fresh = self.page.with_suffix(".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(self.page)

    def next_message(self) -> tuple[str, str, set[str]]:
        """(who, firing or resolved, alerts) of the next message that is sent."""
        path, message = self.messages.get(timeout=DEADLINE_S)
        assert "{{" not in str(message)
        assert "no value" not in str(message)
        return path, message["status"], {alert["labels"]["alertname"] for alert in message["alerts"]}

    def firing(self) -> set[str]:
        """Alerts that fire in Prometheus now."""
        return {series["metric"]["alertname"] for series in ask(self.prometheus, 'ALERTS{alertstate="firing"}')}


def in_seconds(text: str) -> str:
    """The same rules or routes for a node that is scraped every second: minutes are seconds."""
    minutes = re.sub(r'((?:for|interval|group_wait|group_interval): "?|\[)(\d+)m\b', r"\1\2s", text)
    seconds = re.sub(r'(interval: "|group_wait: |group_interval: )(?:15|30|5)s', r"\g<1>1s", minutes)
    return seconds.replace("[6h:5m]", "[6m:5s]")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Everything up, with a node that is well."""
    page = tmp_path / "metrics.prom"
    page.write_text(WELL, encoding="utf-8")
    rules = tmp_path / "xidwatch.rules.yml"
    rules.write_text(in_seconds((ROOT / "prometheus" / "xidwatch.rules.yml").read_text(encoding="utf-8")), encoding="utf-8")
    with ExitStack() as stack:
        exporter = stack.enter_context(exporting(page))
        port, messages = stack.enter_context(receiving())
        routes = in_seconds((ROOT / "prometheus" / "alertmanager.yml").read_text(encoding="utf-8"))
        routes = re.sub(r"http://(\w+)\.example/", rf"http://127.0.0.1:{port}/\1", routes)
        alertmanager = stack.enter_context(running_alertmanager(tmp_path, routes))
        config = (
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f"rule_files: [{rules}]\n"
            f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{alertmanager.removeprefix('http://')}']}}]}}]}}\n"
            "scrape_configs:\n  - job_name: xidwatch\n    static_configs:\n"
            f"      - {{targets: ['127.0.0.1:{exporter.port}'], labels: {{instance: n1}}}}\n"
        )
        prometheus = stack.enter_context(running_prometheus(tmp_path, config))
        exporter.wait_for_scrapes(3)
        yield Site(page=page, exporter=exporter, prometheus=prometheus, messages=messages)


def test_a_first_event_pages_once_and_resolves(site: Site) -> None:
    """A node that never had a fault pages at its first; another root and recovery page nobody again; its end resolves."""
    site.show(WELL + GSP_TIMEOUT)
    assert ("/pager", "firing", {"XidwatchIncidentCritical"}) == site.next_message()
    site.show(WELL + LOST + TEARDOWN)
    site.exporter.wait_for_scrapes(8)
    site.show(WELL + TEARDOWN)
    assert ("/pager", "resolved", {"XidwatchIncidentCritical"}) == site.next_message()


def test_a_node_that_dies_keeps_its_page(site: Site) -> None:
    """The page does not resolve with the node's silence; that it is silent is a ticket; a node that is back and well ends it."""
    site.show(WELL + LOST)
    assert ("/pager", "firing", {"XidwatchIncidentCritical"}) == site.next_message()
    site.page.unlink()
    who, status, alerts = site.next_message()
    assert ("/tickets", "firing", True) == (who, status, "XidwatchDown" in alerts)
    # Twice as long as the rules look back over a lost scrape.
    site.exporter.wait_for_scrapes(10)
    assert "XidwatchIncidentCritical" in site.firing()
    site.show(WELL)
    told = iter(site.next_message, None)
    _, status, alerts = next(message for message in told if message[0] == "/pager")
    assert ("resolved", True) == (status, "XidwatchIncidentCritical" in alerts)


def test_a_storm_of_teardowns_tells_nobody(site: Site) -> None:
    """12,000 Xid 45 at the end of a job are neither a page nor a ticket."""
    site.show(WELL + TEARDOWN)
    site.exporter.wait_for_scrapes(5)
    assert set() == site.firing()
    assert site.messages.empty()
