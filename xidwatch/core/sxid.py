"""SXid lines: the errors of an NVSwitch.

Source: NVIDIA open-gpu-kernel-modules, src/common/nvswitch/kernel/inc/common_nvswitch.h (NVSWITCH_PRINT_SXID) and
error_nvswitch.c, which prints a `Severity` line and one or two `Data` lines behind the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from xidwatch.core.event import Event, MalformedLine, SxidDetail
from xidwatch.core.pattern import lazy
from xidwatch.core.pci import PciAddress, parse_pci
from xidwatch.core.record import Record, gap_s

LITERALS: tuple[str, ...] = ("SXid (",)
FURTHER: tuple[str, ...] = ()

_SXID = lazy(
    r"(?:nvidia-nvswitch(?P<switch>\d+):? *)?(?<![A-Za-z])SXid \((?P<addr>[^()\n]*)\): *(?P<code>\d+)(?![\w.])(?:, ?|\s|$)"
    r"(?P<message>[^\n]*)"
)
_ELIDED = lazy(r"PCI:[0-9a-fxX*?.:#_\u2026-]+$")
_SEVERITY_WORD = lazy(r"(Fatal|Non-fatal|Nonfatal|Correctable|Corrected|Contained)\b,? ?", re.IGNORECASE)
_SEVERITY = lazy(r"Severity (\d+)(?: Engine instance (\d+))?")
_SEVERITY_NAMES = {0: "Non-fatal", 1: "Fatal", 2: "Correctable"}
_LINK = lazy(r"\bLink (\d+)\b", re.IGNORECASE)
_INSTANCE = lazy(r"\binstance=(\d+)")
_WORD = lazy(r"0x[0-9a-f]+", re.IGNORECASE)

_FOLD_WITHIN_S = 1.0
_MOST_LINES = 4  # the text, its Severity line, two Data lines
_OPEN_FOR = 64  # the lines of several switches come interleaved


@dataclass(frozen=True, slots=True)
class _Line:
    code: int
    pci: PciAddress | None
    switch: int | None
    message: str

    @property
    def continues(self) -> bool:
        return self.message.startswith(("Severity ", "Data {"))


def start(record: Record) -> tuple[Event, ...]:
    """The SXids that this record reports; a lone `Severity` or `Data` line is one too, its text having been lost.

    Raises:
        MalformedLine: It begins as an SXid line but its address or number cannot be read.
    """
    lines = [line for found in _SXID.finditer(record.text) if (line := _line(found))]
    if not lines and "nvswitch" in record.text:
        raise MalformedLine(record.text)
    return tuple(
        Event(
            uid=(record.stream, record.seq, nth),
            kind="sxid",
            record=record,
            last_record=record,
            code=line.code,
            pci=line.pci,
            detail=_detail(line),
        )
        for nth, line in enumerate(lines)
    )


def extend(event: Event, record: Record) -> Event | None:
    """The `Severity` and `Data` lines of the same switch and number; one that names another link belongs to another event."""
    if ", Severity " not in record.text and ", Data {" not in record.text:
        return None
    found = _SXID.search(record.text)
    line = _line(found) if found else None
    if line is None or not line.continues or (line.code, line.pci) != (event.code, event.pci):
        return None
    gap = gap_s(event.record, record)
    in_time = gap is None or 0 <= gap <= _FOLD_WITHIN_S
    if not in_time or event.lines >= _MOST_LINES or not isinstance(event.detail, SxidDetail):
        return None
    own, more = event.detail, _detail(line)
    place = own.link if own.link is not None else own.instance
    if more.instance is not None and place is not None and more.instance != place:
        return None
    detail = replace(
        own,
        severity_word=own.severity_word or more.severity_word,
        instance=own.instance if own.instance is not None else more.instance,
        registers=(own.registers or ()) + (more.registers or ()) or None,
    )
    return replace(event, lines=event.lines + 1, last_record=record, detail=detail)


def open_for(event: Event) -> int:
    """How many further records may hold its continuation lines."""
    return _OPEN_FOR if event.kind == "sxid" else 0


def _line(found: re.Match[str]) -> _Line | None:
    pci = parse_pci(found["addr"])
    if pci is None and not _ELIDED.match(found["addr"]):
        return None
    switch = found["switch"]
    return _Line(int(found["code"]), pci, int(switch) if switch else None, found["message"].rstrip(" \"*`'"))


def _detail(line: _Line) -> SxidDetail:
    message = line.message
    if severity := _SEVERITY.match(message):
        instance = severity[2]
        return SxidDetail(
            message=message,
            switch=line.switch,
            severity_word=_SEVERITY_NAMES.get(int(severity[1])),
            instance=int(instance) if instance else None,
        )
    if message.startswith("Data {"):
        return SxidDetail(message=message, switch=line.switch, registers=tuple(int(w, 16) for w in _WORD.findall(message)))
    word, link, place = _SEVERITY_WORD.match(message), _LINK.search(message), _INSTANCE.search(message)
    return SxidDetail(
        message=message[word.end() :] if word else message,
        switch=line.switch,
        severity_word=word[1] if word else None,
        link=int(link[1]) if link else None,
        instance=int(place[1]) if place else None,
    )
