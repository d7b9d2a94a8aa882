"""What the daemon makes of tasks in D state and of pids in the log: events that join, end, and are not told twice."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sources.proctree import STUCK_IN_DRIVER, STUCK_ON_DISK, FakeTask, ProcTree
from tests.sources.test_taskscan import Hands
from xidwatch.config import DState
from xidwatch.core.classify import RuleTable
from xidwatch.core.codec import decode, encode
from xidwatch.core.engine import Engine, Settled, active
from xidwatch.core.event import Context, Event
from xidwatch.core.incident import Incident
from xidwatch.core.job import Job
from xidwatch.core.record import Record
from xidwatch.rulefiles import load_rules
from xidwatch.sinks.totals import counters_for
from xidwatch.sources.procfs import ProcReader
from xidwatch.sources.taskscan import Earlier
from xidwatch.tasks import SOURCE, Tasks

BOOT = "0123456789abcdef0123456789abcdef"
HOST = os.uname().nodename
STUCK = FakeTask(4711, comm="python3", state="D", files={
    "stack": STUCK_IN_DRIVER, "wchan": "os_acquire_rwlock_write", "cgroup": "0::/system.slice/slurmstepd.scope/job_88123/step_0/user/task_0\n",
})  # fmt: skip
KERNEL_BLOCK = (
    "INFO: task python3:4711 blocked for more than 122 seconds.",
    "      Tainted: P           OE      6.8.0-60-generic #63-Ubuntu",
    "task:python3         state:D stack:0     pid:4711  tgid:4711  ppid:2100   flags:0x00004006",
    "Call Trace:",
    " <TASK>",
    " os_acquire_rwlock_write+0x35/0x50 [nvidia]",
    " nvidia_unlocked_ioctl+0x21b/0x890 [nvidia]",
    " </TASK>",
)


class Node:
    """A daemon's core with its tasks, turned by hand."""

    def __init__(self, tree: ProcTree, rules: RuleTable, hands: Hands, position: str | None = None) -> None:
        self.hands, self.tree = hands, tree
        self.tasks = Tasks(
            DState(),
            Earlier(boot_id=BOOT, position=position),
            lambda: None,
            hands,
            lambda: ProcReader(str(tree.root), pod_logs="/nowhere"),
        )
        self.engine = Engine(rules)
        self.engine.whose = self.tasks.whose
        self.kept: list[Settled] = []
        self.lines = 0

    def later(self, seconds: float) -> list[Incident]:
        """Incidents that are not over, so many seconds from now."""
        self.hands.seconds += seconds
        self.tasks.turn()
        self.once(lambda: self.tasks.reads_under_way() == 0)
        self._heed()
        return active(list(self.engine.incidents.values()))

    def once(self, look: Callable[[], object]) -> None:
        """Turn until this is so."""
        pause = threading.Event()
        for _ in range(1000):
            self.tasks.turn()
            if look():
                return
            pause.wait(0.01)
        raise AssertionError("it did not happen")

    def stuck_for(self, seconds: float) -> list[Incident]:
        """Look from now on; the evidence has time to arrive."""
        found = self.later(0)
        for _ in range(int(seconds // 5)):
            found = self.later(5)
        return found

    def _heed(self) -> None:
        now_us = self.hands.wall_us()
        for settled in self.engine.settle(now_us, everything=True):
            self._keep(settled)
        for identity, item in self.tasks.news():
            if (settled_now := self.engine.observe(identity, SOURCE, item, now_us)) is not None:
                self._keep(settled_now)
        self.engine.changes(now_us)

    def _keep(self, settled: Settled) -> None:
        self.kept.append(replace(settled, item=decode(encode(settled.item))))
        self.tasks.replayed(settled.identity, settled.item)

    def hear(self, *lines: str) -> None:
        """Kernel lines arrive now."""
        for line in lines:
            self.lines += 1
            record = Record(
                text=line, seq=self.lines, wall_us=self.hands.wall_us(), since_boot_us=round(self.hands.seconds * 1e6), boot_id=BOOT,
                host=HOST, trusted="kernel",
            )  # fmt: skip
            for event in self.engine.feed("kmsg", record, self.hands.wall_us()):
                self.tasks.heard(event)


@pytest.fixture(scope="module")
def rules() -> RuleTable:
    """Those that ship."""
    return load_rules(())


@pytest.fixture
def node(tmp_path: Path, rules: RuleTable) -> Iterator[Node]:
    """A node on which nothing has happened."""
    tree = ProcTree(tmp_path / "proc")
    tree.driver()
    one = Node(tree, rules, Hands())
    yield one
    one.tasks.close()


def test_two_minutes_in_the_driver_are_a_warning_with_the_job(node: Node) -> None:
    """What /proc shows alone wakes nobody, counts in no counter of the log's, and names the job."""
    node.tree.put(STUCK)
    assert [] == node.stuck_for(115)
    (incident,) = node.later(10)
    assert ("warning", "compute", "process") == (incident.severity, incident.fault_class, incident.scope)
    event = incident.members[0].finding.event
    assert Job(slurm_job="88123", slurm_step="0", uid=1000) == replace(event.job or Job(), user=None)
    (settled,) = node.kept
    assert () == (counters_for(settled.finding) if settled.finding is not None else None)


def test_setting_the_clock_makes_no_wait_longer(node: Node, rules: RuleTable) -> None:
    """The wall clock is set forward by two hours in the middle of a wait of two minutes."""
    node.tree.put(STUCK)
    node.stuck_for(125)
    node.hands.ahead_s = 7200.0
    node.later(5)
    (wait,) = node.tasks.state(rules)["blocked"]
    assert 130.0 == wait["at_least_s"]
    (longest,) = [value for (name, _), value in node.tasks.readings().items() if name == "xidwatch_task_blocked_seconds_max"]
    assert 130.0 == pytest.approx(longest)


def test_the_kernels_line_joins_and_makes_it_critical(node: Node) -> None:
    """One wait is one member, counted once; the kernel's own report is what wakes somebody."""
    node.tree.put(STUCK)
    node.stuck_for(125)
    node.hear(*KERNEL_BLOCK)
    (incident,) = node.later(1)
    (member,) = incident.members
    assert (1, "critical", None) == (member.count, incident.severity, getattr(member.finding.event.detail, "seen_by", "?"))
    assert member.finding.event.job is not None


def test_the_kernels_line_first_is_not_counted_again(node: Node) -> None:
    """With a short hung_task_timeout_secs the kernel is first; what /proc shows later is the same wait."""
    node.tree.put(STUCK)
    node.hear(*KERNEL_BLOCK)
    node.stuck_for(130)
    (incident,) = node.later(1)
    assert [1] == [member.count for member in incident.members]
    assert "critical" == incident.severity


def test_it_ends_when_the_task_goes_on(node: Node) -> None:
    """Every alarm has an end: the task is seen to run again, and the demand for a reboot is gone."""
    node.tree.put(STUCK)
    node.stuck_for(125)
    node.hear(*KERNEL_BLOCK)
    assert node.later(1)
    node.tree.put(replace(STUCK, state="S"))
    assert [] == node.later(6)
    (ended,) = node.engine.incidents.values()
    assert ("released", "none") == (ended.end_reason, ended.recovery.rung)


def test_an_incident_with_another_root_outlives_its_stuck_task(node: Node) -> None:
    """A task that goes on does not bring a lost GPU back; only what was asked for the task's sake is dropped."""
    node.tree.put(STUCK)
    node.hear(
        "NVRM: Xid (PCI:0000:3b:00): 109, pid=4711, name=python3, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x4c008"
    )
    node.stuck_for(125)
    (incident,) = node.later(1)
    assert {"xid", "hung_task"} == {member.finding.event.kind for member in incident.members}
    node.tree.put(replace(STUCK, state="S"))
    (left,) = node.later(6)
    assert ("active", "reset_gpu") == (left.state, left.recovery.rung)


def test_a_report_of_a_task_that_is_well_again_ends_at_the_next_look(node: Node) -> None:
    """The kernel reported it, and at the first look at all tasks it no longer waits."""
    node.later(0)
    node.hear(*KERNEL_BLOCK)
    assert 1 == len(node.later(1))
    node.later(30)
    assert [] == node.later(30)


def test_nothing_is_told_twice_over_a_restart(node: Node, rules: RuleTable) -> None:
    """A later run lives the stored events again, and knows the wait that goes on for the same."""
    node.tree.put(STUCK)
    node.stuck_for(125)
    again = Node(node.tree, rules, node.hands, node.tasks.position())
    for settled in node.kept:
        again.engine.replay(settled.identity, settled.item, node.hands.wall_us())
        again.tasks.replayed(settled.identity, settled.item)
    again.engine.changes(node.hands.wall_us())
    assert [one.id for one in active(list(node.engine.incidents.values()))] == [one.id for one in again.stuck_for(30)]
    assert [] == again.kept
    node.tree.put(replace(STUCK, state="S"))
    assert [] == again.later(6)
    assert ["task_released"] == [item.kind for settled in again.kept if isinstance(item := settled.item, Context)]
    again.tasks.close()


def test_a_task_that_hangs_again_is_a_new_incident(node: Node) -> None:
    """The count of switches has changed: another wait, another event."""
    node.tree.put(STUCK)
    node.stuck_for(125)
    node.tree.put(replace(STUCK, state="S"))
    node.later(6)
    node.tree.put(replace(STUCK, switches=8))
    assert 1 == len(node.stuck_for(160))
    assert 2 == len(node.engine.incidents)


def test_a_wait_that_nobody_can_attribute_opens_nothing(tmp_path: Path, rules: RuleTable) -> None:
    """Without rights it is told in the state and the metrics; an incident takes evidence."""
    tree = ProcTree(tmp_path / "proc")
    tree.capabilities(0)
    tree.put(FakeTask(4711, state="D", uid=4242))
    one = Node(tree, rules, Hands())
    assert [] == one.stuck_for(300)
    assert 1.0 == one.tasks.readings()["xidwatch_tasks_blocked", (("attribution", "unknown"),)]
    assert one.tasks.state(rules)["d_state"]["cannot_see"]
    one.tasks.close()


def test_in_a_container_the_hosts_pids_are_nobodys(tmp_path: Path, rules: RuleTable) -> None:
    """The kernel's log has the host's numbers; who has the same number in a container is somebody else."""
    tree = ProcTree(tmp_path / "proc")
    (tree.root / "self/ns").mkdir()
    (tree.root / "self/ns/pid").symlink_to("pid:[4026532211]")
    tree.put(FakeTask(88, files={"cgroup": "0::/system.slice/innocent.service\n"}))
    one = Node(tree, rules, Hands())
    one.later(0)
    one.hear("NVRM: Xid (PCI:0000:3b:00): 43, pid=88, name=python3, Ch 00000008")
    one.later(1)
    one.later(10)
    assert one.tasks.whose(event_of(88, one)) is None
    assert "hostPID" in " ".join(one.tasks.state(rules)["d_state"]["cannot_see"])
    one.tasks.close()


def test_what_is_not_known_of_a_kill_is_not_claimed(node: Node) -> None:
    """/proc does not show the scheduler's frames: the sentence says that it is not known, where the kernel's report would tell."""
    node.tree.put(STUCK)
    (incident,) = node.stuck_for(125)
    assert "whether it can be killed is not known" in incident.sentence


def test_storage_is_a_warning_for_the_platform(node: Node) -> None:
    """A stuck disk is no GPU's fault and asks for no reset."""
    node.tree.put(replace(STUCK, files={"stack": STUCK_ON_DISK, "wchan": "percpu_rwsem_wait"}))
    (incident,) = node.stuck_for(130)
    assert ("platform", "warning", "none") == (incident.fault_class, incident.severity, incident.recovery.rung)


def test_the_owner_of_the_lock_is_named(node: Node, rules: RuleTable) -> None:
    """What the kernel's log says of the lock's owner stands beside the wait."""
    node.tree.put(STUCK)
    node.hear(
        "INFO: task python3:4711 blocked for more than 122 seconds.",
        "INFO: task python3:4711 blocked on a mutex likely owned by task nv_queue:333.",
    )
    node.stuck_for(125)
    (wait,) = node.tasks.state(rules)["blocked"]
    assert "a lock that nv_queue (pid 333) holds" == wait["waits_for"]


def test_an_xid_names_the_job_of_a_process_that_is_gone(node: Node) -> None:
    """The table knows who held the GPU; the line is read after the process has died."""
    node.tree.put(
        FakeTask(
            88,
            files={"cgroup": "0::/kubepods/pod7d9e1c50-2f3b-4a6e-9b1d-0c2f4e6a8b10/" + "ab" * 32 + "\n"},
            descriptors={4: "/dev/nvidia0"},
        )
    )
    node.later(0)
    node.once(lambda: node.tasks.whose(event_of(88, node)) is not None)
    node.tree.remove(88)
    node.later(20)
    node.hear("NVRM: Xid (PCI:0000:3b:00): 31, pid=88, name=python3, Ch 00000008, intr 10000000. MMU Fault: ENGINE GRAPHICS")
    node.later(1)
    job = next(settled.item.job for settled in node.kept if isinstance(settled.item, Event))
    assert job is not None
    assert ("7d9e1c50-2f3b-4a6e-9b1d-0c2f4e6a8b10", "ab" * 32) == (job.pod, job.container)


SLURM = "0::/system.slice/slurmstepd.scope/job_{}/step_0/user/task_0\n"


@pytest.mark.parametrize(
    ("jobs", "expected"), [((), None), (("7",), "7"), (("7", "7"), "7"), (("7", "8"), None)]
)  # fmt: skip
def test_a_line_without_a_pid_is_the_only_jobs_on_the_gpu(node: Node, jobs: tuple[str, ...], expected: str | None) -> None:
    """An uncorrectable error names no process; one job on the card is told, of two nobody knows which. Monitors do not count."""
    node.tree.put(
        FakeTask(60, uid=0, files={"cgroup": "0::/system.slice/nvidia-dcgm.service\n"}, descriptors={4: "/dev/nvidia0"})
    )
    for number, job in enumerate(jobs):
        node.tree.put(FakeTask(70 + number, files={"cgroup": SLURM.format(job)}, descriptors={4: "/dev/nvidia0"}))
    node.later(0)
    node.once(lambda: len(node.tasks.state(node.engine.rules)["holders"]) == len(jobs) + 1)
    node.later(1)
    node.later(1)
    node.hear(
        "NVRM: Xid (PCI:0000:3b:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been detected on GPU"
    )
    node.later(1)
    (found,) = [settled.item.job for settled in node.kept if isinstance(settled.item, Event)]
    assert expected == (found.slurm_job if found is not None else None)


def test_a_pid_that_was_given_again_is_the_new_process(node: Node) -> None:
    """A line after the death of the process that had the pid is not about it."""
    node.tree.put(FakeTask(88, files={"cgroup": "0::/system.slice/old.service\n"}, descriptors={4: "/dev/nvidia0"}))
    node.later(0)
    node.once(lambda: node.tasks.whose(event_of(88, node)) is not None)
    node.tree.remove(88)
    node.later(20)
    node.hands.seconds += 10
    assert node.tasks.whose(event_of(88, node)) is None
    node.tree.put(FakeTask(88, start=900_000, files={"cgroup": "0::/system.slice/new.service\n"}))
    node.hear(
        "NVRM: Xid (PCI:0000:3b:00): 13, pid=88, name=python3, Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0): Out Of Range"
    )
    node.once(lambda: not node.tasks.awaits(event_of(88, node)))
    node.later(1)
    units = [settled.item.job.unit for settled in node.kept if isinstance(settled.item, Event) and settled.item.job]
    assert ["new.service"] == units


def test_a_complete_event_waits_a_moment_for_the_answer(node: Node) -> None:
    """An event whose pid is being looked up is settled with the answer, or without it after 15 ms."""
    node.later(0)
    node.tree.put(FakeTask(88, files={"cgroup": "0::/system.slice/vllm.service\n"}))
    node.hear("NVRM: Xid (PCI:0000:3b:00): 43, pid=88, name=python3, Ch 00000008")
    now_us = node.hands.wall_us()
    node.engine.awaits = lambda _event: True
    assert [] == node.engine.settle(now_us)
    assert now_us + 15_000 >= (node.engine.deadline_us() or 0)
    assert 1 == len(node.engine.settle(now_us + 15_000))


def event_of(pid: int, node: Node) -> Event:
    """Any event of this pid, now."""
    record = Record(text="", wall_us=node.hands.wall_us())
    return Event(uid=(0, 0, 0), kind="xid", record=record, last_record=record, pid=pid)


def test_off_is_off(rules: RuleTable) -> None:
    """Nothing is read, no series is there, and the state says why."""
    tasks = Tasks(DState(scan="off"), Earlier(boot_id=BOOT), lambda: None, Hands())
    tasks.start()
    assert ({}, "switched off in the configuration") == (tasks.readings(), tasks.state(rules)["d_state"]["why"])
    assert [] == list(tasks.news())
