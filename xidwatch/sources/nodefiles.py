"""The process that reads a node's files for `xidwatch check`. It may get stuck and be left behind; nothing else runs in it.

It tells each file as soon as it has it, what cannot block first: a disk or a process in trouble costs only what comes after it.
An environment is read under its owner's mmap lock, which a task in D state may hold for ever (fs/proc/base.c, environ_read), so
processes with such a thread are left out, and all others come last.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

NAME = "xidwatch-look"
"""The process's own name; at most 15 characters."""
MOST_BYTES = 1 << 16
_KERNEL = (
    "hung_task_timeout_secs", "hung_task_warnings", "hung_task_all_cpu_backtrace", "watchdog_thresh", "soft_watchdog", "sysrq",
    "panic", "printk", "osrelease",
)  # fmt: skip
_PLAIN = (
    *(f"/proc/sys/kernel/{name}" for name in _KERNEL),
    "/proc/version", "/proc/uptime", "/proc/mounts", "/proc/consoles", "/proc/cmdline", "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/params",
    "/proc/self/ns/pid", "/sys/kernel/kexec_crash_loaded", "/sys/module/pstore/parameters/backend",
    "/sys/fs/cgroup/system.slice/cgroup.procs", "/sys/fs/cgroup/system.slice/xidwatch-hook.service/cgroup.procs",
    "/run/systemd/journal/socket",
)  # fmt: skip
_SETTINGS = (
    *(f"{folder}/systemd/{name}" for folder in ("usr/lib", "usr/local/lib", "run", "etc")
      for name in ("journald.conf", "journald.conf.d/*.conf")),
    "etc/modprobe.d/*.conf",
)  # fmt: skip
_LIBRARIES = (
    "usr/lib", "usr/lib64", "usr/lib/*-linux-gnu", "usr/lib/*-linux-gnu/nvidia/*", "run/nvidia/driver/usr/lib/*-linux-gnu",
    "run/nvidia/driver/usr/lib64",
)  # fmt: skip
_DISKS = (
    "var/log/journal", "var/log/kern.log", "var/log/messages", "var/log/syslog", "var/log/fabricmanager.log",
    *(f"{folder}/libnvidia-ml.so.*" for folder in _LIBRARIES),
    "var/lib/dkms/nvidia*/*/*",
)  # fmt: skip
_NAMES_ALONE = ("/var/log/kern.log", "/var/log/messages", "/var/log/syslog")
_TAILS = ("/var/log/fabricmanager.log",)
_WIDTHS = ("current_link_width", "max_link_width")
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ESRCH)
_MOST_JOBS = 256
_CLOCK_ERROR = 5
"""TIME_ERROR of adjtimex(2): not synchronized."""
Tell = Callable[[dict[str, object]], None]


