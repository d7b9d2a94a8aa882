"""The daemon's side of NVML: it asks a child, and never waits for it.

    client = NvmlClient()
    selector.register(client.fileno(), EVENT_READ, lambda _mask: client.read())
    each turn of the loop: client.tick(); wait no longer than client.due_s() seconds
    on an event that NVML can confirm: client.ask()

No call blocks. A child that misses its deadline gets SIGTERM once and is left to itself; while it lives there is no second one,
not even beside one of an earlier daemon: a call that sleeps in the driver may hold locks that the next one would wait for,
and each further child would be one more task that nobody can kill.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from xidwatch.clocks import Clocks
from xidwatch.core.gpu import GpuAnswer, GpuState, NodeAnswer, NotFound, Refused, Unresponsive, last_good
from xidwatch.core.pci import PciAddress
from xidwatch.nvml.kin import Child, left_overs, own_command
from xidwatch.nvml.protocol import Answer, Ask, Asking, Done, Told, ToldDriver, read, write

MODULE = "/sys/module/nvidia"
_LOOK_AGAIN_S = 5.0
_ENDING_S = 0.05
"""Between the end of a child's output and its own."""
_NEVER_S = -float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How often NVML is asked.

    Attributes:
        deadline_s: For a whole sample; also for a dismissed child to end.
        interval_s: Between samples, while every GPU that answered has persistence mode on. With it off only `ask` asks: the
            driver would set the GPU up and down again each time.
        apart_s: The least time between the beginnings of two samples, however many events ask.
        again_s: So long after the latest event it is asked again: a GPU may answer well for a moment and then be lost.
    """

    deadline_s: float = 10.0
    interval_s: float = 60.0
    apart_s: float = 5.0
    again_s: tuple[float, ...] = (5.0, 30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What the client reaches out to; tests give their own.

    Attributes:
        command: What to start as the child; xidwatch's own when None.
        module: Folder that is there while the kernel module is loaded; None not to look.
        left_overs: Pids of children that an earlier daemon left behind.
    """

    command: Sequence[str] | None = None
    module: str | None = MODULE
    left_overs: Callable[[], tuple[int, ...]] = left_overs


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlHealth:
    """How the way to NVML is.

    Attributes:
        up: NVML answered last time; None before the first time, and while released.
        why: What is wrong, for a person; None while nothing is.
        stuck_s: How long a question has been waiting beyond its deadline; 0.0 while none is.
        sample_age_s: Since the latest complete sample; None before it.
        samples_total, missed_total: Complete samples, missed deadlines.
        malformed_total: Lines of the child that could not be read.
        children_total: Children started.
        released: An operator has asked to leave the GPUs alone.
        busy: A sample is going on, or a child that does not end holds what it holds.
    """

    up: bool | None
    why: str | None
    stuck_s: float
    sample_age_s: float | None
    samples_total: int
    missed_total: int
    malformed_total: int
    children_total: int
    released: bool
    busy: bool

    @property
    def over(self) -> bool:
        """The first question was answered or given up: nobody needs to wait for more."""
        return self.samples_total > 0 or self.missed_total > 0 or self.up is False


@dataclass(slots=True)
class _Question:
    """The one that is open. `told` are the slots answered so far, `turned_to` what the child is at."""

    number: int
    asked_us: int
    told: set[PciAddress] = field(default_factory=set)
    unplaced: list[Refused] = field(default_factory=list)
    turned_to: Asking | None = None


@dataclass(slots=True)
class _Late:
    """From `from_s` on the child is overdue. `noticed`: it has had its SIGTERM."""

    from_s: float
    noticed: bool = False


@dataclass(slots=True)
class _Counts:
    samples: int = 0
    missed: int = 0
    malformed: int = 0
    children: int = 0


