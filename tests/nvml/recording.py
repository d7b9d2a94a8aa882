"""What real GPUs answered, as a scenario: so that a node that was at hand once can be tested against for ever."""

from __future__ import annotations

from collections.abc import Iterator

from xidwatch.core.gpu import (
    CLOCK_REASONS,
    Activity,
    Driver,
    Fabric,
    GpuState,
    Gsp,
    Memory,
    Mig,
    NodeAnswer,
    NvLink,
    Place,
    RowRemap,
    SpareRows,
    Sram,
    Utilization,
)
from xidwatch.core.pci import PciAddress

_LOCATIONS = ("total", "l1_cache", "l2_cache", "dram", "register_file", "texture_memory", "texture_shm", "cbu", "sram")
_PROBES = ("not_supported", "not_started", "in_progress", "completed")
_LINK_FIELDS = {"replays": 161, "recoveries": 162, "crc_errors": 163, "recovery_failures": 214, "symbol_errors": 221}


def scenario(node: NodeAnswer, *, where: str) -> str:
    """The text of a scenario file; GPUs that gave no state are left out. Serial numbers and UUIDs are masked.

    Args:
        where: For the first line: machine, driver, date.
    """
    states = [state for _, state in sorted(node.gpus.items()) if isinstance(state, GpuState)]
    lines = [f"# Recorded: {where}; serial numbers and UUIDs are masked.", f"count {len(states)}"]
    if isinstance(node.driver, Driver):
        major, _, minor = str(node.driver.cuda_version).partition(".")
        lines += [f"node driver {node.driver.driver_version}", f"node nvml {node.driver.nvml_version}"]
        lines += [f"node cuda {int(major) * 1000 + int(minor) * 10}"] if major.isdigit() and minor.isdigit() else []
    for number, state in enumerate(states):
        lines += [f"{number} {key} {value}" for key, value in _keys(number, state)]
    return "\n".join([*lines, ""])


def _keys(number: int, state: GpuState) -> Iterator[tuple[str, object]]:
    card = state.identity
    masked = {"uuid": f"GPU-00000000-0000-4000-8000-{number:012d}", "serial": f"16529230001{number:02d}"}
    yield "pci", f"{card.pci.domain:08X}:{card.pci.bus:02X}:{card.pci.device:02X}.{card.pci.function}"
    told = {
        "uuid": card.gpu_uuid and masked["uuid"], "serial": masked["serial"] if isinstance(card.serial, str) else card.serial,
        "name": card.name, "part_number": card.part_number, "vbios": card.vbios_version, "module_id": card.module_id,
        "persistence_mode": state.persistence_mode, "ecc_mode": state.ecc_enabled, "field.230": state.recovery_action,
        "retired.corrected": state.retired_pages.corrected, "retired.uncorrected": state.retired_pages.uncorrected,
        "retired.pending": state.retired_pages.pending, "pcie_generation": state.pcie.generation,
        "pcie_width": state.pcie.width, "pcie_max_generation": state.pcie.max_generation,
        "pcie_max_width": state.pcie.max_width, "pcie_replays": state.pcie.replays, "field.95": state.pcie.replay_rollovers,
        "field.173": state.pcie.correctable, "field.179": state.pcie.non_fatal, "field.180": state.pcie.fatal,
        "temperature": state.temperature_celsius, "field.82": state.memory_celsius,
    }  # fmt: skip
    for key, value in told.items():
        if isinstance(value, str | int):
            yield key, int(value) if isinstance(value, bool) else value
    yield from _counts(state)
    yield from _shapes(state)
    yield from _links(state.nvlinks)
    if isinstance(state.processes, tuple):
        kinds: dict[str, int] = {}
        for one in state.processes:
            place = kinds[one.kind] = kinds.get(one.kind, -1) + 1
            instances = f" {one.gpu_instance} {one.compute_instance}" if one.gpu_instance is not None else ""
            yield f"process.{one.kind}.{place}", f"{one.pid} {(one.used_bytes or 0) >> 20}{instances}"


