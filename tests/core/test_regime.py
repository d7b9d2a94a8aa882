"""What binds a GPU's work, from one sample."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.nvml.states import HEALTHY
from xidwatch.core.classify import RuleTable
from xidwatch.core.codec import decode, encode
from xidwatch.core.engine import Engine
from xidwatch.core.event import Context, Event
from xidwatch.core.gpu import Activity, GpuState, Mig, NotSupported, Utilization
from xidwatch.core.pci import PciAddress
from xidwatch.core.record import Record
from xidwatch.core.regime import Look, Regime, latest_before, look

REFUSED = NotSupported(code=3, text="no", at_us=0)


def sample(busy: float, memory: float, watts: float | None, gpm: tuple[float, float, float] | None) -> GpuState:
    """One sample of a card with a limit of 700 W; `gpm` is SMs, tensor cores, DRAM."""
    return replace(
        HEALTHY,
        utilization=Utilization(gpu_ratio=busy, memory_ratio=memory),
        power_watts=REFUSED if watts is None else watts,
        activity=REFUSED if gpm is None else Activity(sm_ratio=gpm[0], tensor_ratio=gpm[1], dram_ratio=gpm[2], over_s=0.11),
    )


@pytest.mark.parametrize(
    ("regime", "busy", "memory", "watts", "gpm"),
    [
        ("memory_bound", 1.0, 0.62, 455.0, (0.92, 0.08, 0.71)),  # decode
        ("compute_bound", 1.0, 0.30, 690.0, (0.96, 0.63, 0.31)),  # prefill
        ("compute_bound", 1.0, 0.20, 640.0, (0.95, 0.0, 0.12)),  # FP64 without tensor cores
        ("overhead_bound", 0.58, 0.07, 262.0, (0.22, 0.06, 0.09)),  # small kernels with gaps between
        ("overhead_bound", 1.0, 0.10, 300.0, (0.35, 0.10, 0.12)),  # kernels back to back that fill few SMs
        ("spinning", 1.0, 0.0, 141.0, (0.12, 0.0, 0.0)),  # a collective that polls
        ("idle", 0.0, 0.0, 71.0, (0.0, 0.0, 0.0)),
        ("unknown", 1.0, 0.1, 400.0, (0.9, 0.1, 0.1)),  # integer work at middling power
        ("memory_bound", 1.0, 0.55, 455.0, None),
        ("compute_bound", 1.0, 0.25, 690.0, None),
        ("overhead_bound", 0.41, 0.12, 262.0, None),
        ("spinning", 1.0, 0.0, 141.0, None),
        ("unknown", 1.0, 0.0, None, None),  # without power nobody can tell polling from work
        ("unknown", 1.0, 0.2, 350.0, None),
        ("idle", 0.03, 0.0, 71.0, None),
    ],
)
def test_figures_tell_the_regime(
    regime: Regime, busy: float, memory: float, watts: float | None, gpm: tuple[float, float, float] | None
) -> None:
    """The nearer roof binds; full utilisation at the power of an idle card is a wait."""
    assert regime == look(sample(busy, memory, watts, gpm)).regime


def test_figures_stand_beside_the_answer() -> None:
    """A person sees what decided."""
    assert "utilisation 100%, tensor cores 0%, DRAM 0% of their peaks, 141 of 700 W" == (
        look(sample(1.0, 0.0, 141.0, (0.12, 0.0, 0.0))).why
    )


def test_power_cap_stands_for_power() -> None:
    """A card that is held at its limit works, also when the limit is set low."""
    capped = replace(sample(1.0, 0.2, 350.0, None), clock_reasons=("sw_power_cap",))
    assert "compute_bound" == look(capped).regime


@pytest.mark.parametrize(
    "state",
    [
        replace(HEALTHY, mig=Mig(enabled=True, pending=True, devices=())),
        replace(HEALTHY, utilization=REFUSED),
    ],
)
def test_no_figures_no_regime(state: GpuState) -> None:
    """With MIG on, or without utilisation, nothing is known, and the reason is said."""
    assert "unknown" == look(state).regime
    assert look(state).why


def test_last_look_before_the_fault_counts() -> None:
    """Neither one after the fault nor one that is minutes older."""
    looks = [Look(at_us=at, regime="idle", why="") for at in (1_000_000, 400_000_000, 520_000_000)]
    assert looks[1] == latest_before(looks, 500_000_000)
    assert latest_before(looks[:1], 500_000_000) is None
    assert latest_before([], 500_000_000) is None


def test_regime_stands_in_the_incident_also_after_a_restart(rules: RuleTable) -> None:
    """What the GPU did before its fault is context of its incident, and nobody else's; history replays it."""
    at_us = 1_796_000_000_000_000
    context = Context(
        kind="regime",
        record=Record(text="spinning: utilisation 100%", wall_us=at_us - 40_000_000),
        pci=PciAddress(0, 0x3B, 0),
        facts=(("regime", "spinning"),),
    )
    engine = Engine(rules)
    kept: list[tuple[str, Event | Context]] = []
    for seq, bus in enumerate(("3b", "5e")):
        text = f"NVRM: Xid (PCI:0000:{bus}:00): 79, GPU has fallen off the bus."
        record = Record(text=text, wall_us=at_us + seq * 60_000_000, seq=seq, trusted="kernel")
        engine.feed("kmsg", record, at_us)
        kept += [(one.identity, one.item) for one in engine.settle(at_us, everything=True)]
    engine.note(context)
    before = {one.incident.gpus: one.incident for one in engine.changes(at_us)}
    again = Engine(rules)
    for identity, item in [*kept, ("regime", decode(encode(context)))]:
        again.replay(identity, item, at_us)
    after = {one.incident.gpus: one.incident for one in again.changes(at_us)}
    assert {("0000:3b:00.0",): ("spinning",), ("0000:5e:00.0",): ()} == {
        gpus: tuple(dict(one.facts)["regime"] for one in incident.context) for gpus, incident in before.items()
    }
    assert {gpus: one.context for gpus, one in before.items()} == {gpus: one.context for gpus, one in after.items()}
