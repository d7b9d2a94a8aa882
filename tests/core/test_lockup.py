from __future__ import annotations

import pytest

from tests.core.reading import read, read_events
from xidwatch.core.event import LockupDetail


def detail_of(text: str) -> LockupDetail:
    """What the one lockup in the text says."""
    (event,) = read_events(text)
    assert isinstance(event.detail, LockupDetail)
    return event.detail


@pytest.mark.parametrize(
    ("line", "cpu", "seconds", "process", "pid"),
    [
        ("watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:225]", 18, 27, "python3", 225),
        ("NMI watchdog: BUG: soft lockup - CPU#1 stuck for 11s! [syz-executor7:16813]", 1, 11, "syz-executor7", 16813),
        ("BUG: soft lockup - CPU#0 stuck for 61s! [kworker/0:2:1400]", 0, 61, "kworker/0:2", 1400),
        ("watchdog: BUG: soft lockup - CPU#1 stuck for 2471s! [CPU 0/KVM:31664]", 1, 2471, "CPU 0/KVM", 31664),
        ("BUG: soft lockup detected on CPU#3!", 3, None, None, None),
    ],
)
def test_soft_lockup(line: str, cpu: int, seconds: int | None, process: str | None, pid: int | None) -> None:
    """CPU, seconds and task are read in the wording of every kernel."""
    (event,) = read_events(line)
    assert isinstance(event.detail, LockupDetail)
    got = (event.kind, event.detail.cpu, event.detail.stuck_s, event.process, event.pid)
    assert ("soft_lockup", cpu, seconds, process, pid) == got


@pytest.mark.parametrize(
    ("line", "cpus"),
    [
        ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 5", (5,)),
        ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 5dModules linked in:", (5,)),
        ("watchdog: Watchdog detected hard LOCKUP on cpu 5", (5,)),
        ("watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 5", (5,)),
        ("watchdog: CPU 12 detected hard LOCKUP on other CPUs 4,6", (4, 6)),
        ("watchdog: CPU 12 self-detected hard LOCKUP @ plpar_hcall+0x38/0x60", (12,)),
        ("Kernel panic - not syncing: Watchdog detected hard LOCKUP on cpu 7", (7,)),
        ("Kernel panic - not syncing: Hard LOCKUP", ()),
    ],
)
def test_hard_lockup(line: str, cpus: tuple[int, ...]) -> None:
    """Every wording of a hard lockup names the CPU that is stuck, not the one that saw it."""
    (event,) = read_events(line)
    assert isinstance(event.detail, LockupDetail)
    assert ("hard_lockup", cpus) == (event.kind, event.detail.cpus)


def test_panic_of_a_hard_lockup() -> None:
    """The panic that a hard lockup ends in is the same event."""
    text = "watchdog: Watchdog detected hard LOCKUP on cpu 5\nKernel panic - not syncing: Hard LOCKUP"
    assert (5,) == detail_of(text).cpus


def test_bare_hard_lockup_warning() -> None:
    """The line under a `WARNING:` of Linux 3.x, without its prefix, is no event."""
    assert [] == read_events(
        "WARNING: at kernel/watchdog.c:245 watchdog_overflow_callback+0x9c/0xd0()\nWatchdog detected hard LOCKUP on cpu 0"
    )


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("INFO: rcu_sched_state detected stall on CPU 0 (t=105060 jiffies)", (0,)),
        ("INFO: rcu_sched self-detected stall on CPU { 17}  (t=15001 jiffies g=310464443 c=310464442 q=0)", (17,)),
        ("INFO: rcu_sched_state detected stalls on CPUs/tasks: { 2} (detected by 7, t=15002 jiffies)", (2,)),
        ("INFO: RCU detected CPU 3 stall (t=10000 jiffies)", (3,)),
        ("INFO: rcu_sched self-detected stall on CPU\n\t1-...: (65000 ticks this GP) idle=395/1/0 softirq=1/2 fqs=16248", (1,)),
        ("rcu: INFO: rcu_preempt self-detected stall on CPU\nrcu: \t18-....: (14999 ticks this GP) idle=1 fqs=7123", (18,)),
        (
            "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:\nrcu: \t9-...!: (0 ticks this GP)\nrcu: \t11-...0: (1 "
            "GPs behind)",
            (9, 11),
        ),
        (
            "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 18-...D P1234 } 21000 jiffies s: 5 root: 0x2/.",
            (18,),
        ),
        ("rcu: INFO: rcu_tasks detected stalls on tasks:", ()),
    ],
)
def test_rcu_stall(text: str, cpus: tuple[int, ...]) -> None:
    """The stalled CPUs are read from the head, from braces or from the lines below; a blocked task is no CPU."""
    assert cpus == detail_of(text).cpus


