"""A pretended node for `xidwatch check`: a folder that stands for /, healthy until a test spoils it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SLOTS = tuple(f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df"))
"""The GPUs of the fake NVML."""
VERSION = """\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22-I3-AM02-24-3)
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)
"""
SYSCTL = {
    "hung_task_timeout_secs": 120, "hung_task_warnings": -1, "hung_task_all_cpu_backtrace": 0, "watchdog_thresh": 10,
    "soft_watchdog": 1, "sysrq": 176, "panic": 10, "printk": "7 4 1 7", "osrelease": "6.8.0-45-generic",
}  # fmt: skip
LIBRARIES = "usr/lib/x86_64-linux-gnu"


class Root:
    """The folder, and what a test does to it. Paths are without the leading slash."""

    def __init__(self, folder: Path, slots: Sequence[str] = SLOTS) -> None:
        """A well set-up node with these GPUs, bound to the driver; no daemon watches."""
        self.folder = folder
        for name, value in SYSCTL.items():
            self.write(f"proc/sys/kernel/{name}", value)
        self.write("proc/uptime", "86400.51 900000.00")
        self.write("proc/version", "Linux version 6.8.0-45-generic")
        self.write("proc/cmdline", "BOOT_IMAGE=/vmlinuz ro")
        self.write("proc/consoles", "tty0                 -WU (EC  p  )    4:1")
        self.write("proc/mounts", "pstore /sys/fs/pstore pstore rw,nosuid 0 0")
        self.write("sys/module/pstore/parameters/backend", "efi_pstore")
        self.write("sys/kernel/kexec_crash_loaded", 1)
        self.write("run/systemd/journal/socket", "")
        self.make("var/log/journal")
        self.link("proc/self/ns/pid", "pid:[4026531836]")
        self.process(1, "systemd")
        self.write("sys/fs/cgroup/system.slice/cgroup.procs", "")
        if slots:
            self.write("proc/driver/nvidia/version", VERSION)
            self.write("proc/driver/nvidia/params", 'RmLogonRC: 1\nEnableGpuFirmware: 18\nRegistryDwords: ""\n')
            self.make("sys/module/nvidia")
            self.write(f"{LIBRARIES}/libnvidia-ml.so.580.95.05", "")
            self.link(f"{LIBRARIES}/libnvidia-ml.so.1", "libnvidia-ml.so.580.95.05")
        for slot in slots:
            self.gpu(slot)

    def write(self, path: str, text: object) -> None:
        """Make a file."""
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{text}\n" if not str(text).endswith("\n") else str(text), encoding="utf-8")

    def make(self, path: str) -> None:
        """Make a folder."""
        (self.folder / path).mkdir(parents=True, exist_ok=True)

    def link(self, path: str, target: str) -> None:
        """Make a link; one that is there is replaced."""
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(target)

    def gpu(self, slot: str, driver: str | None = "nvidia", **files: object) -> None:
        """Put a GPU on the bus; `files` are those of its folder in sysfs."""
        folder = f"sys/bus/pci/devices/{slot}"
        given = {
            "vendor": "0x10de",
            "class": "0x030200",
            "device": "0x2330",
            "current_link_width": 16,
            "max_link_width": 16,
        } | files
        for name, text in given.items():
            self.write(f"{folder}/{name}", text)
        (self.folder / folder / "driver").unlink(missing_ok=True)
        if driver is not None:
            self.make(f"sys/bus/pci/drivers/{driver}")
            self.link(f"{folder}/driver", f"../../drivers/{driver}")

    def process(self, pid: int, name: str, *, holds: str | None = None, states: str = "S", **variables: str) -> None:
        """Let a process run, with a thread for each letter of `states`; it may hold a device."""
        self.write(f"proc/{pid}/stat", f"{pid} ({name}) {states[0]} 1 1 1 0")
        for number, state in enumerate(states):
            self.write(f"proc/{pid}/task/{pid + number}/stat", f"{pid + number} ({name}) {state} 1 1 1 0")
        self.make(f"proc/{pid}/fd")
        if holds is not None:
            self.link(f"proc/{pid}/fd/7", holds)
        environment = {"PATH": "/usr/bin", "SECRET_TOKEN": "do-not-read", **variables}
        (self.folder / f"proc/{pid}/environ").write_text(
            "".join(f"{key}={value}\0" for key, value in environment.items()), encoding="utf-8"
        )

    def daemon(self, **parts: Any) -> None:
        """Let the daemon have written its state just now; `parts` replace what it wrote."""
        self.write("run/xidwatch/state.json", json.dumps(state(**parts)))

    @property
    def arguments(self) -> list[str]:
        """Options that make `xidwatch check` look here."""
        return ["check", "--root", str(self.folder)]


def state(age_s: float = 0.0, slots: Sequence[str] = SLOTS, **parts: Any) -> dict[str, Any]:
    """state.json of a daemon with nothing to tell."""
    whole: dict[str, Any] = {
        "schema": "xidwatch.state/1", "time_us": time.time_ns() // 1000 - round(age_s * 1e6), "host": os.uname().nodename,
        "maintenance": {"active": False, "until_us": None, "reason": ""},
        "sources": [{"name": "kmsg", "up": True, "records": 10, "lost": 0, "restarts": 0, "untrusted": 0}],
        "injection_accepted": False, "rules": {"success": True, "mistakes": []},
        "history": {"up": True, "backlog": 0, "write_failures": 0, "last_error": None}, "incidents": [],
        "nvml": {"asked": True, "up": True, "stuck_s": 0.0, "sample_age_s": 12.0, "released": False}, "expected_gpus": len(slots),
        "gpus": [slot(pci) for pci in slots],
    }  # fmt: skip
    return whole | parts


def slot(pci: str, **parts: Any) -> dict[str, Any]:
    """One of its `gpus[]`, healthy."""
    return {
        "pci": pci, "on_bus": True, "driver": "nvidia", "answer": "state", "since_us": None, "missing": False, "gpu_uuid": None,
        "serial": None, "recovery_action": "none", "row_remap_pending": False, "row_remap_failed": False,
        "sram_threshold_exceeded": False, "ecc_enabled": True, "mig_enabled": False, "mig_pending": False, "persistence_mode": True,
    } | parts  # fmt: skip


def incident(severity: str = "critical", **parts: Any) -> dict[str, Any]:
    """One of its `incidents[]`."""
    return {
        "id": "5f0c1a2b", "title": "GPU has fallen off the bus", "sentence": "GPU 0000:61:00.0 fell off the PCIe bus at 02:13:05.",
        "severity": severity, "state": "active", "gpus": ["0000:61:00.0"],
        "recovery": {"rung": "reboot_node", "when": "now", "commands": ["systemctl reboot"]},
    } | parts  # fmt: skip
