"""What a code, a name or a pasted line means, in the manner of `rustc --explain`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, get_args

from xidwatch.core.escalate import climbs
from xidwatch.core.event import Context, Event, Kind
from xidwatch.core.incident import Finding
from xidwatch.core.ladder import Place, action_at, is_shortage
from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record
from xidwatch.core.rule import INVESTIGATIONS, RUNGS, Action, Applies, Combination, Command, Done, Pattern, Rule
from xidwatch.render.layout import Line, labelled, paint, paragraphs, visible, wrap
from xidwatch.render.steps import Known, command_block, say
from xidwatch.render.wording import label, owner, said

if TYPE_CHECKING:
    from xidwatch.core.classify import RuleTable

_CODE = lazy(r"(?:nvrm:?\s*)?(s?xid)?[\s:#-]*(\d{1,6})$", re.IGNORECASE)
_FIRST_SXID = 10_000
"""Xids have at most three digits so far, SXids five."""
_SYNONYMS = {
    "d_state": "hung_task", "dstate": "hung_task", "blocked": "hung_task", "oom": "oom_kill", "oom_killer": "oom_kill",
    "lockup": "soft_lockup", "rcu": "rcu_stall", "nccl": "nccl_timeout", "vllm": "vllm_preemption", "torch": "torch_oom",
    "cuda": "cuda_error", "machine_check": "mce", "off_the_bus": "fallen_off_bus",
}  # fmt: skip
_INDENT = 12
_WHEN = {"now": "", "after_drain": "after running jobs have finished (drain): ", "when_idle": "when idle: "}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was asked for and what the rules say.

    Attributes:
        title: `Xid 94`, `hung_task`.
        rules: The rule in force first, then its variants; empty when no rule knows it.
        finding: The pasted line as parsed and judged; None when only a code was given.
        action: The recovery rung or investigation that was asked for by name; then there are no rules.
    """

    title: str
    rules: tuple[Rule, ...]
    finding: Finding | None = None
    action: Action | None = None


def explain_code(argument: str, rules: RuleTable, *, color: bool = False, width: int = 100) -> str | None:
    """The explanation of `94`, `Xid 94`, `sxid20034`, `hung_task`, `api_mismatch`, a rule's id or a pasted line.

    None when the argument is none of these. A code that no rule knows gets an answer that says so.
    """
    answer = look_up(argument, rules)
    return None if answer is None else paint(_lines(answer, rules, max(width, 40)), color=color)


def explain_code_json(argument: str, rules: RuleTable) -> str | None:
    """The same as one JSON object: title, known, the rules in force, and of a pasted line what it says."""
    answer = look_up(argument, rules)
    if answer is None:
        return None
    from xidwatch.render.as_json import plain

    found: dict[str, Any] = {
        "schema": "xidwatch.code/1",
        "argument": argument,
        "title": answer.title,
        "known": not any(map(_is_fallback, answer.rules)),
        "rules": [_rule_fields(rule) for rule in answer.rules],
        "action": asdict(answer.action) if answer.action is not None else None,
        "line": None,
    }
    if answer.finding is not None:
        event = answer.finding.event
        found["line"] = {
            "kind": event.kind,
            "code": event.code,
            "what": event.what,
            "pci": event.pci,
            "pid": event.pid,
            "process": event.process,
            "rule": answer.finding.rule.id,
            "decoded": answer.finding.decoded,
            "says": said(answer.finding),
        }
    return json.dumps(plain(found), indent=2) + "\n"


def look_up(argument: str, rules: RuleTable) -> Answer | None:
    """Find what the argument names; None when it names nothing."""
    text = argument.strip()
    if code := _CODE.match(text):
        return _about_code(code[1], int(code[2]), rules)
    if (named := _about_name(text, rules)) is not None:
        return named
    return _about_line(text, rules) if any(character.isspace() for character in text) else None


def _about_code(family: str | None, number: int, rules: RuleTable) -> Answer:
    kind = family.lower() if family else ("sxid" if number >= _FIRST_SXID else "xid")
    found = rules.rules_about(kind, number)
    name = "SXid" if kind == "sxid" else "Xid"
    if not found:
        return Answer(title=f"{name} {number}", rules=(rules.rule(f"{kind}-unknown"),))
    return Answer(title=f"{name} {number}", rules=tuple(sorted(found, key=_variant)))


def _about_name(text: str, rules: RuleTable) -> Answer | None:
    word = re.sub(r"[\s-]+", "_", text.lower())
    word = _SYNONYMS.get(word, word)
    if word in get_args(Kind) and word not in ("xid", "sxid"):
        found = rules.rules_about("kind", word)
        return Answer(title=word, rules=tuple(sorted(found, key=_variant))) if found else None
    whats = tuple(rule for rule in rules.rules_about("kind", "nvrm") if rule.what == word)
    if whats:
        return Answer(title=f"NVRM {word}", rules=tuple(sorted(whats, key=_variant)))
    if word in (*RUNGS, *INVESTIGATIONS):
        return Answer(title=word, rules=(), action=rules.action(word))
    if text.lower() in rules.rule_ids():
        rule = rules.rule(text.lower())
        return Answer(title=rule.id, rules=(rule,))
    return None


