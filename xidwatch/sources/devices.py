"""NVIDIA GPUs as the PCI bus knows them, whatever the driver says, and their coming and going."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xidwatch.core.pci import PciAddress, parse_pci
from xidwatch.errors import XidwatchError

_NVIDIA = 0x10DE
_DISPLAY = 0x03
_ALL_ONES = b"\xff\xff\xff\xff"
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PciGpu:
    """One GPU on the bus.

    Attributes:
        pci: Its slot.
        driver: The kernel driver bound to it (`nvidia`, `vfio-pci`, `nouveau`); None when none is.
        device: PCI device number, such as 0x2330.
        asleep: The kernel has powered it down; its config space must not be read, since that wakes it.
    """

    pci: PciAddress
    driver: str | None
    device: int | None
    asleep: bool


def list_gpus(sysfs: str = "/sys") -> tuple[PciGpu, ...]:
    """The NVIDIA devices of class 0x03xx, by slot. Same as: lspci -D -d 10de::03xx.

    Reads only what the kernel keeps in memory; no device is touched.
    """
    found = []
    for slot in Path(sysfs, "bus/pci/devices").glob("*"):
        pci = parse_pci(slot.name)
        if pci is None or _number(slot / "vendor") != _NVIDIA or (_number(slot / "class") or 0) >> 16 != _DISPLAY:
            continue
        found.append(PciGpu(pci=pci, driver=_driver(slot), device=_number(slot / "device"), asleep=_asleep(slot)))
    return tuple(sorted(found, key=lambda gpu: str(gpu.pci)))


def config_reads_all_ones(pci: PciAddress, sysfs: str = "/sys") -> bool | None:
    """Whether the first four bytes of its config space are all ones: it no longer answers; None when that cannot be read.

    Touches the device and may block for as long as the bus does: never call it in the loop, nor for a GPU that is asleep.
    Same as: setpci -s SLOT 0.L
    """
    try:
        with Path(sysfs, "bus/pci/devices", str(pci), "config").open("rb", buffering=0) as config:
            first = config.read(4)
    except OSError:
        return None
    return first == _ALL_ONES if len(first) == 4 else None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"), 16)
    except (OSError, ValueError):
        return None


def _driver(slot: Path) -> str | None:
    try:
        return (slot / "driver").readlink().name
    except OSError:
        return None


def _asleep(slot: Path) -> bool:
    try:
        return (slot / "power/runtime_status").read_text(encoding="ascii").strip() == "suspended"
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class DeviceChange:
    """A GPU came, went, or changed its driver.

    Attributes:
        action: "add", "remove", "bind", "unbind", "change", ... as the kernel says; "overrun" when some were lost, so that
            `list_gpus` must be asked anew.
        pci: Its slot; None for "overrun".
        driver: Where the kernel names it.
    """

    action: str
    pci: PciAddress | None
    driver: str | None = None


def gpu_change(uevent: Mapping[str, str]) -> DeviceChange | None:
    """Read the properties of one uevent; None when it is not about an NVIDIA GPU.

    Source: linux, drivers/pci/pci-driver.c, pci_uevent: PCI_CLASS and PCI_ID in hexadecimal, PCI_SLOT_NAME.
    """
    pci = parse_pci(uevent.get("PCI_SLOT_NAME", ""))
    if pci is None or not uevent.get("PCI_ID", "").upper().startswith("10DE:"):
        return None
    try:
        if int(uevent.get("PCI_CLASS", ""), 16) >> 16 != _DISPLAY:
            return None
    except ValueError:
        return None
    return DeviceChange(uevent.get("ACTION", ""), pci, uevent.get("DRIVER"))


class DeviceMonitor:
    """The kernel's uevents of the PCI bus; needs neither udevd nor root."""

    def __init__(self) -> None:
        """Begin to listen.

        Raises:
            XidwatchError: pyudev or libudev is not installed.
            OSError: the kernel does not let us listen.
        """
        try:
            import pyudev
        except ImportError as reason:
            raise XidwatchError(f"PCI devices are watched with pyudev: pip install pyudev, libudev.so.1 ({reason})") from None
        self._monitor: Any = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        self._monitor.filter_by(subsystem="pci")
        self._monitor.set_receive_buffer_size(_BUFFER_BYTES)
        self._monitor.start()

    def fileno(self) -> int:
        """Readable when something changed."""
        return int(self._monitor.fileno())

    def read(self, most: int = 1000) -> list[DeviceChange]:
        """What changed since it was last asked; never blocks."""
        return [change for uevent in self.uevents(most) if (change := _change(uevent)) is not None]

    def uevents(self, most: int = 1000) -> list[Mapping[str, str]]:
        """The uevents of all PCI devices since it was last asked; an empty one where some were lost."""
        found: list[Mapping[str, str]] = []
        while len(found) < most:
            try:
                device = self._monitor.poll(timeout=0)
            except OSError as reason:
                if reason.errno != errno.ENOBUFS:
                    raise
                found.append({})
                continue
            if device is None:
                break
            found.append(dict(device.properties))
        return found


def _change(uevent: Mapping[str, str]) -> DeviceChange | None:
    return gpu_change(uevent) if uevent else DeviceChange("overrun", None)
