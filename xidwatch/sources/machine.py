"""What kind of machine this is, read off /proc, /sys and DMI. Nothing here asks a GPU, a service or another program."""

from __future__ import annotations

from pathlib import Path

from xidwatch.core.machine import (
    FabricManager,
    Flavour,
    Generation,
    Machine,
    Scheduler,
    Setting,
    common_generation,
    generation_of_device,
    hypervisor_of_dmi,
)
from xidwatch.core.pattern import lazy
from xidwatch.sources.devices import list_gpus

_VERSION = lazy(r"NVRM version: NVIDIA UNIX (Open )?.*?Kernel Module(?: for \S+)?\s+(\d+\.\d+(?:\.\d+)?)")
_MOST_BYTES = 65_536
_NVIDIA, _BRIDGE = "0x10de", "0x0680"
_OF_CONTAINERS = (
    "run/systemd/container", ".dockerenv", "run/.containerenv", "var/run/secrets/kubernetes.io/serviceaccount",
)  # fmt: skip
_UNIT_FOLDERS = ("etc/systemd/system", "run/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")
_SLICES = ("sys/fs/cgroup/system.slice", "sys/fs/cgroup/systemd/system.slice", "sys/fs/cgroup/unified/system.slice")


def read_machine(root: str = "/") -> Machine:
    """This machine, as far as it can be told without asking anyone; `root` is where its file system begins.

    Same as: systemd-detect-virt; cat /proc/driver/nvidia/version; lspci -d 10de:; systemctl is-active nvidia-fabricmanager
    """
    at = Path(root)
    setting, hypervisor = virtualization(root)
    flavour, version = _driver(at)
    gpus = list_gpus(str(at / "sys"))
    generations: set[Generation | None] = {generation_of_device(gpu.device or 0) for gpu in gpus}
    return Machine(
        flavour=flavour,
        driver_version=version,
        generation=common_generation(generations),
        nvswitch=_nvswitch(at, setting),
        fabric_manager=_fabric_manager(at),
        mig=True if any((at / "proc/driver/nvidia/capabilities").glob("gpu*/mig/gi*")) else None,
        setting=setting,
        hypervisor=hypervisor,
        container=in_container(root),
        bmc=_bmc(at, setting),
        persistence=True if _runs(at, "nvidia-persistenced.service") else None,
        nvidia_drm=(at / "sys/module/nvidia_drm").is_dir() if (at / "sys/module").is_dir() else None,
        scheduler=_scheduler(at),
    )


def virtualization(root: str = "/") -> tuple[Setting | None, str | None]:
    """Whether this is a guest, and of which hypervisor: ("guest", "kvm"), ("bare_metal", None), (None, None) when not known.

    Asked in this order: the processor's hypervisor flag, DMI, /sys/hypervisor, the device tree.
    Same as: systemd-detect-virt --vm
    """
    at = Path(root)
    maker, product = _text(at / "sys/class/dmi/id/sys_vendor"), _text(at / "sys/class/dmi/id/product_name")
    by_name = hypervisor_of_dmi(maker or "", product or "")
    cpu = _text(at / "proc/cpuinfo") or ""
    flags = next((line for line in cpu.splitlines() if line.startswith("flags")), None)
    xen = _text(at / "proc/xen/capabilities") or ""
    if "dom0" in xen or "control_d" in xen:
        return "bare_metal", None
    if flags is not None and "hypervisor" in flags.split():
        return "guest", by_name or _text(at / "sys/hypervisor/type") or "unknown"
    if by_name is not None:
        return "guest", by_name
    if (kind := _text(at / "sys/hypervisor/type")) is not None:
        return "guest", kind
    if (at / "proc/device-tree/hypervisor").is_dir():
        return "guest", _text(at / "proc/device-tree/hypervisor/compatible") or "unknown"
    return ("bare_metal", None) if flags is not None or maker is not None else (None, None)


def in_container(root: str = "/") -> bool:
    """Whether this process runs inside a container. Same as: systemd-detect-virt --container."""
    at = Path(root)
    if any((at / name).exists() for name in _OF_CONTAINERS):
        return True
    # The last to be asked: reading it waits for a first process that holds its memory map, as one stuck in D state may.
    first = _text(at / "proc/1/environ") or ""
    return any(word.startswith(("container=", "KUBERNETES_SERVICE_HOST=")) for word in first.split("\0"))


def _text(path: Path) -> str | None:
    """A small file of /proc or /sys; None when it is not there, not permitted or empty."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace").strip("\0 \n") or None
    except OSError:
        return None


def _driver(at: Path) -> tuple[Flavour | None, str | None]:
    found = _VERSION.search(_text(at / "proc/driver/nvidia/version") or "")
    return ("open" if found[1] else "proprietary", found[2]) if found else (None, None)


def _nvswitch(at: Path, setting: Setting | None) -> bool | None:
    """Whether one is on the PCI bus; a guest may have links to switches that it does not see."""
    devices = at / "sys/bus/pci/devices"
    if not devices.is_dir():
        return None
    for slot in devices.glob("*"):
        if _text(slot / "vendor") == _NVIDIA and (_text(slot / "class") or "").startswith(_BRIDGE):
            return True
    return False if setting == "bare_metal" else None


def _runs(at: Path, unit: str) -> bool:
    """Whether a systemd unit has processes now: then its control group exists."""
    return any((at / folder / unit).is_dir() for folder in _SLICES)


def _fabric_manager(at: Path) -> FabricManager | None:
    unit = "nvidia-fabricmanager.service"
    if _runs(at, unit):
        return "running"
    if not any((at / folder).is_dir() for folder in _SLICES):
        return None
    return "stopped" if any((at / folder / unit).exists() for folder in _UNIT_FOLDERS) else "absent"


def _bmc(at: Path, setting: Setting | None) -> bool | None:
    if setting == "guest":
        return False
    return True if any((at / "sys/class/ipmi").glob("*")) or (at / "dev/ipmi0").exists() else None


def _scheduler(at: Path) -> Scheduler | None:
    """The one whose daemon runs here; None where both do, or none is seen."""
    slurm = _runs(at, "slurmd.service")
    kubernetes = any(_runs(at, f"{name}.service") for name in ("kubelet", "k3s", "k3s-agent", "rke2-agent", "rke2-server"))
    kubernetes = (
        kubernetes or any((at / "sys/fs/cgroup").glob("kubepods*")) or any((at / "var/run/secrets").glob("kubernetes.io"))
    )
    if slurm == kubernetes:
        return None
    return "slurm" if slurm else "kubernetes"
