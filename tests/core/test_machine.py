"""What kind of machine it is: generations, hypervisors, and what each line of a log adds."""

from __future__ import annotations

import pytest

from xidwatch.core.machine import (
    UNKNOWN,
    Machine,
    generation_of_device,
    generation_of_name,
    hypervisor_of_dmi,
    learn,
    merged,
)


@pytest.mark.parametrize(
    ("device", "generation"),
    [(0x1DB4, "pre_ampere"), (0x1EB8, "pre_ampere"), (0x20B0, "ampere"), (0x20F1, "ampere"), (0x2236, "ampere"),
     (0x2235, "ampere"), (0x25B6, "ampere"), (0x26B5, "ada"), (0x27B8, "ada"), (0x2330, "hopper"), (0x233B, "hopper"),
     (0x2342, "hopper"), (0x2901, "blackwell"), (0x2941, "blackwell"), (0x2BB5, "blackwell"), (0x31C2, "blackwell"),
     (0x3182, "blackwell"), (0x5000, None), (0, None)],
)  # fmt: skip
def test_the_device_number_tells_the_generation(device: int, generation: str | None) -> None:
    """Numbers of pci.ids; one not given out yet is not guessed."""
    assert generation == generation_of_device(device)


@pytest.mark.parametrize(
    ("name", "generation"),
    [("NVIDIA H100 80GB HBM3", "hopper"), ("NVIDIA A100-SXM4-80GB", "ampere"), ("NVIDIA A10", "ampere"), ("NVIDIA L4", "ada"),
     ("NVIDIA L40S", "ada"), ("Tesla V100-SXM2-32GB", "pre_ampere"), ("NVIDIA B200", "blackwell"), ("NVIDIA GH200 480GB", "hopper"),
     ("NVIDIA GB200", "blackwell"), ("NVIDIA GeForce RTX 4090", "ada"), ("NVIDIA RTX A6000", "ampere"),
     ("NVIDIA RTX 6000 Ada Generation", "ada"), ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "blackwell"), ("Tesla T4", "pre_ampere"),
     ("NVIDIA H20", "hopper"), ("NVIDIA Graphics Device", None)],
)  # fmt: skip
def test_the_name_tells_the_generation(name: str, generation: str | None) -> None:
    """The vendor's product names."""
    assert generation == generation_of_name(name)


@pytest.mark.parametrize(
    ("maker", "product", "hypervisor"),
    [("QEMU", "Standard PC (Q35 + ICH9, 2009)", "kvm"), ("Amazon EC2", "p5.48xlarge", "amazon"), ("Amazon EC2", "g5g.metal", None),
     ("Amazon EC2", "c7i.metal-24xl", None), ("Google", "Google Compute Engine", "google"),
     ("Microsoft Corporation", "Virtual Machine", "microsoft"), ("Microsoft Corporation", "Surface Book", None),
     ("VMware, Inc.", "VMware Virtual Platform", "vmware"), ("Supermicro", "SYS-821GE-TNHR", None), ("NVIDIA", "DGXH100", None),
     ("Xen", "HVM domU", "xen"), ("Oracle Corporation", "ORACLE SERVER E5-2c", None), ("", "", None)],
)  # fmt: skip
def test_dmi_names_tell_the_hypervisor(maker: str, product: str, hypervisor: str | None) -> None:
    """As systemd-detect-virt reads them; a bare-metal machine of a cloud and of a software house is no guest."""
    assert hypervisor == hypervisor_of_dmi(maker, product)


def test_lines_of_a_boot_add_up() -> None:
    """Driver, guest, GPU and switch each come from a line of their own."""
    machine = UNKNOWN
    for facts in (
        {"paravirt": "bare hardware"},
        {"device": "2330", "device_class": "0x030200"},
        {"device": "22a3", "device_class": "0x068000"},
        {"version": "580.95.05", "flavour": "open"},
        {"fabric_manager": "Started"},
        {"bmc": "kcs"},
    ):
        machine = learn(machine, facts)
    assert (
        Machine(flavour="open", driver_version="580.95.05", generation="hopper", nvswitch=True, fabric_manager="running",
                setting="bare_metal", bmc=True) == machine
    )  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "hypervisor"),
    [({"hypervisor": "KVM"}, "kvm"), ({"hypervisor": "Microsoft Hyper-V"}, "microsoft"), ({"hypervisor": "Xen HVM"}, "xen"),
     ({"virtualization": "vmware"}, "vmware"), ({"dmi": "Amazon EC2 p4d.24xlarge/"}, "amazon"), ({"paravirt": "KVM"}, "kvm"),
     ({"dmi": "QEMU Standard PC (Q35 + ICH9, 2009)/unknown"}, "kvm")],
)  # fmt: skip
def test_a_guest_is_known_by_any_of_its_lines(facts: dict[str, str], hypervisor: str) -> None:
    """One sign of a hypervisor outweighs a kernel that did not notice it."""
    machine = learn(learn(UNKNOWN, {"paravirt": "bare hardware"}), facts)
    assert ("guest", hypervisor) == (machine.setting, machine.hypervisor)


def test_containers_and_real_machines_are_no_guests() -> None:
    """`Detected virtualization docker` and the names of servers say nothing of a hypervisor."""
    for facts in (
        {"virtualization": "docker"},
        {"dmi": "Supermicro SYS-821GE-TNHR/X13DEG-OAD"},
        {"dmi": "Amazon EC2 c7i.metal-24xl/"},
    ):
        assert learn(UNKNOWN, facts).setting is None


def test_two_generations_in_one_machine_are_unknown() -> None:
    """What holds for one of them may not be said of the other."""
    machine = learn(
        learn(UNKNOWN, {"device": "20b0", "device_class": "0x030200"}), {"device": "2330", "device_class": "0x030200"}
    )
    assert machine.generation is None


def test_what_is_known_outlives_what_is_not() -> None:
    """Merging takes the better word where there is one."""
    assert Machine(flavour="open", setting="guest", bmc=False) == merged(
        Machine(flavour="open", setting="bare_metal"), Machine(setting="guest", bmc=False)
    )
