"""What a case means: its root, its severity, what it asks for, what is ruled out and what is not known.

The root explains; the members decide.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timezone, tzinfo
from typing import TYPE_CHECKING

from xidwatch.core.account import NO_XID_SEEN, Names, clause, is_out_of_memory
from xidwatch.core.answered import RECOVERY_ACTIONS, driver_word, gpus_say
from xidwatch.core.classify import RuleTable
from xidwatch.core.correlate import Case, Fold, Wish
from xidwatch.core.escalate import Escalated, escalated
from xidwatch.core.event import GPU_KINDS, PROGRAM_KINDS, Event, HungTaskDetail, UserspaceDetail, XidDetail
from xidwatch.core.incident import Confidence, Demand, Finding, Incident, Member, Recurrence, Role
from xidwatch.core.ladder import seen_in
from xidwatch.core.machine import UNKNOWN, Machine
from xidwatch.core.nvlink import Nvlink4Row
from xidwatch.core.pci import PciAddress
from xidwatch.core.record import gap_s
from xidwatch.core.rule import (
    LEAST_CAUSE,
    RUNGS,
    SEVERITIES,
    WHENS,
    Combination,
    Done,
    Pattern,
    Reading,
    Rule,
    Scope,
    Severity,
    selected,
)
from xidwatch.core.verdict import DAY_S, clock_text, event_name, sentence, span_text

if TYPE_CHECKING:
    from xidwatch.core.collective import Lag

_SCOPES = ("process", "gpu", "node", "fabric")
_RUN_GAP_S = 10.0
"""Workers of one job fail within moments of each other; further apart they are runs of their own."""


_Place = tuple[str, tuple[object, ...]]
"""A pattern's id, and the values in which what it counts must agree."""


@dataclass(frozen=True, slots=True)
class _Digest:
    """What one case is to the others: the same as long as its events and the rules are, however often it is asked for.

    Attributes:
        root, pointed: As `_root` gives them.
        recurs: What a later case must share to be the same again.
        places: Events that count for patterns, with the place where they do.
    """

    rules: RuleTable
    changes: int
    root: Fold
    pointed: bool
    recurs: tuple[object, ...]
    places: tuple[tuple[_Place, tuple[Event, Event]], ...]


@dataclass(slots=True)
class _Judged:
    """A case with what repetition adds to it; only of one that is `wanted` an incident is made.

    `lag` is which rank the others waited for, where time-outs are the root.
    """

    case: Case
    root: Fold
    pointed: bool
    digest: _Digest
    wanted: bool
    patterns: list[Pattern] = field(default_factory=list)
    recurrence: Recurrence | None = None
    lag: Lag | None = None
    escalated: Escalated | None = None


def judge(
    cases: Sequence[Case],
    rules: RuleTable,
    zone: tzinfo = timezone.utc,
    only: Sequence[Case] | None = None,
    machine_of: Callable[[str], Machine] = lambda host: UNKNOWN,
) -> tuple[Incident, ...]:
    """Every case as an incident, worst and most demanding first, then oldest first; `zone` is for the times in the sentences.

    `only` limits what is judged to some of the cases; the others still count for recurrence and patterns.
    `machine_of` tells what is known of a host.
    """
    wanted = {id(case) for case in (cases if only is None else only)}
    judged = [_judged(case, rules, wanted=id(case) in wanted) for case in sorted(cases, key=lambda case: case.order)]
    _recurrences(judged)
    _apply_patterns(judged, rules)
    _apply_repeats(judged, rules)
    for item in judged:
        if any(pattern.origin == "application" for pattern in item.patterns):
            item.patterns = [pattern for pattern in item.patterns if pattern.origin != "hardware"]
    _escalate(judged, rules)
    neighbours = _by_gpu(judged)
    names = _process_names(judged)
    for item in judged:
        if item.root.finding.event.kind == "nccl_timeout" and item.wanted:
            from xidwatch.core.collective import who_lags

            item.lag = who_lags(item.case.calls, item.case.notes)
    incidents = [_incident(item, neighbours, names, rules, zone) for item in judged if item.wanted]
    incidents = [_placed(incident, machine_of) for incident in incidents]
    incidents = [replace(incident, sentence=sentence(incident, zone)) for incident in incidents]
    order = {"active": 0, "awaiting_verification": 1, "resolved": 2}
    return tuple(
        sorted(incidents, key=lambda one: (-SEVERITIES.index(one.severity), order[one.state], -RUNGS.index(one.recovery.rung)))
    )


