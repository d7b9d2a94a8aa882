"""The rules as tables: the decision matrix of memory against compute, the list, and one rule as its file spells it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from xidwatch.core.rule import SEVERITIES, Rule
from xidwatch.render.layout import columns, visible
from xidwatch.render.steps import key_command, say
from xidwatch.render.wording import KIND_NAMES

if TYPE_CHECKING:
    from xidwatch.core.classify import RuleTable

_HEADS = {"memory": "Memory (space)", "compute": "Compute (time)", "other": "Other"}
_DEFAULTS = {field.name: field.default for field in fields(Rule)}
_TOML_NAMES = {"fault_class": "class"}
_TOML_ORDER = (
    "id", "xid", "sxid", "kind", "what", "where", "match", "hint", "title", "phrase", "fault_class", "origin", "severity",
    "scope", "recovery", "when", "investigate", "rank", "widen", "persistent", "lost", "context", "decode", "confirm",
    "vendor_immediate", "vendor_investigate", "departs", "tenant", "explain",
)  # fmt: skip


def chosen(
    rules: Iterable[Rule], *, fault_class: str | None = None, severity: str | None = None, family: str | None = None
) -> list[Rule]:
    """The rules that match, worst first within a class; `family` is `xid`, `sxid` or a kind."""
    found = [
        rule
        for rule in rules
        if fault_class in (None, rule.fault_class)
        and severity in (None, rule.severity)
        and (
            family is None
            or family in (rule.kind, "xid" if rule.xid is not None else "sxid" if rule.sxid is not None else None)
        )
    ]
    return sorted(
        found, key=lambda rule: (rule.fault_class, -SEVERITIES.index(rule.severity), rule.xid or rule.sxid or 0, rule.id)
    )


def code_of(rule: Rule) -> str:
    """`Xid 79`, `SXid 20034`, `D state`, `NVRM gpu_lost`; a variant is marked with its condition's value."""
    if rule.xid is not None or rule.sxid is not None:
        name = f"Xid {rule.xid}" if rule.xid is not None else f"SXid {rule.sxid}"
    else:
        name = KIND_NAMES.get(rule.kind or "", rule.kind or rule.id)
        name += f" {rule.what}" if rule.what else ""
    return name


def render_list(rules: Iterable[Rule], width: int) -> str:
    """One rule a line: id, class, origin, severity, recovery, title."""
    table = [("ID", "CLASS", "ORIGIN", "SEVERITY", "RECOVERY", "WHAT IT IS")]
    table += [(one.id, one.fault_class, one.origin, one.severity, one.recovery, one.title) for one in rules]
    return "\n".join(visible(line) for line in columns(table, width)) + "\n"


def render_matrix_text(rules: Iterable[Rule], table: RuleTable, width: int) -> str:
    """The decision matrix as three tables one above the other: memory, compute, other."""
    groups: dict[str, list[tuple[str, ...]]] = {name: [] for name in _HEADS}
    for rule in _matrix_rules(rules):
        groups[_column(rule)].append(
            (code_of(rule), rule.severity, rule.title, first_command(rule, table) or first_words(rule, table))
        )
    blocks = []
    for name, rows in groups.items():
        if rows:
            head = _HEADS[name] if name != "other" else "Other (interconnect, platform, software, unknown)"
            body = columns([("CODE", "SEVERITY", "WHAT IS SEEN", "FIRST COMMAND"), *rows], width)
            blocks.append("\n".join([head, "-" * len(head), *map(visible, body)]))
    return "\n\n".join(blocks) + "\n"


def render_matrix_markdown(rules: Iterable[Rule], table: RuleTable) -> str:
    """The decision matrix as one Markdown table: what is seen stands in the column of its class."""
    lines = ["| Code | " + " | ".join(_HEADS.values()) + " | First command |", "|---|" + "---|" * (len(_HEADS) + 1)]
    for rule in _matrix_rules(rules):
        cells = [_cell(rule.title) if _column(rule) == name else "" for name in _HEADS]
        lines.append(f"| {_cell(code_of(rule))} | " + " | ".join(cells) + f" | {_first_cell(rule, table)} |")
    return "\n".join(lines) + "\n"


def first_command(rule: Rule, table: RuleTable) -> str | None:
    """What to type first: of the recovery, else of an investigation; None without a command.

    To restart an application teaches nothing about the fault, so there the investigation goes before.
    """
    rungs = [rung for rung in (rule.recovery, *rule.investigate) if rung not in ("none", "restart_app")]
    return next((command for rung in rungs if (command := key_command(table, rung)) is not None), None)


def first_words(rule: Rule, table: RuleTable) -> str:
    """The same in words, for a rule that asks for nothing that could be typed."""
    return "nothing to do" if rule.recovery == "none" else say(table, rule.recovery)


def render_rule(rule: Rule) -> str:
    """The rule as TOML, keys in the order of the style guide, defaults left out, with the file it came from."""
    lines = [f"# from {visible(rule.file) or 'an unnamed file'}", "[[rule]]"]
    for name in _TOML_ORDER:
        value = getattr(rule, name)
        if value != _DEFAULTS[name]:
            lines.append(f"{_TOML_NAMES.get(name, name)} = {_toml(value, table=name == 'where')}")
    sources = "".join(f"    {{ url = {_toml(source.url)}, checked = {_toml(source.checked)} }},\n" for source in rule.sources)
    lines.append(f"sources = [\n{sources}]")
    examples = "".join(f"    {_toml(example)},\n" for example in rule.examples)
    lines.append(f"examples = [\n{examples}]")
    return "\n".join(lines) + "\n"


def _matrix_rules(rules: Iterable[Rule]) -> Iterator[Rule]:
    """Memory first, then compute, then the rest, as sorted within."""
    ordered = list(rules)
    for name in _HEADS:
        yield from (rule for rule in ordered if _column(rule) == name)


def _column(rule: Rule) -> str:
    return rule.fault_class if rule.fault_class in _HEADS else "other"


def _cell(text: str) -> str:
    return visible(text).replace("|", "\\|").replace("<", "&lt;")


def _first_cell(rule: Rule, table: RuleTable) -> str:
    command = first_command(rule, table)
    return _cell(first_words(rule, table)) if command is None else f"`{visible(command).replace('|', chr(92) + '|')}`"


def _toml(value: object, *, table: bool = False) -> str:
    if table and isinstance(value, tuple):
        return "{ " + ", ".join(f"{name} = {_toml(wanted[0] if len(wanted) == 1 else wanted)}" for name, wanted in value) + " }"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return _toml_text(str(value))


def _toml_text(text: str) -> str:
    r"""A literal string where TOML allows one (a backslash stays a backslash), else a basic one with escapes."""
    if "\n" in text and "'''" not in text and visible(text.replace("\n", "")) == text.replace("\n", ""):
        return f"'''\n{text}'''"
    if "'" not in text and visible(text) == text:
        return f"'{text}'" if "\\" in text or '"' in text else f'"{text}"'
    escaped = "".join(_escaped(character) for character in text)
    return f'"{escaped}"'


def _escaped(character: str) -> str:
    if character in '\\"':
        return "\\" + character
    if character == "\n":
        return "\\n"
    return (
        character
        if visible(character) == character
        else f"\\u{ord(character):04x}"
        if ord(character) < 0x10000
        else f"\\U{ord(character):08x}"
    )
