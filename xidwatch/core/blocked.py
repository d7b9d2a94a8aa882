"""Tasks in D state: which of them wait without a break, since when at least, for what, and whether SIGKILL ends it.

/proc shows a state at a moment. A task that is in D at two moments need not have been there in between: only an unchanged
count of context switches proves it, as the kernel's own detector does (kernel/hung_task.c, check_hung_task).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import astuple, dataclass

from xidwatch.core.event import Attribution
from xidwatch.core.job import Job

MOST_SPELLS = 2000
"""Tasks followed at a time; when a file server dies, thousands wait for it."""
_MOST_RESUMED = 64
_WORTH_RESUMING_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """What could not be read, and why: `needs CAP_SYS_ADMIN`."""

    why: str


@dataclass(frozen=True, slots=True, order=True)
class TaskKey:
    """One task: the process, the thread, and when it started (clock ticks after boot), so that a reused number is another."""

    pid: int
    tid: int
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A time on both clocks: `wall_us` since 1970, `steady_s` since boot, which only goes forward."""

    wall_us: int
    steady_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A task seen in D state.

    Attributes:
        comm: Its name, which it chooses itself.
        kernel_thread: It belongs to the kernel.
        switches: How often it has left a CPU; unchanged between two sightings: it did not run in between.
        killed: A SIGKILL waits for it.
        uid: Whose it is; None where that could not be read.
        inner_pid: Its number in its own pid namespace, where that is another one.
    """

    key: TaskKey
    comm: str
    kernel_thread: bool
    switches: int
    killed: bool
    uid: int | None = None
    inner_pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What /proc tells of a wait, each as far as permitted.

    Attributes:
        stack: Kernel functions, innermost first, as `function` or `function [module]`; the scheduler's own are not among them.
        wchan: The function that it waits in; None where the kernel names none.
        syscall: Name or number; None for a task that is in none.
        file: What the call's descriptor leads to; None where it has none.
        devices: GPU device files that the process holds open.
        job: Whose work it is.
        children: Pids of its children.
        frozen: Its cgroup is frozen on purpose (`docker pause`, version 1); None when unknown.
    """

    stack: tuple[str, ...] | Hidden
    wchan: str | Hidden | None
    syscall: str | Hidden | None
    file: str | Hidden | None
    devices: tuple[str, ...] | Hidden
    job: Job | Hidden
    children: tuple[int, ...] = ()
    frozen: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What a wait is.

    Attributes:
        attribution: By evidence; "unknown" without any.
        why: The evidence in words.
        killable: Whether SIGKILL ends it; None when neither the frames nor an attempt tell.
        killable_why: The evidence for that in words.
        waits_for: Whom it waits for, where that is known.
        place: What tasks that wait in the same place have in common; None when unknown.
    """

    attribution: Attribution
    why: str
    killable: bool | None
    killable_why: str
    waits_for: str | None = None
    place: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A task that has been in D state without a break for long enough to be told.

    Attributes:
        since_us: When it was first seen, on the wall clock as it goes now: setting the clock makes no wait longer.
            A lower bound: it may have waited before that.
        at_least_s: From then to now.
        spell: Names this one wait of this one task, also over a restart of the daemon.
        together: How many tasks wait in the same place, this one among them.
    """

    task: Sighting
    since_us: int
    at_least_s: float
    spell: str
    wait: Wait
    evidence: Evidence
    together: int = 1


@dataclass(slots=True)
class Spell:
    """One wait of one task. `since_s`: first seen; `killed_s`: since when a SIGKILL has been waiting for it (both steady)."""

    task: Sighting
    since_s: float
    killed_s: float | None = None


class Spells:
    """The waits that go on.

    Attributes:
        beyond: Tasks in D at the last pass over all that are not followed, because there are MOST_SPELLS already.
    """

    def __init__(self) -> None:
        self._open: dict[TaskKey, Spell] = {}
        self._resumed: dict[TaskKey, tuple[int, float]] = {}
        self.beyond = 0

    def __len__(self) -> int:
        return len(self._open)

    def keys(self) -> list[TaskKey]:
        """The tasks that were in D when they were looked at last."""
        return list(self._open)

    def all(self) -> list[Spell]:
        """Every wait, longest first."""
        return sorted(self._open.values(), key=lambda spell: spell.since_s)

    def saw(self, seen: Iterable[Sighting], now: Moment, asked: Collection[TaskKey] | None = None) -> list[Spell]:
        """Take what was in D at this moment; gives the waits that are over.

        Args:
            asked: The tasks that were looked at; None after a pass over all of them.
        """
        found = {one.key: one for one in seen}
        gone = [key for key in (self._open if asked is None else asked) if key in self._open and key not in found]
        over = [self._open.pop(key) for key in gone]
        for key, task in found.items():
            spell = self._open.get(key)
            if spell is not None and spell.task.switches != task.switches:
                over.append(self._open.pop(key))
                spell = None
            if spell is None:
                spell = self._begun(task, now)
            if spell is not None:
                spell.task = task
                spell.killed_s = None if not task.killed else now.steady_s if spell.killed_s is None else spell.killed_s
        if asked is None:
            self.beyond = sum(key not in self._open for key in found)
        return over

    def _begun(self, task: Sighting, now: Moment) -> Spell | None:
        if len(self._open) >= MOST_SPELLS:
            return None
        switches, since_s = self._resumed.pop(task.key, (-1, now.steady_s))
        since_s = min(since_s, now.steady_s) if switches == task.switches else now.steady_s
        spell = self._open[task.key] = Spell(task, since_s)
        return spell

    def position(self, boot_id: str | None, now: Moment) -> str:
        """What a later run needs to go on: the longest waits. The same text as long as nothing changes."""
        kept = [
            [*astuple(spell.task.key), spell.task.switches, round(spell.since_s, 3)]
            for spell in self.all()[:_MOST_RESUMED]
            if now.steady_s - spell.since_s >= _WORTH_RESUMING_S
        ]
        return json.dumps({"boot": boot_id, "waits": kept}, separators=(",", ":"))

    def resume(self, position: str | None, boot_id: str | None) -> None:
        """Go on from an earlier run's `position`: a wait of the same task with the same count of switches began then."""
        try:
            earlier = json.loads(position or "{}")
            if boot_id is not None and earlier.get("boot") == boot_id:
                self._resumed = {
                    TaskKey(int(pid), int(tid), int(start)): (int(switches), float(since_s))
                    for pid, tid, start, switches, since_s in earlier["waits"]
                }
        except (ValueError, TypeError, KeyError, AttributeError):
            self._resumed = {}


def spell_id(boot_id: str | None, spell: Spell) -> str:
    """`task/<boot>/<tid>/<start>/<switches>`: the same for the same wait, whichever run of the daemon looks."""
    key = spell.task.key
    return f"task/{boot_id or '-'}/{key.tid}/{key.start}/{spell.task.switches}"
