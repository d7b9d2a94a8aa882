"""Which files of a stuck task can be read without being stuck beside it: tried on one that holds its own memory map locked."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system import hung_task
from tests.system.live import skip_unless_possible, until
from xidwatch.sources.procfs import ProcReader

pytestmark = [pytest.mark.system, pytest.mark.root]
HOLDER = """
import mmap, os, sys, threading, time
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 1 << 20)
shared = mmap.mmap(file, 1 << 20)
print("mapped", flush=True)
sys.stdin.readline()
import ctypes
libc = ctypes.CDLL(None)
buffer = (ctypes.c_char * (1 << 20)).from_buffer(shared)
address = ctypes.addressof(buffer)
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
threading.Thread(target=libc.memset, args=(address, 1, 4096), daemon=True).start()
time.sleep(0.5)
libc.munmap(address, 1 << 20)
time.sleep(600)
"""
"""One thread writes to a mapped page of a frozen file system, and waits; another takes the page away, and waits with the lock."""
FREE = ("stat", "status", "wchan", "stack", "syscall", "cgroup", "comm", "children", "task")
LOCKED = ("cmdline", "environ")


def reads(path: Path) -> Callable[[], bool]:
    """Begins to read, in a thread that may be lost; tells whether that has returned."""

    def read() -> None:
        try:
            path.read_bytes() if path.is_file() else list(path.iterdir())
        except OSError:
            return

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return lambda: not thread.is_alive()


def test_what_is_read_of_a_task_that_holds_its_memory_map(tmp_path: Path) -> None:
    """`cmdline` and `environ` wait beside the stuck task; nothing that the daemon reads does."""
    skip_unless_possible(hung_task.no_loop_mount())
    with hung_task.own_file_system(tmp_path) as disk:
        stuck = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(disk / "file")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert stuck.stdin is not None
        assert stuck.stdout is not None
        stuck.stdout.readline()
        reader = ProcReader()
        try:
            with hung_task.frozen(disk):
                stuck.stdin.write(b"\n")
                stuck.stdin.flush()
                waiting = until(
                    lambda: found if len(found := reader.threads(stuck.pid)) == 2 else None, what="both threads in D"
                )
                place = Path(f"/proc/{stuck.pid}/task/{stuck.pid}")
                locked = [reads(place / name) for name in LOCKED]
                free = [reads(place / name) for name in FREE]
                until(lambda: all(done() for done in free), 5, what="the files that take no lock")
                began_s = time.monotonic()
                told = [reader.evidence(task) for task in waiting]
                assert time.monotonic() - began_s < 2
                assert all(isinstance(one.stack, tuple) and one.stack for one in told)
                assert isinstance(reader.devices(stuck.pid), tuple)
                assert [False, False] == [done() for done in locked], LOCKED
            until(lambda: all(done() for done in locked), what="the locked reads, after the thaw")
        finally:
            stuck.kill()
            stuck.wait(30)
            stuck.stdin.close()
            stuck.stdout.close()
            reader.close()
