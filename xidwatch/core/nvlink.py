"""What the register words of an NVLink Xid say: 144 to 150 (NVLink 5) and 74 (Hopper and before)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from xidwatch.core.event import XidDetail
from xidwatch.core.rule import STRICT, Origin, Severity

Layout = Literal["before_r575", "from_r575"]
R575 = 575
"""First driver branch with the unit in intrInfo's lowest bits."""
_SECOND_BIT: dict[Layout, int] = {"before_r575": 10, "from_r575": 7}
_VALID_REGISTERS = (1, 3, 4, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvlink5Row:
    """One row of the vendor's table for Xid 144 to 150.

    Attributes:
        subcode: Name as printed; old and new names with a slash between, `TLW_RX/TLW_RX_PIPE0`.
        unit_before_r575, unit_from_r575: Unit number in bits 9:5, and in bits 6:0 since driver R575.
        link_down_reason: Bits 25:20; counts only where the rows of one unit differ in it.
        error_status: One bit or one value of the second word; None where it does not count.
        immediate, investigate: Guidance classes, ids of [[guidance]].
        immediate_if_second_bit: Class that takes the place of `immediate` when bit 10 (from R575 bit 7) is set.
        severity: Ours where it is one of ours, else the vendor's word, which decides nothing.
        hw_or_sw: The vendor's column: HW, SW, FW, HW/SW, NA.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    xid: int
    subcode: str
    unit_before_r575: int
    unit_from_r575: int
    immediate: str
    investigate: str
    severity: str
    hw_or_sw: str
    link_down_reason: int | None = None
    error_status: int | None = None
    immediate_if_second_bit: str | None = None
    origin: Origin | None = None
    explain: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvlink4Row:
    """What bits of one register word of an Xid 74 mean.

    Attributes:
        register: 1, 3, 4 or 5, counted from 1 as the vendor does (`registers[0]` of the event is register 1).
        bits: Bit numbers that share this meaning.
        recovery: None leaves the rule's own.
        repeat: How many times on one link before the investigation is due; 0 for at once.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    register: int
    bits: tuple[int, ...]
    meaning: str
    recovery: str | None = None
    investigate: tuple[str, ...] = ()
    severity: Severity | None = None
    repeat: int = 0
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvlink5Match:
    """The rows that fit an event equally well (several when more than one status bit is set), and how it was read."""

    rows: tuple[Nvlink5Row, ...]
    second_bit: bool
    text: str


def decode_nvlink5(detail: XidDetail, rows: Sequence[Nvlink5Row], driver_major: int | None) -> Nvlink5Match | None:
    """Find the rows for one event among those of its Xid; None when the words do not single out an answer.

    The severity word in the line takes no part: reason 38 says Fatal and asks for nothing.
    Source: NVIDIA Xid catalogue, sheet for Xid 144 to 150.
    """
    words = detail.registers or ()
    unit_rows, layout = _of_unit(detail, rows, driver_major)
    if not unit_rows:
        return None
    fitting, text = _by_reason(detail, unit_rows)
    status = words[1] if len(words) > 1 else None
    if text is None:
        fitting = _by_status(fitting, status)
        text = unit_rows[0].subcode + (f", error status {status:#x}" if status is not None else "")
    if not fitting or (not words and len({_answer(row) for row in fitting}) > 1):
        return None
    if len(words) == 1 and len({_answer(row) for row in fitting}) > 1:
        return None
    second = bool(words and layout and words[0] >> _SECOND_BIT[layout] & 1)
    explained = "; ".join(dict.fromkeys(row.explain.strip() for row in fitting if row.explain.strip()))
    text = f"{text}: {explained}" if explained else text
    if second and any(row.immediate_if_second_bit for row in fitting):
        text += " The second bit is set, which makes it one to act on."
    if detail.cross_contained:
        text += " XC1: the cause may sit at the remote end of the link."
    return Nvlink5Match(rows=tuple(fitting), second_bit=second, text=text)


def unit_of(intr_info: int, layout: Layout) -> int:
    """The unit number in intrInfo: bits 9:5 before driver R575, bits 6:0 from it."""
    return intr_info >> 5 & 0x1F if layout == "before_r575" else intr_info & 0x7F


def _of_unit(detail: XidDetail, rows: Sequence[Nvlink5Row], driver_major: int | None) -> tuple[list[Nvlink5Row], Layout | None]:
    """Rows of the unit that intrInfo and the printed name point to, and the bit layout that made them agree."""
    named = [row for row in rows if detail.subcode is not None and _norm(detail.subcode) in _names(row)]
    if not detail.registers:
        return named, None
    layouts: tuple[Layout, ...] = ("from_r575", "before_r575")
    if driver_major is not None and driver_major < R575:
        layouts = ("before_r575", "from_r575")
    for layout in layouts:
        unit = unit_of(detail.registers[0], layout)
        if agreeing := [row for row in named if _unit(row, layout) == unit]:
            return agreeing, layout
    if driver_major is not None:
        unit = unit_of(detail.registers[0], layouts[0])
        if by_number := [row for row in rows if _unit(row, layouts[0]) == unit]:
            return by_number, layouts[0]
    return named, None


def _by_reason(detail: XidDetail, rows: list[Nvlink5Row]) -> tuple[list[Nvlink5Row], str | None]:
    """The rows left when the unit is one that tells link-down reasons, with the words for it; else all of them and None."""
    if len({row.link_down_reason for row in rows}) < 2:
        return rows, None
    if detail.registers:
        reason: int | None = detail.registers[0] >> 20 & 0x3F
    else:
        reason = detail.link_down_reason
    if reason is None:
        return rows, rows[0].subcode
    return [row for row in rows if row.link_down_reason == reason], f"link-down reason {reason}"


def _by_status(rows: list[Nvlink5Row], status: int | None) -> list[Nvlink5Row]:
    """Rows for an error status: the exact one, else every row whose bit is set, where the unit's statuses are bits."""
    if status is None:
        return rows
    told = [row for row in rows if row.error_status is not None]
    if not told:
        return rows
    if exact := [row for row in told if row.error_status == status]:
        return exact
    bits = [row.error_status or 0 for row in told]
    if any(value.bit_count() != 1 for value in bits):
        return []
    return [row for row, value in zip(told, bits, strict=True) if status & value]


def _unit(row: Nvlink5Row, layout: Layout) -> int:
    return row.unit_before_r575 if layout == "before_r575" else row.unit_from_r575


def _answer(row: Nvlink5Row) -> tuple[str, str | None, str]:
    return row.immediate, row.immediate_if_second_bit, row.investigate


def _norm(name: str) -> str:
    return "_".join(name.upper().split())


def _names(row: Nvlink5Row) -> set[str]:
    return {_norm(name) for name in row.subcode.split("/")}


def set_bits(words: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Every (register, bit) that is set in the registers of an Xid 74 that count.

    The seven words are registers 1 to 7: the vendor's workflow counts "first, third, fourth and fifth",
    and the bits seen in real lines (bit 16 in the first word) are defined for register 1 and for no register 0.
    """
    for register in _VALID_REGISTERS:
        if register <= len(words):
            word = words[register - 1]
            yield from ((register, bit) for bit in range(32) if word >> bit & 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvlink4Match:
    """The rows whose bits are set, whether a bit is set that no row knows, and the reading in words."""

    rows: tuple[Nvlink4Row, ...]
    unknown_bit: bool
    text: str


def decode_nvlink4(detail: XidDetail, rows: Sequence[Nvlink4Row]) -> Nvlink4Match | None:
    """Read the registers of an Xid 74; None when the line has none or no bit of a valid register is set."""
    known: dict[tuple[int, int], Nvlink4Row] = {(row.register, bit): row for row in rows for bit in row.bits}
    hits = list(set_bits(detail.registers or ()))
    if not hits:
        return None
    parts = []
    for register, bit in hits:
        row = known.get((register, bit))
        meaning = row.meaning.strip().rstrip(".") if row else "not in the vendor's list: report it"
        if row and row.repeat > 1:
            meaning += f" (counts from the {_ordinal(row.repeat)} time on one link)"
        parts.append(f"register {register} bit {bit}: {meaning}")
    found = dict.fromkeys(known[hit] for hit in hits if hit in known)
    return Nvlink4Match(rows=tuple(found), unknown_bit=any(hit not in known for hit in hits), text="; ".join(parts))


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third", 4: "fourth"}.get(number, f"{number}th")
