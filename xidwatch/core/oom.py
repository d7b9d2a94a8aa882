"""Kills by the kernel's out-of-memory killer (mm/oom_kill.c, mm/memcontrol.c; Linux 2.6 to 7.0)."""

from __future__ import annotations

import re
from dataclasses import replace

from xidwatch.core.event import Event, OomDetail
from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record, gap_s
from xidwatch.core.stack import may_be_kernel

LITERALS: tuple[str, ...] = ("oom-kill:", "ut of memory", "ut of Memory", "Killed process", "deadlocked on memory")
FURTHER: tuple[str, ...] = ("oom_reaper: ", "ill process ", "illed process ", "CPU: ")
_LONGEST_BLOCK = 40
_SAME_KILL_S = 5.0

_SUMMARY = lazy(r"oom-kill:constraint=(?P<constraint>\w+),.*,task=(?P<name>.*),pid=(?P<pid>\d+)", re.DOTALL)
_CGROUP = lazy(r"\boom_memcg=([^,\s]+)|\btask_memcg=([^,\s]+)")
_KILL = lazy(
    r"(?P<why>(?P<memcg>[Mm]emory cgroup )?[Oo]ut of [Mm]emory[^:\n]*: )?(?P<verb>[Kk]ill(?:ed)?) process (?P<pid>\d+),?"
    r"(?: UID (?P<uid>\d+),)? \((?P<name>.{0,120}?)\)(?P<rest>,? ?(?:total-vm|vsz|score|UID|or )|[.,]?\s*$|, )",
    re.DOTALL,
)
_ANON = lazy(r"\banon-rss:(\d+)kB")
_REAPER = lazy(r"oom_reaper: (?:reaped process |unable to reap pid:)(\d+)")
_PANIC = lazy(
    r"Kernel panic - not syncing: (?:[Oo]ut of memory|System is deadlocked on memory)|Out of memory: [\w-]*\s*panic_on_oom"
)
_NO_VICTIM = lazy(r"[Oo]ut of memory and no killable processes")
_ASKER = lazy(r"^\s*CPU: \d+ (?:UID: \d+ )?PID: (?P<pid>\d+) Comm: (?P<name>.*?) (?:Kdump: \w+ )?(?:Not tainted|Tainted:)")


def start(record: Record) -> tuple[Event, ...]:
    """The kill that begins on this record; `X invoked oom-killer` alone kills nobody and begins none.

    A panic for want of memory is an event too: its process is the one that asked for memory, where a later line names it.
    """
    text = record.text
    if summary := _SUMMARY.search(text):
        constraint = summary["constraint"]
        detail = OomDetail(memcg=constraint == "CONSTRAINT_MEMCG", constraint=constraint, cgroup=_cgroup(text))
        return _begin(record, summary, summary["name"], detail)
    kill = _KILL.search(text)
    if kill and (kill["why"] or kill["rest"].lstrip(", ").startswith(("total-vm", "vsz"))):
        return _begin(record, kill, kill["name"], _kill_detail(OomDetail(), kill, text))
    if panic := _PANIC.search(text):
        return _begin(record, panic, None, OomDetail(panic=True))
    if nobody := _NO_VICTIM.search(text):
        return _begin(record, nobody, None, OomDetail())
    return ()


def extend(event: Event, record: Record) -> Event | None:
    """The same kill with what its `Killed process`, oom_reaper or panic line says."""
    detail = event.detail
    if record.program is not None or not isinstance(detail, OomDetail):
        return None
    if (reaper := _REAPER.search(record.text)) and int(reaper[1]) == event.pid:
        return replace(event, last_record=record)
    gap = gap_s(event.last_record, record)
    if gap is not None and not -_SAME_KILL_S <= gap <= _SAME_KILL_S:
        return None
    richer = _read_kill(event, detail, record.text) if event.pid is not None else _read_asker(event, detail, record.text)
    return replace(richer, last_record=record) if richer is not None else None


def open_for(event: Event) -> int:
    """How many further records may belong to it: the reaper speaks late."""
    return _LONGEST_BLOCK


def _read_kill(event: Event, detail: OomDetail, text: str) -> Event | None:
    kill = _KILL.search(text)
    if kill is None or not _announced(event):
        return None
    same = int(kill["pid"]) == event.pid
    # `Kill process 456 ... or sacrifice child` may be followed by a child's own `Killed process 460`.
    child = kill["why"] is None and "rocess" in event.last_record.text
    if not same and not child:
        return None
    return replace(event, pid=int(kill["pid"]), process=kill["name"] or None, detail=_kill_detail(detail, kill, text))


def _read_asker(event: Event, detail: OomDetail, text: str) -> Event | None:
    if _PANIC.search(text):
        return replace(event, detail=replace(detail, panic=True))
    asker = _ASKER.match(text)
    return replace(event, pid=int(asker["pid"]), process=asker["name"]) if asker else None


def _begin(record: Record, match: re.Match[str], process: str | None, detail: OomDetail) -> tuple[Event, ...]:
    if not may_be_kernel(record, match):
        return ()
    pid = match.groupdict().get("pid")
    event = Event(
        uid=(record.stream, record.seq, 0),
        kind="oom_kill",
        record=record,
        last_record=record,
        pid=int(pid) if pid else None,
        process=process or None,
        detail=detail,
    )
    return (event,)


def _kill_detail(detail: OomDetail, kill: re.Match[str], text: str) -> OomDetail:
    anon = _ANON.search(text)
    return replace(
        detail,
        memcg=detail.memcg or kill["memcg"] is not None,
        anon_rss_bytes=int(anon[1]) * 1024 if anon else detail.anon_rss_bytes,
    )


def _announced(event: Event) -> bool:
    """Whether the latest line only named the victim: the summary, or the old `Kill process`."""
    text = event.last_record.text
    return "oom-kill:" in text or ((kill := _KILL.search(text)) is not None and kill["verb"].lower() == "kill")


def _cgroup(text: str) -> str | None:
    found = _CGROUP.search(text)
    return (found[1] or found[2]) if found else None
