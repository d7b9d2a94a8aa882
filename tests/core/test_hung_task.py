from __future__ import annotations

import pytest

from tests.core.reading import read, read_events
from xidwatch.core.event import Event, HungTaskDetail
from xidwatch.core.record import Record

HEAD = "INFO: task {0} blocked for more than 122 seconds."


def only(events: list[Event]) -> tuple[Event, HungTaskDetail]:
    """The one hung task among the events."""
    assert len(events) == 1
    detail = events[0].detail
    assert isinstance(detail, HungTaskDetail)
    return events[0], detail


@pytest.mark.parametrize(
    ("line", "process", "pid", "seconds", "io_wait"),
    [
        ("INFO: task python3:2201 blocked for more than 122 seconds.", "python3", 2201, 122, False),
        ("INFO: task nvc:[driver]:5403 blocked for more than 120 seconds.", "nvc:[driver]", 5403, 120, False),
        ("INFO: task kworker/u64:3:712 blocked for more than 245 seconds.", "kworker/u64:3", 712, 245, False),
        ("INFO: task UVM global queue:99 blocked for more than 368 seconds.", "UVM global queue", 99, 368, False),
        ("INFO: task X:1 blocked in I/O wait for more than 122 seconds.", "X", 1, 122, True),
        ("INFO: task odd\nname:77 blocked for more than 143 seconds.", "odd\nname", 77, 143, False),
    ],
)
def test_head(line: str, process: str, pid: int, seconds: int, io_wait: bool) -> None:  # noqa: FBT001 a row of the table
    """The pid stands behind the last colon, whatever the task calls itself."""
    parser_input = Record(text=line, timed=True)
    from xidwatch.core.hung_task import start

    event, detail = only(list(start(parser_input)))
    assert (process, pid, seconds, io_wait) == (event.process, event.pid, detail.blocked_s, detail.io_wait)


def test_name_over_two_lines() -> None:
    """A newline in the task's name leaves its pid: the process is unknown, the event is not lost."""
    event, detail = only(
        read_events("INFO: task \x01\nq!:18088 blocked for more than 143 seconds.\n      Not tainted 6.19.0 #1")
    )
    assert (None, 18088, 143, "6.19.0") == (event.process, event.pid, detail.blocked_s, detail.kernel)


@pytest.mark.parametrize(
    ("state", "kernel_thread"),
    [
        ("pdflush       D ffff81007fe1f7a0     0   123     2           124   122 (L-TLB)", True),
        ("pdflush         D ffff88013fc127c0     0   123      2 0x00000000", True),
        ("pdflush         D    0   123      1 0x00000000", False),
        ("pdflush         D24208   123   4671 0x00000004", False),
        ("pdflush         D    0   123      2 0x90000000 2136304260817", True),
        ("pdflush         D ffff880e46c08840     0 123 445662    0 0x00000000", False),
        ("task:pdflush         state:D stack:    0 pid: 123 ppid:     2 flags:0x00004000", True),
        ("task:pdflush         state:D stack:0     pid:123   ppid:2      flags:0x00004002", True),
        (
            "task:pdflush         state:D stack:0     pid:123   tgid:123   ppid:2100   task_flags:0x400140 flags:0x00004006",
            False,
        ),
    ],
)
def test_state_line_of_every_kernel(state: str, kernel_thread: bool) -> None:  # noqa: FBT001 a row of the table
    """The parent's pid tells a kernel thread from a process in the state lines of Linux 2.6 to 7.0."""
    _, detail = only(read_events(f"{HEAD.format('pdflush:123')}\n{state}"))
    assert kernel_thread is detail.kernel_thread


