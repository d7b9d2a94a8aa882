"""Lockups and RCU stalls: a CPU that no longer schedules.

Sources: Linux kernel/watchdog.c, kernel/watchdog_hld.c, kernel/rcu/tree_stall.h, tree_exp.h; arch/powerpc/kernel/watchdog.c.
"""

from __future__ import annotations

import re
from dataclasses import replace

from xidwatch.core.event import Event, Kind, LockupDetail
from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record, gap_s
from xidwatch.core.stack import (
    FRAME_WORDS,
    added,
    gpu_frame,
    is_gpu_thread,
    may_be_kernel,
    parse_frame,
    read_frames,
    read_instruction,
)

LITERALS: tuple[str, ...] = (
    "BUG: soft lockup",
    "hard LOCKUP",
    "Hard LOCKUP",
    "detected stall",
    "self-detected stall",
    "detected expedited stalls",
    "INFO: RCU detected CPU",
)
FURTHER: tuple[str, ...] = (
    ": (", "(t=", "(detected by ", "Tasks blocked on level", "kthread timer wakeup", "kthread starved for",
    "kthread stack dump", "CPU: ", "NMI backtrace for cpu", "RIP: 0010:", "pc : ", "NIP [", "expedited stall", *FRAME_WORDS,
)  # fmt: skip
_LONGEST_BLOCK = 200
_BLOCK_GAP_S = 20.0

_SOFT = lazy(
    r"(?:(?:NMI )?watchdog: )?BUG: soft lockup - CPU#(?P<cpus>\d+) stuck for (?P<s>\d+)s!"
    r"(?: \[(?P<name>.{0,120}):(?P<pid>\d+)\])?"
    r"|BUG: soft lockup detected on CPU#(?P<old>\d+)"  # 2.6.18
)
_HARD = lazy(
    r"(?:(?:NMI )?watchdog: (?:CPU ?\d+:? )?(?:Watchdog )?detected hard LOCKUP on (?:cpu|other CPUs) (?P<cpus>\d+[\d,-]*)"
    r"|watchdog: CPU (?P<old>\d+) (?:self-detected hard|Hard) LOCKUP)"  # powerpc
)
_HARD_PANIC = lazy(r"Kernel panic - not syncing: (?:Watchdog detected hard LOCKUP(?: on cpu (?P<cpus>\d+))?|Hard LOCKUP)")
_RCU = lazy(
    r"(?:rcu: )?INFO: \w+ (?:self-)?detected (?:expedited )?stalls? on (?:CPUs/tasks|CPUs|CPU|tasks)\b(?P<rest>.*)"
    r"|INFO: RCU detected CPU (?:(?P<cpus>\d+) stall|stalls:(?P<old>[ \d]+))",  # 2.6
    re.DOTALL,
)
_BRACES = lazy(r"\{([^}]*)\}")
_MEMBER = lazy(r"(?<!P)\b(\d+)\b(?:-\S*)?")
_STALLED = lazy(r"^\s*(?:rcu:)?\s*(\d+)(?:-[^:\s]{3,6})?: \(", re.MULTILINE)
_RCU_MORE = lazy(r"^\s*(?:rcu:)?\s*(?:\((?:t=\d+ jiffies|detected by \d+)|Tasks blocked on level)|kthread timer wakeup")
_OTHER_STACK = lazy(r"kthread starved for|grace-period kthread stack dump")
_DUMP = lazy(
    r"^\s*CPU: (?P<cpu>\d+) (?:UID: \d+ )?PID: (?P<pid>\d+) Comm: (?P<name>.*?) (?:Kdump: \w+ )?(?:Not tainted|Tainted:)"
)
_NMI = lazy(r"NMI backtrace for cpu (\d+)")
_HEADS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("soft_lockup", _SOFT),
    ("hard_lockup", _HARD),
    ("hard_lockup", _HARD_PANIC),
    ("rcu_stall", _RCU),
)
_REPORTING = lazy(
    r"_*(?:dump_stack|show_|nmi_|arch_trigger|trigger_|rcu_|print_cpu_stall|check_cpu_stall|watchdog|update_process_times|tick_|hrtimer_"
    r"|sysvec_|asm_|apic_|smp_apic|irq_exit|panic|handle_irq|local_apic|sched_clock|perf_|do_nmi|end_repeat_nmi|default_do_nmi|exc_nmi"
    r"|ret_from_fork|kthread|worker_thread|process_one_work)"
)  # fmt: skip


def start(record: Record) -> tuple[Event, ...]:
    """The lockup or stall that begins on this record.

    The bare `Watchdog detected hard LOCKUP` under a `WARNING:` of Linux 3.x is left out: it stands in every such oops.
    """
    for kind, pattern in _HEADS:
        if (head := pattern.search(record.text)) and may_be_kernel(record, head):
            return (_judged(_event(record, kind, head.groupdict())),)
    return ()


