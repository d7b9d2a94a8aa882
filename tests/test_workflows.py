"""One situation for every workflow and link-down reason of the vendor's guidance, with the verdict it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timezone
from pathlib import Path

import pytest

from xidwatch.core.incident import Incident
from xidwatch.explain import ExplainOptions, explain
from xidwatch.rulefiles import load_rules

A, B = "PCI:0000:3b:00", "PCI:0000:9b:00"
R575 = "[    5.100000] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@build)\n"
R570 = "[    5.100000] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (root@build)\n"


@dataclass(frozen=True)
class Situation:
    """A log and what must come of its worst incident. `investigate` must all be asked for; `never` must not."""

    name: str
    log: str
    fault_class: str
    origin: str
    severity: str
    rung: str
    when: str | None
    investigate: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    root: int | str | None = None
    incidents: int = 1


def xid(at: float, code: int, text: str, *, gpu: str = A, pid: int | None = 4711, name: str = "python3") -> str:
    """One kernel line with an Xid, at seconds after boot."""
    who = f"pid={pid}, name={name}, " if pid is not None else ""
    return f"[{at:12.6f}] NVRM: Xid ({gpu}): {code}, {who}{text}\n"


def hung(at: float, process: str, pid: int, *frames: str) -> str:
    """A kernel's hung-task block."""
    lines = [
        f"INFO: task {process}:{pid} blocked for more than 122 seconds.",
        "      Tainted: P           OE     6.8.0-60-generic #63-Ubuntu",
        '"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.',
        f"task:{process:<15} state:D stack:0     pid:{pid} tgid:{pid} ppid:1800   flags:0x00004006",
        "Call Trace:",
        " <TASK>",
        *(f" {frame}" for frame in frames),
        " </TASK>",
    ]
    return "".join(f"[{at + i / 1e5:12.6f}] {line}\n" for i, line in enumerate(lines))


def link_down(reason: int, *, driver: str = R575, word: str = "Fatal", unit: int = 17) -> str:
    """Xid 149 with a local link-down reason, in the bit layout of the driver named."""
    info = reason << 20 | (unit if driver is R575 else 14 << 5)
    name = "NETIR_LINK_DOWN" if driver is R575 else "NETIR_LINK_EVT"
    return driver + xid(900.0, 149, f"{name} {word}   XC0 i0 Link 08 (0x{info:08x} 0x0 0x0 0x0 0x0 0x0)", pid=None)


def nvlink74(register: int, bit: int, times: int = 1) -> str:
    """Xid 74 with one bit set in one of its seven registers (numbered from 1)."""
    words = ["0x0"] * 7
    words[register - 1] = f"0x{1 << bit:x}"
    text = f"NVLink: fatal error detected on link 7({', '.join(words)})"
    return "".join(xid(100.0 + 10 * i, 74, text, pid=None) for i in range(times))


DBE = "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr 0x18f31d80 partition 9, subpartition 1."
REMAP = "Row Remapper: New row (0x0000000018f31d80) marked for remapping, reset gpu to activate."
CONTAINED = "Contained: SM (0x1). RST: No, D-RST: No"
WARP = "Graphics SM Warp Exception on (GPC 3, TPC 1, SM 0): Out Of Range Address"
MMU = (
    "Ch 0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_0 faulted @ 0x7f12_3a000000. "
    "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
)
RPC = "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20808513 0x4)."
LOST = "GPU has fallen off the bus."
DRIVER_FRAMES = ("__schedule+0x3c2/0x1580", "schedule+0x33/0x110", "os_acquire_rwlock_write+0x35/0x50 [nvidia]",
                 "nvidia_unlocked_ioctl+0x21b/0x890 [nvidia]")  # fmt: skip
EXT4_FRAMES = ("__schedule+0x2b2/0x630", "schedule+0x27/0x90", "io_schedule+0x4c/0x80", "ext4_file_write_iter+0x5a/0x90 [ext4]")
NFS_KILLABLE = ("__schedule+0x2b2/0x630", "schedule+0x27/0x90", "rpc_wait_bit_killable+0x11/0x70 [sunrpc]",
                "nfs4_proc_getattr+0x6e/0x110 [nfsv4]")  # fmt: skip


