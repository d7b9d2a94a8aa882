"""GPUs on the PCI bus, from a made-up /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from xidwatch.core.pci import PciAddress
from xidwatch.sources.devices import DeviceChange, config_reads_all_ones, gpu_change, list_gpus

H100 = PciAddress(0, 0x3B, 0)


def add_device(sysfs: Path, slot: str, **files: str) -> Path:
    """One device; `driver` becomes a link, the others files. A GPU unless told otherwise."""
    folder = sysfs / "bus/pci/devices" / slot
    folder.mkdir(parents=True)
    for name, text in ({"vendor": "0x10de", "class": "0x030200", "device": "0x2330"} | files).items():
        if name == "driver":
            driver = sysfs / "bus/pci/drivers" / text
            driver.mkdir(parents=True, exist_ok=True)
            (folder / "driver").symlink_to(driver)
        else:
            (folder / name).write_text(f"{text}\n")
    return folder


def test_finds_the_gpus_and_nothing_else(tmp_path: Path) -> None:
    """Display devices of NVIDIA are GPUs, in order of their slots; audio functions, NVSwitches and other vendors are none."""
    add_device(tmp_path, "0001:4e:00.0", driver="vfio-pci", **{"class": "0x030000"})
    add_device(tmp_path, "0000:3b:00.0", driver="nvidia")
    add_device(tmp_path, "0000:3b:00.1", **{"class": "0x040300"})
    add_device(tmp_path, "0000:c1:00.0", **{"class": "0x068000"})
    add_device(tmp_path, "0000:00:02.0", vendor="0x8086", **{"class": "0x030000"})
    found = [(str(gpu.pci), gpu.driver, gpu.device, gpu.asleep) for gpu in list_gpus(str(tmp_path))]
    assert [("0000:3b:00.0", "nvidia", 0x2330, False), ("0001:4e:00.0", "vfio-pci", 0x2330, False)] == found


def test_gpu_without_driver_and_asleep(tmp_path: Path) -> None:
    """No bound driver is None; a GPU that the kernel has powered down is known without touching it."""
    folder = add_device(tmp_path, "0000:3b:00.0")
    (folder / "power").mkdir()
    (folder / "power/runtime_status").write_text("suspended\n")
    (gpu,) = list_gpus(str(tmp_path))
    assert (None, True) == (gpu.driver, gpu.asleep)


def test_damaged_attributes_are_no_gpu(tmp_path: Path) -> None:
    """A device whose vendor cannot be read, and a machine without a PCI bus, are no errors."""
    add_device(tmp_path, "0000:3b:00.0", vendor="what")
    assert () == list_gpus(str(tmp_path))
    assert () == list_gpus(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("first", "answer"),
    [(b"\xff\xff\xff\xff\xff\xff", True), (bytes.fromhex("de103023"), False), (b"\xff", None), (b"", None)],
)
def test_config_space_of_all_ones_is_a_lost_device(tmp_path: Path, first: bytes, *, answer: bool | None) -> None:
    """A device that does not answer reads all ones; a cut read proves nothing."""
    (add_device(tmp_path, "0000:3b:00.0") / "config").write_bytes(first)
    assert answer is config_reads_all_ones(H100, str(tmp_path))


def test_config_space_of_a_device_that_is_gone(tmp_path: Path) -> None:
    """No device, no answer."""
    assert None is config_reads_all_ones(H100, str(tmp_path))


UEVENT = {
    "ACTION": "remove",
    "SUBSYSTEM": "pci",
    "PCI_CLASS": "30200",
    "PCI_ID": "10DE:2330",
    "PCI_SLOT_NAME": "0000:3b:00.0",
    "DRIVER": "nvidia",
}


def test_change_of_a_gpu() -> None:
    """A uevent tells what happened to which slot, also when /sys no longer has it."""
    assert DeviceChange("remove", H100, "nvidia") == gpu_change(UEVENT)


@pytest.mark.parametrize(
    "other",
    [
        {"PCI_ID": "8086:1521"},
        {"PCI_CLASS": "40300"},
        {"PCI_CLASS": "what"},
        {"PCI_SLOT_NAME": "what"},
        {"PCI_ID": "", "PCI_SLOT_NAME": ""},
    ],
)
def test_change_of_something_else(other: dict[str, str]) -> None:
    """Other devices and uevents without the fields are none of ours."""
    assert None is gpu_change(UEVENT | other)
