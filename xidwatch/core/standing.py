"""What the GPU itself says of an incident: each reading that a rule names confirms it, contradicts it, or leaves it open. Pure.

A log line says what the driver saw. Readings from before the fault are compared with those of now, and each answer says
which reading it rests on. A GPU that gives no answer confirms nothing, except that it gives none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from xidwatch.core.answered import PROOF_S, STATE, action_word
from xidwatch.core.census import Slot, banks_text, uncorrected
from xidwatch.core.event import Context
from xidwatch.core.gpu import (
    GpuState,
    Lost,
    NotFound,
    NvLink,
    Refused,
    ResetRequired,
    RowRemap,
    SpareRows,
    Sram,
    UnknownError,
    Unresponsive,
    Utilization,
)  # fmt: skip
from xidwatch.core.incident import Incident
from xidwatch.core.pci import PciAddress
from xidwatch.core.record import Record
from xidwatch.core.verdict import span_text

KIND = "gpu_check"
Answer = Literal["confirmed", "contradicted", "open"]
SETTLED_US = 2_000_000
"""A sample may have been taken while the fault was still going on: a good one from so long after its last line on counts."""
OF_MEMORY = frozenset({"ecc_uncorrected", "row_remap_pending", "row_remap_failure", "sram_threshold"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One GPU of an incident.

    Attributes:
        slot: How it stands now.
        before: What it said last before the incident; None when that is not known.
        since_us: When the incident began, wall clock.
        last_us: When its last line was written; None for the first.
        reset: Counters have fallen since that line which only a reset or a driver load sets back.
        links: Its NVLinks that the log names.
    """

    slot: Slot
    before: GpuState | None
    since_us: int
    last_us: int | None = None
    reset: bool = False
    links: frozenset[int] = frozenset()

    @property
    def now(self) -> GpuState | None:
        """Its state, if it told one since the incident began."""
        answer = self.slot.answer
        return answer if isinstance(answer, GpuState) and answer.at_us >= self.since_us else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One reading set against the log.

    Attributes:
        name: The rule's word for it (`confirm`).
        said: The reading, for a person.
        at_us: Wall clock of the reading.
        action: The driver's recovery action, where this is about it.
        firm: It was heard long enough after the last line: if open, it takes the place of an answer that spoke against the log.
        marks: `dead`: its config space reads all ones; `repaired`: the row is remapped. Of its state as a whole: `working`, and
            `reset` since the last line.
    """

    name: str
    pci: PciAddress
    answer: Answer
    said: str
    at_us: int
    action: str | None = None
    firm: bool = True
    marks: tuple[str, ...] = ()


def checks(names: Iterable[str], seen: Seen, now_us: int) -> Iterator[Check]:
    """Each named reading of one GPU; its state and the driver's own demand always, spare rows beside any reading of memory."""
    asked = dict.fromkeys((*names, "recovery_action", STATE))
    if OF_MEMORY & asked.keys():
        asked["spare_rows"] = None
    for name in asked:
        if (check := _CHECKS.get(name)) is None:
            continue
        answer, said = check(seen)
        if name == "spare_rows" and answer != "confirmed":
            continue  # a warning of what may come; enough spare rows speak against nothing
        state, young = seen.now, _is_young(seen)
        if young and answer == "contradicted":
            answer, said = "open", f"{said}; the last line is too young for that to count"
        at_us = state.at_us if state else now_us
        yield Check(
            name=name,
            pci=seen.slot.pci,
            answer=answer,
            said=f"{said} ({_age(at_us, seen)})",
            at_us=at_us,
            action=_action(state) if name == "recovery_action" and answer != "open" else None,
            firm=not young and (seen.slot.answer is not None or not seen.slot.on_bus),
            marks=_marks(name, seen),
        )


def named_readings(incident: Incident, pci: PciAddress) -> tuple[list[str], frozenset[int]]:
    """What a GPU is asked about: the readings that its own lines' rules name, and its NVLinks that these lines name."""
    findings = [member.finding for member in incident.members if member.finding.event.pci in (pci, None)]
    links = [getattr(finding.event.detail, "link", None) for finding in findings]
    names = [name for finding in findings for name in finding.rule.confirm]
    return names, frozenset(link for link in links if isinstance(link, int) and link >= 0)


def worth_keeping(check: Check, known: Context | None) -> bool:
    """Whether an answer tells more than the one that is known: another one, or that all has been well for one more hour.

    An open answer is worth nothing, but where it interrupts what was well: the state as a whole, and a reading that spoke
    against the log and cannot be had any more.
    """
    facts = dict(known.facts) if known is not None else {}
    changed = (check.answer, check.action) != (facts.get("answer", "open"), facts.get("action"))
    told = {"dead", "reset", "repaired"}.intersection(check.marks) - facts.keys()
    if check.name != STATE:
        withdrawn = check.firm and facts.get("answer") == "contradicted"
        return (changed and (check.answer != "open" or withdrawn)) or bool(told)
    known_us = known.record.wall_us if known is not None else None
    an_hour = known_us is not None and check.answer == "contradicted" and check.at_us - known_us >= PROOF_S * 1e6
    return changed or an_hour or bool(told)


