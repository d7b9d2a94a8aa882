"""What can be wrong with a rule file, as one line for each mistake. The only user of pydantic among the rule modules."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from xidwatch.core.classify import Entry, Knowledge, RuleTable
from xidwatch.core.event import Context, Detail, Event, Kind
from xidwatch.core.machine import HYPERVISORS
from xidwatch.core.nvlink import Nvlink4Row, Nvlink5Row
from xidwatch.core.parse import Parser
from xidwatch.core.record import Record
from xidwatch.core.rule import (
    INVESTIGATIONS,
    RUNGS,
    Action,
    Combination,
    Command,
    Escalation,
    Pattern,
    Precondition,
    Reading,
    Rule,
)

_FIELDS = {field.name for kind in (Event, Record, *get_args(Detail)) for field in fields(kind)}
"""What `where`, `same` and `distinct` may ask about."""


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(next(kind for kind in get_args(Knowledge) if kind.__name__ == name))


def checked_value(kind: type[Knowledge], values: dict[str, Any], file: str) -> tuple[Knowledge | None, list[str]]:
    """Build one value from its TOML table, strictly; None and every mistake in words when it does not fit."""
    if "file" in values:
        return None, ["file: this key is set by xidwatch; remove it"]
    if "file" in (field.name for field in fields(kind)):
        values = values | {"file": file}
    try:
        # By way of JSON, because there arrays become tuples under strict checking too, and dates are text.
        return _adapter(kind.__name__).validate_json(json.dumps(values, default=str)), []
    except ValidationError as error:
        return None, [f"{_place(item['loc'])}: {item['msg']}" for item in error.errors(include_url=False)]


def _place(loc: Sequence[str | int]) -> str:
    return ".".join("class" if part == "fault_class" else str(part) for part in loc)


def cross_mistakes(table: RuleTable, entries: Iterable[Entry]) -> list[str]:
    """What no single field shows: words outside the vocabularies, regexes, duplicate ids, selectors that select nothing."""
    entries = list(entries)
    mistakes = [f"{entry.file}: {text}" for entry in entries for text in _value_mistakes(table, entry.load())]
    folders = Counter((Path(entry.file.split(":")[0]).parent, entry.table, entry.id) for entry in entries if entry.id)
    mistakes += [
        f"{folder}: [[{name}]] {id_} is there {count} times" for (folder, name, id_), count in folders.items() if count > 1
    ]
    return mistakes


def _value_mistakes(table: RuleTable, value: Knowledge) -> Iterator[str]:
    yield from _answers(value)
    if isinstance(value, Rule | Combination | Pattern | Escalation | Reading):
        yield from _dated(value)
    if isinstance(value, Rule):
        yield from _rule(value)
        yield from _unknown(table, "follows", value.follows or ())
    elif isinstance(value, Combination | Pattern | Escalation):
        yield from _selectors(table, value)
    elif isinstance(value, Nvlink5Row):
        classes = (value.immediate, value.immediate_if_second_bit, value.investigate)
        yield from (f"no [[guidance]] {name}" for name in classes if name and table.guidance(name) is None)
    elif isinstance(value, Nvlink4Row):
        if value.register not in {1, 3, 4, 5}:
            yield f"register {value.register}: only 1, 3, 4 and 5 count"
        yield from (f"bits: {bit} is not in a 32-bit word" for bit in value.bits if not 0 <= bit < 32)
    elif isinstance(value, Action):
        yield from _action(value)


def _action(action: Action) -> Iterator[str]:
    rung, dash, _ = action.id.partition("-")
    if rung not in {*RUNGS, *INVESTIGATIONS}:
        yield f"id: {action.id!r} is no rung and no investigation"
    if dash and action.only is None:
        yield f"only: {action.id!r} takes the place of {rung!r}; say where"
    items: tuple[Command | Precondition, ...] = (*action.commands, *action.verify, *action.preconditions)
    conditions = [condition for item in items for condition in (item.applies, item.only)]
    named = {name for condition in (action.only, *conditions) if condition is not None for name in condition.hypervisor}
    yield from (
        f"hypervisor: {name!r} is not known; there are {', '.join(sorted(HYPERVISORS))}" for name in named - HYPERVISORS
    )


def _answers(value: Knowledge) -> Iterator[str]:
    recovery = getattr(value, "recovery", None)
    if recovery is not None and recovery not in RUNGS:
        yield f"recovery: {recovery!r} is no rung; there are {', '.join(RUNGS)}"
    look = value.investigate if not isinstance(value, Action | Nvlink5Row) else ()
    for name in look or ():
        if name not in INVESTIGATIONS:
            yield f"investigate: {name!r} is not known; there are {', '.join(INVESTIGATIONS)}"


def _dated(value: Rule | Combination | Pattern | Escalation | Reading) -> Iterator[str]:
    if not value.sources:
        yield "sources: a rule needs one"
    for source in value.sources:
        try:
            date.fromisoformat(source.checked)
        except ValueError:
            yield f"sources: checked = {source.checked!r} is not a day (YYYY-MM-DD)"


def _rule(rule: Rule) -> Iterator[str]:
    if sum(given is not None for given in (rule.xid, rule.sxid, rule.kind)) != 1:
        yield "say what it is about: one of xid, sxid and kind"
    if rule.kind is not None and rule.kind not in get_args(Kind):
        yield f"kind: {rule.kind!r} is not known; there are {', '.join(get_args(Kind))}"
    if rule.what is not None and rule.kind is None:
        yield "what: goes with kind only"
    if not rule.examples:
        yield "examples: a rule needs one real line"
    if not 0 <= rule.rank <= 100:
        yield f"rank: {rule.rank} is not within 0 to 100"
    yield from (f"where: no event has a field {field!r}" for field, _ in rule.where if field not in _FIELDS)
    try:
        re.compile(rule.match or "")
    except re.error as error:
        yield f"match: {error}"


def _selectors(table: RuleTable, value: Combination | Pattern | Escalation) -> Iterator[str]:
    if isinstance(value, Combination):
        named = {"member": (value.member,), "together": value.together, "without": value.without}
    elif isinstance(value, Escalation):
        named = {"members": value.members, "without": value.without}
        yield from (f"asked: {rung!r} is no rung; there are {', '.join(RUNGS)}" for rung in value.asked if rung not in RUNGS)
    else:
        named = {"members": value.members}
        asked = {"same": value.same, "distinct": value.distinct}
        yield from (
            f"{key}: no event has a field {name!r}" for key, names in asked.items() for name in names if name not in _FIELDS
        )
    for key, selectors in named.items():
        yield from _unknown(table, key, selectors)


def _unknown(table: RuleTable, key: str, selectors: Sequence[str]) -> Iterator[str]:
    ids = table.rule_ids() if selectors else ()
    for selector in selectors:
        if not any(id_ == selector or id_.startswith(selector + "-") for id_ in ids):
            yield f"{key}: {selector!r} selects no rule"


def example_mistakes(table: RuleTable, rule_ids: Iterable[str]) -> list[str]:
    """Rules with an example that does not hit exactly that rule: the example, and what it hits."""
    mistakes = []
    for rule_id in rule_ids:
        rule = table.rule(rule_id)
        for example in rule.examples:
            hits = example_hits(table, example)
            if hits != [rule_id]:
                told = " and ".join(hits) or "no rule at all"
                mistakes.append(f"{rule.file}: [[rule]] {rule_id}: its example hits {told}: {example.strip().splitlines()[0]}")
    return mistakes


def example_hits(table: RuleTable, example: str) -> list[str]:
    """Ids of the rules that the lines of an example hit, each once, in order."""
    parser = Parser()
    events: dict[tuple[int, int, int], Event] = {}
    driver: str | None = None
    for number, line in enumerate(example.strip("\n").splitlines(), start=1):
        for found in parser.feed(Record(text=line.rstrip(), seq=number, line=number, timed=number == 1)):
            if not isinstance(found, Context):
                events[found.uid] = found
            elif found.kind == "driver_load":
                driver = dict(found.facts)["version"]
    return list(dict.fromkeys(table.classify(event, driver_version=driver).rule.id for event in events.values()))


__all__ = ["checked_value", "cross_mistakes", "example_hits", "example_mistakes"]
