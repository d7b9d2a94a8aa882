"""Looks for tasks in D state and for who holds the GPUs, in a thread of its own, as often as it is cheap.

- A pass over all tasks: at an interval that follows what the last one cost, `pass_interval_s`. On a quiet machine, where the
  load average proves that nothing can have been waiting for long, it is left out.
- Tasks that were in D, and the threads of those that hold a GPU: every few seconds.
- Pressure, and the kernel's own count of hung tasks, bring the next pass forward.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from xidwatch.clocks import Clocks
from xidwatch.core.blocked import Blocked, Evidence, Hidden, Moment, Sighting, Spell, Spells, spell_id
from xidwatch.core.holders import Holder, Holders, with_gpus
from xidwatch.core.wait import blocked_tasks, is_frozen
from xidwatch.sources.errands import GIVEN_UP_S, Errands
from xidwatch.sources.procfs import Pass, Pressure, ProcReader, Sight

LOOK_S = 5.0
_LEAST_S, _USUAL_MOST_S = 10.0, 60.0
_SHARE, _GREATEST_SHARE = 0.0006, 0.004
"""Of one core: what passes cost as long as their interval stays short, and on a machine with very many tasks."""
_HOLDER_SHARE = 0.0003
_HOLDER_MOST_S = 30.0
_BLIND_TRUST_S = 300.0
_STALLED = 0.2
_SHORTEST_REST_S = 0.02
_EVIDENCE_AFTER_S = 3.0
_MOST_EVIDENCE = 300
_LOOK_INTO_S = (0.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Ages, since it was first seen, at which a process's open files are looked through for a GPU; a program opens it late."""
_MOST_LOOKED_INTO = 64
_ASK_AGAIN_S = 60.0
_MOST_ASKED = 10_000
_MOST_ASKED_AT_ONCE = 64
_MOST_FOUND = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a task may be in D without a break before it is told: one that holds a GPU, any other."""

    gpu_s: float = 30.0
    others_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """Which boot this is, and where an earlier run left off."""

    boot_id: str | None
    position: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What looking costs.

    Attributes:
        passes_total, cpu_s_total: Passes over all tasks; processor time of all looks.
        pass_s: Processor time of the latest pass.
        interval_s: Between two passes now.
        tasks: How many there were.
        at_us: Wall clock of the latest pass; None before the first.
        skipped_total: Passes left out because the load proved that nothing waits.
    """

    passes_total: int = 0
    cpu_s_total: float = 0.0
    pass_s: float = 0.0
    interval_s: float = _LEAST_S
    tasks: int = 0
    at_us: int | None = None
    skipped_total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is known now; never changed, only replaced.

    Attributes:
        blocked: Tasks that have waited for long, longest first.
        open: Names of all waits that go on, also the short ones.
        complete: All tasks have been looked at since the start.
        beyond: Waits that were not followed because there were too many.
        unread: Threads that are stuck in reading a file of a stuck task.
    """

    blocked: tuple[Blocked, ...] = ()
    open: frozenset[str] = frozenset()
    complete: bool = False
    beyond: int = 0
    holders: tuple[Holder, ...] = ()
    sight: Sight
    cost: Cost = field(default_factory=Cost)
    unread: int = 0
    why: str | None = None


def pass_interval_s(cost_s: float) -> float:
    """Seconds between two passes that cost this much processor time each.

    0.06 % of a core up to a minute between them, and never more than 0.4 %.
    """
    return max(_LEAST_S, min(_USUAL_MOST_S, cost_s / _SHARE), cost_s / _GREATEST_SHARE)


def nothing_waits(pressure: Pressure, patience_s: float) -> bool:
    """Whether the load average proves that no task has been in D for `patience_s`.

    One that has adds 1 at every count of the last minute's average, which by then is 1 - e^(-t/60) by it alone
    (kernel/sched/loadavg.c). Half the time is asked for, since it is counted every 5 s only.
    """
    return pressure.load1 is not None and pressure.load1 < 1 - math.exp(-patience_s / 2 / 60)


class TaskScan:
    """Owns the thread. `view` may be read from any thread."""

    def __init__(
        self,
        reader: ProcReader,
        patience: Patience,
        changed: Callable[[], None],
        earlier: Earlier | None = None,
        clocks: Clocks | None = None,
    ) -> None:
        """Nothing is read before `start` or `turn`. `changed` is called from the thread when `view` shows something new."""
        self._reader, self._patience, self._changed = reader, patience, changed
        boot_id, position = (earlier.boot_id, earlier.position) if earlier is not None else (None, None)
        self._boot_id = boot_id
        self._clocks = clocks or Clocks()
        self._spells, self._holders = Spells(), Holders()
        self._spells.resume(position, boot_id)
        self._evidence: dict[str, Evidence] = {}
        self._asked: dict[str, float] = {}
        self._jobs_asked: dict[tuple[int, int], float] = {}
        self._nvml: Mapping[int, tuple[str, ...]] = {}
        self._found: dict[int, Holder | None] = {}
        self._learnt: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._looked_into: dict[tuple[int, int], tuple[float, int]] = {}
        self._minors: dict[int, str] = {}
        self._cost = Cost()
        self._pass_due_s = self._look_due_s = self._holders_due_s = self._minors_due_s = -math.inf
        self._hung_detected: int | None = None
        self._passed_s = -math.inf
        self._nudged, self._ended = threading.Event(), threading.Event()
        self._errands = Errands(self._nudged.set, self._clocks.steady_s)
        self._thread: threading.Thread | None = None
        self.position = self._spells.position(boot_id, self._now())
        self.view = View(sight=reader.sight)

    # from outside

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="tasks", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End; a look that is going on is not waited for."""
        self._ended.set()
        self._nudged.set()
        self._errands.close()

    def begun(self) -> bool:
        """Whether it was started."""
        return self._thread is not None

    def alive(self) -> bool:
        """Whether the thread lives."""
        return self._thread is not None and self._thread.is_alive()

    def gpu_processes(self, found: Mapping[int, tuple[str, ...]]) -> None:
        """What NVML says of who uses which GPU (pid -> PCI addresses)."""
        if found != self._nvml:
            self._nvml = dict(found)
            self._holders_due_s = -math.inf
            self._nudged.set()

    def ask(self, pid: int) -> bool:
        """A line of the log has named this pid: find out whose it is while it lives. False when too many are asked for.

        The answer is in `found` a millisecond or two later, and `changed` is called.
        """
        self._found.pop(pid, None)
        return self._errands.under_way() < _MOST_ASKED_AT_ONCE and self._errands.send(partial(self._look_up, pid))

    def answered(self, pid: int) -> bool:
        """Whether a pid that was asked for has been looked up."""
        return pid in self._found

    def found(self, pid: int) -> Holder | None:
        """What was found for a pid that was asked for lately; None while that is not known, or when nobody has it."""
        return self._found.get(pid)

    def reads_under_way(self) -> int:
        """How many reads that may wait have not returned yet."""
        return self._errands.under_way()

    # the thread

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                rest_s = self.turn()
            except OSError as error:
                self.view = replace(self.view, why=f"/proc cannot be read: {error}")
                rest_s = _USUAL_MOST_S
            self._nudged.wait(rest_s)
            # However often a storm of lines asks, so many turns a second are enough.
            self._ended.wait(_SHORTEST_REST_S)
            self._nudged.clear()

    def turn(self) -> float:
        """Do what is due; gives how long there is nothing to do, in seconds."""
        began_s, now = time.thread_time(), self._now()
        self._errands.check()
        while not self._learnt.empty():
            self._learnt.get()()
        self._hurry(self._reader.pressure(), now)
        if now.steady_s >= self._pass_due_s:
            self._pass(now)
        elif len(self._spells) and now.steady_s >= self._look_due_s:
            self._look_again(now)
        if now.steady_s >= self._holders_due_s:
            self._look_at_holders(now)
        self._gather_evidence(now)
        self._cost = replace(self._cost, cpu_s_total=self._cost.cpu_s_total + time.thread_time() - began_s)
        self._publish(now)
        dues = [self._pass_due_s, self._holders_due_s, *([self._look_due_s] if len(self._spells) else [])]
        return max(0.05, min(_LEAST_S, min(dues) - self._clocks.steady_s()))

    def _now(self) -> Moment:
        return Moment(wall_us=self._clocks.wall_us(), steady_s=self._clocks.steady_s())

    # waits

    def _hurry(self, pressure: Pressure, now: Moment) -> None:
        """Bring the next pass forward, or leave it out."""
        rose = self._hung_detected is not None and pressure.hung_detected not in (None, self._hung_detected)
        self._hung_detected = pressure.hung_detected
        if rose or (pressure.stalled or 0.0) >= _STALLED:
            self._pass_due_s = min(self._pass_due_s, self._passed_s + max(_LEAST_S, self._cost.pass_s / _GREATEST_SHARE))
            return
        recent = now.steady_s - self._passed_s < _BLIND_TRUST_S and not len(self._spells)
        if now.steady_s >= self._pass_due_s and recent and nothing_waits(pressure, self._patience.others_s):
            self._cost = replace(self._cost, skipped_total=self._cost.skipped_total + 1)
            self._pass_due_s = now.steady_s + _LEAST_S

    def _pass(self, now: Moment) -> None:
        began_s = time.thread_time()
        gpus = self._reader.sight.traces and self._reader.may_hold_gpus()
        found = self._reader.all(processes=gpus)
        cost_s = time.thread_time() - began_s
        self._end(self._spells.saw(found.waiting, now))
        interval_s = pass_interval_s(cost_s)
        self._passed_s, self._pass_due_s = now.steady_s, now.steady_s + interval_s
        self._look_due_s = now.steady_s + LOOK_S
        self._cost = replace(
            self._cost, passes_total=self._cost.passes_total + 1, pass_s=cost_s, interval_s=interval_s, tasks=found.tasks,
            at_us=now.wall_us,
        )  # fmt: skip
        if gpus:
            self._look_into(found, now)

    def _look_again(self, now: Moment) -> None:
        began_s, keys = time.thread_time(), self._spells.keys()
        self._end(self._spells.saw(self._reader.look(keys), now, asked=keys))
        self._look_due_s = now.steady_s + max(LOOK_S, (time.thread_time() - began_s) / _GREATEST_SHARE)

    def _end(self, over: list[Spell]) -> None:
        for spell in over:
            name = spell_id(self._boot_id, spell)
            self._evidence.pop(name, None)
            self._asked.pop(name, None)

    def _gather_evidence(self, now: Moment) -> None:
        """Each wait is asked about once: as long as the task does not run, nothing of it changes."""
        for name, spell in self._followed():
            if now.steady_s - spell.since_s < _EVIDENCE_AFTER_S:
                break
            if (asked_s := self._asked.get(name)) is None:
                self._asked[name] = now.steady_s
                if not self._errands.send(partial(self._learn_evidence, name, spell.task)):
                    self._evidence[name] = _unread("too many reads of stuck tasks wait already")
            elif name not in self._evidence and now.steady_s - asked_s > GIVEN_UP_S:
                self._evidence[name] = _unread("reading it did not return")

    def _followed(self) -> Iterator[tuple[str, Spell]]:
        """The longest waits, by name; tasks that are frozen on purpose do not take others' places."""
        left = _MOST_EVIDENCE
        for spell in self._spells.all():
            name = spell_id(self._boot_id, spell)
            evidence = self._evidence.get(name)
            if evidence is None or not is_frozen(evidence):
                left -= 1
                yield name, spell
            if not left:
                return

    def _learn_evidence(self, name: str, task: Sighting) -> None:
        evidence = self._reader.evidence(task)
        self._learnt.put(partial(self._keep_evidence, name, evidence))

    def _keep_evidence(self, name: str, evidence: Evidence) -> None:
        """Unless the wait has ended meanwhile: nobody would forget it then."""
        if name in self._asked:
            self._evidence[name] = evidence

    def _publish(self, now: Moment) -> None:
        holding = {one.pid for one in self._holders.living() if one.devices or one.gpus}
        waits: list[tuple[Spell, Evidence]] = []
        for name, spell in self._followed():
            if (evidence := self._evidence.get(name)) is None:
                continue
            holds = spell.task.key.pid in holding or _holds(evidence)
            patience_s = self._patience.gpu_s if holds else self._patience.others_s
            if now.steady_s - spell.since_s >= patience_s:
                waits.append((spell, evidence))
        before, self.position = self.view, self._spells.position(self._boot_id, now)
        self.view = View(
            blocked=blocked_tasks(waits, now, self._boot_id),
            open=frozenset(spell_id(self._boot_id, spell) for spell in self._spells.all()),
            complete=self._cost.passes_total > 0,
            beyond=self._spells.beyond,
            holders=with_gpus(self._holders.table(), self._minors),
            sight=self._reader.sight,
            cost=self._cost,
            unread=self._errands.stuck(),
        )
        if _shown(before) != _shown(self.view):
            self._changed()

    # who holds the GPUs

    def _look_into(self, found: Pass, now: Moment) -> None:
        """Look through the open files of processes that are new, and again of those that may have opened a GPU since."""
        living = set(found.processes)
        self._looked_into = {key: value for key, value in self._looked_into.items() if key in living}
        due = []
        for key in found.processes:
            first_s, times = self._looked_into.setdefault(key, (now.steady_s, 0))
            beyond = max(0, times - len(_LOOK_INTO_S) + 1)
            age_s = _LOOK_INTO_S[min(times, len(_LOOK_INTO_S) - 1)] + beyond * _LOOK_INTO_S[-1]
            if now.steady_s - first_s >= age_s:
                due.append(key)
        for key in due[:_MOST_LOOKED_INTO]:
            first_s, times = self._looked_into[key]
            self._looked_into[key] = (first_s, times + 1)
            devices = self._reader.devices(key[0])
            if isinstance(devices, tuple) and devices:
                self._keep(key[0], now, devices=devices)

    def _look_at_holders(self, now: Moment) -> None:
        """Whether they live, and whether a thread of theirs waits."""
        began_s = time.thread_time()
        for pid, gpus in self._nvml.items():
            self._keep(pid, now, gpus=gpus)
        known, new = set(self._spells.keys()), []
        for holder in self._holders.living():
            there = self._reader.holder(holder.pid, now.wall_us, _boot_s())
            if there is None or there.start != holder.start:
                self._holders.died(holder.pid, holder.start, now)
            elif holder.devices or holder.gpus:
                new += [one for one in self._reader.threads(holder.pid) if one.key not in known]
        self._spells.saw(new, now, asked=())
        self._holders.forget(now.steady_s)
        cost_s = time.thread_time() - began_s
        self._holders_due_s = now.steady_s + max(LOOK_S, min(_HOLDER_MOST_S, cost_s / _HOLDER_SHARE))

    def _keep(self, pid: int, now: Moment, *, gpus: tuple[str, ...] = (), devices: tuple[str, ...] | None = None) -> None:
        there = self._reader.holder(pid, now.wall_us, _boot_s())
        if there is None:
            return
        self._holders.keep(replace(there, gpus=gpus, devices=devices))
        if devices and now.steady_s >= self._minors_due_s:
            self._minors_due_s = now.steady_s + _BLIND_TRUST_S
            self._errands.send(self._learn_minors)
        key = pid, there.start
        if self._holders.knows_job(*key) or now.steady_s - self._jobs_asked.get(key, -math.inf) < _ASK_AGAIN_S:
            return
        if len(self._jobs_asked) >= _MOST_ASKED:
            self._jobs_asked.clear()
        self._jobs_asked[key] = now.steady_s
        self._errands.send(partial(self._learn_job, there, now))

    def _look_up(self, pid: int) -> None:
        now = self._now()
        there = self._reader.holder(pid, now.wall_us, _boot_s())
        if there is not None:
            there = replace(there, job=self._reader.job(pid))
            self._learnt.put(partial(self._holders.keep, there))
        if len(self._found) >= _MOST_FOUND:
            self._found = {}
        self._found[pid] = there
        self._changed()

    def _learn_job(self, there: Holder, now: Moment) -> None:
        job = self._reader.job(there.pid)
        again = self._reader.holder(there.pid, now.wall_us, _boot_s())
        if again is not None and again.start == there.start:
            self._learnt.put(partial(self._holders.keep, replace(there, job=job)))

    def _learn_minors(self) -> None:
        minors = self._reader.gpus_by_minor()
        self._learnt.put(partial(setattr, self, "_minors", minors))


def _boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _holds(evidence: Evidence) -> bool:
    return isinstance(evidence.devices, tuple) and bool(evidence.devices)


def _unread(why: str) -> Evidence:
    hidden = Hidden(why=why)
    return Evidence(stack=hidden, wchan=hidden, syscall=hidden, file=hidden, devices=hidden, job=hidden)


def _shown(view: View) -> tuple[object, ...]:
    """What a change of is worth waking somebody for."""
    return (
        [(one.spell, one.wait.attribution, one.wait.killable) for one in view.blocked],
        view.complete,
        len(view.holders),
    )
