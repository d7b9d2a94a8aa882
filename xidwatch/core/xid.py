"""Xid lines: the GPU faults that the NVIDIA driver reports by number.

Source: NVIDIA open-gpu-kernel-modules, tags 515.43.04 to 595.45.04, src/nvidia/src/kernel/gpu/rc/kernel_rc.c (krcReportXid);
older wordings from the vendor's documents and from logs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from xidwatch.core.event import Event, MalformedLine, XidDetail
from xidwatch.core.gsp_dump import in_crash_dump, in_rpc_dump, rate_limited
from xidwatch.core.pattern import lazy
from xidwatch.core.pci import PciAddress, parse_pci
from xidwatch.core.record import Record, gap_s
from xidwatch.core.xidtext import read_message

LITERALS: tuple[str, ...] = ("Xid (", "XidCriticalError")
FURTHER: tuple[str, ...] = ("Rate limiting GSP RPC",)

_XID = lazy(
    r"(?<![A-Za-z])Xid \((?P<addr>[^()\n]*?)(?: GPU-I:(?P<gi>\d+))?(?: GPU-CI:(?P<ci>\d+))?\): *(?P<code>\d+)(?![\w.])"
    r"(?:, ?|\s|$)(?:pid=(?:(?P<pid>\d+)|[^,\n]*)(?:, ?|$))?(?:name=(?P<name>[^\n]*?)(?:, |,?$|,?(?=\n)))?(?P<message>[^\n]*)"
)
_OURS = lazy(r"NVRM:? *Xid \(")
_ELIDED = lazy(r"(?:PCI:)?[0-9a-fxX*?.:#_\u2026-]+$")
_STANDS_FOR_NOTHING = frozenset({"", "<unknown>", "'<unknown>'", "..."})
_COMM_LONGEST = 15  # TASK_COMM_LEN - 1
_MESSAGE_START = lazy(
    r"Ch [0-9a-f]{8}|[Cc]hannel (?:ID |0x)[0-9a-f]|Graphics |MMU Fault|GPU has fallen|Timeout (?:after|waiting) |Class Error"
    r"|Row Remapper|Contained: |Uncontained: |NVLink: |GSP |HBM, |GDDR, |An uncorrectable "
)
_QUOTED_BY = lazy(r"\s*(?:(?:Recommended Action=|;ErrorCode:).*|kernel: *(?:\[[ \d.]*\]?)? *)$")
_BARE_START = len("NVRM: ")
_DEVICE_PLUGIN = lazy(r"XidCriticalError: Xid=(\d+) on Device=(GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})?")
_NODE_CONDITION = lazy(r"XidCriticalError\s+True\s.*?\{((?:\"\d+\":\w+,?\s*)+)\}")
_CONDITION_CODE = lazy(r'"(\d+)":true')

_WHOLE = lazy(r"(?:.*, )?(?:Ch|[Cc]hannel|Channel ID|ChI[Dd]) (?:0x)?[0-9a-f]{4,8}$|.*(?:[.!]|ACCESS_TYPE_\w+)$")
_CUT_SHORT = lazy(r"(?:|.*(?:[:,(=]|\b(?:on|of|to|from|at|the|a|is|in|for|with|has|been|and|fallen|off)))$", re.DOTALL)
_OTHER_MESSAGE = lazy(
    r"NVRM|nvidia|NVIDIA|\[|<\d|INFO:|BUG:|CPU:|RIP:|Call [Tt]race|watchdog|Traceback|[+|]|\w[\w./-]*(?:\(\d+\)|\[\d+\])?: ",
    re.ASCII,
)

_PLACES_WITHIN_S = 1.0
_DUMP_WITHIN_S = 10.0
_OPEN_FOR_PLACES = 512
_OPEN_FOR_DUMP = 160


@dataclass(frozen=True, slots=True)
class _Owner:
    gpu_instance: int | None
    compute_instance: int | None
    pid: int | None
    process: str | None


@dataclass(frozen=True, slots=True)
class _Line:
    code: int
    pci: PciAddress | None
    owner: _Owner
    message: str


def start(record: Record) -> tuple[Event, ...]:
    """The Xids that this record reports: mostly one, several where a line quotes several.

    Raises:
        MalformedLine: It begins as an Xid line but its address or number cannot be read.
    """
    lines = _read(record.text)
    if lines:
        return tuple(_event(record, nth, line) for nth, line in enumerate(lines))
    if "XidCriticalError" in record.text:
        return _second_hand(record)
    return ()


def extend(event: Event, record: Record) -> Event | None:
    """Another line of an Xid 13, the dump behind a 119 or 120, or the rest of a wrapped message."""
    if "Xid (" in record.text:
        return _another_place(event, record) if event.code == 13 and "): 13" in record.text else None
    detail = event.detail
    if not isinstance(detail, XidDetail):
        return None
    if dump := _dump_of(event, detail):
        limited = rate_limited(record.text)
        if limited or _in_dump(dump, record.text):
            gap = gap_s(event.record, record)
            late = gap is not None and gap > _DUMP_WITHIN_S
            richer = replace(event, count_is_minimum=True, last_record=record) if limited else event
            return None if late else richer
    if event.code is not None and _goes_on(event, detail.message, record):
        message = f"{detail.message} {record.text.strip()}".strip()
        return replace(event, last_record=record, detail=read_message(event.code, message))
    return None


def open_for(event: Event) -> int:
    """How many further records may belong to it: none behind a message that is whole."""
    detail = event.detail
    if not isinstance(detail, XidDetail) or event.gpu_uuid is not None:
        return 0
    if event.code == 13:
        return _OPEN_FOR_PLACES
    if _dump_of(event, detail):
        return _OPEN_FOR_DUMP
    return 1 if _may_go_on(event.code, detail.message) else 0


@lru_cache(maxsize=64)
def _read_once(text: str) -> tuple[_Line, ...]:
    """As `_read`, kept for a moment: every open event of an Xid 13 storm asks about the same line."""
    try:
        return tuple(_read(text))
    except MalformedLine:
        return ()


def _read(text: str) -> list[_Line]:
    """Every Xid in the text."""
    first = _XID.search(text)
    if first is None or (line := _line(first)) is None:
        if _OURS.search(text):
            raise MalformedLine(text)
        return []
    if "\n" not in text and text.find("Xid (", first.end("code")) < 0:
        bare = first.start() <= _BARE_START and not text.endswith(('"', "}"))
        return [line] if bare else [_unquoted(line, text[: first.start()])]
    return _read_several(text)


def _read_several(text: str) -> list[_Line]:
    """Xids of a text that holds more than one of them, or more than one line."""
    begins = [found.start() for found in re.finditer(r"(?<![A-Za-z])Xid \(", text)]
    lines = []
    for begin, end in zip(begins, [*begins[1:], len(text)], strict=True):
        part = text[begin:end]
        if end < len(text):
            part = part[: part.rfind("NVRM")] if "NVRM" in part else part
        head, *tail = part.split("\n")
        if (found := _XID.match(head)) is None or (line := _line(found)) is None:
            continue
        for more in tail:
            if _OTHER_MESSAGE.match(more.strip()) or not _may_go_on(line.code, line.message):
                break
            line = replace(line, message=f"{line.message} {more.strip()}".strip())
        lines.append(_unquoted(line, text[:begin]))
    return lines


def _line(found: re.Match[str]) -> _Line | None:
    addr, gi, ci, code, pid, name, message = found.groups()
    pci = _address(addr)
    if pci is None and not (_ELIDED.match(addr) and ("..." in addr or "\u2026" in addr or addr.startswith("PCI:"))):
        return None
    if name is not None:
        if ", " in message and not _MESSAGE_START.match(message):
            name, message = _longer_name(name, message)
        if name in _STANDS_FOR_NOTHING:
            name = None
    owner = _Owner(int(gi) if gi else None, int(ci) if ci else None, int(pid) if pid else None, name)
    return _Line(int(code), pci, owner, message.rstrip())


@lru_cache(maxsize=1024)
def _address(text: str) -> PciAddress | None:
    return parse_pci(text)


def _longer_name(name: str, message: str) -> tuple[str, str]:
    """Name and message where the name may hold `, ` itself: known if the rest begins as messages begin."""
    at = message.find(", ")
    while at >= 0 and len(name) + 2 + at <= _COMM_LONGEST:
        if _MESSAGE_START.match(message, at + 2):
            return f"{name}, {message[:at]}", message[at + 2 :]
        at = message.find(", ", at + 2)
    return name, message


def _unquoted(line: _Line, before: str) -> _Line:
    """Without what a quoting program put behind the message."""
    message = _QUOTED_BY.sub("", line.message)
    mark = before.rstrip("NVRM: ")[-1:]
    if mark in ('"', "'", "`") and (end := message.find(mark)) >= 0:
        message = message[:end]
    return replace(line, message=message.rstrip(" *"))


def _event(record: Record, nth: int, line: _Line) -> Event:
    owner = line.owner
    role: Literal["owner", "victim"] | None = None
    if owner.pid is not None:
        # Behind a 119 or 175 stands the process that happened to ask the firmware, not the one that hung it.
        role = "victim" if line.code in (119, 175) else "owner"
    return Event(
        uid=(record.stream, record.seq, nth),
        kind="xid",
        record=record,
        last_record=record,
        code=line.code,
        pci=line.pci,
        gpu_instance=owner.gpu_instance,
        compute_instance=owner.compute_instance,
        pid=owner.pid,
        pid_role=role,
        process=owner.process,
        detail=read_message(line.code, line.message),
    )


def _second_hand(record: Record) -> tuple[Event, ...]:
    """What the Kubernetes device plugin and its node condition say: a number, at best a UUID."""
    if found := _DEVICE_PLUGIN.search(record.text):
        reports = [(int(found[1]), found[2])]
    elif condition := _NODE_CONDITION.search(record.text):
        reports = [(int(code), None) for code in _CONDITION_CODE.findall(condition[1])]
    else:
        return ()
    return tuple(
        Event(uid=(record.stream, record.seq, nth), kind="xid", record=record, last_record=record, code=code, gpu_uuid=gpu_uuid)
        for nth, (code, gpu_uuid) in enumerate(reports)
    )


def _another_place(event: Event, record: Record) -> Event | None:
    """One exception prints a line for every SM that it hit, and one for the registers of each."""
    gap = gap_s(event.record, record)
    if gap is not None and not 0 <= gap <= _PLACES_WITHIN_S:
        return None
    lines = _read_once(record.text)
    if len(lines) != 1 or not isinstance(event.detail, XidDetail):
        return None
    line = lines[0]
    mine = (13, event.pci, _Owner(event.gpu_instance, event.compute_instance, event.pid, event.process))
    if mine != (line.code, line.pci, line.owner):
        return None
    detail, more = event.detail, read_message(13, line.message)
    new = tuple(place for place in more.places if place not in detail.places)
    if new and not detail.places:
        detail = replace(detail, places=new, gpc=more.gpc, tpc=more.tpc, sm=more.sm)
    elif new:
        detail = replace(detail, places=detail.places + new)
    if detail.channel is None and more.channel is not None:
        detail = replace(detail, channel=more.channel)
    return replace(event, lines=event.lines + 1, last_record=record, detail=detail)


def _dump_of(event: Event, detail: XidDetail) -> Literal["rpc", "crash"] | None:
    """Which dump the driver prints behind this Xid.

    Drivers 595.44.02 to 595.45.04 print a firmware crash as Xid 1 instead of 120 on Turing and GA100.
    """
    if event.code in (119, 175):
        return "rpc"
    if event.code == 120 or (event.code == 1 and detail.message.startswith("GSP ")):
        return "crash"
    return None


def _in_dump(dump: Literal["rpc", "crash"], text: str) -> bool:
    return in_rpc_dump(text) if dump == "rpc" else in_crash_dump(text)


def _may_go_on(code: int | None, message: str) -> bool:
    if code == 154:
        return " to 0x" not in message or not message.endswith(")")
    return _WHOLE.match(message) is None


def _goes_on(event: Event, message: str, record: Record) -> bool:
    """Whether the next physical line holds the rest of a message that was wrapped, by hand or by a mail program."""
    if not 0 <= record.seq - event.last_record.seq <= 1 or record.timed or not _may_go_on(event.code, message):
        return False
    text = record.text.strip()
    if not text or (_OTHER_MESSAGE.match(text) and not _MESSAGE_START.match(text)):
        return False
    # Where no line has a time, a line without one proves nothing: then the message itself must be visibly cut.
    return event.record.timed or _CUT_SHORT.match(message) is not None or (event.code == 154 and text.startswith("to 0x"))
