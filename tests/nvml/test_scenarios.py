"""Every scenario of the fake NVML, through the unchanged nvidia-ml-py and the child, becomes the right state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.nvml.fake import SCENARIOS, SLOTS, Fake, sampled
from xidwatch.core.gpu import (
    Activity,
    Driver,
    DriverNotLoaded,
    Fabric,
    GpuProcess,
    GpuState,
    Lost,
    Mig,
    NodeAnswer,
    NoPermission,
    NotFound,
    NotSupported,
    Place,
    ResetRequired,
    RetiredPages,
    RowRemap,
    SpareRows,
    Sram,
    UnknownError,
    VersionMismatch,
    replaced,
)
from xidwatch.core.pci import PciAddress
from xidwatch.sinks.gpu_readings import readings

HEALTHY = SLOTS[0]
OTHERS = {
    "lost": (3, Lost), "lost_inside": (3, Lost), "reset_required": (6, ResetRequired), "unknown_error": (6, UnknownError),
}  # fmt: skip


def answer(fake: Fake, name: str) -> NodeAnswer:
    """What the scenario looks like to a client that knew eight healthy GPUs before."""
    with fake.client() as client:
        sampled(client)
        fake.use(name)
        return sampled(client)


def state(node: NodeAnswer, number: int) -> GpuState:
    """The state of the GPU with this number."""
    found = node.gpus[SLOTS[number]]
    assert isinstance(found, GpuState), found
    return found


def test_eight_healthy(fake: Fake) -> None:
    """Eight H100 with nothing wrong: each with identity, links, processes and readings, and none refused that an H100 has."""
    with fake.client() as client:
        node = sampled(client)
    assert list(SLOTS) == sorted(node.gpus)
    assert isinstance(node.driver, Driver)
    assert ("580.95.05", "13.0", 8) == (node.driver.driver_version, node.driver.cuda_version, node.driver.gpu_count)
    one = state(node, 4)
    assert (4, "GPU-00000000-0000-4000-8000-000000000004", "1652923000104", 5) == (
        one.identity.index, one.identity.gpu_uuid, one.identity.serial, one.identity.module_id,
    )  # fmt: skip
    assert (True, 0, True, ()) == (one.persistence_mode, one.recovery_action, one.ecc_enabled, one.clock_reasons)
    assert RowRemap(correctable=0, uncorrectable=0, pending=False, failed=False) == one.row_remap
    assert SpareRows(max=2560, high=0, partial=0, low=0, none=0) == one.spare_rows
    assert [2] == [
        count.count
        for count in one.ecc
        if (count.lifetime, count.severity, count.location) == ("aggregate", "corrected", "dram")
    ]
    assert (5, 16, 5, 16, 0) == (
        one.pcie.generation,
        one.pcie.width,
        one.pcie.max_generation,
        one.pcie.max_width,
        one.pcie.replays,
    )
    assert [(link, True, PciAddress(0, 0xC1, 0), 0) for link in range(18)] == [
        (link.link, link.active, link.remote, link.crc_errors) for link in one.nvlinks
    ]
    process = GpuProcess(pid=41213, kind="compute", used_bytes=70000 << 20, gpu_instance=None, compute_instance=None)
    assert (process,) == one.processes
    assert (52, 48, 612.0, 700.0) == (one.temperature_celsius, one.memory_celsius, one.power_watts, one.power_limit_watts)
    assert Mig(enabled=False, pending=False, devices=()) == one.mig
    fabric = Fabric(probe="completed", status=0, degraded_bandwidth=False, route_recovery=False, route_unhealthy=False)
    assert fabric == one.fabric


@pytest.mark.parametrize("name", OTHERS)
def test_one_gpu_fails_as_a_whole(fake: Fake, name: str) -> None:
    """A lost GPU, one that must be reset and one that fails at everything are told apart, by slot, with what they said last."""
    number, kind = OTHERS[name]
    node = answer(fake, name)
    found = node.gpus[SLOTS[number]]
    assert type(found) is kind
    assert found.last_good is not None and f"165292300010{number}" == found.last_good.identity.serial
    assert [GpuState] * 7 == [type(other) for pci, other in node.gpus.items() if pci != SLOTS[number]]
    assert () == node.unplaced


def test_lost_before_we_came_is_named_by_the_slot_that_pci_tells(fake: Fake) -> None:
    """A GPU that was lost before the first question is `Lost` in the slot where PCI has it, and is told once."""
    fake.use("lost")
    with fake.client() as client:
        client.expect(SLOTS)
        node = sampled(client)
    assert isinstance(node.gpus[SLOTS[3]], Lost)
    assert (8, ()) == (len(node.gpus), node.unplaced)


def test_lost_and_never_seen_is_still_told(fake: Fake) -> None:
    """When nothing tells the slot of a lost GPU, it is told without one, not left out."""
    fake.use("lost")
    with fake.client() as client:
        node = sampled(client)
    assert (7, [Lost]) == (len(node.gpus), [type(one) for one in node.unplaced])


def test_gone(fake: Fake) -> None:
    """A GPU that NVML no longer knows is `NotFound` in its slot, with its serial number at hand."""
    found = answer(fake, "gone").gpus[SLOTS[7]]
    assert isinstance(found, NotFound)
    assert found.last_good is not None and "1652923000107" == found.last_good.identity.serial


def test_replaced(fake: Fake) -> None:
    """Another UUID in the same slot is another card."""
    with fake.client() as client:
        before = sampled(client)
        fake.use("replaced")
        after = sampled(client)
    assert [SLOTS[3]] == [pci for pci in SLOTS if replaced(before.gpus[pci], after.gpus[pci])]


def test_remap_pending(fake: Fake) -> None:
    """A pending row, the uncorrected error behind it by place, and the driver's wish for drain and reset."""
    node = answer(fake, "remap_pending")
    one = state(node, 5)
    assert (RowRemap(correctable=0, uncorrectable=1, pending=True, failed=False), 4) == (one.row_remap, one.recovery_action)
    assert {("volatile", "dram"), ("aggregate", "dram")} == {
        (count.lifetime, count.location) for count in one.ecc if count.count == 1 and count.location != "total"
    }
    series = readings(node.gpus, node.driver)
    at = ("gpu", "0000:c3:00.0")
    assert (1.0, 0.0) == (series["xidwatch_row_remap_pending", (at,)], series["xidwatch_row_remap_failure", (at,)])
    assert 1.0 == series["xidwatch_driver_recovery_action", (at, ("action", "drain_and_reset"), ("source", "nvml"))]
    assert 1.0 == series["xidwatch_ecc_errors_total", (at, ("kind", "volatile_uncorrected"))]


