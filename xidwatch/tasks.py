"""Tasks in D state and holders of GPUs in the daemon: what the scan sees as events, state, metrics and jobs. Nothing waits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from xidwatch.clocks import Clocks
from xidwatch.config import DState
from xidwatch.core.blocked import Blocked, Hidden
from xidwatch.core.classify import RuleTable
from xidwatch.core.event import Context, Event, HungTaskDetail
from xidwatch.core.holders import Holder, sole_job, who
from xidwatch.core.job import Job
from xidwatch.core.record import Record
from xidwatch.core.wait import is_worth_an_incident, observation, with_owner
from xidwatch.render.as_blocked import way_out
from xidwatch.render.as_json import job_object
from xidwatch.sinks.history import TotalKey
from xidwatch.sources.machine import virtualization
from xidwatch.sources.procfs import ProcReader
from xidwatch.sources.taskscan import Earlier, Patience, TaskScan, View

SOURCE = "tasks"
"""Name of the source in the history; its position is the waits that go on."""
_STREAM = 9
_ENDED, _NOT_YET = "the thread that looks has ended", "the first look is still to come"
_OF_A_GPU = ("xid", "nvrm")
_MOST_TOLD = 1000
_MOST_OWNERS = 1000
_MOST_SHOWN = 100
_ASK_AGAIN_US = 5_000_000
_FRESH_US = 60_000_000
"""Lines older than this name pids that may be another's by now."""


@dataclass(slots=True)
class _Told:
    """A wait that is an event: the thread's number, and since when (wall clock) the kernel alone knows of it."""

    tid: int
    reported_us: int | None = None


