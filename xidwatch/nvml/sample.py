"""One sample of one GPU through NVML's functions. It imports no binding: the child hands its own in.

Function names, structures and numbers are those of nvml.h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, cast

from xidwatch.core.gpu import (
    Activity,
    EccCount,
    Fabric,
    FabricProbe,
    GpuAnswer,
    GpuProcess,
    GpuState,
    Gsp,
    Identity,
    Lifetime,
    Location,
    Lost,
    Memory,
    Mig,
    MigDevice,
    NotSupported,
    NvLink,
    Pcie,
    Place,
    ProcessKind,
    Reading,
    Refused,
    ResetRequired,
    RetiredPages,
    RowRemap,
    Severity,
    SpareRows,
    Sram,
    UnknownError,
    Utilization,
    clock_reasons,
)  # fmt: skip
from xidwatch.core.pci import PciAddress, parse_pci

_MEMORY_TEMP, _PCIE_ROLLOVERS, _RECOVERY_ACTION = 82, 95, 230
_PCIE_CORRECTABLE, _PCIE_NON_FATAL, _PCIE_FATAL = 173, 179, 180
_LINK_FIELDS = (161, 162, 163, 214, 221)
"""NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, _RECOVERY, _CRC; NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS, _SYMBOL_ERRORS."""
_LINK_COUNTERS = (0, 1, 2)
"""NVML_NVLINK_ERROR_DL_REPLAY, _RECOVERY, _CRC_FLIT of nvmlDeviceGetNvLinkErrorCounter, for drivers without the fields."""
_GPM_METRICS = (2, 5, 10)
"""NVML_GPM_METRIC_SM_UTIL, _ANY_TENSOR_UTIL, _DRAM_BW_UTIL."""
_GPM_APART_S = 0.11
"""nvml.h wants more than 100 ms between two samples: the driver renews its own no faster."""
_MOST_LINKS = 36
_LIFETIMES: tuple[Lifetime, ...] = ("volatile", "aggregate")
_SEVERITIES: tuple[Severity, ...] = ("corrected", "uncorrected")
_LOCATIONS: tuple[Location, ...] = (
    "l1_cache", "l2_cache", "dram", "register_file", "texture_memory", "texture_shm", "cbu", "sram",
)  # fmt: skip
_PROBES: tuple[FabricProbe, ...] = ("not_supported", "not_started", "in_progress", "completed")
_NO_INSTANCE = 0xFFFFFFFF
_PROCESS_CALLS: dict[ProcessKind, str] = {
    "compute": "nvmlDeviceGetComputeRunningProcesses", "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
    "mps": "nvmlDeviceGetMPSComputeRunningProcesses",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _GpmSample:
    """A binding's sample and when it was taken."""

    sample: Any
    at_us: int


class Library(Protocol):
    """NVML as the sampler needs it. No method raises: an error is a `Refused`."""

    def call(self, name: str, *arguments: object) -> Any:
        """What the binding's function returns."""

    def filled(self, name: str, device: object, structure: str) -> Any:
        """A structure of the binding (`c_nvml..._t`), filled in by the function."""

    def field_values(self, device: object, fields: tuple[int | tuple[int, int], ...]) -> tuple[Reading[int], ...]:
        """Values of NVML_FI_*, each alone or with its scope."""

    def activity(self, first: object, second: object, metrics: tuple[int, ...]) -> Reading[tuple[float, ...]]:
        """NVML_GPM_METRIC_* between two GPM samples, in percent."""

    def now_us(self) -> int:
        """Wall clock."""

    def wait(self, seconds: float) -> None:
        """Let time pass."""


def sample(library: Library, device: object, index: int, pci: PciAddress) -> GpuAnswer:
    """All readings of one GPU; a refusal when the GPU as a whole is lost, must be reset, or fails at everything."""
    began = _gpm_sample(library, device)
    state = replace(_state(library, device, index, pci), activity=_activity(library, device, began))
    vital = (
        state.temperature_celsius, state.power_watts, state.memory, state.utilization, state.pcie.width, state.clock_reasons,
        state.persistence_mode, state.identity.gpu_uuid, state.ecc_enabled,
    )  # fmt: skip
    refused = [reading for reading in vital if isinstance(reading, Refused)]
    for kind in (Lost, ResetRequired):
        if found := next((reading for reading in refused if isinstance(reading, kind)), None):
            return found
    failed = [reading for reading in refused if isinstance(reading, UnknownError)]
    # The UUID is answered from NVML's own memory, also when the GPU is dead.
    return failed[0] if failed and len(refused) >= len(vital) - 1 else state


