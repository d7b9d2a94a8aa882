"""Draw a dashboard's panels from what a Prometheus answers: the queries, units, words and colours are the dashboard's own.

A stand-in for Grafana where it is not at hand: stat, table, timeseries and state-timeline, as far as the dashboards use them.
"""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from typing import Any

COLUMN, ROW, GAP = 52, 30, 6
"""A dashboard has 24 columns; CSS pixels."""
COLORS = {"green": "#2e9e5b", "blue": "#3a7bd5", "orange": "#e88a1a", "red": "#d83a3a", "text": "#d8d9da", "purple": "#9b6dd6"}
PALETTE = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#37872d", "#fa6400")
STYLE = """body{margin:0;background:#111217;color:#d8d9da;font:12px/1.35 sans-serif;position:relative}
section{position:absolute;box-sizing:border-box;background:#181b1f;border:1px solid #2c3235;border-radius:3px;padding:6px 8px;
overflow:hidden}
h2{font-size:12px;font-weight:600;margin:0 0 4px} h3{font-size:14px;margin:7px 2px} table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:2px 8px 2px 0;border-bottom:1px solid #2c3235;white-space:nowrap;font-size:11px} th{color:#8e9197}
.big{display:flex;gap:14px;justify-content:center;align-items:center;height:calc(100% - 20px)}
.big b{font-size:24px;display:block}
.none{color:#8e9197;text-align:center;padding-top:12px} text{font:10px sans-serif;fill:#9fa3a8}"""

