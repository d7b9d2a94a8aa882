"""A true hung task: a writer in D state on a frozen file system, reported by the kernel itself.

Every setting of the kernel is put back, and the file system is thawed, whatever happens.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_KERNEL = Path("/proc/sys/kernel")
_PROGRAMS = {"fsfreeze": "util-linux", "mkfs.ext4": "e2fsprogs", "mount": "mount"}


def impossible() -> str | None:
    """Why it cannot be made here; None when it can."""
    if os.geteuid() != 0:
        return "needs root"
    if not (_KERNEL / "hung_task_timeout_secs").exists():
        return "this kernel does not look for hung tasks (CONFIG_DETECT_HUNG_TASK)"
    return no_loop_mount()


def no_loop_mount() -> str | None:
    """Why no file system can be made and frozen here; None when one can."""
    if os.geteuid() != 0 or not os.path.exists("/dev/loop-control"):
        return "needs root and loop devices"
    missing = sorted({package for program, package in _PROGRAMS.items() if shutil.which(program) is None})
    return f"needs: apt-get install {' '.join(missing)}" if missing else None


@contextmanager
def own_file_system(folder: Path) -> Iterator[Path]:
    """An ext4 of 32 MB of its own, mounted; thawed and unmounted at the end."""
    image, mounted = folder / "image", folder / "mounted"
    mounted.mkdir()
    image.touch()
    os.truncate(image, 32 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(mounted)], check=True)
    try:
        yield mounted
    finally:
        subprocess.run(["umount", str(mounted)], check=True)
        image.unlink()


@contextmanager
def frozen(mounted: Path) -> Iterator[None]:
    """Whoever writes there waits in D state until the end of the block."""
    subprocess.run(["fsfreeze", "--freeze", str(mounted)], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", str(mounted)], check=True)


@contextmanager
def kernel_setting(name: str, value: int) -> Iterator[None]:
    """Set a number in /proc/sys/kernel until the end of the block."""
    file = _KERNEL / name
    before = file.read_text(encoding="ascii")
    file.write_text(str(value), encoding="ascii")
    try:
        yield
    finally:
        file.write_text(before, encoding="ascii")


@contextmanager
def hung_task(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that hangs; the kernel reports it 1 to 2 seconds after it began to wait."""
    with ExitStack() as after:
        mounted = after.enter_context(own_file_system(folder))
        # Each report counts it down; at 0 the kernel says nothing any more.
        after.enter_context(kernel_setting("hung_task_warnings", 10))
        after.enter_context(kernel_setting("hung_task_timeout_secs", 1))
        freeze = after.enter_context(ExitStack())
        freeze.enter_context(frozen(mounted))
        writer = subprocess.Popen([sys.executable, "-c", f"open({str(mounted / 'file')!r}, 'w').write('x')"])
        try:
            yield writer
        finally:
            freeze.close()
            writer.wait(timeout=30)
