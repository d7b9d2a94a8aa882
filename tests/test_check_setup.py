"""Each remark on the set-up, from the node's files to the words: a bad node gets it, good ones do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.nodes import LIBRARIES, SLOTS, VERSION, Root, slot
from xidwatch.checkcli import look
from xidwatch.config import Config, Hook
from xidwatch.core.remark import Remark
from xidwatch.core.remarks import CHECKS, remarks_on

PROPRIETARY = VERSION.replace("Open Kernel Module", "Kernel Module")
HOOK = Hook(command=("/bin/true",))
Spoil = Callable[[Root], object]


def remarks(root: Root, **settings: Any) -> tuple[Remark, ...]:
    """What is remarked upon there."""
    config = Config(run_dir=root.folder / "run/xidwatch", **settings)
    # Nobody keeps a pretended node's clock.
    return remarks_on(replace(look(root.folder, config), clock_synchronized=True))


def file(path: str, text: object) -> Spoil:
    """A node with this in this file."""
    return lambda root: root.write(path, text)


def gpu(**parts: Any) -> Spoil:
    """A node one of whose GPUs says this."""
    return lambda root: root.daemon(gpus=[slot(pci, **(parts if pci == SLOTS[3] else {})) for pci in SLOTS])


def job(**variables: str) -> Spoil:
    """A node with a job that has these variables."""
    return lambda root: root.process(4711, "python3", holds="/dev/nvidia0", **variables)


def both(*spoils: Spoil) -> Spoil:
    """All of it."""

    def spoil(root: Root) -> None:
        for one in spoils:
            one(root)

    return spoil


def sysctl(name: str, value: object) -> Spoil:
    """A kernel so set."""
    return file(f"proc/sys/kernel/{name}", value)


def journald(text: str, path: str = "etc/systemd/journald.conf") -> Spoil:
    """A journald so set."""
    return file(path, f"[Journal]\n{text}\n")


def gone(*paths: str) -> Spoil:
    """A node without these."""

    def spoil(root: Root) -> None:
        for path in paths:
            place = root.folder / path
            place.rmdir() if place.is_dir() else place.unlink()

    return spoil


NO_JOURNAL = gone("var/log/journal")
NVSWITCH: Spoil = lambda root: root.link("sys/bus/pci/drivers/nvidia-nvswitch/0000:c1:00.0", "../../devices/x")  # noqa: E731
FABRIC_UP: Spoil = lambda root: root.daemon(gpus=[slot(pci, fabric={"probe": "completed", "status": 0}) for pci in SLOTS])  # noqa: E731
FM_RUNS: Spoil = lambda root: root.process(900, "nv-fabricmanage")  # noqa: E731
BAD: list[tuple[str, Spoil, str]] = [
    ("daemon", gone("run/xidwatch/state.json"), "state.json is not there"),
    ("source", lambda root: root.daemon(sources=[{"name": "kmsg", "up": True}, {"name": "journal", "up": False}]), "journal"),
    ("injection_accepted", lambda root: root.daemon(injection_accepted=True), "--accept-injected"),
    ("rules_reload", lambda root: root.daemon(rules={"success": False, "mistakes": ["site.toml:3: no"]}), "site.toml:3"),
    ("history", lambda root: root.daemon(history={"last_error": "disk full"}), "disk full"),
    ("nvml", lambda root: root.daemon(nvml={"asked": True, "up": None, "released": True}), "released"),
    ("nvml", lambda root: root.daemon(nvml={"asked": False, "up": None, "released": False}), "does not ask"),
    ("gsp_option", file("proc/driver/nvidia/params", "EnableGpuFirmware: 0\n"), "open kernel module"),
    ("gsp_option", file("etc/modprobe.d/gsp.conf", "#x\noptions nvidia NVreg_EnableGpuFirmware=0"), "/etc/modprobe.d/gsp.conf"),
    ("gsp_option", file("proc/cmdline", "ro nvidia.NVreg_EnableGpuFirmware=0x0 quiet"), "/proc/cmdline"),
    ("xid_logging", file("proc/driver/nvidia/params", "RmLogonRC: 0\n"), "RmLogonRC=0"),
    ("library_version", lambda root: root.link(f"{LIBRARIES}/libnvidia-ml.so.1", "libnvidia-ml.so.580.105.08"), "580.105.08"),
    ("module_on_disk", lambda root: root.make("var/lib/dkms/nvidia/580.105.08/6.8.0-45-generic"), "580.105.08"),
    ("driver_bound", lambda root: root.gpu(SLOTS[0], driver="nouveau"), "0000:1b:00.0 nouveau"),
    ("persistence", gpu(persistence_mode=False), "0000:61:00.0"),
    ("persistence", lambda root: root.daemon(gpus=[slot(pci, persistence_mode=False) for pci in SLOTS]), "and 5 more"),
    ("ecc", gpu(ecc_enabled=False), "ECC is off: 0000:61:00.0"),
    ("mig_pending", gpu(mig_enabled=False, mig_pending=True), "switched on"),
    ("mig_pending", gpu(mig_enabled=True, mig_pending=False), "switched off"),
    ("pcie_width", lambda root: root.gpu(SLOTS[2], current_link_width=8), "0000:52:00.0 x8 of x16"),
    ("fabric_manager", both(NVSWITCH, FABRIC_UP), "nv-fabricmanager does not run"),
    ("fabric_version", both(NVSWITCH, FM_RUNS, file("var/log/fabricmanager.log", "Fabric Manager version 570.86.15 is running with")),
     "570.86.15"),
    ("hung_task_timeout", sysctl("hung_task_timeout_secs", 0), "no task that hangs"),
    ("hung_task_timeout", sysctl("hung_task_timeout_secs", 3600), "3600"),
    ("hung_task_timeout", gone("proc/sys/kernel/hung_task_timeout_secs"), "DETECT_HUNG_TASK"),
    ("hung_task_warnings", sysctl("hung_task_warnings", 0), "used up"),
    ("hung_task_warnings", sysctl("hung_task_warnings", 2), "2 reports are left"),
    ("hung_task_backtraces", sysctl("hung_task_all_cpu_backtrace", 1), "is 1"),
    ("lockup_detector", sysctl("watchdog_thresh", 0), "watchdog_thresh"),
    ("lockup_detector", sysctl("soft_watchdog", 0), "soft_watchdog"),
    ("sysrq", sysctl("sysrq", 0), "is 0"),
    ("sysrq", sysctl("sysrq", 16), "is 16"),
    ("panic", both(sysctl("panic", 0), file("sys/kernel/kexec_crash_loaded", 0)), "stands still"),
    ("last_words", both(file("sys/module/pstore/parameters/backend", "(null)"), file("sys/kernel/kexec_crash_loaded", 0)), "neither"),
    ("last_words", both(file("proc/mounts", "proc /proc proc rw 0 0"), file("sys/kernel/kexec_crash_loaded", 0)), "not mounted"),
    ("netconsole_level", both(file("proc/consoles", "netcon0  -W- (EN     )"), sysctl("printk", "4 4 1 7")), "console level is 4"),
    ("journal_persistent", NO_JOURNAL, "in memory only"),
    ("journal_persistent", journald("Storage=volatile"), "volatile"),
    ("journal_persistent", journald("Storage=none", "run/systemd/journald.conf.d/x.conf"), "none"),
    ("journal_level", journald("MaxLevelStore=err"), "MaxLevelStore= is err"),
    ("journal_level", journald("MaxLevelStore=3"), "MaxLevelStore= is 3"),
    ("journal_kmsg", journald("ReadKMsg=no"), "ReadKMsg= is no"),
    ("nccl_async_errors", job(TORCH_NCCL_ASYNC_ERROR_HANDLING="0"), "TORCH_NCCL_ASYNC_ERROR_HANDLING=0 in pid 4711"),
    ("nccl_async_errors", job(NCCL_ASYNC_ERROR_HANDLING="0"), "NCCL_ASYNC_ERROR_HANDLING=0"),
    ("nccl_monitoring", job(TORCH_NCCL_ENABLE_MONITORING="0"), "TORCH_NCCL_ENABLE_MONITORING=0"),
    ("cuda_launch_blocking", job(CUDA_LAUNCH_BLOCKING="1"), "CUDA_LAUNCH_BLOCKING=1"),
    ("cuda_waits_on_exception", job(CUDA_DEVICE_WAITS_ON_EXCEPTION="1"), "CUDA_DEVICE_WAITS_ON_EXCEPTION=1"),
    ("allocator_no_cache", job(PYTORCH_NO_CUDA_MEMORY_CACHING="0"), "PYTORCH_NO_CUDA_MEMORY_CACHING=0"),
    ("allocator_settings", job(PYTORCH_CUDA_ALLOC_CONF="expandable_segments=True"), "expandable_segments=True"),
    ("nccl_transport_off", job(NCCL_P2P_DISABLE="1"), "NCCL_P2P_DISABLE=1"),
    ("nccl_debug", job(NCCL_DEBUG="INFO"), "NCCL_DEBUG=INFO"),
]  # fmt: skip
GOOD: list[tuple[str, Spoil]] = [
    ("as it is", lambda root: None),
    ("the option is the proprietary module's to have", both(
        file("proc/driver/nvidia/version", PROPRIETARY), file("proc/driver/nvidia/params", "EnableGpuFirmware: 0\n"))),
    ("a comment sets nothing", file("etc/modprobe.d/gsp.conf", "#options nvidia NVreg_EnableGpuFirmware=0")),
    ("other files of modprobe.d", file("etc/modprobe.d/gsp.conf", "options nvidia NVreg_EnableGpuFirmware=18")),
    ("a module built for another kernel", lambda root: root.make("var/lib/dkms/nvidia/580.105.08/6.5.0-9-generic")),
    ("the loaded one is among those built", both(
        lambda root: root.make("var/lib/dkms/nvidia/580.105.08/6.8.0-45-generic"),
        lambda root: root.make("var/lib/dkms/nvidia/580.95.05/6.8.0-45-generic"))),
    ("a lost device reads 63 lanes", lambda root: root.gpu(SLOTS[2], current_link_width=63, max_link_width=63)),
    ("what NVML does not tell", gpu(persistence_mode=None, ecc_enabled=None, mig_enabled=None, mig_pending=None)),
    ("MIG on and staying on", gpu(mig_enabled=True, mig_pending=True)),
    ("a few warnings used", sysctl("hung_task_warnings", 8)),
    ("everything by sysrq", sysctl("sysrq", 1)),
    ("Debian's own sysrq", sysctl("sysrq", 438)),
    ("a quiet console on a screen", sysctl("printk", "1 4 1 7")),
    ("kdump in place of pstore", file("sys/module/pstore/parameters/backend", "(null)")),
    ("Storage=persistent makes its own folder", both(NO_JOURNAL, journald("Storage=persistent"))),
    ("syslog keeps what the journal does not", both(NO_JOURNAL, file("var/log/kern.log", "x"))),
    ("/etc wins over /usr/lib", both(journald("Storage=volatile", "usr/lib/systemd/journald.conf.d/50-x.conf"),
                                     journald("Storage=persistent", "etc/systemd/journald.conf.d/50-x.conf"))),
    ("a later drop-in wins", both(journald("MaxLevelStore=err", "etc/systemd/journald.conf.d/10-a.conf"),
                                  journald("MaxLevelStore=info", "usr/lib/systemd/journald.conf.d/20-b.conf"))),
    ("another part of the file", file("etc/systemd/journald.conf", "[Other]\nStorage=none\n#[Journal]\n#Storage=none")),
    ("a job as it should be", job(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True,roundup_power2_divisions:[256:1,512:2]",
                                  NCCL_DEBUG="WARN", CUDA_LAUNCH_BLOCKING="0", TORCH_NCCL_ASYNC_ERROR_HANDLING="1",
                                  NCCL_P2P_DISABLE="0")),
    ("nothing that can be read", gone("proc/version", "proc/consoles", "proc/mounts", "proc/driver/nvidia/version")),
    ("Fabric Manager of the right version", both(
        NVSWITCH, FM_RUNS, file("var/log/fabricmanager.log", "Fabric Manager version 570.86.15 is running\nFabric Manager version "
                                "is : 580.95.05"))),
]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """A well set-up node with eight GPUs and a daemon."""
    root = Root(tmp_path)
    root.daemon()
    return root


@pytest.mark.parametrize(("id_", "spoil", "words"), BAD, ids=[f"{id_}-{words}" for id_, _, words in BAD])
def test_remarked_upon(root: Root, id_: str, spoil: Spoil, words: str) -> None:
    """The remark has its id, what was read, why it matters, and a command; there is no other."""
    spoil(root)
    (found,) = remarks(root)
    assert id_ == found.id
    assert words in found.what
    assert found.why
    assert found.command


@pytest.mark.parametrize("spoil", [spoil for _, spoil in GOOD], ids=[name for name, _ in GOOD])
def test_not_remarked_upon(root: Root, spoil: Spoil) -> None:
    """What looks odd and is right is left alone."""
    spoil(root)
    assert () == remarks(root)


def test_a_hook_that_does_not_run(root: Root) -> None:
    """With a [hook] in the configuration its service should have a process."""
    assert ["hook"] == [one.id for one in remarks(root, hook=HOOK)]
    root.write("sys/fs/cgroup/system.slice/xidwatch-hook.service/cgroup.procs", "812")
    assert () == remarks(root, hook=HOOK)
    (root.folder / "sys/fs/cgroup/system.slice/xidwatch-hook.service/cgroup.procs").unlink()
    (root.folder / "sys/fs/cgroup/system.slice/cgroup.procs").unlink()
    assert () == remarks(root, hook=HOOK)


def test_a_clock_that_nobody_keeps(root: Root) -> None:
    """The kernel says that nothing synchronizes it."""
    node = look(root.folder, Config(run_dir=root.folder / "run/xidwatch"))
    assert ["clock"] == [one.id for one in remarks_on(replace(node, clock_synchronized=False))]
    assert () == remarks_on(node)


def test_every_remark_is_tried() -> None:
    """No check without a node that it finds bad."""
    assert {one.id for one in CHECKS} == {id_ for id_, _, _ in BAD} | {"hook", "clock"}