def _about_line(text: str, rules: RuleTable) -> Answer | None:
    event = _parsed(text)
    if event is None:
        return None
    finding = rules.classify(event)
    return Answer(title=label(event), rules=(finding.rule,), finding=finding)


def _parsed(text: str) -> Event | None:
    """The first event of a pasted line or block, freed from the decoration it was pasted with."""
    from xidwatch.core.logtext import parse_line
    from xidwatch.core.parse import Parser

    parser, found = Parser(), None
    for number, line in enumerate(text.splitlines(), 1):
        for item in parser.feed(Record(text=parse_line(line).text, seq=number, line=number)):
            if not isinstance(item, Context) and (found is None or item.uid == found.uid):
                found = item
    return found


def _variant(rule: Rule) -> tuple[int, int]:
    """A code's general rule first, its special cases after it."""
    return (len(rule.where) + (rule.match is not None) + (rule.what is not None), len(rule.id))


def _is_fallback(rule: Rule) -> bool:
    return rule.id.endswith("-unknown")


def _rule_fields(rule: Rule) -> dict[str, Any]:
    """A rule as its file spells it."""
    values = asdict(rule)
    values["class"] = values.pop("fault_class")
    values["where"] = {name: list(wanted) for name, wanted in rule.where}
    return values


# text


_CALLED = {
    "slurm": "Slurm", "kubernetes": "Kubernetes", "mig": "MIG", "vgpu": "vGPU", "nvswitch": "NVSwitch", "bmc": "BMC",
    "persistence": "nvidia-persistenced runs", "container": "xidwatch runs in a container", "amazon": "Amazon EC2",
    "google": "Google Cloud", "microsoft": "Azure or Hyper-V", "vmware": "VMware",
}  # fmt: skip


def where_text(applies: Applies) -> str:
    """A condition in words: `generation ampere, nvswitch, fabric manager stopped`."""
    said = []
    for field in fields(applies):
        wanted, name = getattr(applies, field.name), field.name.replace("_", " ")
        if isinstance(wanted, bool):
            said.append(name if wanted else f"no {name}")
        elif wanted:
            values = " or ".join(str(value).replace("_", " ") for value in wanted)
            said.append(values if field.name in ("setting", "scheduler", "hypervisor") else f"{name} {values}")
    return ", ".join(_CALLED.get(word, word) for word in said)


def _noted(command: Command) -> str | None:
    where = f"only where {where_text(command.only)}" if command.only is not None else None
    return "; ".join(part for part in (where, command.note) if part) or None


def _action_lines(action: Action, width: int) -> Iterator[Line]:
    where = f" (where {where_text(action.only)})" if action.only is not None else ""
    yield "strong", f"{action.id.partition('-')[0]}  {action.say}{where}"
    yield "plain", ""
    for paragraph in paragraphs(action.explain):
        yield from _flowing(paragraph, width)
    yield "plain", ""
    for head, commands in (("Do:", action.commands), ("Verify:", action.verify)):
        told = [replace(command, note=_noted(command)) for command in commands]
        for place, (style, text) in enumerate(command_block(told, {}, width=width, indent=_INDENT)):
            yield style, text if place else head.ljust(_INDENT) + text[_INDENT:]
    needs = [need.say + (f" (only where {where_text(need.only)})" if need.only else "") for need in action.preconditions]
    yield from _labelled("Needs:", needs, width)
    yield from _labelled("Costs:", [action.cost] if action.cost else [], width)


def _lines(answer: Answer, rules: RuleTable, width: int) -> Iterator[Line]:
    if answer.action is not None:
        yield from _action_lines(answer.action, width)
        for variant in rules.action_variants(answer.action.id):
            yield "plain", ""
            yield from _action_lines(variant, width)
        return
    rule, *variants = answer.rules
    if _is_fallback(rule) and answer.finding is None:
        yield "strong", f"{answer.title}  no rule knows this code"
    else:
        yield from _heading(answer.title, rule, width)
    yield "plain", ""
    if answer.finding is not None:
        yield from _this_line(answer.finding, width)
    for paragraph in paragraphs(rule.explain):
        yield from _flowing(paragraph, width)
    if rule.departs:
        yield from _flowing(f"(This departs from the vendor: {rule.departs.rstrip('.')}.)", width)
    yield "plain", ""
    yield from _demands(rule, answer.finding, rules, width)
    yield from _variants(variants, rules, width)
    yield from _company(rule, rules, width)
    yield from _proof(rule, answer, width)


def _heading(title: str, rule: Rule, width: int) -> Iterator[Line]:
    left = f"{title}  {rule.title}"
    right = f"{rule.fault_class} · {rule.origin} · {rule.severity}"
    gap = width - len(left) - len(right)
    if gap >= 2:
        yield "strong", left + " " * gap + right
    else:
        yield "strong", left
        yield "plain", right