def _placed(incident: Incident, machine_of: Callable[[str], Machine]) -> Incident:
    events = [member.finding.event for member in incident.members]
    host = events[incident.root].record.host or next(iter(incident.hosts), "")
    here = [event for event in events if event.record.host in (host, None)]
    return replace(incident, machine=seen_in(here, machine_of(host)))


# the root


def _root(case: Case) -> tuple[Fold, bool]:
    """The member that explains the others, and whether a line itself points to it."""
    folds = [fold for fold in case.folds.values() if not fold.finding.rule.context] or list(case.folds.values())
    # A line that names its cause is explained; that says nothing about the others.
    explained = [fold for fold in folds if any(_targets(fold, folds))]
    candidates = [fold for fold in folds if fold not in explained] or folds
    candidates = [fold for fold in candidates if not fold.finding.event.record.glued] or candidates
    failed = [_clock(fold.finding.event) for fold in candidates if _is_failure(fold)]
    began = [
        fold for fold in candidates if not failed or not _is_applications(fold) or _clock(fold.finding.event) <= min(failed)
    ]
    began = _kernel_or_program(began or candidates)
    order = {id(fold): nth for nth, fold in enumerate(case.folds.values())}
    by_rank = sorted(began, key=lambda fold: (-fold.finding.rule.rank, order[id(fold)]))
    root = by_rank[0]
    return root, any(target is root for fold in explained for target in _targets(fold, folds))


def _kernel_or_program(folds: list[Fold]) -> list[Fold]:
    """The kernel's fault explains a program's error; what the driver tidies up after it has spoken does not."""
    said = [fold for fold in folds if fold.finding.event.kind in PROGRAM_KINDS]
    faults = [fold for fold in folds if fold.finding.event.kind in GPU_KINDS]
    if not said or not faults:
        return folds
    first = min(_clock(fold.finding.event) for fold in said)
    tidied = [f for f in faults if f.finding.rule.rank < LEAST_CAUSE and _clock(f.finding.event) > first]
    left_out = tidied if len(tidied) == len(faults) else said
    return [fold for fold in folds if fold not in left_out]


def _is_failure(fold: Fold) -> bool:
    """The GPU itself failed: what an application does wrong after that began nothing."""
    rule = fold.finding.rule
    return rule.origin != "application" and RUNGS.index(rule.recovery) >= RUNGS.index("reset_gpu") and rule.rank > LEAST_CAUSE


def _is_applications(fold: Fold) -> bool:
    return fold.finding.rule.origin == "application"


def _targets(fold: Fold, folds: list[Fold]) -> Iterator[Fold]:
    detail = fold.finding.event.detail
    if isinstance(detail, XidDetail) and detail.caused_by is not None:
        for other in folds:
            same_gpu = fold.finding.event.pci in (other.finding.event.pci, None)
            if other.finding.event.code == detail.caused_by and same_gpu and other is not fold:
                yield other


# the demands


@dataclass(frozen=True, slots=True)
class _Asked:
    """One member's demand after the company it keeps was looked at."""

    finding: Finding
    rule: Rule
    why: str
    cleared: bool


def _asked(item: _Judged, rules: RuleTable) -> list[_Asked]:
    """What the members ask for; a rumour inside other text asks for nothing beside a whole line."""
    case = item.case
    whole = [wish for wish in case.wishes.values() if not wish.finding.event.record.glued]
    signs = {case.cause.kind} if case.cause is not None else set()
    if item.lag is not None:
        signs.add(f"ranks_{item.lag.verdict}")
    return [_in_company(wish, case, rules, signs) for wish in whole or case.wishes.values()]


def _in_company(wish: Wish, case: Case, rules: RuleTable, signs: set[str]) -> _Asked:
    rule, why = wish.finding.rule, ""
    for combination in rules.combinations:
        if selected(rule, combination.member) and _together(combination, wish.finding.event, case, signs):
            changes = {
                name: value
                for name in ("fault_class", "recovery", "when", "severity", "origin", "investigate")
                if (value := getattr(combination, name)) is not None
            }
            rule, why = replace(rule, **changes), combination.explain
    return _Asked(wish.finding, rule, why or f"{event_name(wish.finding.event)}: {rule.title}", wish.cleared)


