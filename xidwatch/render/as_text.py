"""A postmortem for a terminal: the answer and the next command first, then why, then what is not known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import tzinfo
from typing import TYPE_CHECKING

from xidwatch.core.incident import Demand, Incident, Member, Postmortem
from xidwatch.render.answer import (
    SILENCE,
    WHEN,
    again,
    all_notes,
    covered,
    do_now,
    for_the_job,
    gpu_says,
    judgement,
    look_now,
    reason,
    state,
)
from xidwatch.render.layout import Line, first_sentences, labelled, paint, visible, wrap
from xidwatch.render.steps import action_for, checks_for, command_block, key_command, key_place, known_of, say
from xidwatch.render.timeline import Row, Times, most_telling, rows, times
from xidwatch.render.wording import counted, label, memory_or_compute, names, nothing_found, number, said, sentence

if TYPE_CHECKING:
    from xidwatch.core.classify import RuleTable

_INDENT = 11
_MOST_ROWS = 24
_MOST_SHORT = 12
_MOST_COMMANDS = 3


def render_text(postmortem: Postmortem, rules: RuleTable, *, color: bool, width: int, zone: tzinfo | None = None) -> str:
    """The report as one text.

    Args:
        color: Use ANSI colours; without them the report says the same.
        width: Columns; commands and single longer words are never broken.
        zone: For times of a log that names no zone; None means UTC.
    """
    report = _Report(postmortem, rules, max(width, 40), zone)
    return paint(report.lines(), color=color)


class _Report:
    def __init__(self, postmortem: Postmortem, rules: RuleTable, width: int, zone: tzinfo | None) -> None:
        self.postmortem, self.rules, self.width, self.zone = postmortem, rules, width, zone

    def lines(self) -> Iterator[Line]:
        incidents = self.postmortem.incidents
        if incidents:
            yield from self._full(incidents[0])
            yield from self._others(incidents[1:])
        else:
            yield from self._nothing()
        yield from self._doubts()
        yield from self._footer()

    def _plain(self, head: str, texts: Iterable[str], style: str = "plain") -> Iterator[Line]:
        yield from ((style, line) for line in labelled(head, texts, self.width, indent=_INDENT))

    def _full(self, incident: Incident) -> Iterator[Line]:
        yield from ((incident.severity, line) for line in wrap(sentence(incident), self.width))
        yield from self._do(incident)
        yield "plain", ""
        yield from self._judgement(incident)
        yield "plain", ""
        yield from self._timeline(incident)
        yield from self._further(incident)

    # what to do

    def _do(self, incident: Incident) -> Iterator[Line]:
        demand = incident.recovery
        yield from self._plain("Do now:", [do_now(self.rules, incident)], "strong")
        if (look := look_now(incident)) is not None:
            yield from self._commands(look, incident, 2)
        if demand.rung != "none":
            action = action_for(self.rules, demand.rung, incident)
            most = max(_MOST_COMMANDS, key_place(action) + 1)
            yield from self._commands(demand, incident, most)
            if (left := len(action.commands) - most) > 0:
                yield "quiet", f"{' ' * _INDENT}# {counted(left, 'further step')}: xidwatch explain {demand.rung}"
            yield from self._plain("Costs:", [action.cost] if action.cost else [])
        yield from self._plain("Because:", [why] if (why := reason(demand, incident)) else [])
        yield from self._plain("Driver:", [incident.driver_word] if incident.driver_word else [])
        if incident.state != "active":
            yield from self._plain("State:", [state(incident, self._times(incident))])

    def _commands(self, demand: Demand, incident: Incident, most: int) -> list[Line]:
        return command_block(
            action_for(self.rules, demand.rung, incident).commands[:most],
            known_of(incident),
            width=self.width,
            indent=_INDENT,
        )

    def _around(self, incident: Incident) -> Iterator[Line]:
        """What must hold before the recovery, and what shows that it worked."""
        if incident.recovery.rung != "none":
            action = action_for(self.rules, incident.recovery.rung, incident)
            yield from self._plain("Before it:", [need.say for need in action.preconditions])
        head = "After it:" if incident.recovery.rung != "none" else "Verify:"
        checks = command_block(checks_for(self.rules, incident)[:2], known_of(incident), width=self.width, indent=_INDENT)
        for place, (style, text) in enumerate(checks):
            yield style, text if place else head.ljust(_INDENT) + text[_INDENT:]

    # what it is

    def _judgement(self, incident: Incident) -> Iterator[Line]:
        root = incident.members[incident.root].finding.rule
        yield from (("strong", line) for line in wrap(judgement(incident), self.width))
        answer = memory_or_compute(incident)
        yield from (("plain", line) for line in wrap(answer, self.width, first="Memory or compute?  ", rest=" " * _INDENT))
        yield from (("plain", line) for line in wrap(first_sentences(root.explain, 2), self.width))
        tenant = for_the_job(incident)
        if tenant:
            yield from self._two_readers(incident, tenant)

    def _two_readers(self, incident: Incident, tenant: str) -> Iterator[Line]:
        yield from ((("plain", line)) for line in wrap(tenant, self.width, first="Your job:  ", rest=" " * _INDENT))
        if incident.recovery.rung == "none":
            return
        admin = f"{do_now(self.rules, incident)}, as above"
        yield from ((("plain", line)) for line in wrap(admin, self.width, first="Your node: ", rest=" " * _INDENT))

    # what happened

    def _times(self, incident: Incident) -> Times:
        records = [row.record for row in rows(incident)]
        return times(records + ([incident.end.record] if incident.end is not None else []), self.zone)

    def _timeline(self, incident: Incident) -> Iterator[Line]:
        shown, shift = rows(incident), self._times(incident)
        place = ", ".join(part for part in (shift.heading, names(incident.hosts)) if part)
        if place:
            yield "quiet", place
        kept = most_telling(shown, _MOST_ROWS)
        clocks = {id(row): shift.of(row.record) for row in kept}
        clock_width = max(len(text) for text in clocks.values())
        name_width = min(max(len(row.name) for row in kept), 14)
        after_root, following = False, [row for row in kept if row.role == "consequence"]
        for row in kept:
            after_root |= row.role == "root"
            mark = _mark(row, last=bool(following) and row is following[-1], after_root=after_root)
            front = f"{clocks[id(row)].ljust(clock_width)}  {mark:<4}  {row.name.ljust(name_width)}  "
            style = "strong" if row.role == "root" else "quiet" if row.role == "context" else "plain"
            for line in wrap(row.text, self.width, first=front, rest=_continued(front, row, following)):
                yield style, line
        if len(shown) > len(kept):
            yield "quiet", f"… and {len(shown) - len(kept)} more kinds of event; --format json has them all"

    # what else

    def _further(self, incident: Incident) -> Iterator[Line]:
        found = list(self._around(incident))
        left = [demand for demand in incident.investigate if demand is not look_now(incident)]
        for place, demand in enumerate(left):
            told = not place or any(gpu in demand.why for gpu in incident.gpus)
            why = f" ({words})" if told and (words := reason(demand, incident)) else ""
            found += self._plain("" if place else "Look into:", [say(self.rules, demand.rung, incident) + why])
            found += self._commands(demand, incident, 2)
        found += self._plain("Again:", [seen] if (seen := again(incident, self.zone)) else [])
        found += self._plain("Pattern:", [f"it {visible(phrase)}" for phrase in incident.patterns])
        found += self._plain("GPU says:", [visible(text) for text in gpu_says(incident)])
        found += self._plain("Ruled out:", [visible(text) for text in incident.excluded])
        found += self._plain("Not known:", [visible(text) for text in incident.unknowns])
        if found:
            yield "plain", ""
            yield from found

    def _others(self, incidents: tuple[Incident, ...]) -> Iterator[Line]:
        for place, incident in enumerate(incidents[:_MOST_SHORT], 2):
            yield "plain", ""
            yield from (
                (incident.severity, line) for line in wrap(sentence(incident), self.width, first=f"{place}. ", rest="   ")
            )
            yield from (("plain", line) for line in wrap(self._in_short(incident), self.width, first="   ", rest="   "))
            if (command := key_command(self.rules, incident.recovery.rung, incident)) is not None:
                yield "command", "   " + command
        rest = incidents[_MOST_SHORT:]
        if rest:
            yield "plain", ""
            tally = Counter((one.severity, one.fault_class, one.title) for one in rest)
            yield "plain", f"And {counted(len(rest), 'more incident')}:"
            for (severity, fault_class, title), count in tally.most_common(8):
                yield from (
                    (("plain", line))
                    for line in wrap(
                        f"{number(count)} × {title} ({fault_class}, {severity})", self.width, first="   ", rest="      "
                    )
                )

    def _in_short(self, incident: Incident) -> str:
        root = incident.members[incident.root].finding
        others = Counter(label(m.finding.event) for i, m in enumerate(incident.members) if i != incident.root)
        parts = [f"{incident.severity}, {incident.fault_class}, {incident.origin}. "]
        parts.append(f"Root {label(root.event)}: " + ", ".join([root.rule.title, *said(root)[:2]]) + ".")
        if others:
            parts.append("With " + names(others) + ".")
        if incident.state != "active":
            standing = state(incident, self._times(incident))
            parts.append(standing[:1].upper() + standing[1:] + ".")
        parts.append(f"Do: {WHEN[incident.recovery.when]}{say(self.rules, incident.recovery.rung, incident)}.")
        return " ".join(part.strip() for part in parts)

    # nothing, doubts, the end

    def _nothing(self) -> Iterator[Line]:
        yield from ((("info", line)) for line in wrap(nothing_found(self.postmortem), self.width))
        for report in self.postmortem.inputs[:6]:
            yield from ((("plain", line)) for line in wrap(covered(report, self.zone), self.width, first="  ", rest="  "))
        if self.postmortem.records:
            yield "plain", ""
            yield "plain", "Silence is no proof of health:"
            for text in SILENCE:
                yield from ((("plain", line)) for line in wrap(text, self.width, first="  - ", rest="    "))

    def _doubts(self) -> Iterator[Line]:
        found: list[Line] = []
        untrusted = [member for member in self.postmortem.loose if member.finding.event.record.trusted == "no"]
        found += self._listed("Not believed (user space wrote them)", untrusted)
        found += self._listed("Recorded, belongs to no incident", [m for m in self.postmortem.loose if m not in untrusted])
        if self.postmortem.malformed:
            total = counted(len(self.postmortem.malformed), "line")
            found += self._plain("", [f"{total} about GPUs in a wording that xidwatch does not know, the first:"])
            found += [("quiet", "  " + line) for line in wrap(visible(self.postmortem.malformed[0]), self.width - 2)]
        for note in all_notes(self.postmortem):
            found += [("warning", line) for line in wrap(note, self.width, rest="  ")]
        if found:
            yield "plain", ""
            yield from found

    def _listed(self, heading: str, members: list[Member]) -> Iterator[Line]:
        if not members:
            return
        yield "plain", f"{heading}:"
        for member in members[:4]:
            event = member.finding.event
            text = f"line {event.record.line}: {label(event)}, {member.finding.rule.title}"
            text += f", {number(member.count)} times" if member.count > 1 else ""
            yield from (("quiet", line) for line in wrap(text, self.width, first="  ", rest="    "))
        if len(members) > 4:
            yield "quiet", f"  and {len(members) - 4} more"

    def _footer(self) -> Iterator[Line]:
        incidents = self.postmortem.incidents
        parts = [counted(self.postmortem.records, "line"), f"{number(self.postmortem.gpu_lines)} about GPUs"]
        parts.append(counted(len(incidents), "incident"))
        text = ", ".join(parts) + ". Details: --format json."
        if incidents:
            root = incidents[0].members[incidents[0].root].finding
            code = root.event.code
            text += f" Root: xidwatch explain {code if code is not None else root.rule.id}"
        yield "plain", ""
        yield from (("quiet", line) for line in wrap(text, self.width))


def _mark(row: Row, *, last: bool, after_root: bool) -> str:
    if row.role == "root":
        return "ROOT"
    if row.role == "context":
        return " ·"
    return " ┌─" if not after_root else " └─" if last else " ├─"


def _continued(front: str, row: Row, following: list[Row]) -> str:
    """What stands before a wrapped row's further lines: the tree goes on while consequences follow."""
    goes_on = (row.role == "root" and following) or (row in following and row is not following[-1])
    bar = front.find("ROOT") + 1 if row.role == "root" else max(front.find("├"), front.find("┌"))
    return (" " * bar + "│").ljust(len(front)) if goes_on and bar > 0 else " " * len(front)
