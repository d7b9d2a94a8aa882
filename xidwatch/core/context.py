"""Lines that are no GPU fault but belong in the picture: driver load, boot, panic, links, storage, IOMMU, crashes, gaps."""

from __future__ import annotations

import re
from typing import NamedTuple

from xidwatch.core.event import Context
from xidwatch.core.pattern import lazy
from xidwatch.core.pci import parse_pci
from xidwatch.core.record import Record

_PCI = r"(?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
_DEVICE = rf"^\s*(?:[\w.-]{{1,40}} )?{_PCI}"
"""How the kernel's dev_printk begins: driver and device. A message that another text only holds does not begin so."""
_NIC = rf"^\s*(?:(?:[\w.-]{{1,40}} )?{_PCI}:? )?(?:[\w-]{{1,20}}: )?(?:[\w-]{{1,20}}: )?(?P<interface>[\w.-]{{1,32}})"
_END = r"(?=\s*$|[,.;!]| \()"
"""Behind a link's state: a process may be called `ib0: Link down`, and its name stands in front of a pid."""


class _Wording(NamedTuple):
    """How lines of a kind read: one of `literals` is in them, and the named groups of `pattern` are their facts."""

    kind: str
    literals: tuple[str, ...]
    pattern: re.Pattern[str]


def _wording(kind: str, literals: str, pattern: str) -> _Wording:
    """A wording; its literals are written with bars between them."""
    return _Wording(kind, tuple(literals.split("|")), lazy(pattern))


