"""The daemon's view of the GPUs: the bus and NVML, in one loop."""

from __future__ import annotations

import selectors
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.nvml.fake import ALONE, QUICK, Fake
from xidwatch.core.pci import parse_pci
from xidwatch.gpus import Gpus
from xidwatch.nvml.client import NvmlClient
from xidwatch.sources.devices import PciGpu

SLOT = parse_pci("0000:1b:00.0")
SOON_S = 30.0


def bus() -> tuple[PciGpu, ...]:
    """One of the fake library's GPUs, as sysfs would show it."""
    assert SLOT is not None
    return (PciGpu(pci=SLOT, driver="nvidia", device=0x2330, asleep=False),)


def test_what_the_bus_and_nvml_tell_is_shown_together(fake: Fake) -> None:
    """With a GPU on the bus NVML is asked: both counts and its state are among the readings, and what bounds its work is known."""
    fake.use("healthy")
    with selectors.DefaultSelector() as selector:
        gpus = Gpus(selector, use_nvml=True, devices=bus, client=lambda: NvmlClient(QUICK, None, ALONE))
        end = time.monotonic() + SOON_S
        while gpus.readings(gpus.slots()).get(("xidwatch_gpus", (("source", "nvml"),))) != 8.0:
            assert time.monotonic() < end
            gpus.tick()
            for key, mask in selector.select(0.05):
                key.data(mask)
        while ("xidwatch_nvml_up", ()) not in gpus.readings(gpus.slots()):
            assert time.monotonic() < end
            for key, mask in selector.select(0.05):
                key.data(mask)
        shown, card, holders = gpus.readings(gpus.slots()), gpus.card(), gpus.processes()
        now_us = time.time_ns() // 1000
        looks = [gpus.look_before(SLOT, now_us - age_s * 1_000_000) if SLOT else None for age_s in (0, 200, -400)]
        gpus.close()
    assert ["memory_bound", None, None] == [one.regime if one else None for one in looks]
    assert "NVIDIA H100 80GB HBM3" == card
    assert {41213: 8} == {pid: len(slots) for pid, slots in holders.items()}
    counts = {source: shown["xidwatch_gpus", (("source", source),)] for source in ("pci", "driver", "nvml")}
    assert {"pci": 1.0, "driver": 1.0, "nvml": 8.0} == counts
    assert 1.0 == shown["xidwatch_nvml_up", ()]


def test_without_a_gpu_on_the_bus_nvml_is_left_alone() -> None:
    """A machine without a GPU shows that the bus has none, and nothing of NVML."""
    with selectors.DefaultSelector() as selector:
        gpus = Gpus(selector, use_nvml=True, devices=lambda: ())
        shown = gpus.readings(gpus.slots())
        gpus.close()
    assert {("xidwatch_gpus", (("source", "pci"),)): 0.0, ("xidwatch_gpus", (("source", "driver"),)): 0.0} == shown


def test_a_card_that_falls_off_is_looked_at_and_missed(fake: Fake, tmp_path: Path) -> None:
    """NVML loses it: its config space is read by another thread; gone from the bus, it is missing until that is accepted."""
    fake.use("healthy")
    found = [bus()]
    dead = threading.Event()
    with selectors.DefaultSelector() as selector:
        gpus = Gpus(
            selector,
            use_nvml=True,
            devices=lambda: found[0],
            client=lambda: NvmlClient(QUICK, None, ALONE),
        )
        gpus.changed = dead.set

        def turn(done: Callable[[], bool]) -> None:
            end = time.monotonic() + SOON_S
            while not done():
                assert time.monotonic() < end
                gpus.tick()
                for key, mask in selector.select(0.05):
                    key.data(mask)

        turn(lambda: gpus.readings(gpus.slots()).get(("xidwatch_gpus", (("source", "nvml"),))) == 8.0)
        assert SLOT in [pci for pci, _ in gpus.news()]
        fake.use("healthy", "0 fail * 15")
        gpus.happened("xid")
        turn(lambda: {slot.pci: slot for slot in gpus.slots()}[SLOT or bus()[0].pci].dead is None and dead.is_set())
        found[0] = ()
        gpus._look()
        missing = [slot.pci for slot in gpus.slots() if slot.missing and slot.pci == SLOT]
        gpus.accept()
        accepted = [slot.pci for slot in gpus.slots() if slot.missing and slot.pci == SLOT]
        gpus.close()
    assert [SLOT] == missing
    assert [] == accepted
