"""Alerts: one source, rules of Prometheus and Grafana that say the same, a runbook and a test for each."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.render_alerts import (
    GRAFANA_INTERVAL,
    SOURCE,
    Alert,
    grafana_rules,
    load_alerts,
    promql,
    rendered,
    texts,
    yaml_text,
)
from tests.monitoring import ROOT, needs, unknown_words

PROMETHEUS = ROOT / "prometheus"
RUNBOOKS = ROOT / "docs" / "runbooks"
TESTS = sorted((PROMETHEUS / "tests").glob("*.test.yml"))
SHIPPED = load_alerts()
each_alert = pytest.mark.parametrize("alert", SHIPPED.alerts, ids=lambda alert: alert.name)


def said_by(program: str, *arguments: str) -> str:
    """What a tool prints; it must succeed."""
    run = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def texts_of(value: Any) -> list[str]:
    """Every text inside a JSON value."""
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts_of(item)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in texts_of(item)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize(("path", "text"), rendered(SHIPPED).items(), ids=lambda value: Path(str(value)[:80]).name)
def test_rules_are_what_the_source_says(path: Path, text: str) -> None:
    """The generated files are current: `python scripts/render_alerts.py` writes them."""
    assert text == path.read_text(encoding="utf-8")


def test_check_finds_rules_that_are_current() -> None:
    """`--check` ends with 0 and writes nothing when there is nothing to write."""
    said = subprocess.run([sys.executable, "scripts/render_alerts.py", "--check"], cwd=ROOT, capture_output=True, check=True)
    assert b"" == said.stdout


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('severity = "critical"', 'severity = "urgent"'),
        ('about = "gpu"', 'about = "cpu"'),
        ('by = ["instance", "gpu"]', 'by = ["instance", "gpu"]\nrose = ["xidwatch_oom_kills_total"]'),
        ('about = "gpu"', 'about = "gpu"\nrunbok = "x"'),
    ],
)
def test_a_mistake_in_the_source_is_an_error(tmp_path: Path, before: str, after: str) -> None:
    """An unknown word or key, or two ways to fire, are not rendered."""
    wrong = tmp_path / "alerts.toml"
    wrong.write_text(SOURCE.read_text(encoding="utf-8").replace(before, after, 1), encoding="utf-8")
    with pytest.raises((TypeError, ValueError)):
        load_alerts(wrong)


@each_alert
def test_alert_uses_only_what_xidwatch_exports(alert: Alert) -> None:
    """Each metric and label in an expression is one of the interface."""
    assert [] == unknown_words(promql(alert))


@each_alert
def test_alert_has_a_runbook_that_begins_with_its_first_command(alert: Alert) -> None:
    """The page that `runbook_url` names is there, is about this alert, and starts where the alert's text does."""
    page = (RUNBOOKS / f"{alert.name}.md").read_text(encoding="utf-8")
    assert f"{SHIPPED.runbook_base}{alert.name}.md" == texts(alert, SHIPPED.runbook_base)["runbook_url"]
    assert page.startswith(f"# {alert.name}\n")
    assert ["First", "Do not", "It ends"] == re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert f"## First\n\n```sh\n{alert.first}\n```\n" in page


@each_alert
def test_alert_is_listed_with_what_it_does(alert: Alert) -> None:
    """The list of runbooks says of each alert whether it wakes somebody, and what it means."""
    kind = "**page**" if alert.severity == "critical" else "ticket"
    row = f"| [{alert.name}]({alert.name}.md) | {kind} | {alert.description} |"
    assert row in (RUNBOOKS / "README.md").read_text(encoding="utf-8").splitlines()


@each_alert
def test_alert_names_its_node(alert: Alert) -> None:
    """Who reads the summary knows which node, and which GPU where there is one; only «nothing is scraped» has neither."""
    assert all(f".Labels.{label} " in alert.summary or f'.Labels "{label}"' in alert.summary for label in alert.by)


@each_alert
def test_alert_is_told_apart_by_nothing_that_changes(alert: Alert) -> None:
    """An incident whose severity, root, class or origin changes stays the same alert."""
    assert set() == set(alert.by) & {"severity", "root", "class", "origin", "rung", "when", "action"}
    assert alert.by == () or "instance" == alert.by[0]


@each_alert
def test_alert_is_quiet_in_maintenance(alert: Alert) -> None:
    """Maintenance silences every alert but the one about it and the one about everything being gone."""
    assert (alert.name in {"XidwatchAbsent", "XidwatchMaintenanceLong"}) == ("xidwatch_maintenance[1d]" not in promql(alert))


def test_only_these_alerts_page() -> None:
    """One incident, one page: what else is said of it is a ticket. Our own blindness never wakes anybody."""
    pages = {alert.name for alert in SHIPPED.alerts if alert.severity == "critical"}
    assert {"XidwatchIncidentCritical", "XidwatchTasksBlockedGpu", "XidwatchDownAndLatelyCritical"} == pages
    assert {"gpu"} == {alert.about for alert in SHIPPED.alerts if alert.severity == "critical"}