def _together(combination: Combination, event: Event, case: Case, signs: set[str]) -> bool:
    if combination.signs and not signs.intersection(combination.signs):
        return False
    others = [
        fold.finding.rule for fold in case.folds.values()
        if None in (fold.finding.event.pci, event.pci) or fold.finding.event.pci == event.pci
    ]  # fmt: skip
    present = not combination.together or any(selected(rule, wanted) for rule in others for wanted in combination.together)
    return present and not any(selected(rule, unwanted) for rule in others for unwanted in combination.without)


def _strength(rule: Rule) -> tuple[int, int]:
    return RUNGS.index(rule.recovery), WHENS.index(rule.when)


# repetition


def _judged(case: Case, rules: RuleTable, *, wanted: bool) -> _Judged:
    digest = case.digest
    if not isinstance(digest, _Digest) or digest.changes != case.changes or digest.rules is not rules:
        root, pointed = _root(case)
        event = root.finding.event
        recurs = (case.host, event.kind, event.code, event.what, event.pci, event.gpu_instance, event.gpu_uuid)
        places = tuple(_places(case, rules))
        case.digest = digest = _Digest(rules, case.changes, root, pointed, recurs, places)
    return _Judged(case, digest.root, digest.pointed, digest, wanted)


def _recurrences(judged: list[_Judged]) -> None:
    seen: dict[tuple[object, ...], list[_Judged]] = {}
    for item in judged:
        before = seen.setdefault(item.digest.recurs, [])
        if before and item.wanted:
            item.recurrence = Recurrence(count=len(before), since=before[0].case.first)
        before.append(item)


def _escalate(judged: list[_Judged], rules: RuleTable) -> None:
    """What was done and did not help; not where the fault follows a program."""
    places = {(item.case.host, item.root.finding.event.pci) for item in judged if item.wanted}
    there = [item for item in judged if (item.case.host, item.root.finding.event.pci) in places]
    again = escalated([(item.case, item.root) for item in there], rules.escalations)
    for item in there:
        if not any(pattern.origin == "application" for pattern in item.patterns):
            item.escalated = again.get(id(item.case))


def _places(case: Case, rules: RuleTable) -> Iterator[tuple[_Place, tuple[Event, Event]]]:
    """Where the events of a case count for a pattern."""
    for fold in case.folds.values():
        for pattern in rules.patterns_about(fold.finding.rule):
            for values in _keys(pattern.same, fold, case):
                key = (case.host, *values, fold.finding.event.gpu_uuid or "" if "pci" in pattern.same else "")
                if None not in key:
                    yield (pattern.id, key), (fold.finding.event, fold.last)


def _apply_patterns(judged: list[_Judged], rules: RuleTable) -> None:
    groups: dict[str, dict[tuple[object, ...], list[tuple[_Judged, Event]]]] = {}
    for item in judged:
        for (pattern_id, key), events in item.digest.places:
            groups.setdefault(pattern_id, {}).setdefault(key, []).extend((item, event) for event in events)
    for pattern in rules.patterns:
        for found in groups.get(pattern.id, {}).values():
            latest, newest = found[-1]
            if not latest.wanted:
                continue
            recent = [pair for pair in found if _recent(pattern, pair[1], newest)]
            if _amount(pattern, recent) >= pattern.count and pattern not in latest.patterns:
                latest.patterns.append(pattern)


def _keys(names: tuple[str, ...], fold: Fold, case: Case) -> Iterator[tuple[object, ...]]:
    """Values of the fields that must agree; one key a place for an Xid 13 that names several."""
    event = fold.finding.event
    if "tpc" in names or "gpc" in names:
        places = event.detail.places if isinstance(event.detail, XidDetail) else ()
        rest = tuple(_field(event, case, name) for name in names if name not in ("gpc", "tpc"))
        yield from dict.fromkeys((*rest, gpc, tpc) for gpc, tpc, _ in places)
    else:
        yield tuple(_field(event, case, name) for name in names)


def _field(event: Event, case: Case, name: str) -> object:
    if name == "host":
        return case.host
    if name == "boot_id":
        return event.record.boot_id
    return getattr(event, name, None) if hasattr(event, name) else getattr(event.detail, name, None)


def _recent(pattern: Pattern, event: Event, newest: Event) -> bool:
    gap = gap_s(event.record, newest.record)
    return not pattern.within_s or gap is None or abs(gap) <= pattern.within_s


