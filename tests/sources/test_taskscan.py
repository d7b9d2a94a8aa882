"""Which tasks are told, when, and how often anybody looks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.sources.proctree import STUCK_IN_DRIVER, STUCK_ON_DISK, STUCK_ON_NFS, FakeTask, ProcTree
from xidwatch.clocks import Clocks
from xidwatch.core.blocked import Blocked, Evidence, Sighting
from xidwatch.core.holders import who
from xidwatch.sources.procfs import Pressure, ProcReader
from xidwatch.sources.taskscan import Earlier, Patience, TaskScan, nothing_waits, pass_interval_s

DEADLINE_S = 10.0


@dataclass
class Hands(Clocks):
    """A clock with hands; `ahead_s`: the wall clock was set forward by so much."""

    seconds: float = 1000.0
    ahead_s: float = 0.0

    def steady_s(self) -> float:
        """As `time.monotonic`."""
        return self.seconds

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        return round(1.7e15 + (self.seconds + self.ahead_s) * 1e6)


class Scan(TaskScan):
    """One that a test turns by hand; its errands run in their own thread, as ever."""

    def __init__(self, tree: ProcTree, hands: Hands, position: str | None = None, boot_id: str = "boot") -> None:
        self.heard = threading.Event()
        self.hands = hands
        reader = ProcReader(str(tree.root), sysfs=str(tree.root / "sys"), pod_logs=str(tree.root / "pods"))
        super().__init__(reader, Patience(), self.heard.set, Earlier(boot_id=boot_id, position=position), hands)

    def after(self, seconds: float) -> tuple[Blocked, ...]:
        """What is told so many seconds later."""
        self.hands.seconds += seconds
        self.turn()
        return self.view.blocked

    def told_after(self, seconds: float) -> tuple[Blocked, ...]:
        """What is told so many seconds from now, once the evidence of all waits has arrived."""
        self.after(5)
        self.once(lambda: not self.reads_under_way())
        return self.after(seconds - 5)

    def once(self, look: Callable[[], object]) -> None:
        """Turn until this is so; the answer of an errand comes when it comes."""
        end = threading.Event()
        for _ in range(1000):
            self.turn()
            if look():
                return
            end.wait(0.01)
        raise AssertionError("it did not happen")


@pytest.fixture
def tree(tmp_path: Path) -> ProcTree:
    """A /proc with systemd alone."""
    return ProcTree(tmp_path / "proc")


@pytest.fixture
def scan(tree: ProcTree) -> Iterator[Scan]:
    """A scan of it."""
    one = Scan(tree, Hands())
    yield one
    one.close()


def writer(**changes: Any) -> FakeTask:
    """A program that waits for a frozen disk."""
    return replace(
        FakeTask(4711, comm="dd", state="D", files={"stack": STUCK_ON_DISK, "wchan": "percpu_rwsem_wait"}), **changes
    )


def test_a_wait_is_told_after_a_minute_with_its_evidence(tree: ProcTree, scan: Scan) -> None:
    """A task that stays in D without running is told after 60 s, attributed by its stack."""
    tree.put(writer())
    assert () == scan.after(0)
    assert () == scan.told_after(59)
    (one,) = scan.after(1)
    assert ("storage", "dd", 4711, True) == (one.wait.attribution, one.task.comm, one.task.key.tid, one.at_least_s >= 60)
    assert (False, "it waits in percpu_rwsem_wait, which hears no signal") == (one.wait.killable, one.wait.killable_why)


def test_a_task_that_runs_in_between_is_not_stuck(tree: ProcTree, scan: Scan) -> None:
    """Heavy input and output shows D at every look; the count of switches tells that it goes on."""
    for switches in range(40):
        tree.put(writer(switches=switches))
        assert () == scan.after(5)


def test_another_task_under_a_reused_number_begins_anew(tree: ProcTree, scan: Scan) -> None:
    """The start time tells two tasks of one number apart."""
    tree.put(writer())
    scan.after(0)
    scan.after(50)
    tree.put(writer(start=2000))
    assert () == scan.after(20)


def test_a_wait_that_ended_is_gone_at_the_next_look(tree: ProcTree, scan: Scan) -> None:
    """Whether it went on or died, it is told no longer than until the next look."""
    tree.put(writer())
    scan.after(0)
    scan.told_after(61)
    name = scan.view.blocked[0].spell
    assert name in scan.view.open
    tree.put(writer(state="S"))
    assert () == scan.after(6)
    assert frozenset() == scan.view.open


def test_a_thread_in_the_driver_of_a_gpu_holder_is_told_after_half_a_minute(tree: ProcTree, scan: Scan) -> None:
    """Each thread of a process that has a GPU open is looked at every few seconds."""
    tree.driver()
    tree.put(FakeTask(500, threads=2, descriptors={3: "/dev/nvidiactl", 4: "/dev/nvidia0", 5: "/dev/null"}))
    scan.after(0)
    tree.put(
        FakeTask(
            501, pid=500, comm="cuda-worker", state="D", files={"stack": STUCK_IN_DRIVER, "wchan": "os_acquire_rwlock_write"}
        )
    )
    scan.after(5)
    assert () == scan.told_after(29)
    (one,) = scan.after(1)
    assert ("gpu", 501, 500) == (one.wait.attribution, one.task.key.tid, one.task.key.pid)
    assert [500] == [holder.pid for holder in scan.view.holders]


def test_killable_wait_says_so(tree: ProcTree, scan: Scan) -> None:
    """An NFS wait shows D and still hears SIGKILL; a SIGKILL that is pending and not heard proves the contrary."""
    tree.put(writer(files={"stack": STUCK_ON_NFS, "wchan": "rpc_wait_bit_killable"}))
    scan.after(0)
    scan.told_after(61)
    assert ("storage", True) == (scan.view.blocked[0].wait.attribution, scan.view.blocked[0].wait.killable)
    tree.put(writer(files={"stack": STUCK_ON_NFS, "wchan": "rpc_wait_bit_killable"}, pending=1 << 8))
    scan.after(6)
    scan.after(6)
    assert (False, "a SIGKILL has been waiting for it for 6 s") == (
        scan.view.blocked[0].wait.killable, scan.view.blocked[0].wait.killable_why
    )  # fmt: skip


def test_frozen_on_purpose_is_not_stuck(tree: ProcTree, scan: Scan) -> None:
    """`docker pause` under cgroup version 1 shows D for as long as somebody wants it so."""
    tree.put(writer(files={"stack": "[<0>] __refrigerator+0x4a/0x110\n", "wchan": "__refrigerator"}))
    scan.after(0)
    assert () == scan.told_after(61)
    for _ in range(20):
        assert () == scan.after(20)


def test_frozen_cgroup_is_known_without_any_right(tree: ProcTree, scan: Scan) -> None:
    """The freezer's own file tells where neither stack nor wchan may be read."""
    state = tree.root / "sys/fs/cgroup/freezer/docker/x"
    state.mkdir(parents=True)
    (state / "freezer.state").write_text("FROZEN\n")
    tree.put(writer(files={"cgroup": "7:freezer:/docker/x\n0::/\n"}))
    scan.after(0)
    assert () == scan.told_after(61)
    for _ in range(10):
        assert () == scan.after(20)


