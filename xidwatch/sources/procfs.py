"""Tasks in D state and who holds the GPUs, read from /proc.

What may be read of a stuck task without being stuck with it (linux 6.18, fs/proc/base.c, array.c, task_mmu.c):

- `stat`, `status`, `comm`, `wchan`, `children`, the names in `fd/` and `task/`: spinlocks and RCU only.
- `stack` and `syscall` wait for the task's exec_update_lock (before 5.7 its cred_guard_mutex), which a task that is stuck in
  execve holds; `cgroup` for cgroup_mutex in older kernels; the driver's own files below `driver/nvidia` for the driver.
  All but the last are killable waits. They are read in a thread that may be lost, see `evidence`.
- `cmdline`, `environ`, `smaps`, `numa_maps`, `map_files`, `mem`, before 6.17 also `maps`: mmap_lock, or the task's own pages. A
  task stuck in a page fault holds it, and the reader joins the wait (so do `ps -f` and `pgrep -f`). Nothing here reads any of
  them; a GPU that is mapped is open too. Tried on such a task in tests/system/test_stuck_reads.py.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from xidwatch.core.blocked import Evidence, Hidden, Sighting, TaskKey
from xidwatch.core.holders import Holder
from xidwatch.core.job import Job, parse_cgroup, pod_names
from xidwatch.core.stack import MOST_FRAMES, read_frames
from xidwatch.sources.syscalls import syscall_name, takes_descriptor

_KTHREAD = 0x0020_0000
"""PF_KTHREAD in the flags of /proc/PID/stat (include/linux/sched.h)."""
_SIGKILL = 1 << 8
_RIGHTS = {"CAP_SYS_PTRACE": (19,), "CAP_SYS_ADMIN": (21,), "CAP_DAC_READ_SEARCH": (2, 1)}
"""Bits of CapEff (include/uapi/linux/capability.h); CAP_DAC_OVERRIDE reads what CAP_DAC_READ_SEARCH does."""
_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO (include/linux/proc_ns.h)."""
_MOST_DESCRIPTORS = 4096
_STAT_BYTES = 1024
_TEXT_BYTES = 65536
_MOST_TEXT_BYTES = 1 << 20
_GONE = (errno.ESRCH, errno.ENOENT)
_DEVICES = ("/dev/nvidia", "/dev/kfd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What this process may see of others.

    Attributes:
        processes: All of them are in /proc, not only its own user's.
        rights: Of the capabilities that open the files of other users' tasks, those that it has. CAP_SYS_PTRACE is asked for
            wchan, system calls and open files, CAP_SYS_ADMIN for stacks; all but wchan are root's to open, which takes
            CAP_DAC_READ_SEARCH for anybody else.
        host_pids: Pids here are those of the kernel's log: this is the machine's own pid namespace, not a container's.
    """

    processes: bool
    rights: frozenset[str]
    host_pids: bool

    @property
    def traces(self) -> bool:
        """Whether the open files of all tasks can be seen."""
        return {"CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"} <= self.rights

    def blind_spots(self) -> tuple[str, ...]:
        """What cannot be seen and what would help, each a sentence."""
        found = []
        if not self.processes:
            found.append("processes of others: hidden (hidepid, or ProtectProc=invisible in the unit)")
        for what, needed, drop_in in (
            ("what tasks wait in and which devices they hold", ("CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"), "d-state"),
            ("kernel stacks", ("CAP_SYS_ADMIN", "CAP_DAC_READ_SEARCH"), "d-state-stack"),
        ):
            if lacking := [right for right in needed if right not in self.rights]:
                found.append(f"{what}: not permitted ({', '.join(lacking)}; drop-in {drop_in})")
        if not self.host_pids:
            found.append("whose job a pid in the kernel's log is: it is the host's, and this is a container's /proc (hostPID)")
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """How likely it is that something waits; None where the kernel does not tell.

    Attributes:
        load1: Load average of the last minute; tasks in D state count in it. None also where a file system of user space
            (LXCFS) makes it up.
        stalled: Greatest share of the last 10 s in which some task waited for input, output or memory, 0 to 1.
        hung_detected: The kernel's own count of hung tasks (6.13 and later).
    """

    load1: float | None
    stalled: float | None
    hung_detected: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One look at all tasks: those in D state, how many there are, and (pid, start) of the processes where asked for."""

    waiting: tuple[Sighting, ...]
    tasks: int
    processes: tuple[tuple[int, int], ...]


class ProcReader:
    """Reads one /proc. Errors of a task that has gone are nothing; what is not permitted is a value."""

    def __init__(self, root: str = "/proc", *, sysfs: str = "/sys", pod_logs: str = "/var/log/pods") -> None:
        """Open the folder.

        Raises:
            OSError: there is no such folder.
        """
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._path, self._sysfs, self._pod_logs = root, sysfs, pod_logs
        self._machine = platform.machine()
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._own_uid = os.geteuid()
        self._users: dict[int, str | None] = {}
        self._pods: dict[str, str] = {}
        self._pods_read_s = -1e9
        self.sight = self._sight()

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self._root)

    # cheap and never blocking: the thread that looks

    def all(self, *, processes: bool = False) -> Pass:
        """Every task looked at once; reads the `stat` of each. `processes`: list those that are not the kernel's, too."""
        found: list[Sighting] = []
        others: list[tuple[int, int]] = []
        count = 0
        for pid in self._pids():
            stat = self._read(f"{pid}/stat", _STAT_BYTES)
            if not stat:
                continue
            behind = stat.rfind(b")") + 2
            count += 1
            if stat[behind : behind + 1] == b"D":
                found += self._sighting(pid, pid, stat)
            fields = stat[behind:].split(b" ", 20)
            if processes and len(fields) > 19 and not int(fields[6]) & _KTHREAD:
                others.append((int(pid), int(fields[19])))
            if fields[17:18] != [b"1"]:
                threads, waiting = self._threads(pid, known=pid)
                count += threads - 1
                found += waiting
        return Pass(waiting=tuple(found), tasks=count, processes=tuple(others))

    def look(self, keys: Iterable[TaskKey]) -> list[Sighting]:
        """Those of these tasks that are in D state now."""
        found: list[Sighting] = []
        for key in keys:
            pid, tid = str(key.pid), str(key.tid)
            stat = self._read(f"{pid}/task/{tid}/stat", _STAT_BYTES)
            if stat[stat.rfind(b")") + 2 :][:1] == b"D":
                found += [one for one in self._sighting(pid, tid, stat) if one.key == key]
        return found

    def threads(self, pid: int) -> list[Sighting]:
        """The threads of one process that are in D state."""
        return self._threads(str(pid))[1]

    def holder(self, pid: int, now_us: int, boot_s: float) -> Holder | None:
        """A process as the table of holders keeps it, without its job; None when there is none.

        `boot_s` is CLOCK_BOOTTIME now, which starting times are counted on.
        """
        stat = self._read(f"{pid}/stat", _STAT_BYTES)
        fields = _fields(stat)
        if len(fields) <= 19:
            return None
        start = int(fields[19])
        started_us = now_us - round((boot_s - start / self._ticks_per_s) * 1e6)
        return Holder(pid=pid, start=start, started_us=started_us, comm=_comm(stat))

    def may_hold_gpus(self) -> bool:
        """Whether a GPU driver has device files: else nobody holds any."""
        names = self._read("devices", _TEXT_BYTES)
        return b" nvidia" in names or b" kfd" in names

    def devices(self, pid: int) -> tuple[str, ...] | Hidden:
        """The GPU device files that a process has open."""
        found = set()
        try:
            for number in self._listed(f"{pid}/fd")[:_MOST_DESCRIPTORS]:
                with contextlib.suppress(OSError):
                    target = os.readlink(f"{pid}/fd/{number}", dir_fd=self._root)
                    if target.startswith(_DEVICES):
                        found.add(target.removesuffix(" (deleted)"))
        except OSError as error:
            return self._hidden(error, "CAP_SYS_PTRACE")
        return tuple(sorted(found))

    def pressure(self) -> Pressure:
        """What three small files say of the whole machine."""
        stalled = [self._some(name) for name in ("pressure/io", "pressure/memory")]
        known = [share for share in stalled if share is not None]
        hung = self._read("sys/kernel/hung_task_detect_count", 64).strip()
        return Pressure(
            load1=self._load(), stalled=max(known, default=None), hung_detected=int(hung) if hung.isdigit() else None
        )

    # what may wait: only in a thread that may be lost

    def evidence(self, task: Sighting) -> Evidence:
        """All that can be told of a wait. May block; see above."""
        place = f"{task.key.pid}/task/{task.key.tid}"
        syscall, file = self._syscall(place)
        cgroup = self._text(f"{place}/cgroup", "")
        return Evidence(
            stack=self._stack(place),
            wchan=self._wchan(place, task),
            syscall=syscall,
            file=file,
            devices=() if task.kernel_thread else self.devices(task.key.pid),
            job=cgroup if isinstance(cgroup, Hidden) else self._job(cgroup, task.uid),
            children=tuple(int(pid) for pid in self._read(f"{place}/children", _TEXT_BYTES).split() if pid.isdigit()),
            frozen=None if isinstance(cgroup, Hidden) else self._frozen(cgroup),
        )

    def job(self, pid: int) -> Job:
        """Whose work a process is; an empty one where that cannot be told. May block; see above."""
        cgroup = self._text(f"{pid}/cgroup", "")
        uid = _uid(_told(self._read(f"{pid}/status", _TEXT_BYTES)))
        return self._job("" if isinstance(cgroup, Hidden) else cgroup, uid)

    def gpus_by_minor(self) -> dict[int, str]:
        """Number of /dev/nvidiaN -> PCI address, as the driver tells. May block for as long as the driver does."""
        found = {}
        for slot in self._names("driver/nvidia/gpus"):
            for line in (
                self._read(f"driver/nvidia/gpus/{slot}/information", _TEXT_BYTES).decode("ascii", "replace").splitlines()
            ):
                name, _, value = line.partition(":")
                if name.strip() == "Device Minor" and value.strip().isdecimal():
                    found[int(value)] = slot
        return found

    # parts

    def _threads(self, pid: str, known: str | None = None) -> tuple[int, list[Sighting]]:
        """How many threads a process has, and those in D state but the `known` one. One look-up of the process serves all."""
        found: list[Sighting] = []
        try:
            folder = os.open(f"{pid}/task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._root)
        except OSError:
            return 1, found
        try:
            tids = os.listdir(folder)
            for tid in tids:
                if tid == known:
                    continue
                stat = _beginning(f"{tid}/stat", _STAT_BYTES, folder)
                if stat[stat.rfind(b")") + 2 :][:1] == b"D":
                    found += self._sighting(pid, tid, stat)
        except OSError:
            return 1, found
        finally:
            os.close(folder)
        return len(tids), found

    def _sighting(self, pid: str, tid: str, stat: bytes) -> Iterator[Sighting]:
        fields = _fields(stat)
        told = _told(self._read(f"{pid}/task/{tid}/status", _TEXT_BYTES))
        if len(fields) <= 19 or not told.get(b"State", b"").startswith(b"D"):
            return
        counts = [told.get(name, b"") for name in (b"voluntary_ctxt_switches", b"nonvoluntary_ctxt_switches")]
        if not all(count.isdigit() for count in counts):
            return
        pending = [told.get(name, b"0") for name in (b"SigPnd", b"ShdPnd")]
        numbers = told.get(b"NSpid", b"").split()
        yield Sighting(
            key=TaskKey(int(pid), int(tid), int(fields[19])),
            comm=_comm(stat),
            kernel_thread=bool(int(fields[6]) & _KTHREAD),
            switches=sum(map(int, counts)),
            killed=any(int(mask, 16) & _SIGKILL for mask in pending),
            uid=_uid(told),
            inner_pid=int(numbers[-1]) if len(numbers) > 1 else None,
        )

    def _stack(self, place: str) -> tuple[str, ...] | Hidden:
        text = self._text(f"{place}/stack", "CAP_SYS_ADMIN")
        if isinstance(text, Hidden):
            return text
        lines = [line.partition("] ")[2] for line in text.splitlines() if line.startswith("[<")]
        return tuple(str(frame) for line in lines[:MOST_FRAMES] for frame in read_frames(line) if frame.reliable)

    def _wchan(self, place: str, task: Sighting) -> str | Hidden | None:
        text = self._text(f"{place}/wchan", "CAP_SYS_PTRACE")
        if isinstance(text, Hidden) or text.strip() not in ("", "0"):
            return text if isinstance(text, Hidden) else text.strip()
        # A reader without the right gets the same 0 as one of a task that does not wait (fs/proc/base.c, proc_pid_wchan).
        may = "CAP_SYS_PTRACE" in self.sight.rights or task.uid == self._own_uid
        return None if may else Hidden(why="needs CAP_SYS_PTRACE")

    def _syscall(self, place: str) -> tuple[str | Hidden | None, str | Hidden | None]:
        text = self._text(f"{place}/syscall", "CAP_SYS_PTRACE")
        if isinstance(text, Hidden):
            return text, text
        words = text.split()
        if len(words) < 3 or not words[0].isdigit():
            return None, None
        name = syscall_name(int(words[0]), self._machine)
        if not takes_descriptor(name):
            return name, None
        try:
            return name, os.readlink(f"{place}/fd/{int(words[1], 16) & 0xFFFF_FFFF}", dir_fd=self._root)
        except OSError as error:
            return name, self._hidden(error, "CAP_SYS_PTRACE")

    def _job(self, cgroup: str, uid: int | None) -> Job:
        job = parse_cgroup(cgroup)
        uid = job.uid if uid is None or (uid == 0 and job.uid) else uid
        if job.pod is not None:
            job = replace(job, pod_name=self._pod_name(job.pod))
        return replace(job, uid=uid, user=self._user(uid) if uid is not None else None)

    def _user(self, uid: int) -> str | None:
        """The name service may be far away: asked once for each."""
        if uid not in self._users:
            import pwd

            try:
                self._users[uid] = pwd.getpwuid(uid).pw_name
            except KeyError:
                self._users[uid] = None
        return self._users[uid]

    def _pod_name(self, uid: str) -> str | None:
        now_s = time.monotonic()
        if uid not in self._pods and now_s - self._pods_read_s > 10:
            self._pods_read_s = now_s
            with contextlib.suppress(OSError):
                self._pods = pod_names(os.listdir(self._pod_logs))
        return self._pods.get(uid)

    def _frozen(self, cgroup: str) -> bool | None:
        """Whether the freezer of cgroup version 1 holds it; version 2 stops tasks in another way, which is no D state."""
        for line in cgroup.splitlines():
            hierarchies, _, path = line.partition(":")[2].partition(":")
            if "freezer" in hierarchies.split(",") and path not in ("", "/"):
                try:
                    state = Path(f"{self._sysfs}/fs/cgroup/freezer{path}/freezer.state").read_text(encoding="ascii")
                except OSError:
                    return None
                return state.strip() in ("FROZEN", "FREEZING")
        return False

    def _load(self) -> float | None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            if os.stat("loadavg", dir_fd=self._root).st_dev == os.fstat(self._root).st_dev:
                return float(self._read("loadavg", 128).split()[0])
        return None

    def _some(self, name: str) -> float | None:
        for word in self._read(name, 512).partition(b"\n")[0].split():
            if word.startswith(b"avg10="):
                with contextlib.suppress(ValueError):
                    return float(word[6:]) / 100
        return None

    def _sight(self) -> Sight:
        told = _told(self._read("self/status", _TEXT_BYTES))
        try:
            mask = int(told.get(b"CapEff", b"0"), 16)
        except ValueError:
            mask = 0
        rights = frozenset(name for name, bits in _RIGHTS.items() if any(mask >> bit & 1 for bit in bits))
        if self._own_uid == 0:
            rights |= {"CAP_DAC_READ_SEARCH"}  # these files are root's own
        return Sight(processes=bool(self._read("1/stat", _STAT_BYTES)), rights=rights, host_pids=self._is_hosts())

    def _is_hosts(self) -> bool:
        try:
            return os.readlink("self/ns/pid", dir_fd=self._root) == _FIRST_PID_NAMESPACE
        except OSError:
            return True

    def _pids(self) -> list[str]:
        return [name for name in os.listdir(self._root) if name.isdigit()]

    def _names(self, path: str) -> list[str]:
        try:
            return self._listed(path)
        except OSError:
            return []

    def _listed(self, path: str) -> list[str]:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._root)
        try:
            return os.listdir(folder)
        finally:
            os.close(folder)

    def _read(self, path: str, most: int) -> bytes:
        return _beginning(path, most, self._root)

    def _text(self, path: str, needs: str) -> str | Hidden:
        """The whole text, or why it is hidden."""
        try:
            with open(os.open(path, os.O_RDONLY, dir_fd=self._root), "rb") as file:
                return file.read(_MOST_TEXT_BYTES).decode("utf-8", "surrogateescape")
        except OSError as error:
            return self._hidden(error, needs)

    def _hidden(self, error: OSError, needs: str) -> Hidden:
        if isinstance(error, PermissionError):
            lacking = [right for right in (needs, "CAP_DAC_READ_SEARCH") if right and right not in self.sight.rights]
            return Hidden(why=f"needs {' and '.join(lacking)}" if lacking else "not permitted")
        return Hidden(why="it is gone, or this kernel does not tell" if error.errno in _GONE else error.strerror or str(error))


def _beginning(path: str, most: int, folder: int) -> bytes:
    """The file's beginning; b"" when it is not there, or not for us."""
    try:
        file = os.open(path, os.O_RDONLY, dir_fd=folder)
    except OSError:
        return b""
    try:
        return os.read(file, most)
    except OSError:
        return b""
    finally:
        os.close(file)


def _fields(stat: bytes) -> list[bytes]:
    """The fields behind the name: state first, flags at 6, threads at 17, start at 19 (proc(5)); a name may hold brackets."""
    return stat[stat.rfind(b")") + 2 :].split()


def _comm(stat: bytes) -> str:
    return stat[stat.find(b"(") + 1 : stat.rfind(b")")].decode("utf-8", "surrogateescape")


def _told(status: bytes) -> dict[bytes, bytes]:
    pairs = (line.partition(b":") for line in status.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def _uid(told: dict[bytes, bytes]) -> int | None:
    """The effective one."""
    numbers = told.get(b"Uid", b"").split()
    return int(numbers[1]) if len(numbers) > 1 and numbers[1].isdigit() else None