def _is_young(seen: Seen) -> bool:
    """Whether it told its state so soon after the last line that the fault may not have shown yet."""
    state = seen.now
    return state is not None and seen.last_us is not None and state.at_us - seen.last_us < SETTLED_US


def _age(at_us: int, seen: Seen) -> str:
    before = f"; before: {_span(at_us - seen.before.at_us)} earlier" if seen.before is not None else ""
    return f"read {_span(at_us - seen.since_us)} after the first line{before}"


def _span(length_us: int) -> str:
    """`3 s`, `40 minutes`."""
    seconds = max(length_us / 1e6, 0.0)
    return f"{seconds:.0f} s" if seconds < 120 else span_text(seconds)


def _marks(name: str, seen: Seen) -> tuple[str, ...]:
    if name == "row_remap_pending" and seen.now is not None and isinstance(rows := seen.now.row_remap, RowRemap):
        return ("repaired",) * (not rows.pending and _rose(seen, rows))
    if name not in (STATE, "gpu_not_found"):
        return ()
    dead = ("dead",) if _is_dead(seen.slot) else ()
    state = seen.now
    if state is None or name != STATE:
        return dead
    busy = not isinstance(state.utilization, Utilization) or state.utilization.gpu_ratio > 0
    working = isinstance(state.processes, tuple) and bool(state.processes) and busy
    return dead + ("working",) * working + ("reset",) * seen.reset


def was_reset(states: Iterable[GpuState]) -> bool:
    """Whether counters of a card have fallen from one of these states to the next: only a reset or a driver load does that."""
    found = list(states)
    return any(_fell(one, other) for one, other in pairwise(found))


def _fell(one: GpuState, other: GpuState) -> bool:
    if one.identity.gpu_uuid != other.identity.gpu_uuid or not isinstance(one.identity.gpu_uuid, str):
        return False
    return any(name in after and after[name] < count for after in [_volatile(other)] for name, count in _volatile(one).items())


def _volatile(state: GpuState) -> dict[str, int]:
    """Counters that begin anew with a reset."""
    found = {str(one.severity): one.count for one in state.ecc if (one.lifetime, one.location) == ("volatile", "total")}
    return found | ({"replays": state.pcie.replays} if isinstance(state.pcie.replays, int) else {})


def noted(check: Check, host: str, boot_id: str | None) -> Context:
    """What history keeps of an answer, so that it stands beside the incident after a restart, too."""
    facts = [("check", check.name), ("answer", check.answer)]
    if check.action is not None:
        facts.append(("action", check.action))
    facts += [(mark, "yes") for mark in check.marks]
    record = Record(text=f"{check.pci}: {check.said}", wall_us=check.at_us, host=host or None, boot_id=boot_id)
    return Context(kind=KIND, record=record, pci=check.pci, facts=tuple(facts))


def _action(state: GpuState | None) -> str | None:
    return action_word(state.recovery_action) if state is not None and isinstance(state.recovery_action, int) else None


Found = tuple[Answer, str]


def _silent(seen: Seen) -> Found:
    """Nothing can be read."""
    match seen.slot.answer:
        case Unresponsive(why=why):
            return "open", f"NVML has not answered: {why}"
        case Refused() as refused:
            return "open", f"NVML gives no readings: {refused.text}"
        case NotFound():
            return "open", "NVML does not find it, so nothing can be read"
        case GpuState():
            return "open", "NVML has not been asked since"
    return "open", "NVML was not asked"


def _refused(reading: object, what: str) -> Found:
    text = reading.text if isinstance(reading, Refused) else "no answer"
    return "open", f"{what} cannot be read ({text})"


def _not_found(seen: Seen) -> Found:
    slot, answer = seen.slot, seen.slot.answer
    if not slot.on_bus:
        return "confirmed", "it is not on the PCI bus any more"
    if isinstance(answer, ResetRequired):
        return "contradicted", "it is on the bus, and NVML finds it: it says that it must be reset"
    if (gone := _GONE.get(type(answer))) is not None:
        return "confirmed", gone + (", and its PCI config space reads all ones" if slot.dead else "")
    if _is_dead(slot):
        return "confirmed", "NVML has not answered about it, and its PCI config space reads all ones"
    if seen.now is not None:
        return "contradicted", "NVML finds it and it answers: it has come back, or the line was not the driver's"
    return _silent(seen)


