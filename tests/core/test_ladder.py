"""Which commands and preconditions a rung has on which machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.nvml.states import HEALTHY
from xidwatch.core.classify import RuleTable
from xidwatch.core.gpu import GpuState, Mig
from xidwatch.core.gpumachine import told_by_gpus
from xidwatch.core.ladder import Place, action_at, holds
from xidwatch.core.machine import Machine
from xidwatch.core.rule import Applies
from xidwatch.rulefiles import load_rules


@pytest.fixture(scope="module")
def rules() -> RuleTable:
    """The shipped rules."""
    return load_rules()


def typed(rules: RuleTable, rung: str, xids: tuple[int, ...] = (), **machine: Any) -> list[str]:
    """The commands of a rung on a machine."""
    place = Place(machine=Machine(**machine), xids=frozenset(xids))
    return [" ".join(command.argv) for command in action_at(rules, rung, place).commands]


def needs(rules: RuleTable, rung: str, **machine: Any) -> str:
    """Its preconditions as one text; `lost` says whether the GPU is."""
    place = Place(lost=machine.pop("lost", None), machine=Machine(**machine))
    return "\n".join(need.say for need in action_at(rules, rung, place).preconditions)


@pytest.mark.parametrize(
    ("applies", "place", "answer"),
    [
        (Applies(), Place(), True),
        (Applies(setting=("guest",)), Place(), None),
        (Applies(setting=("guest",)), Place(machine=Machine(setting="guest")), True),
        (Applies(setting=("guest",)), Place(machine=Machine(setting="bare_metal")), False),
        (Applies(setting=("guest",), mig=True), Place(machine=Machine(setting="guest")), None),
        (Applies(setting=("guest",), mig=True), Place(machine=Machine(mig=False)), False),
        (Applies(mig=False), Place(machine=Machine(mig=False)), True),
        (Applies(lost=True), Place(lost=False), False),
        (Applies(xids=(119, 120)), Place(xids=frozenset((31, 119))), True),
        (Applies(xids=(119, 120)), Place(xids=frozenset((31,))), False),
        (Applies(xids=(119, 120)), Place(), None),
    ],
)
def test_a_condition_has_three_answers(applies: Applies, place: Place, *, answer: bool | None) -> None:
    """It holds, it does not, or nobody knows; one thing that speaks against it is enough."""
    assert answer is holds(applies, place)


def test_switching_the_gsp_off_is_offered_where_it_is_possible_only(rules: RuleTable) -> None:
    """Never with the open module, on Blackwell, for another fault, or where the module is not known."""
    proprietary = typed(rules, "update_software", xids=(119,), flavour="proprietary", generation="ampere")
    assert any("NVreg_EnableGpuFirmware=0" in line for line in proprietary)
    elsewhere: tuple[dict[str, str], ...] = (
        {"flavour": "open"},
        {"flavour": "open", "generation": "hopper"},
        {"flavour": "proprietary", "generation": "blackwell"},
        {},
    )
    for machine in elsewhere:
        assert not any("NVreg" in line for line in typed(rules, "update_software", xids=(119,), **machine))
    assert not any("NVreg" in line for line in typed(rules, "update_software", xids=(62,), flavour="proprietary"))


@pytest.mark.parametrize("rung", ["reset_gpu", "reset_fabric"])
def test_fabric_manager_matters_on_ampere_only(rules: RuleTable, rung: str) -> None:
    """There it is started first where it stands still; Hopper and newer are told nothing of it."""
    start = "systemctl start nvidia-fabricmanager"
    stopped: dict[str, Any] = {"generation": "ampere", "nvswitch": True, "fabric_manager": "stopped"}
    assert start in typed(rules, rung, **stopped)
    assert "Fabric Manager must run" in needs(rules, rung, **stopped)
    for generation in ("hopper", "blackwell"):
        assert "Fabric Manager" not in needs(rules, rung, generation=generation, nvswitch=True)
        assert start not in typed(rules, rung, generation=generation, nvswitch=True, fabric_manager="stopped")
    assert "Fabric Manager" not in needs(rules, rung, generation="ampere", nvswitch=True, fabric_manager="running")
    assert "Fabric Manager must run" in needs(rules, rung)


def test_peers_are_reset_together_before_ampere_only(rules: RuleTable) -> None:
    """The sentence stays where the generation is not known."""
    assert "Before Ampere" in needs(rules, "reset_gpu", generation="pre_ampere")
    assert "Before Ampere" in needs(rules, "reset_gpu")
    assert "Before Ampere" not in needs(rules, "reset_gpu", generation="ampere")


def test_a_guest_has_no_power_of_its_own(rules: RuleTable) -> None:
    """Its cloud or hypervisor stops and starts it; no BMC is spoken of."""
    assert "aws ec2 stop-instances --instance-ids <instance>" in typed(
        rules, "power_cycle", setting="guest", hypervisor="amazon", bmc=False
    )
    assert "gcloud compute instances stop <vm>" in typed(rules, "power_cycle", setting="guest", hypervisor="google")
    assert "az vm deallocate --resource-group <group> --name <vm>" in typed(
        rules, "power_cycle", setting="guest", hypervisor="microsoft"
    )
    assert "virsh destroy <vm>" in typed(rules, "power_cycle", setting="guest", hypervisor="kvm")
    for rung in ("power_cycle", "reboot_node", "check_host", "check_seating", "check_power_thermal"):
        for name in ("amazon", "google", "microsoft", "vmware", "kvm", "unknown"):
            assert not any("ipmitool" in line for line in typed(rules, rung, setting="guest", hypervisor=name, bmc=False))
        assert any("ipmitool" in line for line in typed(rules, rung, setting="bare_metal"))


def test_a_guests_power_cycle_always_has_a_command(rules: RuleTable) -> None:
    """Whatever the hypervisor is called, known or not."""
    for name in (None, "kvm", "xen", "vmware", "amazon", "google", "microsoft", "unknown"):
        action = action_at(rules, "power_cycle", Place(machine=Machine(setting="guest", hypervisor=name)))
        assert any(command.destructive for command in action.commands), name


def test_a_mig_share_is_reset_from_the_host(rules: RuleTable) -> None:
    """The guest's own reset is not offered; where only a part is known, the limit is told."""
    inside = action_at(rules, "reset_gpu", Place(machine=Machine(setting="guest", vgpu=True, mig=True)))
    assert "from the host" in inside.say
    assert "nvidia-smi --gpu-reset -i <gpu>" not in [" ".join(command.argv) for command in inside.commands]
    assert "do it from the host" in needs(rules, "reset_gpu", setting="guest", mig=True)
    assert "do it from the host" not in needs(rules, "reset_gpu", setting="bare_metal", mig=True)


