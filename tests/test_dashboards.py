"""Dashboards: every panel asks for what xidwatch exports, gets an answer, and tells nothing from 0."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from tests.monitoring import ROOT, ask, exporting, needs, running_prometheus, unknown_words
from xidwatch.sinks.families import FAMILIES

FOLDER = ROOT / "grafana" / "dashboards"
PAGES = ROOT / "tests" / "system"
DASHBOARDS: dict[str, dict[str, Any]] = {path.stem: json.loads(path.read_bytes()) for path in sorted(FOLDER.glob("*.json"))}
LABEL_VALUES = re.compile(r"label_values\((.+), *(\w+)\)")
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? \S+$")
FILLED_IN = {"$instance": "n1", "$gpu": ".*", "$__rate_interval": "1m"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel that asks something, and its queries as Grafana sends them."""

    dashboard: str
    json: dict[str, Any]

    def queries(self) -> list[str]:
        """Its expressions, with the variables filled in."""
        filled = [target["expr"] for target in self.json["targets"]]
        for variable, value in FILLED_IN.items():
            filled = [expr.replace(variable, value) for expr in filled]
        return filled


PANELS = [
    Panel(dashboard=name, json=panel)
    for name, dashboard in DASHBOARDS.items()
    for panel in dashboard["panels"]
    if panel["type"] != "row"
]
each_panel = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: f"{panel.dashboard}: {panel.json['title']}")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that has scraped a sick node and a half-blind one."""
    folder = tmp_path_factory.mktemp("prometheus")
    with ExitStack() as stack:
        exporters = []
        for name in ("node", "blind"):
            page = folder / f"{name}.prom"
            text = (PAGES / page.name).read_text(encoding="utf-8")
            page.write_text(text.replace("@now@", str(int(time.time()))), encoding="utf-8")
            exporters.append(stack.enter_context(exporting(page)))
        targets = "".join(
            f"      - {{targets: ['127.0.0.1:{exporter.port}'], labels: {{instance: n{number}}}}}\n"
            for number, exporter in enumerate(exporters, 1)
        )
        config = f"scrape_configs:\n  - job_name: xidwatch\n    scrape_interval: 1s\n    static_configs:\n{targets}"
        address = stack.enter_context(running_prometheus(folder, config))
        for exporter in exporters:
            exporter.wait_for_scrapes(4)
        yield address


@pytest.mark.parametrize("page", ["node", "blind"])
def test_stand_in_speaks_as_xidwatch_does(page: str) -> None:
    """Each sample of the pages that stand in for the daemon has a name and labels of the interface."""
    labels = {family.name: set(family.labels) for family in FAMILIES}
    for name in [name for name in labels if name.endswith("latency_seconds")]:
        labels |= {f"{name}_bucket": labels[name] | {"le"}, f"{name}_sum": labels[name], f"{name}_count": labels[name]}
    samples = [SAMPLE.match(line) for line in (PAGES / f"{page}.prom").read_text(encoding="utf-8").splitlines()]
    assert [] == [
        sample for sample in samples if not sample or set(re.findall(r'(\w+)="', sample[2] or "")) != labels.get(sample[1])
    ]


@pytest.mark.parametrize(("name", "dashboard"), DASHBOARDS.items(), ids=DASHBOARDS)
def test_dashboard_keeps_its_address(name: str, dashboard: dict[str, Any]) -> None:
    """The uid, which links use, is the file's name; panels have ids of their own and do not lie on each other."""
    ids = [panel["id"] for panel in dashboard["panels"]]
    places = [
        (panel["gridPos"]["x"] + column, panel["gridPos"]["y"] + line)
        for panel in dashboard["panels"]
        for column in range(panel["gridPos"]["w"])
        for line in range(panel["gridPos"]["h"])
    ]
    assert name == dashboard["uid"]
    assert len(ids) == len(set(ids))
    assert len(places) == len(set(places))
    assert all(0 <= column < 24 for column, _ in places)


@pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS)
def test_dashboard_lets_one_choose_its_prometheus(dashboard: dict[str, Any]) -> None:
    """The data source is a variable, and everything that asks uses it."""
    first, *others = dashboard["templating"]["list"]
    asks = [*others, *(panel for panel in dashboard["panels"] if panel["type"] != "row")]
    asks += [target for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert ("datasource", "prometheus") == (first["type"], first["query"])
    assert {"${datasource}"} == {one["datasource"]["uid"] for one in asks}


@pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS)
def test_links_lead_to_dashboards_that_are_there(dashboard: dict[str, Any]) -> None:
    """Each link names the uid of one of ours."""
    assert [] == [uid for uid in re.findall(r'"/d/([\w-]+)', json.dumps(dashboard)) if uid not in DASHBOARDS]


@each_panel
def test_panel_asks_only_for_what_xidwatch_exports(panel: Panel) -> None:
    """Each metric and label in a query is one of the interface."""
    assert [] == [word for expr in panel.queries() for word in unknown_words(expr)]


@each_panel
def test_panel_tells_no_data_from_zero(panel: Panel) -> None:
    """An empty answer has words; a count is 0 only where somebody could have been counted."""
    defaults = panel.json["fieldConfig"]["defaults"]
    uncounted = [
        expr
        for expr in panel.queries()
        if expr.startswith("count(") and panel.json["type"] == "stat" and " or 0 * " not in expr
    ]
    assert defaults["noValue"]
    assert "unit" in defaults
    assert ["Nodes that answer"] * len(uncounted) == [panel.json["title"] for _ in uncounted]


@each_panel
def test_panel_has_a_word_for_each_colour(panel: Panel) -> None:
    """A state that is coloured is also named."""
    shown = [option for mapping in panel.json["fieldConfig"]["defaults"]["mappings"] for option in mapping["options"].values()]
    assert all(option["text"] for option in shown)
    assert panel.json["type"] != "state-timeline" or shown


@pytest.mark.system
@needs("prometheus")
@each_panel
def test_panel_gets_an_answer(prometheus: str, panel: Panel) -> None:
    """A real Prometheus takes every query and, with a sick node and a half-blind one scraped, has something to say."""
    silent = {"Silent nodes": [0.0]}
    answers = [ask(prometheus, expr) for expr in panel.queries()]
    assert [] == [expr for expr, answer in zip(panel.queries(), answers, strict=True) if not answer]
    values = [float(series["value"][1]) for answer in answers for series in answer]
    assert silent.get(panel.json["title"], values) == values


@pytest.mark.system
@needs("prometheus")
def test_numbers_are_known_only_while_xidwatch_answers(prometheus: str) -> None:
    """The incidents of a node that nobody scrapes are not 0 but absent."""
    counted = next(panel for panel in PANELS if panel.json["title"] == "GPUs in a critical incident")
    (expr,) = (
        counted.queries()
        if counted.dashboard == "xidwatch-node"
        else next(
            panel.queries()
            for panel in PANELS
            if panel.dashboard == "xidwatch-node" and panel.json["title"] == counted.json["title"]
        )
    )
    shown = {
        node: [series["value"][1] for series in ask(prometheus, expr.replace('"n1"', f'"{node}"'))]
        for node in ("n1", "n2", "n9")
    }
    assert {"n1": ["1"], "n2": ["0"], "n9": []} == shown


@pytest.mark.system
@needs("prometheus")
@pytest.mark.parametrize(
    "variable",
    [
        variable
        for dashboard in DASHBOARDS.values()
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "query"
    ],
    ids=lambda variable: str(variable["name"]),
)
def test_variable_has_values(prometheus: str, variable: dict[str, Any]) -> None:
    """What one can choose from is not empty."""
    found = LABEL_VALUES.fullmatch(variable["query"]["query"].replace("$instance", "n1"))
    assert found
    assert {series["metric"][found[2]] for series in ask(prometheus, found[1])}