@pytest.mark.parametrize(
    ("frames", "stack", "related", "attribution"),
    [
        (" schedule+0x33/0x110\n os_acquire_rwlock_write+0x35/0x50 [nvidia]", "os_acquire_rwlock_write [nvidia]", True, "gpu"),
        ("  [<ffffffffa09c376e>] uvm_gpu_retain+0x1e/0x40 [nvidia_uvm]", "uvm_gpu_retain [nvidia_uvm]", True, "gpu"),
        (" jbd2_wait+0x77/0xe0 [jbd2 ae888ef92775c4ea4c63d1cd1f51b1b9f7d9f47d]", "jbd2_wait [jbd2]", False, "storage"),
        ("[<80a88018>] (io_schedule) from [<8015c138>] (nfs_wb_all+0x14/0x15c)", "nfs_wb_all", False, "storage"),
        (" io_schedule from amdgpu_fence_wait+0x14/0x15c [amdgpu]", "amdgpu_fence_wait [amdgpu]", True, "gpu"),
        (" panfrost_job_wait+0xadf/0x5270 drivers/gpu/drm/panfrost/panfrost_job.c:640", "panfrost_job_wait", True, "gpu"),
        (" rtnl_lock+0xadf/0x5270 net/core/rtnetlink.c:72", "rtnl_lock", False, "network"),
        (" __mutex_lock_common kernel/locking/mutex.c:679 [inline]", "__mutex_lock_common", None, "unknown"),
        ("[c0002003c0b7b9c0] [c00000000001c1d4] xfs_log_force+0x2e4/0x9d0", "xfs_log_force", False, "storage"),
        (" percpu_rwsem_wait+0x1/0x2\n mnt_want_write+0x1/0x2", "mnt_want_write", False, "storage"),
        (" console_lock+0x31/0x80", "console_lock", False, "other"),
        (" drm_atomic_commit+0x1/0x2 [drm]\n ast_mode_commit+0x1/0x2 [ast]", "ast_mode_commit [ast]", False, "other"),
    ],
)
def test_frames(frames: str, stack: str, related: bool, attribution: str) -> None:  # noqa: FBT001 a row of the table
    """A frame is read in every style of printk, and the stack says what the task waits for."""
    _, detail = only(read_events(f"{HEAD.format('python3:7')}\nCall Trace:\n{frames}"))
    assert (stack, related, attribution) == (detail.stack[-1], detail.gpu_related, detail.attribution)


def test_doubtful_gpu_frame() -> None:
    """A GPU frame that the unwinder could not vouch for leaves the question open and stays out of the stack."""
    text = f"{HEAD.format('miner:7')}\n down_read+0x20/0x40\n ? amdgpu_cs+0x60/0x60 [amdgpu]\n do_page_fault+0x2e/0xe0"
    _, detail = only(read_events(text))
    assert (("down_read", "do_page_fault"), None) == (detail.stack, detail.gpu_related)


@pytest.mark.parametrize(
    ("name", "more", "related"),
    [
        ("nv_queue", "", True),
        ("irq/162-nvidia", "", True),
        ("jbd2/sda1-8", "", False),
        ("txg_sync", "", False),
        ("kworker/u4:2", "Workqueue: netns cleanup_net", False),
        ("kworker/12:4", "Workqueue: events amdgpu_tlb_fence_work [amdgpu]", True),
        ("kworker/12:4", "", None),
        ("python3", "", None),
    ],
)
def test_without_stack(name: str, more: str, related: bool | None) -> None:  # noqa: FBT001 a row of the table
    """Without a stack only a kernel thread's name or its work item tells; for a process the answer is unknown."""
    _, detail = only(read_events(f"{HEAD.format(name + ':9')}\n{more}"))
    assert related is detail.gpu_related


@pytest.mark.parametrize(
    ("line", "owner", "lock"),
    [
        ("INFO: task a:1 is blocked on a mutex likely owned by task cache_mgr_main:1800.", "cache_mgr_main:1800", "mutex"),
        ("INFO: task a:1 is blocked on a mutex, but the owner is not found.", None, "mutex"),
        (
            "INFO: task a:1 blocked on a semaphore likely last held by task nvidia-modeset/:501",
            "nvidia-modeset/:501",
            "semaphore",
        ),
        (
            "INFO: task a:1 <writer> blocked on an rw-semaphore likely owned by task kworker/15:0:110 <reader>",
            "kworker/15:0:110",
            "rw-semaphore",
        ),
        ("INFO: task a:1 <writer> blocked on an rw-semaphore\n     likely owned by task b:9 <writer>", "b:9", "rw-semaphore"),
    ],
)
def test_lock_owner(line: str, owner: str | None, lock: str) -> None:
    """The lock's owner is read in every wording, also where the line was wrapped."""
    _, detail = only(read_events(f"{HEAD.format('a:1')}\n{line}"))
    assert (owner, lock) == (detail.blocked_by, detail.lock)


