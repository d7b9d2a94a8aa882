"""Which GPUs a node should have, and how each stands: the bus, the driver and NVML beside what was known before. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from xidwatch.core.answered import OTHER_UNTIL
from xidwatch.core.event import Context, Event, NvrmDetail
from xidwatch.core.gpu import GpuAnswer, GpuState, NotFound, Place, Refused, SpareRows, Utilization, last_good
from xidwatch.core.gpuword import gpu_of
from xidwatch.core.node import Gpu
from xidwatch.core.pci import PciAddress
from xidwatch.core.record import Record

KIND = "gpu_identity"
_BY = ("by", "xidwatch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card that was in a slot when it was last seen there; "" for what nobody told."""

    gpu_uuid: str = ""
    serial: str = ""
    name: str = ""
    place: str = ""

    def with_what_is_known(self, known: Card) -> Card:
        """The same card with what only an earlier answer told of it, if it is the same."""
        if self.gpu_uuid and self.gpu_uuid == known.gpu_uuid:
            told = {name: getattr(self, name) or getattr(known, name) for name in ("serial", "name", "place")}
            return replace(self, **told)
        return self

    def __str__(self) -> str:
        """For a person who must find it: `NVIDIA H100 80GB HBM3, serial 1652923000103, GPU-…, chassis 1820, slot 9, tray 4`."""
        serial = f"serial {self.serial}" if self.serial else ""
        return ", ".join(filter(None, (self.name, serial, self.gpu_uuid, self.place)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """How one slot stands.

    Attributes:
        on_bus: The PCI bus shows an NVIDIA GPU there.
        driver: Kernel driver bound to it; None when none is.
        answer: What NVML says; None when it was not asked about it.
        dead: Its config space reads all ones; None when that was not looked at.
        card: What was last known to be there; None while nobody told.
        expected: The driver had a GPU there when xidwatch last looked, and nobody said that it was taken out.
    """

    pci: PciAddress
    on_bus: bool
    driver: str | None = None
    answer: GpuAnswer | None = None
    dead: bool | None = None
    card: Card | None = None
    expected: bool = False

    @property
    def missing(self) -> bool:
        """Expected and not there. One that another driver holds (vfio-pci) was given away, not lost."""
        if not self.expected:
            return False
        return not self.on_bus or (self.driver == "nvidia" and isinstance(self.answer, NotFound))


def card_of(answer: GpuAnswer | None) -> Card | None:
    """Which card an answer is of; None while nothing is known."""
    state = last_good(answer)
    if state is None:
        return None
    who, place = state.identity, state.identity.place
    where = ""
    if isinstance(place, Place):
        chassis = f"chassis {place.chassis_serial}, " if place.chassis_serial else ""
        where = f"{chassis}slot {place.slot}, tray {place.tray}, module {place.module_id}"
    elif isinstance(who.module_id, int):
        where = f"module {who.module_id}"
    return Card(gpu_uuid=_text(who.gpu_uuid), serial=_text(who.serial), name=_text(who.name), place=where)


def noted(pci: PciAddress, card: Card, at_us: int, host: str, other_until_us: int | None = None) -> Context:
    """What history keeps of a card, so that it is missed after a restart, too.

    Args:
        other_until_us: When the slot was last heard of before this card answered in it; None when it was not.
    """
    named = {"uuid": card.gpu_uuid, "serial": card.serial, "name": card.name, "place": card.place}
    facts = (_BY, *((key, value) for key, value in named.items() if value))
    if other_until_us is not None:
        facts = (*facts, (OTHER_UNTIL, str(other_until_us)))
    record = Record(text=f"GPU {pci}: {card or 'seen'}", wall_us=at_us, host=host or None)
    return Context(kind=KIND, record=record, pci=pci, facts=facts)


def remembered(context: Context) -> tuple[PciAddress, Card] | None:
    """The card that history kept; None for any other context, such as what the driver printed."""
    if context.kind != KIND or _BY not in context.facts or context.pci is None:
        return None
    facts = dict(context.facts)
    return context.pci, Card(
        gpu_uuid=facts.get("uuid", ""), serial=facts.get("serial", ""), name=facts.get("name", ""), place=facts.get("place", "")
    )


def census(
    bus: Mapping[PciAddress, str | None],
    answers: Mapping[PciAddress, GpuAnswer],
    known: Mapping[PciAddress, Card],
    dead: Mapping[PciAddress, bool | None],
) -> tuple[Slot, ...]:
    """Every slot that holds, should hold, or answers as a GPU; `bus` has the bound driver by slot."""
    return tuple(
        Slot(
            pci=pci,
            on_bus=pci in bus,
            driver=bus.get(pci),
            answer=answers.get(pci),
            dead=dead.get(pci),
            card=known.get(pci) or card_of(answers.get(pci)),
            expected=pci in known,
        )
        for pci in sorted({*bus, *answers, *known})
    )


class Absences:
    """GPUs that have been missing for long enough to be told: a reset or a rescan of the bus takes one away for a moment."""

    def __init__(self) -> None:
        self._since_s: dict[PciAddress, float] = {}
        self._times: Counter[PciAddress] = Counter()
        self._told: set[PciAddress] = set()

    def news(self, slots: Iterable[Slot], now_s: float, patience_s: float) -> list[tuple[Slot, int]]:
        """Those that are to be told now, each once for every time it went away, with how often that was before."""
        missing = {slot.pci: slot for slot in slots if slot.missing and _is_known(slot)}
        for pci in set(self._since_s) - set(missing):
            del self._since_s[pci]
            self._times[pci] += pci in self._told
            self._told.discard(pci)
        found = []
        for pci, slot in missing.items():
            if now_s - self._since_s.setdefault(pci, now_s) >= patience_s and pci not in self._told:
                self._told.add(pci)
                found.append((slot, self._times[pci]))
        return found

    def due_s(self, now_s: float, patience_s: float) -> float | None:
        """Seconds until one is to be told; None while none is missing."""
        waits = [since_s + patience_s - now_s for pci, since_s in self._since_s.items() if pci not in self._told]
        return max(0.0, min(waits)) if waits else None


def _is_known(slot: Slot) -> bool:
    """Gone from the bus, or once known to NVML: in a container NVML shows only the GPUs that were given to it."""
    return not slot.on_bus or bool(slot.card and slot.card.gpu_uuid)


def missed(slot: Slot, record: Record) -> Event:
    """The event of a GPU that is missing; `record` has the time and place. No log tells of one that was absent at boot."""
    card = slot.card or Card()
    text = f"xidwatch: GPU {slot.pci} is missing from its slot: {card or 'which card it is, nobody told'}"
    record = replace(record, text=text)
    return Event(
        kind="nvrm",
        what="gpu_missing",
        uid=(record.stream, record.seq, 0),
        record=record,
        last_record=record,
        pci=slot.pci,
        gpu_uuid=card.gpu_uuid or None,
        detail=NvrmDetail(message=text, serial=card.serial or None),
    )


def too_few(slots: Iterable[Slot], expected: int | None) -> int:
    """How many GPUs are missing without a name: fewer are known than the configuration asks for."""
    return max(0, (expected or 0) - sum(slot.on_bus or slot.expected for slot in slots))


def standing(slot: Slot) -> tuple[object, ...]:
    """What of it a person would call a change; readings that move all the time are none."""
    shown = replace(_told(slot), since_us=None, temperature_celsius=None)
    return slot.pci, slot.on_bus, slot.driver, slot.dead, slot.missing, slot.card, shown


def _told(slot: Slot) -> Gpu:
    pci = str(slot.pci)
    return gpu_of(pci, slot.answer) if slot.answer is not None else Gpu(pci=pci)


def slot_object(slot: Slot) -> dict[str, Any]:
    """One entry of `gpus[]` in state.json; null is what nobody told."""
    told = _told(slot)
    state = slot.answer if isinstance(slot.answer, GpuState) else None
    good = last_good(slot.answer)
    card = slot.card or Card()
    return {
        "pci": str(slot.pci),
        "index": good.identity.index if good else None,
        "on_bus": slot.on_bus,
        "driver": slot.driver,
        "config_space_dead": slot.dead,
        "missing": slot.missing,
        "answer": told.answer,
        "since_us": told.since_us,
        "as_of_us": good.at_us if good else None,
        "gpu_uuid": card.gpu_uuid or None,
        "serial": card.serial or None,
        "name": card.name or None,
        "place": card.place or None,
        "recovery_action": told.recovery_action,
        "row_remap_pending": told.row_remap_pending,
        "row_remap_failed": told.row_remap_failed,
        "pages_pending": told.pages_pending,
        "sram_threshold_exceeded": told.sram_threshold_exceeded,
        "banks_without_spare_rows": _banks(state),
        "ecc_enabled": told.ecc_enabled,
        "ecc_uncorrected": {life: uncorrected(state, life) for life in ("volatile", "aggregate")},
        "mig_enabled": told.mig_enabled,
        "mig_pending": told.mig_pending,
        "persistence_mode": told.persistence_mode,
        "fabric": {"probe": told.fabric, "status": told.fabric_status} if told.fabric else None,
        "clock_reasons": _clock_reasons(state),
        "temperature_celsius": told.temperature_celsius,
        "nvlinks": told.nvlinks,
        "nvlinks_down": list(told.nvlinks_down) if told.nvlinks_down is not None else None,
        "power_watts": _known(state.power_watts) if state else None,
        "utilization": state.utilization.gpu_ratio if state and isinstance(state.utilization, Utilization) else None,
        "pcie_width": told.pcie_width,
        "pcie_max_width": told.pcie_max_width,
    }


def uncorrected(state: GpuState | None, lifetime: str) -> int | None:
    """The count of uncorrected errors; None where the card counts none."""
    found = [
        one.count
        for one in (state.ecc if state else ())
        if (one.lifetime, one.severity, one.location) == (lifetime, "uncorrected", "total")
    ]
    return found[0] if found else None


def banks_text(none_left: int, one_left: int) -> str:
    """`1 memory bank has no spare row left, 2 have one (7 of 8 used)`."""
    parts = [f"{_many(none_left)} no spare row left"] if none_left else []
    parts += [f"{_many(one_left)} one spare row left, 7 of 8 used"] if one_left else []
    return ", ".join(parts)


def _many(banks: int) -> str:
    return "1 memory bank has" if banks == 1 else f"{banks} memory banks have"


def _banks(state: GpuState | None) -> dict[str, int] | None:
    rows = state.spare_rows if state else None
    return {"one_left": rows.low, "none_left": rows.none} if isinstance(rows, SpareRows) else None


def _clock_reasons(state: GpuState | None) -> list[str] | None:
    return list(state.clock_reasons) if state is not None and isinstance(state.clock_reasons, tuple) else None


def _known(reading: object) -> object | None:
    return None if isinstance(reading, Refused) else reading


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