def _amount(pattern: Pattern, found: list[tuple[_Judged, Event]]) -> int:
    if pattern.counts == "events":
        folds = {id(fold): fold.count for item, event in found for fold in item.case.folds.values()
                 if event in (fold.finding.event, fold.last)}  # fmt: skip
        return sum(folds.values())
    if not pattern.distinct:
        return len({id(item) for item, _ in found})
    values = [(item, event, tuple(_field(event, item.case, name) for name in pattern.distinct)) for item, event in found]
    if "pid" not in pattern.distinct:
        return len({value for _, _, value in values if None not in value})
    return _runs(values)


def _runs(values: list[tuple[_Judged, Event, tuple[object, ...]]]) -> int:
    """Programs that ran one after the other: another pid (or, where none is printed, another incident), not the same moment."""
    counted: set[object] = set()
    latest: Event | None = None
    for item, event, value in sorted(values, key=lambda entry: _clock(entry[1])):
        who = (value, event.record.boot_id) if None not in value else id(item)
        gap = gap_s(latest.record, event.record) if latest is not None else None
        if who not in counted and (latest is None or gap is None or gap > _RUN_GAP_S):
            counted.add(who)
            latest = event
    return len(counted)


def _apply_repeats(judged: list[_Judged], rules: RuleTable) -> None:
    """Bits of an Xid 74 that count only when they come again on the same link."""
    totals: Counter[tuple[object, ...]] = Counter()
    for item in judged:
        for (pci, link, register, bit), count in item.case.link_bits.items():
            place = (item.case.host, pci, link, register, bit)
            totals[place] += count
            if not item.wanted:
                continue
            rows = [row for row in rules.nvlink4 if row.register == register and bit in row.bits]
            item.patterns += [_repeat(row, totals[place]) for row in rows if 1 < row.repeat <= totals[place]]


def _repeat(row: Nvlink4Row, times: int) -> Pattern:
    return Pattern(
        id=f"nvlink4-register-{row.register}",
        members=("xid-74",),
        count=row.repeat,
        phrase=f"has had this error {times} times on the same NVLink",
        explain=row.meaning.strip(),
        sources=(),
        origin="hardware",
        severity=row.severity,
        investigate=row.investigate,
    )


# the incident


_Confirmed = list[tuple[Reading, set[PciAddress | None]]]
"""Readings, each with the GPUs of which it is confirmed."""
_Neighbours = dict[tuple[str, object], list[Finding]]


def _by_gpu(judged: list[_Judged]) -> _Neighbours:
    """Every finding on the host and GPU of those wanted, and every Xid of their hosts."""
    found: _Neighbours = {(item.case.host, item.root.finding.event.pci): [] for item in judged if item.wanted}
    hosts = {item.case.host for item in judged if item.wanted}
    for item in judged:
        if item.case.host not in hosts:
            continue
        for fold in item.case.folds.values():
            at = (item.case.host, fold.finding.event.pci)
            if fold.finding.event.pci is not None and at in found:
                found[at].append(fold.finding)
            if fold.finding.event.kind == "xid":
                found.setdefault((item.case.host, "xid"), []).append(fold.finding)
    return found


def _process_names(judged: list[_Judged]) -> dict[tuple[str, int], str]:
    """What other lines call a pid, where a program's own report among those wanted may speak of it."""
    names: dict[tuple[str, int], str] = {}
    if not any(isinstance(item.root.finding.event.detail, UserspaceDetail) for item in judged if item.wanted):
        return names
    for item in judged:
        for fold in item.case.folds.values():
            event = fold.finding.event
            if event.pid is not None and event.process is not None:
                names.setdefault((item.case.host, event.pid), event.process)
    return names


