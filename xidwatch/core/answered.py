"""What a GPU's readings mean for an incident, without the readings themselves: for the core that works on a log alone."""

from __future__ import annotations

from collections.abc import Mapping

from xidwatch.core.pci import PciAddress
from xidwatch.core.rule import RUNGS

RECOVERY_ACTIONS = (
    "none", "reset_gpu", "reboot_node", "drain_p2p", "drain_and_reset", "recover_imex", "bus_reset", "system_reboot",
)  # fmt: skip
"""By number: NVML_GPU_RECOVERY_ACTION_* (nvml.h, field 230), the same as Xid 154 prints."""
RECOVERING = frozenset({"gpu_not_found", "row_remap_pending", "recovery_action"})
"""Readings that once confirmed a fault and then no longer do: the GPU has been brought back."""
_RUNG_OF = {"drain_and_reset": "reset_gpu", "system_reboot": "reboot_node"}
"""The driver's words for which ours differ."""


def driver_word(actions: Mapping[PciAddress, str], recovery: str) -> str | None:
    """What the driver asks for beside what we ask for, and whose word is the stronger; None where it asks for nothing.

    A GPU whose driver is content while we ask for something is told of, too: neither is hidden.
    """
    said = []
    for pci, action in sorted(actions.items()):
        rung = _RUNG_OF.get(action, action)
        words = action.replace("_", " ")
        if rung == recovery:
            said.append(f"the driver itself asks the same of {pci}: {words}" if rung != "none" else "")
        elif rung == "none":
            said.append(f"the driver itself asks nothing of {pci}; the vendor's catalogue asks for this step all the same")
        else:
            more = "more" if rung in RUNGS and RUNGS.index(rung) > RUNGS.index(recovery) else "less"
            said.append(f"the driver itself asks {more} of {pci}: {words}")
    return "; ".join(filter(None, said)) or None