def _is_dead(slot: Slot) -> bool:
    """It does not even answer on the bus; one that tells its state does."""
    return bool(slot.dead) and not isinstance(slot.answer, GpuState)


_GONE: dict[type, str] = {
    Lost: "NVML has lost it",
    NotFound: "NVML does not find it",
    UnknownError: "it is on the bus, but NVML fails at every question",
}


def _pending(seen: Seen, state: GpuState) -> Found:
    rows, pages = state.row_remap, state.retired_pages.pending
    if isinstance(rows, RowRemap):
        counts = f"{rows.uncorrectable} remapped for uncorrectable errors{_was(seen, rows)}"
        if rows.pending:
            return "confirmed", f"a row waits for a reset to be remapped ({counts}): drain and reset when convenient"
        if _rose(seen, rows):
            return "confirmed", f"the row is remapped, and none waits any more ({counts})"
        return "contradicted", f"no row waits ({counts}): a reset has taken it over, or none was needed"
    if isinstance(pages, bool):
        return ("confirmed", "a page waits to be retired: drain and reset") if pages else ("contradicted", "no page waits")
    return _refused(rows, "whether a row waits")


def _was(seen: Seen, rows: RowRemap) -> str:
    before = seen.before.row_remap if seen.before else None
    return (
        f", {before.uncorrectable} before"
        if isinstance(before, RowRemap) and before.uncorrectable != rows.uncorrectable
        else ""
    )


def _rose(seen: Seen, rows: RowRemap) -> bool:
    before = seen.before.row_remap if seen.before else None
    return isinstance(before, RowRemap) and rows.uncorrectable > before.uncorrectable


def _failure(seen: Seen, state: GpuState) -> Found:
    if not isinstance(state.row_remap, RowRemap):
        return _refused(state.row_remap, "whether remapping failed")
    if state.row_remap.failed:
        return "confirmed", "the remapping-failure flag is set: evidence for an RMA, once the field diagnostic confirms it"
    return "contradicted", "the remapping-failure flag is not set"


def _sram(seen: Seen, state: GpuState) -> Found:
    if not isinstance(state.sram, Sram):
        return _refused(state.sram, "the SRAM error threshold")
    if state.sram.threshold_exceeded:
        return "confirmed", "the SRAM error threshold is exceeded: field diagnostic, and RMA if it fails"
    return "contradicted", "the SRAM error threshold is not exceeded"


def _ecc(seen: Seen, state: GpuState) -> Found:
    aggregate, volatile = uncorrected(state, "aggregate"), uncorrected(state, "volatile")
    if aggregate is None:
        return "open", "its uncorrected errors cannot be counted (ECC is off, or NVML does not tell)"
    before, earlier = uncorrected(seen.before, "aggregate"), uncorrected(seen.before, "volatile")
    places = _places(state)
    where = f", since the driver was loaded in {places}" if places else ""
    if before is not None and aggregate > before:
        return "confirmed", f"{aggregate} uncorrected errors in its life, {before} before{where}"
    if earlier is not None and volatile is not None and volatile > earlier:
        return "confirmed", f"{volatile} uncorrected errors since the driver was loaded, {earlier} before{where}"
    if before is not None:
        return "contradicted", f"still {aggregate} uncorrected errors in its life, as before: the GPU has not counted this one"
    recent = f"{volatile} of them since the driver was loaded{f' ({places})' if places else ''}" if volatile is not None else ""
    return "open", f"{aggregate} uncorrected errors in its life, {recent or 'not told when'}; how many before is not known"


def _places(state: GpuState) -> str:
    """Where the volatile uncorrected errors are: `dram 1, l2 cache 2`."""
    found = [
        f"{one.location.replace('_', ' ')} {one.count}"
        for one in state.ecc
        if one.count and one.location != "total" and (one.lifetime, one.severity) == ("volatile", "uncorrected")
    ]
    return ", ".join(found)


def _stuck(seen: Seen) -> Found:
    answer = seen.slot.answer
    if isinstance(answer, Unresponsive):
        return "confirmed", f"NVML gets no answer from it: {answer.why}"
    if isinstance(answer, UnknownError | Lost | ResetRequired):
        return "confirmed", f"NVML answers only that it cannot: {answer.text}"
    return ("contradicted", "NVML answers") if seen.now is not None else _silent(seen)


def _demand(seen: Seen) -> Found:
    state = seen.now
    if isinstance(seen.slot.answer, ResetRequired):
        return "confirmed", "NVML says that it must be reset before it can be used"
    if state is None:
        return _silent(seen)
    action = _action(state)
    if action is None:
        return _refused(state.recovery_action, "the driver's own demand")
    if action == "none":
        return "contradicted", "the driver asks nothing of it (recovery action: none)"
    return "confirmed", f"the driver itself asks for it (recovery action: {action.replace('_', ' ')})"