def _incident(item: _Judged, neighbours: _Neighbours, names: Names, rules: RuleTable, zone: tzinfo) -> Incident:
    case, root = item.case, item.root
    asked = _asked(item, rules)
    open_demands = [one for one in asked if not one.cleared and not one.rule.context]
    decider = max(open_demands, key=lambda one: _strength(one.rule), default=None)
    root_rule = next((one.rule for one in asked if one.finding.rule.id == root.finding.rule.id), root.finding.rule)
    confidence, confirmed = _confidence(item), _confirmed(item, rules)
    severity = _severity(item, [one.rule for one in asked], confirmed, confidence)
    members = _members(item)
    recovery = Demand(rung="none", when=None, why=_nothing_to_do(case, root_rule))
    if decider is not None and decider.rule.recovery != "none" and confidence == "unconfirmed":
        recovery = Demand(rung="none", when=None, why="the line stands inside other text; anyone could have written it there")
    elif decider is not None and decider.rule.recovery != "none":
        recovery = Demand(rung=decider.rule.recovery, when=decider.rule.when, why=decider.why)
    recovery = _stronger_by_pattern(item, recovery)
    if item.escalated is not None and case.state == "active" and confidence != "unconfirmed":
        recovery = _next_rung(item.escalated, recovery, zone)
    investigate = _investigate(item, root_rule, decider, asked, confirmed)
    if severity == "info" and not item.patterns and item.escalated is None:
        investigate = tuple(demand for demand in investigate if demand.rung != "contact_support")
    return Incident(
        id=incident_id(case),
        title=root_rule.title,
        state=case.state,
        end_reason=case.end_reason,
        end=case.end,
        fault_class=root_rule.fault_class,
        origin=next((pattern.origin for pattern in reversed(item.patterns) if pattern.origin), root_rule.origin),
        severity=severity,
        confidence=confidence,
        scope=_scope(case, root_rule, decider.rule if decider else None),
        gpus=tuple(map(str, case.gpus())),
        hosts=_hosts(case),
        members=members,
        root=next(i for i, member in enumerate(members) if member.role == "root"),
        recovery=recovery,
        investigate=investigate,
        recurrence=item.recurrence,
        patterns=(*_again_phrases(item, zone), *(pattern.phrase for pattern in item.patterns)),
        context=tuple(case.context[:20]),
        rivals=tuple(case.rivals),
        lag=item.lag,
        ranks=frozenset(call.rank for call in case.calls),
        excluded=tuple(_excluded(item, neighbours)),
        unknowns=tuple(_unknowns(item, recovery, confidence, rules)),
        checks=tuple(check for _, check in sorted(case.checks.items(), key=lambda pair: pair[1].record.wall_us or 0)),
        driver_word=driver_word(_driver_actions(case), recovery.rung),
        cause=case.cause,
        figures=_figures(item, names),
    )


def _hosts(case: Case) -> tuple[str, ...]:
    """The nodes that it hit; where one of them is at fault, that one first."""
    first = case.cause.record.host if case.cause is not None else None
    return tuple(host for host in dict.fromkeys((first, case.host, *case.hosts)) if host)


def _driver_actions(case: Case) -> dict[PciAddress, str]:
    """What the driver asks of each GPU, by its latest word: Xid 154 in the log, NVML."""
    found: dict[PciAddress, tuple[int, str]] = {}
    for pci, finding in case.actions.items():
        value = finding.event.detail.recovery_action if isinstance(finding.event.detail, XidDetail) else None
        if pci is not None and value is not None and value < len(RECOVERY_ACTIONS):
            found[pci] = (finding.event.record.wall_us or 0, RECOVERY_ACTIONS[value])
    for (pci, _), check in case.checks.items():
        at, action = check.record.wall_us or 0, dict(check.facts).get("action")
        if action is not None and (pci not in found or at >= found[pci][0]):
            found[pci] = at, action
    return {pci: action for pci, (_, action) in found.items()}


def _figures(item: _Judged, names: Names) -> str:
    event = item.root.finding.event
    if item.lag is None:
        return clause(event, item.root.last, item.case.host, names)
    from xidwatch.core.collective import call_text

    called = call_text(item.case.calls)
    return "; ".join(part for part in (called, item.lag.text) if part)


def incident_id(case: Case) -> str:
    """Twelve hex digits of host, boot and first event; the same however the root moves later."""
    record = case.first.record
    clock = record.since_boot_us if record.since_boot_us is not None else record.wall_us
    identity = f"{case.host}\0{record.boot_id}\0{clock if clock is not None else record.seq}\0{record.text.rstrip()}"
    return hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _members(item: _Judged) -> tuple[Member, ...]:
    def role(fold: Fold) -> Role:
        if fold is item.root:
            return "root"
        return "context" if fold.finding.rule.context or fold.finding.event.kind == "aer" else "consequence"

    folds = sorted(item.case.folds.values(), key=lambda fold: _clock(fold.finding.event))
    return tuple(
        Member(
            finding=fold.finding,
            count=fold.count,
            lines=fold.lines,
            last=fold.last,
            role=role(fold),
            count_is_minimum=fold.count_is_minimum,
        )
        for fold in folds
    )


