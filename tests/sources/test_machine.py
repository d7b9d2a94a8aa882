"""The host as it is read: small trees in the form of /proc and /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from xidwatch.core.machine import Machine
from xidwatch.sources.machine import in_container, read_machine, virtualization

VERSION = (
    "NVRM version: NVIDIA UNIX {}Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder)  Tue\nGCC version: 13\n"
)


def tree(root: Path, files: dict[str, str]) -> str:
    """Those files below `root`; a name that ends in a slash is a folder."""
    for name, text in files.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return str(root)


def device(slot: str, vendor: str, kind: str, number: str) -> dict[str, str]:
    """One PCI device of sysfs."""
    return {f"sys/bus/pci/devices/{slot}/{name}": text + "\n" for name, text in
            (("vendor", vendor), ("class", kind), ("device", number))}  # fmt: skip


DGX = {
    "proc/driver/nvidia/version": VERSION.format("Open "),
    "proc/cpuinfo": "processor : 0\nflags\t\t: fpu vme sse2\n",
    "sys/class/dmi/id/sys_vendor": "NVIDIA\n",
    "sys/class/dmi/id/product_name": "DGXH100\n",
    "sys/class/ipmi/ipmi0/": "",
    "sys/module/nvidia_drm/": "",
    "sys/fs/cgroup/system.slice/nvidia-fabricmanager.service/": "",
    "sys/fs/cgroup/system.slice/nvidia-persistenced.service/": "",
    "sys/fs/cgroup/system.slice/slurmd.service/": "",
    **device("0000:1b:00.0", "0x10de", "0x030200", "0x2330"),
    **device("0000:05:00.0", "0x10de", "0x068000", "0x22a3"),
}


def test_a_bare_metal_node_is_read_whole(tmp_path: Path) -> None:
    """Driver, generation, switch, services and scheduler, without asking any of them."""
    wanted = Machine(
        flavour="open", driver_version="580.95.05", generation="hopper", nvswitch=True, fabric_manager="running",
        setting="bare_metal", container=False, bmc=True, persistence=True, nvidia_drm=True, scheduler="slurm",
    )  # fmt: skip
    assert wanted == read_machine(tree(tmp_path, DGX))


def test_a_guest_has_no_bmc_and_may_have_switches_that_it_does_not_see(tmp_path: Path) -> None:
    """KVM by the processor's flag; a proprietary module; Kubernetes by its control groups; MIG by its instances."""
    files = {
        "proc/driver/nvidia/version": VERSION.format(""),
        "proc/driver/nvidia/capabilities/gpu0/mig/gi1/": "",
        "proc/cpuinfo": "processor : 0\nflags\t\t: fpu hypervisor sse2\n",
        "sys/class/dmi/id/sys_vendor": "Red Hat\n",
        "sys/class/ipmi/ipmi0/": "",
        "sys/fs/cgroup/system.slice/": "",
        "sys/fs/cgroup/kubepods.slice/": "",
        "usr/lib/systemd/system/nvidia-fabricmanager.service": "",
        **device("0000:06:00.0", "0x10de", "0x030200", "0x20b0"),
    }
    wanted = Machine(
        flavour="proprietary", driver_version="580.95.05", generation="ampere", fabric_manager="stopped", mig=True,
        setting="guest", hypervisor="kvm", container=False, bmc=False, scheduler="kubernetes",
    )  # fmt: skip
    assert wanted == read_machine(tree(tmp_path, files))


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, (None, None)),
        ({"proc/cpuinfo": "processor: 0\nFeatures : fp asimd\n", "sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
          "sys/class/dmi/id/product_name": "g5g.xlarge\n"}, ("guest", "amazon")),
        ({"proc/cpuinfo": "processor: 0\nFeatures : fp asimd\n", "sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
          "sys/class/dmi/id/product_name": "g5g.metal\n"}, ("bare_metal", None)),
        ({"sys/hypervisor/type": "xen\n"}, ("guest", "xen")),
        ({"proc/cpuinfo": "flags : fpu hypervisor\n", "sys/hypervisor/type": "xen\n", "proc/xen/capabilities": "control_d\n"},
         ("bare_metal", None)),
        ({"proc/cpuinfo": "flags : fpu hypervisor\n"}, ("guest", "unknown")),
        ({"proc/device-tree/hypervisor/compatible": "linux,kvm\0"}, ("guest", "linux,kvm")),
    ],
)  # fmt: skip
def test_guests_are_told_from_machines(tmp_path: Path, files: dict[str, str], found: tuple[str | None, str | None]) -> None:
    """x86 by the processor's flag, Arm by DMI, Xen by its own files; a folder without any of it is not known."""
    assert found == virtualization(tree(tmp_path, files))


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [("run/systemd/container", "x", True), (".dockerenv", "x", True), ("run/.containerenv", "x", True),
     ("var/run/secrets/kubernetes.io/serviceaccount/", "", True), ("proc/1/environ", "HOME=/\0container=lxc\0", True),
     ("proc/1/environ", "HOME=/\0KUBERNETES_SERVICE_HOST=10.0.0.1\0", True), ("proc/1/environ", "HOME=/\0", False)],
)  # fmt: skip
def test_containers_are_seen(tmp_path: Path, name: str, text: str, *, found: bool) -> None:
    """By the file that each manager leaves, else by what the first process was started with."""
    assert found == in_container(tree(tmp_path, {name: text}))


def test_nothing_is_known_of_an_empty_tree(tmp_path: Path) -> None:
    """Unknown stays unknown."""
    assert Machine(container=False) == read_machine(str(tmp_path))
