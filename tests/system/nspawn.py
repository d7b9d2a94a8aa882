"""A machine with a systemd of its own: a Debian root made by debootstrap, booted by systemd-nspawn.

The root is made once and kept in $XIDWATCH_TEST_ROOT (default /var/tmp/xidwatch-root); each boot writes into memory only.
Host and machine share the kernel, its log and the loopback network.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.postmortems import ROOT as SOURCE
from tests.system.live import skip_unless_possible

ROOT = Path(os.environ.get("XIDWATCH_TEST_ROOT", "/var/tmp/xidwatch-root"))
SUITE = "bookworm"
PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "udev",
    "procps",
    "python3",
    "python3-venv",
    "python3-systemd",
    "ca-certificates",
)
_CAPABILITIES = ("CAP_SYSLOG", "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE", "CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN")
"""What the units need of the machine; the last three for IPAddressDeny=, which is a BPF program."""
_PYTHON = "3.11"
"""What the suite has."""
_BOOT_S = 60.0
_STOP_S = 30.0
_POWER_OFF = signal.SIGRTMIN + 4
"""systemd(1): the machine's init ends its services and itself."""

_ONE_BOOT_ID = """\
set -e
systemctl stop systemd-journald.socket systemd-journald-dev-log.socket systemd-journald-audit.socket systemd-journald
umount /proc/sys/kernel/random/boot_id
rm -rf /run/log/journal/* /var/log/journal/* /run/systemd/journal/kernel-seqnum
systemctl start systemd-journald.socket systemd-journald-dev-log.socket systemd-journald
"""
"""systemd-nspawn covers the kernel's boot id with one of its own, which a service with a fresh /proc (ProtectProc=) does not
see; a machine of its own has one boot id, so the cover is taken away and the journal begins again."""


def impossible() -> str | None:
    """Why no machine can be booted here; None when one can."""
    if os.geteuid() != 0:
        return "needs root"
    if not os.access("/dev/kmsg", os.W_OK):
        return "needs /dev/kmsg"
    packages = {"systemd-nspawn": "systemd-container", "debootstrap": "debootstrap", "nsenter": "util-linux"}
    missing = [package for program, package in packages.items() if shutil.which(program) is None]
    return f"needs: apt-get install {' '.join(missing)}" if missing else None


class Machine:
    """A booted one."""

    def __init__(self, nspawn: subprocess.Popen[bytes], console: Path) -> None:
        self._nspawn, self._console = nspawn, console
        self.leader = 0

    def wait_for_boot(self) -> None:
        """Until systemd says that all is running."""
        end, state = time.monotonic() + _BOOT_S, ""
        while time.monotonic() < end:
            assert self._nspawn.poll() is None, f"systemd-nspawn ended: {self._console.read_text(errors='replace')}"
            children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text(encoding="ascii").split()
            if children:
                self.leader = int(children[0])
                state = self.ask("systemctl", "is-system-running")
                if state in ("running", "degraded"):
                    break
            time.sleep(0.1)
        assert state == "running", f"{state}: {self.ask('systemctl', '--failed', '--no-pager')}"
        self.run("sh", "-c", _ONE_BOOT_ID)

    def command(self, *arguments: str) -> list[str]:
        """Argument list that runs something inside."""
        return ["nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-p", "-C", "--", *arguments]

    def run(self, *arguments: str, timeout_s: float = 60) -> str:
        """What it prints, standard error included; it must succeed."""
        done = subprocess.run(
            self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            text=True, check=False, timeout=timeout_s, env=_environment(),
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.returncode}\n{done.stdout}"
        return done.stdout

    def ask(self, *arguments: str) -> str:
        """What it prints on standard output, whatever its exit status; without the newline at the end."""
        done = subprocess.run(
            self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
            text=True, check=False, timeout=60, env=_environment(),
        )  # fmt: skip
        return done.stdout.strip()

    def file(self, path: str) -> Path:
        """A file inside, as the host reaches it; no link with an absolute target may be on the way."""
        return Path(f"/proc/{self.leader}/root") / path.lstrip("/")

    def write(self, path: str, text: str) -> None:
        """Write a file that everybody inside can read; a first line with #! makes it a program."""
        file = self.file(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755 if text.startswith("#!") else 0o644)

    def journal(self, unit: str) -> str:
        """Everything that the journal has of a unit."""
        return self.ask("journalctl", "--no-pager", "-o", "short-precise", "-u", unit)

    def stop(self) -> None:
        """End the machine and wait for it."""
        if self._nspawn.poll() is None and self.leader:
            os.kill(self.leader, _POWER_OFF)
        try:
            self._nspawn.wait(timeout=_STOP_S if self.leader else 0)
        except subprocess.TimeoutExpired:
            self._nspawn.terminate()
            self._nspawn.wait(timeout=_STOP_S)