def _clock(event: Event) -> tuple[int, int]:
    record = event.record
    return (record.wall_us if record.wall_us is not None else record.since_boot_us or 0, record.seq)


def _confirmed(item: _Judged, rules: RuleTable) -> _Confirmed:
    """What follows from what the GPUs themselves confirm."""
    gpus: dict[str, set[PciAddress | None]] = {}
    for (pci, name), check in item.case.checks.items():
        if dict(check.facts).get("answer") == "confirmed":
            gpus.setdefault(name, set()).add(pci)
    return [(reading, gpus[reading.id]) for reading in rules.readings if reading.id in gpus] if gpus else []


def _of_another(item: _Judged, gpus: set[PciAddress | None]) -> str:
    """`GPU 0000:9d:00.0: ` where what is asked for is not about the card that the sentence names; else ""."""
    if item.root.finding.event.pci in (None, *gpus) or None in gpus:
        return ""
    return f"GPU {', '.join(sorted(map(str, gpus)))}: "


def _severity(item: _Judged, demands: list[Rule], confirmed: _Confirmed, confidence: Confidence) -> Severity:
    words = [rule.severity for rule in demands if not rule.context] or [item.root.finding.rule.severity]
    words += [pattern.severity for pattern in item.patterns if pattern.severity]
    words += [reading.severity for reading, _ in confirmed if reading.severity]
    if item.escalated is not None and item.escalated.escalation.severity is not None:
        words.append(item.escalated.escalation.severity)
    worst = max(words, key=SEVERITIES.index)
    return "warning" if worst == "critical" and confidence == "unconfirmed" else worst


def _confidence(item: _Judged) -> Confidence:
    """Matches inside other text are rumours until a whole line or the GPU agrees; two facts, or a pointer, are sure."""
    folds = list(item.case.folds.values())
    word = gpus_say(item.root.finding.rule, [fold.finding for fold in folds], item.case.checks.values())
    if word == "confirmed":
        return "sure"
    if all(fold.finding.event.record.glued for fold in folds):
        return "unconfirmed"
    facts = {(fold.finding.event.kind, fold.finding.event.code, fold.finding.event.what) for fold in folds}
    return "sure" if (item.pointed or len(facts) > 1) and word != "contradicted" else "likely"


def _scope(case: Case, root: Rule, decider: Rule | None) -> Scope:
    scopes: list[Scope] = [rule.scope for rule in (root, decider) if rule is not None]
    if case.widened is not None and root.widen is not None:
        scopes.append(case.widened)
    return max(scopes, key=_SCOPES.index)


def _investigate(
    item: _Judged, root: Rule, decider: _Asked | None, members: list[_Asked], confirmed: _Confirmed
) -> tuple[Demand, ...]:
    demands: dict[str, str] = {}
    for reading, gpus in confirmed:
        of = _of_another(item, gpus)
        demands.update(dict.fromkeys(reading.investigate, f"{of}{reading.explain}"))
    if item.escalated is not None:
        demands.update(dict.fromkeys(item.escalated.escalation.investigate, item.escalated.escalation.explain))
    for pattern in item.patterns:
        demands.update(dict.fromkeys(pattern.investigate or (), pattern.explain))
    for rung in root.investigate:
        demands.setdefault(rung, f"{event_name(item.root.finding.event)}: {root.title}")
    if decider is not None and SEVERITIES.index(decider.rule.severity) > SEVERITIES.index(root.severity):
        for rung in decider.rule.investigate:
            demands.setdefault(rung, decider.why)
    for one in members:
        if one.rule.persistent:
            of = _of_another(item, {one.finding.event.pci})
            for rung in one.rule.investigate:
                why = demands.setdefault(rung, f"{of}{one.why}")
                if of and of not in why:
                    demands[rung] = f"{why.rstrip('.')}; {of}{one.why}"
    return tuple(Demand(rung=rung, why=why) for rung, why in demands.items())


def _stronger_by_pattern(item: _Judged, recovery: Demand) -> Demand:
    for pattern in item.patterns:
        if pattern.recovery and item.case.state == "active" and RUNGS.index(pattern.recovery) > RUNGS.index(recovery.rung):
            recovery = Demand(rung=pattern.recovery, when=pattern.when or "now", why=pattern.explain)
    return recovery


_WORDS_DONE: dict[Done, str] = {
    "restart_app": "the application was restarted", "reload_driver": "the driver was loaded anew",
    "reset_gpu": "the GPU was reset", "reboot_node": "the node was booted",
}  # fmt: skip