class Tasks:
    """Owns the scan."""

    def __init__(
        self,
        settings: DState,
        earlier: Earlier,
        changed: Callable[[], None],
        clocks: Clocks,
        reader: Callable[[], ProcReader] = ProcReader,
    ) -> None:
        """Nothing is read before `start`. `changed` is called from another thread when there are news."""
        self._settings, self._clocks, self._boot_id = settings, clocks, earlier.boot_id
        self._host = os.uname().nodename
        self._told: dict[str, _Told] = {}
        self._owners: dict[int, str] = {}
        self._asked: dict[int, int] = {}
        self._by_pid: tuple[tuple[Holder, ...], dict[int, list[Holder]]] = ((), {})
        self._heeded: View | None = None
        self._looked_at: View | None = None
        self._reported_anew = False
        self._shown: list[object] = []
        setting, _ = virtualization()
        self._guest = None if setting is None else setting == "guest"
        self._seq = 0
        self._scan: TaskScan | None = None
        self._why: str | None = "switched off in the configuration" if settings.scan == "off" else None
        if settings.scan == "off":
            return
        try:
            patience = Patience(gpu_s=settings.gpu_after_s, others_s=settings.others_after_s)
            self._scan = TaskScan(reader(), patience, changed, earlier, clocks)
        except OSError as error:
            self._why = f"/proc cannot be read: {error}"

    def start(self) -> None:
        """Begin to look."""
        if self._scan is not None:
            self._scan.start()

    def turn(self) -> None:
        """Look once, in the caller's thread; for tests."""
        if self._scan is not None:
            self._scan.turn()

    def reads_under_way(self) -> int:
        """How many reads that may wait have not returned yet."""
        return self._scan.reads_under_way() if self._scan is not None else 0

    def close(self) -> None:
        """Stop looking; nothing is waited for."""
        if self._scan is not None:
            self._scan.close()

    def position(self) -> str:
        """Where a later run goes on."""
        return self._scan.position if self._scan is not None else ""

    # what others tell

    def gpu_processes(self, found: Mapping[int, tuple[str, ...]]) -> None:
        """Who uses which GPU, by NVML's own lists."""
        if self._scan is not None:
            self._scan.gpu_processes(found)

    def heard(self, event: Event) -> None:
        """A line names a pid: it is looked up at once, before it is gone. What was logged long ago is not."""
        pid, now_us = event.pid, self._clocks.wall_us()
        if (
            self._scan is None
            or pid is None
            or not self._scan.view.sight.host_pids
            or any(one.dead_s is None for one in self._holders(pid))
        ):
            return
        if now_us - self._asked.get(pid, 0) < _ASK_AGAIN_US:
            return
        if event.record.wall_us is None or abs(now_us - event.record.wall_us) > _FRESH_US:
            return
        if len(self._asked) >= _MOST_OWNERS:
            self._asked.clear()
        if self._scan.ask(pid):
            self._asked[pid] = now_us

    def awaits(self, event: Event) -> bool:
        """Whether the answer to whose an event's pid is is on its way."""
        return self._scan is not None and event.pid in self._asked and not self._scan.answered(event.pid)

    def replayed(self, identity: str, item: Event | Context) -> None:
        """What an earlier run has told; also what is kept of this one."""
        if isinstance(item, Context):
            if item.kind == "task_released":
                self._told.pop(identity.removesuffix("/released"), None)
            return
        if not isinstance(item.detail, HungTaskDetail) or item.pid is None or item.record.boot_id != self._boot_id:
            return
        if item.detail.seen_by is not None:
            self._tell(identity, _Told(item.pid))
        elif self._scan is None or not self._scan.view.sight.host_pids:
            return
        elif not any(told.tid == item.pid for told in self._told.values()):
            self._tell(f"task/{self._boot_id or '-'}/{item.pid}/{identity}", _Told(item.pid, item.record.wall_us or 0))
        if item.detail.blocked_by is not None:
            self._owners[item.pid] = item.detail.blocked_by
            if len(self._owners) > _MOST_OWNERS:
                del self._owners[next(iter(self._owners))]

    def _tell(self, name: str, told: _Told) -> None:
        self._told[name] = told
        self._reported_anew = True
        if len(self._told) > _MOST_TOLD:
            del self._told[next(iter(self._told))]

    # what the loop takes

    def whose(self, event: Event) -> Job | None:
        """Whose job an event's pid is, or was when the line was written; without a pid the only job on the GPU."""
        if self._scan is None or not self._scan.view.sight.host_pids:
            return None
        if event.pid is None:
            return self._job_on(event) if event.kind in _OF_A_GPU and event.gpu_instance is None else None
        found = self._scan.found(event.pid)
        known = [*self._holders(event.pid), *([found] if found is not None else [])]
        holder = who(known, event.pid, event.record.wall_us)
        return holder.job if holder is not None and holder.job else None

    def _job_on(self, event: Event) -> Job | None:
        view, pci = self._view(), event.pci
        return sole_job(view.holders, str(pci), event.record.wall_us) if view is not None and pci is not None else None

    def news(self) -> Iterator[tuple[str, Event | Context]]:
        """(identity, event) of waits that have become incidents' matter, (identity, context) of those that are over."""
        view = self._view()
        if view is None or not view.complete or (view is self._heeded and not self._reported_anew):
            return
        self._heeded, self._reported_anew = view, False
        for blocked in self._blocked(view):
            long = blocked.at_least_s >= self._settings.incident_after_s and is_worth_an_incident(blocked)
            if long and blocked.spell not in self._told and len(self._told) < _MOST_TOLD:
                self._tell(blocked.spell, _Told(blocked.task.key.tid))
                yield blocked.spell, observation(blocked, self._record(_said(blocked)))
        waiting = {int(name.split("/")[2]) for name in view.open}
        looked_us = view.cost.at_us or 0
        for name, told in list(self._told.items()):
            if told.reported_us is None:
                over = name not in view.open
            else:
                over = told.tid not in waiting and looked_us > told.reported_us
            if over:
                del self._told[name]
                text = f"task {told.tid} is not in D state any more (seen in /proc)"
                yield (
                    f"{name}/released",
                    Context(kind="task_released", record=self._record(text), facts=(("pid", str(told.tid)),)),
                )

    def changed(self) -> bool:
        """Whether other waits are told than when this was last asked."""
        view = self._view()
        if view is self._looked_at:
            return False
        self._looked_at = view
        told: list[object] = []
        if view is not None:
            told = [view.complete, *((one.spell, one.wait.attribution, one.wait.killable) for one in view.blocked)]
        before, self._shown = self._shown, told
        return before != told

    def readings(self) -> Mapping[TotalKey, float]:
        """The series that the scan fills."""
        view = self._view()
        up: TotalKey = ("xidwatch_task_scan_up", ())
        if view is None or self._scan is None:
            return {} if self._settings.scan == "off" else {up: 0.0}
        series: dict[TotalKey, float] = {
            up: float(self._scan.alive() and view.sight.processes and view.why is None),
            ("xidwatch_task_scans_total", ()): float(view.cost.passes_total),
            ("xidwatch_task_scan_cpu_seconds_total", ()): view.cost.cpu_s_total,
            ("xidwatch_task_scan_interval_seconds", ()): view.cost.interval_s,
            ("xidwatch_task_scan_tasks", ()): float(view.cost.tasks),
            ("xidwatch_task_reads_stuck", ()): float(view.unread),
        }
        now_us = self._clocks.wall_us()
        for blocked in view.blocked:
            label = (("attribution", blocked.wait.attribution),)
            count: TotalKey = ("xidwatch_tasks_blocked", label)
            longest: TotalKey = ("xidwatch_task_blocked_seconds_max", label)
            series[count] = series.get(count, 0.0) + 1
            series[longest] = max(series.get(longest, 0.0), blocked.at_least_s, (now_us - blocked.since_us) / 1e6)
        return series

    def state(self, rules: RuleTable) -> dict[str, Any]:
        """`blocked[]`, `holders[]` and `d_state` of state.json."""
        view = self._view()
        if view is None or self._scan is None:
            return {
                "blocked": [],
                "holders": [],
                "d_state": {"up": False, "why": self._why, "scan": self._settings.scan, "cannot_see": []},
            }
        now_us = self._clocks.wall_us()
        alive = self._scan.alive() and view.why is None
        return {
            "blocked": [
                blocked_object(one, now_us) | {"way_out": way_out(one, rules, guest=self._guest)}
                for one in self._blocked(view)[:_MOST_SHOWN]
            ],
            "holders": [_holder_object(one) for one in islice(filter(_holds, view.holders), _MOST_SHOWN)],
            "d_state": {
                "up": alive,
                "scan": self._settings.scan,
                "why": view.why or (None if alive else _ENDED if self._scan.begun() else _NOT_YET),
                "cannot_see": list(view.sight.blind_spots()),
                "tasks": view.cost.tasks,
                "blocked": len(view.blocked),
                "not_followed": view.beyond,
                "interval_s": view.cost.interval_s,
                "looked_us": view.cost.at_us,
                "cpu_s": round(view.cost.cpu_s_total, 3),
                "stuck_reads": view.unread,
            },
        }

    # parts

    def _view(self) -> View | None:
        return self._scan.view if self._scan is not None else None

    def _blocked(self, view: View) -> list[Blocked]:
        owners = self._owners
        return [with_owner(one, owners[one.task.key.tid]) if one.task.key.tid in owners else one for one in view.blocked]

    def _holders(self, pid: int) -> list[Holder]:
        """Of a pid; the table is sorted out anew whenever it was replaced, so that a storm of lines costs little."""
        view = self._view()
        if view is None:
            return []
        if self._by_pid[0] is not view.holders:
            sorted_out: dict[int, list[Holder]] = {}
            for one in view.holders:
                sorted_out.setdefault(one.pid, []).append(one)
            self._by_pid = view.holders, sorted_out
        return self._by_pid[1].get(pid, [])

    def _record(self, text: str) -> Record:
        self._seq += 1
        return Record(
            text=text, stream=_STREAM, seq=self._seq, line=self._seq, wall_us=self._clocks.wall_us(),
            since_boot_us=round(self._clocks.steady_s() * 1e6), boot_id=self._boot_id, host=self._host, trusted="kernel",
            time_source="arrival",
        )  # fmt: skip


