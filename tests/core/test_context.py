from __future__ import annotations

import pytest

from tests.core.reading import read
from xidwatch.core.context import start
from xidwatch.core.record import Record


@pytest.mark.parametrize(
    ("line", "kind", "pci", "facts"),
    [
        (
            "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@n1)",
            "driver_load", None, {"version": "580.95.05", "flavour": "open"},
        ),
        (
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Dec 30 17:44:08 UTC 2024",
            "driver_load", None, {"version": "550.144.03", "flavour": "proprietary"},
        ),
        ("nvidia-nvlink: Unregistered Nvlink Core, major device number 507", "driver_unload", None, {}),
        ("NVRM: GPU at PCI:0000:3b:00: "
         "GPU-1b2c3d4e-0000-1111-2222-3333", "gpu_identity", "0000:3b:00.0", {"uuid": "GPU-1b2c3d4e-0000-1111-2222-3333"}),
        ("NVRM: GPU at 0000:03:00: "
         "GPU-1b2c3d4e-0000-1111-2222-3333", "gpu_identity", "0000:03:00.0", {"uuid": "GPU-1b2c3d4e-0000-1111-2222-3333"}),
        ("NVRM: GPU Board Serial Number: 1650123000001", "gpu_identity", None, {"serial": "1650123000001"}),
        ("Linux version 6.8.0-60-generic (buildd@x) (gcc 13) #63-Ubuntu SMP", "boot", None, {"kernel": "6.8.0-60-generic"}),
        ("Hypervisor detected: KVM", "machine", None, {"hypervisor": "KVM"}),
        ("Booting paravirtualized kernel on bare hardware", "machine", None, {"paravirt": "bare hardware"}),
        ("DMI: Amazon EC2 p5.48xlarge/, BIOS 1.0 10/16/2017", "machine", None, {"dmi": "Amazon EC2 p5.48xlarge/"}),
        ("systemd[1]: Detected virtualization kvm.", "machine", None, {"virtualization": "kvm"}),
        (
            "pci 0000:1b:00.0: [10de:2330] type 00 class 0x030200",
            "machine", "0000:1b:00.0", {"device": "2330", "device_class": "0x030200"},
        ),
        ("pci 0000:07:00.0: [10de:22a3] type 00 class 0x068000 conventional PCI "
         "endpoint", "machine", "0000:07:00.0", {"device": "22a3", "device_class": "0x068000"}),
        ("nvidia-nvswitch3: using MSI", "machine", None, {"nvswitch": "using MSI"}),
        ("nvidia-nvswitch: Probing device 0000:07:00.0, Vendor Id = 0x10de", "machine", None, {"nvswitch": "Probing device"}),
        ("ipmi_si IPI0001:00: IPMI kcs interface initialized", "machine", None, {"bmc": "IPMI kcs interface initialized"}),
        ("[drm] Initialized nvidia-drm 0.0.0 20160202 for 0000:1b:00.0 on minor "
         "1", "machine", None, {"nvidia_drm": "Initialized nvidia-drm"}),
        ("Kernel panic - not syncing: softlockup: hung tasks", "panic", None, {"reason": "softlockup: hung tasks"}),
        ("pcieport 0000:16:01.0: pciehp: Slot(5): Link "
         "Down", "pcie_hotplug", "0000:16:01.0", {"slot": "5", "state": "Link Down"}),
        ("pcieport 0000:16:01.0: pciehp: Slot(5-1): Card not "
         "present", "pcie_hotplug", "0000:16:01.0", {"slot": "5-1", "state": "Card not present"}),
        (
            "nvidia 0000:3b:00.0: Unable to change power state from D3cold to D0, device inaccessible",
            "pcie_hotplug", "0000:3b:00.0", {"state": "Unable to change power state from D3cold to D0,"},
        ),
        ("vfio-pci 0000:3b:00.0: not ready 1023ms after bus reset; "
         "waiting", "pcie_hotplug", "0000:3b:00.0", {"state": "not ready 1023ms after bus reset; waiting"}),
        (
            "pcieport 0000:16:01.0: DPC: containment event, status:0x1f01: unmasked uncorrectable error detected",
            "pcie_dpc", "0000:16:01.0", {"reason": "containment event, status:0x1f01: unmasked uncorrectable error detected"},
        ),
        ("mlx5_core 0000:53:00.0 enp83s0f0np0: Link down", "link_down", "0000:53:00.0", {"interface": "enp83s0f0np0"}),
        ("mlx5_core 0000:53:00.0 mlx5_3: Port: 1 Link DOWN", "link_down", "0000:53:00.0", {"interface": "mlx5_3"}),
        ("bond0: (slave enp83s0f0np0): link status definitely down, disabling "
         "slave", "link_down", None, {"interface": "enp83s0f0np0"}),
        ("bonding: bond0: link status definitely down for interface eth1, disabling "
         "it", "link_down", None, {"interface": "eth1"}),
        ("ixgbe 0000:05:00.0 eth2: NIC Link is Down", "link_down", "0000:05:00.0", {"interface": "eth2"}),
        ("bnxt_en 0000:41:00.0 eno1: NIC Link is Down", "link_down", "0000:41:00.0", {"interface": "eno1"}),
        ("igb 0000:05:00.0: eth2: igb: eth2 NIC Link is Up 1000 Mbps", "link_up", "0000:05:00.0", {"interface": "eth2"}),
        ("mlx5_core 0000:53:00.0 mlx5_3: Port: 1 Link ACTIVE", "link_up", "0000:53:00.0", {"interface": "mlx5_3"}),
        (
            "DMAR: [DMA Read NO_PASID] Request device [3b:00.0] fault addr 0x7f000 [fault reason 0x06] PTE Read access "
            "is not set",
            "iommu_fault", "0000:3b:00.0", {},
        ),
        ("nvidia 0000:3b:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0011 address=0x0 "
         "flags=0x0000]", "iommu_fault", "0000:3b:00.0", {"event": "IO_PAGE_FAULT"}),
        ("AMD-Vi: Event logged [IO_PAGE_FAULT device=3b:00.0 domain=0x0011 "
         "address=0x0]", "iommu_fault", "0000:3b:00.0", {"event": "IO_PAGE_FAULT"}),
        ("arm-smmu-v3 arm-smmu-v3.0.auto: event 0x10 received:", "iommu_fault", None, {"event": "event 0x10 received"}),
        ("nvme nvme0: I/O 12 QID 0 timeout, completion "
         "polled", "storage_error", None, {"device": "nvme0", "state": "I/O 12 QID 0 timeout"}),
        ("blk_update_request: I/O error, dev sda, sector 123", "storage_error", None, {"device": "sda"}),
        ("Buffer I/O error on dev dm-0, logical block 1, lost async page write", "storage_error", None, {"device": "dm-0"}),
        ("EXT4-fs error (device nvme0n1p2): ext4_find_entry:1531", "storage_error", None, {"device": "nvme0n1p2"}),
        ("nfs: server 10.0.0.27 not responding, still "
         "trying", "storage_error", None, {"device": "10.0.0.27", "state": "not responding"}),
        ("LustreError: 11-0: scratch-OST0001: operation failed", "storage_error", None, {}),
        (
            "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c sp 00007f7c error 4 in "
            "libnccl.so.2[7f7c7ac00000+d3d3000]",
            "segfault", None, {"process": "pt_main_thread", "pid": "2536443", "library": "libnccl.so.2"},
        ),
        ("BUG: workqueue lockup - pool cpus=0 flags=0x4 nice=0 stuck for 197s!", "workqueue_lockup", None, {"stuck_s": "197"}),
        ("StreamTrans #72 invoked oom-killer: gfp_mask=0x140dca", "oom_invoked", None, {"process": "StreamTrans #72"}),
        ("kauditd_printk_skb: 6 callbacks suppressed", "suppressed", None, {"function": "kauditd_printk_skb", "count": "6", "of": "other"}),
        ("/dev/kmsg buffer overrun, some messages lost.", "suppressed", None, {"of": "all"}),
        (
            "   1 | 11/30/2026 | 02:13:05 | Power Unit #0x77 | Power off/down | Asserted",
            "sel", None,
            {"date": "11/30/2026", "clock": "02:13:05", "sensor": "Power Unit "
                "#0x77", "state": "Power off/down", "direction": "Asserted"},
        ),
    ],
)  # fmt: skip
def test_context(line: str, kind: str, pci: str | None, facts: dict[str, str]) -> None:
    """Each line gives its kind, the device that it names, and its facts by name."""
    events, (context,) = read(line)
    assert [] == events
    assert (kind, pci, facts) == (context.kind, str(context.pci) if context.pci else None, dict(context.facts))


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: GPU Board Serial Number: 0",
        "NVRM: GPU Board Serial Number:",
        "EXT4-fs (md127p3): re-mounted 0f3cd65a-338b-4574-bba3-ecef214e1917 r/w. Quota mode: none.",
        "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
        "nvme nvme0: pci function 0002:01:00.0",
        "nfs: server 10.0.0.27 OK",
        "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
    ],
)
def test_no_context(line: str) -> None:
    """Ordinary notices, and a serial number that is none, say nothing."""
    assert ([], []) == read(line)


