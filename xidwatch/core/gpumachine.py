"""What kind of machine it is by the word of its GPUs; apart from `ladder`, which a log alone needs too."""

from __future__ import annotations

from collections.abc import Sequence

from xidwatch.core.gpu import GpuState, Mig
from xidwatch.core.machine import Machine, common_generation, generation_of_name, is_vgpu


def told_by_gpus(states: Sequence[GpuState]) -> Machine:
    """What the GPUs' own answers add: MIG, shares of a card, the generation where all names tell the same."""
    migs = [state.mig.enabled for state in states if isinstance(state.mig, Mig)]
    names = [state.identity.name for state in states if isinstance(state.identity.name, str)]
    whole = bool(states) and len(names) == len(states)
    return Machine(
        mig=True if True in migs else False if migs and len(migs) == len(states) else None,
        vgpu=any(map(is_vgpu, names)) if whole else None,
        generation=common_generation(set(map(generation_of_name, names))) if whole else None,
    )
