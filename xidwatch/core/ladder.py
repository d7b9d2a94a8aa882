"""Which of a rung's commands and preconditions are right where it is to be done.

A condition has three answers: it holds, it does not, or nobody knows. What is not known rules nothing out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeVar

from xidwatch.core.account import is_out_of_memory
from xidwatch.core.event import Event
from xidwatch.core.incident import EndReason, Incident
from xidwatch.core.machine import UNKNOWN, Machine, merged
from xidwatch.core.rule import Action, Applies, Command, Done, Precondition, Rule

if TYPE_CHECKING:
    from xidwatch.core.classify import RuleTable

_NVLINK5 = range(144, 151)
"""Only Blackwell and what came after it print these."""
DONE_BY: Mapping[EndReason | None, Done] = {
    "boot": "reboot_node", "driver_reload": "reload_driver", "recovered_154": "reset_gpu", "reset_seen": "reset_gpu",
    "gpu_recovered": "reset_gpu", "gpu_replaced": "reboot_node",
}  # fmt: skip
"""What had been done when an incident ended so."""

_Conditioned = TypeVar("_Conditioned", Command, Precondition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a rung is to be done: the machine, and what the incident adds. None: not known, or not asked."""

    machine: Machine = UNKNOWN
    lost: bool | None = None
    xids: frozenset[int] | None = None
    shortage: bool | None = None


ANYWHERE = Place()


def place_of(incident: Incident) -> Place:
    """Where an incident's rungs are to be done."""
    events = [member.finding.event for member in incident.members]
    return Place(
        machine=incident.machine,
        lost=any(member.finding.rule.lost for member in incident.members),
        xids=frozenset(event.code for event in events if event.kind == "xid" and event.code is not None),
        shortage=is_shortage(incident.members[incident.root].finding.rule),
    )


def is_shortage(rule: Rule) -> bool:
    """Whether a program did not get the memory that it asked for: nothing is broken that a debugger could find."""
    return rule.kind == "vllm_preemption" or is_out_of_memory(rule)


def seen_in(events: Iterable[Event], machine: Machine) -> Machine:
    """The machine with what its events tell by themselves: instances, switches, whose jobs ran there."""
    for event in events:
        seen = Machine(
            mig=True if event.gpu_instance is not None else None,
            nvswitch=True if event.kind == "sxid" else None,
            generation="blackwell" if event.kind == "xid" and event.code in _NVLINK5 else None,
        )
        if seen != UNKNOWN:
            machine = merged(machine, seen)
        if machine.scheduler is None and event.job is not None:
            slurm, pod = event.job.slurm_job is not None, event.job.pod is not None
            if slurm != pod:
                machine = replace(machine, scheduler="slurm" if slurm else "kubernetes")
    return machine


def holds(applies: Applies, place: Place) -> bool | None:
    """Whether a condition holds there; None when something that it asks for is not known and nothing speaks against it."""
    answers = [_answer(wanted, _known(field.name, place)) for field in fields(applies)
               if (wanted := getattr(applies, field.name)) not in ((), None)]  # fmt: skip
    return False if False in answers else None if None in answers else True


def _known(name: str, place: Place) -> object:
    return getattr(place if hasattr(place, name) else place.machine, name)


def _answer(wanted: object, known: object) -> bool | None:
    if known is None:
        return None
    if isinstance(wanted, tuple):
        return any(one in wanted for one in known) if isinstance(known, frozenset) else known in wanted
    return known == wanted


def action_at(rules: RuleTable, rung: str, place: Place = ANYWHERE) -> Action:
    """How a rung is done there: the description for this kind of machine, without what does not apply.

    Raises:
        KeyError: no file describes the rung.
    """
    variants = rules.action_variants(rung)
    action = next((one for one in variants if one.only is not None and holds(one.only, place)), rules.action(rung))
    return replace(
        action,
        commands=_fitting(action.commands, place),
        preconditions=_fitting(action.preconditions, place),
        verify=_fitting(action.verify, place),
    )


def _fitting(items: tuple[_Conditioned, ...], place: Place) -> tuple[_Conditioned, ...]:
    return tuple(item for item in items if _fits(item.applies, item.only, place))


def _fits(applies: Applies | None, only: Applies | None, place: Place) -> bool:
    ruled_out = applies is not None and holds(applies, place) is False
    return not ruled_out and (only is None or holds(only, place) is True)


def rung_to_verify(incident: Incident) -> str | None:
    """The rung after which it is to be shown that all is well again; None where nothing was asked for.

    For an incident that is over but not proven so: what seems to have been done.
    """
    if incident.recovery.rung != "none":
        return incident.recovery.rung
    if incident.state != "awaiting_verification":
        return None
    return DONE_BY.get(incident.end_reason, "reset_gpu")
