"""A story as it is told to a person: what happens, who says what, in few calm lines; and each step held against the product."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xidwatch.demo.theatre import NotAsTold, Series, Theatre
from xidwatch.render.answer import WHEN
from xidwatch.render.as_gpus import check_lines
from xidwatch.render.layout import Line, columns, paint, wrap
from xidwatch.render.wording import END_REASONS
from xidwatch.rulefiles import load_rules

_INDENT = " " * 4
_MOST_SHOWN = 6
_MOST_COMMANDS = 6
_pause = threading.Event().wait


@dataclass(frozen=True, slots=True)
class Manner:
    """How it is told.

    Attributes:
        write: Takes text for the terminal.
        width: Columns.
        color: Whether it may have colours.
        speed: How much faster than a person reads; pauses are divided by it.
    """

    write: Callable[[str], None]
    width: int = 100
    color: bool = False
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Awaited:
    """What an incident must come to.

    Attributes:
        root: Kind and code of its root, as metrics spell it: `xid 48`.
        codes: Xids among its members, at the least.
        count: Occurrences in all, at the least.
    """

    root: str
    severity: str
    rung: str
    when: str | None
    gpus: tuple[str, ...]
    codes: frozenset[int] = frozenset()
    count: int = 1

    def is_met_by(self, incident: dict[str, Any]) -> bool:
        """Whether this is the one, and as it should be."""
        events = incident["events"]
        root = events[incident["root"]] if events else {}
        found = (
            f"{root.get('kind')} {root.get('code') or root.get('what')}", incident["severity"], incident["recovery"]["rung"],
            incident["recovery"]["when"], tuple(incident["gpus"]),
        )  # fmt: skip
        wanted = (self.root, self.severity, self.rung, self.when, self.gpus)
        enough = sum(event["count"] for event in events) >= self.count
        return wanted == found and enough and self.codes <= {event["code"] for event in events if event["kind"] == "xid"}


class Play:
    """What a story has at hand. Each method tells what happens, and raises `NotAsTold` when the product does otherwise."""

    def __init__(self, theatre: Theatre, manner: Manner) -> None:
        """`theatre` is open; the clock of the story starts now."""
        self.theatre, self._manner = theatre, manner
        self._began_s = time.monotonic()
        self._rules = load_rules(site=theatre.folder / "rules.d")

    # telling

    def tell(self, sentence: str, *more: str) -> None:
        """A paragraph begins: what happens now."""
        at = f"demo {time.monotonic() - self._began_s:5.1f} s  "
        self._show("strong", wrap(sentence, self._manner.width, first=at, rest=" " * len(at)))
        for text in more:
            self.note(text)

    def note(self, text: str, style: str = "plain") -> None:
        """A sentence below it."""
        self._show(style, wrap(text, self._manner.width, first=_INDENT, rest=_INDENT))

    def quote(self, lines: Sequence[str], style: str = "quiet") -> None:
        """What somebody else said, word for word."""
        for line in lines:
            inner = _INDENT + " " * (len(line) - len(line.lstrip()))
            self._show(style, wrap(line, self._manner.width, first=inner, rest=inner + "  "))

    def pause(self, seconds: float = 1.5) -> None:
        """Give the reader time."""
        self._manner.write("\n")
        _pause(seconds / self._manner.speed)

    def _show(self, style: str, lines: Sequence[str]) -> None:
        shown: list[Line] = [(style, line) for line in lines]
        self._manner.write(paint(shown, color=self._manner.color))

    # what happens

    def kernel(self, *lines: str) -> None:
        """The kernel prints; the first lines are shown."""
        self.theatre.kernel(lines)
        self.quote(lines[:_MOST_SHOWN] if len(lines) <= _MOST_SHOWN else lines[:2])
        if len(lines) > _MOST_SHOWN:
            self.note(f"... and {len(lines) - 2:,} more like these", "quiet")

    def gpus(self, *lines: str) -> None:
        """The GPUs are so from now on."""
        self.theatre.gpus(*lines)

    def command(self, *arguments: str) -> None:
        """Somebody types a command; what it prints is shown."""
        printed = self.theatre.command(*arguments)
        words = " ".join(f"'{word}'" if " " in word else word for word in arguments)
        self.quote([f"$ xidwatch {words}"], "command")
        self.quote([line for line in printed.splitlines() if line.strip()], "plain")

    # what must come of it

    def healthy(self, gpus: int) -> None:
        """All GPUs answer, and nothing is wrong."""
        self.theatre.until(lambda: self._counts() == {"pci": gpus, "driver": gpus, "nvml": gpus}, f"{gpus} GPUs are seen")
        if incidents := self.theatre.incidents():
            raise NotAsTold(f"an incident before anything happened: {incidents[0]['sentence']}")
        self.note(f"metrics: {self.theatre.url}")
        self.note(f"{gpus} GPUs on the bus, {gpus} answer through NVML, no incident")

    def _counts(self) -> dict[str, int]:
        return {one.labels["source"]: int(one.value) for one in self.theatre.series("xidwatch_gpus")}

    def incident(self, awaited: Awaited) -> dict[str, Any]:
        """Exactly one incident, and this one; tells what it is and what is to be done."""
        found = self.theatre.until(
            lambda: [one for one in self.theatre.incidents() if awaited.is_met_by(one)],
            f"an incident with root {awaited.root}, {awaited.severity}, recovery {awaited.rung}",
        )
        if len(self.theatre.incidents()) != 1:
            raise NotAsTold(f"one incident is told as {len(self.theatre.incidents())}")
        self.describe(found[0])
        return found[0]

    def describe(self, incident: dict[str, Any]) -> None:
        """What an incident is, what belongs to it, whose it is, and what is to be done."""
        self.note(incident["sentence"], incident["severity"])
        words = (incident["class"], incident["origin"], incident["severity"], incident["confidence"])
        self.note(" · ".join(words))
        rows = [self._row(event, is_root=number == incident["root"]) for number, event in enumerate(incident["events"])]
        self._show("plain", columns(rows, self._manner.width))
        if whose := dict.fromkeys(_whose(event) for event in incident["events"] if event["pid"]):
            self.note(f"whose: {'; '.join(whose)}")
        recovery = incident["recovery"]
        if recovery["rung"] != "none":
            head = "Do now:" if recovery["when"] == "now" else "Do:"
            self.note(f"{head} {WHEN[recovery['when']]}{self._rules.action(recovery['rung']).say}", "strong")
            if incident["title"] not in recovery["why"]:
                self.note(f"Because: {recovery['why']}")
            self.quote([f"  {command}" for command in recovery["commands"][:_MOST_COMMANDS]], "command")

    def _row(self, event: dict[str, Any], *, is_root: bool) -> tuple[str, ...]:
        kind = {"xid": "Xid", "sxid": "SXid"}.get(event["kind"], event["kind"].replace("_", " "))
        times = f", {event['count']:,} times" if event["count"] > 1 else ""
        title = self._rules.rule(event["rule"]).title
        return (f"{_INDENT}{'root' if is_root else 'then'}", f"{kind} {event['code'] or ''}".strip(), f"{title}{times}")

    def metrics(self, *expected: tuple[str, float, dict[str, str]]) -> None:
        """Each of these series has this value, over HTTP; they are shown as scraped."""
        shown = [self._series(name, value, labels) for name, value, labels in expected]
        for one in shown:
            self.series_shown(one.text)

    def series_shown(self, text: str) -> None:
        """A line of a scrape; between two labels it may be broken."""
        *labels, rest = re.split(r'(?<=",)', text)
        lines = [_INDENT]
        for part in (*labels, rest):
            if len(lines[-1]) + len(part) > self._manner.width and lines[-1].strip():
                lines.append(_INDENT + "  ")
            lines[-1] += part
        self._show("quiet", lines)

    def _series(self, name: str, value: float, labels: dict[str, str]) -> Series:
        def look() -> list[Series]:
            return [one for one in self.theatre.series(name, **labels) if one.value == value]

        return self.theatre.until(look, f"{name}{labels} is {value:g}")[0]

    def scraped(self, name: str) -> tuple[float, str]:
        """How many seconds a scrape takes now, and this metric's line in it."""
        began_s = time.monotonic()
        found = self.theatre.series(name)
        return time.monotonic() - began_s, found[0].text

    def no_metrics(self, *names: str) -> None:
        """None of these has a series any more."""
        self.theatre.until(lambda: not any(self.theatre.series(name) for name in names), f"no series of {', '.join(names)}")
        self.note(f"gone from the metrics: {', '.join(names)}")

    def hook(self, incident: dict[str, Any], change: str, alert: str | None = None) -> None:
        """The site's program was told so of the incident, once; and which alert Prometheus would fire."""
        told = self.theatre.until(
            lambda: _about(self.theatre.hook_was_told(), incident["id"], change), f"the hook's program is told: {change}"
        )
        if len(told) > 1 and change != "changed":
            raise NotAsTold(f"the hook's program was told {len(told)} times that it {change}")
        message = told[-1]
        self.note(f"the hook's program was run once: {change}, {message['incident']['severity']}, host {message['host']}")
        if alert is not None:
            self.note(f"Prometheus would fire {alert}")

    def nobody_is_paged(self) -> None:
        """The hook has told nobody, although the daemon's own followers have long heard."""
        if told := self.theatre.hook_was_told():
            raise NotAsTold(f"somebody was paged: {told[0]['incident']['sentence']}")
        self.note("nobody is paged")

    def confirmed(self, incident: dict[str, Any], check: str) -> None:
        """The GPU itself, asked through NVML, says the same; all that it confirms is shown."""
        said = self.theatre.until(lambda: self._said(incident["id"], check), f"the GPU confirms: {check}")
        for line in check_lines({"checks": said}):
            if (text := line.removeprefix("  The GPU: ")).startswith("confirmed"):
                self.note(text)

    def _said(self, id_: str, check: str) -> list[dict[str, Any]]:
        found = [one["checks"] for one in self.theatre.incidents() if one["id"] == id_]
        said: list[dict[str, Any]] = found[0] if found else []
        return said if any((one["check"], one["answer"]) == (check, "confirmed") for one in said) else []

    def ended(self, incident: dict[str, Any], *reasons: str) -> None:
        """The incident is over, for one of these reasons, and followers were told."""
        found = self.theatre.until(
            lambda: _about(tuple(self.theatre.heard), incident["id"], "ended"), f"the incident ends: {' or '.join(reasons)}"
        )
        reason = found[-1]["incident"]["end_reason"]
        if reason not in reasons:
            raise NotAsTold(f"the incident ended by {reason}, not {' or '.join(reasons)}")
        self.theatre.until(lambda: not self.theatre.incidents(), "no incident is left")
        self.note(f"incident {incident['id']} has ended: {END_REASONS.get(reason, reason)}", "info")

    def over(self, incident: dict[str, Any]) -> None:
        """The incident is over; it may have ended before anybody could listen."""
        self.theatre.until(lambda: not self.theatre.incidents(), f"incident {incident['id']} is over")
        self.note(f"incident {incident['id']} is over", "info")

    def asks(self, incident: dict[str, Any], rung: str) -> None:
        """Beside the recovery it wants to be looked into so."""
        found = next((one for one in incident["investigate"] if one["rung"] == rung), None)
        if found is None:
            raise NotAsTold(f"it does not ask for {rung}")
        self.note(f"Then: {self._rules.action(rung).say}. {found['why']}")

    def remains(self, incident: dict[str, Any]) -> None:
        """It is as open as it was."""
        if [incident["id"]] != [one["id"] for one in self.theatre.incidents()]:
            raise NotAsTold(f"incident {incident['id']} is not open any more")
        self.note(f"incident {incident['id']} stays open", "warning")

    def awaits_verification(self, incident: dict[str, Any]) -> None:
        """It is the same incident, and waits for proof."""
        self.theatre.until(
            lambda: (
                [(incident["id"], "awaiting_verification")] == [(one["id"], one["state"]) for one in self.theatre.incidents()]
            ),
            f"incident {incident['id']} awaits verification",
        )
        self.note(f"incident {incident['id']} is remembered over the boot: awaiting verification", "warning")


def _about(messages: Sequence[dict[str, Any]], id_: str, change: str) -> list[dict[str, Any]]:
    """Those that tell this change of this incident."""
    return [one for one in messages if one["change"] == change and one.get("incident", {}).get("id") == id_]


def _whose(event: dict[str, Any]) -> str:
    job = (event["job"] or {}).get("slurm_job")
    return f"{event['process'] or 'pid'} ({event['pid']}){f', Slurm job {job}' if job else ''}"