class NvmlClient:
    """What NVML says of the GPUs, as far as it says anything. No method blocks."""

    def __init__(self, timing: Timing | None = None, clocks: Clocks | None = None, means: Means | None = None) -> None:
        """The first sample is due at once; nothing is started before `tick`."""
        self._timing, self._clocks, self._means = timing or Timing(), clocks or Clocks(), means or Means()
        self._command = tuple(self._means.command or own_command())
        self._ready = select.epoll()
        self._child: Child | None = None
        self._question: _Question | None = None
        self._late: _Late | None = None
        self._number = 0
        self._expected: tuple[PciAddress, ...] = ()
        self._suspects: list[PciAddress] = []
        self._node = NodeAnswer()
        self._up: bool | None = None
        self._why: str | None = None
        self._counts = _Counts()
        self._wanted, self._released = True, False
        self._again_s: tuple[float, ...] = ()
        self._began_s = self._ended_s = self._looked_s = _NEVER_S
        self._left: tuple[int, ...] = ()
        self._left_from_s = self._clocks.steady_s()

    # what the loop calls

    def fileno(self) -> int:
        """A descriptor, the same for the client's whole life, that is readable whenever `read` has something to do."""
        return self._ready.fileno()

    def due_s(self) -> float | None:
        """Seconds until `tick` has something to do; None when only an event or the child can change anything."""
        now_s = self._clocks.steady_s()
        if self._child is not None and self._child.silent:
            return _ENDING_S
        if self._late is not None:
            return _LOOK_AGAIN_S if self._late.noticed else max(0.0, self._late.from_s - now_s)
        if self._left:
            return max(0.0, self._looked_s + _LOOK_AGAIN_S - now_s)
        return None if (next_s := self._next_s()) is None else max(0.0, next_s - now_s)

    def tick(self) -> None:
        """Begin the sample that is due, and notice the deadline that has passed."""
        self.read()
        now_s = self._clocks.steady_s()
        if self._late is not None:
            if not self._late.noticed and now_s >= self._late.from_s:
                self._miss(self._late)
            return
        if self._left and now_s - self._looked_s >= _LOOK_AGAIN_S:
            self._look(now_s)
        next_s = self._next_s()
        if next_s is None or now_s < next_s:
            return
        if self._child is None and not self._left:
            self._look(now_s)
        if not self._left:
            self._begin(now_s)

    def read(self) -> None:
        """Take what the child has said, and note its end."""
        if (child := self._child) is None:
            return
        for line in child.lines():
            self._take(line)
        if (how := child.ended()) is not None:
            self._bury(child, how)

    def ask(self) -> None:
        """A sample is wanted as soon as may be, and some more a little later: something happened that the GPU may know of."""
        now_s = self._clocks.steady_s()
        self._wanted, self._again_s = True, tuple(now_s + after_s for after_s in self._timing.again_s)

    def expect(self, gpus: Iterable[PciAddress]) -> None:
        """GPUs that should be there (from PCI, or an earlier run): each gets an answer, if only `NotFound`."""
        self._expected = tuple(gpus)

    def release(self) -> None:
        """Leave the GPUs alone until `resume`; `health().busy` tells when nothing is held any more."""
        self._released = True
        self._dismiss()

    def resume(self) -> None:
        """Ask again, and at once."""
        self._released, self._wanted = False, True

    def answers(self) -> NodeAnswer:
        """The present view; a GPU that does not answer keeps what it said last, inside its `Unresponsive`."""
        return self._node

    def health(self) -> NvmlHealth:
        """How the way to NVML is, at this moment."""
        now_s = self._clocks.steady_s()
        return NvmlHealth(
            up=None if self._released else self._up,
            why="released by an operator" if self._released else self._why,
            stuck_s=self._stuck_s(now_s),
            sample_age_s=None if self._ended_s == _NEVER_S else now_s - self._ended_s,
            samples_total=self._counts.samples,
            missed_total=self._counts.missed,
            malformed_total=self._counts.malformed,
            children_total=self._counts.children,
            released=self._released,
            busy=self._late is not None or bool(self._left),
        )

    def close(self) -> None:
        """Let go of the child: it ends by itself or by SIGTERM, and a stuck one stays behind for a later daemon to find."""
        if self._child is not None:
            if self._question is not None and not (self._late and self._late.noticed):
                self._child.terminate()
            self._child.let_go()
            self._child = None
        self._ready.close()

    # asking

    def _next_s(self) -> float | None:
        """When the next sample may begin; None when none is wanted."""
        if self._released:
            return None
        if self._wanted:
            return self._began_s + self._timing.apart_s
        regular = [self._began_s + self._timing.interval_s] if self._asks_by_itself() else []
        next_s = min([*regular, *self._again_s[:1]], default=None)
        return None if next_s is None else max(next_s, self._began_s + self._timing.apart_s)

    def _asks_by_itself(self) -> bool:
        """With persistence mode off asking wakes the GPU: only events, and the way back from silence, are worth that."""
        answers = list(self._node.gpus.values())
        if any(isinstance(answer, Unresponsive) for answer in answers):
            return True
        return all(answer.persistence_mode is True for answer in answers if isinstance(answer, GpuState))

    def _begin(self, now_s: float) -> None:
        self._began_s, self._wanted = now_s, False
        self._again_s = tuple(due_s for due_s in self._again_s if due_s > now_s)
        child = self._child or self._start()
        if child is None:
            return
        self._number += 1
        self._question = _Question(self._number, self._clocks.wall_us())
        self._late = _Late(now_s + self._timing.deadline_s)
        if (why := child.send(write(Ask(number=self._number, gpus=self._order(), module=self._means.module)))) is not None:
            self._unanswered(self._question, f"child {child.pid} could not be asked: {why}")
            self._question = None
            self._dismiss()

    def _order(self) -> tuple[PciAddress, ...]:
        """Those at which a child got stuck come last: all others are told before they block the way again."""
        return (*sorted(self._slots() - {*self._suspects}), *self._suspects)

    def _start(self) -> Child | None:
        try:
            self._child = Child(self._command, self._ready)
        except OSError as reason:
            self._up, self._why = False, f"no child could be started: {reason}"
            return None
        self._counts.children += 1
        return self._child

    def _dismiss(self) -> None:
        """End the child's input: the idle one ends now, the busy one once it has answered."""
        if self._child is None or self._child.dismissed:
            return
        self._child.dismiss()
        if self._late is None:
            self._late = _Late(self._clocks.steady_s() + self._timing.deadline_s)

    # answers

    def _take(self, line: bytes) -> None:
        question = self._question
        try:
            message = read(line)
        except ValueError:
            self._counts.malformed += 1
            return
        if question is None or isinstance(message, Ask) or message.number != question.number:
            self._counts.malformed += 1
            return
        self._heed(question, message)

    def _heed(self, question: _Question, message: Answer) -> None:
        match message:
            case Asking():
                question.turned_to = message
            case ToldDriver(driver=driver):
                self._node = replace(self._node, driver=driver)
                if isinstance(driver, Refused):
                    for pci in self._slots():
                        self._put(pci, driver)
            case Told(pci=None, answer=Refused() as answer):
                question.unplaced.append(answer)
            case Told(pci=PciAddress() as pci, answer=answer):
                question.told.add(pci)
                question.turned_to = None
                self._put(pci, answer)
            case Done(leaving=leaving):
                self._finish(question, leaving)

    def _slots(self) -> set[PciAddress]:
        return {*self._expected, *self._node.gpus}

    def _put(self, pci: PciAddress, answer: GpuAnswer) -> None:
        """Keep it, with what the GPU said last, and since when it has been silent."""
        before = self._node.gpus.get(pci)
        if isinstance(answer, Refused | NotFound | Unresponsive):
            answer = replace(answer, last_good=last_good(before))
        if isinstance(answer, Unresponsive) and isinstance(before, Unresponsive):
            answer = replace(answer, since_us=before.since_us)
        if isinstance(answer, GpuState) and pci in self._suspects:
            self._suspects.remove(pci)
        self._node = replace(self._node, gpus={**self._node.gpus, pci: answer})

    def _finish(self, question: _Question, leaving: str | None) -> None:
        driver = self._node.driver
        self._question = self._late = None
        self._ended_s = self._clocks.steady_s()
        self._counts.samples += 1
        self._up = not isinstance(driver, Refused)
        self._why = driver.text if isinstance(driver, Refused) else None
        self._node = replace(self._node, unplaced=tuple(question.unplaced), asked_us=question.asked_us)
        if leaving is not None:
            self._dismiss()
        if self._child is not None and self._child.dismissed:
            self._late = _Late(self._ended_s + self._timing.deadline_s)

    # failing

    def _miss(self, late: _Late) -> None:
        late.noticed = True
        self._counts.missed += 1
        assert self._child is not None
        self._child.terminate()
        where = _at(self._question.turned_to) if self._question is not None else ", after its answer"
        why = f"deadline {self._timing.deadline_s:g} s passed{where}; child {self._child.pid} still blocked"
        self._up, self._why = False, why
        if self._question is not None:
            self._unanswered(self._question, why)

    def _unanswered(self, question: _Question, why: str) -> None:
        self._up, self._why = False, why
        culprit = question.turned_to.pci if question.turned_to is not None else None
        if culprit is not None:
            self._suspects = [*(pci for pci in self._suspects if pci != culprit), culprit]
        silent = Unresponsive(since_us=question.asked_us, last_good=None, why=why)
        for pci in self._slots() - question.told:
            self._put(pci, silent)
        if not question.told and not isinstance(self._node.driver, Unresponsive):
            self._node = replace(self._node, driver=silent)

    def _bury(self, child: Child, how: str) -> None:
        """It has ended, answered or not."""
        noticed = self._late is not None and self._late.noticed
        if self._question is not None and not noticed:
            self._unanswered(self._question, f"child {child.pid} ended with {how} before it had answered")
        elif noticed:
            self._why = f"child {child.pid} did not answer in {self._timing.deadline_s:g} s, and has ended since"
        child.let_go()
        self._child = self._question = self._late = None

    def _look(self, now_s: float) -> None:
        """See whether an earlier daemon's child still lives: no other may start beside it."""
        before, self._left, self._looked_s = self._left, self._means.left_overs(), now_s
        if not self._left:
            return
        if not before:
            self._left_from_s = now_s
        pids = ", ".join(str(pid) for pid in self._left)
        why = f"child {pids} of an earlier run is still blocked; none is started beside it"
        self._unanswered(_Question(0, self._clocks.wall_us()), why)

    def _stuck_s(self, now_s: float) -> float:
        if self._left:
            return now_s - self._left_from_s
        return max(0.0, now_s - self._late.from_s) if self._late is not None and self._late.noticed else 0.0


def _at(asking: Asking | None) -> str:
    if asking is None:
        return ""
    if asking.pci is not None:
        return f" at GPU {asking.pci}"
    return f" at GPU {asking.index}" if asking.index is not None else " in nvmlInit"