_WORDINGS: tuple[_Wording, ...] = (
    _wording(
        "driver_load",  # kernel-open/nvidia/nv.c
        "NVRM: loading",
        r"NVRM: loading (?:NVIDIA )?UNIX (?P<open>Open )?(?:\S+ )?Kernel Module(?: for \S+)?\s+(?P<version>\d+\.\d+(?:\.\d+)?)",
    ),
    _wording(
        "driver_version",  # /proc/driver/nvidia/version: what is loaded, not that it was loaded just then
        "NVRM version:",
        r"NVRM version: NVIDIA UNIX (?P<open>Open )?(?:\S+ )?Kernel Module(?: for \S+)?\s+(?P<version>\d+\.\d+(?:\.\d+)?)",
    ),
    _wording(
        "driver_load",  # drivers whose line the reporter cut, and nvidia-installer's copy of it
        "NVIDIA UNIX ",
        r"^\s*(?:nvidia: )?(?:loading )?NVIDIA UNIX (?P<open>Open )?(?:\S+ )?Kernel Module(?: for \S+)?"
        r"\s+(?P<version>\d+\.\d+(?:\.\d+)?)",
    ),
    _wording("driver_unload", "Unregistered", r"^\s*nvidia-nvlink: Unregistered (?:the )?Nvlink Core"),
    _wording(
        "gpu_identity",  # src/nvidia/src/kernel/gpu/rc/kernel_rc.c
        "NVRM: GPU at ",
        r"NVRM: GPU at (?P<pci>(?:PCI:)?[0-9a-f]+:[0-9a-f:]+?): (?P<uuid>GPU-[0-9a-f-]{8,})",
    ),
    _wording("gpu_identity", "Board Serial Number", r"NVRM: GPU Board Serial Number: (?P<serial>(?!0+$)\S+)"),
    _wording("boot", "Linux version ", r"^\s*Linux version (?P<kernel>\d\S+)"),
    _wording("machine", "Hypervisor detected: ", r"^\s*Hypervisor detected: (?P<hypervisor>\w[^\n]{0,40})"),
    _wording("machine", "Booting paravirtualized kernel", r"^\s*Booting paravirtualized kernel on (?P<paravirt>\w[^\n]{0,40})"),
    _wording("machine", "DMI: ", r"^\s*DMI: (?P<dmi>[^\n]{1,200}?),? BIOS "),
    _wording(
        "machine", "Detected virtualization ", r"^\s*(?:systemd\[1\]: )?Detected virtualization (?P<virtualization>[\w-]+)"
    ),
    _wording(
        "machine",  # drivers/pci/probe.c, pci_setup_device
        "[10de:",
        rf"^\s*pci {_PCI}: \[10de:(?P<device>[0-9a-f]{{4}})\] type \S+ class (?P<device_class>0x[0-9a-f]{{6}})",
    ),
    _wording(
        "machine",
        "nvidia-nvswitch",
        r"^\s*nvidia-nvswitch\d*: (?P<nvswitch>Probing device|open \(major|using MSI|using polling)",
    ),
    _wording(
        "machine",  # the unit's description, with its name before it from systemd 250 on
        "abric manager service",
        r"^\s*(?:systemd\[1\]: )?(?P<fabric_manager>Started|Stopped|Failed to start) (?:nvidia-fabricmanager\.service - )?"
        r"NVIDIA fabric manager service",
    ),
    _wording("machine", "ipmi_s", r"^\s*ipmi_s\w+ \S+: (?P<bmc>IPMI \w+ interface initialized|Found new BMC)"),
    _wording(
        "machine",
        "nvidia-drm",
        r"^\s*\[drm\] (?P<nvidia_drm>\[nvidia-drm\] \[GPU ID 0x\w+\] Loading driver|Initialized nvidia-drm)",
    ),
    _wording(
        "gpu_reset",  # what nvidia-smi --gpu-reset prints, as a script or a unit logs it
        "was successfully reset",
        r"GPU (?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]) was successfully reset",
    ),
    _wording("panic", "Kernel panic", r"^\s*(?:---\[ end )?Kernel panic - not syncing: (?P<reason>[^\n]+)"),
    _wording(
        "pcie_hotplug",  # drivers/pci/hotplug/pciehp_ctrl.c
        "pciehp: Slot",
        rf"^\s*(?:(?:[\w.-]{{1,40}} )?{_PCI}: )?pciehp: Slot\((?P<slot>[\w-]+)\): "
        r"(?P<state>Link Down|Link Up|Card not present|Card present)",
    ),
    _wording(
        "pcie_hotplug",  # drivers/pci/pci.c
        "Unable to change power state|not ready ",
        rf"{_DEVICE}:? (?P<state>Unable to change power state from \S+ to \S+|not ready \d+ms after [^\n]+)",
    ),
    _wording(
        "pcie_dpc",  # drivers/pci/pcie/dpc.c
        "DPC: ",
        rf"{_DEVICE}: DPC: (?P<reason>(?:containment event|unmasked uncorrectable|ERR_|RP PIO)[^\n]*)",
    ),
    _wording("link_down", "Link DOWN", rf"{_NIC}: Port: \d+ Link DOWN{_END}"),
    _wording(
        "link_down",
        "link status definitely down",
        r"^\s*(?:bonding: )?\S{1,32}: \(slave (?P<interface>\S+)\): link status definitely down",
    ),
    _wording(
        "link_down",
        "link status definitely down",
        r"^\s*(?:bonding: )?\S{1,32}: link status definitely down for interface (?P<interface>[^\s,]+)",
    ),
    _wording("link_down", "NIC Link is Down", rf"{_NIC}:? NIC Link is Down\b(?!\[)"),
    _wording(
        "link_down",
        "ink down|ink Down|ink is down|ink is Down|ink is DOWN",
        rf"{_NIC}: (?:Ethernet )?[Ll]ink (?:is )?(?:[Dd]own|DOWN){_END}",
    ),
    _wording("link_up", "Link ACTIVE", rf"{_NIC}: Port: \d+ Link ACTIVE{_END}"),
    _wording(
        "link_up",
        "link status definitely up",
        r"^\s*(?:bonding: )?\S{1,32}: \(slave (?P<interface>\S+)\): link status definitely up",
    ),
    _wording(
        "link_up",
        "link status definitely up",
        r"^\s*(?:bonding: )?\S{1,32}: link status definitely up for interface (?P<interface>[^\s,]+)",
    ),
    _wording("link_up", "NIC Link is Up", rf"{_NIC}:? NIC Link is Up\b(?!\[)"),
    _wording(
        "link_up",
        "ink up|ink Up|ink is up|ink is Up|ink is UP",
        rf"{_NIC}: (?:Ethernet )?[Ll]ink (?:is )?(?:[Uu]p|UP)\b(?!\[)",
    ),
    _wording(
        "iommu_fault",  # drivers/iommu/intel/dmar.c
        "DMAR:",
        r"^\s*DMAR: \[(?:DMA|INTR-REMAP)[^\n]*?\b[Rr]equest device \[(?P<pci>[0-9a-f:.]+)\]",
    ),
    _wording("iommu_fault", "AMD-Vi: Event logged", rf"{_DEVICE}: AMD-Vi: Event logged \[(?P<event>\w+)"),
    _wording(
        "iommu_fault",  # drivers/iommu/amd/iommu.c
        "AMD-Vi: ",
        r"^\s*(?:(?:pci \S+|iommu \w+): )?AMD-Vi: Event logged "
        r"\[(?P<event>IO_PAGE_FAULT|INVALID_DEVICE_REQUEST|ILLEGAL_DEV_TABLE_ENTRY) "
        r"(?:[^\]\n]*?device=(?P<pci>[0-9a-f:.]+))?",
    ),
    _wording(
        "iommu_fault",
        "arm-smmu",
        r"^\s*arm-smmu(?:-v3)? \S+: (?P<event>Unhandled context fault|event 0x\w+ received|\s*event: F_\w+)",
    ),
    _wording(
        "storage_error",  # drivers/nvme/host/pci.c
        "nvme nvme",
        r"^\s*nvme (?P<device>nvme\d+)(?:c\d+n\d+)?: (?P<state>I/O (?:tag )?\d+ [^\n]*(?:timeout|QID)|controller is down"
        r"|Device not ready|Removing after probe failure|Abort status|resetting controller|Disabling device)",
    ),
    _wording(
        "storage_error",
        "I/O error",
        r"^\s*(?:[\w-]{1,40}: )?(?:(?:Buffer|lost (?:async )?page write due to) )?"
        r"I/O error,? (?:dev|on dev|on device) (?P<device>[\w-]+)",
    ),
    _wording("storage_error", "-fs error", r"^\s*EXT[234]-fs error \(device (?P<device>[\w-]+)\)"),
    _wording("storage_error", "XFS (", r"^\s*XFS \((?P<device>[\w-]+)\): [^\n]*(?:[Ee]rror|[Cc]orruption|[Ss]hut)"),
    _wording("storage_error", "BTRFS ", r"^\s*BTRFS:? (?:error|critical) \(device (?P<device>[\w-]+)"),
    _wording(
        "storage_error",
        "emounting filesystem read-only",
        r"^\s*(?:[\w-]{1,20} ?(?:\([^)\s]{1,40}\))?: )?Remounting filesystem read-only",
    ),
    _wording("storage_error", "nfs: server", r"^\s*nfs: server (?P<device>\S+) (?P<state>not responding)"),
    _wording("storage_error", "LustreError|LNetError", r"^\s*(?:LustreError|LNetError)\b"),
    _wording("storage_error", "LNet: Service thread", r"^\s*LNet: Service thread pid \d+ was inactive"),
    _wording("storage_error", "Lustre: ", r"^\s*Lustre: \S+: Connection to (?P<device>\S+) .*was lost"),
    _wording(
        "storage_error",
        "exception Emask|failed command|hard resetting",
        r"^\s*(?P<device>ata\d+)(?:\.\d+)?: (?:exception|failed|hard)",
    ),
    _wording("storage_error", "Disk failure", r"^\s*md/raid[\w:]+: Disk failure on (?P<device>\w+)"),
    _wording(
        "segfault",  # arch/x86/mm/fault.c
        "segfault at ",
        r"^(?P<process>[^\n\[]{1,40})\[(?P<pid>\d+)\]: segfault at [0-9a-f]+ ip [^\n]*?(?: in (?P<library>[^\[\s]+)\[|$)",
    ),
    _wording(
        "segfault",  # arch/x86/kernel/traps.c
        "traps: ",
        r"^\s*traps: (?P<process>[^\n\[]{1,40})\[(?P<pid>\d+)\] [^\n]*? ip:[0-9a-f]+ [^\n]*?(?: in (?P<library>[^\[\s]+)\[|$)",
    ),
    _wording(
        "nccl_state",  # torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp: where each rank stands
        "ast enqueued NCCL work: |ast enqueued work: ",
        r"\[(?:PG (?:ID )?(?P<group>\d+)(?: PG GUID (?P<guid>[^\s\]]{1,64}))? )?Rank (?P<rank>\d{1,9})\](?P<said>[^\n]{0,240}?)"
        r"[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d{1,18}), +last completed (?:NCCL )?work: (?P<completed>-?\d{1,18})",
    ),
    _wording(
        "nccl_lagging",  # torch/csrc/distributed/c10d/TraceUtils.h, the desync report
        "are the lagging ranks|but didn't join collective|joined but didn't finish",
        r"(?:ranks )?\[(?P<ranks>\d{1,9}(?:, ?\d{1,9}){0,4096})\] "
        r"(?P<how>are the lagging ranks|finished collective #(?P<seq>\d{1,18}), but didn't join|joined but didn't finish)",
    ),
    _wording("nccl_world", " nranks ", r"NCCL INFO [^\n]{0,120}?\brank (?P<rank>\d{1,9}) nranks (?P<nranks>\d{1,9})\b"),
    _wording(
        "nccl_network_error",  # NCCL src/transport/net_ib.cc, misc/socket.cc
        "NCCL WARN",
        r"NCCL WARN (?P<reason>[^\n]{0,160}?(?:Got completion from peer (?P<peer>[^\s<]{1,64})|Got completion with error"
        r"|Got async event|async fatal event|Call to ibv_\w{1,40} failed|ibv_poll_cq|[Tt]imed out|No route to host"
        r"|Network is unreachable)[^\n]{0,240})",
    ),
    _wording(
        "nccl_peer_error",  # NCCL src/misc/socket.cc, include/checks.h: the other end is gone, which need not be the network
        "NCCL WARN",
        r"NCCL WARN (?P<reason>[^\n]{0,160}?(?:[Cc]onnection closed by (?:remote )?peer|Connection (?:refused|reset)"
        r"|socketProgress|[Ss]ocket[A-Z]\w{1,40}|remote process)[^\n]{0,240})",
    ),
    _wording(
        "nccl_error",  # the names that ncclGetErrorString and PyTorch print behind an NCCL error
        "ncclSystemError|ncclRemoteError|ncclInternalError",
        r"\b(?P<name>ncclSystemError|ncclRemoteError|ncclInternalError): (?P<reason>[^\n]{1,240})",
    ),
    _wording("workqueue_lockup", "workqueue lockup", r"^\s*BUG: workqueue lockup - pool [^\n]*? stuck for (?P<stuck_s>\d+)s"),
    _wording("oom_invoked", "invoked oom-killer", r"^\s*(?P<process>.+?) invoked oom-killer:"),
    _wording("suppressed", "callbacks suppressed", r"(?P<function>[\w.]{1,64}): (?P<count>\d{1,12}) callbacks suppressed"),
    _wording("suppressed", "kernel messages", r"Missed (?P<count>\d+) kernel messages"),
    _wording("suppressed", "printing 1 of every", r"\(printing 1 of every (?P<one_of>\d+)\)"),
    _wording("suppressed", "/dev/kmsg buffer overrun", r"/dev/kmsg buffer overrun"),
    _wording("suppressed", "printk messages dropped", r"(?P<count>\d{1,12}) printk messages dropped"),
    _wording("suppressed", "Suppressed ", r"Suppressed (?P<count>\d+) messages"),
    _wording("suppressed", "reports are suppressed", r"hung task reports are suppressed"),
    _wording(
        "sel",  # ipmitool sel elist
        "sserted",
        r"^\s*[0-9a-f]+ *\| *(?P<date>[^|\n]*?) *\| *(?P<clock>[^|\n]*?) *\| *(?P<sensor>[^|\n]+?) *\| *(?P<state>[^|\n]+?) *\|"
        r" *(?P<direction>Asserted|Deasserted)",
    ),
)
_WRITTEN_BY_DEVICES = lazy(r"\s*(?:usb \S+|input|hid-\S+ \S+|scsi \S+|thunderbolt \S+|Bluetooth|i2c \S+|\[drm\] EDID): ")
"""What a device calls itself stands behind these: whoever plugs one in chooses the words."""
_BY_PROGRAM = (
    "suppressed", "sel", "gpu_reset",
    "nccl_state", "nccl_lagging", "nccl_world", "nccl_network_error", "nccl_peer_error", "nccl_error",
)  # fmt: skip
"""Kinds that user space itself reports: the journal's own losses, what ipmitool prints, what NCCL says of its peers."""
_SYSTEMD = ("systemd", "init")

