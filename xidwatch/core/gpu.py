"""What a GPU says about itself through NVML, and the ways in which it can fail to.

«Do not know» is a value: a reading that NVML refuses is a `Refused` with the code and the time, a GPU that does not answer
is `Unresponsive`. Nothing here is 0, "" or False because it could not be read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

from xidwatch.core.pci import PciAddress

CLOCK_REASONS = (
    "idle", "applications_clocks", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal", "hw_thermal", "hw_power_brake",
    "display_clocks", "board_limit", "reliability",
)  # fmt: skip
"""By bit number: nvmlClocksEventReason* and nvmlClocksThrottleReason* (nvml.h)."""

HARDWARE_SLOWDOWN = ("hw_thermal", "hw_power_brake", "hw_slowdown")
"""Those by which the card itself halves its clocks or worse, the more telling first; `hw_slowdown` goes with either."""


def hardware_slowdown(reasons: Collection[str] | None) -> tuple[str, ...] | None:
    """Those of `HARDWARE_SLOWDOWN` among the clock reasons; None where these are not known."""
    return None if reasons is None else tuple(reason for reason in HARDWARE_SLOWDOWN if reason in reasons)


Severity = Literal["corrected", "uncorrected"]
Lifetime = Literal["volatile", "aggregate"]
Location = Literal[
    "total", "l1_cache", "l2_cache", "dram", "register_file", "texture_memory", "texture_shm", "cbu", "sram"
]  # fmt: skip
ProcessKind = Literal["compute", "graphics", "mps"]
FabricProbe = Literal["not_supported", "not_started", "in_progress", "completed", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """NVML gave an error instead of the value. Which one is said by the class.

    Attributes:
        code: nvmlReturn_t.
        text: What was asked and NVML's own words, for a person.
        at_us: Wall clock of the answer.
        last_good: What this GPU said last; None where nothing is known of it, or for one reading.
    """

    code: int
    text: str
    at_us: int
    last_good: GpuState | None = None


class NotSupported(Refused):
    """This GPU, this driver, or this NVML has no such thing: no fault (3, and 2, 13, 25 of older drivers)."""

    __slots__ = ()


class NoPermission(Refused):
    """The caller may not know (4)."""

    __slots__ = ()


class DriverNotLoaded(Refused):
    """The kernel module is not there (9)."""

    __slots__ = ()


class LibraryMissing(Refused):
    """libnvidia-ml.so.1 or the Python package nvidia-ml-py is not there (12)."""

    __slots__ = ()


class VersionMismatch(Refused):
    """The library is not of the loaded module's version (18); goes with `NVRM: API mismatch`."""

    __slots__ = ()


class Lost(Refused):
    """The GPU has fallen off the bus or is otherwise out of reach (15); goes with Xid 79."""

    __slots__ = ()


class ResetRequired(Refused):
    """The GPU must be reset before it can be used again (16)."""

    __slots__ = ()


class UnknownError(Refused):
    """NVML's «Unknown Error» (999): the driver failed inside, often the only sign of a dead GSP."""

    __slots__ = ()


class OtherError(Refused):
    """Any other code; `ERROR_NAMES` has its name."""

    __slots__ = ()


ERROR_NAMES = {
    1: "uninitialized", 2: "invalid_argument", 3: "not_supported", 4: "no_permission", 6: "not_found", 7: "insufficient_size",
    8: "insufficient_power", 9: "driver_not_loaded", 10: "timeout", 11: "irq_issue", 12: "library_not_found",
    13: "function_not_found", 14: "corrupted_inforom", 15: "gpu_is_lost", 16: "reset_required", 17: "operating_system",
    18: "lib_rm_version_mismatch", 19: "in_use", 20: "memory", 21: "no_data", 23: "insufficient_resources",
    25: "argument_version_mismatch", 26: "deprecated", 27: "not_ready", 28: "gpu_not_found", 29: "invalid_state",
    999: "unknown",
}  # fmt: skip
"""nvmlReturn_t without its prefix (nvml.h)."""

_REFUSALS: dict[int, type[Refused]] = {
    2: NotSupported, 3: NotSupported, 4: NoPermission, 9: DriverNotLoaded, 12: LibraryMissing, 13: NotSupported,
    15: Lost, 16: ResetRequired, 18: VersionMismatch, 25: NotSupported, 999: UnknownError,
}  # fmt: skip


def refusal(code: int, text: str, at_us: int) -> Refused:
    """The answer that this nvmlReturn_t stands for.

    An older driver answers an unknown field or a newer structure with 2 or 25, and lacks newer functions (13): not supported.
    """
    return _REFUSALS.get(code, OtherError)(code=code, text=text, at_us=at_us)