def _next_rung(again: Escalated, recovery: Demand, zone: tzinfo) -> Demand:
    """The rung after the one that did not help."""
    escalation = again.escalation
    if escalation.recovery is None or RUNGS.index(escalation.recovery) <= RUNGS.index(recovery.rung):
        return replace(recovery, why=f"{_in_vain(again, zone)}: {escalation.explain}") if recovery.rung != "none" else recovery
    when = escalation.when or recovery.when or "now"
    return Demand(rung=escalation.recovery, when=when, why=f"{_in_vain(again, zone)}: {escalation.explain}")


def _in_vain(again: Escalated, zone: tzinfo) -> str:
    """`the GPU was reset at 02:13 and failed again the same way 40 minutes later`."""
    at, later = _moments(again, zone)
    if again.escalation.after == "restart_app":
        return f"it failed the same way{at} in an earlier run"
    subject = "" if again.escalation.after == "reset_gpu" else "it "
    return f"{_WORDS_DONE[again.escalation.after]}{at} and {subject}failed again the same way {later or 'afterwards'}"


def _again_phrases(item: _Judged, zone: tzinfo) -> Iterator[str]:
    if (again := item.escalated) is None:
        return
    at, later = _moments(again, zone)
    if again.escalation.after == "restart_app":
        yield f"failed the same way{at} in an earlier run"
        return
    span = later.removesuffix("later")
    yield f"failed again the same way {span}after {_WORDS_DONE[again.escalation.after]}{at}"


def _moments(again: Escalated, zone: tzinfo) -> tuple[str, str]:
    """` at 02:13` and `40 minutes later`; "" for what no clock tells."""
    at = clock_text(again.at, zone, dated=(again.after_s or 0) >= DAY_S)
    return f" at {at}" if at else "", f"{span_text(again.after_s)} later" if again.after_s is not None else ""


def _nothing_to_do(case: Case, root: Rule) -> str:
    reasons = {
        "boot": "the machine was booted since",
        "driver_reload": "the driver was loaded anew since",
        "recovered_154": "the driver itself says that the GPU has recovered",
        "gpu_replaced": "another card sits in the slot now",
        "gpu_recovered": "the GPU itself says that it is well again",
        "reset_seen": "the GPU was reset since",
        "proven": "the GPU has been well since, and has worked",
        "released": "no task is stuck any more",
    }
    return reasons.get(case.end_reason or "", root.departs or root.title)


# what is ruled out, what is not known


def _excluded(item: _Judged, neighbours: _Neighbours) -> Iterator[str]:
    case, root = item.case, item.root
    event, rule = root.finding.event, root.finding.rule
    on_gpu = neighbours.get((case.host, event.pci), [])
    if is_out_of_memory(rule) and not neighbours.get((case.host, "xid")):
        yield NO_XID_SEEN
    if event.kind == "xid" and rule.origin == "application":
        if not any(f.rule.fault_class == "memory" and f.rule.origin == "hardware" for f in on_gpu):
            yield "faulty GPU memory: no ECC, row-remap or containment event of this GPU in this log"
        if not any(f.rule.lost for f in on_gpu):
            yield "a lost GPU: it never fell off the bus in this log"
    elif event.kind in ("xid", "nvrm", "sxid") and rule.origin in ("hardware", "firmware"):
        before = [f for f in on_gpu if f.rule.origin == "application" and (gap_s(f.event.record, event.record) or -1) > 0]
        if not before:
            yield "the application: no fault of its own (Xid 13, 31, 32 …) stands before it on this GPU"
    for (host, interface), down_s in case.flaps.items():
        named = " ".join(part for part in ("the network link", interface, f"of {host}" if host else "") if part)
        yield f"{named}: it was up again after {down_s:.1f} s, which NCCL outlasts"
    if isinstance(event.detail, HungTaskDetail) and event.detail.gpu_related is False:
        yield f"the GPU: {event.detail.why or 'no frame of a GPU driver in the stack'}"
    if isinstance(event.detail, HungTaskDetail) and event.detail.gpu_related and event.detail.stack:
        yield "storage and network: the innermost frames belong to the GPU driver"