Series = tuple[dict[str, str], list[tuple[float, float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What is drawn: seconds since 1970, and how far apart the points are."""

    start_s: float
    end_s: float
    step_s: float


def draw(dashboard: Mapping[str, Any], address: str, span: Span, variables: Mapping[str, str], rows: int) -> str:
    """The dashboard's first `rows` grid rows as an HTML page, 24 columns wide."""
    body = []
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        if place["y"] + place["h"] > rows:
            continue
        box = f"left:{place['x'] * COLUMN + GAP}px;top:{place['y'] * ROW + GAP}px;width:{place['w'] * COLUMN - GAP}px;"
        if panel["type"] == "row":
            body.append(f'<h3 style="position:absolute;{box}">{escape(panel["title"])}</h3>')
            continue
        inner = (place["w"] * COLUMN - GAP - 18, place["h"] * ROW - GAP - 36)
        drawn = _DRAWN[panel["type"]](panel, _Source(address, span, variables), inner)
        body.append(
            f'<section style="{box}height:{place["h"] * ROW - GAP}px"><h2>{escape(panel["title"])}</h2>{drawn}</section>'
        )
    size = f"width:{24 * COLUMN + GAP}px;height:{rows * ROW + GAP}px"
    return f'<!doctype html><meta charset="utf-8"><style>{STYLE}</style><body style="{size}">{"".join(body)}</body>'


@dataclass(frozen=True, slots=True)
class _Source:
    address: str
    span: Span
    variables: Mapping[str, str]

    def series(self, target: Mapping[str, Any], *, instant: bool = False) -> list[Series]:
        expr = target["expr"]
        for name, value in self.variables.items():
            expr = expr.replace(name, value)
        if instant:
            found = self._ask("query", {"query": expr, "time": self.span.end_s})
            return [(one["metric"], [(float(one["value"][0]), float(one["value"][1]))]) for one in found]
        limits = {"start": self.span.start_s, "end": self.span.end_s, "step": self.span.step_s}
        found = self._ask("query_range", {"query": expr, **limits})
        return [(one["metric"], [(float(at), float(value)) for at, value in one["values"]]) for one in found]

    def _ask(self, what: str, arguments: Mapping[str, object]) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.address}/api/v1/{what}?{urllib.parse.urlencode(arguments)}", timeout=20) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return result


def _legend(target: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    if not target.get("legendFormat"):
        return " ".join(value for name, value in labels.items() if name != "__name__")
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), target["legendFormat"])


def _word(panel: Mapping[str, Any], value: float) -> tuple[str, str]:
    """A value as the panel says it, and its colour."""
    for mapping in panel["fieldConfig"]["defaults"]["mappings"]:
        option = mapping["options"].get(f"{value:g}") if mapping["type"] == "value" else None
        if option is not None:
            return option["text"], COLORS.get(option.get("color", "text"), COLORS["text"])
    return f"{value:g}", COLORS["text"]


def _nothing(panel: Mapping[str, Any]) -> str:
    return f'<div class="none">{escape(panel["fieldConfig"]["defaults"].get("noValue", "no data"))}</div>'


def _stat(panel: Mapping[str, Any], source: _Source, _inner: tuple[int, int]) -> str:
    shown = []
    for target in panel["targets"]:
        for labels, points in source.series(target, instant=True):
            word, color = _word(panel, points[-1][1])
            name = escape(_legend(target, labels)) if panel["options"].get("textMode") == "value_and_name" else ""
            shown.append(f'<div><b style="color:{color}">{escape(word)}</b>{name}</div>')
    return f'<div class="big">{"".join(shown)}</div>' if shown else _nothing(panel)


def _table(panel: Mapping[str, Any], source: _Source, _inner: tuple[int, int]) -> str:
    rows: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    times = {
        override["matcher"]["options"]: next((one["value"] for one in override["properties"] if one["id"] == "displayName"), "")
        for override in panel["fieldConfig"]["overrides"]
        if any(one["id"] == "unit" and one["value"].startswith("dateTime") for one in override["properties"])
    }
    for number, target in enumerate(panel["targets"]):
        column = f"Value #{target['refId']}" if len(panel["targets"]) > 1 else "Value"
        for labels, points in source.series(target, instant=True):
            told = {name: value for name, value in labels.items() if name != "__name__"}
            if column in times:
                told[times[column]] = datetime.fromtimestamp(points[-1][1] / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
            mine = next((row for row in rows.values() if number and _agrees(row, labels)), None)
            if mine is None:
                rows[tuple(sorted(labels.items()))] = told
            else:
                mine.update(told)
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines = ("<tr>" + "".join(f"<td>{escape(row.get(name, ''))}</td>" for name in columns) + "</tr>" for row in rows.values())
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>" if rows else _nothing(panel)


def _agrees(row: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(row.get(name) == value for name, value in labels.items() if name != "__name__")


def _timeline(panel: Mapping[str, Any], source: _Source, inner: tuple[int, int]) -> str:
    lanes = [(_legend(target, labels), points) for target in panel["targets"] for labels, points in source.series(target)]
    if not lanes:
        return _nothing(panel)
    left, width = 190, inner[0]
    height = (inner[1] - 14) / len(lanes)
    bars = []
    for number, (name, points) in enumerate(sorted(lanes)):
        top = number * height
        bars.append(f'<text x="0" y="{top + height / 2 + 3:.0f}">{escape(name[:36])}</text>')
        for start, end, value in _held(points, source.span.step_s):
            word, color = _word(panel, value)
            x0, x1 = (left + (width - left) * _share(source.span, at) for at in (start, end))
            bars.append(
                f'<rect x="{x0:.1f}" y="{top + 1:.1f}" width="{x1 - x0:.1f}" height="{height - 2:.1f}" fill="{color}"/>'
            )
            if x1 - x0 > 50 and height >= 12:
                bars.append(f'<text x="{x0 + 4:.1f}" y="{top + height / 2 + 3:.0f}" style="fill:#fff">{escape(word)}</text>')
    return _svg(inner, "".join(bars) + _axis(source.span, left, inner))


def _held(points: Sequence[tuple[float, float]], step_s: float) -> Iterator[tuple[float, float, float]]:
    """(from, to, value) of each stretch in which a value stayed; a gap in the data ends it."""
    start, last = points[0], points[0]
    for point in points[1:]:
        if point[1] != start[1] or point[0] - last[0] > step_s * 1.5:
            yield start[0], min(last[0] + step_s, point[0]), start[1]
            start = point
        last = point
    yield start[0], last[0] + step_s, start[1]


def _lines(panel: Mapping[str, Any], source: _Source, inner: tuple[int, int]) -> str:
    found = [(_legend(target, labels), points) for target in panel["targets"] for labels, points in source.series(target)]
    found = [(name, points) for name, points in found if points]
    if not found:
        return _nothing(panel)
    left, width, height = 34, inner[0], inner[1] - 16 - 13 * min(len(found), 4)
    most = max(max(value for _, value in points) for _, points in found) or 1.0
    drawn = [f'<text x="0" y="10">{_number(most)}</text><text x="0" y="{height}">0</text>']
    for number, (name, points) in enumerate(sorted(found, key=lambda one: -one[1][-1][1])):
        color = PALETTE[number % len(PALETTE)]
        path = [
            f"{left + (width - left) * _share(source.span, at):.1f},{height - (height - 6) * value / most:.1f}"
            for at, value in points
        ]
        drawn.append(f'<polyline points="{" ".join(path)}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        if number < 4:
            y = inner[1] - 13 * (min(len(found), 4) - 1 - number)
            drawn.append(f'<rect x="{left}" y="{y - 7}" width="9" height="3" fill="{color}"/>')
            drawn.append(f'<text x="{left + 14}" y="{y}">{escape(name[:60])}: {_number(points[-1][1])}</text>')
    axis = _axis(source.span, left, (inner[0], height + 14))
    return _svg(inner, "".join(drawn) + axis)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _share(span: Span, at_s: float) -> float:
    return min(1.0, max(0.0, (at_s - span.start_s) / (span.end_s - span.start_s)))


def _axis(span: Span, left: int, inner: tuple[int, int]) -> str:
    marks = []
    for number in range(1, 5):
        at = span.start_s + (span.end_s - span.start_s) * number / 5
        clock = datetime.fromtimestamp(at, timezone.utc).strftime("%H:%M:%S")
        marks.append(
            f'<text x="{left + (inner[0] - left) * number / 5:.0f}" y="{inner[1]}" text-anchor="middle">{clock}</text>'
        )
    return "".join(marks)


def _svg(inner: tuple[int, int], body: str) -> str:
    return f'<svg width="{inner[0]}" height="{inner[1] + 4}" xmlns="http://www.w3.org/2000/svg">{body}</svg>'


_DRAWN = {"stat": _stat, "table": _table, "state-timeline": _timeline, "timeseries": _lines}
