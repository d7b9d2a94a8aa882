"""Whether driver, library, firmware and GPUs are set up to work and to tell.

Sources: NVIDIA driver README (GSP firmware, module parameters), open-gpu-kernel-modules nv-reg.h and kernel_rc.c (RmLogonRC),
nvidia-smi(1), Fabric Manager user guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from xidwatch.core.fitness import fabric_manager_runs
from xidwatch.core.node import Gpu, Node
from xidwatch.core.remark import MOST_NAMED, Check, listed
from xidwatch.core.slower import lanes_text

VERSION = "/proc/driver/nvidia/version"
PARAMS = "/proc/driver/nvidia/params"
LIBRARY = "libnvidia-ml.so"
_NUMBER = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)*)\b")
_FABRIC_LOG = re.compile(r"Fabric Manager version (?:is )?:?\s*(\d{3}\.\d+(?:\.\d+)*)")
_OPTION = re.compile(r"\b(?:nvidia\.)?NVreg_EnableGpuFirmware=(\w+)")
_OTHER_DRIVERS = ("nouveau", "nova_core", "NovaCore", "nvidiafb", "rivafb")
"""Drivers of the kernel's own; vfio-pci and its kin give a GPU to a guest on purpose."""


def loaded_version(node: Node) -> str | None:
    """Version of the loaded module: the first number of the NVRM line. Same as: cat /proc/driver/nvidia/version."""
    first = (node.tree.text(VERSION) or "").partition("\n")[0]
    found = _NUMBER.search(first)
    return found[1] if found else None


def module_is_open(node: Node) -> bool | None:
    """Whether the open kernel modules are loaded; None while none is."""
    text = node.tree.text(VERSION)
    return None if text is None else "Open Kernel Module" in text


def library_versions(node: Node) -> tuple[str, ...]:
    """Versions of libnvidia-ml.so.1 on the disk: where the links of that name lead, else what lies there."""
    links = [text for _, text in node.tree.below("/", f"/{LIBRARY}.1")]
    files = [path for path, _ in node.tree.below("/") if f"/{LIBRARY}." in path]
    found = [_NUMBER.search(one.partition(f"{LIBRARY}.")[2]) for one in (links or files)]
    return tuple(dict.fromkeys(one[1] for one in found if one))


def _gsp_option(node: Node) -> str | None:
    """`EnableGpuFirmware` can be 0 with the proprietary module alone."""
    if module_is_open(node) is not True:
        return None
    for line in (node.tree.text(PARAMS) or "").splitlines():
        key, _, value = line.partition(":")
        if key == "EnableGpuFirmware" and value.strip() == "0":
            return "NVreg_EnableGpuFirmware=0 is set and the open kernel module is loaded"
    for path, text in (*node.tree.below("/etc/modprobe.d/", ".conf"), ("/proc/cmdline", node.tree.text("/proc/cmdline") or "")):
        lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
        if any(value in ("0", "0x0", "0x00") for line in lines for value in _OPTION.findall(line)):
            return f"{path} sets NVreg_EnableGpuFirmware=0 and the open kernel module is loaded"
    return None


def _xid_logging(node: Node) -> str | None:
    lines = (node.tree.text(PARAMS) or "").splitlines()
    return "the driver runs with RmLogonRC=0" if "RmLogonRC: 0" in [line.strip() for line in lines] else None


def _library_version(node: Node) -> str | None:
    loaded, found = loaded_version(node), library_versions(node)
    if loaded is None or not found or loaded in found:
        return None
    return f"the loaded module is {loaded}, libnvidia-ml.so.1 is {', '.join(found)}"


def _module_on_disk(node: Node) -> str | None:
    """DKMS keeps /var/lib/dkms/MODULE/VERSION/KERNEL for each kernel that it has built for."""
    loaded, kernel = loaded_version(node), node.tree.text("/proc/sys/kernel/osrelease")
    if loaded is None or kernel is None:
        return None
    built = [path.split("/") for path, _ in node.tree.below("/var/lib/dkms/nvidia")]
    versions = list(dict.fromkeys(part[5] for part in built if len(part) > 6 and part[6] == kernel and _NUMBER.search(part[5])))
    if not versions or loaded in versions:
        return None
    return f"module {loaded} is loaded, {', '.join(versions[:MOST_NAMED])} is built for kernel {kernel}"


def _persistence(node: Node) -> str | None:
    return _said_of((gpu for gpu in node.gpus if gpu.persistence_mode is False), "persistence mode is off")