def test_no_alert_uses_increase() -> None:
    """A series that is born at 1 has no increase, so the first event ever would be missed."""
    assert [] == [alert.name for alert in SHIPPED.alerts if re.search(r"\b(increase|rate|irate|delta)\s*\(", promql(alert))]


def test_no_runbook_is_left_over() -> None:
    """Every runbook belongs to an alert."""
    assert {alert.name for alert in SHIPPED.alerts} == {page.stem for page in RUNBOOKS.glob("*.md")} - {"README"}


@each_alert
def test_alert_has_a_unit_test(alert: Alert) -> None:
    """Some promtool test expects it to fire; each of those tests lists all that fire, so it also expects it not to."""
    expected = re.compile(rf"labels: '\{{alertname=\"{alert.name}\"")
    assert any(expected.search(path.read_text(encoding="utf-8")) for path in TESTS)


@each_alert
def test_grafana_asks_the_same(alert: Alert) -> None:
    """The Grafana-managed rule has the same expression, labels, wait and texts."""
    (group,) = json.loads(json.dumps(grafana_rules(SHIPPED)))["groups"]
    rule = next(rule for rule in group["rules"] if rule["title"] == alert.name)
    assert promql(alert) in rule["data"][0]["model"]["expr"]
    assert {"severity": alert.severity, "about": alert.about} == rule["labels"]
    assert alert.wait == rule["for"]
    assert texts(alert, SHIPPED.runbook_base) == rule["annotations"]


def test_grafana_takes_the_rules() -> None:
    """What Grafana demands: uids of at most 40 characters, each once; intervals of 10 s; no `$`, which it would replace."""
    (group,) = json.loads(json.dumps(grafana_rules(SHIPPED)))["groups"]
    uids = [rule["uid"] for rule in group["rules"]]
    assert len(uids) == len(set(uids))
    assert all(re.fullmatch(r"[a-z0-9_-]{1,40}", uid) for uid in uids)
    assert 0 == int(GRAFANA_INTERVAL.removesuffix("s")) % 10
    assert [] == [text for text in texts_of(group) if "$" in text]


def test_grafana_asks_the_data_source_that_is_provisioned() -> None:
    """The rules and the example data source have one uid."""
    provisioned = (ROOT / "grafana" / "provisioning" / "datasources" / "xidwatch.yml").read_text(encoding="utf-8")
    assert f"uid: {SHIPPED.grafana_datasource}\n" in provisioned


def test_yaml_keeps_every_text() -> None:
    """Texts are quoted or blocks, keys that YAML would take for a boolean are quoted, nesting is by two spaces."""
    value = {"on": "0000:10:00.0", "expr": "a\n\nb", "list": [{"k": 1, "e": {}}, "x: y"], "no values": True}
    shown = [
        '"on": "0000:10:00.0"',
        "expr: |-",
        "  a",
        "",
        "  b",
        "list:",
        "  - k: 1",
        "    e: {}",
        '  - "x: y"',
        '"no values": true',
    ]
    assert shown == yaml_text(value).splitlines()[1:]


@needs("promtool")
def test_prometheus_takes_the_rules() -> None:
    """promtool finds nothing wrong in the rules and in the example configuration that loads them."""
    assert f"{len(SHIPPED.alerts)} rules found" in said_by("promtool", "check", "config", str(PROMETHEUS / "prometheus.yml"))


@needs("promtool")
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_alerts_fire_stay_and_end_when_they_should(path: Path) -> None:
    """promtool runs the unit tests of the rules."""
    said_by("promtool", "test", "rules", str(path))


@needs("amtool")
@pytest.mark.parametrize(("severity", "receiver"), [("critical", "pager"), ("warning", "tickets")])
def test_alertmanager_wakes_somebody_for_critical_alone(severity: str, receiver: str) -> None:
    """The example configuration is valid, and its routes lead where its words say."""
    config = str(PROMETHEUS / "alertmanager.yml")
    said_by("amtool", "check-config", config)
    routed = said_by("amtool", "config", "routes", "test", f"--config.file={config}", f"severity={severity}")
    assert receiver == routed.strip()


@needs("promtool")
def test_a_rule_that_promtool_refuses_is_noticed(tmp_path: Path) -> None:
    """The checks above can fail: a broken expression is refused."""
    broken = tmp_path / "xidwatch.rules.yml"
    broken.write_text((PROMETHEUS / "xidwatch.rules.yml").read_text(encoding="utf-8").replace("unless on", "unles on", 1))
    program = shutil.which("promtool") or "promtool"
    assert 0 != subprocess.run([program, "check", "rules", str(broken)], capture_output=True, check=False).returncode
