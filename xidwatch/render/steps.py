"""What to type: the verdict's demand and every other one as commands with the incident's names filled in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from xidwatch.core.incident import Incident, Postmortem
from xidwatch.core.ladder import ANYWHERE, action_at, place_of, rung_to_verify
from xidwatch.core.pattern import lazy
from xidwatch.core.rule import Action, Command, Severity
from xidwatch.render.layout import Line, wrap
from xidwatch.render.wording import nothing_found, sentence

if TYPE_CHECKING:
    from xidwatch.core.classify import RuleTable

Known = dict[str, list[str]]
"""What is known of each placeholder, by its name without the brackets."""
_SAFE_VALUE = lazy(r"[A-Za-z0-9][A-Za-z0-9._:-]*$", re.ASCII)
_SAFE_ARGUMENT = lazy(r"(?:[\w@%+=:,./-]|<\w+>)+$", re.ASCII)
_PLACEHOLDER = lazy(r"<(gpu|pci|node|host|pid)>")
_MOST_FILLINGS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer in one sentence, the strongest demand, and the first command for it (None when there is none)."""

    sentence: str
    rung: str
    command: str | None
    severity: Severity | None


def verdict(postmortem: Postmortem, rules: RuleTable) -> Verdict:
    """What to say first."""
    if not postmortem.incidents:
        return Verdict(sentence=nothing_found(postmortem), rung="none", command=None, severity=None)
    worst = postmortem.incidents[0]
    return Verdict(
        sentence=sentence(worst),
        rung=worst.recovery.rung,
        command=key_command(rules, worst.recovery.rung, worst),
        severity=worst.severity,
    )


def action_for(rules: RuleTable, rung: str, incident: Incident | None = None) -> Action:
    """How a rung is done on the incident's machine; without an incident, anywhere."""
    return action_at(rules, rung, place_of(incident) if incident is not None else ANYWHERE)


def say(rules: RuleTable, rung: str, incident: Incident | None = None) -> str:
    """The rung as an imperative, `reset the GPU`."""
    return action_for(rules, rung, incident).say if rung != "none" else "nothing"


def commands_for(rules: RuleTable, rung: str, incident: Incident) -> list[str]:
    """A rung's commands, each once for every GPU, host or process of the incident; empty for `none`."""
    if rung == "none":
        return []
    known = known_of(incident)
    return [line for command in action_for(rules, rung, incident).commands for line in command_lines(command, known)]


def checks_for(rules: RuleTable, incident: Incident) -> tuple[Command, ...]:
    """What shows that the incident's GPU is well again; empty where nothing was asked for."""
    rung = rung_to_verify(incident)
    return action_for(rules, rung, incident).verify if rung is not None else ()


def key_command(rules: RuleTable, rung: str, incident: Incident | None = None) -> str | None:
    """The command that does it: the first that changes something, best one without an `if` in its note; None without any."""
    action = action_for(rules, rung, incident) if rung != "none" else None
    if action is None or not action.commands:
        return None
    return command_lines(action.commands[key_place(action)], known_of(incident) if incident is not None else {})[0]


def key_place(action: Action) -> int:
    """Which of the commands does it: as `key_command` chooses; 0 without any."""
    places = range(len(action.commands))
    changing = [place for place in places if action.commands[place].destructive]
    plain = [place for place in changing if not (action.commands[place].note or "").startswith("if ")]
    return next(iter((*plain, *changing, *places)), 0)


def known_of(incident: Incident) -> Known:
    """What the incident knows of each placeholder; one that only asked (pid role victim) or is dead already is no <pid>."""
    events = [member.finding.event for member in incident.members]
    if len(incident.hosts) > 1:
        # What is done to the node at fault must not be done to those that only waited for it.
        events = [event for event in events if event.record.host in (None, *incident.at_fault)]
    events.sort(key=lambda event: event.kind != "hung_task")
    living = [event for event in events if event.pid_role != "victim" and event.kind != "oom_kill"]
    pids = [str(event.pid) for event in living if event.pid is not None]
    root = incident.members[incident.root].finding.event
    # An NVSwitch has an address too, and a GPU reset must not be aimed at it.
    switches = {str(event.pci) for event in events if event.kind == "sxid"}
    named = {str(event.pci) for event in events}
    gpus = [gpu for gpu in incident.gpus if gpu not in switches and (len(incident.hosts) < 2 or gpu in named)]
    return {
        "gpu": gpus,
        "pci": [str(root.pci)] if root.pci is not None else gpus,
        "node": list(incident.at_fault),
        "host": list(incident.at_fault),
        "pid": list(dict.fromkeys(pids))[:4],
    }


def command_lines(command: Command, known: Known) -> list[str]:
    """One line for each way to fill the placeholders; a value that a shell or an option parser could misread is left out.

    What is not known keeps its `<placeholder>`: pasted as it stands, a shell refuses it and runs nothing.
    """
    holes = list(dict.fromkeys(hole for part in command.argv for hole in _PLACEHOLDER.findall(part)))
    choices = [[value for value in known.get(hole, []) if _SAFE_VALUE.match(value)] or [f"<{hole}>"] for hole in holes]
    fillings = [dict(zip(holes, values, strict=True)) for values in product(*choices)]
    return [" ".join(quoted(_filled(part, filling)) for part in command.argv) for filling in fillings[:_MOST_FILLINGS]]


def _filled(part: str, filling: dict[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda found: filling[found[1]], part)


def quoted(word: str) -> str:
    """The word as a POSIX shell reads it back; `<placeholders>` stay bare."""
    return word if _SAFE_ARGUMENT.match(word) else "'" + word.replace("'", "'\"'\"'") + "'"


def command_block(commands: Iterable[Command], known: Known, *, width: int, indent: int) -> list[Line]:
    """Commands under each other, their notes as shell comments: beside where that fits, else above.

    A command that several GPUs need is shown for the first; a comment names the others.
    """
    lines: list[Line] = []
    front = " " * indent
    for command in commands:
        fillings = command_lines(command, known)
        notes = [note for note in (command.note, f"and so for {len(fillings) - 1} more" if len(fillings) > 1 else None) if note]
        text, comment = front + fillings[0], "; ".join(notes)
        if comment and len(text) + 4 + len(comment) <= width:
            lines.append(("command", f"{text}  # {comment}"))
            continue
        if comment:
            lines += [("quiet", line) for line in wrap(comment, width, first=f"{front}# ", rest=f"{front}# ")]
        lines.append(("command", text))
    return lines
