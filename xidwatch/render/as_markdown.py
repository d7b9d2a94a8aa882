"""A postmortem for a ticket: Markdown, verdict first, the next command in a code block, log text inert."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import tzinfo
from typing import TYPE_CHECKING

from xidwatch.core.incident import Incident, Postmortem
from xidwatch.core.record import Record
from xidwatch.core.rule import Command
from xidwatch.render.answer import (
    SILENCE,
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
from xidwatch.render.layout import first_sentences, visible
from xidwatch.render.steps import action_for, checks_for, command_block, key_command, key_place, known_of, say
from xidwatch.render.timeline import Row, Times, moments, most_telling, rows, times
from xidwatch.render.wording import counted, label, memory_or_compute, names, nothing_found, number, sentence

if TYPE_CHECKING:
    from xidwatch.core.classify import RuleTable

_MOST_ROWS = 16
_MOST_SHORT = 8
_MOST_COMMANDS = 3
_MOST_LINES = 40
_LONGEST_LINE, _LONGEST_CELL = 400, 240
_COMMENT_WIDTH = 100
_ROLES = {"root": "**root**", "consequence": "follows", "context": "context"}
_ACTIVE = re.compile(r"[\\`*_\[\]<>&|~#@:$^{}\"]|^[/+=!%-]|^www\.|^[0-9]+[.)]$", re.IGNORECASE)
"""What could act in some dialect: markup, HTML, tables, mentions, references, links, emoji, formulas, quick actions, lists."""
_REFERENCE = re.compile(r"^(?:[A-Za-z][A-Za-z0-9]+-\d+|(?=.*\d)(?=.*[a-f])[0-9a-f]{7,40})$", re.IGNORECASE)
"""What a tracker makes a link of: `OPS-123`, the start of a commit's name."""
_WORD = re.compile(r"^([(,;]*)(.*?)([),.;:?!]*)$", re.DOTALL)
_TICKED = re.compile(r"`([^`]+)`")
_FENCE = re.compile(r"`+")


def render_markdown(postmortem: Postmortem, rules: RuleTable, *, zone: tzinfo | None = None) -> str:
    """The ticket as one text.

    Args:
        zone: For times of a log that names no zone; None means UTC.
    """
    ticket = _Ticket(postmortem, rules, zone)
    return "\n\n".join(block for block in ticket.blocks() if block) + "\n"


def inert(text: str) -> str:
    """The text with every word that some Markdown dialect could act on in a code span; a part in backticks is one."""
    parts = _TICKED.split(visible(text))
    done = ""
    for place, part in enumerate(parts):
        piece = code(part) if place % 2 else _inert_words(part)
        # Two code spans side by side would read as one with another end.
        done += " " + piece if done.endswith("`") and piece.startswith("`") else piece
    return done


def code(text: str) -> str:
    """A code span that shows the text as it is, backticks and all; nothing for an empty text."""
    shown = visible(text)
    if not shown.strip():
        return shown
    fence = "`" * (max((len(run) for run in _FENCE.findall(shown)), default=0) + 1)
    pad = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def code_block(lines: Iterable[str], language: str = "") -> str:
    """A fenced block that its own content cannot end."""
    shown = [visible(line) for line in lines]
    fence = "`" * max(3, max((len(run) for line in shown for run in _FENCE.findall(line)), default=0) + 1)
    return "\n".join([fence + language, *shown, fence])


def _inert_words(text: str) -> str:
    return " ".join(_inert_word(word) for word in text.split(" "))


def _inert_word(word: str) -> str:
    found = _WORD.match(word)
    before, core, after = found.groups() if found else ("", word, "")
    return before + (code(core) if core and (_ACTIVE.search(core) or _REFERENCE.match(core)) else core) + after