def _state(library: Library, device: object, index: int, pci: PciAddress) -> GpuState:
    def ask(name: str, *arguments: object) -> Any:
        return library.call(f"nvmlDevice{name}", device, *arguments)

    action, memory_celsius, rollovers, correctable, non_fatal, fatal = library.field_values(
        device, (_RECOVERY_ACTION, _MEMORY_TEMP, _PCIE_ROLLOVERS, _PCIE_CORRECTABLE, _PCIE_NON_FATAL, _PCIE_FATAL)
    )
    return GpuState(
        identity=_identity(library, device, index, pci),
        at_us=library.now_us(),
        persistence_mode=_as(bool, ask("GetPersistenceMode")),
        recovery_action=action,
        ecc_enabled=_as(lambda modes: bool(modes[0]), ask("GetEccMode")),
        ecc=_ecc(ask),
        sram=_sram(library, device),
        retired_pages=RetiredPages(
            corrected=_as(len, ask("GetRetiredPages", 0)),
            uncorrected=_as(len, ask("GetRetiredPages", 1)),
            pending=_as(bool, ask("GetRetiredPagesPendingStatus")),
        ),
        row_remap=_as(_row_remap, ask("GetRemappedRows")),
        spare_rows=_as(_spare_rows, ask("GetRowRemapperHistogram")),
        clock_reasons=_as(clock_reasons, _or(ask("GetCurrentClocksEventReasons"), ask, "GetCurrentClocksThrottleReasons")),
        pcie=Pcie(
            generation=ask("GetCurrPcieLinkGeneration"),
            width=ask("GetCurrPcieLinkWidth"),
            max_generation=ask("GetMaxPcieLinkGeneration"),
            max_width=ask("GetMaxPcieLinkWidth"),
            replays=ask("GetPcieReplayCounter"),
            replay_rollovers=rollovers,
            correctable=correctable,
            non_fatal=non_fatal,
            fatal=fatal,
        ),
        nvlinks=_nvlinks(library, device),
        processes=_processes(library, device),
        memory=_as(_memory, ask("GetMemoryInfo")),
        utilization=_as(_utilization, ask("GetUtilizationRates")),
        activity=NotSupported(code=3, text="not asked", at_us=library.now_us()),
        temperature_celsius=ask("GetTemperature", 0),
        memory_celsius=memory_celsius,
        power_watts=_as(_watts, ask("GetPowerUsage")),
        power_limit_watts=_as(_watts, ask("GetEnforcedPowerLimit")),
        mig=_mig(library, device),
        gsp=_as(
            lambda modes: Gsp(enabled=bool(modes[0]), firmware_version=_text(ask("GetGspFirmwareVersion"))),
            ask("GetGspFirmwareMode"),
        ),
        fabric=_fabric(library, device),
    )


T = TypeVar("T")


def _as(make: Callable[[Any], T], reading: Any) -> Reading[T]:
    """The reading in our own form; a refusal stays one."""
    return reading if isinstance(reading, Refused) else make(reading)


def _or(reading: Any, ask: Callable[..., Any], older: str, *arguments: object) -> Any:
    """The older function where the newer one is not there."""
    return ask(older, *arguments) if isinstance(reading, NotSupported) else reading


def _text(value: object) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _identity(library: Library, device: object, index: int, pci: PciAddress) -> Identity:
    def ask(name: str) -> Any:
        return _text(library.call(f"nvmlDevice{name}", device))

    return Identity(
        pci=pci,
        index=index,
        gpu_uuid=ask("GetUUID"),
        serial=ask("GetSerial"),
        name=ask("GetName"),
        part_number=ask("GetBoardPartNumber"),
        vbios_version=ask("GetVbiosVersion"),
        module_id=ask("GetModuleId"),
        place=_place(library, device),
    )


