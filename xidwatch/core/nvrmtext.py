"""One line of an NVIDIA module that is no Xid: what it is called here, and what it names.

Source: NVIDIA open-gpu-kernel-modules, 515.43.04 to 595.45.04: kernel-open/nvidia/nv.c and nv-pci.c,
src/nvidia/arch/nvalloc/unix/src/osinit.c and osapi.c, src/nvidia/src/libraries/utils/nvassert.c, kernel_gsp.c,
kernel-open/nvidia-uvm/uvm_common.h; older wordings from logs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from xidwatch.core.event import NvrmDetail
from xidwatch.core.pattern import lazy
from xidwatch.core.pci import PciAddress, parse_pci

LINE_LITERALS: tuple[str, ...] = (
    "NVRM", "nvidia-uvm:", "nvidia-modeset:", "nvidia-peermem", "nvidia_peermem", "nvidia-nvlink:", "[nvidia-drm]",
    "firmware load for nvidia/", "nvidia: probe of", "probe with driver nvidia failed",
    "Unable to determine the device handle for", "Failed to initialize NVML: Driver/library version mismatch",
    "is missing from its slot",
)  # fmt: skip

INIT_STEPS = {
    0x10: "register setup", 0x11: "system environment", 0x20: "allocating the GPU", 0x21: "creating the device",
    0x22: "attaching the GPU", 0x23: "GPU pre-initialization", 0x24: "GPU state initialization", 0x25: "GPU state load",
    0x26: "DMA configuration", 0x27: "expanded GPU visibility", 0x30: "VBIOS", 0x31: "VBIOS", 0x32: "VBIOS",
    0x40: "scalability", 0x41: "watchdog", 0x42: "mapping BAR1", 0x43: "GPU database", 0x44: "RM API", 0x45: "GPU information",
    0x60: "firmware policy", 0x61: "fetching the firmware", 0x62: "starting the GSP firmware",
}  # fmt: skip
"""enum rm_init_status in osinit.c of 595.45.04; other branches may count differently."""

WORDINGS: tuple[tuple[str, str], ...] = (
    ("RmInitAdapter failed!", "rm_init_adapter_failed"),
    ("rm_init_adapter failed", "rm_init_adapter_failed"),
    ("rm_init_adapter(", "rm_init_adapter_failed"),
    ("fallen off the bus", "fallen_off_bus"),
    ("API mismatch:", "api_mismatch"),
    ("NV_ERR_RESET_REQUIRED", "reset_required"),
    ("NV_ERR_GPU_IS_LOST", "gpu_lost"),
    ("GPU lost from the bus", "gpu_lost"),
    ("GPU lost", "gpu_lost"),
    ("GPU_ATTACHED_SANITY_CHECK failed", "gpu_lost"),
    ("GSP-CrashCat Report", "gsp_crash_report"),
    ("GSP task exception", "gsp_crash_report"),
    ("GSP task panic", "gsp_crash_report"),
    ("GSP task timeout", "gsp_crash_report"),
    ("GSP task watchdog", "gsp_crash_report"),
    ("GSP kernel exception", "gsp_crash_report"),
    ("GSP kernel panic", "gsp_crash_report"),
    ("GSP Timeout", "gsp_timeout"),
    ("GSP RPC timeout", "gsp_timeout"),
    ("GSP RPC buffer contains", "gsp_timeout"),
    ("RPC history (CPU -> GSP)", "gsp_timeout"),
    ("RPC event history", "gsp_timeout"),
    ("Rate limiting GSP RPC", "gsp_timeout"),
    ("rpcRecvPoll timed", "gsp_timeout"),
    ("waiting for RPC", "gsp_timeout"),
    ("Heartbeat timed out", "gsp_timeout"),
    ("GSP core unresponsive", "gsp_timeout"),
    ("GSP-RM unresponsive", "gsp_timeout"),
    ("PMU has halted", "pmu_halted"),
    ("FSP boot cmds failed", "fsp_boot_failed"),
    ("FSP response reported error", "fsp_boot_failed"),
    ("FSP boot complete", "fsp_boot_failed"),
    ("FSP fuse error check", "fsp_boot_failed"),
    ("No firmware image found", "firmware_missing"),
    ("No NVIDIA GPU found", "no_gpu_found"),
    ("No NVIDIA PCI devices found", "no_gpu_found"),
    ("No NVIDIA graphics adapter found", "no_gpu_found"),
    ("probe routine", "probe_failed"),
    ("No NVIDIA devices probed", "probe_failed"),
    ("No NVIDIA graphics adapter probed", "probe_failed"),
    ("None of the NVIDIA", "probe_failed"),
    ("NVIDIA init module failed", "probe_failed"),
    ("This PCI I/O region assigned to your NVIDIA device is invalid", "probe_failed"),
    ("is not supported by", "unsupported_gpu"),
    ("supported through the NVIDIA", "unsupported_gpu"),
    ("uvm encountered global fatal error", "uvm_fatal"),
    ("Assertion failed", "nvassert"),
    ("Check failed", "nvassert"),
)
"""The driver's words and what they are called here; the first that a line contains decides."""

