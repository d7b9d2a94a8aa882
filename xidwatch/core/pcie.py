"""What the host's own hardware reports: PCIe errors (AER), and machine checks with the help of `machine_check`.

Sources: Linux drivers/pci/pcie/aer.c, drivers/acpi/apei/ghes.c.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from string import ascii_uppercase

from xidwatch.core.event import AerDetail, Event, Kind, MceDetail
from xidwatch.core.machine_check import (
    MACHINE_CHECK_FURTHER,
    MACHINE_CHECK_LITERALS,
    apei_text,
    extend_machine_check,
    start_machine_check,
)
from xidwatch.core.pattern import lazy
from xidwatch.core.pci import PciAddress, parse_pci
from xidwatch.core.record import Record, gap_s
from xidwatch.core.stack import may_be_kernel

LITERALS: tuple[str, ...] = ("PCIe Bus Error", "AER: ", "aer_status:", *MACHINE_CHECK_LITERALS)
FURTHER: tuple[str, ...] = (
    "error status/mask=", "TLP Header:", "Error of this Agent", "aer_uncor_severity", "aer_layer=", *MACHINE_CHECK_FURTHER,
    *(f"]{gap}{letter}" for gap in ("", " ") for letter in ascii_uppercase),
)  # fmt: skip
_LONGEST_BLOCK = 40
_BLOCK_GAP_S = 1.0

_BDF = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_BUS_ERROR = lazy(
    rf"(?:(?P<driver>[\w-]{1, 40}) )?(?P<bdf>{_BDF})?:? ?(?:AER: )?PCIe Bus Error: (?:severity=)?"
    r"(?P<severity>[A-Z]\w+(?: \([\w-]+\))?)(?:, type=(?P<type>[^,(\n]+))?(?:, (?:id=\w+ ?)?\((?P<agent>[^)\n]*)\))?"
)
_RECEIVED = lazy(
    rf"{_BDF}: AER: (?:Multiple )?(?P<severity>Correct(?:ed|able)|Uncorrect(?:ed|able)(?: \([\w-]+\))?) error "
    rf"(?:message )?received(?: from)?:? (?P<bdf>{_BDF})"
)
_STATUS = lazy(rf"(?:(?P<driver>[\w-]{1, 40}) )?(?P<bdf>{_BDF}): (?:AER: )?aer_status: 0x[0-9a-f]+")
_LAYER = lazy(r"aer_layer=([^,]+), aer_agent=(.+)")
_ERROR_BIT = lazy(r"\[ ?\d+ ?\] ?([A-Z]\w+)")
_MORE = lazy(
    rf"(?P<bdf>{_BDF}).*(?:error status/mask=|TLP Header:|Error of this Agent|aer_uncor_severity|\[ ?\d+ ?\] ?[A-Z])"
    r"|^\s+(?:\[ ?\d+ ?\] ?[A-Z]|TLP Header:)"
)
_RECOVERY = lazy(r"AER: (?:(?P<good>[Dd]evice recovery successful)|[Dd]evice recovery failed|can't recover)")
_APEI_SECTION = lazy(r"section[_ ]type: PCIe error")
_APEI_DEVICE = lazy(rf"device_id: ({_BDF})")


def start(record: Record) -> tuple[Event, ...]:
    """The PCIe error or machine check that begins on this record.

    A root port's `error received` line begins one for the device it heard; the `PCIe Bus Error` line behind it belongs to it.
    """
    for pattern, read in ((_BUS_ERROR, _with_bus_error), (_RECEIVED, _with_received), (_STATUS, _with_status)):
        if head := pattern.search(record.text):
            known = may_be_kernel(record, head)
            return (_event(record, read(AerDetail(), head), parse_pci(head["bdf"] or "")),) if known else ()
    return tuple(_event(record, detail) for detail in start_machine_check(record))


def extend(event: Event, record: Record) -> Event | None:
    """The same report with what its further lines say.

    An APEI block whose section is a PCIe error turns from `mce` into `aer`, with the device that it names.
    """
    if record.program != event.record.program:
        return None
    gap = gap_s(event.last_record, record)
    if gap is not None and not -_BLOCK_GAP_S <= gap <= _BLOCK_GAP_S:
        return None
    detail = event.detail
    if isinstance(detail, AerDetail):
        return _extend_aer(event, detail, record)
    if not isinstance(detail, MceDetail):
        return None
    if (said := apei_text(event, record.text)) is not None and _APEI_SECTION.search(said):
        aer = AerDetail(severity_word=detail.severity_word, corrected=detail.corrected)
        return replace(event, kind="aer", detail=aer, last_record=record)
    return extend_machine_check(event, detail, record)


def open_for(event: Event) -> int:
    """How many further records may belong to it."""
    return _LONGEST_BLOCK


def _event(record: Record, detail: AerDetail | MceDetail, pci: PciAddress | None = None) -> Event:
    kind: Kind = "aer" if isinstance(detail, AerDetail) else "mce"
    return Event(uid=(record.stream, record.seq, 0), kind=kind, record=record, last_record=record, pci=pci, detail=detail)


def _with_bus_error(detail: AerDetail, error: re.Match[str]) -> AerDetail:
    return replace(
        detail,
        severity_word=error["severity"],
        error_type=error["type"].strip() if error["type"] else None,
        agent=error["agent"],
        driver=error["driver"],
        confirmed=True,
        corrected=_is_corrected(error["severity"]),
    )


def _with_received(detail: AerDetail, received: re.Match[str]) -> AerDetail:
    severity = received["severity"]
    return replace(detail, severity_word=severity, received_from=parse_pci(received["bdf"]), corrected=_is_corrected(severity))


def _with_status(detail: AerDetail, status: re.Match[str]) -> AerDetail:
    return replace(detail, driver=status["driver"])


def _is_corrected(severity: str) -> bool | None:
    if severity.startswith("Correct"):
        return True
    return False if severity.startswith("Uncorrect") else None


def _extend_aer(event: Event, detail: AerDetail, record: Record) -> Event | None:
    for read in _READERS:
        if (richer := read(event, detail, record.text)) is not None:
            return replace(richer, last_record=record)
    return None


def _read_bus_error(event: Event, detail: AerDetail, text: str) -> Event | None:
    error = _BUS_ERROR.search(text)
    if error is None or detail.confirmed or _is_corrected(error["severity"]) is not detail.corrected:
        return None
    return replace(event, pci=parse_pci(error["bdf"] or "") or event.pci, detail=_with_bus_error(detail, error))


def _read_status(event: Event, detail: AerDetail, text: str) -> Event | None:
    status = _STATUS.search(text)
    if status is None or detail.driver is not None or parse_pci(status["bdf"]) != event.pci:
        return None
    return replace(event, detail=_with_status(detail, status))


def _read_layer(event: Event, detail: AerDetail, text: str) -> Event | None:
    layer = _LAYER.search(text)
    return replace(event, detail=replace(detail, error_type=layer[1], agent=layer[2])) if layer else None


def _read_recovery(event: Event, detail: AerDetail, text: str) -> Event | None:
    recovery = _RECOVERY.search(text)
    return replace(event, detail=replace(detail, recovered=recovery["good"] is not None)) if recovery else None


def _read_bits(event: Event, detail: AerDetail, text: str) -> Event | None:
    more = _MORE.search(text)
    if more is None or _RECEIVED.search(text) or (more["bdf"] is not None and parse_pci(more["bdf"]) != event.pci):
        return None
    names = tuple(dict.fromkeys((*detail.errors, *_ERROR_BIT.findall(text))))
    return replace(event, detail=replace(detail, errors=names))


def _read_apei(event: Event, detail: AerDetail, text: str) -> Event | None:
    said = apei_text(event, text)
    if said is None:
        return None
    device = _APEI_DEVICE.search(said)
    return replace(event, pci=parse_pci(device[1]) if device else event.pci)


_READERS: tuple[Callable[[Event, AerDetail, str], Event | None], ...] = (
    _read_bus_error, _read_status, _read_layer, _read_recovery, _read_bits, _read_apei,
)  # fmt: skip