def _place(library: Library, device: object) -> Reading[Place]:
    found = library.filled("nvmlDeviceGetPlatformInfo", device, "c_nvmlPlatformInfo_v2_t")
    if isinstance(found, Refused):
        return found
    # The binding calls these bytes text and decodes them; 0x80 is a number here.
    raw, kind = bytes(found), type(found)
    serial, slot, tray, host, module = (
        raw[member.offset : member.offset + member.size]
        for member in (kind.chassisSerialNumber, kind.slotNumber, kind.trayIndex, kind.hostId, kind.moduleId)
    )
    return Place(
        chassis_serial=serial.split(b"\0")[0].decode("ascii", "replace").strip() or None,
        slot=slot[0],
        tray=tray[0],
        host=host[0],
        module_id=module[0],
    )


def _ecc(ask: Callable[..., Any]) -> tuple[EccCount, ...]:
    found = []
    for lifetime_number, lifetime in enumerate(_LIFETIMES):
        for severity_number, severity in enumerate(_SEVERITIES):
            which = (severity_number, lifetime_number)
            readings: list[tuple[Location, Any]] = [("total", ask("GetTotalEccErrors", *which))]
            # A GPU without ECC is not asked for each of its places.
            if not isinstance(readings[0][1], Refused):
                readings += [(place, ask("GetMemoryErrorCounter", *which, number)) for number, place in enumerate(_LOCATIONS)]
            found += [
                EccCount(lifetime=lifetime, severity=severity, location=location, count=int(count))
                for location, count in readings
                if not isinstance(count, Refused)
            ]
    return tuple(found)


def _sram(library: Library, device: object) -> Reading[Sram]:
    found = library.filled("nvmlDeviceGetSramEccErrorStatus", device, "c_nvmlEccSramErrorStatus_v1_t")
    if isinstance(found, Refused):
        return found
    return Sram(
        threshold_exceeded=bool(found.bThresholdExceeded),
        uncorrected_parity=found.aggregateUncParity,
        uncorrected_secded=found.aggregateUncSecDed,
        corrected=found.aggregateCor,
    )


def _row_remap(rows: tuple[int, int, int, int]) -> RowRemap:
    return RowRemap(correctable=rows[0], uncorrectable=rows[1], pending=bool(rows[2]), failed=bool(rows[3]))


def _spare_rows(found: Any) -> SpareRows:
    return SpareRows(max=found.max, high=found.high, partial=found.partial, low=found.low, none=found.none)


def _memory(found: Any) -> Memory:
    return Memory(total_bytes=found.total, used_bytes=found.used, free_bytes=found.free)


def _utilization(rates: Any) -> Utilization:
    return Utilization(gpu_ratio=rates.gpu / 100, memory_ratio=rates.memory / 100)


def _gpm_sample(library: Library, device: object) -> Reading[_GpmSample]:
    """What GPM has counted up to now. A GPU with MIG on has only samples of its instances, and says so."""
    support = library.call("nvmlGpmQueryDeviceSupport", device)
    if isinstance(support, Refused):
        return support
    if not support.isSupportedDevice:
        return NotSupported(code=3, text="nvmlGpmQueryDeviceSupport: not before Hopper", at_us=library.now_us())
    sample = library.call("nvmlGpmSampleAlloc")
    if isinstance(sample, Refused):
        return sample
    got = library.call("nvmlGpmSampleGet", device, sample)
    if isinstance(got, Refused):
        library.call("nvmlGpmSampleFree", sample)
        return got
    return _GpmSample(sample, library.now_us())


def _activity(library: Library, device: object, began: Reading[_GpmSample]) -> Reading[Activity]:
    """The figures between the sample taken at the beginning and one taken now."""
    if isinstance(began, Refused):
        return began
    library.wait(_GPM_APART_S - (library.now_us() - began.at_us) / 1e6)
    ended = _gpm_sample(library, device)
    if isinstance(ended, Refused):
        library.call("nvmlGpmSampleFree", began.sample)
        return ended
    found = library.activity(began.sample, ended.sample, _GPM_METRICS)
    for sample in (began.sample, ended.sample):
        library.call("nvmlGpmSampleFree", sample)
    if isinstance(found, Refused):
        return found
    sm, tensor, dram = (value / 100 for value in found)
    return Activity(sm_ratio=sm, tensor_ratio=tensor, dram_ratio=dram, over_s=(ended.at_us - began.at_us) / 1e6)


