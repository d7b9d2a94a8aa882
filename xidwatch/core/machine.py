"""What kind of machine it is, as far as it decides which commands are right: known from a log or from the host itself.

Every field may be unknown (None); unknown rules nothing out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from xidwatch.core.pattern import lazy

Flavour = Literal["open", "proprietary"]
Generation = Literal["pre_ampere", "ampere", "ada", "hopper", "blackwell"]
Setting = Literal["bare_metal", "guest"]
FabricManager = Literal["running", "stopped", "absent"]
Scheduler = Literal["slurm", "kubernetes"]

_GENERATIONS: tuple[tuple[int, Generation], ...] = (
    (0x2900, "blackwell"), (0x2680, "ada"), (0x2400, "ampere"), (0x2300, "hopper"), (0x2200, "ampere"),
    (0x2180, "pre_ampere"), (0x20B0, "ampere"), (0x2080, "ampere"), (0x0001, "pre_ampere"),
)  # fmt: skip
"""First PCI device number of each run of numbers, descending; pci.ids, vendor 10de."""
_LAST_NUMBER = 0x31FF
_NAMES: tuple[tuple[str, Generation], ...] = (
    ("blackwell", "blackwell"), ("gb200", "blackwell"), ("gb300", "blackwell"), ("b100", "blackwell"), ("b200", "blackwell"),
    ("b300", "blackwell"), ("gb10", "blackwell"), ("rtx 50", "blackwell"),
    ("gh200", "hopper"), ("h100", "hopper"), ("h200", "hopper"), ("h800", "hopper"), ("h20", "hopper"),
    ("ada generation", "ada"), ("l40s", "ada"), ("l40", "ada"), ("l20", "ada"), ("l4", "ada"), ("l2", "ada"), ("rtx 40", "ada"),
    ("a100", "ampere"), ("a800", "ampere"), ("a40", "ampere"), ("a30", "ampere"), ("a16", "ampere"), ("a10g", "ampere"),
    ("a10", "ampere"), ("a2", "ampere"), ("rtx 30", "ampere"),
    ("rtx a", "ampere"), ("v100", "pre_ampere"), ("t4", "pre_ampere"), ("p100", "pre_ampere"), ("p40", "pre_ampere"),
    ("p4", "pre_ampere"), ("k80", "pre_ampere"), ("titan", "pre_ampere"), ("rtx 20", "pre_ampere"), ("gtx", "pre_ampere"),
)  # fmt: skip
_SHARE = lazy(r"(?:^|\s)GRID |-\d{1,3}(?:-\d{1,3})?[QCAB](?:ME)?$")
_DISPLAY, _BRIDGE = 0x03, 0x0680
_BY_MAKER = {
    "qemu": "kvm", "red hat": "kvm", "amazon ec2": "amazon", "google": "google", "microsoft corporation": "microsoft",
    "vmware": "vmware", "vmw": "vmware", "xen": "xen", "innotek gmbh": "virtualbox", "oracle corporation": "virtualbox",
    "openstack": "kvm", "alibaba cloud": "kvm", "tencent cloud": "kvm", "kubevirt": "kvm", "bochs": "bochs", "nutanix": "kvm",
    "parallels": "parallels", "digitalocean": "kvm", "hetzner": "kvm", "scaleway": "kvm", "apple virtualization": "apple",
}  # fmt: skip
"""How the DMI names of virtual machines' makers begin. Source: systemd, src/basic/virt.c, detect_vm_dmi_vendor."""
_PROOF_IN_PRODUCT = {
    "microsoft": ("virtual machine",), "virtualbox": ("virtualbox",), "google": ("google compute engine",),
    "nutanix": ("ahv",), "hetzner": ("vserver",),
}  # fmt: skip
"""Makers that build real machines too: what the product must be called to be a virtual one."""
_CLOUDS, _BELOW_CLOUDS = ("amazon", "google"), ("kvm", "xen")
HYPERVISORS = frozenset((*_BY_MAKER.values(), "acrn", "jailhouse", "unknown"))
"""The words for them."""
_CONTAINERS = frozenset(
    ("lxc", "lxc-libvirt", "systemd-nspawn", "docker", "podman", "rkt", "wsl", "proot", "pouch", "openvz", "container-other")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One node. None: not known.

    Attributes:
        flavour: Of the loaded kernel module.
        driver_version: `580.95.05`.
        generation: Of its GPUs, where they are all of one.
        nvswitch: Whether the system sees NVSwitches.
        fabric_manager: The service of that name.
        mig: Whether a GPU is cut into instances.
        vgpu: Whether its GPUs are shares of a card that the host keeps.
        setting: bare_metal, or guest of a hypervisor.
        hypervisor: kvm, vmware, amazon, google, microsoft ...; None on bare metal.
        container: Whether xidwatch itself runs inside a container.
        bmc: Whether a management controller answers to this system.
        persistence: Whether a persistence daemon holds the devices open.
        nvidia_drm: Whether that module is loaded.
        scheduler: What starts jobs here.
    """

    flavour: Flavour | None = None
    driver_version: str | None = None
    generation: Generation | None = None
    nvswitch: bool | None = None
    fabric_manager: FabricManager | None = None
    mig: bool | None = None
    vgpu: bool | None = None
    setting: Setting | None = None
    hypervisor: str | None = None
    container: bool | None = None
    bmc: bool | None = None
    persistence: bool | None = None
    nvidia_drm: bool | None = None
    scheduler: Scheduler | None = None


UNKNOWN = Machine()


def merged(first: Machine, better: Machine) -> Machine:
    """What both know together; where both know it, `better` wins."""
    known: dict[str, Any] = {
        field.name: value for field in fields(better) if (value := getattr(better, field.name)) is not None
    }
    return replace(first, **known)


def generation_of_device(device: int) -> Generation | None:
    """The generation of a GPU by its PCI device number (0x2330 is an H100: hopper); None for numbers not given out yet."""
    if not 0 < device <= _LAST_NUMBER:
        return None
    return next(generation for first, generation in _GENERATIONS if device >= first)


def generation_of_name(name: str) -> Generation | None:
    """The generation of a GPU by its name, `NVIDIA H100 80GB HBM3`; None when it says nothing of it."""
    words = f" {name.lower().replace('-', ' ').replace('/', ' ')} "
    return next((generation for part, generation in _NAMES if f" {part}" in words and _ends(words, f" {part}")), None)


def _ends(words: str, part: str) -> bool:
    """Whether the part is a whole word there, or a family's beginning (`rtx 40` of `rtx 4090`, `rtx a` of `rtx a6000`)."""
    after = words[words.index(part) + len(part) :][:1]
    return " " in part.strip() or part.strip() == "gtx" or not after.isalnum()


def is_vgpu(name: str) -> bool:
    """Whether a GPU's name is that of a share: `GRID A100-10C`, `NVIDIA A40-48Q`.

    Source: NVIDIA vGPU user guide, vGPU types.
    """
    return _SHARE.search(name) is not None


def common_generation(generations: set[Generation | None]) -> Generation | None:
    """That of all of them; None when they differ or one is not known."""
    return next(iter(generations)) if len(generations) == 1 else None


def hypervisor_of_dmi(maker: str, product: str) -> str | None:
    """The hypervisor that a machine's DMI names tell of; None for a real machine.

    A bare-metal machine of a cloud has the cloud's name too: `Amazon EC2`, `p5.metal`.
    """
    low, called = maker.strip().lower(), product.strip().lower()
    found = next((name for start, name in _BY_MAKER.items() if low.startswith(start)), None)
    if found is None or called.partition("/")[0].endswith("metal") or ".metal-" in called:
        return None
    proof = _PROOF_IN_PRODUCT.get(found)
    return found if proof is None or any(part in called for part in proof) else None


def learn(machine: Machine, facts: Mapping[str, str]) -> Machine:
    """The machine with what one line of its log adds.

    A guest is believed over bare metal, since a guest's kernel may not notice.
    Facts by name: version, flavour, hypervisor, dmi, virtualization, paravirt, device and device_class (hexadecimal),
    fabric_manager, bmc, nvidia_drm, nvswitch, name (of a GPU).
    """
    if (version := facts.get("version")) is not None:
        flavour: Flavour = "open" if facts.get("flavour") == "open" else "proprietary"
        machine = replace(machine, driver_version=version, flavour=flavour)
    if (hypervisor := _hypervisor(facts)) is not None:
        # A cloud's machine is called after the cloud, and its kernel sees the KVM or Xen below.
        named = machine.hypervisor if hypervisor in _BELOW_CLOUDS and machine.hypervisor in _CLOUDS else hypervisor
        machine = replace(machine, setting="guest", hypervisor=named)
    elif facts.get("paravirt") == "bare hardware" and machine.setting is None:
        machine = replace(machine, setting="bare_metal")
    if "device" in facts:
        machine = _with_device(machine, int(facts["device"], 16), int(facts.get("device_class", "0"), 16))
    if (service := facts.get("fabric_manager")) is not None:
        machine = replace(machine, fabric_manager="running" if service.startswith("Started") else "stopped")
    if (generation := generation_of_name(facts.get("name", ""))) is not None:
        machine = replace(machine, generation=generation if machine.generation in (None, generation) else None)
    if is_vgpu(facts.get("name", "")):
        machine = replace(machine, vgpu=True)
    if "nvswitch" in facts:
        machine = replace(machine, nvswitch=True)
    if "bmc" in facts:
        machine = replace(machine, bmc=True)
    return replace(machine, nvidia_drm=True) if "nvidia_drm" in facts else machine


def _hypervisor(facts: Mapping[str, str]) -> str | None:
    if (named := facts.get("hypervisor")) is not None:
        low = named.lower()
        return next((word for word in ("kvm", "vmware", "xen", "acrn", "jailhouse") if word in low), "microsoft"
                    if "hyper" in low else low.split()[0])  # fmt: skip
    if (named := facts.get("virtualization")) is not None:
        return None if named in ("none", *_CONTAINERS) else named
    if (paravirt := facts.get("paravirt")) is not None and paravirt != "bare hardware":
        return _hypervisor({"hypervisor": paravirt})
    if (dmi := facts.get("dmi")) is not None:
        # Maker, space, product: a cloud's name stands at the beginning, its `.metal` in the rest.
        return hypervisor_of_dmi(dmi, dmi.partition("/")[0])
    return None


def _with_device(machine: Machine, device: int, device_class: int) -> Machine:
    if device_class >> 8 == _BRIDGE:
        return replace(machine, nvswitch=True)
    if device_class >> 16 != _DISPLAY:
        return machine
    generation = generation_of_device(device)
    if machine.generation not in (None, generation):
        return replace(machine, generation=None)
    return replace(machine, generation=generation)
