"""What the NVIDIA driver says beside Xids: failed starts, lost GPUs, firmware time-outs, assertions, crashes."""

from __future__ import annotations

from dataclasses import replace

from xidwatch.core.event import Event, NvrmDetail
from xidwatch.core.gsp_dump import in_crash_dump, in_rpc_dump, rate_limited
from xidwatch.core.kernel_oops import OOPS_FURTHER, OOPS_LITERALS, OOPS_OPEN_FOR, extend_oops, start_oops
from xidwatch.core.nvrmtext import LINE_LITERALS, DriverLine, continues_text, join_text, read_driver_line, read_versions
from xidwatch.core.pattern import lazy
from xidwatch.core.pci import PciAddress
from xidwatch.core.record import Record, gap_s

LITERALS: tuple[str, ...] = LINE_LITERALS + OOPS_LITERALS
FURTHER: tuple[str, ...] = ("Rate limiting GSP RPC", *OOPS_FURTHER)

_PARTNER = lazy(r"rm_init_adapter(?:\(\d+\))? failed|module->open\(\) failed")
_SERIAL = lazy(r"GPU serial number is (\w+)")

_MOMENT_S = 0.1
_BLOCK_S = 2.0
_DUMP_S = 10.0
_OPEN_FOR = {
    "rm_init_adapter_failed": 8, "fallen_off_bus": 6, "api_mismatch": 6, "probe_failed": 10, "unsupported_gpu": 8,
    "no_gpu_found": 2, "gsp_timeout": 160, "gsp_crash_report": 160, "fsp_boot_failed": 8, "other": 6,
}  # fmt: skip

_BLOCKS = frozenset({"api_mismatch", "fallen_off_bus", "unsupported_gpu", "probe_failed", "no_gpu_found"})
"""Complaints that the driver prints as a text of several lines."""