def _nvlinks(library: Library, device: object) -> tuple[NvLink, ...]:
    links: list[NvLink] = []
    for link in range(_MOST_LINKS):
        active = library.call("nvmlDeviceGetNvLinkState", device, link)
        if isinstance(active, Refused):
            break
        readings = list(library.field_values(device, tuple((number, link) for number in _LINK_FIELDS)))
        for place, counter in enumerate(_LINK_COUNTERS):
            if isinstance(readings[place], NotSupported):
                readings[place] = library.call("nvmlDeviceGetNvLinkErrorCounter", device, link, counter)
        links.append(
            NvLink(
                link=link,
                active=bool(active),
                remote=_slot(library.call("nvmlDeviceGetNvLinkRemotePciInfo", device, link), library),
                replays=readings[0],
                recoveries=readings[1],
                crc_errors=readings[2],
                recovery_failures=readings[3],
                symbol_errors=readings[4],
            )
        )
    return tuple(links)


def _slot(info: Any, library: Library) -> Reading[PciAddress]:
    if isinstance(info, Refused):
        return info
    found = slot_of(info)
    return found or NotSupported(code=3, text="the remote end has no PCI address", at_us=library.now_us())


def slot_of(info: Any) -> PciAddress | None:
    """The slot in an nvmlPciInfo_t."""
    return parse_pci(info.busId.decode("ascii", "replace") if isinstance(info.busId, bytes) else str(info.busId))


def _processes(library: Library, device: object) -> Reading[tuple[GpuProcess, ...]]:
    found: list[GpuProcess] = []
    refused: list[Refused] = []
    for kind, name in _PROCESS_CALLS.items():
        listed = library.call(f"{name}_v3", device)
        if isinstance(listed, NotSupported):
            listed = library.call(f"{name}_v2", device)
        if isinstance(listed, Refused):
            refused.append(listed)
        else:
            found += [_process(kind, one) for one in listed]
    return refused[0] if len(refused) == len(_PROCESS_CALLS) else tuple(found)


def _process(kind: ProcessKind, one: Any) -> GpuProcess:
    instances = [getattr(one, name, _NO_INSTANCE) for name in ("gpuInstanceId", "computeInstanceId")]
    gpu_instance, compute_instance = [None if number == _NO_INSTANCE else number for number in instances]
    return GpuProcess(
        pid=one.pid, kind=kind, used_bytes=one.usedGpuMemory, gpu_instance=gpu_instance, compute_instance=compute_instance
    )


def _mig(library: Library, device: object) -> Reading[Mig]:
    modes = library.call("nvmlDeviceGetMigMode", device)
    if isinstance(modes, Refused):
        return modes
    most = library.call("nvmlDeviceGetMaxMigDeviceCount", device) if modes[0] else 0
    devices = []
    for number in range(0 if isinstance(most, Refused) else most):
        one = library.call("nvmlDeviceGetMigDeviceHandleByIndex", device, number)
        # Places that hold no device answer «not found»; they need not be at the end.
        if not isinstance(one, Refused):
            devices.append(
                MigDevice(
                    mig_uuid=_text(library.call("nvmlDeviceGetUUID", one)),
                    gpu_instance=library.call("nvmlDeviceGetGpuInstanceId", one),
                    compute_instance=library.call("nvmlDeviceGetComputeInstanceId", one),
                )
            )
    return Mig(enabled=bool(modes[0]), pending=bool(modes[1]), devices=tuple(devices))


def _fabric(library: Library, device: object) -> Reading[Fabric]:
    found = library.filled("nvmlDeviceGetGpuFabricInfoV", device, "c_nvmlGpuFabricInfoV_t")
    if isinstance(found, NotSupported):
        found = library.filled("nvmlDeviceGetGpuFabricInfo", device, "c_nvmlGpuFabricInfo_t")
    if isinstance(found, Refused):
        return found
    mask = getattr(found, "healthMask", 0)
    number = cast("int", found.state)
    return Fabric(
        probe=_PROBES[number] if number < len(_PROBES) else "unknown",
        status=found.status,
        degraded_bandwidth=_tristate(mask),
        route_recovery=_tristate(mask >> 2),
        route_unhealthy=_tristate(mask >> 4),
    )


def _tristate(bits: int) -> bool | None:
    """NVML_GPU_FABRIC_HEALTH_MASK_*: 1 true, 2 false, 0 not supported."""
    return {1: True, 2: False}.get(bits & 3)