def test_without_rights_it_is_told_as_unknown_with_the_reason(tmp_path: Path) -> None:
    """Not permitted is a value: the wait is told, and what would show more."""
    tree = ProcTree(tmp_path / "proc")
    tree.capabilities(0)
    tree.put(writer(files={"wchan": "0"}, uid=4242))
    scan = Scan(tree, Hands())
    scan.after(0)
    (one,) = scan.told_after(61)
    assert ("unknown", None) == (one.wait.attribution, one.wait.killable)
    assert "needs CAP_SYS_PTRACE" in one.wait.why
    assert 2 == len(scan.view.sight.blind_spots())
    scan.close()


def test_wait_goes_on_over_a_restart(tree: ProcTree) -> None:
    """The same task with the same count of switches has waited since the earlier run saw it; another boot is another matter."""
    tree.put(writer())
    hands = Hands()
    first = Scan(tree, hands)
    first.after(0)
    first.after(50)
    position = first.position
    first.close()
    second, other = Scan(tree, hands, position), Scan(tree, hands, position, boot_id="next")
    for one in (second, other):
        one.after(0)
        one.told_after(5)
    assert ([4711], []) == ([one.task.key.tid for one in second.after(0)], [one.task.key.tid for one in other.after(0)])
    for one in (second, other):
        one.close()


@pytest.mark.parametrize(
    "position", ["", "{", "[]", '{"boot":"boot"}', '{"boot":"boot","waits":[[1]]}', '{"boot":"boot","waits":5}']
)
def test_a_position_that_cannot_be_read_is_none(tree: ProcTree, position: str) -> None:
    """A damaged history costs the start of a wait, not the scan."""
    tree.put(writer())
    scan = Scan(tree, Hands(), position)
    assert () == scan.after(0)
    scan.close()


def test_job_of_a_pid_outlives_the_process(tree: ProcTree, scan: Scan) -> None:
    """A pid that the log named is looked up at once; ten minutes after its death it is still known, then forgotten."""
    tree.put(FakeTask(88, files={"cgroup": "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n"}))
    scan.ask(88)
    scan.once(lambda: (found := who(scan.view.holders, 88, None)) is not None and found.job)
    tree.remove(88)
    scan.after(6)
    found = who(scan.view.holders, 88, None)
    assert found is not None
    assert ("7", True) == (found.job and found.job.slurm_job, found.dead_s is not None)
    scan.after(590)
    assert who(scan.view.holders, 88, None) is not None
    scan.after(40)
    assert who(scan.view.holders, 88, None) is None