_UUID = lazy(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def start(record: Record) -> tuple[Event, ...]:
    """The driver's complaint on this record, if it is one; Xid lines belong to `xid`."""
    if "Xid (" in record.text:
        return ()
    if line := read_driver_line(record.text):
        return (_event(record, line),)
    oops = start_oops(record)
    return (oops,) if oops else ()


def extend(event: Event, record: Record) -> Event | None:
    """Partner and continuation lines of the same complaint; the dump behind a firmware time-out or crash."""
    if event.provisional:
        return extend_oops(event, record)
    detail = event.detail
    if "Xid (" in record.text or not isinstance(detail, NvrmDetail):
        return None
    if event.what in ("gsp_timeout", "gsp_crash_report"):
        return _with_dump(event, record)
    if "NVRM" not in record.text:
        return _with_text(event, detail, record) if _is_rest(event, detail, record) else None
    if not _within(event, record, _BLOCK_S):
        return None
    richer: Event | None = None
    if event.what == "rm_init_adapter_failed":
        richer = _with_partner(event, detail, record)
    elif event.what == "fallen_off_bus":
        richer = _with_serial(event, detail, record)
    elif event.what in ("other", "fsp_boot_failed"):
        richer = _with_burst(event, detail, record)
    if richer is None and event.what in _BLOCKS and continues_text(record.text):
        richer = _with_text(event, detail, record)
    return richer


def open_for(event: Event) -> int:
    """How many further records may belong to it."""
    if event.provisional:
        return OOPS_OPEN_FOR
    if isinstance(event.detail, NvrmDetail) and event.detail.message.endswith(","):
        return 1
    if event.what == "other" and isinstance(event.detail, NvrmDetail) and event.detail.function is None:
        return 0
    return _OPEN_FOR.get(event.what or "", 0)


def _event(record: Record, line: DriverLine) -> Event:
    return Event(
        uid=(record.stream, record.seq, 0),
        kind="nvrm",
        what=line.what,
        record=record,
        last_record=record,
        pci=line.pci,
        gpu_uuid=uuid[0] if (uuid := _UUID.search(record.text)) else None,
        pid=line.pid,
        pid_role="owner" if line.pid is not None else None,
        process=line.process,
        count_is_minimum=rate_limited(record.text),
        detail=line.detail,
    )


def _within(event: Event, record: Record, seconds: float) -> bool:
    gap = gap_s(event.last_record, record)
    return gap is None or 0 <= gap <= seconds


def _same_gpu(one: PciAddress | None, other: PciAddress | None) -> bool:
    return one is None or other is None or one == other


def _with_dump(event: Event, record: Record) -> Event | None:
    if not _within(event, record, _DUMP_S):
        return None
    if rate_limited(record.text):
        return replace(event, count_is_minimum=True, last_record=record)
    if event.what == "gsp_timeout":
        return event if in_rpc_dump(record.text) else None
    return event if in_crash_dump(record.text) and "CrashCat Report" not in record.text else None


def _with_partner(event: Event, detail: NvrmDetail, record: Record) -> Event | None:
    """`RmInitAdapter failed!` (osinit.c) is followed by `rm_init_adapter failed` (nv.c) for the same GPU."""
    text = record.text
    if _PARTNER.search(text):
        mine = "module->open()" in text or (detail.init_step is not None and event.lines == 1)
    else:
        mine = "RmInitAdapter failed!" in text and detail.init_step is None and event.lines == 1
        mine = mine and record.seq - event.last_record.seq <= 1
    line = read_driver_line(text) if mine else None
    if line is None or not _same_gpu(event.pci, line.pci):
        return None
    if line.detail.init_step is not None:
        detail = line.detail
    return replace(event, pci=event.pci or line.pci, lines=event.lines + 1, last_record=record, detail=detail)


def _with_serial(event: Event, detail: NvrmDetail, record: Record) -> Event | None:
    """The board's serial number, which the driver prints only for a lost GPU; zeros stand for none (osinit.c)."""
    if not (found := _SERIAL.search(record.text)) or (event.pci and str(event.pci) not in record.text.lower()):
        return None
    serial = found[1] if found[1].strip("0") else None
    return replace(event, lines=event.lines + 1, last_record=record, detail=replace(detail, serial=serial))


def _with_burst(event: Event, detail: NvrmDetail, record: Record) -> Event | None:
    """Several lines that one function prints at one moment are one complaint; equal lines are its repeats."""
    line = read_driver_line(record.text) if detail.function and detail.function in record.text else None
    if line is None or not _within(event, record, _MOMENT_S):
        return None
    same = (line.detail.function, line.detail.gpu_index, line.pci) == (detail.function, detail.gpu_index, event.pci)
    if not same or line.detail.message == detail.message:
        return None
    what = event.what if line.what == "other" else line.what
    return replace(event, what=what, lines=event.lines + 1, last_record=record)


def _is_rest(event: Event, detail: NvrmDetail, record: Record) -> bool:
    """Whether a line without `NVRM:` is the rest of a printk's text, or of a line that was wrapped."""
    if record.timed or not 0 <= record.seq - event.last_record.seq <= 1:
        return False
    return detail.message.endswith(",") or continues_text(record.text)


def _with_text(event: Event, detail: NvrmDetail, record: Record) -> Event:
    """The event with one more line of its text; only now the text may tell which of two blocks it is."""
    message = join_text(f"{detail.message}\n{record.text.strip()}")
    detail, pid, process, what = replace(detail, message=message), event.pid, event.process, event.what
    if what == "api_mismatch":
        detail, pid, process = read_versions(detail)
    elif message.startswith("The NVIDIA GPU "):
        what = "fallen_off_bus" if "fallen off" in message else "unsupported_gpu" if "supported" in message else what
    role = event.pid_role if pid is None else "owner"
    lines = event.lines + ("NVRM" in record.text)
    return replace(event, what=what, pid=pid, pid_role=role, process=process, lines=lines, last_record=record, detail=detail)
