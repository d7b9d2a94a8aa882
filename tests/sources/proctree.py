"""A folder that looks like /proc, and a task in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

KTHREAD = 0x0020_0000


@dataclass
class FakeTask:
    """One thread as /proc shows it; `pid` None is the leader's own number."""

    tid: int
    pid: int | None = None
    comm: str = "python3"
    state: str = "S"
    start: int = 1000
    flags: int = 0
    switches: int = 7
    pending: int = 0
    uid: int = 1000
    threads: int = 1
    files: dict[str, str] = field(default_factory=dict)
    descriptors: dict[int, str] = field(default_factory=dict)


class ProcTree:
    """Writes tasks below `root`, and takes them away."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "self").mkdir(parents=True)
        self.capabilities(1 << 2 | 1 << 19 | 1 << 21)
        self.put(FakeTask(1, comm="systemd", uid=0))

    def capabilities(self, mask: int) -> None:
        """What the reader itself may do."""
        (self.root / "self" / "status").write_text(f"Name:\txidwatch\nCapEff:\t{mask:016x}\n")

    def put(self, task: FakeTask) -> None:
        """Add it, or show what it is now."""
        pid = task.pid or task.tid
        stat = (
            f"{task.tid} ({task.comm}) {task.state} 1 {pid} {pid} 0 -1 {task.flags} "
            + "0 " * 10
            + f"{task.threads} 0 {task.start} 0 0\n"
        )
        status = (
            f"Name:\t{task.comm}\nState:\t{task.state} (disk sleep)\nTgid:\t{pid}\nUid:\t{task.uid}\t{task.uid}\t{task.uid}\t{task.uid}\n"
            f"NSpid:\t{task.tid}\nSigPnd:\t{0:016x}\nShdPnd:\t{task.pending:016x}\n"
            f"voluntary_ctxt_switches:\t{task.switches}\nnonvoluntary_ctxt_switches:\t0\n"
        )
        places = [self.root / str(pid) / "task" / str(task.tid)] + ([self.root / str(pid)] if pid == task.tid else [])
        for place in places:
            (place / "fd").mkdir(parents=True, exist_ok=True)
            for name, text in {"stat": stat, "status": status, "wchan": "0", **task.files}.items():
                (place / name).write_text(text)
            for number, target in task.descriptors.items():
                link = place / "fd" / str(number)
                link.unlink(missing_ok=True)
                link.symlink_to(target)

    def remove(self, pid: int) -> None:
        """It has ended."""
        import shutil

        shutil.rmtree(self.root / str(pid))

    def driver(self) -> None:
        """The GPU driver is loaded and has its device files."""
        (self.root / "devices").write_text("Character devices:\n195 nvidia\n234 nvidia-uvm\n")
        slot = self.root / "driver/nvidia/gpus/0000:3b:00.0"
        slot.mkdir(parents=True)
        (slot / "information").write_text("Model: \t\t NVIDIA H100\nDevice Minor: \t 0\n")


STUCK_IN_DRIVER = """\
[<0>] os_acquire_rwlock_write+0x35/0x50 [nvidia]
[<0>] _nv042330rm+0x10/0x40 [nvidia]
[<0>] nvidia_unlocked_ioctl+0x21b/0x890 [nvidia]
[<0>] __x64_sys_ioctl+0xa3/0xf0
[<0>] do_syscall_64+0x71/0x290
[<0>] entry_SYSCALL_64_after_hwframe+0x76/0x7e
"""
STUCK_ON_DISK = """\
[<0>] percpu_rwsem_wait+0x11e/0x150
[<0>] __percpu_down_read+0x74/0xe0
[<0>] mnt_want_write+0x8d/0xa0
[<0>] path_openat+0x4d2/0x1250
[<0>] do_filp_open+0xd8/0x180
[<0>] do_syscall_64+0x71/0x290
"""
STUCK_ON_NFS = """\
[<0>] rpc_wait_bit_killable+0x1e/0xb0 [sunrpc]
[<0>] nfs4_do_open+0x21a/0x6e0 [nfsv4]
[<0>] do_dentry_open+0x21b/0x570
"""