def extend(event: Event, record: Record) -> Event | None:
    """The same lockup with what a further line says: CPUs, task, stack, or the panic that it led to."""
    detail = event.detail
    if record.program is not None or not isinstance(detail, LockupDetail):
        return None
    gap = gap_s(event.last_record, record)
    if gap is not None and not -_BLOCK_GAP_S <= gap <= _BLOCK_GAP_S:
        return None
    text = record.text
    if event.kind == "hard_lockup" and (_HARD_PANIC.search(text) or _is_second_hard(detail, text)):
        return replace(event, last_record=record)
    if event.kind == "rcu_stall" and (richer := _read_stall(event, detail, record)) is not None:
        return richer
    found = _read_dump(event, detail, text)
    return _judged(replace(found, last_record=record)) if found is not None else None


def open_for(event: Event) -> int:
    """How many further records may belong to it."""
    return _LONGEST_BLOCK


def _event(record: Record, kind: Kind, head: dict[str, str | None]) -> Event:
    cpus = _numbers(head.get("cpus") or head.get("old")) or _stalled(head.get("rest"))
    seconds, pid = head.get("s"), head.get("pid")
    return Event(
        uid=(record.stream, record.seq, 0),
        kind=kind,
        record=record,
        last_record=record,
        process=head.get("name") or None,
        pid=int(pid) if pid else None,
        detail=LockupDetail(cpu=cpus[0] if cpus else None, cpus=cpus, stuck_s=int(seconds) if seconds else None),
    )


def _numbers(text: str | None) -> tuple[int, ...]:
    """CPU numbers of a list such as `4,6-7`; a range counts with its ends."""
    return tuple(dict.fromkeys(int(number) for number in re.findall(r"\d+", text or "")))


def _stalled(rest: str | None) -> tuple[int, ...]:
    """CPUs behind `stall on CPU`: ` 0 (t=...`, `{ 17}`, `: { 18-...D P123 }`, or detail lines in the same record."""
    if rest is None:
        return ()
    if braces := _BRACES.search(rest):
        return tuple(int(number) for number in _MEMBER.findall(braces[1]))
    if alone := re.match(r" (\d+)\b", rest):
        return (int(alone[1]),)
    return tuple(int(number) for number in _STALLED.findall(rest))


def _is_second_hard(detail: LockupDetail, text: str) -> bool:
    """On powerpc the stuck CPU speaks again, after the one that saw it."""
    again = re.search(r"watchdog: CPU (\d+) Hard LOCKUP", text)
    return again is not None and int(again[1]) in detail.cpus


def _read_stall(event: Event, detail: LockupDetail, record: Record) -> Event | None:
    text = record.text
    if stall := _RCU.search(text):
        # Two CPUs notice one stall at the same moment: before either has named it, the second line is the same stall.
        same = not detail.cpus and not detail.stack and not _stalled(stall["rest"]) and event.last_record is event.record
        return replace(event, lines=event.lines + 1, last_record=record) if same else None
    if found := _STALLED.findall(text):
        cpus = tuple(dict.fromkeys((*detail.cpus, *map(int, found))))
        return replace(event, detail=replace(detail, cpu=cpus[0], cpus=cpus), last_record=record)
    if _OTHER_STACK.search(text):
        return replace(event, detail=replace(detail, in_block=False), last_record=record)
    if _RCU_MORE.search(text):
        return replace(event, last_record=record)
    return None


def _read_dump(event: Event, detail: LockupDetail, text: str) -> Event | None:
    if nmi := _NMI.search(text):
        return replace(event, detail=replace(detail, in_block=_is_ours(detail, int(nmi[1]))))
    if dump := _DUMP.match(text):
        if not _is_ours(detail, int(dump["cpu"])):
            return replace(event, detail=replace(detail, in_block=False))
        mine = replace(event, detail=replace(detail, in_block=True))
        return mine if event.pid is not None else replace(mine, pid=int(dump["pid"]), process=dump["name"])
    if not detail.in_block:
        return None
    here = read_instruction(text)
    frames = (here,) if here else tuple(frame for frame in read_frames(text) if frame.reliable)
    if frames:
        return replace(event, detail=replace(detail, stack=added(detail.stack, frames)))
    return event if read_frames(text) else None


def _is_ours(detail: LockupDetail, cpu: int) -> bool:
    return not detail.cpus or cpu in detail.cpus


def _judged(event: Event) -> Event:
    detail = event.detail
    if not isinstance(detail, LockupDetail):
        return event
    frames = tuple(map(parse_frame, detail.stack))
    related: bool | None = None
    if gpu_frame(frames) is not None or (event.process and is_gpu_thread(event.process)):
        related = True
    elif any(not _REPORTING.match(frame.function) for frame in frames):
        related = False
    return replace(event, detail=replace(detail, gpu_related=related))
