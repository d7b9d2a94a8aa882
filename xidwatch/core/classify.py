"""Which rule judges an event: the table of rules, read entry by entry as it is asked, and the choice among them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

from xidwatch.core.event import Event, SxidDetail, XidDetail
from xidwatch.core.incident import Finding
from xidwatch.core.nvlink import Nvlink4Match, Nvlink4Row, Nvlink5Match, Nvlink5Row, decode_nvlink4, decode_nvlink5
from xidwatch.core.pattern import lazy
from xidwatch.core.rule import (
    RUNGS,
    SEVERITIES,
    Action,
    Combination,
    Escalation,
    Guidance,
    Origin,
    Pattern,
    Reading,
    Rule,
    Scalar,
    Severity,
    selected,
)

TableName = Literal["rule", "combination", "pattern", "escalation", "reading", "guidance", "nvlink5", "nvlink4", "action"]
Knowledge = Rule | Combination | Pattern | Escalation | Reading | Guidance | Nvlink5Row | Nvlink4Row | Action
Key = tuple[str, str | int]
"""What a rule is about: ("xid", 79), ("sxid", 20034) or ("kind", "nvrm")."""

_T = TypeVar("_T")
_HW_OR_SW: dict[str, Origin] = {"HW": "hardware", "FW": "firmware"}
"""The vendor's SW may be the driver, the application or a person, so it is no origin of its own."""
_SXID_WORDS = {
    "fatal": "SXID_FATAL",
    "1": "SXID_FATAL",
    "nonfatal": "SXID_NONFATAL",
    "0": "SXID_NONFATAL",
    "correctable": "SXID_CORRECTABLE",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One table of a rule file, not yet read.

    Attributes:
        id: Identity for overriding; empty for rows that have none.
        key: What a rule is about; None for the other tables.
        file: Name of the file it stands in.
        load: Gives the value; called once at most.
    """

    table: TableName
    id: str
    key: Key | None
    file: str
    load: Callable[[], Knowledge]


class RuleTable:
    """All rules in force. Entries later in the order override earlier ones of the same table and id."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        """Index the entries without reading them."""
        in_force: dict[tuple[str, str], Entry] = {}
        self._rows: dict[str, list[Entry]] = {}
        for entry in entries:
            if entry.id:
                in_force.pop((entry.table, entry.id), None)
                in_force[entry.table, entry.id] = entry
            else:
                self._rows.setdefault(entry.table, []).insert(0, entry)
        self._entries = in_force
        self._about: dict[Key, list[str]] = {}
        for entry in in_force.values():
            if entry.key is not None:
                self._about.setdefault(entry.key, []).append(entry.id)
        self._loaded: dict[int, Knowledge] = {}
        self._wordings: dict[str, re.Pattern[str]] = {}
        self._patterns_about: dict[str, tuple[Pattern, ...]] = {}
        self._named_whats: dict[str, set[str | None]] = {}
        self._ready: dict[tuple[str, int | None, str | None], tuple[Rule, ...]] = {}

    def rule(self, rule_id: str) -> Rule:
        """The rule in force under this id. Raises KeyError when there is none."""
        return self._value(self._entries["rule", rule_id], Rule)

    def rule_ids(self) -> tuple[str, ...]:
        """Every rule's id, in the order of the files; reads none of them."""
        return tuple(entry.id for (table, _), entry in self._entries.items() if table == "rule")

    def rules(self) -> Iterator[Rule]:
        """Every rule in force; reads all of them."""
        return self._all("rule", Rule)

    def rules_about(self, family: str, value: str | int) -> tuple[Rule, ...]:
        """Rules about one number or kind: ("xid", 94), ("sxid", 20034), ("kind", "hung_task"); empty when none."""
        return tuple(self.rule(rule_id) for rule_id in self._about.get((family, value), ()))

    @cached_property
    def combinations(self) -> tuple[Combination, ...]:
        """Rules about the company an event keeps."""
        return tuple(self._all("combination", Combination))

    @cached_property
    def patterns(self) -> tuple[Pattern, ...]:
        """Rules about repetition."""
        return tuple(self._all("pattern", Pattern))

    def patterns_about(self, rule: Rule) -> tuple[Pattern, ...]:
        """Those of `patterns` for which events of this rule count, in their order."""
        if (found := self._patterns_about.get(rule.id)) is None:
            found = tuple(one for one in self.patterns if any(selected(rule, wanted) for wanted in one.members))
            self._patterns_about[rule.id] = found
        return found

    @cached_property
    def escalations(self) -> tuple[Escalation, ...]:
        """What is next when what was done did not help."""
        return tuple(self._all("escalation", Escalation))

    @cached_property
    def readings(self) -> tuple[Reading, ...]:
        """What follows when a GPU confirms something."""
        return tuple(self._all("reading", Reading))

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        """Every recovery rung and investigation that has a description."""
        return tuple(self._all("action", Action))

    @cached_property
    def nvlink5(self) -> tuple[Nvlink5Row, ...]:
        """Decode rows of Xid 144 to 150, a site's own first."""
        return tuple(self._value(entry, Nvlink5Row) for entry in self._rows.get("nvlink5", ()))

    @cached_property
    def nvlink4(self) -> tuple[Nvlink4Row, ...]:
        """Decode rows of Xid 74, the shipped ones first, so that a site's own win."""
        return tuple(self._value(entry, Nvlink4Row) for entry in reversed(self._rows.get("nvlink4", ())))

    def guidance(self, class_id: str) -> Guidance | None:
        """A vendor guidance class; None when the files do not describe it."""
        entry = self._entries.get(("guidance", class_id))
        return self._value(entry, Guidance) if entry else None

    def action(self, rung: str) -> Action:
        """How a rung or an investigation is done. Raises KeyError for one that no file describes."""
        return self._value(self._entries["action", rung], Action)

    def action_variants(self, rung: str) -> tuple[Action, ...]:
        """Descriptions that take a rung's place on some machines (`power_cycle-guest`), in the order of the files."""
        ids = (id_ for table, id_ in self._entries if table == "action" and id_.startswith(rung + "-"))
        return tuple(self._value(self._entries["action", id_], Action) for id_ in ids)

    def classify(self, event: Event, *, driver_version: str | None = None) -> Finding:
        """The event with the rule that judges it, refined by what its registers and severity word say.

        `driver_version` (`570.86.15`) settles the bit layout of Xid 144 to 150 where the printed name does not.
        """
        rule = self._choose(event, _major(driver_version))
        detail = event.detail
        if isinstance(detail, XidDetail) and rule.decode == "nvlink5":
            rows = [row for row in self.nvlink5 if row.xid == event.code]
            if five := decode_nvlink5(detail, rows, _major(driver_version)):
                return Finding(event=event, rule=self._by_nvlink5(rule, detail, five), decoded=five.text)
        if isinstance(detail, XidDetail) and rule.decode == "nvlink4" and (four := decode_nvlink4(detail, self.nvlink4)):
            return Finding(event=event, rule=_by_nvlink4(rule, four), decoded=four.text)
        if isinstance(detail, SxidDetail) and detail.severity_word:
            rule = self._by_word(rule, detail.severity_word)
        return Finding(event=event, rule=rule)

    def _choose(self, event: Event, driver_major: int | None) -> Rule:
        fitting = (rule for rule in self._candidates(event) if _of_driver(rule, driver_major) and self._holds(rule, event))
        found = next(fitting, None)
        return found or self.rule(event.kind.replace("_", "-") + "-unknown")

    def _candidates(self, event: Event) -> tuple[Rule, ...]:
        """Rules about the event's number and wording, the most special first, among equals the latest first."""
        place = event.kind, event.code, event.what if event.what in self._named(event.kind) else None
        if (ready := self._ready.get(place)) is None:
            about = list(self.rules_about("kind", event.kind))
            if event.code is not None:
                about += self.rules_about(event.kind, event.code)
            fitting = [rule for rule in about if rule.what in (None, event.what)]
            ready = self._ready[place] = tuple(sorted(reversed(fitting), key=_weight, reverse=True))
        return ready

    def _named(self, kind: str) -> set[str | None]:
        """Wordings of a kind that have a rule of their own; others, which may be any text, are not remembered."""
        if (named := self._named_whats.get(kind)) is None:
            named = self._named_whats[kind] = {rule.what for rule in self.rules_about("kind", kind)}
        return named

    def _holds(self, rule: Rule, event: Event) -> bool:
        if not all(_field_is(event, field, wanted) for field, wanted in rule.where):
            return False
        if rule.match is None:
            return True
        text = _text(event)
        if rule.hint is not None and rule.hint not in text:
            return False
        if (wording := self._wordings.get(rule.match)) is None:
            wording = self._wordings[rule.match] = lazy(rule.match)
        return wording.search(text) is not None

    def _by_nvlink5(self, rule: Rule, detail: XidDetail, match: Nvlink5Match) -> Rule:
        row, immediate = max(
            ((row, self._immediate(row, match)) for row in match.rows), key=lambda pair: _strength(pair[1].recovery)
        )
        look = self.guidance(row.investigate) or Guidance(id=row.investigate, explain="")
        peer = ("check_peer",) if detail.cross_contained else ()
        return replace(
            rule,
            recovery=_first(immediate.recovery, rule.recovery),
            when=_first(immediate.when, rule.when),
            investigate=_union(immediate.investigate, look.investigate, peer),
            severity=_first(_ours(row.severity), immediate.severity, look.severity, rule.severity),
            origin=_first(row.origin, look.origin, immediate.origin, _HW_OR_SW.get(row.hw_or_sw), rule.origin),
            vendor_immediate=immediate.id,
            vendor_investigate=row.investigate,
        )

    def _immediate(self, row: Nvlink5Row, match: Nvlink5Match) -> Guidance:
        name = (match.second_bit and row.immediate_if_second_bit) or row.immediate
        return self.guidance(name) or Guidance(id=name, explain="")

    def _by_word(self, rule: Rule, word: str) -> Rule:
        """The rule of an SXid under the word that the driver printed with it, which wins over every table."""
        said = self.guidance(_SXID_WORDS.get(word.lower().replace("-", ""), ""))
        if said is None or said.severity is None or said.severity == rule.severity:
            return rule
        return replace(
            rule,
            severity=said.severity,
            recovery=_first(said.recovery, rule.recovery),
            when=_first(said.when, rule.when),
            investigate=rule.investigate or said.investigate,
        )

    def _all(self, table: TableName, kind: type[_T]) -> Iterator[_T]:
        return (self._value(entry, kind) for (name, _), entry in self._entries.items() if name == table)

    def _value(self, entry: Entry, kind: type[_T]) -> _T:
        value: Any = self._loaded.get(id(entry))
        if value is None:
            value = self._loaded[id(entry)] = entry.load()
        if not isinstance(value, kind):
            raise TypeError(f"{entry.file}: [[{entry.table}]] {entry.id} gave a {type(value).__name__}")
        return value


def _weight(rule: Rule) -> tuple[int, int, int]:
    """How special a rule is: a number before a kind, a named wording before any, then the count of conditions."""
    numbered = rule.xid is not None or rule.sxid is not None
    return int(numbered), int(rule.what is not None), len(rule.where) + (rule.match is not None) + (rule.drivers is not None)


def _of_driver(rule: Rule, major: int | None) -> bool:
    return rule.drivers is None or (major is not None and rule.drivers[0] <= major <= rule.drivers[1])


def _field_is(event: Event, field: str, wanted: tuple[Scalar, ...]) -> bool:
    """Whether a field of the event or its detail has one of the values; a tuple field: contains one of them."""
    value = getattr(event, field, None)
    if value is None and event.detail is not None:
        value = getattr(event.detail, field, None)
    values = value if isinstance(value, tuple) else (value,)
    return any(have == want and isinstance(have, bool) == isinstance(want, bool) for have in values for want in wanted)


def _text(event: Event) -> str:
    return getattr(event.detail, "message", "") or event.record.text


def _major(driver_version: str | None) -> int | None:
    head = (driver_version or "").split(".")[0]
    return int(head) if head.isdecimal() else None


def _by_nvlink4(rule: Rule, match: Nvlink4Match) -> Rule:
    due = [row for row in match.rows if row.repeat <= 1]
    look = _union(*(row.investigate for row in due), ("contact_support",) if match.unknown_bit else ())
    recoveries = [_first(row.recovery, rule.recovery) for row in match.rows] + [rule.recovery] * match.unknown_bit
    severities = [_first(row.severity, rule.severity) for row in match.rows] + [rule.severity] * match.unknown_bit
    return replace(
        rule,
        recovery=max(recoveries, key=_strength),
        severity=SEVERITIES[max(map(SEVERITIES.index, severities))],
        investigate=look or (rule.investigate if match.unknown_bit else ()),
    )


def _strength(recovery: str | None) -> int:
    return RUNGS.index(recovery) if recovery in RUNGS else -1


def _ours(word: str) -> Severity | None:
    return next((severity for severity in SEVERITIES if severity == word), None)


def _first(*values: _T | None) -> _T:
    return next(value for value in values if value is not None)


def _union(*groups: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for group in groups for item in group))


__all__ = ["Entry", "Key", "Knowledge", "Nvlink4Row", "Nvlink5Row", "RuleTable", "TableName"]