def test_remap_failure(fake: Fake) -> None:
    """A failed remap and the bank without a spare row."""
    node = answer(fake, "remap_failure")
    one = state(node, 5)
    assert RowRemap(correctable=0, uncorrectable=8, pending=False, failed=True) == one.row_remap
    assert isinstance(one.spare_rows, SpareRows) and 1 == one.spare_rows.none
    assert 1.0 == readings(node.gpus, node.driver)["xidwatch_row_remap_failure", (("gpu", "0000:c3:00.0"),)]


def test_sram_threshold(fake: Fake) -> None:
    """The flag that is a way to RMA."""
    assert (
        Sram(threshold_exceeded=True, uncorrected_parity=5, uncorrected_secded=0, corrected=12)
        == state(answer(fake, "sram_threshold"), 2).sram
    )


def test_throttled(fake: Fake) -> None:
    """Hardware slowdown for heat, by name, on a link that is half as wide as it could be."""
    node = answer(fake, "throttled")
    one = state(node, 1)
    assert (("hw_slowdown", "hw_thermal"), 91, 8, 16, 1200) == (
        one.clock_reasons, one.temperature_celsius, one.pcie.width, one.pcie.max_width, one.pcie.replays,
    )  # fmt: skip
    throttles = [labels for name, labels in readings(node.gpus, node.driver) if name == "xidwatch_throttle_active"]
    assert [(("gpu", "0000:43:00.0"), ("reason", reason)) for reason in ("hw_slowdown", "hw_thermal")] == throttles


def test_nvlink_down(fake: Fake) -> None:
    """The one link that is down, and how often it recovered before."""
    assert [(2, 7)] == [
        (link.link, link.recoveries) for link in state(answer(fake, "nvlink_down"), 4).nvlinks if not link.active
    ]


def test_mig(fake: Fake) -> None:
    """Three MIG devices with the numbers that the log prints, and the process inside one of them."""
    one = state(answer(fake, "mig"), 0)
    assert isinstance(one.mig, Mig)
    assert [(1, 0), (2, 0), (5, 0)] == [(device.gpu_instance, device.compute_instance) for device in one.mig.devices]
    assert isinstance(one.processes, tuple) and [(4711, 5, 0)] == [
        (p.pid, p.gpu_instance, p.compute_instance) for p in one.processes
    ]
    assert isinstance(one.row_remap, NotSupported)


