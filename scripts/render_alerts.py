"""Make the alert rules of Prometheus and of Grafana from prometheus/alerts.toml, so that they cannot drift apart.

`python scripts/render_alerts.py` writes both files anew; with `--check` it writes nothing and says which is out of date.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from xidwatch.core.rule import Severity

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "prometheus" / "alerts.toml"
PROMETHEUS = ROOT / "prometheus" / "xidwatch.rules.yml"
GRAFANA = ROOT / "grafana" / "provisioning" / "alerting" / "xidwatch.yml"
ABOUT = ("gpu", "node", "xidwatch")
NOTE = "# Made by scripts/render_alerts.py from prometheus/alerts.toml; change that file.\n"
INTERVAL = "15s"
GRAFANA_INTERVAL = "30s"
"""Grafana takes multiples of 10 seconds only."""
MAINTENANCE = "(last_over_time(xidwatch_maintenance[1d]) == 1)"
"""Also true for a node that went down in maintenance: its last word counts, for a day."""
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
WORDS_OF_YAML = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})

Yaml = Mapping[str, Any] | Sequence[Any] | str | int | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One entry of alerts.toml, whose head explains the keys. `wait` is the file's `for`."""

    name: str
    severity: str
    about: str
    by: tuple[str, ...]
    summary: str
    description: str
    first: str
    wait: str = "0s"
    expr: str = ""
    rose: tuple[str, ...] = ()
    in_maintenance: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSource:
    """All of alerts.toml."""

    runbook_base: str
    grafana_datasource: str
    alerts: tuple[Alert, ...]


def load_alerts(path: Path = SOURCE) -> AlertSource:
    """Read the source.

    Raises:
        TypeError: an alert has a key too many or too few.
        ValueError: a word is not in its vocabulary, or an alert has not exactly one of `expr` and `rose`.
    """
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return AlertSource(
        runbook_base=table["runbook_base"],
        grafana_datasource=table["grafana_datasource"],
        alerts=tuple(_alert(dict(entry)) for entry in table["alert"]),
    )


def _alert(entry: dict[str, Any]) -> Alert:
    """Check one entry and give its `for` a name that Python allows."""
    if "for" in entry:
        entry["wait"] = entry.pop("for")
    entry.update({key: tuple(entry[key]) for key in ("by", "rose") if key in entry})
    alert = Alert(**entry)
    if alert.severity not in get_args(Severity) or alert.about not in ABOUT:
        raise ValueError(f"{alert.name}: unknown severity {alert.severity!r} or about {alert.about!r}")
    if bool(alert.expr) == bool(alert.rose):
        raise ValueError(f"{alert.name}: one of expr and rose, not both and not neither")
    return alert


def promql(alert: Alert) -> str:
    """The whole expression, silenced while the node is in maintenance."""
    expr = alert.expr.strip() or _rose(alert)
    if alert.in_maintenance:
        return expr
    indented = "\n".join(f"  {line}" for line in expr.splitlines())
    return f"(\n{indented}\n)\nunless on (instance) {MAINTENANCE}"


def _rose(alert: Alert) -> str:
    """Counters of which one rose within 15 minutes, or was born in them later than the first scrape of its node."""
    branches = "\n  or\n".join(
        f"  {counter} > min_over_time({counter}[15m])\n"
        "  or\n"
        f"  {counter} > 0 and (\n"
        f"    count_over_time({counter}[15m])\n"
        "    < on (instance) group_left ()\n"
        "    max by (instance) (count_over_time(xidwatch_build_info[15m]))\n"
        "  )"
        for counter in alert.rose
    )
    return f"max by ({', '.join(alert.by)}) (\n{branches}\n)"


def texts(alert: Alert, runbook_base: str) -> dict[str, str]:
    """What the person paged reads. The templates have no `$`, which Grafana would take for an environment variable."""
    return {
        "summary": alert.summary,
        "description": f"{alert.description} First: `{alert.first}`",
        "runbook_url": f"{runbook_base}{alert.name}.md",
    }