def action(at: float, old: int, new: int, gpu: str = A) -> str:
    """Xid 154 from one value to the next; the label is deliberately one that no table has."""
    return xid(at, 154, f"GPU recovery action changed from 0x{old:x} (was) to 0x{new:x} (is)", gpu=gpu, pid=None)


def teardown(at: float, pid: int, *, cause: int | None = None, channels: int = 4, gpu: str = A) -> str:
    """A burst of Xid 45, one line a channel."""
    tail = f" caused by previous Xid {cause}" if cause is not None else ""
    return "".join(xid(at + i / 1e3, 45, f"channel 0x{i:08x}{tail}", pid=pid, gpu=gpu) for i in range(channels))


SITUATIONS = [
    Situation(
        "13 once",
        xid(10, 13, WARP) + xid(10.1, 43, "Ch 0000000a"),
        "compute",
        "application",
        "info",
        "restart_app",
        "now",
        ("check_app",),
        ("field_diagnostic", "run_diagnostic"),
        13,
    ),
    Situation(
        "13 spread over TPCs of several jobs",
        "".join(xid(10 + 4000 * i, 13, WARP.replace("TPC 1", f"TPC {i}"), pid=4711 + i) for i in range(3)),
        "compute",
        "application",
        "info",
        "restart_app",
        "now",
        ("check_app",),
        ("field_diagnostic",),
        13,
        3,
    ),
    Situation(
        "13 on the same TPC over several jobs",
        "".join(xid(10 + 4000 * i, 13, WARP, pid=4711 + i) for i in range(3)),
        "compute",
        "hardware",
        "warning",
        "restart_app",
        "now",
        ("run_diagnostic", "field_diagnostic"),
        (),
        13,
        3,
    ),
    Situation(
        "31 once",
        xid(10, 31, MMU),
        "memory",
        "application",
        "info",
        "restart_app",
        "now",
        ("check_app",),
        ("field_diagnostic", "run_diagnostic"),
        31,
    ),
    Situation(
        "31 on one GPU again and again",
        "".join(xid(10 + 4000 * i, 31, MMU, pid=4711 + i, name=f"job{i}") for i in range(4)),
        "memory",
        "hardware",
        "warning",
        "restart_app",
        "now",
        ("run_diagnostic", "field_diagnostic"),
        (),
        31,
        4,
    ),
    Situation(
        "31 of one program on several GPUs",
        "".join(xid(10 + 4000 * i, 31, MMU, pid=4711 + i, gpu=gpu) for i, gpu in enumerate((A, B, "PCI:0000:4e:00"))),
        "memory",
        "application",
        "info",
        "restart_app",
        "now",
        ("check_app",),
        ("field_diagnostic",),
        31,
        3,
    ),
    Situation(
        "31 then 43",
        xid(10, 31, MMU) + xid(10.2, 43, "Ch 0000000a"),
        "memory",
        "application",
        "info",
        "restart_app",
        "now",
        ("check_app",),
        ("field_diagnostic",),
        31,
    ),
    Situation(
        "45 alone at a job's end",
        "".join(teardown(10 + i / 10, 4711 + i, gpu=gpu) for i, gpu in enumerate((A, B))),
        "compute",
        "unknown",
        "info",
        "none",
        None,
        (),
        ("contact_support",),
        45,
    ),
    Situation(
        "45 that names its cause",
        xid(10, 13, WARP) + teardown(10.5, 4712, cause=13),
        "compute",
        "application",
        "info",
        "restart_app",
        "now",
        ("check_app",),
        (),
        13,
    ),
    Situation(
        "48 alone",
        xid(10, 48, DBE, pid=None),
        "memory",
        "hardware",
        "critical",
        "reset_gpu",
        "now",
        ("field_diagnostic",),
        (),
        48,
    ),
    Situation(
        "48, 63, 94, 45: contained, a row to remap",
        xid(10, 48, DBE, pid=None) + xid(10.02, 63, REMAP, pid=None) + xid(10.03, 94, CONTAINED) + teardown(10.1, 4711),
        "memory",
        "hardware",
        "critical",
        "reset_gpu",
        "after_drain",
        (),
        ("field_diagnostic", "check_app"),
        48,
    ),
    Situation(
        "48 with 64: the bank is used up",
        xid(10, 48, DBE, pid=None)
        + xid(10.02, 64, "Row Remapper Error: (0x0000000018f31d80) - All reserved rows for bank are remapped", pid=None),
        "memory",
        "hardware",
        "critical",
        "reset_gpu",
        "after_drain",
        ("field_diagnostic",),
        (),
        48,
    ),
    Situation(
        "48 in on-chip SRAM",
        xid(10, 48, "channel 0x00000002") + xid(10.01, 172, "GSP-RISCV, Uncorrectable SRAM error", pid=None),
        "memory",
        "hardware",
        "critical",
        "reset_gpu",
        "now",
        ("field_diagnostic",),
        (),
        48,
    ),
    Situation(
        "63 alone",
        xid(10, 63, REMAP, pid=None),
        "memory",
        "hardware",
        "warning",
        "reset_gpu",
        "after_drain",
        (),
        ("field_diagnostic",),
        63,
    ),
    Situation(
        "64 already pending",
        xid(
            10,
            64,
            "Row Remapper: (0x0000000018f31d80) - Attempting to remap a row that is already pending remapping.",
            pid=None,
        ),
        "memory",
        "hardware",
        "warning",
        "reset_gpu",
        "after_drain",
        (),
        ("field_diagnostic",),
        64,
    ),
    Situation(
        "64 table full",
        xid(10, 64, "Row Remapper Error: (0x0000000018f31d80) - Row Remapping table is full", pid=None),
        "memory",
        "hardware",
        "critical",
        "reset_gpu",
        "now",
        ("field_diagnostic",),
        (),
        64,
    ),
    Situation(
        "94 without flags set",
        xid(10, 94, CONTAINED),
        "memory",
        "hardware",
        "warning",
        "restart_app",
        "now",
        (),
        ("field_diagnostic",),
        94,
    ),
    Situation(
        "94 D-RST under MIG",
        xid(10, 94, "Contained: LTC (0x2, 0x1). RST: No, D-RST: Yes", gpu=f"{A} GPU-I:05"),
        "memory",
        "hardware",
        "warning",
        "reset_gpu",
        "after_drain",
        (),
        (),
        94,
    ),
    Situation(
        "94 RST on Blackwell",
        xid(10, 94, "Contained: GSP (0x1). RST: Yes, D-RST: No"),
        "memory",
        "hardware",
        "critical",
        "reset_gpu",
        "now",
        (),
        (),
        94,
    ),
    Situation(
        "95 RST Yes",
        xid(10, 95, "Uncontained: LTC (0x2, 0x1). RST: Yes, D-RST: No"),
        "memory",
        "hardware",
        "critical",
        "reset_gpu",
        "now",
        (),
        (),
        95,
    ),
    Situation(
        "95 RST No",
        xid(10, 95, "Uncontained: FBHUB (0x2). RST: No, D-RST: No"),
        "memory",
        "hardware",
        "warning",
        "restart_app",
        "now",
        (),
        (),
        95,
    ),
    Situation(
        "79",
        xid(10, 79, LOST, pid=None) + action(10.1, 0, 2),
        "platform",
        "hardware",
        "critical",
        "reboot_node",
        "now",
        ("check_seating",),
        (),
        79,
    ),
    Situation(
        "79, 154, 4,000 times 45, D state",
        xid(10, 79, LOST, pid=None)
        + action(10.1, 0, 2)
        + teardown(10.2, 4711, cause=79, channels=4000)
        + hung(140, "python3", 4711, *DRIVER_FRAMES),
        "platform",
        "hardware",
        "critical",
        "reboot_node",
        "now",
        ("check_seating",),
        (),
        79,
    ),
    Situation(
        "79 again after the boot",
        xid(10, 79, LOST, pid=None)
        + "[    0.000000] Linux version 6.8.0-60-generic (buildd@x) #63-Ubuntu SMP\n"
        + xid(500, 79, LOST, pid=None),
        "platform",
        "hardware",
        "critical",
        "power_cycle",
        "now",
        ("check_seating", "field_diagnostic"),
        (),
        79,
        2,
    ),
    Situation(
        "eight GPUs lost within a second",
        "".join(
            xid(10 + i / 10, 79, LOST, pid=None, gpu=f"PCI:0000:{bus}:00")
            for i, bus in enumerate(("07", "0f", "47", "4e", "87", "90", "b7", "bd"))
        ),
        "platform",
        "hardware",
        "critical",
        "reboot_node",
        "now",
        ("check_power_thermal",),
        (),
        79,
    ),
    Situation(
        "119 repeated by each victim",
        "".join(xid(10 + 45 * i, 119, RPC, pid=900 + i, name="nvidia-smi") for i in range(4)),
        "compute",
        "firmware",
        "critical",
        "reset_gpu",
        "now",
        ("update_software",),
        ("check_app",),
        119,
    ),
    Situation(
        "119 with a victim in D state",
        xid(10, 119, RPC, pid=900, name="nvidia-smi") + hung(140, "nvidia-smi", 900, *DRIVER_FRAMES),
        "compute",
        "firmware",
        "critical",
        "reboot_node",
        "now",
        (),
        (),
        119,
    ),
    Situation(
        "31 then 109",
        xid(10, 31, MMU) + xid(12, 109, "Ch 0000000a, errorString CTX SWITCH TIMEOUT, Info 0x38000"),
        "memory",
        "application",
        "critical",
        "reset_gpu",
        "now",
        ("check_app",),
        (),
        31,
    ),
    Situation(
        "13 then 119",
        xid(10, 13, WARP) + xid(16, 119, RPC, pid=900, name="nvidia-smi"),
        "compute",
        "application",
        "critical",
        "reset_gpu",
        "now",
        ("check_app",),
        (),
        13,
    ),
    Situation(
        "62",
        xid(10, 62, "32260b5e 000154b0 00000000 2026da96 202b5626 202b5832 202b5a02 202b4008"),
        "compute",
        "firmware",
        "critical",
        "reset_gpu",
        "now",
        ("contact_support",),
        (),
        62,
    ),
    Situation(
        "154: drain and reset, then drained",
        xid(10, 48, DBE, pid=None) + action(10.1, 0, 4) + action(4000, 4, 1),
        "memory",
        "hardware",
        "critical",
        "reset_gpu",
        "now",
        (),
        (),
        48,
    ),
    Situation(
        "154 back to none",
        xid(10, 62, "32260b5e 000154b0") + action(10.1, 0, 1) + action(4000, 1, 0),
        "compute",
        "firmware",
        "critical",
        "none",
        None,
        (),
        (),
        62,
    ),
    Situation("154: 3", action(10, 0, 3), "unknown", "unknown", "warning", "drain_p2p", "now"),
    Situation("154: 5", action(10, 0, 5), "unknown", "unknown", "critical", "recover_imex", "now"),
    Situation("154: 6", action(10, 0, 6), "unknown", "unknown", "critical", "bus_reset", "now"),
    Situation("154: 7", action(10, 0, 7), "unknown", "unknown", "critical", "reboot_node", "now"),
    Situation(
        "API mismatch",
        "[    9.424670] NVRM: API mismatch: the client 'nvidia-smi' (pid 900)\n               NVRM: has the version 580.95.05, "
        "but this kernel module has\n               NVRM: the version 570.86.15.  Please make sure that this\n",
        "software",
        "operator",
        "warning",
        "reload_driver",
        "after_drain",
        (),
        ("update_software",),
        "nvrm",
    ),
    Situation(
        "D state in the driver",
        hung(140, "python3", 4711, *DRIVER_FRAMES),
        "compute",
        "driver",
        "critical",
        "reboot_node",
        "now",
        (),
        ("check_storage",),
        "hung_task",
    ),
    Situation(
        "D state on a disk",
        hung(140, "python3", 4711, *EXT4_FRAMES),
        "platform",
        "host",
        "warning",
        "none",
        None,
        ("check_storage",),
        (),
        "hung_task",
    ),
    Situation(
        "D state that SIGKILL ends",
        hung(140, "python3", 4711, *NFS_KILLABLE),
        "platform",
        "host",
        "warning",
        "restart_app",
        "now",
        ("check_storage",),
        (),
        "hung_task",
    ),
    Situation(
        "an unknown code", xid(10, 777, "something new"), "unknown", "unknown", "warning", "none", None, ("contact_support",)
    ),
    *(
        Situation(
            f"link-down reason {reason}", link_down(reason), "interconnect", origin, severity, rung, when, investigate, (), 149
        )
        for reason, origin, severity, rung, when, investigate in (
            (1, "unknown", "critical", "reset_gpu", "now", ()),
            (2, "hardware", "critical", "reset_gpu", "now", ("check_link",)),
            (4, "hardware", "critical", "reset_gpu", "now", ("check_link",)),
            (10, "hardware", "critical", "reset_gpu", "now", ("check_link",)),
            (15, "operator", "critical", "reset_gpu", "now", ("check_host",)),
            (16, "operator", "critical", "reset_gpu", "now", ("check_host", "check_link")),
            (17, "operator", "critical", "reset_gpu", "now", ("check_host",)),
            (18, "operator", "critical", "reset_gpu", "now", ("check_host", "check_link")),
            (21, "unknown", "critical", "reset_gpu", "now", ("check_peer",)),
            (22, "operator", "critical", "reset_gpu", "now", ("check_host",)),
            *((peer, "unknown", "critical", "reset_gpu", "now", ("check_peer",)) for peer in range(32, 38)),
            (38, "operator", "info", "none", None, ()),
            (40, "host", "info", "none", None, ("check_host",)),
            (42, "hardware", "critical", "reset_gpu", "now", ("check_link",)),
            (43, "hardware", "critical", "reset_gpu", "now", ("check_link",)),
        )
    ),
    Situation(
        "reason 38 in the old layout",
        link_down(38, driver=R570),
        "interconnect",
        "operator",
        "info",
        "none",
        None,
        (),
        ("contact_support",),
        149,
    ),
    Situation(
        "RXPIPE, alone",
        R575 + xid(10, 145, "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x00000006 0x00000001 0x0 0x0 0x0 0x0)", pid=None),
        "interconnect",
        "unknown",
        "warning",
        "none",
        None,
        ("contact_support",),
        (),
        145,
    ),
    Situation(
        "RXPIPE with the second bit",
        R575 + xid(10, 145, "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x00000086 0x00000001 0x0 0x0 0x0 0x0)", pid=None),
        "interconnect",
        "unknown",
        "critical",
        "reset_gpu",
        "now",
        ("contact_support",),
        (),
        145,
    ),
    Situation(
        "a planned switch reboot: 38 on four GPUs",
        R575
        + "".join(
            xid(
                10 + i / 100,
                149,
                f"NETIR_LINK_DOWN Fatal   XC0 i0 Link 08 (0x{38 << 20 | 17:08x} 0x0 0x0 0x0 0x0 0x0)",
                pid=None,
                gpu=f"PCI:{domain}:01:00",
            )
            for i, domain in enumerate(("0008", "0009", "0018", "0019"))
        ),
        "interconnect",
        "operator",
        "info",
        "none",
        None,
        (),
        (),
        149,
    ),
    Situation("74 register 1 bit 0: harmless", nvlink74(1, 0), "interconnect", "hardware", "info", "none", None, (), (), 74),
    Situation(
        "74 register 1 bit 8: perhaps hardware",
        nvlink74(1, 8),
        "interconnect",
        "hardware",
        "critical",
        "reset_gpu",
        "now",
        ("check_seating", "run_diagnostic"),
        (),
        74,
    ),
    Situation(
        "74 register 1 bit 21: marginal signal",
        nvlink74(1, 21),
        "interconnect",
        "hardware",
        "critical",
        "reset_gpu",
        "now",
        ("check_link", "field_diagnostic"),
        (),
        74,
    ),
    Situation(
        "74 register 4 bit 18: the fabric needs a reset",
        nvlink74(4, 18),
        "interconnect",
        "hardware",
        "critical",
        "reset_fabric",
        "now",
        (),
        (),
        74,
    ),
    Situation(
        "74 register 5 bit 20: a threshold, nothing lost",
        nvlink74(5, 20),
        "interconnect",
        "hardware",
        "info",
        "none",
        None,
        (),
        (),
        74,
    ),
]


