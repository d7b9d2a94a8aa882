"""One node as `xidwatch check` finds it: what its files, its daemon, its GPUs and its jobs say. Values only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from xidwatch.core.rule import Severity

HOST_PID_NAMESPACE = "pid:[4026531836]"
"""The first pid namespace of every machine (linux, include/linux/proc_ns.h, PROC_PID_INIT_INO)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Files of /proc, /sys, /etc and /var as they were found.

    Attributes:
        texts: Path to content; a link's content is its target.
        unread: Path to why it could not be read; what is simply not there is in neither.
        complete: Everything was looked at; else what is missing may also be there.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    complete: bool = True

    def text(self, path: str) -> str | None:
        """The content without the blanks around it; None when it is not there or could not be read."""
        found = self.texts.get(path)
        return None if found is None else found.strip()

    def number(self, path: str) -> int | None:
        """The content as a decimal number."""
        text = self.text(path)
        try:
            return None if text is None else int(text)
        except ValueError:
            return None

    def below(self, folder: str, end: str = "") -> Iterator[tuple[str, str]]:
        """Path and content of every file under a folder whose name ends so, in the order of the paths."""
        for path in sorted(self.texts):
            if path.startswith(folder) and path.endswith(end):
                yield path, self.texts[path]


@dataclass(frozen=True, slots=True, kw_only=True)
class BusGpu:
    """A GPU on the PCI bus. `driver` is the kernel driver bound to it; `asleep`: powered down, asking would wake it."""

    pci: str
    driver: str | None
    asleep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """What the GPU itself says, through NVML; None where it does not say.

    Attributes:
        on_bus, driver: What the daemon saw on the PCI bus.
        answer: "state" when it told its state, else what stood instead: "lost", "reset_required", "unresponsive", ...
        since_us: Wall clock since when it has not answered.
        missing: Expected in this slot and not there.
        config_space_dead: It reads all ones: the GPU no longer answers on the bus.
        place: Chassis, slot and tray of the card, for whoever pulls it.
        banks_without_rows, banks_with_one_row: Memory banks that have no spare row left, or one.
        recovery_action: The driver's own demand, "none" when it has none.
        mig_pending: The MIG mode after the next reset.
        slowed_by: Those of `HARDWARE_SLOWDOWN` that hold at present; empty when none does.
        nvlinks: How many NVLinks answered; `nvlinks_down` are the numbers of those that are not active.
        pcie_width, pcie_max_width: Lanes in use, and lanes of card and slot.
        fabric: How far its registration with the NVLink fabric got; `fabric_status` means something only when completed.
    """

    pci: str
    on_bus: bool | None = None
    driver: str | None = None
    answer: str | None = None
    config_space_dead: bool | None = None
    since_us: int | None = None
    missing: bool = False
    gpu_uuid: str | None = None
    serial: str | None = None
    place: str | None = None
    recovery_action: str | None = None
    row_remap_pending: bool | None = None
    row_remap_failed: bool | None = None
    banks_without_rows: int | None = None
    banks_with_one_row: int | None = None
    pages_pending: bool | None = None
    sram_threshold_exceeded: bool | None = None
    ecc_enabled: bool | None = None
    mig_enabled: bool | None = None
    mig_pending: bool | None = None
    persistence_mode: bool | None = None
    fabric: str | None = None
    fabric_status: int | None = None
    slowed_by: tuple[str, ...] | None = None
    temperature_celsius: int | None = None
    nvlinks: int | None = None
    nvlinks_down: tuple[int, ...] | None = None
    pcie_width: int | None = None
    pcie_max_width: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """An incident of the daemon's that is not over. `command` is the first of its recovery."""

    id: str
    title: str
    sentence: str
    severity: Severity
    gpus: tuple[str, ...]
    rung: str
    command: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSource:
    """Where the daemon takes the kernel's lines from."""

    name: str
    up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """What the daemon last wrote into state.json.

    Attributes:
        age_s: Seconds since then.
        maintenance: Until when (wall clock, microseconds; 0 without an end) and why; None when there is none.
        rules_mistakes: Why the last reload of the rules failed.
        history_error: Why history is not being written.
        nvml_asks: It asks NVML at all.
        nvml_up: NVML answered last time; None before the first time.
        nvml_released: An operator took xidwatch off the GPUs.
        expected_gpus: As many should be there; None when it does not know.
        gpus: None when it says nothing about them.
    """

    age_s: float
    incidents: tuple[Trouble, ...] = ()
    maintenance: tuple[int, str] | None = None
    sources: tuple[DaemonSource, ...] = ()
    injection_accepted: bool = False
    rules_mistakes: tuple[str, ...] = ()
    history_error: str | None = None
    nvml_asks: bool = False
    nvml_up: bool | None = None
    nvml_released: bool = False
    expected_gpus: int | None = None
    gpus: tuple[Gpu, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A process that holds a GPU, with those of its variables that concern NCCL, CUDA and the allocator."""

    pid: int
    variables: Mapping[str, str]


NvmlWay = Literal["daemon", "asked", "silent", "blocked", "off", "asleep", "released", "needless"]
"""How the GPUs' own word came: from the daemon, by asking now, not in time, not since an earlier question, or why not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Everything that is judged.

    Attributes:
        daemon: None unless it watches; `daemon_why` then says what is the matter.
        last_words: The critical incidents of a daemon that no longer watches.
        nvml: How `gpus` came about; `nvml_why` says more where that is not "daemon" or "asked".
        processes: Of the programs that are looked for by name, the pids; None where not all processes can be seen.
        clock_synchronized: None where the kernel does not say.
        expected_gpus: As many should be there, by the configuration or the daemon; None when nobody says.
        hook_configured: A program is to be told of incidents.
    """

    now_us: int
    host: str
    tree: Tree
    bus: tuple[BusGpu, ...] = ()
    daemon: Daemon | None = None
    daemon_why: str | None = None
    last_words: tuple[Trouble, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    nvml: NvmlWay = "needless"
    nvml_why: str | None = None
    processes: Mapping[str, tuple[int, ...]] | None = None
    jobs: tuple[Job, ...] = ()
    clock_synchronized: bool | None = None
    expected_gpus: int | None = None
    hook_configured: bool = False

    @property
    def has_gpus(self) -> bool:
        """A GPU of NVIDIA's is on the bus, or should be."""
        return bool(self.bus or self.gpus)

    def ours(self) -> Iterator[BusGpu]:
        """GPUs that NVIDIA's driver has or should have: not those given to a guest or another driver."""
        return (gpu for gpu in self.bus if gpu.driver in (None, "nvidia"))