def prometheus_rules(source: AlertSource) -> dict[str, Yaml]:
    """The rule file of Prometheus; it evaluates rules in their order, so the most important comes last."""
    rules = [
        {
            "alert": alert.name,
            "expr": promql(alert),
            "for": alert.wait,
            "labels": {"severity": alert.severity, "about": alert.about},
            "annotations": texts(alert, source.runbook_base),
        }
        for alert in reversed(source.alerts)
    ]
    return {"groups": [{"name": "xidwatch", "interval": INTERVAL, "rules": rules}]}


def grafana_rules(source: AlertSource) -> dict[str, Yaml]:
    """The provisioning file of Grafana-managed alerting.

    Source of the keys: grafana, pkg/services/provisioning/alerting/rules_types.go.
    """
    rules = [
        {
            "uid": alert.name.lower(),
            "title": alert.name,
            "condition": "fires",
            "data": [_grafana_query(alert, source.grafana_datasource), _grafana_threshold()],
            "noDataState": "OK",
            "execErrState": "Error",
            "for": alert.wait,
            "labels": {"severity": alert.severity, "about": alert.about},
            "annotations": texts(alert, source.runbook_base),
        }
        for alert in reversed(source.alerts)
    ]
    return {
        "apiVersion": 1,
        "groups": [{"orgId": 1, "name": "xidwatch", "folder": "xidwatch", "interval": GRAFANA_INTERVAL, "rules": rules}],
    }


def _grafana_query(alert: Alert, datasource: str) -> dict[str, Yaml]:
    """Ask Prometheus for the same expression; every series it gives becomes 1, since Grafana compares the value."""
    return {
        "refId": "wrong",
        "relativeTimeRange": {"from": 600, "to": 0},
        "datasourceUid": datasource,
        "model": {"refId": "wrong", "expr": f"1 + 0 * (\n{promql(alert)}\n)", "instant": True, "range": False},
    }


def _grafana_threshold() -> dict[str, Yaml]:
    """Fire for each series above 0."""
    return {
        "refId": "fires",
        "relativeTimeRange": {"from": 600, "to": 0},
        "datasourceUid": "__expr__",
        "model": {
            "refId": "fires",
            "type": "threshold",
            "expression": "wrong",
            "conditions": [{"evaluator": {"type": "gt", "params": [0]}}],
        },
    }


def yaml_text(value: Yaml) -> str:
    """Write what JSON can say as block YAML: texts of several lines as blocks, all other texts in quotes."""
    return NOTE + "\n".join(_yaml_lines(value)) + "\n"


def _yaml_lines(value: Yaml) -> list[str]:
    """One mapping or list, line by line."""
    lines: list[str] = []
    if isinstance(value, Mapping):
        for key, item in value.items():
            lines += _yaml_entry(f"{key if _is_plain(key) else json.dumps(key)}:", item)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            inner = _yaml_entry("", item)
            lines += [f"- {inner[0].strip()}", *inner[1:]] if len(inner) == 1 else [f"- {inner[1][2:]}", *inner[2:]]
    return lines


def _yaml_entry(head: str, item: Yaml) -> list[str]:
    """One key with its value, or one list item (an empty head, whose own first line the caller replaces)."""
    if isinstance(item, str) and "\n" in item:
        return [f"{head} |-", *(f"  {line}" if line else "" for line in item.splitlines())]
    if isinstance(item, str | int) or not item:
        return [f"{head} {json.dumps(item, ensure_ascii=False)}"]
    return [head, *(f"  {line}" if line else "" for line in _yaml_lines(item))]


def _is_plain(key: str) -> bool:
    """True for a key that needs no quotes and that no YAML reader takes for a boolean."""
    return PLAIN.fullmatch(key) is not None and key.lower() not in WORDS_OF_YAML


def rendered(source: AlertSource) -> dict[Path, str]:
    """Each generated file and what must stand in it."""
    return {PROMETHEUS: yaml_text(prometheus_rules(source)), GRAFANA: yaml_text(grafana_rules(source))}


def main(arguments: Sequence[str]) -> int:
    """Write the files, or with --check tell whether they are current; the exit status is 1 when one is not."""
    stale = [
        path for path, text in rendered(load_alerts()).items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(rendered(load_alerts())[path], encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(ROOT)}: {'out of date' if '--check' in arguments else 'written'}\n")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