BOOT = "[    0.000000] Linux version 6.8.0-60-generic (buildd@x) #63-Ubuntu SMP\n"
CARD, OTHER_CARD = "GPU-1b2c3d4e-0000-1111-2222-333344445555", "GPU-2b2c3d4e-0000-1111-2222-333344445555"
FULL = "Row Remapper Error: (0x0000000018f31d80) - Row Remapping table is full"
CTX = "Ch 0000000a, errorString CTX SWITCH TIMEOUT, Info 0x38000"


def nvrm(at: float, text: str) -> str:
    """A line of the driver that is no Xid."""
    return f"[{at:12.6f}] NVRM: {text}\n"


def names(at: float, uuid: str) -> str:
    """The driver's line that says which GPU sits in the slot."""
    return nvrm(at, f"GPU at {A}: {uuid}")


JOINED = [
    (
        "a GSP banner and its 120",
        nvrm(10, "GPU0 kgspHealthCheck_TU102: **** GSP-CrashCat Report ****") + xid(10.01, 120, "GSP task panic: x", pid=None),
        [(120, "reset_gpu")],
    ),
    (
        "a PMU that halted and its 62",
        nvrm(10, "GPU0 _kgspRpcGspEventPmuHalted: Received signal from GSP that PMU has halted.")
        + xid(10.01, 62, "32260b5e 000154b0", pid=None),
        [(62, "reset_gpu")],
    ),
    ("a pointer over a long silence", xid(10, 119, RPC, pid=9) + teardown(1010, 999, cause=119), [(119, "reset_gpu")]),
    (
        "one link within the day",
        R575
        + xid(10, 149, "NETIR_LINK_DOWN Fatal   XC0 i0 Link 08 (0x00400011 0x0 0x0 0x0 0x0 0x0)", pid=None)
        + xid(410, 155, "NVLINK_SW_DEFINED_ERROR x XC0 i0 Link 08 : Link Down While Active.", pid=None),
        [(149, "reset_gpu")],
    ),
    (
        "a pointer explains its own line only",
        xid(10, 13, WARP, pid=2201) + teardown(10.1, 2201, cause=13) + xid(110, 79, LOST, pid=None),
        [(79, "reboot_node")],
    ),
    ("an application fault after the GPU failed", xid(10, 119, RPC, pid=9) + xid(110, 31, MMU, pid=7), [(119, "reset_gpu")]),
    (
        "another tenant's fault after the GPU failed",
        xid(10, 109, CTX, gpu=f"{A} GPU-I:06", pid=2) + xid(11, 13, WARP, gpu=f"{A} GPU-I:05", pid=7),
        [(109, "reset_gpu")],
    ),
    (
        "a worse fault on a GPU whose incident is old",
        "".join(xid(10 + 100 * i, 43, "Ch 0000000a") for i in range(50)) + xid(4920, 79, LOST, pid=None),
        [(79, "reboot_node"), (43, "none")],
    ),
    (
        "a persistent fault and another over a boot",
        xid(10, 157, "Unable to retire TPC 1 as there are no spare TPCs available.", pid=None)
        + xid(11, 119, RPC, pid=9)
        + BOOT,
        [(157, "none")],
    ),
    ("a full remap table after the boot that reset it", xid(10, 64, FULL, pid=None) + BOOT, [(64, "none")]),
    (
        "a new card in the slot",
        names(9, CARD) + xid(10, 79, LOST, pid=None) + BOOT + names(9, OTHER_CARD) + xid(10, 79, LOST, pid=None),
        [(79, "reboot_node"), (79, "none")],
    ),
    (
        "lost again without an Xid",
        xid(10, 79, LOST, pid=None) + BOOT + nvrm(10, "GPU 0000:3b:00.0: GPU has fallen off the bus."),
        [("nvrm", "power_cycle"), (79, "none")],
    ),
    (
        "lost, booted, not started",
        xid(10, 79, LOST, pid=None) + BOOT + nvrm(10, "GPU 0000:3b:00.0: RmInitAdapter failed! (0x22:0x56:894)"),
        [("nvrm", "power_cycle"), (79, "none")],
    ),
    ("workers of one job are one run", "".join(xid(10 + i / 100, 31, MMU, pid=i) for i in (1, 2, 3)), [(31, "restart_app")]),
    (
        "AER of the GPU just before its 32",
        "[    10.000000] nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, "
        "(Receiver ID)\n" + xid(12, 32, "Channel ID 0000000d intr0 00040000"),
        [(32, "restart_app")],
    ),
    (
        "139 of an old driver",
        R570.replace("570.86.15", "535.104.05") + xid(10, 139, "channel 0x00000010"),
        [(139, "restart_app")],
    ),
]