T = TypeVar("T")
Reading: TypeAlias = T | Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the card sits, so that the right one is pulled. Same as: nvidia-smi -q, "Platform Info" (Blackwell and later).

    Attributes:
        chassis_serial: None where the platform gives none.
        slot, tray, host: Slot in the chassis (switches counted), tray (without switches), node within the slot.
        module_id: Number of the GPU within the node.
    """

    chassis_serial: str | None
    slot: int
    tray: int
    host: int
    module_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which card it is. A GPU is its UUID and serial; the slot is another thing, and the index moves.

    Attributes:
        index: NVML's, as of this sample.
        module_id: Number on the baseboard; counts from 1 on HGX.
        place: Chassis, slot and tray.
    """

    pci: PciAddress
    index: int
    gpu_uuid: Reading[str]
    serial: Reading[str]
    name: Reading[str]
    part_number: Reading[str]
    vbios_version: Reading[str]
    module_id: Reading[int]
    place: Reading[Place]


@dataclass(frozen=True, slots=True, kw_only=True)
class EccCount:
    """One counter. Volatile ones begin anew when the driver loads; aggregate ones live in the InfoROM."""

    lifetime: Lifetime
    severity: Severity
    location: Location
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sram:
    """Same as: nvidia-smi -q -d ECC, "SRAM Threshold Exceeded".

    Attributes:
        threshold_exceeded: More unique uncorrected addresses than the field diagnostic allows: the way to RMA.
        uncorrected_parity, uncorrected_secded, corrected: Aggregate.
    """

    threshold_exceeded: bool
    uncorrected_parity: int
    uncorrected_secded: int
    corrected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetiredPages:
    """Page retirement, GPUs before Ampere. Same as: nvidia-smi -q -d PAGE_RETIREMENT.

    Attributes:
        corrected, uncorrected: Pages retired for several single-bit errors, and for one double-bit error.
        pending: Some take effect at the next reset or driver load.
    """

    corrected: Reading[int]
    uncorrected: Reading[int]
    pending: Reading[bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRemap:
    """Row remapping, Ampere and later. Same as: nvidia-smi -q -d ROW_REMAPPER.

    Attributes:
        correctable, uncorrectable: Rows remapped for each cause.
        pending: A row is remapped at the next reset.
        failed: A bank had no spare row left, or a remapped row failed again: field diagnostic, then RMA.
    """

    correctable: int
    uncorrectable: int
    pending: bool
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SpareRows:
    """How many banks have how many spare rows left: all, most, some, one (`low`), none."""

    max: int
    high: int
    partial: int
    low: int
    none: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pcie:
    """Same as: nvidia-smi -q -d PCIE. An idle GPU lowers its generation; the width it keeps.

    Attributes:
        replays, replay_rollovers: Since the driver was loaded.
        correctable, non_fatal, fatal: The GPU's own error counters.
    """

    generation: Reading[int]
    width: Reading[int]
    max_generation: Reading[int]
    max_width: Reading[int]
    replays: Reading[int]
    replay_rollovers: Reading[int]
    correctable: Reading[int]
    non_fatal: Reading[int]
    fatal: Reading[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLink:
    """One link. Same as: nvidia-smi nvlink -s, -e.

    Attributes:
        replays, recoveries, crc_errors: Before NVLink 5.
        recovery_failures, symbol_errors: NVLink 5.
    """

    link: int
    active: bool
    remote: Reading[PciAddress]
    replays: Reading[int]
    recoveries: Reading[int]
    crc_errors: Reading[int]
    recovery_failures: Reading[int]
    symbol_errors: Reading[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds the GPU; pid of NVML's own pid namespace.

    Attributes:
        used_bytes: None where NVML does not tell.
        gpu_instance, compute_instance: None without MIG.
    """

    pid: int
    kind: ProcessKind
    used_bytes: int | None
    gpu_instance: int | None
    compute_instance: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Of the whole GPU. Same as: nvidia-smi -q -d MEMORY, "FB Memory Usage"."""

    total_bytes: int
    used_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilization:
    """Share of the last sample period (1/6 to 1 s) in which a kernel ran, or memory was read or written; 0 to 1."""

    gpu_ratio: float
    memory_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What SMs and memory did between two GPM samples, Hopper and later; 0 to 1. Same as: dcgmi dmon -e 1002,1004,1005.

    Attributes:
        sm_ratio: Share of the SMs that were busy.
        tensor_ratio: Share of time in which tensor cores worked.
        dram_ratio: Share of the memory's peak bandwidth that was used.
        over_s: Time between the two samples.
    """

    sm_ratio: float
    tensor_ratio: float
    dram_ratio: float
    over_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDevice:
    """One MIG device; the log names it by `GPU-I` and `GPU-CI`."""

    mig_uuid: Reading[str]
    gpu_instance: Reading[int]
    compute_instance: Reading[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """Same as: nvidia-smi -q, "MIG Mode". `pending` holds after the next reset."""

    enabled: bool
    pending: bool
    devices: tuple[MigDevice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gsp:
    """Whether the GPU's own processor runs the driver's resource manager."""

    enabled: bool
    firmware_version: Reading[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """Registration with the NVLink fabric. Same as: nvidia-smi -q, "Fabric".

    Attributes:
        probe: How far it got.
        status: nvmlReturn_t of the registration; means something only when completed.
        degraded_bandwidth, route_recovery, route_unhealthy: None where NVML does not tell.
    """

    probe: FabricProbe
    status: int
    degraded_bandwidth: bool | None
    route_recovery: bool | None
    route_unhealthy: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """What one GPU told in one sample.

    Attributes:
        at_us: Wall clock of the sample.
        recovery_action: The driver's own opinion, by number; `RECOVERY_ACTIONS` has the words.
        clock_reasons: Why its clocks are not at their maximum, out of `CLOCK_REASONS` (`bit_N` for a newer one).
        ecc: Only the counters that this GPU has; empty when it has none.
        temperature_celsius, memory_celsius: Of the GPU, of its memory.
    """

    identity: Identity
    at_us: int
    persistence_mode: Reading[bool]
    recovery_action: Reading[int]
    ecc_enabled: Reading[bool]
    ecc: tuple[EccCount, ...]
    sram: Reading[Sram]
    retired_pages: RetiredPages
    row_remap: Reading[RowRemap]
    spare_rows: Reading[SpareRows]
    clock_reasons: Reading[tuple[str, ...]]
    pcie: Pcie
    nvlinks: tuple[NvLink, ...]
    processes: Reading[tuple[GpuProcess, ...]]
    memory: Reading[Memory]
    utilization: Reading[Utilization]
    activity: Reading[Activity]
    temperature_celsius: Reading[int]
    memory_celsius: Reading[int]
    power_watts: Reading[float]
    power_limit_watts: Reading[float]
    mig: Reading[Mig]
    gsp: Reading[Gsp]
    fabric: Reading[Fabric]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unresponsive:
    """No answer came.

    Attributes:
        since_us: Wall clock of the question that is still open, or of the one whose child ended without an answer.
        last_good: What this GPU said last.
        why: For a person: which deadline passed, which call is open, whether the child still lives.
    """

    since_us: int
    last_good: GpuState | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFound:
    """NVML works and does not know this GPU, which was expected in the slot. Attributes as in `Refused`."""

    at_us: int
    last_good: GpuState | None = None


GpuAnswer: TypeAlias = GpuState | Unresponsive | NotFound | Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """What the node has. Same as: nvidia-smi --version."""

    driver_version: Reading[str]
    nvml_version: Reading[str]
    cuda_version: Reading[str]
    gpu_count: int


DriverAnswer: TypeAlias = Driver | Unresponsive | Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer:
    """All that is known of the node's GPUs at present.

    Attributes:
        driver: None before the first question is answered.
        gpus: By slot, every one that was ever seen or expected.
        unplaced: Refusals of GPUs that NVML counts, but whose slot nobody could tell.
        asked_us: When the latest complete sample was begun; None before it.
    """

    driver: DriverAnswer | None = None
    gpus: Mapping[PciAddress, GpuAnswer] = field(default_factory=dict)
    unplaced: tuple[Refused, ...] = ()
    asked_us: int | None = None


def clock_reasons(mask: int) -> tuple[str, ...]:
    """The words for a mask of nvmlDeviceGetCurrentClocksEventReasons, lowest bit first."""
    bits = [bit for bit in range(64) if mask >> bit & 1]
    return tuple(CLOCK_REASONS[bit] if bit < len(CLOCK_REASONS) else f"bit_{bit}" for bit in bits)


def last_good(answer: GpuAnswer | None) -> GpuState | None:
    """The newest state behind an answer."""
    return answer if isinstance(answer, GpuState) or answer is None else answer.last_good


def replaced(before: GpuAnswer | None, now: GpuAnswer | None) -> bool:
    """Whether another card is in the slot: both UUIDs are known and differ."""
    old, new = last_good(before), last_good(now)
    if old is None or new is None:
        return False
    uuids = old.identity.gpu_uuid, new.identity.gpu_uuid
    return isinstance(uuids[0], str) and isinstance(uuids[1], str) and uuids[0] != uuids[1]
