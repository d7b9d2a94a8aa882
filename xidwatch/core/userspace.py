"""What programs say of themselves: PyTorch, NCCL, vLLM and CUDA error texts.

Sources: PyTorch c10/cuda/CUDACachingAllocator.cpp, c10/cuda/CUDAException.cpp, aten device assertions and
torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp; vLLM vllm/core/scheduler.py; NCCL src/include/checks.h.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from xidwatch.core.event import Event, Kind, UserspaceDetail
from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record

LITERALS: tuple[str, ...] = (
    "out of memory. Tried to allocate",
    "CUDA out of memory",
    "Tried to allocate",
    "Watchdog caught collective operation timeout",
    "is preempted by",
    "Preempted request",
    "CUDA error",
    "CUDA Error",
    "CUDA failure",
    "Cuda failure",
    "CUDA_ERROR_",
    "], thread: [",
    "ProcessGroupNCCL.cpp",
)
FURTHER: tuple[str, ...] = ()
_WRAPPED_MEMORY = 6
_WRAPPED_CALL = 400
"""Records between a watchdog line and the exception that repeats it: other ranks and their stacks come between."""

_SIZE = r"(\d{1,15}(?:\.\d{1,6})?) (bytes|[KMGT]iB)"
_UNIT = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_MEMORY = lazy(
    rf"(?:CUDA|HIP) out of memory\. Tried to allocate|Tried to allocate {_SIZE}\s*(?:\(GPU|\. GPU)"
    r"|(?:Error|Exception): ?(?:CUDA|HIP) out of memory\.?\s*$|^\s*CUDA out of memory\.\s*$",
    re.MULTILINE,
)
_SIZES = {
    "tried": lazy(rf"Tried to allocate\s+{_SIZE}"),
    "total": lazy(rf"total\s+capac(?:i)?ty\s+of\s+{_SIZE}|{_SIZE}\s+total\s+capacity"),
    "free": lazy(rf"of\s+which\s+{_SIZE}\s+is\s+free|{_SIZE}\s+free\b"),
    "allocated": lazy(rf"{_SIZE}\s+already\s+allocated|allocated\s+memory\s+{_SIZE}\s+is\s+allocated\s+by\s+PyTorch"),
    "reserved_unallocated": lazy(rf"{_SIZE}\s+is\s+reserved\s+by\s+PyTorch\s+but\s+unallocated"),
    "reserved": lazy(rf"{_SIZE}\s+(?:reserved\s+in\s+(?:total|cache)|cached)"),
    "in_use": lazy(rf"(?:this\s+process|Process\s+\d+)\s+has\s+{_SIZE}\s+memory\s+in\s+use"),
}
_THIS_PROCESS = lazy(r"this\s+process\s+has")
_OTHER_PROCESS = lazy(r"\bProcess\s+(\d+)\s+has\s")
_DEVICE = lazy(r"\bGPU (\d+)[; ]")

_TIMEOUT = lazy(r"(?:\bRank (?P<rank>\d+)\] ?)?Watchdog caught collective operation timeout")
_SAID_ON_TIMEOUT = "Watchdog caught collective operation timeout"
_AGAIN = lazy(r"terminated with exception: \[[^\]]*Rank \d+\] Watchdog caught|what\(\): .*Watchdog caught")
_CALL = {
    "seq": lazy(r"\bSeqNum=(\d+)"),
    "op": lazy(r"\bOpType=(\w+)"),
    "timeout_ms": lazy(r"\bTimeout\(ms\)=(\d+)"),
    "ran_ms": lazy(r"\bran for (\d+) milliseconds"),
}
_GROUP = lazy(r"\bPG (?:ID )?(\d+)(?: PG GUID (\S+))?")
_WRAPPED = lazy(r"WorkNCCL\(|^\s*ran for \d+|^\s*OpType=|^\s*Timeout\(ms\)=|\bmilliseconds before timing out")

_PREEMPTED = lazy(
    r"[Ss]equence group (?P<group>\S+) is preempted by PreemptionMode\.(?P<mode>\w+)"
    r"|Preempted request (?P<request>\S+) has been resumed"
    r"|[Rr]equest (?P<v1>[\w.-]+) is preempted by"
)
_CUMULATIVE = lazy(r"total_(?:num_)?cumulative_preemption(?:_cnt)?=(\d+)")

_CUDA = lazy(
    r"\bCUDA (?:runtime )?[Ee]rror(?: \d+)?(?: at [^:\n]+:\d+)?: (?P<text>[^\n]+)"
    r"|\b(?:Cuda|CUDA) failure(?: \d+)?:? '(?P<quoted>[^'\n]+)'"
    r"|\bCUDA error at \S+ code=\d+\((?P<sample>\w+)\)"
    r"|\bCUDA_ERROR_(?P<name>[A-Z0-9_]+)(?:: (?P<named>[^\n\"']+))?"
)
_AFTERWORD = lazy(
    r"\.?\s*(?:\\n|[|│]\s*$|Search for `|CUDA kernel errors might|Compile with `|For debugging consider|Exception raised from"
    r"|: No error|\(function |, please check|\((?:triggered|Triggered) internally)"
)
_CODE = lazy(r"""[{%<$"']|\w+\(\)|str\(|f["']""")
_ASSERT = lazy(
    r"(?:block: \[\d+,\s*\d+,\s*\d+\], )thread: \[\d+,\s*\d+,\s*\d+\],? Assertion `?(?P<text>.*?)[`']? failed", re.DOTALL
)
_DEVICE_ASSERT = "device-side assert"

_SPEAKER = lazy(r"^\W*\((?P<name>[\w.:/-]+)(?:,? rank=(?P<rank>\d+))?,? pid=(?P<pid>\d+)[^)]*\)")
_RANK = lazy(r"\[rank(\d+)\]|\bRank (\d+)\]|\brank[=: ](\d+)\b")
_HEADER = lazy(r"ProcessGroupNCCL\.cpp:\d+\].*\bRank \d+\]\s*$")


def start(record: Record) -> tuple[Event, ...]:
    """What a program reports on this record: memory run out, a preemption, a collective that timed out, a CUDA error."""
    for read in _READERS:
        if event := read(record, record.text):
            return (event,)
    return ()


def extend(event: Event, record: Record) -> Event | None:
    """The same report with its wrapped lines, or its repetition in the exception that ends the program."""
    detail, text = event.detail, record.text
    if not isinstance(detail, UserspaceDetail) or record.program != event.record.program:
        return None
    if event.provisional:
        return _proven(event, detail, record)
    if event.kind == "nccl_timeout" and (again := _TIMEOUT.search(text)):
        return _repeated(event, detail, text, again)
    richer = _unwrapped(event, detail, record)
    return replace(_named(event, richer, text), last_record=record) if richer is not None and richer != detail else None


def open_for(event: Event) -> int:
    """How many further records may belong to it."""
    if event.provisional:
        return _WRAPPED_MEMORY
    return {"torch_oom": _WRAPPED_MEMORY, "nccl_timeout": _WRAPPED_CALL}.get(event.kind, 0)


def _read_memory(record: Record, text: str) -> Event | None:
    return _event(record, "torch_oom", _memory(UserspaceDetail(rank=_rank(text)), text)) if _MEMORY.search(text) else None


def _read_timeout(record: Record, text: str) -> Event | None:
    timeout = _TIMEOUT.search(text)
    if timeout is None:
        return None
    group = _GROUP.search(text)
    rank = int(timeout["rank"]) if timeout["rank"] else _rank(text)
    detail = UserspaceDetail(message=_SAID_ON_TIMEOUT, rank=rank, group=(group[2] or group[1]) if group else None)
    return _event(record, "nccl_timeout", _call(detail, text))


def _read_preemption(record: Record, text: str) -> Event | None:
    preempted = _PREEMPTED.search(text)
    if preempted is None:
        return None
    total = _CUMULATIVE.search(text)
    detail = UserspaceDetail(
        message=preempted[0],
        group=preempted["group"] or preempted["request"] or preempted["v1"],
        mode=preempted["mode"],
        cumulative=int(total[1]) if total else None,
    )
    return _event(record, "vllm_preemption", detail)


def _read_cuda(record: Record, text: str) -> Event | None:
    if _ASSERT.search(text):
        detail = UserspaceDetail(message=text.strip(), rank=_rank(text))
        return replace(_event(record, "cuda_error", detail), what=_DEVICE_ASSERT)
    detail = UserspaceDetail(rank=_rank(text))
    if message := _cuda_message(text):
        return replace(_event(record, "cuda_error", replace(detail, message=message)), what=_what(message))
    if _HEADER.search(text):
        # Terminals and mail programs break PyTorch's line behind the rank; the message is on the next one.
        return replace(_event(record, "cuda_error", detail), provisional=True)
    return None


_READERS: tuple[Callable[[Record, str], Event | None], ...] = (_read_memory, _read_timeout, _read_preemption, _read_cuda)


def _proven(event: Event, detail: UserspaceDetail, record: Record) -> Event | None:
    """A PyTorch header whose next line holds the message."""
    if record.timed or record.seq > event.record.seq + 2:
        return None
    if _TIMEOUT.search(record.text):
        call = _call(replace(detail, message=_SAID_ON_TIMEOUT), record.text)
        return replace(event, kind="nccl_timeout", detail=call, last_record=record, provisional=False)
    if message := _cuda_message(record.text):
        told = replace(detail, message=message)
        return replace(event, what=_what(message), detail=told, last_record=record, provisional=False)
    return None


def _what(message: str) -> str:
    return _DEVICE_ASSERT if message.startswith(_DEVICE_ASSERT) else message


def _event(record: Record, kind: Kind, detail: UserspaceDetail) -> Event:
    speaker = _SPEAKER.match(record.text)
    event = Event(
        uid=(record.stream, record.seq, 0),
        kind=kind,
        record=record,
        last_record=record,
        pid=int(speaker["pid"]) if speaker else record.program_pid,
        process=speaker["name"] if speaker else record.program,
        detail=detail,
    )
    return _named(event, detail, record.text)


def _named(event: Event, detail: UserspaceDetail, text: str) -> Event:
    """PyTorch in a container does not recognise itself: the only `Process N` is then the one that ran out of memory."""
    others = set(_OTHER_PROCESS.findall(text))
    if event.kind == "torch_oom" and len(others) == 1 and not _THIS_PROCESS.search(text):
        event = replace(event, pid=int(others.pop()))
    return replace(event, detail=detail)


def _rank(text: str) -> int | None:
    found = _RANK.search(text)
    return int(found[1] or found[2] or found[3]) if found else None


def _memory(detail: UserspaceDetail, text: str) -> UserspaceDetail:
    found: dict[str, float] = {}
    for field, pattern in _SIZES.items():
        if getattr(detail, field) is None and (size := pattern.search(text)):
            number, unit = (group for group in size.groups() if group is not None)
            found[field] = float(number) * _UNIT[unit]
    device, other = _DEVICE.search(text), _OTHER_PROCESS.search(text)
    return replace(
        detail,
        message=detail.message or text.strip(),
        tried=found.get("tried", detail.tried),
        total=found.get("total", detail.total),
        free=found.get("free", detail.free),
        allocated=found.get("allocated", detail.allocated),
        reserved_unallocated=found.get("reserved_unallocated", detail.reserved_unallocated),
        reserved=found.get("reserved", detail.reserved),
        in_use=found.get("in_use", detail.in_use),
        device=_number(detail.device, device[1] if device else None),
        other_pid=_number(detail.other_pid, other[1] if other else None),
    )


def _call(detail: UserspaceDetail, text: str) -> UserspaceDetail:
    found = {field: match[1] for field, pattern in _CALL.items() if (match := pattern.search(text))}
    return replace(
        detail,
        op=detail.op or found.get("op"),
        seq=_number(detail.seq, found.get("seq")),
        timeout_ms=_number(detail.timeout_ms, found.get("timeout_ms")),
        ran_ms=_number(detail.ran_ms, found.get("ran_ms")),
    )


def _number(known: int | None, found: str | None) -> int | None:
    return known if known is not None or found is None else int(found)


def _unwrapped(event: Event, detail: UserspaceDetail, record: Record) -> UserspaceDetail | None:
    """What the next lines of a wrapped message add."""
    if event.kind == "torch_oom":
        begins = _MEMORY.search(record.text) and not record.text.lstrip().startswith("Tried to allocate")
        return None if begins else _memory(detail, record.text)
    soon = record.seq <= event.last_record.seq + 3
    if event.kind == "nccl_timeout" and detail.ran_ms is None and soon and _WRAPPED.search(record.text):
        return _call(detail, record.text)
    return None


def _repeated(event: Event, detail: UserspaceDetail, text: str, again: re.Match[str]) -> Event | None:
    seq = _CALL["seq"].search(text)
    same_seq = seq is None or detail.seq is None or int(seq[1]) == detail.seq
    same_rank = again["rank"] is None or detail.rank is None or int(again["rank"]) == detail.rank
    if not _AGAIN.search(text) or not same_seq or not same_rank:
        return None
    return replace(event, detail=_call(detail, text), lines=event.lines + 1)


def _cuda_message(text: str) -> str | None:
    """The error's own words without the advice that PyTorch prints behind them; None when the text is source code."""
    found = _CUDA.search(text)
    if found is None:
        return None
    said = found["text"] or found["quoted"] or found["sample"] or found["named"] or f"CUDA_ERROR_{found['name']}"
    if _CODE.match(said):
        return None
    return _AFTERWORD.split(said, maxsplit=1)[0].strip(" .'\"`:;,") or None