def main(root: str, slots: Collection[str], programs: Collection[str], variables: Collection[str]) -> None:
    """Tell everything, one JSON object a line, on standard output.

    Args:
        root: The folder that stands for /.
        slots: PCI addresses of GPUs whose links are looked at; touching them must not wake them.
        programs: Names of processes that are looked for.
        variables: Names of variables that are read of processes that hold a GPU.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(NAME, encoding="ascii")
    out = os.dup(1)

    def tell(what: dict[str, object]) -> None:
        rest = (json.dumps(what) + "\n").encode()
        while rest:
            rest = rest[os.write(out, rest) :]

    with contextlib.suppress(BrokenPipeError):
        look(Path(root), tell, slots, (programs, variables))
        tell({"done": True})


def look(root: Path, tell: Tell, slots: Collection[str], wanted: tuple[Collection[str], Collection[str]]) -> None:
    """Read it all, in the order of how surely it can be read; `wanted` are programs and variables."""
    programs, variables = wanted
    for path in _PLAIN:
        _tell_file(root, path, tell)
    for folder in sorted((root / "sys/bus/pci/drivers/nvidia-nvswitch").glob("*:*")):
        _tell_file(root, _inside(root, folder), tell)
    if root == Path("/"):
        tell({"clock": _clock()})
    for path in _found(root, _SETTINGS):
        _tell_file(root, path, tell)
    _tell_programs(root, tell, programs)
    tell({"at": "the PCI links of the GPUs"})
    for slot in slots:
        for name in _WIDTHS:
            _tell_file(root, f"/sys/bus/pci/devices/{slot}/{name}", tell)
    if (earlier := _stuck_look(root)) is not None:
        tell({"path": "disks and jobs", "error": f"an earlier look is still blocked (pid {earlier})"})
        return
    tell({"at": "files on the disks"})
    for path in _found(root, _DISKS):
        _tell_file(root, path, tell)
    tell({"at": "the environment of GPU jobs"})
    for pid in _holders(root, tell):
        _tell_job(root, pid, tell, variables)


def _found(root: Path, patterns: Collection[str]) -> Iterator[str]:
    for pattern in patterns:
        with contextlib.suppress(OSError):
            yield from (_inside(root, path) for path in sorted(root.glob(pattern)))


def _inside(root: Path, path: Path) -> str:
    return f"/{path.relative_to(root)}"


def _tell_file(root: Path, path: str, tell: Tell) -> None:
    try:
        tell({"path": path, "text": _content(root / path.lstrip("/"), path)})
    except OSError as error:
        if error.errno not in _ABSENT:
            tell({"path": path, "error": error.strerror or str(error)})


def _content(place: Path, path: str) -> str:
    if place.is_symlink():
        return str(place.readlink())
    if path in _NAMES_ALONE or not place.is_file():
        place.stat()
        return ""
    # Nothing here may wait for a writer: a pipe in place of a file is empty.
    file = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if path in _TAILS:
            os.lseek(file, max(0, os.fstat(file).st_size - MOST_BYTES), os.SEEK_SET)
        return os.read(file, MOST_BYTES).decode("utf-8", "replace")
    finally:
        os.close(file)


def _clock() -> bool | None:
    """Whether adjtimex(2) says that something keeps the clock right; it changes nothing."""
    buffer = (ctypes.c_long * 64)()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _CLOCK_ERROR


# processes


def _tell_programs(root: Path, tell: Tell, programs: Collection[str]) -> None:
    """Tell which of the programs run."""
    running: dict[str, list[int]] = {}
    for pid in _processes(root):
        if (name := _name_and_state(root / f"proc/{pid}/stat")[0]) in programs:
            running.setdefault(name, []).append(pid)
    sees_all = _name_and_state(root / "proc/1/stat")[0] != ""
    tell({"programs": running if sees_all else None})


def _holders(root: Path, tell: Tell) -> list[int]:
    """Processes that hold a GPU."""
    found = {pid: _holds_gpu(root / f"proc/{pid}/fd") for pid in _processes(root) if pid != os.getpid()}
    if closed := list(found.values()).count(None):
        tell({"path": "/proc/PID/fd", "error": f"{closed} processes of others: only root sees whether they hold a GPU"})
    return [pid for pid, holds in found.items() if holds][:_MOST_JOBS]


def _processes(root: Path) -> list[int]:
    return sorted(int(entry) for entry in _names(root / "proc") if entry.isdecimal())


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _name_and_state(stat: Path) -> tuple[str, str]:
    """proc(5): pid (comm) state ...; both "" of a process that has ended."""
    try:
        name, rest = stat.read_text(encoding="utf-8", errors="replace").split("(", 1)[1].rsplit(")", 1)
        return name, rest.split()[0]
    except (OSError, IndexError, ValueError):
        return "", ""


def _holds_gpu(folder: Path) -> bool | None:
    """Whether it has /dev/nvidia0 or the like open; None where that may not be known."""
    try:
        entries = os.listdir(folder)
    except PermissionError:
        return None
    except OSError:
        return False
    for entry in entries:
        with contextlib.suppress(OSError):
            if (target := os.readlink(folder / entry)).startswith("/dev/nvidia") and target[11:].isdecimal():
                return True
    return False


def _tell_job(root: Path, pid: int, tell: Tell, variables: Collection[str]) -> None:
    folder = root / f"proc/{pid}"
    if any(_name_and_state(folder / "task" / task / "stat")[1] == "D" for task in _names(folder / "task")):
        tell({"path": f"/proc/{pid}/environ", "error": "a thread of it is in D state"})
        return
    try:
        pairs = (folder / "environ").read_bytes().split(b"\0")
    except OSError as error:
        if error.errno not in _ABSENT:
            tell({"path": f"/proc/{pid}/environ", "error": error.strerror or str(error)})
        return
    named = (pair.decode("utf-8", "replace").partition("=") for pair in pairs)
    tell({"job": pid, "variables": {name: value for name, _, value in named if name in variables}})


def _stuck_look(root: Path) -> int | None:
    for entry in _names(root / "proc"):
        if entry.isdecimal() and int(entry) != os.getpid() and _name_and_state(root / f"proc/{entry}/stat") == (NAME, "D"):
            return int(entry)
    return None