@pytest.mark.parametrize(("log", "expected"), [case[1:] for case in JOINED], ids=[case[0] for case in JOINED])
def test_what_belongs_together(log: str, expected: list[tuple[int | str, str]], tmp_path: Path) -> None:
    """Roots and recovery, worst first, of logs whose lines must be joined or kept apart."""
    found = verdicts(log, tmp_path)
    roots = [one.members[one.root].finding.event for one in found]
    assert expected == [(root.code or root.kind, one.recovery.rung) for root, one in zip(roots, found, strict=True)]


def test_a_bit_that_counts_from_the_third_time(tmp_path: Path) -> None:
    """An ECC bit of an NVLink asks for diagnostics at its third time on one link; a harmless bit never does."""
    (ecc,) = verdicts(nvlink74(1, 4, times=3), tmp_path)
    (twice,) = verdicts(nvlink74(1, 4, times=2), tmp_path)
    (harmless,) = verdicts(nvlink74(1, 0, times=3), tmp_path)
    assert "field_diagnostic" in {demand.rung for demand in ecc.investigate}
    assert "field_diagnostic" not in {demand.rung for demand in twice.investigate}
    assert ("info", ()) == (harmless.severity, harmless.investigate)


def test_a_lost_gpu_waits_for_proof_after_the_boot(tmp_path: Path) -> None:
    """A boot ends a firmware fault; whether a lost GPU is back must be shown."""
    (lost,) = verdicts(xid(10, 79, LOST, pid=None) + BOOT, tmp_path)
    (firmware,) = verdicts(xid(10, 119, RPC, pid=9) + BOOT, tmp_path)
    assert ("awaiting_verification", "boot") == (lost.state, lost.end_reason)
    assert ("resolved", "boot") == (firmware.state, firmware.end_reason)


