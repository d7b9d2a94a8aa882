"""The same fault on the same card again, although something had been done about it: the next rung, and why.

The rungs and their order are data (`[[escalation]]`); here is only what counts as done, and as the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xidwatch.core.correlate import Case, Fold
from xidwatch.core.event import Event
from xidwatch.core.ladder import DONE_BY
from xidwatch.core.record import Record, gap_s
from xidwatch.core.rule import DONE, RUNGS, Done, Escalation, Rule, selected

_KINDS = ("xid", "nvrm")
_MOST_EARLIER = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalated:
    """What had been done in vain.

    Attributes:
        escalation: What follows from it.
        at: When it was done; for a restarted application when the fault before was last seen.
        after_s: Seconds from then to the fault; None when no clock spans both.
    """

    escalation: Escalation
    at: Record
    after_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    done: Done
    at: Record
    after_s: float | None
    before: Event


def escalated(faults: Sequence[tuple[Case, Fold]], escalations: Sequence[Escalation]) -> dict[int, Escalated]:
    """By id() of the case: those of the faults, cases with their roots in order, that came back after something was done."""
    earlier: dict[tuple[object, ...], list[tuple[Case, Fold]]] = {}
    found: dict[int, Escalated] = {}
    for case, root in faults:
        event, rule = root.finding.event, root.finding.rule
        if event.kind not in _KINDS or event.pci is None or event.record.glued or _is_of_no_account(rule):
            continue
        link = getattr(event.detail, "link", None)
        before = earlier.setdefault((case.host, event.kind, event.code, event.what, event.pci, event.gpu_instance, link), [])
        tried = sorted(_tried(case, root, before[-_MOST_EARLIER:]), key=lambda one: DONE.index(one.done), reverse=True)
        answer = next((one for one in _answers(tried, escalations, case, root)), None)
        if answer is not None:
            found[id(case)] = answer
        before.append((case, root))
    return found


def climbs(rule: Rule, escalation: Escalation) -> bool:
    """Whether a rule's fault may take this step when it comes again."""
    return not _is_of_no_account(rule) and _steps(escalation, rule, rule.recovery, [rule])


def _steps(escalation: Escalation, root: Rule, rung: str, members: Sequence[Rule]) -> bool:
    """Whether it is about a fault with this root that asks for this rung, in the company of these."""
    if root.origin not in escalation.origins or rung not in escalation.asked:
        return False
    if any(selected(rule, name) for rule in members for name in escalation.without):
        return False
    return not escalation.members or any(selected(root, name) for name in escalation.members)


def _is_of_no_account(rule: Rule) -> bool:
    """An application's own fault, one that is only recorded, and what the vendor says to ignore."""
    ignored = (rule.vendor_immediate or "").startswith("IGNORE")
    return rule.origin in ("application", "operator") or rule.severity == "info" or rule.recovery == "none" or ignored


def _tried(case: Case, present: Fold, before: list[tuple[Case, Fold]]) -> Iterator[_Tried]:
    """What was done after each of the faults before and before this one."""
    for earlier, root in before:
        then, now = root.finding.event, present.finding.event
        if None not in (then.gpu_uuid, now.gpu_uuid) and then.gpu_uuid != now.gpu_uuid:
            continue
        if earlier.end_reason == "gpu_replaced":
            continue
        acts: list[tuple[Done, Record]] = []
        if (done := DONE_BY.get(earlier.end_reason)) is not None and earlier.end is not None:
            acts.append((done, earlier.end.record))
        if case.booted is not None and _between(earlier.last.record, case.booted, now.record):
            acts.append(("reboot_node", case.booted))
        if case.reset is not None and _between(earlier.last.record, case.reset, now.record):
            acts.append(("reset_gpu", case.reset))
        if case.loaded is not None and _between(earlier.last.record, case.loaded, now.record):
            acts.append(("reload_driver", case.loaded))
        if not acts and earlier.end_reason == "quiet" and None not in (then.pid, now.pid) and then.pid != now.pid:
            acts.append(("restart_app", earlier.last.last_record))
        yield from (_Tried(done=done, at=at, after_s=gap_s(at, now.record), before=then) for done, at in acts)


def _between(first: Record, act: Record, then: Record) -> bool:
    """Whether it was done after the one and before the other; without a common clock the order of the lines tells."""
    since, until = gap_s(first, act), gap_s(act, then)
    if since is None and first.stream == act.stream:
        since = float(act.seq - first.seq)
    if until is None and act.stream == then.stream:
        until = float(then.seq - act.seq)
    return since is not None and since > 0 and until is not None and until >= 0


def _answers(tried: list[_Tried], escalations: Sequence[Escalation], case: Case, root: Fold) -> Iterator[Escalated]:
    rung = RUNGS[max(RUNGS.index(wish.finding.rule.recovery) for wish in case.wishes.values())] if case.wishes else "none"
    members = [fold.finding.rule for fold in case.folds.values()]
    for one in tried:
        for escalation in escalations:
            fits = (
                escalation.after == one.done
                and _steps(escalation, root.finding.rule, rung, members)
                and (one.after_s is None or one.after_s <= escalation.within_s)
                and all(_differs(name, one.before, root.finding.event) for name in escalation.distinct)
            )
            if fits:
                yield Escalated(escalation=escalation, at=one.at, after_s=one.after_s)


def _differs(name: str, one: Event, other: Event) -> bool:
    values = getattr(one, name), getattr(other, name)
    return None not in values and values[0] != values[1]
