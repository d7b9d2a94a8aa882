"""Typed facts: what one or several log lines say, before anybody judges it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from xidwatch.core.job import Job
from xidwatch.core.pci import PciAddress
from xidwatch.core.record import Record

Kind = Literal[
    "xid", "sxid", "nvrm", "hung_task", "soft_lockup", "hard_lockup", "rcu_stall", "oom_kill", "aer", "mce",
    "torch_oom", "vllm_preemption", "nccl_timeout", "cuda_error",
]  # fmt: skip
PROGRAM_KINDS: tuple[Kind, ...] = ("torch_oom", "vllm_preemption", "nccl_timeout", "cuda_error")
"""What programs say of themselves."""
GPU_KINDS: tuple[Kind, ...] = ("xid", "sxid", "nvrm")
"""What the driver says of GPUs and their switches."""
Attribution = Literal["gpu", "storage", "network", "other", "unknown"]


class MalformedLine(ValueError):
    """A line that is certainly ours but in a wording that no parser knows; it is counted and kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XidDetail:
    """What the text of an Xid says beyond its number. None means: the line does not say.

    Attributes:
        message: Text behind the number, pid and name.
        caused_by: Number in `caused by previous Xid N`.
        recovery_action: New value of an Xid 154, by number (0 none ... 7 system reboot).
        recovery_action_from: Old value of an Xid 154.
        reset_flags: ("RST",), ("D-RST",), both, or () when the line says No to both; of Xid 94 and 95.
        registers: NVLink registers (74, 136: seven; 144 to 150: intrInfo, errorStatus, debug words), or 62's words.
        severity_word: `Fatal` or `Nonfatal` as printed (144 to 150).
        subcode: `RLW_REMAP`, `NETIR_LINK_DOWN` ... as printed (144 to 150).
        link: NVLink number; -1 as printed.
        cross_contained: 1 for XC1: the cause may sit at the remote end.
        link_down_reason: Bits 25:20 of intrInfo for link-down events.
        gpc, tpc, sm: Where an Xid 13 (or 156, 157) points, first place named.
        places: Every (gpc, tpc, sm) that the lines of an Xid 13 name.
        engine, fault_type, access, address: Of an MMU fault (31, 108, 137 ...): `GRAPHICS`, `FAULT_PDE`, `VIRT_READ`, 0x7f12...
        unit: Memory or unit that an ECC text names: "dram", "sram", or None.
        channel: Channel number.
        function: RPC that a 119 waited for, `GSP_RM_CONTROL`.
        physical_address: Of 48, 63, 64, 171.
    """

    message: str = ""
    caused_by: int | None = None
    recovery_action: int | None = None
    recovery_action_from: int | None = None
    reset_flags: tuple[str, ...] | None = None
    registers: tuple[int, ...] | None = None
    severity_word: str | None = None
    subcode: str | None = None
    link: int | None = None
    cross_contained: int | None = None
    link_down_reason: int | None = None
    gpc: int | None = None
    tpc: int | None = None
    sm: int | None = None
    places: tuple[tuple[int, int, int], ...] = ()
    engine: str | None = None
    fault_type: str | None = None
    access: str | None = None
    address: int | None = None
    unit: str | None = None
    channel: int | None = None
    function: str | None = None
    physical_address: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SxidDetail:
    """An NVSwitch error. `switch` is the number in `nvidia-nvswitch3`; `severity_word` as printed or from `Severity N`."""

    message: str = ""
    switch: int | None = None
    severity_word: str | None = None
    link: int | None = None
    instance: int | None = None
    registers: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvrmDetail:
    """A driver line that is no Xid.

    Attributes:
        init_step: First number of `RmInitAdapter failed! (0x62:...)`.
        status: NV_STATUS, second number there or the code in an assertion (0x0f GPU lost, 0x62 reset required).
        init_step_name: The step in plain words, from the driver's enum.
        client_version, module_version: Of an API mismatch.
        gpu_index: `GPU4` of the driver's own numbering, which is not nvidia-smi's.
        serial: Board serial number where a fallen-off-bus block gives it.
        function: Driver function that printed the line.
    """

    message: str = ""
    init_step: int | None = None
    init_step_name: str | None = None
    status: int | None = None
    client_version: str | None = None
    module_version: str | None = None
    gpu_index: int | None = None
    serial: str | None = None
    function: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HungTaskDetail:
    """A task that the kernel found blocked.

    Attributes:
        blocked_s: Seconds as the kernel prints them; None when only the state line is left.
        io_wait: True for the wording `blocked in I/O wait`.
        stack: Kernel functions, innermost first, reliable frames only, as `function` or `function [module]`;
            empty if the log was cut.
        doubtful: Frames that the unwinder could not vouch for (`? `), in the same form.
        owner_stack: Frames of the lock's owner, whose dump follows from Linux 6.16 on; None when it was not printed.
        in_block: Frames that follow still belong to it; False once the block's end was seen.
        attribution: What it waits for, by evidence.
        gpu_related: By a frame of a GPU driver or a lock holder that is one; None without usable evidence.
        killable: True when the innermost wait ends in `_killable`: SIGKILL works there. None without a stack.
        blocked_by: Lock owner as `name:pid`.
        lock: "mutex", "semaphore", "rw-semaphore" or None.
        workqueue: Text of the `Workqueue:` line.
        kernel_thread: True when the parent is pid 2, None when unknown.
        kernel: Kernel release in the `Tainted` line.
        why: Evidence for the attribution, in words.
        seen_by: "scan" where xidwatch found it in /proc; None for the kernel's own report.
        wchan: Kernel function that it waits in, where there is no stack.
    """

    blocked_s: int | None = None
    io_wait: bool = False
    stack: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    owner_stack: tuple[str, ...] | None = None
    in_block: bool = True
    attribution: Attribution = "unknown"
    gpu_related: bool | None = None
    killable: bool | None = None
    blocked_by: str | None = None
    lock: str | None = None
    workqueue: str | None = None
    kernel_thread: bool | None = None
    kernel: str | None = None
    why: str | None = None
    seen_by: Literal["scan"] | None = None
    wchan: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockupDetail:
    """A soft or hard lockup or an RCU stall.

    Attributes:
        cpus: Every CPU named; `cpu` is the first.
        stuck_s: Seconds as the kernel prints them.
        gpu_related, stack, in_block: As in a hung task.
    """

    cpu: int | None = None
    cpus: tuple[int, ...] = ()
    stuck_s: int | None = None
    gpu_related: bool | None = None
    stack: tuple[str, ...] = ()
    in_block: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OomDetail:
    """A kernel OOM kill. Sizes in bytes; `panic` when the kernel panicked instead of killing."""

    memcg: bool = False
    constraint: str | None = None
    cgroup: str | None = None
    anon_rss_bytes: int | None = None
    panic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AerDetail:
    """A PCIe error report.

    Attributes:
        severity_word: As printed.
        error_type: Layer, `Transaction Layer`.
        agent: `Receiver ID`, `Requester ID` ...
        driver: Driver name in front of the address (`nvidia`, `pcieport`).
        received_from: Device that the root port heard it from.
        confirmed: The `PCIe Bus Error` line itself was seen.
        corrected: By the severity word.
        errors: Names of the error bits, `BadTLP`, `CmpltTO`.
        recovered: What the kernel says of its recovery; None when it does not.
    """

    severity_word: str | None = None
    error_type: str | None = None
    agent: str | None = None
    driver: str | None = None
    received_from: PciAddress | None = None
    confirmed: bool = False
    corrected: bool | None = None
    errors: tuple[str, ...] = ()
    recovered: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MceDetail:
    """A machine check or a memory controller's report. `corrected` is None when the text does not tell."""

    cpu: int | None = None
    bank: int | None = None
    status: int | None = None
    corrected: bool | None = None
    location: str | None = None
    severity_word: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserspaceDetail:
    """What a program says of itself. Sizes in bytes, times in milliseconds.

    Attributes:
        message: The error's own words.
        tried, total, free, allocated, reserved_unallocated, in_use: Of an out-of-memory error; `in_use` is this process's.
        reserved: Of its older wordings; since PyTorch 1.4 these count the allocated part in.
        allowed: The program's own limit, where it has one.
        others: (pid, bytes) of further processes on the card, as printed.
        other_pid: The one of them that holds most.
        shortage: Why memory ran out, as `shortage` works it out; None for other kinds.
        op, seq, rank, timeout_ms, ran_ms, group, elements: Of an NCCL watchdog time-out.
        mode: vLLM's preemption mode, RECOMPUTE or SWAP.
        cumulative: vLLM's own running total of preemptions.
        device: GPU index as the program counts it.
    """

    message: str = ""
    tried: float | None = None
    total: float | None = None
    free: float | None = None
    allocated: float | None = None
    reserved_unallocated: float | None = None
    reserved: float | None = None
    in_use: float | None = None
    allowed: float | None = None
    others: tuple[tuple[int, float], ...] = ()
    other_pid: int | None = None
    shortage: str | None = None
    device: int | None = None
    op: str | None = None
    seq: int | None = None
    rank: int | None = None
    timeout_ms: int | None = None
    ran_ms: int | None = None
    group: str | None = None
    elements: int | None = None
    mode: str | None = None
    cumulative: int | None = None