def _spare(seen: Seen) -> Found:
    state = seen.now
    if state is None or not isinstance(state.spare_rows, SpareRows):
        return "open", "how many spare rows are left cannot be read"
    rows = state.spare_rows
    if rows.none or rows.low:
        return "confirmed", f"{banks_text(rows.none, rows.low)}: an error there cannot be repaired when none is left"
    return "contradicted", "no memory bank is near its last spare row"


def _links(seen: Seen, state: GpuState) -> Found:
    if not state.nvlinks:
        return "open", "its NVLinks cannot be read"
    old = {link.link: link for link in seen.before.nvlinks} if seen.before else {}
    # A card may be bridged in part: a link that was down before proves nothing.
    off = [link.link for link in state.nvlinks if not link.active]
    down = [one for one in off if one in seen.links or (one in old and old[one].active)]
    unclear = [one for one in off if one not in old and one not in down]
    worse = [link.link for link in state.nvlinks if link.link in old and _errors(link) > _errors(old[link.link])]
    said = [f"link {_these(down)} down"] * bool(down) + [f"errors rose on link {_these(worse)}"] * bool(worse)
    if said:
        return "confirmed", "; ".join(said)
    if unclear:
        return "open", f"link {_these(unclear)} down; whether before, too, is not known"
    which = f"link {_these(off)} down as before, all others are up" if off else "all links are up"
    if not old and any(_errors(link) for link in state.nvlinks):
        return "open", f"{which}; they count errors, how many before is not known"
    return "contradicted", f"{which}, and the error counters have not moved"


def _errors(link: NvLink) -> int:
    counted = (link.replays, link.recoveries, link.crc_errors, link.recovery_failures, link.symbol_errors)
    return sum(one for one in counted if isinstance(one, int))


def _these(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _pcie(seen: Seen, state: GpuState) -> Found:
    link = state.pcie
    if isinstance(link.width, int) and isinstance(link.max_width, int) and link.width < link.max_width:
        return "confirmed", f"its PCIe link runs {link.width} lanes wide instead of {link.max_width}: seating, riser, slot"
    before = seen.before.pcie.replays if seen.before else None
    if not isinstance(link.replays, int):
        return _refused(link.replays, "its PCIe replays")
    if isinstance(before, int):
        rose = link.replays > before
        return ("confirmed" if rose else "contradicted"), f"{link.replays} PCIe replays, {before} before"
    return "open", f"{link.replays} PCIe replays since the driver was loaded; how many before is not known"


def _state(seen: Seen) -> Found:
    slot, state, answer = seen.slot, seen.now, seen.slot.answer
    if not slot.on_bus or type(answer) in _GONE or _is_dead(slot):
        return _not_found(seen)
    if isinstance(answer, ResetRequired):
        return "confirmed", "it must be reset before it can be used"
    if state is None:
        return _silent(seen)
    if wrong := list(_wrong(state, seen.before)):
        return "confirmed", "; ".join(wrong)
    done = "it has been reset, " if seen.reset else ""
    return "contradicted", f"{done}it answers, the driver asks nothing, and nothing waits for a reset"


def _wrong(state: GpuState, before: GpuState | None) -> Iterator[str]:
    """What speaks against a GPU that answers."""
    action = _action(state)
    if action not in (None, "none"):
        yield f"the driver asks: {action.replace('_', ' ')}"
    if isinstance(state.row_remap, RowRemap) and state.row_remap.failed:
        yield "a row could not be remapped"
    elif isinstance(state.row_remap, RowRemap) and state.row_remap.pending:
        yield "a row waits for a reset to be remapped"
    if state.retired_pages.pending is True:
        yield "a page waits to be retired"
    # Narrower than it could be may be how the machine is built; narrower than before is not.
    width, was = state.pcie.width, before.pcie.width if before is not None else None
    if isinstance(width, int) and isinstance(was, int) and width < was:
        yield f"its PCIe link came back with {width} of {was} lanes"


def _read(reading: Callable[[Seen, GpuState], Found]) -> Callable[[Seen], Found]:
    """A check that needs the GPU's state: open while there is none."""
    return lambda seen: reading(seen, seen.now) if seen.now is not None else _silent(seen)


_CHECKS: dict[str, Callable[[Seen], Found]] = {
    "gpu_not_found": _not_found,
    "row_remap_pending": _read(_pending),
    "row_remap_failure": _read(_failure),
    "sram_threshold": _read(_sram),
    "ecc_uncorrected": _read(_ecc),
    "nvml_stuck": _stuck,
    "recovery_action": _demand,
    "nvlink_errors": _read(_links),
    "pcie_replays": _read(_pcie),
    "spare_rows": _spare,
    STATE: _state,
}
