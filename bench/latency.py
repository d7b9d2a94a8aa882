"""How long from the kernel's line to /metrics, to a follower of the socket, and to the operator's program.

    python -m bench.latency [--real | --journal] [--busy] [--stalled] [--lines N]

A pipe stands for /dev/kmsg; --real writes to the device itself, --journal reads what a journald of its own makes of that
(both: root, and a daemon that accepts injected lines). --busy keeps every core busy meanwhile; --stalled freezes the file
system that the history lies on (root).
The time to /metrics is that until an answer which shows the line is there as a whole: asked again and again, so that it
contains the scrape under way when the line came and the one behind it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.watched import Watched, load, on_pipe, watching

_PAUSE_S = 0.03
_DEADLINE_S = 10.0
_DOMAIN = random.SystemRandom().randrange(0x1000, 0xF000)
"""The kernel's ring may still hold the lines of an earlier run."""
_KINDS = {
    "an Xid of one line (31)": (
        31,
        "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f32_00000000. "
        "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    ),
    "an Xid of several lines (13)": (13, "Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Out Of Range Address"),
}


class Follower:
    """Notes when each message of the daemon's socket came."""

    def __init__(self, path: Path) -> None:
        self.seen: dict[str, float] = {}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(str(path))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._socket.makefile("rb") as lines:
            for line in lines:
                now, message = time.monotonic(), json.loads(line)
                for gpu in message.get("incident", {}).get("gpus", ()):
                    self.seen.setdefault(gpu, now)

    def close(self) -> None:
        """Hang up."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()


class Hook:
    """`xidwatch hook` with a program that notes when it was run for which incident."""

    def __init__(self, daemon: Watched) -> None:
        self._told, program, config = (daemon.folder / name for name in ("told", "program", "hook.toml"))
        self._told.touch()
        program.write_text(f'#!/bin/sh\nread -r message\necho "$(date +%s.%N) $message" >> {self._told}\n', encoding="utf-8")
        program.chmod(0o755)
        config.write_text(
            f'run_dir = "{daemon.folder}/run"\nstate_dir = "{daemon.folder}/hook"\n'
            f'[hook]\ncommand = ["{program}"]\nmin_severity = "info"\n',
            encoding="utf-8",
        )  # fmt: skip
        self._child = subprocess.Popen(
            [sys.executable, "-m", "xidwatch", "hook", "--config", str(config)], stderr=subprocess.DEVNULL
        )

    def told_at(self, gpu: str, deadline_s: float) -> float:
        """When the program was run for an incident of this GPU, on the wall clock."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            for line in self._told.read_text(encoding="utf-8").splitlines():
                if gpu in line:
                    return float(line.split()[0])
            time.sleep(0.002)
        return time.time()

    def close(self) -> None:
        """End it."""
        self._child.terminate()
        self._child.wait(20)


def measure(name: str, daemon: Watched, write: Callable[[str], None], lines: int) -> None:
    """Print the figures of one way in, for each kind of line: on eight GPUs, of 64 processes, as a node has them."""
    for kind, (code, message) in _KINDS.items():
        shown = []
        for n in range(lines):
            gpu = f"{_DOMAIN:04x}:{0x10 + n % 8:02x}:00"
            wanted = f'gpu="{gpu}.0",xid="{code}"}} {1 + n // 8:.1f}\n'.encode()
            start = time.monotonic()
            write(f"NVRM: Xid (PCI:{gpu}): {code}, pid={5000 + n % 64}, name=python3, {message}")
            while wanted not in daemon.scrape() and time.monotonic() < start + _DEADLINE_S:
                continue
            shown.append(time.monotonic() - start)
            time.sleep(_PAUSE_S * random.random())
        print(f"latency: {name}: {kind}: to /metrics {_told(shown)}; {load()}", flush=True)
    measure_told(name, daemon, write, lines // 4)


def measure_told(name: str, daemon: Watched, write: Callable[[str], None], lines: int) -> None:
    """Print how long it takes until a follower hears of an incident, and until the operator's program runs."""
    hook, follower, heard, ran = Hook(daemon), Follower(daemon.folder / "run" / "follow.sock"), [], []
    try:
        for n in range(lines + 1):
            gpu, start, start_wall = f"{_DOMAIN + 1 + n:04x}:{0x10 + n % 0xE0:02x}:00", time.monotonic(), time.time()
            write(f"NVRM: Xid (PCI:{gpu}): 31, pid={9000 + n}, name=python3, {_KINDS['an Xid of one line (31)'][1]}")
            ran.append(hook.told_at(gpu, _DEADLINE_S) - start_wall)
            heard.append(follower.seen.get(f"{gpu}.0", start + _DEADLINE_S) - start)
            time.sleep(_PAUSE_S * random.random())
    finally:
        hook.close()
        follower.close()
    # The first waits for the hook's start.
    print(f"latency: {name}: to a follower {_told(heard[1:])}, to the hook's program {_told(ran[1:])}; {load()}", flush=True)


def _told(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    return f"p50 {1000 * ordered[len(ordered) // 2]:.1f} p99 {1000 * ordered[len(ordered) * 99 // 100]:.1f} ms"


def write_real(text: str) -> None:
    """One line in the kernel's log; opened anew each time, since the kernel limits the rate of each open file."""
    with open("/dev/kmsg", "w", encoding="ascii") as kmsg:
        kmsg.write(f"<4>{text}\n")


@contextlib.contextmanager
def busy(*, wanted: bool) -> Iterator[None]:
    """Every core in a loop."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range((os.cpu_count() or 1) if wanted else 0)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextlib.contextmanager
def disk(*, stalled: bool) -> Iterator[tuple[list[str], contextlib.AbstractContextManager[object]]]:
    """Options for a state on a file system of its own, and what freezes it while a daemon is measured."""
    if not stalled:
        yield [], contextlib.nullcontext()
        return
    with tempfile.TemporaryDirectory() as folder:
        image, mount = Path(folder) / "image", Path(folder) / "mount"
        with open(image, "wb") as file:
            file.truncate(64 << 20)
        mount.mkdir()
        subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(mount)], check=True)
        try:
            yield ["--state-dir", f"{mount}/state"], _frozen(mount)
        finally:
            for _ in range(50):
                if subprocess.run(["umount", str(mount)], check=False, stderr=subprocess.DEVNULL).returncode == 0:
                    break
                time.sleep(0.2)


@contextlib.contextmanager
def _frozen(mount: Path) -> Iterator[None]:
    subprocess.run(["fsfreeze", "--freeze", str(mount)], check=True)
    try:
        yield
    finally:
        # Else the daemon could not end.
        subprocess.run(["fsfreeze", "--unfreeze", str(mount)], check=True)


@contextlib.contextmanager
def journald() -> Iterator[list[str]]:
    """A journald of our own on the real kernel log, where nobody else sees it; gives what starts a command beside it."""
    settings = "[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\nAudit=\nForwardToWall=no\n"
    script = (
        "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journald.conf.d /run/log/journal /run/systemd/journal && "
        'printf %s "$SETTINGS" > /run/systemd/journald.conf.d/bench.conf && exec /lib/systemd/systemd-journald'
    )
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    running = subprocess.Popen(command, env={**os.environ, "SETTINGS": settings}, stderr=subprocess.DEVNULL)
    try:
        while not list(Path(f"/proc/{running.pid}/root/run/log/journal").glob("*/*.journal")):
            time.sleep(0.1)
        yield ["nsenter", "--mount", "--wd=.", "--target", str(running.pid)]
    finally:
        running.terminate()
        running.wait(20)


def main() -> int:
    """Command line; see the module's text."""
    parser = argparse.ArgumentParser()
    for name in ("real", "journal", "busy", "stalled"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--lines", type=int, default=200)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        state, frozen = stack.enter_context(disk(stalled=options.stalled))
        name, write = ("journal" if options.journal else "/dev/kmsg"), write_real
        if options.journal:
            inside = stack.enter_context(journald())
            daemon = stack.enter_context(watching("--source", "journal", "--accept-injected", *state, through=inside))
        elif options.real:
            daemon = stack.enter_context(watching("--source", "kmsg", "--accept-injected", *state))
        else:
            daemon, pipe = stack.enter_context(on_pipe(*state))
            name, write = "pipe", lambda text: pipe.write(pipe.records([text]))
        stack.enter_context(busy(wanted=options.busy))
        stack.enter_context(frozen)
        how = f"{', every core busy' if options.busy else ''}{', the disk frozen' if options.stalled else ''}"
        measure(f"{name}{how}", daemon, write, options.lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