def _said(blocked: Blocked) -> str:
    key = blocked.task.key
    return f"task {blocked.task.comm}:{key.tid} in D state for at least {blocked.at_least_s:.0f} seconds (seen in /proc)"


def blocked_object(blocked: Blocked, now_us: int) -> dict[str, Any]:
    """One of `blocked[]` in state.json; what could not be read is null, and `hidden` has the reason."""
    task, wait, evidence = blocked.task, blocked.wait, blocked.evidence
    told = {name: getattr(evidence, name) for name in ("stack", "wchan", "syscall", "file", "devices")}
    return {
        "pid": task.key.pid,
        "tid": task.key.tid,
        "inner_pid": task.inner_pid,
        "process": task.comm,
        "kernel_thread": task.kernel_thread,
        "since_us": blocked.since_us,
        "at_least_s": round(max(blocked.at_least_s, (now_us - blocked.since_us) / 1e6), 1),
        "attribution": wait.attribution,
        "why": wait.why,
        "killable": wait.killable,
        "killable_why": wait.killable_why,
        "waits_for": wait.waits_for,
        "together": blocked.together,
        **{name: None if isinstance(value, Hidden) else value for name, value in told.items()},
        "hidden": {name: value.why for name, value in told.items() if isinstance(value, Hidden)},
        "job": job_object(evidence.job if isinstance(evidence.job, Job) else None),
    }


def _holds(holder: Holder) -> bool:
    return bool(holder.gpus or holder.devices)


def _holder_object(holder: Holder) -> dict[str, Any]:
    return {
        "pid": holder.pid,
        "process": holder.comm,
        "gpus": holder.gpus,
        "devices": holder.devices,
        "alive": holder.dead_s is None,
        "job": job_object(holder.job),
    }