def test_one_stall_seen_twice() -> None:
    """Two CPUs that notice a stall at once, before either named it, tell of one event."""
    text = (
        "INFO: rcu_sched self-detected stall on CPU\nINFO: rcu_sched detected stalls on CPUs/tasks:\n\t1-...: (65000 "
        "ticks this GP)"
    )
    (event,) = read_events(text)
    assert isinstance(event.detail, LockupDetail)
    assert (2, (1,)) == (event.lines, event.detail.cpus)


def test_stack_of_the_stuck_cpu() -> None:
    """The stack of the CPU that is stuck counts, where it stands first, and no other CPU's."""
    text = """
watchdog: BUG: soft lockup - CPU#9 stuck for 22s! [python3:1307]
CPU: 9 UID: 0 PID: 1307 Comm: python3 Tainted: P           OE      6.14.0 #1
RIP: 0010:_nv030887rm+0x12/0x40 [nvidia]
Call Trace:
 rm_isr_bh+0x1c/0x60 [nvidia]
NMI backtrace for cpu 3
CPU: 3 UID: 0 PID: 5 Comm: x Not tainted 6.14.0 #1
 ext4_sync+0x1/0x2
"""
    detail = detail_of(text)
    assert (("_nv030887rm [nvidia]", "rm_isr_bh [nvidia]"), True) == (detail.stack, detail.gpu_related)


def test_rcu_task_and_starved_thread() -> None:
    """An RCU stall takes its task from the stalled CPU's dump; the starved grace-period thread's stack is not its own."""
    text = """
rcu: INFO: rcu_sched detected stalls on CPUs/tasks:
rcu:     0-...0: (1 GPs behind) idle=75bc/1/0x4000000000000000 softirq=15304/15305 fqs=2359
rcu:     (detected by 2, t=5902 jiffies, g=45361, q=1759 ncpus=16)
Sending NMI from CPU 2 to CPUs 0:
NMI backtrace for cpu 0
CPU: 0 UID: 992 PID: 24017 Comm: python3 Not tainted 6.12.55 #1
pc : handle_softirqs+0x9c/0x310
rcu: rcu_sched kthread starved for 15002 jiffies! g45361 f0x0 RCU_GP_WAIT_FQS(5) ->state=0x0 ->cpu=3
rcu: RCU grace-period kthread stack dump:
 nvidia_poll+0x1/0x2 [nvidia]
"""
    (event,) = read_events(text)
    assert isinstance(event.detail, LockupDetail)
    assert ("python3", 24017, ("handle_softirqs",), False) == (
        event.process, event.pid, event.detail.stack, event.detail.gpu_related,
    )  # fmt: skip


def test_gpu_interrupt_thread() -> None:
    """A lockup in the driver's own interrupt thread is the GPU's, with or without a stack."""
    assert detail_of("watchdog: BUG: soft lockup - CPU#9 stuck for 22s! [irq/162-nvidia:1307]").gpu_related is True


def test_no_lockups() -> None:
    """A workqueue lockup is context, and a work item that hogged the CPU is nothing."""
    text = """
BUG: workqueue lockup - pool cpus=0 flags=0x4 nice=0 stuck for 197s!
workqueue: ib_cache_event_task [ib_core] hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND
"""
    events, context = read(text)
    assert ([], ["workqueue_lockup"]) == (events, [item.kind for item in context])
