"""The uevents of this machine's PCI bus."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest

from xidwatch.sources.devices import DeviceMonitor

pytestmark = [pytest.mark.system, pytest.mark.root]


def test_uevents_of_the_bus_arrive() -> None:
    """A uevent asked for through /sys reaches the monitor's descriptor, and names the slot; no GPU, no change."""
    pytest.importorskip("pyudev")
    slots = sorted(Path("/sys/bus/pci/devices").glob("*"))
    if os.geteuid() != 0 or not slots:
        pytest.skip("needs root and a PCI bus")
    monitor = DeviceMonitor()
    poll = select.poll()
    poll.register(monitor.fileno(), select.POLLIN)
    (slots[0] / "uevent").write_text("change")
    assert poll.poll(10_000)
    assert slots[0].name in [uevent.get("PCI_SLOT_NAME") for uevent in monitor.uevents()]
    (slots[0] / "uevent").write_text("change")
    assert poll.poll(10_000)
    assert [] == monitor.read()