def _counts(state: GpuState) -> Iterator[tuple[str, object]]:
    for lifetime in ("volatile", "aggregate"):
        for severity in ("corrected", "uncorrected"):
            found: dict[str, int] = {
                one.location: one.count for one in state.ecc if (one.lifetime, one.severity) == (lifetime, severity)
            }
            if found:
                yield f"ecc.{lifetime}.{severity}", " ".join(str(found.get(place, 0)) for place in _LOCATIONS)


def _shapes(state: GpuState) -> Iterator[tuple[str, object]]:
    """Readings of several figures."""
    for reading in (
        state.sram, state.row_remap, state.spare_rows, state.memory, state.utilization, state.activity, state.gsp, state.fabric,
        state.identity.place,
    ):  # fmt: skip
        if found := _shape(reading):
            yield found
    if isinstance(state.mig, Mig):
        yield "mig_mode", f"{int(state.mig.enabled)} {int(state.mig.pending)}"
        for place, one in enumerate(state.mig.devices):
            yield f"mig.{place}", f"MIG-00000000-0000-4000-8000-{place:012d} {one.gpu_instance} {one.compute_instance}"
    for key, watts in (("power_mw", state.power_watts), ("power_limit_mw", state.power_limit_watts)):
        if isinstance(watts, float):
            yield key, round(watts * 1000)
    if isinstance(state.clock_reasons, tuple):
        bits = [CLOCK_REASONS.index(one) if one in CLOCK_REASONS else int(one[4:]) for one in state.clock_reasons]
        yield "clock_reasons", sum(1 << bit for bit in bits)


def _shape(reading: object) -> tuple[str, object] | None:  # noqa: PLR0911  # one line a kind reads best
    match reading:
        case Sram(threshold_exceeded=over, uncorrected_parity=parity, uncorrected_secded=secded, corrected=corrected):
            return "sram", f"{int(over)} {parity} {secded} {corrected}"
        case RowRemap(correctable=correctable, uncorrectable=uncorrectable, pending=pending, failed=failed):
            return "remapped_rows", f"{correctable} {uncorrectable} {int(pending)} {int(failed)}"
        case SpareRows(max=most, high=high, partial=partial, low=low, none=none):
            return "spare_rows", f"{most} {high} {partial} {low} {none}"
        case Memory(total_bytes=total, used_bytes=used):
            return "memory_mib", f"{total >> 20} {used >> 20}"
        case Utilization(gpu_ratio=gpu, memory_ratio=memory):
            return "utilization", f"{gpu * 100:.0f} {memory * 100:.0f}"
        case Activity(sm_ratio=sm, tensor_ratio=tensor, dram_ratio=dram):
            return "gpm", f"{sm * 100:.0f} {tensor * 100:.0f} {dram * 100:.0f}"
        case Gsp(enabled=enabled):
            return "gsp", int(enabled)
        case Fabric():
            flags = (reading.degraded_bandwidth, reading.route_recovery, reading.route_unhealthy)
            mask = sum({True: 1, False: 2, None: 0}[flag] << 2 * place for place, flag in enumerate(flags))
            return "fabric", f"{_PROBES.index(reading.probe) if reading.probe in _PROBES else 9} {reading.status} {mask:#x}"
        case Place(chassis_serial=chassis, slot=slot, tray=tray, host=host, module_id=module):
            return "place", f"{'0' * len(chassis or '0')} {slot} {tray} {host} {module}"
    return None


def _links(links: tuple[NvLink, ...]) -> Iterator[tuple[str, object]]:
    if not links:
        return
    yield "nvlinks", " ".join(str(int(one.active)) for one in links)
    remote = next((one.remote for one in links if isinstance(one.remote, PciAddress)), None)
    if remote is not None:
        yield "nvlink_remote", f"{remote.domain:08X}:{remote.bus:02X}:{remote.device:02X}.{remote.function}"
    for one in links:
        for name, field in _LINK_FIELDS.items():
            if isinstance(value := getattr(one, name), int):
                yield f"field.{field}.{one.link}", value