def test_missing_lines_make_counts_a_minimum(tmp_path: Path) -> None:
    """What stands beside a gap in the log happened at least as often as it was printed; other people's gaps do not matter."""
    line = "[    10.000000] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n"
    (driver,) = verdicts(line + "[    10.100000] nvidia-nvswitch3: 5 callbacks suppressed\n" + line, tmp_path)
    (audit,) = verdicts(line + "[    10.100000] kauditd_printk_skb: 6 callbacks suppressed\n" + line, tmp_path)
    assert driver.members[0].count_is_minimum
    assert not audit.members[0].count_is_minimum


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name)
def test_the_verdict_is_what_the_vendors_guidance_asks_for(situation: Situation, tmp_path: Path) -> None:
    """Class, origin, severity, recovery, time and investigation follow the published guidance."""
    incidents = verdicts(situation.log, tmp_path)
    worst = incidents[0] if situation.incidents == 1 else _latest(incidents)
    root = worst.members[worst.root].finding.event

    assert situation.incidents == len(incidents)
    assert (situation.fault_class, situation.origin, situation.severity) == (worst.fault_class, worst.origin, worst.severity)
    assert (situation.rung, situation.when) == (worst.recovery.rung, worst.recovery.when)
    asked = {demand.rung for demand in worst.investigate}
    assert set(situation.investigate) <= asked
    assert not set(situation.never) & asked
    if situation.root is not None:
        assert situation.root == (root.code if root.code is not None else root.kind)


