"""What programs say of themselves: out-of-memory errors, vLLM's preemptions, NCCL's watchdog and CUDA error texts.

Sources: PyTorch 0.4 to 2.9: c10/cuda/CUDACachingAllocator.cpp, CUDAMallocAsyncAllocator.cpp and CUDAException.cpp, aten device
assertions, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp; vLLM 0.4 to 0.11: core/scheduler.py, v1/metrics/loggers.py,
v1/core/kv_cache_utils.py, worker/worker.py; NCCL src/include/checks.h; XLA and TensorFlow, xla/tsl/framework/bfc_allocator.cc;
llama.cpp ggml/src/ggml-cuda; NVML's error texts as nvidia-ml-py raises them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from xidwatch.core.context import is_by_device
from xidwatch.core.event import Event, Kind, UserspaceDetail
from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record
from xidwatch.core.shortage import shortage_of

LITERALS: tuple[str, ...] = (
    "out of memory. Tried to allocate",
    "CUDA out of memory",
    "Tried to allocate",
    "would exceed allowed memory",
    "RESOURCE_EXHAUSTED: Out of memory",
    "OOM when allocating tensor",
    "runtime error (2) : out of memory",
    "available KV cache memory",
    "memory for the cache blocks",
    "of tokens that can be stored in",
    "Free memory on device",
    "Watchdog caught collective operation timeout",
    "Heartbeat monitor timed out",
    "watchdog got stuck for",
    "is preempted by",
    "Preempted request",
    "Preemptions: ",
    "CUDA error",
    "CUDA Error",
    "CUDA failure",
    "Cuda failure",
    "CUDA_ERROR_",
    "cudaError",
    "lloc failed: ",
    "NVMLError_",
    "], thread: [",
    "ProcessGroupNCCL.cpp",
)
FURTHER: tuple[str, ...] = ()
_WRAPPED_MEMORY = 6
_LONGEST_MESSAGE = 2000
_LARGEST_CONTEXT = 2.0 * 2**30
"""Bytes that a process holds beside what PyTorch's allocator has: CUDA's context, NCCL's and cuBLAS' buffers."""
_WRAPPED_CALL = 400
"""Records between a watchdog line and the exception that repeats it: other ranks and their stacks come between."""

_SIZE = r"(\d{1,15}(?:\.\d{1,6})?) ?(bytes|B|[KMGT]iB)\b"
_UNIT = {"bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_MEMORY = lazy(
    rf"(?:CUDA|HIP) out of memory\. Tried to allocate|Tried to allocate {_SIZE}\s*(?:\(GPU|\. GPU)"
    r"|(?:Error|Exception): ?(?:CUDA|HIP) out of memory\.?\s*$|^\s*CUDA out of memory\.\s*$"
    r"|\bAllocation on device \d+ would exceed allowed memory\. \(out of memory\)"
    r"|\bcuda runtime error \(2\) : out of memory at "
    r"|\bRESOURCE_EXHAUSTED: Out of memory (?:while trying to allocate|allocating) \d+ bytes"
    r"|\bOOM when allocating tensor with shape\b[^\n]{0,300}?\bGPU:\d+",
    re.MULTILINE,
)
_XLA_AGAIN = lazy(
    r"(?:XlaRuntimeError|JaxRuntimeError|ResourceExhaustedError|InternalError): ?(?:Graph execution error|RESOURCE_|OOM)"
)
"""The exception that ends the program says again what its log said."""
_KV_CACHE = lazy(
    rf"\(?(?:{_SIZE} )KV cache is needed, which is larger than the available KV cache memory \({_SIZE}\)"
    r"|\bNo available memory for the cache blocks"
    r"|\bis larger than the maximum number of tokens that can be stored in (?:the )?KV cache \(\d+\)"
    r"|\bFree memory on device(?: \S+)? \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less than desired GPU memory"
    r" utilization \([\d.]+, (?P<wanted>[\d.]+) GiB\)"
)
_SIZES = {
    "tried": lazy(
        rf"Tried to allocate\s+{_SIZE}|^Requested\s*: {_SIZE}|Out of memory (?:while trying to allocate|allocating) {_SIZE}"
    ),
    "total": lazy(rf"total\s+capac(?:i)?ty\s+of\s+{_SIZE}|{_SIZE}\s+total\s+capacity|^Device limit\s*: {_SIZE}"),
    "free": lazy(rf"of\s+which\s+{_SIZE}\s+is\s+free|{_SIZE}\s+free\b|^Free \(according to CUDA\)\s*: {_SIZE}"),
    "allocated": lazy(
        rf"{_SIZE}\s+already\s+allocated|allocated\s+memory\s+{_SIZE}\s+is\s+allocated\s+by\s+PyTorch"
        rf"|^Currently allocated\s*: {_SIZE}"
    ),
    "reserved_unallocated": lazy(rf"{_SIZE}\s+is\s+reserved\s+by\s+PyTorch\s+but\s+unallocated"),
    "reserved": lazy(rf"{_SIZE}\s+(?:reserved\s+in\s+(?:total|cache)|cached)"),
    "in_use": lazy(rf"this\s+process\s+has\s+{_SIZE}\s+memory\s+in\s+use"),
    "allowed": lazy(rf"{_SIZE}\s+allowed;|^\s+: {_SIZE}"),
}
_THIS_PROCESS = lazy(r"this\s+process\s+has")
_PROCESS = lazy(rf"\bProcess\s+(\d+)\s+has\s+{_SIZE}\s+memory\s+in\s+use")
_DEVICE = lazy(r"\bGPU[ :](\d+)\b|\bon device (\d+)\b")

_TIMEOUT = lazy(r"(?:\bRank (?P<rank>\d+)\] ?)?Watchdog caught collective operation timeout")
_HEARTBEAT = lazy(
    r"\bHeartbeat monitor timed out!|\bwatchdog got stuck for (?P<seconds>\d{1,9}) seconds without making progress"
)
"""The monitor of the watchdog itself: that one hangs in a call, which no time-out of a collective reports."""
_WATCHDOG_STUCK = "watchdog stuck"
_SAID_ON_TIMEOUT = "Watchdog caught collective operation timeout"
_AGAIN = lazy(r"terminated with exception: \[[^\]]*Rank \d+\] Watchdog caught|what\(\): .*Watchdog caught")
_CALL = {
    "seq": lazy(r"SeqNum=(\d+)"),
    "op": lazy(r"OpType=(\w+)"),
    "timeout_ms": lazy(r"Timeout\(ms\)=(\d+)"),
    "ran_ms": lazy(r"ran for (\d+) milliseconds"),
    "elements": lazy(r"NumelIn=(\d+)"),
}
_GROUP = lazy(r"\bPG (?:ID )?(\d+)(?: PG GUID (\S+))?")
_WRAPPED = lazy(r"WorkNCCL\(|^\s*ran for \d+|^\s*OpType=|^\s*Timeout\(ms\)=|\bmilliseconds before timing out")

_PREEMPTED = lazy(
    r"[Ss]equence group (?P<group>\S+) is preempted by PreemptionMode\.(?P<mode>\w+)"
    r"|Preempted request (?P<request>\S+) has been resumed"
    r"|[Rr]equest (?P<v1>[\w.-]+) is preempted by"
    r"|\bRunning: \d+ reqs, Waiting: \d+ reqs, Preemptions: (?P<times>[1-9]\d*),"
)
_CUMULATIVE = lazy(r"total_(?:num_)?cumulative_preemption(?:_cnt)?=(\d+)")

_CUDA = lazy(
    r"\bCUDA (?:runtime )?[Ee]rror(?: \d+)?(?: at [^:\n]+:\d+)?: (?P<text>[^\n]+)"
    r"|\b(?:Cuda|CUDA) failure(?: \d+)?:? '(?P<quoted>[^'\n]+)'"
    r"|\bCUDA error at \S+ code=\d+\((?P<sample>\w+)\)"
    r"|\bCUDA_ERROR_(?P<name>[A-Z0-9_]+)(?:: (?P<named>[^\n\"']+))?"
    r"|\bcudaError[A-Z]\w+: (?P<runtime>[a-z][^\n\"']+)"
    r"|\b(?:cudaMalloc\w*|cuMemAlloc\w*|hipMalloc\w*) failed: (?P<malloc>[^\n]+)"
    r"|\bNVMLError_(?P<nvml>GpuIsLost|ResetRequired|Unknown|LibRmVersionMismatch|InsufficientPower|IrqIssue)\b"
    r"(?:: (?P<nvml_said>[^\n\"']+))?"
)
_BUFFER = lazy(rf"\ballocating {_SIZE} on device (\d+)")
_SAID = ("text", "quoted", "sample", "named", "runtime", "malloc", "nvml_said")
_AFTERWORD = lazy(
    r"\.?\s*(?:\\n|[|│]\s*$|Search for `|CUDA kernel errors might|Compile with `|For debugging consider|Exception raised from"
    r"|: No error|\(function |, please check|\((?:triggered|Triggered) internally)"
)
_CODE = lazy(r"""[{%<$"']|\w+\(\)|str\(|f["']""")
_ASSERT = lazy(
    r"(?:block: \[\d+,\s*\d+,\s*\d+\], )thread: \[\d+,\s*\d+,\s*\d+\],? Assertion `?(?P<text>.*?)[`']? failed", re.DOTALL
)
_DEVICE_ASSERT = "device-side assert"

_QUOTED = lazy(
    r"""(?P<quote>["'`“])(?:[\w.]{0,60}(?:Error|Exception): ?)?"""
    r"(?:CUDA|Cuda|HIP|cudaError|Tried to allocate|RESOURCE_EXHAUSTED|OOM when|Watchdog caught|NVMLError_)"
)
_SPEAKS = lazy(
    r"(?i:\b(?:docs?|documentation|manual|readme|guide|wiki|faq)\b[^\n]{0,40})$"
    r"|(?:\b(?:e\.g\.|such as|search(?:ing)? for|look(?:ing)? for|grep(?: -\w+)*|assert|if|elif|and|or|not|expects?|contains?"
    r"|mentions?|the (?:words?|string|phrase))[:,]?\s*|\bmatch=|\braises\([\w.]{1,40}, (?:match=)?|\bin \(|==\s*)[rf]?$"
)
_SPOKEN_OF = lazy(
    r"""["'`”]\)?,?\s+(?:not in\b|in (?:str|repr|\w*(?:text|output|err|error|log|line|msg|message|stderr|stdout|exc|e|s))\b"""
    r"|may\b|might\b|could\b|should\b|would\b|means?\b|appears?\b)"
)
_SPEAKER = lazy(r"^\W*\((?P<name>[\w.:/-]+)(?:,? rank=(?P<rank>\d+))?,? pid=(?P<pid>\d+)[^)]*\)")
_RANK = lazy(r"\[rank(\d+)\]|\bRank (\d+)\]|\brank[=: ](\d+)\b")
_HEADER = lazy(r"ProcessGroupNCCL\.cpp:\d+\].*\bRank \d+\]\s*$")


def start(record: Record) -> tuple[Event, ...]:
    """What a program reports on this record: memory run out, a preemption, a collective that timed out, a CUDA error."""
    if (told := _told(record.text)) is None:
        return ()
    return (
        Event(
            uid=(record.stream, record.seq, 0),
            kind=told.kind,
            record=record,
            last_record=record,
            what=told.what,
            pid=told.pid if told.pid is not None else record.program_pid,
            process=told.process if told.process is not None else record.program,
            detail=told.detail,
            count_is_minimum=told.count_is_minimum,
            provisional=told.provisional,
        ),
    )


@lru_cache(maxsize=256)
def _told(text: str) -> Event | None:
    """What the text alone tells, for a record without a program; in a storm the same text comes again and again."""
    if not any(word in text for word in LITERALS):
        return None
    if _is_spoken_of(text) or is_by_device(text):
        return None
    bare = Record(text=text)
    return next((event for read in _READERS if (event := read(bare, text))), None)


def _is_spoken_of(text: str) -> bool:
    """Whether it is prose or code about such a message: in quotes, between words that speak of it.

    A message in a field (`"msg": "CUDA out of memory"`, `msg="..."`) or a whole line in quotes is the message itself.
    """
    quoted = _QUOTED.search(text)
    if quoted is None or any(word in text[: quoted.start()] for word in LITERALS):
        return False
    if _SPEAKS.search(text[: quoted.start()]):
        return True
    end = text.find("”" if quoted["quote"] == "“" else quoted["quote"], quoted.end())
    return end >= 0 and _SPOKEN_OF.match(text, end) is not None


def extend(event: Event, record: Record) -> Event | None:
    """The same report with its wrapped lines, or its repetition in the exception that ends the program."""
    detail, text = event.detail, record.text
    if not isinstance(detail, UserspaceDetail) or record.program != event.record.program:
        return None
    if event.provisional:
        return _proven(event, detail, record)
    if event.kind == "nccl_timeout" and _SAID_ON_TIMEOUT not in text and (monitor := _HEARTBEAT.search(text)):
        # It follows a time-out on every rank, and tells nothing new then.
        return replace(event, detail=replace(detail, timeout_ms=detail.timeout_ms or _limit_ms(monitor)), last_record=record)
    if event.kind == "nccl_timeout" and _SAID_ON_TIMEOUT in text:
        return _repeated(event, detail, text)
    if event.kind == "torch_oom" and _says_again(event, detail, text):
        return replace(event, lines=event.lines + 1, last_record=record)
    richer = _unwrapped(event, detail, record)
    return replace(_named(event, richer), last_record=record) if richer is not None and richer != detail else None


def _says_again(event: Event, detail: UserspaceDetail, text: str) -> bool:
    """Whether it is the exception that ends a program whose log has said the same."""
    if (
        detail.tried is None
        or not any(word in text for word in ("RESOURCE_", "OOM", "Graph exec"))
        or not _XLA_AGAIN.search(text)
        or _XLA_AGAIN.search(event.record.text)
    ):
        return False
    return _memory(UserspaceDetail(), text).tried == detail.tried


def open_for(event: Event) -> int:
    """How many further records may belong to it."""
    if event.provisional:
        return _WRAPPED_MEMORY
    if event.kind == "torch_oom" and "RESOURCE_EXHAUSTED" in event.record.text:
        return _WRAPPED_CALL
    return {"torch_oom": _WRAPPED_MEMORY, "nccl_timeout": _WRAPPED_CALL}.get(event.kind, 0)


def _read_memory(record: Record, text: str) -> Event | None:
    if _may_be_memory(text) and _MEMORY.search(text):
        return _event(record, "torch_oom", _memory(UserspaceDetail(rank=_rank(text)), text))
    if ("KV cache" in text or "cache blocks" in text or "Free memory" in text) and (cache := _KV_CACHE.search(text)):
        return _event(record, "torch_oom", _kv_cache(UserspaceDetail(message=cache[0], rank=_rank(text)), cache))
    return None


@lru_cache(maxsize=256)
def _begins(text: str) -> bool:
    """Whether a line begins a report of its own, and does not go on with one that a terminal has broken."""
    return _may_be_memory(text) and not text.lstrip().startswith("Tried to allocate") and _MEMORY.search(text) is not None


def _may_be_memory(text: str) -> bool:
    """Whether one of the words is there without which memory did not run out: cheaper than the pattern."""
    return "ut of memory" in text or "Tried to allocate" in text or "exceed allowed memory" in text or "OOM when" in text


def _kv_cache(detail: UserspaceDetail, found: re.Match[str]) -> UserspaceDetail:
    """The refusals of vLLM at its start: figures in GiB of the card, or of the room that is left for the cache."""
    if found["wanted"]:
        tried, free, total = (float(found[name]) * 2**30 for name in ("wanted", "free", "total"))
        detail = replace(detail, tried=tried, free=free, total=total, in_use=0.0)
        return replace(detail, shortage=shortage_of(detail))
    if found[1]:
        detail = replace(detail, tried=float(found[1]) * _UNIT[found[2]], free=float(found[3]) * _UNIT[found[4]])
    return replace(detail, shortage="kv_cache")


def _read_timeout(record: Record, text: str) -> Event | None:
    timeout = _TIMEOUT.search(text) if _SAID_ON_TIMEOUT in text else None
    if timeout is None:
        return _read_heartbeat(record, text)
    group = _GROUP.search(text)
    rank = int(timeout["rank"]) if timeout["rank"] else _rank(text)
    detail = UserspaceDetail(message=_SAID_ON_TIMEOUT, rank=rank, group=(group[2] or group[1]) if group else None)
    return _event(record, "nccl_timeout", _call(detail, text))


def _read_heartbeat(record: Record, text: str) -> Event | None:
    if (monitor := _HEARTBEAT.search(text)) is None:
        return None
    detail = UserspaceDetail(message=monitor[0], rank=_rank(text), timeout_ms=_limit_ms(monitor))
    return replace(_event(record, "nccl_timeout", detail), what=_WATCHDOG_STUCK)


def _limit_ms(monitor: re.Match[str]) -> int | None:
    return int(monitor["seconds"]) * 1000 if monitor["seconds"] else None


def _read_preemption(record: Record, text: str) -> Event | None:
    preempted = _PREEMPTED.search(text) if "reempt" in text else None
    if preempted is None:
        return None
    total = _CUMULATIVE.search(text)
    detail = UserspaceDetail(
        message=preempted[0],
        group=preempted["group"] or preempted["request"] or preempted["v1"],
        mode=preempted["mode"] or ("RECOMPUTE" if preempted["times"] else None),
        cumulative=int(total[1]) if total else None,
    )
    # V0 prints one preemption of fifty and the running total with it.
    event = _event(record, "vllm_preemption", detail)
    return replace(event, count_is_minimum=preempted["times"] is not None or total is not None)


def _read_cuda(record: Record, text: str) -> Event | None:
    if _ASSERT.search(text):
        detail = UserspaceDetail(message=text.strip(), rank=_rank(text))
        return replace(_event(record, "cuda_error", detail), what=_DEVICE_ASSERT)
    detail = UserspaceDetail(rank=_rank(text))
    if message := _cuda_message(text):
        if buffer := _BUFFER.search(text):
            detail = replace(detail, tried=float(buffer[1]) * _UNIT[buffer[2]], device=int(buffer[3]))
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
    return _named(event, detail)


def _named(event: Event, detail: UserspaceDetail) -> Event:
    """The event with its detail; a process that PyTorch could not recognise as itself is known by what it holds."""
    if event.kind == "torch_oom" and detail.others and detail.in_use is None and (own := _itself(detail)) is not None:
        others = tuple(other for other in detail.others if other[0] != own[0])
        detail = replace(detail, others=others, in_use=own[1])
        event = replace(event, pid=own[0])
    if detail.others:
        detail = replace(detail, other_pid=max(detail.others, key=lambda other: other[1])[0])
    if event.kind == "torch_oom" and detail.shortage != "kv_cache":
        detail = replace(detail, shortage=shortage_of(detail))
    return event if detail is event.detail else replace(event, detail=detail)


def _itself(detail: UserspaceDetail) -> tuple[int, float] | None:
    """PyTorch in a container sees pids of another namespace: it is the only process that can hold what it has reserved."""
    if detail.allocated is None:
        return detail.others[0] if len(detail.others) == 1 else None
    reserved = detail.allocated + (detail.reserved_unallocated or 0.0)
    able = [other for other in detail.others if 0.99 * reserved <= other[1] <= reserved + _LARGEST_CONTEXT]
    return able[0] if len(able) == 1 else None


def _rank(text: str) -> int | None:
    found = _RANK.search(text)
    return int(found[1] or found[2] or found[3]) if found else None


def _memory(detail: UserspaceDetail, text: str) -> UserspaceDetail:
    found: dict[str, float] = {}
    for field, pattern in _SIZES.items():
        if getattr(detail, field) is None and (size := pattern.search(text)):
            number, unit = (group for group in size.groups() if group is not None)
            found[field] = float(number) * _UNIT[unit]
    device = _DEVICE.search(text)
    others = {int(pid): float(number) * _UNIT[unit] for pid, number, unit in _PROCESS.findall(text)}
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
        allowed=found.get("allowed", detail.allowed),
        device=_number(detail.device, (device[1] or device[2]) if device else None),
        others=tuple((dict(detail.others) | others).items()) if others else detail.others,
    )


def _call(detail: UserspaceDetail, text: str) -> UserspaceDetail:
    found = {field: match[1] for field, pattern in _CALL.items() if (match := pattern.search(text))}
    return replace(
        detail,
        op=detail.op or found.get("op"),
        seq=_number(detail.seq, found.get("seq")),
        timeout_ms=_number(detail.timeout_ms, found.get("timeout_ms")),
        ran_ms=_number(detail.ran_ms, found.get("ran_ms")),
        elements=_number(detail.elements, found.get("elements")),
    )


def _number(known: int | None, found: str | None) -> int | None:
    return known if known is not None or found is None else int(found)


def _unwrapped(event: Event, detail: UserspaceDetail, record: Record) -> UserspaceDetail | None:
    """What the next lines of a wrapped message add."""
    if event.kind == "torch_oom":
        text = record.text
        if record.seq > event.last_record.seq + _WRAPPED_MEMORY:
            return None
        if _begins(text):
            return None
        richer = _memory(detail, text)
        if record.timed or len(detail.message) > _LONGEST_MESSAGE:
            return richer
        joined = f"{detail.message}\n{text.strip()}"
        whole = _memory(richer, joined)
        return replace(whole, message=joined) if whole != detail else None
    soon = record.seq <= event.last_record.seq + 3
    if event.kind == "nccl_timeout" and detail.ran_ms is None and soon and _WRAPPED.search(record.text):
        return _call(detail, record.text)
    return None


def _repeated(event: Event, detail: UserspaceDetail, text: str) -> Event | None:
    if "terminated with exception: [" not in text and "what(): " not in text:
        return None
    again = _TIMEOUT.search(text)
    seq = _CALL["seq"].search(text)
    same_seq = seq is None or detail.seq is None or int(seq[1]) == detail.seq
    same_rank = again is None or again["rank"] is None or detail.rank is None or int(again["rank"]) == detail.rank
    if not _AGAIN.search(text) or not same_seq or not same_rank:
        return None
    return replace(event, detail=_call(detail, text), lines=event.lines + 1)


def _cuda_message(text: str) -> str | None:
    """The error's own words without the advice that PyTorch prints behind them; None when the text is source code."""
    found = _CUDA.search(text)
    if found is None:
        return None
    said = next((found[name] for name in _SAID if found[name]), None)
    if said is None:
        said = f"CUDA_ERROR_{found['name']}" if found["name"] else f"NVMLError_{found['nvml']}"
    if _CODE.match(said):
        return None
    return _AFTERWORD.split(said, maxsplit=1)[0].strip(" .'\"`:;,") or None