def test_a_line_from_before_the_process_is_not_its(tree: ProcTree, scan: Scan) -> None:
    """An old line read late names a pid that somebody else has now."""
    tree.put(FakeTask(88, files={"cgroup": "0::/system.slice/vllm.service\n"}))
    scan.ask(88)
    scan.once(lambda: who(scan.view.holders, 88, None))
    (holder,) = scan.view.holders
    assert who(scan.view.holders, 88, holder.started_us - 10_000_000) is None
    assert holder == who(scan.view.holders, 88, holder.started_us + 1)


def test_nvml_names_the_slot_and_the_device_files_do_too(tree: ProcTree, scan: Scan) -> None:
    """A holder's GPUs come from NVML, else from the minor numbers of what it has open."""
    tree.driver()
    tree.put(FakeTask(500, descriptors={4: "/dev/nvidia0"}))
    tree.put(FakeTask(600))
    scan.gpu_processes({600: ("0000:9b:00.0",)})
    scan.once(lambda: len(scan.view.holders) == 2 and all(one.gpus for one in scan.view.holders))
    assert {500: ("0000:3b:00.0",), 600: ("0000:9b:00.0",)} == {one.pid: one.gpus for one in scan.view.holders}


def test_an_errand_that_does_not_return_costs_the_evidence_only(tree: ProcTree) -> None:
    """A stuck read is given up: the wait is told without it, and others are read by another thread."""

    class Stuck(ProcReader):
        gate, begun = threading.Event(), threading.Event()

        def evidence(self, task: Sighting) -> Evidence:
            if task.key.tid == 4711:
                self.begun.set()
                self.gate.wait(DEADLINE_S)
            return super().evidence(task)

    tree.put(writer())
    hands = Hands()
    scan = Scan(tree, hands)
    scan._reader = Stuck(str(tree.root))
    scan.after(0)
    scan.after(5)
    assert Stuck.begun.wait(DEADLINE_S)
    scan.after(11)
    tree.put(writer(tid=4712))
    scan.after(50)
    scan.after(5)
    scan.once(lambda: scan.reads_under_way() == 1)
    scan.after(70)
    assert {4711: "unknown", 4712: "storage"} == {one.task.key.tid: one.wait.attribution for one in scan.view.blocked}
    assert 1 == scan.view.unread
    Stuck.gate.set()
    scan.close()


def test_evidence_that_comes_after_the_end_is_not_kept(tree: ProcTree, scan: Scan) -> None:
    """A stuck read returns when its task goes on: the wait is over then, and what was read of it goes too."""

    class Late(ProcReader):
        gate, begun = threading.Event(), threading.Event()

        def evidence(self, task: Sighting) -> Evidence:
            self.begun.set()
            self.gate.wait(DEADLINE_S)
            return super().evidence(task)

    scan._reader = Late(str(tree.root))
    tree.put(writer())
    scan.after(0)
    scan.after(5)
    assert Late.begun.wait(DEADLINE_S)
    tree.put(writer(state="S"))
    scan.after(6)
    Late.gate.set()
    scan.once(lambda: not scan.reads_under_way())
    scan.after(1)
    assert {} == scan._evidence


@pytest.mark.parametrize(
    ("cost_s", "expected"), [(0.0, 10.0), (0.004, 10.0), (0.018, 30.0), (0.2, 60.0), (1.0, 250.0)]
)  # fmt: skip
def test_interval_follows_the_cost(cost_s: float, expected: float) -> None:
    """A cheap pass may come often, a dear one never takes more than 0.4 % of a core."""
    assert expected == pytest.approx(pass_interval_s(cost_s))


@pytest.mark.parametrize(
    ("load", "patience_s", "expected"), [(0.0, 60, True), (0.38, 60, True), (0.4, 60, False), (3.0, 60, False), (0.1, 5, False), (None, 60, False)]
)  # fmt: skip
def test_load_average_proves_quiet(load: float | None, patience_s: float, expected: bool) -> None:  # noqa: FBT001
    """One task in D for 30 s lifts the average to 0.39 by itself; an average that is made up proves nothing."""
    assert expected == nothing_waits(Pressure(load1=load, stalled=None, hung_detected=None), patience_s)


def test_a_quiet_machine_is_left_alone_and_the_kernels_count_wakes(tree: ProcTree, scan: Scan) -> None:
    """With a load of nothing passes are left out; the kernel's own count of hung tasks brings one at once."""
    (tree.root / "loadavg").write_text("0.01 0.02 0.05 1/200 999\n")
    count = tree.root / "sys/kernel"
    count.mkdir(parents=True)
    (count / "hung_task_detect_count").write_text("0\n")
    scan.after(0)
    for _ in range(10):
        scan.after(20)
    assert (1, True) == (scan.view.cost.passes_total, scan.view.cost.skipped_total > 5)
    (count / "hung_task_detect_count").write_text("1\n")
    scan.after(1)
    assert 2 == scan.view.cost.passes_total
    scan.after(301)
    assert 3 == scan.view.cost.passes_total