def _this_line(finding: Finding, width: int) -> Iterator[Line]:
    event = finding.event
    facts = []
    if event.pci is not None:
        facts.append(f"{'NVSwitch' if event.kind == 'sxid' else 'device' if event.kind == 'aer' else 'GPU'} {event.pci}")
    if who := owner(event):
        facts.append(f"process {who}" + (" (it asked; it need not be the cause)" if event.pid_role == "victim" else ""))
    facts += said(finding)
    if not facts:
        facts = [visible(message) if (message := getattr(event.detail, "message", "")) else "nothing beyond its code"]
    yield from _labelled("This line:", facts, width, "strong")
    yield "plain", ""


def _flowing(text: str, width: int) -> Iterator[Line]:
    yield from (("plain", line) for line in wrap(text, width, rest="  " if text.startswith(("- ", "* ")) else ""))


def _demands(rule: Rule, finding: Finding | None, rules: RuleTable, width: int) -> Iterator[Line]:
    known = _known(finding.event) if finding is not None else {}
    at = Place(shortage=is_shortage(rule))
    if rule.recovery == "none":
        yield from _labelled("Do:", ["nothing to recover"], width)
    else:
        action = action_at(rules, rule.recovery, at)
        yield from _labelled("Do:", [_WHEN[rule.when] + action.say], width)
        yield from command_block(action.commands[:3], known, width=width, indent=_INDENT)
    for place, rung in enumerate(rule.investigate):
        yield from _labelled("" if place else "Then look:", [say(rules, rung)], width)
        yield from command_block(action_at(rules, rung, at).commands[:1], known, width=width, indent=_INDENT)
    if rule.tenant:
        yield from _labelled("Your job:", [rule.tenant], width)


def _labelled(head: str, texts: list[str], width: int, style: str = "plain") -> Iterator[Line]:
    yield from ((style, line) for line in labelled(head, texts, width, indent=_INDENT))


def _known(event: Event) -> Known:
    pci = [str(event.pci)] if event.pci is not None else []
    pid = [str(event.pid)] if event.pid is not None and event.pid_role != "victim" else []
    return {"gpu": pci if event.kind in ("xid", "nvrm") else [], "pci": pci, "pid": pid}


def _variants(variants: list[Rule], rules: RuleTable, width: int) -> Iterator[Line]:
    for place, rule in enumerate(variants):
        text = (
            f"{_condition(rule)}{rule.title}: {_WHEN[rule.when] if rule.recovery != 'none' else ''}{say(rules, rule.recovery)}"
        )
        text += f" ({rule.fault_class}, {rule.severity}; xidwatch explain {rule.id})"
        yield from _labelled("" if place else "Variants:", [text], width)


def _condition(rule: Rule) -> str:
    parts = [f"{name.replace('_', ' ')} {' or '.join(map(str, wanted))}" for name, wanted in rule.where]
    return f"with {', '.join(parts)}: " if parts else ""


_AFTER: dict[Done, str] = {
    "restart_app": "another run", "reload_driver": "a driver reload", "reset_gpu": "a reset", "reboot_node": "a reboot",
}  # fmt: skip


def _company(rule: Rule, rules: RuleTable, width: int) -> Iterator[Line]:
    joined = [one.explain for one in rules.combinations if _selects(one, rule)]
    repeated = [f"when it {one.phrase}: {one.explain}" for one in rules.patterns if _counts(one, rule)]
    climbed: dict[str, str] = {}
    for one in rules.escalations:
        if climbs(rule, one):
            climbed.setdefault(one.after, f"after {_AFTER[one.after]}: {one.explain}")
    for head, texts in (("Together:", joined), ("Repeated:", repeated), ("In vain:", climbed.values())):
        flat = [" ".join(text.split()) for text in texts]
        yield from _labelled(head, flat, width)


def _selects(combination: Combination, rule: Rule) -> bool:
    return rule.id == combination.member or rule.id.startswith(combination.member + "-")


def _counts(pattern: Pattern, rule: Rule) -> bool:
    return any(rule.id == member or rule.id.startswith(member + "-") for member in pattern.members)


def _proof(rule: Rule, answer: Answer, width: int) -> Iterator[Line]:
    if answer.finding is None and not _is_fallback(rule):
        for place, example in enumerate(rule.examples[:2]):
            for number, line in enumerate(example.strip().splitlines()):
                head = "Seen as:" if not place and not number else ""
                yield from _labelled(head or " ", [visible(line)], width, "quiet")
    if rule.vendor_immediate:
        vendor = (
            f"{rule.vendor_immediate} now, {rule.vendor_investigate or 'nothing'} to investigate (its catalogue's own classes)"
        )
        yield from _labelled("Vendor:", [vendor], width, "quiet")
    days = sorted({source.checked for source in rule.sources})
    when = [f"(checked {' to '.join(dict.fromkeys((days[0], days[-1])))})"] if days else []
    yield from _labelled("Sources:", [source.url for source in rule.sources] + when, width, "quiet")
    if rule.file:
        yield from _labelled("Rule:", [f"{rule.id} in {rule.file}"], width, "quiet")
