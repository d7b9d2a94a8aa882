"""A crash of the kernel inside an NVIDIA module.

The first line does not say whose crash it is: the event stays provisional until the instruction pointer, or a reliable frame,
lies in an nvidia module. Source: Linux arch/x86/kernel/dumpstack.c, arch/x86/mm/fault.c, arch/arm64/kernel/traps.c.
"""

from __future__ import annotations

from dataclasses import replace

from xidwatch.core.event import Event, NvrmDetail
from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record, gap_s

OOPS_LITERALS: tuple[str, ...] = (
    "BUG: unable to handle", "BUG: kernel NULL pointer", "Unable to handle kernel", "kernel BUG at", "Oops: ",
    "general protection fault",
)  # fmt: skip
OOPS_FURTHER: tuple[str, ...] = (
    "CPU: ", "+0x", "#PF: ", "PGD ", "Oops: ", "Internal error: ", "invalid opcode: ", "Hardware name: ", "RIP: 0010",
    "Call Trace:", "Call trace:", "Mem abort", "pstate: ", "pc : ",
)  # fmt: skip

# With `ip:` behind it a general protection fault is a program's, not the kernel's.
_OOPS = lazy(
    r"BUG: (?:unable to handle|kernel NULL pointer)|Unable to handle kernel|kernel BUG at |\bOops: "
    r"|general protection fault(?!.*(?: ip:|\berror:\d+ in ))"
)
_CPU = lazy(r"CPU: \d+ (?:UID: \d+ )?PID: (\d+) Comm: (.+?)(?: (?:Tainted: |Not tainted|Kdump: ).*)?$")
_NVIDIA_FRAME = lazy(
    r"(?:RIP: [0-9a-f]{4}:|pc : |lr : |(?:\[[ <0-9a-f.>]+\] )?)(?P<function>[\w.]+)\+0x[0-9a-f]+/0x[0-9a-f]+"
    r" \[nvidia\w*(?: [0-9a-f]+)?\]"
)
_BLOCK = lazy(
    r"#PF: |PGD |Oops: |Internal error: |invalid opcode: |Hardware name: |RIP: 0010|Call [Tt]race:|Mem abort|pstate: |pc : "
)
_BLOCK_S = 2.0
OOPS_OPEN_FOR = 60


def start_oops(record: Record) -> Event | None:
    """A provisional event on the first line of any kernel crash."""
    if not _OOPS.search(record.text):
        return None
    return Event(
        uid=(record.stream, record.seq, 0),
        kind="nvrm",
        what="kernel_oops",
        record=record,
        last_record=record,
        provisional=True,
        detail=NvrmDetail(message=record.text),
    )


def extend_oops(event: Event, record: Record) -> Event | None:
    """The crashing task's pid and name; then the frame that proves it, from which on the event is given out."""
    text = record.text.strip()
    gap = gap_s(event.last_record, record)
    if (gap is not None and not 0 <= gap <= _BLOCK_S) or not isinstance(event.detail, NvrmDetail):
        return None
    if cpu := _CPU.search(text):
        return replace(event, pid=int(cpu[1]), process=cpu[2], pid_role="owner", last_record=record)
    if frame := _NVIDIA_FRAME.match(text):
        return replace(event, provisional=False, last_record=record, detail=replace(event.detail, function=frame["function"]))
    return replace(event, last_record=record) if _BLOCK.match(text) else None