@contextmanager
def booted(folder: Path, read_only: Sequence[tuple[Path, str]] = ()) -> Iterator[Machine]:
    """A machine that runs until the end of the block.

    Args:
        folder: For the console's text.
        read_only: Host folders and where they are seen inside.
    """
    root, console = made_root(), folder / "console"
    binds = [f"--bind-ro={host}:{inside}" for host, inside in read_only]
    command = [
        "systemd-nspawn", f"--directory={root}", "--volatile=overlay", f"--machine=xidwatch-{os.getpid()}", "--register=no",
        "--keep-unit", "--bind=/dev/kmsg", f"--capability={','.join(_CAPABILITIES)}", "--system-call-filter=bpf", *binds,
        "--boot", "--console=pipe",
    ]  # fmt: skip
    with open(console, "wb") as out:
        nspawn = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
    machine = Machine(nspawn, console)
    try:
        machine.wait_for_boot()
        yield machine
    finally:
        machine.stop()


def made_root() -> Path:
    """The Debian root; made when it is not there yet (a minute, 330 MB, from the mirror that apt uses)."""
    ready = ROOT.with_name(f"{ROOT.name}.ready")
    wanted = " ".join((SUITE, *PACKAGES))
    with open(ROOT.with_name(f"{ROOT.name}.lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists() or ready.read_text(encoding="utf-8") != wanted or not ROOT.is_dir():
            ready.unlink(missing_ok=True)
            shutil.rmtree(ROOT, ignore_errors=True)
            command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(ROOT), _mirror()]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if done.returncode != 0:
                shutil.rmtree(ROOT, ignore_errors=True)
                skip_unless_possible(f"debootstrap could not make a Debian root: {done.stdout[-500:]}")
            ready.write_text(wanted, encoding="utf-8")
    return ROOT


def wheels(folder: Path) -> Path:
    """Everything that `pip install 'xidwatch[watch]'` needs inside, so that no network is needed there.

    xidwatch itself is built from this tree each time; the rest is kept beside the root.
    """
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=SOURCE,
        check=True,
        capture_output=True,
    )
    own = next(folder.glob("xidwatch-*.whl"))
    kept = ROOT.with_name(f"{ROOT.name}.wheels")
    kept.mkdir(exist_ok=True)
    machine = platform.machine()
    fits = [
        f"--platform={glibc}_{machine}" for glibc in ("manylinux_2_36", "manylinux_2_34", "manylinux_2_28", "manylinux2014")
    ]
    download = [
        sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--implementation=cp",
        f"--python-version={_PYTHON}", *fits, f"--dest={folder}", f"--find-links={kept}", f"xidwatch[watch] @ {own.as_uri()}",
    ]  # fmt: skip
    offline = subprocess.run([*download, "--no-index"], capture_output=True, text=True, check=False)
    if offline.returncode != 0:
        done = subprocess.run(download, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            skip_unless_possible(f"the packages of xidwatch[watch] could not be downloaded: {done.stderr[-500:]}")
        for wheel in folder.glob("*.whl"):
            if wheel != own:
                shutil.copy2(wheel, kept)
    return folder


def _mirror() -> str:
    """The Debian mirror that apt uses here, else the public one."""
    found = [
        match[0]
        for path in (Path("/etc/apt/sources.list"), *Path("/etc/apt").glob("sources.list.d/*"))
        if path.is_file()
        for match in re.finditer(r"(?m)^[^#\n]*?\bhttps?://\S+/debian/?(?=\s|$)", path.read_text(errors="replace"))
    ]
    return re.sub(r"^.*?(?=https?://)", "", found[0]) if found else "http://deb.debian.org/debian"


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "SYSTEMD_PAGER": "", "HOME": "/root"}