def verdicts(log: str, folder: Path) -> tuple[Incident, ...]:
    """Every incident that `explain` finds in a text."""
    path = folder / "kern.log"
    path.write_text(log)
    options = ExplainOptions(tz=timezone.utc, year=2026, now_us=1_796_000_000_000_000)
    return explain([str(path)], options, load_rules()).incidents


def _latest(incidents: tuple[Incident, ...]) -> Incident:
    return max(incidents, key=lambda one: one.members[0].finding.event.record.seq)


FAKE_79 = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
RUMOURS = [
    ("a USB string twice", f"[  100.000001] usb 1-1: Product: {FAKE_79}\n[  110.000001] usb 1-1: Manufacturer: {FAKE_79}\n"),
    ("one line with it twice", f"[  100.000001] usb 1-1: Product: {FAKE_79} {FAKE_79}\n"),
    ("two GPUs that are not there", f"[  100.000001] usb 1-1: Product: {FAKE_79}\n[  101.000001] usb 1-1: Product: "
     + FAKE_79.replace("3b", "4b") + "\n"),
    ("with a fallen-off line", f"[  100.000001] usb 1-1: Product: {FAKE_79}\n[  110.000001] usb 1-1: Product: NVRM: GPU 0000:3b:00.0: "
     "GPU has fallen off the bus.\n"),
]  # fmt: skip