def test_only_the_kernel_speaks_for_the_kernel() -> None:
    """A program's line gives no kernel context; the journal's own losses and ipmitool's output are its to tell."""
    like = Record(text="", program="systemd-journald", timed=True)
    assert ([], []) == read("mlx5_core 0000:53:00.0 enp83s0f0np0: Link down", like)
    assert ["suppressed"] == [item.kind for item in read("Missed 12 kernel messages", like)[1]]


@pytest.mark.parametrize(
    "line",
    [
        "usb 1-1: Product: ib0: Link down",
        "usb 1-1: SerialNumber: mlx5_core 0000:53:00.0 ib0: Link down",
        "usb 1-1: Manufacturer: Kernel panic - not syncing: x",
        "usb 1-1: Product: a:1:1 [0] NCCL WARN NET/IB : Got async event : port error",
        "input: eth0: NIC Link is Down as /devices/pci0000:00/0000:00:14.0/usb1/1-1/input/input3",
        "ib0: Link down[4711]: segfault at 0 ip 0000000000400000 sp 00007f0000000000 error 4",
        "ib0: Link down invoked oom-killer: gfp_mask=0x140dca",
        "audit: type=1300 comm=x mlx5_core 0000:53:00.0 ib0: Link down",
        "systemd-journald[1]: said: bond0: (slave eth1): link status definitely down",
        "device name is 0000:5e:00.0: DPC: containment event, status:0x1f01",
        "a text with EXT4-fs error (device sda1): in it",
        "a text with nvme nvme0: I/O 12 QID 0 timeout in it",
    ],
)
def test_words_that_somebody_chose(line: str) -> None:
    """What a device, a process or another message only quotes is no cause of anything."""
    _, found = read(line)
    assert not {"link_down", "panic", "nccl_network_error", "pcie_dpc", "storage_error"} & {context.kind for context in found}


