"""A postmortem as one HTML file that needs nothing else: no script, no font, no request, light and dark, screen and paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING

from xidwatch import __version__
from xidwatch.core.event import Detail, HungTaskDetail, LockupDetail
from xidwatch.core.incident import Demand, HostReport, Incident, Member, Postmortem
from xidwatch.core.record import Record
from xidwatch.core.rule import Command, Severity
from xidwatch.errors import XidwatchError
from xidwatch.render.answer import (
    SILENCE,
    again,
    all_notes,
    confidence,
    covered,
    do_now,
    for_the_job,
    gpu_says,
    look_now,
    reason,
    state,
)
from xidwatch.render.lanes import Chart, Spine, Track, chart
from xidwatch.render.layout import first_sentences, visible
from xidwatch.render.steps import action_for, checks_for, command_lines, known_of, say
from xidwatch.render.timeline import Times, moments, times
from xidwatch.render.wording import counted, label, memory_or_compute, nothing_found, number, sentence

if TYPE_CHECKING:
    from jinja2 import Template

    from xidwatch.core.classify import RuleTable

_MOST_COMMANDS = 3
_MOST_SHORT = 12
_MOST_LINES = 6
_MOST_FRAMES = 16
_MOST_LISTED = 20
_LONGEST_LINE = 600
_LONGEST_TEXT = 320
_MARKS = {"root": "ROOT", "consequence": "follows", "context": "context"}


def load_template() -> Template:
    """The page's template.

    Raises:
        XidwatchError: Jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise XidwatchError(
            "--format html needs Jinja2, which is not installed here: pip install 'jinja2>=3.1' (or xidwatch[html])"
        ) from None
    environment = Environment(
        loader=PackageLoader("xidwatch.render"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2")


def render_html(postmortem: Postmortem, rules: RuleTable, *, zone: tzinfo | None = None) -> str:
    """The page as one text.

    Args:
        zone: For times of a log that names no zone; None means UTC.

    Raises:
        XidwatchError: Jinja2 is not installed.
    """
    return load_template().render(page=_Writer(postmortem, rules, zone).page())


def _shown(value: object) -> object:
    """What may stand in the page: control, format and bidirectional characters are spelled out; Jinja2 escapes the rest."""
    return visible(value) if type(value) is str else value


# what the template reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command to copy: the line, the same for further GPUs, hosts or processes, and what to know before typing it."""

    line: str
    further: tuple[str, ...]
    note: str | None
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to look into, why, and how."""

    say: str
    why: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A log line, or a part of what an event says: its place and its text, cut where it is too long."""

    place: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A track of the chart with its words and its folded evidence."""

    track: Track
    when: str
    mark: str
    text: str
    number: str
    label_at: str
    lines: tuple[Line, ...]
    more: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnLane:
    """A lane of the chart with its bars."""

    title: str
    kind: str
    facts: tuple[str, ...]
    passing: tuple[Spine, ...]
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One incident in words.

    Attributes:
        steps, further_steps: The recovery's commands; those that matter when the first ones fail.
        standing: How it stands when it is over.
    """

    number: int
    severity: Severity
    sentence: str
    do: str
    steps: tuple[Step, ...]
    further_steps: tuple[Step, ...]
    cost: str
    why: str
    standing: str
    driver: str
    fault_class: str
    origin: str
    confidence: str
    answer: str
    meaning: str
    job: str
    before: tuple[str, ...]
    after: tuple[Step, ...]
    look: tuple[Advice, ...]
    again: str
    patterns: tuple[str, ...]
    excluded: tuple[str, ...]
    unknowns: tuple[str, ...]
    says: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Everything on the page; `first` is None when the log holds no fault."""

    title: str
    first: Told | None
    others: tuple[Told, ...]
    tally: tuple[str, ...]
    chart: Chart | None
    lanes: tuple[DrawnLane, ...]
    several: bool
    silence: tuple[str, ...]
    untrusted: tuple[str, ...]
    loose: tuple[str, ...]
    malformed: tuple[Line, ...]
    malformed_more: str
    notes: tuple[str, ...]
    inputs: tuple[str, ...]
    hosts: tuple[str, ...]
    summary: str
    version: str


class _Writer:
    def __init__(self, postmortem: Postmortem, rules: RuleTable, zone: tzinfo | None) -> None:
        self.postmortem, self.rules, self.zone = postmortem, rules, zone

    def page(self) -> Page:
        incidents = self.postmortem.incidents
        told = [self.told(place, incident) for place, incident in enumerate(incidents[: _MOST_SHORT + 1], 1)]
        drawn = chart(self.postmortem, self.zone)
        loose = self.postmortem.loose
        untrusted = [member for member in loose if member.finding.event.record.trusted == "no"]
        malformed = self.postmortem.malformed
        return Page(
            title=sentence(incidents[0]) if incidents else nothing_found(self.postmortem),
            first=told[0] if told else None,
            others=tuple(told[1:]),
            tally=_tally(incidents[_MOST_SHORT + 1 :]),
            chart=drawn,
            lanes=_drawn(drawn) if drawn is not None else (),
            several=len(told) > 1,
            silence=() if incidents or not self.postmortem.records else SILENCE,
            untrusted=_listed(untrusted),
            loose=_listed([member for member in loose if member not in untrusted]),
            malformed=tuple(Line(place="", text=_cut(text, _LONGEST_LINE)) for text in malformed[:_MOST_LISTED]),
            malformed_more=_more(len(malformed) - _MOST_LISTED, "line"),
            notes=tuple(all_notes(self.postmortem)),
            inputs=_first(covered(report, self.zone) for report in self.postmortem.inputs),
            hosts=_first(text for report in self.postmortem.hosts if (text := _host(report))),
            summary=", ".join(
                [
                    counted(self.postmortem.records, "line"),
                    f"{number(self.postmortem.gpu_lines)} about GPUs",
                    counted(len(incidents), "incident"),
                ]
            ),
            version=__version__,
        )

    def told(self, place: int, incident: Incident) -> Told:
        demand, look = incident.recovery, look_now(incident)
        root = incident.members[incident.root].finding.rule
        chosen = look or demand
        steps = self.steps(action_for(self.rules, chosen.rung, incident).commands, incident) if chosen.rung != "none" else ()
        action = action_for(self.rules, demand.rung, incident) if demand.rung != "none" else None
        return Told(
            number=place,
            severity=incident.severity,
            sentence=sentence(incident),
            do=do_now(self.rules, incident),
            steps=steps[:_MOST_COMMANDS],
            further_steps=steps[_MOST_COMMANDS:],
            cost=action.cost if action else "",
            why=reason(chosen, incident),
            driver=incident.driver_word or "",
            standing=state(incident, self.times(incident)) if incident.state != "active" else "",
            fault_class=incident.fault_class,
            origin=incident.origin,
            confidence=confidence(incident),
            answer=memory_or_compute(incident),
            meaning=first_sentences(root.explain, 2),
            job=for_the_job(incident) or "",
            before=tuple(need.say for need in action.preconditions) if action else (),
            after=self.steps(checks_for(self.rules, incident), incident),
            look=tuple(self.advice(one, incident) for one in incident.investigate if one is not look),
            again=again(incident, self.zone) or "",
            patterns=incident.patterns,
            excluded=incident.excluded,
            unknowns=incident.unknowns,
            says=tuple(map(visible, gpu_says(incident))),
        )

    def times(self, incident: Incident) -> Times:
        end = [incident.end.record] if incident.end is not None else []
        return times(moments(incident) + end, self.zone)

    def steps(self, commands: Iterable[Command], incident: Incident) -> tuple[Step, ...]:
        known = known_of(incident)
        return tuple(_step(command, command_lines(command, known)) for command in commands)

    def advice(self, demand: Demand, incident: Incident) -> Advice:
        commands = action_for(self.rules, demand.rung, incident).commands[:2]
        return Advice(
            say=say(self.rules, demand.rung, incident), why=reason(demand, incident), steps=self.steps(commands, incident)
        )


def _step(command: Command, lines: list[str]) -> Step:
    tags = [word for word, holds in (("as root", command.needs_root), ("disrupts", command.destructive)) if holds]
    return Step(line=lines[0], further=tuple(lines[1:]), note=command.note, tags=tuple(tags))


def _drawn(drawn: Chart) -> tuple[DrawnLane, ...]:
    return tuple(
        DrawnLane(
            title=lane.title,
            kind=lane.kind,
            facts=lane.facts,
            passing=lane.passing,
            bars=tuple(_bar(track, drawn.shown) for track in lane.tracks),
        )
        for lane in drawn.lanes
    )


def _bar(track: Track, shown: Times) -> Bar:
    lines, left = _evidence(track, shown)
    wide = track.end - track.start > 30
    return Bar(
        track=track,
        when=shown.of(track.row.record),
        mark=_MARKS[track.row.role],
        text=_cut(track.row.text, _LONGEST_TEXT),
        number=f"{number(track.count)}×" if track.count > 1 else "",
        label_at="inside" if wide else "right" if track.end < 70 else "left",
        lines=tuple(lines),
        more=_more(left, "line"),
    )


def _evidence(track: Track, shown: Times) -> tuple[list[Line], int]:
    """The lines behind a bar: the first ones and the last one, stacks where there are some; how many lines are left out."""
    members = track.row.members
    if not members:
        return [_line(track.row.record, shown)], 0
    firsts = [member.finding.event.record for member in members]
    lasts = [member.last.record for member in members if member.last.uid != member.finding.event.uid]
    chosen = firsts[:_MOST_LINES] + lasts[-1:]
    if len(firsts) > _MOST_LINES and not lasts:
        chosen = firsts[: _MOST_LINES - 1] + firsts[-1:]
    lines = [_line(record, shown) for record in chosen]
    for member in members[:2]:
        lines += _stack(member.finding.event.detail)
    return lines, sum(member.lines for member in members) - len(chosen)


def _line(record: Record, shown: Times) -> Line:
    place = shown.of(record)
    if record.line and not place.startswith("line "):
        place += f" · line {record.line:,}"
    return Line(place=place, text=_cut(record.text, _LONGEST_LINE))


def _stack(detail: Detail | None) -> Iterator[Line]:
    if isinstance(detail, HungTaskDetail | LockupDetail) and detail.stack:
        frames = " < ".join(detail.stack[:_MOST_FRAMES])
        yield Line(place="its stack, innermost first", text=_cut(frames, 2 * _LONGEST_LINE))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} … {number(len(text) - most)} more characters"


def _more(left: int, noun: str) -> str:
    return f"and {counted(left, f'more {noun}')}, not shown" if left > 0 else ""


def _first(texts: Iterable[str]) -> tuple[str, ...]:
    found = list(texts)
    rest = [f"and {number(len(found) - _MOST_LISTED)} more"] if len(found) > _MOST_LISTED else []
    return (*found[:_MOST_LISTED], *rest)


def _tally(incidents: tuple[Incident, ...]) -> tuple[str, ...]:
    found = Counter((one.severity, one.fault_class, one.title) for one in incidents).most_common()
    return _first(f"{number(count)} × {title} ({fault_class}, {severity})" for (severity, fault_class, title), count in found)


def _listed(members: list[Member]) -> tuple[str, ...]:
    return _first(
        f"line {member.finding.event.record.line}: {label(member.finding.event)}, {member.finding.rule.title}"
        + (f", {number(member.count)} times" if member.count > 1 else "")
        + f": {_cut(visible(member.finding.event.record.text), 200)}"
        for member in members
    )


def _host(report: HostReport) -> str:
    facts = [visible(report.host) if report.host else "the host"]
    facts += [f"driver {visible(report.driver_version)}"] if report.driver_version else []
    facts += [f"{report.module_flavour} kernel modules"] if report.module_flavour else []
    facts += [f"kernel {visible(report.kernel)}"] if report.kernel else []
    return ", ".join(facts) if len(facts) > 1 else ""