@pytest.mark.parametrize("log", [log for _, log in RUMOURS], ids=[name for name, _ in RUMOURS])
def test_text_that_a_user_can_write_wakes_nobody(log: str, tmp_path: Path) -> None:
    """However often other lines quote an Xid, nothing is critical, nothing is sure and nothing is to be rebooted."""
    for incident in verdicts(log, tmp_path):
        assert ("unconfirmed", "none") == (incident.confidence, incident.recovery.rung)
        assert "critical" != incident.severity


def test_a_rumour_changes_no_real_incident(tmp_path: Path) -> None:
    """Quoted text is neither the root beside a real line, nor does it demand, clear or end anything."""
    real = xid(100, 79, LOST, pid=None)
    segfault = "[  110.000001] python3[1234]: segfault at 0 ip 0 sp 0 error 4 in "
    (app,) = verdicts(xid(100, 31, MMU) + f"{segfault}{FAKE_79}\n", tmp_path)
    (driver,) = verdicts(real + f"{segfault}NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar 5\n", tmp_path)
    cleared = f"{segfault}NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x2 (x) to 0x0 (None)\n"
    (none,) = verdicts(real + cleared, tmp_path)
    assert (31, "info", "restart_app") == (app.members[app.root].finding.event.code, app.severity, app.recovery.rung)
    assert ("active", "reboot_node") == (driver.state, driver.recovery.rung)
    assert ("active", "reboot_node") == (none.state, none.recovery.rung)


def test_hosts_do_not_inherit_from_each_other(tmp_path: Path) -> None:
    """The same slot on two nodes is two GPUs: nothing recurs and no pattern joins them."""
    line = "kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    found = verdicts(f"Nov 20 02:00:00 gpu01 {line}\nNov 20 03:00:00 gpu02 {line}\n", tmp_path)
    assert [("reboot_node", None, ())] * 2 == [(one.recovery.rung, one.recurrence, one.patterns) for one in found]


def test_a_milder_word_does_not_clear_a_fatal_one(tmp_path: Path) -> None:
    """Of one SXid on two links the fatal one decides, whichever comes last."""
    line = "[  100.00000{}] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, {}, Link 3{} LTSSM Fault Up\n"
    (one,) = verdicts(line.format(0, "Fatal", 0) + line.format(1, "Non-fatal", 1), tmp_path)
    (other,) = verdicts(line.format(0, "Non-fatal", 1) + line.format(1, "Fatal", 0), tmp_path)
    assert ("critical", one.recovery.rung) == (one.severity, other.recovery.rung)
    assert "none" != one.recovery.rung