def _ecc(node: Node) -> str | None:
    return _said_of((gpu for gpu in node.gpus if gpu.ecc_enabled is False), "ECC is off")


def _mig(node: Node) -> str | None:
    waiting = [gpu for gpu in node.gpus if gpu.mig_pending is not None and gpu.mig_enabled not in (None, gpu.mig_pending)]
    return _said_of(waiting, f"MIG is to be switched {'on' if waiting and waiting[0].mig_pending else 'off'} by the next reset")


def _pcie_width(node: Node) -> str | None:
    """sysfs: current_link_width, max_link_width; else NVML's. An idle GPU lowers its speed and keeps its width."""
    found = []
    told = {gpu.pci: (gpu.pcie_width, gpu.pcie_max_width) for gpu in node.gpus}
    for gpu in node.ours():
        folder = f"/sys/bus/pci/devices/{gpu.pci}"
        width, most = (node.tree.number(f"{folder}/{name}") for name in ("current_link_width", "max_link_width"))
        if width is None or most is None:
            width, most = told.get(gpu.pci, (None, None))
        if lanes := lanes_text(width, most):
            found.append(f"{gpu.pci} {lanes}")
    return f"PCIe link narrower than the card: {listed(found)}" if found else None


def _driver_bound(node: Node) -> str | None:
    others = [f"{gpu.pci} {gpu.driver}" for gpu in node.bus if gpu.driver in _OTHER_DRIVERS]
    return f"another driver has the GPU: {listed(others)}" if others else None


def _fabric_manager(node: Node) -> str | None:
    if fabric_manager_runs(node) is False and any(gpu.fabric == "completed" for gpu in node.gpus):
        return "NVSwitches are there, the fabric is up, and nv-fabricmanager does not run"
    return None


def _fabric_version(node: Node) -> str | None:
    loaded, said = loaded_version(node), _FABRIC_LOG.findall(node.tree.text("/var/log/fabricmanager.log") or "")
    if loaded is None or not said or said[-1] == loaded or fabric_manager_runs(node) is None:
        return None
    return f"the loaded module is {loaded}, Fabric Manager started last as {said[-1]}"


def _said_of(gpus: Iterable[Gpu], what: str) -> str | None:
    found = [gpu.pci for gpu in gpus]
    return f"{what}: {listed(found)}" if found else None


CHECKS = (
    Check(id="gsp_option", look=_gsp_option, command="take NVreg_EnableGpuFirmware=0 out; nvidia-smi -q | grep 'GSP Firmware'",
          why="the open module always needs the GSP: the option does nothing there, and helps against no Xid 119"),
    Check(id="xid_logging", look=_xid_logging, command="take NVreg_RmLogonRC=0 out of /etc/modprobe.d, reload the driver",
          why="the driver prints no Xid at all"),
    Check(id="library_version", look=_library_version,
          command="reboot, or reload the driver: rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; modprobe nvidia",
          why="programs that start now fail with 'Driver/library version mismatch'; running ones go on"),
    Check(id="module_on_disk", look=_module_on_disk, command="reboot, or reload the driver, at a time of your choosing",
          why="the next reboot changes the driver, perhaps in the middle of an incident"),
    Check(id="driver_bound", look=_driver_bound, command="lspci -k -d 10de:",
          why="CUDA cannot use it, and NVML does not know it"),
    Check(id="persistence", look=_persistence, command="systemctl enable --now nvidia-persistenced",
          why="between jobs the driver gives the GPU up: volatile error counts are lost, every start is slow, and "
              "xidwatch asks NVML on events only"),
    Check(id="ecc", look=_ecc, command="nvidia-smi -e 1, then reset the GPU",
          why="a flipped bit goes into the results unseen: no Xid 48, 63 or 94 will tell"),
    Check(id="mig_pending", look=_mig, command="drain, then nvidia-smi --gpu-reset -i GPU",
          why="the next reset or reboot changes what the scheduler finds there"),
    Check(id="pcie_width", look=_pcie_width, command="lspci -vv -s GPU | grep -i lnk; look at seating, riser and slot",
          why="half the width is half the copies between host and GPU, and lost lanes often come before a lost GPU (Xid 79)"),
    Check(id="fabric_manager", look=_fabric_manager, command="systemctl enable --now nvidia-fabricmanager",
          why="running jobs go on; after the next reset or reboot no CUDA program starts, and NVLink faults are not handled"),
    Check(id="fabric_version", look=_fabric_version, command="install the nvidia-fabricmanager of the driver's exact version",
          why="Fabric Manager refuses to start beside a driver of another version"),
)  # fmt: skip
