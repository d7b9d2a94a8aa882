"""Machine checks and memory controllers' reports, for `pcie`: the family of what the host's own hardware says.

Sources: Linux arch/x86/kernel/cpu/mce/core.c, drivers/edac/, drivers/acpi/apei/ghes.c, drivers/firmware/efi/cper.c; mcelog.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from xidwatch.core.event import Event, MceDetail
from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record
from xidwatch.core.stack import may_be_kernel

MACHINE_CHECK_LITERALS: tuple[str, ...] = (
    "[Hardware Error]", "Machine Check", "Machine check events logged", "EDAC ", "This is not a software error",
)  # fmt: skip
MACHINE_CHECK_FURTHER: tuple[str, ...] = (
    "Bank ", "BANK ", "MCE ", "MISC ", "ADDR ", "TIME ", "MCG ", "MCi ", "STATUS ", "due to hardware memory",
)  # fmt: skip

_STATUS = r"(?P<status>[0-9a-f]{8,16})"
_CPU_CHECK = lazy(
    rf"CPU (?P<cpu>\d+): Machine Check(?: Exception| Event)?: +(?:0x)?[0-9a-f]+(?: Bank (?P<bank>\d+): {_STATUS})?"
)
_BANK = lazy(rf"^\s*(?:(?:mce: )?\[Hardware Error\]: )?Bank (?P<bank>\d+): {_STATUS}\b")
_LOGGED = lazy(r"(?:mce: )?(?:\[Hardware Error\]: )?Machine check events logged")
_AMD = lazy(r"\[Hardware Error\]: CPU:(?P<cpu>\d+) \([0-9a-f:]+\) MC(?P<bank>\d+)_STATUS\[[^\]]*\]: 0x(?P<status>[0-9a-f]+)")
_AMD_WORD = lazy(r"\[Hardware Error\]: (?P<word>Corrected error|Deferred error|Uncorrected, software|System Fatal error)")
_EDAC = lazy(r"EDAC (?:\w+ )?MC(?P<mc>\d+): (?:\d+ )?(?P<what>CE|UE)\b[ ,]")
_EDAC_PLACE = lazy(r"\bon (\S+)")
_HANDLING = lazy(r"EDAC (?:\w+ )?MC\d+: HANDLING MCE")
_EDAC_MORE = lazy(r"EDAC (?:\w+ )?MC\d+: (?:TSC|ADDR|MISC|PROCESSOR) ")
_MCELOG = lazy(r"Hardware event\. This is not a software error")
_MCELOG_MORE = lazy(
    r"^\s*(?:MCE \d+$|CPU (?P<cpu>\d+) .*?BANK (?P<bank>\d+)|MISC |ADDR |TIME |MCG |MCi |STATUS (?P<status>[0-9a-f]+) )"
)
_APEI = lazy(
    r"(?:\{\d+\})?\[Hardware Error\]: "
    r"(?:Hardware error from APEI|APEI generic hardware error|event severity: |Hardware error detected on CPU)"
)
_BLOCK = lazy(r"(?:\{(?P<serial>\d+)\})?\[Hardware Error\]:\s*(?P<text>.*)", re.DOTALL)
_SEVERITY = lazy(r"event severity: (\w+)|^severity: \d+, (\w+)")
_PLACE = lazy(r"^(?:fru_text|DIMM location): (.+)")
_KILLED = lazy(
    r"(?:Memory failure|MCE)[ :]+0x[0-9a-f]+: (?:Killing|Sending SIGBUS to) (?P<name>.*):(?P<pid>\d+) due to hardware memory"
)
_CORRECTED_WORDS = {"corrected": True, "recoverable": False, "fatal": False}
_UNCORRECTED_BIT, _VALID_BIT = 61, 63


def start_machine_check(record: Record) -> tuple[MceDetail, ...]:
    """What the first line of a machine check says; () for any other line.

    `MCE banks`, the injector's lines and the thermal and CMCI notices are none.
    """
    for pattern, read in _HEADS:
        if head := pattern.search(record.text):
            known = may_be_kernel(record, head) or record.program == "mcelog"
            return (read(MceDetail(), head),) if known else ()
    return ()


def extend_machine_check(event: Event, detail: MceDetail, record: Record) -> Event | None:
    """The same machine check with its decoded block, or the process that the kernel killed for it."""
    text = record.text
    for read in _READERS:
        if (richer := read(event, detail, text)) is not None:
            return replace(event, detail=richer, last_record=record)
    if (killed := _KILLED.search(text)) and event.pid is None:
        return replace(event, pid=int(killed["pid"]), process=killed["name"], last_record=record)
    return None


def apei_text(event: Event, text: str) -> str | None:
    """What a line of the same `{1}[Hardware Error]` block says behind its prefix; None when it belongs to another block."""
    first, block = _BLOCK.search(event.record.text), _BLOCK.search(text)
    if first is None or block is None or first["serial"] != block["serial"] or _begins_report(event, text):
        return None
    return block["text"]


def _begins_report(event: Event, text: str) -> bool:
    if _APEI.search(text):  # `event severity` is a head only where the first line is lost
        return "event severity: " not in text or "event severity: " in event.record.text
    return any(pattern.search(text) for pattern in (_CPU_CHECK, _AMD, _AMD_WORD, _LOGGED))


def _read_cpu(event: Event, detail: MceDetail, text: str) -> MceDetail | None:
    check = _CPU_CHECK.search(text) or _AMD.search(text)
    return _with_check(detail, check) if check and detail.bank is None else None


def _read_bank(event: Event, detail: MceDetail, text: str) -> MceDetail | None:
    bank = _BANK.match(text)
    return _with_status(replace(detail, bank=int(bank["bank"])), bank["status"]) if bank and detail.bank is None else None


def _read_word(event: Event, detail: MceDetail, text: str) -> MceDetail | None:
    word = _AMD_WORD.search(text)
    return _with_word(detail, word) if word and detail.corrected is None else None


def _read_edac(event: Event, detail: MceDetail, text: str) -> MceDetail | None:
    edac = _EDAC.search(text)
    if edac and detail.location is None and not _EDAC.search(event.record.text):
        return _with_edac(detail, edac)
    handling = _HANDLING.search(text) and detail.bank is None and not _HANDLING.search(event.last_record.text)
    return detail if handling or _EDAC_MORE.search(text) else None


def _read_mcelog(event: Event, detail: MceDetail, text: str) -> MceDetail | None:
    line = _MCELOG_MORE.match(text)
    if line is None or not _MCELOG.search(event.record.text):
        return None
    detail = replace(detail, cpu=int(line["cpu"]), bank=int(line["bank"])) if line["cpu"] else detail
    return _with_status(detail, line["status"]) if line["status"] else detail


def _read_apei(event: Event, detail: MceDetail, text: str) -> MceDetail | None:
    said = apei_text(event, text)
    return None if said is None else _with_apei_text(detail, said)


_READERS: tuple[Callable[[Event, MceDetail, str], MceDetail | None], ...] = (
    _read_cpu, _read_bank, _read_word, _read_edac, _read_mcelog, _read_apei,
)  # fmt: skip


def _bare(detail: MceDetail, head: re.Match[str]) -> MceDetail:
    return detail


def _with_check(detail: MceDetail, check: re.Match[str]) -> MceDetail:
    detail = replace(detail, cpu=int(check["cpu"]))
    return _with_status(replace(detail, bank=int(check["bank"])), check["status"]) if check["bank"] else detail


def _with_status(detail: MceDetail, digits: str) -> MceDetail:
    """The status register decides whether the error was corrected: its UC bit, where its VAL bit says that it holds."""
    status = int(digits, 16)
    corrected = not (status >> _UNCORRECTED_BIT) & 1 if (status >> _VALID_BIT) & 1 else detail.corrected
    return replace(detail, status=status, corrected=corrected)


def _with_word(detail: MceDetail, word: re.Match[str]) -> MceDetail:
    return replace(detail, severity_word=word["word"], corrected=word["word"] == "Corrected error")


def _with_edac(detail: MceDetail, edac: re.Match[str]) -> MceDetail:
    place = _EDAC_PLACE.search(edac.string)
    corrected = edac["what"] == "CE" and detail.corrected is not False
    return replace(detail, corrected=corrected, location=place[1] if place else f"MC{edac['mc']}")


def _with_apei(detail: MceDetail, head: re.Match[str]) -> MceDetail:
    block = _BLOCK.search(head.string)
    return _with_apei_text(detail, block["text"]) if block else detail


def _with_apei_text(detail: MceDetail, said: str) -> MceDetail:
    if severity := _SEVERITY.search(said):
        word = severity[1] or severity[2]
        return replace(detail, severity_word=word, corrected=_CORRECTED_WORDS.get(word))
    place = _PLACE.match(said)
    return replace(detail, location=place[1].strip()) if place else detail


_HEADS: tuple[tuple[re.Pattern[str], Callable[[MceDetail, re.Match[str]], MceDetail]], ...] = (
    (_CPU_CHECK, _with_check),
    (_LOGGED, _bare),
    (_AMD, _with_check),
    (_AMD_WORD, _with_word),
    (_EDAC, _with_edac),
    (_HANDLING, _bare),
    (_APEI, _with_apei),
    (_MCELOG, _bare),
)