def test_place_and_nvlink_5(fake: Fake) -> None:
    """A GB200 tells chassis, slot and tray, and the counters of NVLink 5."""
    fake.use("blackwell")
    with fake.client() as client:
        one = state(sampled(client), 0)
    assert Place(chassis_serial="1820224000123", slot=9, tray=4, host=1, module_id=2) == one.identity.place
    assert {(0, 3)} == {(link.recovery_failures, link.symbol_errors) for link in one.nvlinks}


def test_old_driver(fake: Fake) -> None:
    """Without the newer functions: retired pages, older process lists and link counters are read, the rest is not supported."""
    fake.use("old_driver")
    with fake.client() as client:
        node = sampled(client)
    (one,) = node.gpus.values()
    assert isinstance(one, GpuState)
    assert RetiredPages(corrected=1, uncorrected=2, pending=True) == one.retired_pages
    assert (("sw_power_cap",), [0, 5, 0, 0, 0, 0]) == (one.clock_reasons, [link.crc_errors for link in one.nvlinks])
    assert isinstance(one.processes, tuple) and [912] == [process.pid for process in one.processes]
    for missing in (one.sram, one.row_remap, one.recovery_action, one.gsp, one.fabric, one.mig, one.identity.module_id):
        assert isinstance(missing, NotSupported)
    shown = {name for name, _ in readings(node.gpus, node.driver)}
    assert shown.isdisjoint({"xidwatch_row_remap_pending", "xidwatch_driver_recovery_action"})


@pytest.mark.parametrize(
    ("name", "kind"), [("version_mismatch", VersionMismatch), ("not_loaded", DriverNotLoaded), ("no_permission", NoPermission)]
)
def test_nvml_as_a_whole_refuses(fake: Fake, name: str, kind: type) -> None:
    """Each reason for which NVML cannot begin is its own answer, for the node and for each GPU; none is shown as healthy."""
    with fake.client() as client:
        sampled(client)
        fake.use(name)
        node = sampled(client)
        health = client.health()
    assert kind is type(node.driver)
    assert [kind] * 8 == [type(one) for one in node.gpus.values()]
    assert (False, 0.0) == (health.up, health.stuck_s)
    assert {"xidwatch_ecc_errors_total"} == {series for series, _ in readings(node.gpus, node.driver)}


def test_no_permission_for_one_reading(fake: Fake) -> None:
    """What only root may know is `NoPermission`; the rest is read."""
    one = state(answer(fake, "no_permission_inside"), 0)
    assert isinstance(one.identity.serial, NoPermission)
    assert 52 == one.temperature_celsius


def test_unknown_error_of_one_reading(fake: Fake) -> None:
    """One reading that fails inside the driver does not make the GPU unknown."""
    one = state(answer(fake, "unknown_error_once"), 6)
    assert isinstance(one.recovery_action, UnknownError)
    assert 612.0 == one.power_watts


def test_slow_calls_are_waited_for(fake: Fake) -> None:
    """Slow is not stuck."""
    assert [GpuState] * 8 == [type(one) for one in answer(fake, "slow").gpus.values()]


def test_every_scenario_is_tested() -> None:
    """No scenario lies about without a test."""
    here = "".join((Path(__file__).parent / f"test_{name}.py").read_text() for name in ("scenarios", "client", "d_state"))
    assert [] == [file.stem for file in SCENARIOS.glob("*.txt") if f'"{file.stem}"' not in here and file.stem != "healthy"]


def test_each_gpu_is_bound_by_something(fake: Fake) -> None:
    """GPM's figures, and without them utilisation and power, say what binds the work; the metric has one series a GPU."""
    node = answer(fake, "gpm")
    assert Activity(sm_ratio=0.92, tensor_ratio=0.08, dram_ratio=0.71, over_s=0.0) == replace(
        activity := cast("Activity", state(node, 0).activity), over_s=0.0
    )
    assert activity.over_s > 0.1
    assert isinstance(state(node, 5).activity, NotSupported)
    regimes = [dict(labels)["regime"] for (name, labels), _ in sorted(readings(node.gpus).items()) if name == "xidwatch_regime"]
    assert [
        "memory_bound", "compute_bound", "overhead_bound", "spinning", "idle", "spinning", "overhead_bound", "compute_bound",
    ] == regimes  # fmt: skip