@pytest.mark.parametrize(
    ("line", "interface"),
    [
        ("mlx5_core 0000:53:00.0: mlx5_3: Port: 1 Link DOWN", "mlx5_3"),
        ("e1000e: eth0 NIC Link is Down", "eth0"),
        ("tg3 0000:01:00.0 eth0: Link is down", "eth0"),
        ("r8169 0000:02:00.0 enp2s0: Link is Down", "enp2s0"),
        ("mlx4_en: ib0: Link Down", "ib0"),
        ("i40e 0000:3d:00.0 eno1: NIC Link is Down", "eno1"),
        ("ib0: link down", "ib0"),
        ("ionic 0000:b5:00.0 ens3: Link down", "ens3"),
        ("igb 0000:02:00.0 eno1: igb: eno1 NIC Link is Down", "eno1"),
    ],
)
def test_links_of_many_drivers(line: str, interface: str) -> None:
    """Each driver has its own way to begin; the interface is the one that went down."""
    _, (context,) = read(line)
    assert ("link_down", interface) == (context.kind, dict(context.facts)["interface"])


def test_what_a_program_wrote_into_the_kernels_ring() -> None:
    """A line that user space wrote into /dev/kmsg is no link that went down; one of the kernel's is."""
    line = "mlx5_core 0000:53:00.0 ib0: Link down"
    assert [] == list(start(Record(text=line, trusted="no")))
    assert ["link_down"] == [context.kind for context in start(Record(text=line, trusted="kernel"))]


def test_a_device_that_is_called_like_an_error() -> None:
    """A device's name is no program's error."""
    events, found = read("usb 1-1: Product: CUDA error: unspecified launch failure")
    assert not events
    assert not found