_CONFIRM = {
    "gpu_not_found": "whether NVML still finds the GPU: `nvidia-smi -L`",
    "row_remap_pending": "whether a row waits to be remapped: `nvidia-smi -q -d ROW_REMAPPER`",
    "row_remap_failure": "whether the remap failed (then RMA evidence): `nvidia-smi -q -d ROW_REMAPPER`",
    "sram_threshold": "whether the SRAM threshold is exceeded (then field diagnostics): `nvidia-smi -q -d ECC`",
    "ecc_uncorrected": "whether the uncorrected count rose, and where: `nvidia-smi -q -d ECC`",
    "nvml_stuck": "whether NVML still answers: `timeout 10 nvidia-smi -L`",
    "recovery_action": "what the driver itself asks for: `nvidia-smi -q | grep -i 'recovery action'`",
    "nvlink_errors": "whether the link's error counters still rise: `nvidia-smi nvlink -e`",
    "pcie_replays": "whether PCIe replays still rise: `nvidia-smi -q | grep -i replay`",
}


def _unknowns(item: _Judged, recovery: Demand, confidence: Confidence, rules: RuleTable) -> Iterator[str]:
    case, event = item.case, item.root.finding.event
    settled = {name for (pci, name), check in case.checks.items() if pci == event.pci and dict(check.facts)["answer"] != "open"}
    for name in (one for one in item.root.finding.rule.confirm if one not in settled):
        yield _CONFIRM.get(name, name.replace("_", " "))
    asked = recovery.rung not in ("none", "restart_app") and case.state == "active"
    if asked and (verify := rules.action(recovery.rung).verify):
        command = " ".join(verify[0].argv).replace("<gpu>", str(event.pci or "<gpu>"))
        yield f"whether it is well again afterwards: `{command}`"
    if confidence == "unconfirmed":
        yield "whether it happened at all: look for the same line in the kernel's own log, `journalctl -k --grep Xid`"
    if case.state == "awaiting_verification":
        yield "whether it is well again: nothing in this log proves it; `nvidia-smi -q`, then `dcgmi diag -r 2`"
    for fold in case.folds.values():
        detail = fold.finding.event.detail
        named = detail.caused_by if isinstance(detail, XidDetail) else None
        if named is not None and not any(other.finding.event.code == named for other in case.folds.values()):
            yield f"the Xid {named} that the line names as the cause: it is not in this log"
            break
        if isinstance(detail, HungTaskDetail) and detail.gpu_related is None:
            name = fold.finding.event.process or "the task"
            yield f"what {name} waits for: the stack is cut; `cat /proc/<pid>/stack` as root"
            break
    if event.kind == "xid" and event.pci is None:
        yield "which GPU: the line does not name its address"
    yield from _fleet_unknowns(case, event)
    if case.zone_hint is not None:
        hours, fault = case.zone_hint
        of = f" of {fault.record.host}" if fault.record.host else ""
        way = "earlier" if hours > 0 else "later"
        count = f"{abs(hours)} hour{'s' if abs(hours) != 1 else ''}"
        yield (
            f"which time zone its log is in: the lines name none, and {count} {way} they would stand beside "
            f"{event_name(fault)}{of}: `--tz` says it"
        )
    if case.rivals:
        from xidwatch.core.verdict import rivals_text

        others = rivals_text(case.rivals)
        yield f"whether {others} held the ranks up instead: the last lines of the job's own logs on both nodes"
    if event.record.wall_us is None and event.record.since_boot_us is None:
        yield "when: the log gives no time"


def _fleet_unknowns(case: Case, root: Event) -> Iterator[str]:
    """How far the clocks of several nodes agree, and whether the node at fault had a part in the job."""
    if case.clock_spread_s is None:
        return
    from xidwatch.core.fleet import SKEW_S

    names = sorted({case.host or "the host without a name", *case.hosts})
    nodes = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    apart = f"the same time-out is written {case.clock_spread_s:.0f} s apart" if case.clock_spread_s >= 1 else ""
    seen = apart or f"no log compares them, {SKEW_S:.0f} s are allowed for"
    yield f"how far the clocks of {nodes} differ ({seen}), so their order in time: `chronyc tracking` on each"
    at_fault = case.cause.record.host if case.cause is not None else root.record.host
    timeouts = [fold.finding.event for fold in case.folds.values() if fold.finding.event.kind == "nccl_timeout"]
    began = case.cause is not None or root.kind != "nccl_timeout"
    if began and at_fault and all(event.record.host != at_fault for event in timeouts):
        yield f"whether {at_fault} took part in that job: its list of nodes"