def test_owner_dump() -> None:
    """The owner's own dump belongs to the task that waits for it: a GPU frame there ties the wait to the GPU."""
    text = f"""
{HEAD.format("a:1")}
task:a               state:D stack:0     pid:1     tgid:1     ppid:700    flags:0x00000006
Call Trace:
 <TASK>
 schedule+0x1/0x2
 do_exit+0x1/0x2
 </TASK>
INFO: task a:1 is blocked on a mutex likely owned by task b:9.
task:b               state:R  running task     stack:0     pid:9     tgid:9     ppid:700    flags:0x00000006
Call Trace:
 <TASK>
 nvidia_unlocked_ioctl+0x21b/0x890 [nvidia]
 </TASK>
"""
    _, detail = only(read_events(text))
    assert (("schedule", "do_exit"), ("nvidia_unlocked_ioctl [nvidia]",)) == (detail.stack, detail.owner_stack)
    assert (True, "gpu", False) == (detail.gpu_related, detail.attribution, detail.killable)


def test_block_ends() -> None:
    """What another CPU's dump or the next report prints is not put into this task's stack."""
    text = f"""
{HEAD.format("a:1")}
Call Trace:
 ext4_wait+0x1/0x2
 </TASK>
NMI backtrace for cpu 0
CPU: 0 PID: 29 Comm: khungtaskd Not tainted 6.0.0 #0
Call Trace:
 nvidia_poll+0x1/0x2 [nvidia]
{HEAD.format("b:2")}
 amdgpu_wait+0x1/0x2 [amdgpu]
"""
    first, second = read_events(text)
    assert isinstance(first.detail, HungTaskDetail)
    assert isinstance(second.detail, HungTaskDetail)
    assert (("ext4_wait",), ("amdgpu_wait [amdgpu]",)) == (first.detail.stack, second.detail.stack)


def test_later_stack_is_not_ours() -> None:
    """A stack that comes minutes after a cut report belongs to something else."""
    _, detail = only(read_events(f"{HEAD.format('a:1')}\n nvidia_poll+0x1/0x2 [nvidia]", step_us=90_000_000))
    assert () == detail.stack


@pytest.mark.parametrize(("wait", "killable"), [("rpc_wait_bit_killable", True), ("rwsem_down_read_slowpath", False)])
def test_killable(wait: str, killable: bool) -> None:  # noqa: FBT001 a row of the table
    """SIGKILL works where the innermost wait says so; a killable function among the callers does not count."""
    frames = f" schedule+0x1/0x2\n {wait}+0x1/0x2\n nfs_wait+0x1/0x2\n filemap_fault_killable+0x1/0x2"
    _, detail = only(read_events(f"{HEAD.format('a:1')}\n{frames}"))
    assert killable is detail.killable


def test_head_lost() -> None:
    """`task:NAME state:D` without its head is a hung task whose seconds are unknown; an old state line alone is none."""
    event, detail = only(
        read_events("task:nv_open_q       state:D stack:0     pid:1014  tgid:1014  ppid:2      flags:0x00004000")
    )
    assert ("nv_open_q", 1014, None, True) == (event.process, event.pid, detail.blocked_s, detail.gpu_related)
    assert [] == read_events("gzip            D    0 22430  22391 0x00000000")


def test_repeats_and_suppression() -> None:
    """Each report of a task is an event, and the notice that further ones are suppressed makes the count a minimum."""
    text = (
        f"{HEAD.format('a:1')}\n{HEAD.format('a:1').replace('122', '245')}\nFuture hung task reports are suppressed, "
        f"see sysctl x"
    )
    assert [False, True] == [event.count_is_minimum for event in read_events(text)]


def test_release() -> None:
    """The kernel release stands behind the taint letters, whatever their number."""
    line = "      Tainted: P           ---------------    2.6.32-604.el6.x86_64 #1"
    _, detail = only(read_events(f"{HEAD.format('a:1')}\n{line}"))
    assert "2.6.32-604.el6.x86_64" == detail.kernel


def test_quoted_by_a_program() -> None:
    """A program that quotes the kernel's line in the middle of its own starts nothing."""
    like = Record(text="", program="node-problem-detector", timed=True)
    assert ([], []) == read(f"condition changed, message: {HEAD.format('a:1')}", like)