_NVRM = lazy(
    r"NVRM(?:-RC)?(?::\s*|\s+(?=(?:GPU\d+\s+)?\w+: ))(?:GPU(?P<index>\d+)\b(?!\w*:)\s+)?"
    r"(?:(?P<function>[A-Za-z_]\w*): )?(?P<message>.*)",
    re.DOTALL,
)
_NOTICES = lazy(
    r"loading |unloading|version:? |GPU at (?:PCI:)?[0-9a-f:.]+:?\s*(?:GPU-|$)|GPU Board Serial Number|RmPowerManagement|nvlog"
    r"|Persistence mode is deprecated|GPU [0-9a-f:.]+: GPU serial number is",
    re.IGNORECASE,
)
_CONTINUES = lazy(
    # API mismatch, as 80 columns break it in its two wordings
    r"has the version|this kernel module has|the version|make sure that this|kernel module and all|components have"
    r"|have the same|and all NVIDIA|that this kernel|driver components|the same version"
    # nv.c and nv-pci.c, behind a GPU that is lost, unsupported or taken by another driver
    r"|\(PCI ID|installed in this|fallen off the bus and is|the NVIDIA|visit http|information\.|this GPU|Please see"
    r"|in this release|on the |does not include|supported through|To force use of|Open nvidia\.ko is|'OpenRm|in the README"
    r"|proprietary nvidia\.ko|open nvidia\.ko|This can occur when|nouveau, |was loaded and obtained|Try unloading"
    r"|reconfigure your|driver\(s\)|again\.|BAR\d is|The system BIOS|None of the NVIDIA|No NVIDIA devices probed"
    r"|NVIDIA init module failed|not supported by|NVIDIA (?:Linux |[\d.]+ )?(?:driver release|Legacy)"
    r"|A - Supported|nvidia\.ko because"
    r"|System Processor|Firmware' sections|the Linux graphics|specific graphics|(?:at )?www\.nvidia"
    r"|the operating system|README, "
)
_PCI = lazy(
    r"(?:\bGPU (?:at )?|\bdevice |\(|^|\bnvidia |\bfor GPU ?(?:\d+: )?)(?:PCI:)?"
    r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)\b"
    r"|nvidia: probe of ([0-9a-f:.]+) failed",
    re.IGNORECASE,
)
_DRM_GPU = lazy(r"\[GPU ID 0x([0-9a-f]+)\]", re.IGNORECASE)
_LOST_STATUS = lazy(r"(?:status|returned|ret)\W{0,3}0x0{0,7}f\b|\(0x0{0,7}f\)", re.IGNORECASE)
_RESET_STATUS = lazy(r"status\W{0,3}0x0{0,6}62\b|\(0x0{0,6}62\)", re.IGNORECASE)
_NV_STATUS = lazy(r"\[NV_ERR_\w+\] \(0x([0-9a-f]+)\)|\bstatus\W{0,3}0x([0-9a-f]+)", re.IGNORECASE)
_INIT_FAILED = lazy(r"RmInitAdapter failed! \(0x([0-9a-f]+):0x([0-9a-f]+):", re.IGNORECASE)
_CLIENT = lazy(r"the client '(.*?)' \(pid (\d+)\)")
_CLIENT_VERSION = lazy(r"the client (?:'.*?' \(pid \d+\) )?has the version ([\w.]+?),")
_MODULE_VERSION = lazy(r"this kernel module has the version ([\w.]*\w)")
_GFW = lazy(r"GFW.?boot", re.IGNORECASE)
_UVM_PID = lazy(r"(?:nvidia-uvm: \S+:\d+ (\w+))?\[pid:(\d+)\]")
_BAD_WORDS = lazy(r"err(?:or|no)|fail|fatal|unable|timed? ?out|invalid|cannot|NV_ERR", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DriverLine:
    """One driver line, read; shared between records of equal text."""

    what: str
    pci: PciAddress | None
    pid: int | None
    process: str | None
    detail: NvrmDetail


@lru_cache(maxsize=2048)
def read_driver_line(text: str) -> DriverLine | None:
    """Read a driver line; None for its notices and for other programs' lines. Kept for equal texts: a storm repeats itself."""
    if "callbacks suppressed" in text:
        return None
    if found := _NVRM.search(text):
        return _read_nvrm(found)
    if "nvidia" in text and (what := _neighbour(text)):
        uvm = _UVM_PID.search(text)
        return _line(what, NvrmDetail(message=text.strip(), function=uvm[1] if uvm else None))
    return _of_program(text)


def _of_program(text: str) -> DriverLine | None:
    """What nvidia-smi and the daemon say of GPUs that the driver does not speak of."""
    what = None
    if "Failed to initialize NVML: Driver/library version mismatch" in text:
        what = "api_mismatch"
    elif "Unable to determine the device handle for" in text:
        what = "gpu_lost" if "is lost" in text else "other"
    elif text.startswith("xidwatch: GPU ") and "is missing from its slot" in text:
        # `census.missed`: no line of the driver tells of a card that was absent at boot.
        what = "gpu_missing"
    return _line(what, NvrmDetail(message=text.strip())) if what is not None else None


def continues_text(text: str) -> bool:
    """Whether a line, with or without its own `NVRM:`, carries on the sentence of the one before."""
    found = _NVRM.search(text)
    return _CONTINUES.match(found["message"] if found else text.strip()) is not None


def join_text(message: str) -> str:
    """One line of a text that was printed as several; `#012` is rsyslog's newline."""
    if "\n" in message or "#012" in message:
        message = re.sub(r"(?:\s*(?:\n|#012)\s*)+(?:NVRM:\s*)?", " ", message)
    return message.strip(" \"*`'\n")


def read_versions(detail: NvrmDetail) -> tuple[NvrmDetail, int | None, str | None]:
    """Both versions of an API mismatch, with the client's pid and name where the driver gives them (osapi.c, from 595)."""
    client, module, named = (pattern.search(detail.message) for pattern in (_CLIENT_VERSION, _MODULE_VERSION, _CLIENT))
    detail = replace(detail, client_version=client[1] if client else None, module_version=module[1] if module else None)
    return (detail, int(named[2]), named[1]) if named else (detail, None, None)


def _read_nvrm(found: re.Match[str]) -> DriverLine | None:
    index, function, message = found.groups()
    if _NOTICES.match(message) or _NOTICES.match(f"{function}: "):
        return None
    message = join_text(message)
    if not message or message.startswith("Xid "):
        return None
    status = _NV_STATUS.search(message)
    detail = NvrmDetail(
        message=message,
        gpu_index=int(index) if index else None,
        function=function,
        status=int(status[1] or status[2], 16) if status else None,
    )
    return _line(_what(function or "", message), detail)


def _line(what: str, detail: NvrmDetail) -> DriverLine:
    text = detail.message
    pid, process = None, None
    if what == "api_mismatch":
        detail, pid, process = read_versions(detail)
    elif found := _INIT_FAILED.search(text):
        step = int(found[1], 16)
        detail = replace(detail, init_step=step, init_step_name=INIT_STEPS.get(step), status=int(found[2], 16))
    elif uvm := _UVM_PID.search(text):
        pid = int(uvm[2])
    return DriverLine(what, _pci(text), pid, process, detail)


def _what(function: str, message: str) -> str:
    for wording, what in WORDINGS:
        if wording in message:
            return what
    bad = _BAD_WORDS.search(message) is not None
    if message.startswith("The NVIDIA GPU "):
        # Two blocks begin so; the one of an unsupported GPU has its PCI id on the first line.
        answer = "unsupported_gpu" if "(PCI ID" in message else "fallen_off_bus"
    elif _RESET_STATUS.search(message):
        answer = "reset_required"
    elif _LOST_STATUS.search(message):
        answer = "gpu_lost"
    elif bad and _GFW.search(message):
        answer = "gfw_boot_timeout"
    elif bad and "nvlink" in f"{function} {message}".lower():
        answer = "nvlink_error"
    else:
        answer = "other"
    return answer


def _neighbour(text: str) -> str | None:
    """What the driver's other modules, and the kernel, say of it; what they merely tell is no event."""
    bad = _BAD_WORDS.search(text) is not None
    answer: str | None = None
    if "nvidia-modeset:" in text:
        if "nvidia-modeset: Version mismatch" in text:
            answer = "api_mismatch"
        elif "nvidia-modeset: ERROR" in text:
            answer = "modeset_error"
    elif "[nvidia-drm]" in text:
        answer = "modeset_error" if "*ERROR*" in text or "Failed to" in text else None
    elif "nvidia-uvm:" in text:
        answer = "uvm_fatal" if "fatal error" in text else "other" if bad else None
    elif "firmware load for nvidia/" in text:
        answer = "firmware_missing"
    elif "nvidia: probe of" in text or "probe with driver nvidia failed" in text:
        answer = "probe_failed"
    elif bad and ("nvidia-peermem" in text or "nvidia_peermem" in text):
        answer = "peermem_error"
    elif bad and "nvidia-nvlink:" in text:
        answer = "nvlink_error"
    return answer


def _pci(text: str) -> PciAddress | None:
    if found := _PCI.search(text):
        return parse_pci(found[1] or found[2])
    if drm := _DRM_GPU.search(text):
        number = int(drm[1], 16)  # domain, bus, device in 16, 8 and 8 bits
        return PciAddress(number >> 16, number >> 8 & 0xFF, number & 0xFF)
    return None