Detail = (
    XidDetail | SxidDetail | NvrmDetail | HungTaskDetail | LockupDetail | OomDetail | AerDetail | MceDetail | UserspaceDetail
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fact, however many lines it took.

    Attributes:
        uid: (stream, seq of its first record, ordinal among the events of that record); stays when the event is extended.
        kind, code, what: As in the JSON contract; `code` is the Xid or SXid number.
        pci: The GPU (or switch, or PCIe device); None when the line does not name one.
        gpu_instance, compute_instance: MIG instances.
        gpu_uuid: `GPU-...` when the line itself names it.
        pid, process: None when missing or `<unknown>`.
        pid_role: "owner" of the channel, or "victim" that merely asked (119).
        job: Whose work the pid is, or, where the line names none, the one job that had the GPU, as the daemon knew it at that
            moment; None in a log, whose lines have no more than the pid.
        record: Its first record.
        last_record: Its latest record.
        lines: Printed lines that carry the event's own prefix.
        count_is_minimum: The log says that lines were suppressed.
        provisional: Its first line does not yet prove it (a kernel crash that may be another driver's): not given out until a
            later line does, and forgotten if none comes.
        detail: What its family adds.
    """

    uid: tuple[int, int, int]
    kind: Kind
    record: Record
    last_record: Record
    code: int | None = None
    what: str | None = None
    pci: PciAddress | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    gpu_uuid: str | None = None
    pid: int | None = None
    pid_role: Literal["owner", "victim"] | None = None
    process: str | None = None
    job: Job | None = None
    lines: int = 1
    count_is_minimum: bool = False
    provisional: bool = False
    detail: Detail | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What is no GPU fault but belongs in the picture.

    Attributes:
        kind: driver_load, driver_version, driver_unload, gpu_identity, boot, panic, gap, stopped, link_down, link_up,
            pcie_hotplug, pcie_dpc, iommu_fault, storage_error, segfault, workqueue_lockup, oom_invoked,
            suppressed, sel, job, gpu_reset (a tool says so), machine (guest, switches, services),
            regime (what bound the GPU's work when it was last looked at),
            gpu_check (a reading of the GPU's that confirms or contradicts an incident), other.
        record: The line.
        pci: Device that the line names.
        facts: Further values: version and flavour of a driver load, uuid or serial of a GPU, interface of a link.
    """

    kind: str
    record: Record
    pci: PciAddress | None = None
    facts: tuple[tuple[str, str], ...] = ()
