"""What a wait is, by what little /proc may show of it."""

from __future__ import annotations

from typing import Any

import pytest

from xidwatch.core.blocked import Evidence, Hidden, Moment, Sighting, Spell, TaskKey
from xidwatch.core.event import Attribution
from xidwatch.core.wait import judge

ROOTS = Hidden(why="needs CAP_SYS_ADMIN")
NOW = Moment(wall_us=0, steady_s=1000.0)


def evidence(**known: Any) -> Evidence:
    """What is known; the rest is hidden or empty."""
    nothing: dict[str, Any] = {"stack": ROOTS, "wchan": None, "syscall": None, "file": None, "devices": (), "job": ROOTS}
    return Evidence(**nothing | known)


def spell(comm: str = "python3", *, kernel_thread: bool = False, killed_s: float | None = None) -> Spell:
    """A wait of a task of this name."""
    task = Sighting(key=TaskKey(1, 1, 1), comm=comm, kernel_thread=kernel_thread, switches=1, killed=killed_s is not None)
    return Spell(task, 900.0, killed_s)


@pytest.mark.parametrize(
    ("expected", "known"),
    [
        ("gpu", {"stack": ("os_acquire_rwlock_write [nvidia]", "nvidia_unlocked_ioctl [nvidia]")}),
        ("gpu", {"stack": ("uvm_va_space_mm_register [nvidia_uvm]",)}),
        ("gpu", {"stack": ("dma_fence_default_wait", "amdgpu_sync_wait [amdgpu]")}),
        ("gpu", {"wchan": "nvidia_unlocked_ioctl"}),
        ("gpu", {"wchan": "_nv042330rm"}),
        ("gpu", {"wchan": "os_acquire_mutex", "devices": ("/dev/nvidia0",)}),
        ("unknown", {"wchan": "os_acquire_mutex"}),
        ("gpu", {"wchan": None, "syscall": "ioctl", "file": "/dev/nvidiactl"}),
        ("storage", {"wchan": "folio_wait_bit_common", "syscall": "ioctl", "file": "/dev/nvidia0", "devices": ("/dev/nvidia0",)}),
        ("unknown", {"wchan": None, "syscall": "ioctl", "file": "/dev/sda", "devices": ()}),
        ("unknown", {"devices": ("/dev/nvidia0",)}),
        ("storage", {"stack": ("folio_wait_bit_common", "filemap_fault", "ext4_filemap_fault"), "devices": ("/dev/nvidia0",)}),
        ("storage", {"stack": ("rpc_wait_bit_killable [sunrpc]", "nfs4_do_open [nfsv4]")}),
        ("storage", {"wchan": "rpc_wait_bit_killable"}),
        ("storage", {"wchan": "jbd2_log_wait_commit"}),
        ("storage", {"stack": ("request_wait_answer [fuse]", "fuse_simple_request [fuse]")}),
        ("network", {"stack": ("cmd_exec [mlx5_core]", "mlx5_cmd_exec [mlx5_core]")}),
        ("network", {"wchan": "rtnl_lock"}),
        ("other", {"stack": ("kernel_clone", "__do_sys_clone", "do_syscall_64")}),
        ("other", {"wchan": "kernel_clone"}),
        ("unknown", {"wchan": "something_new_here"}),
        ("unknown", {}),
    ],
)  # fmt: skip
def test_attribution(expected: Attribution, known: dict[str, Any]) -> None:
    """GPU takes a driver's wait; to hold a GPU while waiting for a disk is no evidence."""
    wait = judge(spell(), evidence(**known), NOW)
    assert wait is not None
    assert expected == wait.attribution, wait.why
    assert wait.why


@pytest.mark.parametrize(("name", "expected"), [("jbd2/sda1-8", "storage"), ("nv_queue", "gpu"), ("kworker/u8:2", "unknown")])
def test_a_kernel_thread_is_known_by_its_name(name: str, expected: Attribution) -> None:
    """Where the stack is hidden the name tells whose thread it is; no signal reaches it."""
    wait = judge(spell(name, kernel_thread=True), evidence(), NOW)
    assert wait is not None
    assert (expected, False) == (wait.attribution, wait.killable)


def test_a_program_that_calls_itself_a_driver_thread_is_not_believed() -> None:
    """A process chooses its name; only the kernel's own threads are known by theirs."""
    wait = judge(spell("nv_queue"), evidence(), NOW)
    assert wait is not None
    assert "unknown" == wait.attribution


@pytest.mark.parametrize(
    ("expected", "frames", "killed_s"),
    [
        (True, ("rpc_wait_bit_killable [sunrpc]",), None),
        (False, ("percpu_rwsem_wait",), None),
        (None, ("os_acquire_rwlock_write [nvidia]",), None),
        (False, ("rpc_wait_bit_killable [sunrpc]",), 990.0),
        (True, ("rpc_wait_bit_killable [sunrpc]",), 999.5),
        (None, ("nfs4_do_open [nfsv4]", "rpc_call_sync_killable [sunrpc]"), None),
    ],
)
def test_killable(expected: object, frames: tuple[str, ...], killed_s: float | None) -> None:
    """By the innermost frame, or by a SIGKILL that waits in vain; else nobody knows: /proc hides the scheduler's frames."""
    wait = judge(spell(killed_s=killed_s), evidence(stack=frames), NOW)
    assert wait is not None
    assert expected is wait.killable