_BY_LITERAL = tuple((literal, wording) for wording in _WORDINGS for literal in wording.literals)
LITERALS: tuple[str, ...] = tuple(dict.fromkeys(literal for literal, _ in _BY_LITERAL))


def start(record: Record) -> tuple[Context, ...]:
    """What the line says about the machine around the GPU; () for all others.

    Facts by name: version and flavour, uuid, serial, kernel, interface, device, process, library, count ... as far as printed.
    A serial number belongs to the GPU on the line before it and has no address.
    """
    text = record.text
    for literal, wording in _BY_LITERAL:
        if literal not in text:
            continue
        if is_by_device(text):
            return ()
        by_systemd = wording.kind == "machine" and record.program in (*_SYSTEMD, None)
        if (record.program is not None or record.trusted == "no") and wording.kind not in _BY_PROGRAM and not by_systemd:
            continue
        if found := wording.pattern.search(text):
            return (_context(record, wording.kind, found),)
    return ()


def is_by_device(text: str) -> bool:
    """Whether the words are those that a device calls itself by."""
    return _WRITTEN_BY_DEVICES.match(text) is not None


def _context(record: Record, kind: str, found: re.Match[str]) -> Context:
    facts = {name: value.strip() for name, value in found.groupdict().items() if value}
    slot = facts.pop("pci", None)
    if kind == "suppressed":
        facts["of"] = _whose(record.text, facts)
    if kind in ("driver_load", "driver_version"):
        facts["flavour"] = "open" if facts.pop("open", None) else "proprietary"
    return Context(kind=kind, record=record, pci=parse_pci(slot) if slot else None, facts=tuple(facts.items()))


def _whose(text: str, facts: dict[str, str]) -> str:
    """Whose lines are missing: "driver", "all" (the kernel's ring or the journal lost some), or "other" (somebody else's)."""
    if "function" in facts or "Suppressed " in text:
        return "driver" if "nvidia" in text or "NVRM" in text else "other"
    return "other" if "reports are suppressed" in text else "all"