def test_jobs_are_drained_by_the_scheduler_that_is_there(rules: RuleTable) -> None:
    """Slurm or Kubernetes; neither where it is not known which."""
    for rung in ("reset_gpu", "reboot_node", "power_cycle", "drain_p2p", "reset_fabric", "reload_driver"):
        slurm, kubernetes, unknown = (
            typed(rules, rung, scheduler=name) for name in ("slurm", "kubernetes", None)
        )  # fmt: skip
        assert slurm[0].startswith("scontrol update nodename=<node> state=drain reason=")
        assert "kubectl cordon <node>" == kubernetes[0]
        assert not any(line.startswith(("scontrol", "kubectl")) for line in unknown)


def test_in_a_container_it_is_done_on_the_node(rules: RuleTable) -> None:
    """Said only where xidwatch runs in one."""
    for rung in ("reset_gpu", "reload_driver", "reboot_node", "power_cycle", "restart_fabric_manager"):
        assert "on the node itself" in needs(rules, rung, container=True)
        assert "on the node itself" not in needs(rules, rung, container=False)
        assert "on the node itself" not in needs(rules, rung)


def test_a_lost_gpu_is_spoken_of_where_one_is_lost(rules: RuleTable) -> None:
    """A GPU on the bus needs no warning that it cannot be reset."""
    assert "fell off the bus" in needs(rules, "reset_gpu", lost=True)
    assert "fell off the bus" not in needs(rules, "reset_gpu", lost=False)
    assert "fell off the bus" in needs(rules, "reset_gpu", lost=None)


def test_what_holds_the_device_is_narrowed(rules: RuleTable) -> None:
    """nvidia_drm and the persistence daemon are named where they are there."""
    assert "nvidia_drm" in needs(rules, "reset_gpu", nvidia_drm=True)
    assert "nvidia_drm" not in needs(rules, "reset_gpu", nvidia_drm=False)
    assert "systemctl stop nvidia-persistenced" in typed(rules, "reset_gpu", persistence=True)
    assert "systemctl stop nvidia-persistenced" not in typed(rules, "reset_gpu")


def named(name: str) -> GpuState:
    """A healthy card of another name."""
    return replace(HEALTHY, identity=replace(HEALTHY.identity, name=name))


def test_the_gpus_own_answers_add_what_files_do_not_tell() -> None:
    """MIG on one of them is MIG; shares by their names; two generations, or silence, are not known."""
    on, off = (replace(HEALTHY, mig=Mig(enabled=state, pending=state, devices=())) for state in (True, False))
    assert (True, False, "hopper") == (told_by_gpus([on, off]).mig, told_by_gpus([on, off]).vgpu, told_by_gpus([on]).generation)
    assert told_by_gpus([off]).mig is False
    assert told_by_gpus([named("GRID A100-10C")]).vgpu is True
    assert told_by_gpus([on, named("NVIDIA A100-SXM4-80GB")]).generation is None
    assert Machine() == told_by_gpus([])