class _Ticket:
    def __init__(self, postmortem: Postmortem, rules: RuleTable, zone: tzinfo | None) -> None:
        self.postmortem, self.rules, self.zone = postmortem, rules, zone

    def blocks(self) -> Iterator[str]:
        incidents = self.postmortem.incidents
        if incidents:
            yield from self._full(incidents[0])
            yield from self._others(incidents[1:])
        else:
            yield f"## {inert(nothing_found(self.postmortem))}"
            if self.postmortem.records:
                yield "Silence is no proof of health:\n\n" + _bullets(SILENCE)
        yield from self._doubts()
        yield self._footer()

    def _full(self, incident: Incident) -> Iterator[str]:
        demand, look = incident.recovery, look_now(incident)
        root = incident.members[incident.root].finding.rule
        yield f"## {inert(sentence(incident))}"
        yield f"**Do now:** {inert(do_now(self.rules, incident))}"
        if (chosen := look or demand).rung != "none":
            yield self._commands(self._first(chosen.rung, incident), incident)
        facts = [("Judgement", judgement(incident)), ("Memory or compute?", memory_or_compute(incident))]
        facts.append(("Because", reason(chosen, incident)))
        facts.append(("Costs", action_for(self.rules, demand.rung, incident).cost if demand.rung != "none" else ""))
        facts.append(("State", state(incident, self._times(incident)) if incident.state != "active" else ""))
        facts.append(("Meaning", first_sentences(root.explain, 2)))
        facts.append(("Your job", for_the_job(incident) or ""))
        facts.append(("Again", again(incident, self.zone) or ""))
        yield "\n".join(f"- **{name}** {inert(text)}" for name, text in facts if text)
        yield from self._timeline(incident)
        yield from self._further(incident)
        yield self._evidence(incident)

    def _first(self, rung: str, incident: Incident) -> tuple[Command, ...]:
        """The first commands, as far as the one that does it."""
        action = action_for(self.rules, rung, incident)
        return action.commands[: max(_MOST_COMMANDS, key_place(action) + 1)]

    def _commands(self, commands: Iterable[Command], incident: Incident) -> str:
        lines = command_block(commands, known_of(incident), width=_COMMENT_WIDTH, indent=0)
        return code_block((text for _, text in lines), "sh") if lines else ""

    def _times(self, incident: Incident) -> Times:
        end = [incident.end.record] if incident.end is not None else []
        return times(moments(incident) + end, self.zone)

    def _timeline(self, incident: Incident) -> Iterator[str]:
        found, shown = rows(incident), self._times(incident)
        kept = most_telling(found, _MOST_ROWS)
        place = ", ".join(part for part in (shown.heading, names(incident.hosts)) if part)
        yield f"### Timeline\n\n{inert(place)}".rstrip()
        table = ["| Time | Role | Event | What |", "|---|---|---|---|", *(_table_row(row, shown) for row in kept)]
        yield "\n".join(table)
        if len(found) > len(kept):
            yield f"{len(found) - len(kept)} more kinds of event are left out."

    def _further(self, incident: Incident) -> Iterator[str]:
        action = action_for(self.rules, incident.recovery.rung, incident) if incident.recovery.rung != "none" else None
        if action is not None and action.preconditions:
            yield "**Before it**\n\n" + _bullets(need.say for need in action.preconditions)
        if checks := checks_for(self.rules, incident):
            yield f"**{'After it' if action is not None else 'Verify'}**\n\n" + self._commands(checks[:2], incident)
        left = [demand for demand in incident.investigate if demand is not look_now(incident)]
        if left:
            yield "**Look into**\n\n" + "\n".join(
                f"- {inert(say(self.rules, demand.rung, incident))}" + (f": {code(command)}" if command else "")
                for demand in left
                for command in [key_command(self.rules, demand.rung, incident)]
            )
        for heading, texts in (
            ("Pattern", incident.patterns),
            ("What the GPU says", tuple(gpu_says(incident))),
            ("What the driver asks", (incident.driver_word,) if incident.driver_word else ()),
            ("Ruled out", incident.excluded),
            ("Not known", incident.unknowns),
        ):
            if texts:
                yield f"**{heading}**\n\n" + _bullets(texts)

    def _evidence(self, incident: Incident) -> str:
        """The lines themselves, folded: the root's first, then the others in order, context last."""
        root = incident.members[incident.root]
        records = [root.finding.event.record, *(m.finding.event.record for m in incident.members if m is not root)]
        records += [context.record for context in incident.context]
        lines = list(dict.fromkeys(_evidence_line(record, self._times(incident)) for record in records))
        left = len(lines) - _MOST_LINES
        shown = lines[:_MOST_LINES] + ([f"... and {number(left)} more"] if left > 0 else [])
        return (
            f"<details><summary>Evidence: {counted(len(lines), 'line')}</summary>\n\n{code_block(shown, 'text')}\n\n</details>"
        )

    def _others(self, incidents: tuple[Incident, ...]) -> Iterator[str]:
        if not incidents:
            return
        lines = [f"- {inert(self._in_short(incident))}" for incident in incidents[:_MOST_SHORT]]
        if (left := len(incidents) - _MOST_SHORT) > 0:
            lines.append(f"- and {counted(left, 'more incident')}")
        yield "### Other incidents\n\n" + "\n".join(lines)

    def _in_short(self, incident: Incident) -> str:
        root = incident.members[incident.root].finding
        parts = [f"{sentence(incident)} {incident.severity}, {incident.fault_class}, {incident.origin}."]
        parts.append(f"Root {label(root.event)}. Do: {do_now(self.rules, incident)}.")
        if incident.state != "active":
            parts.append(f"It is {state(incident, self._times(incident))}.".replace("It is seems", "It seems"))
        return " ".join(parts)

    def _doubts(self) -> Iterator[str]:
        texts = all_notes(self.postmortem)
        loose = self.postmortem.loose
        untrusted = [member for member in loose if member.finding.event.record.trusted == "no"]
        for count, what in (
            (len(untrusted), "that user space wrote: not believed"),
            (len(loose) - len(untrusted), "recorded, part of no incident"),
            (len(self.postmortem.malformed), "about GPUs in a wording that xidwatch does not know"),
        ):
            texts += [f"{counted(count, 'line')} {what}"] if count else []
        if texts:
            yield "### To be doubted\n\n" + _bullets(texts)

    def _footer(self) -> str:
        parts = [counted(self.postmortem.records, "line"), f"{number(self.postmortem.gpu_lines)} about GPUs"]
        parts.append(counted(len(self.postmortem.incidents), "incident"))
        read = [covered(report, self.zone) for report in self.postmortem.inputs[:4]]
        return "---\n\n" + inert(", ".join(parts) + ". Read: " + "; ".join(read) + ".")


def _table_row(row: Row, shown: Times) -> str:
    text = row.text if len(row.text) <= _LONGEST_CELL else row.text[:_LONGEST_CELL] + " …"
    cells = (code(shown.of(row.record)), _ROLES[row.role], inert(row.name), inert(text))
    # In a table a pipe ends the cell, also within a code span, unless it is escaped.
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _evidence_line(record: Record, shown: Times) -> str:
    text = record.text if len(record.text) <= _LONGEST_LINE else record.text[:_LONGEST_LINE] + " …"
    return f"{shown.of(record)}  {text}"


def _bullets(texts: Iterable[str]) -> str:
    return "\n".join(f"- {inert(text)}" for text in texts)
