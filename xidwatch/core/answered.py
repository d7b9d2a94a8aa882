"""What a GPU's readings mean for an incident, without the readings themselves: for the core that works on a log alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from xidwatch.core.event import Context
from xidwatch.core.pci import PciAddress
from xidwatch.core.rule import RUNGS, Rule

if TYPE_CHECKING:
    from xidwatch.core.incident import Finding

RECOVERY_ACTIONS = (
    "none", "reset_gpu", "reboot_node", "drain_p2p", "drain_and_reset", "recover_imex", "bus_reset", "system_reboot",
)  # fmt: skip
"""By number: NVML_GPU_RECOVERY_ACTION_* (nvml.h, field 230), the same as Xid 154 prints."""
STATE = "gpu_state"
"""The reading that sums the others up: whether anything speaks against the GPU."""
ASIDE = frozenset({"sram_threshold", "recovery_action"})
"""Readings that bear a fault out, and whose absence does not speak against it."""
LASTING = frozenset({"row_remap_failure", "sram_threshold"})
"""What lives in the GPU's InfoROM: while a reading says so, no boot, reset or silence ends the incident."""
OTHER_UNTIL = "other_until_us"
"""Fact of a new card in a slot: when the slot was last heard of before it, so that lines since then are of the new card."""
PROOF_S = 3600.0
"""So long must a GPU have been well before what was doubtful counts as over."""
_RUNG_OF = {"drain_and_reset": "reset_gpu", "system_reboot": "reboot_node"}
"""The driver's words for which ours differ."""


def action_word(number: int) -> str:
    """The driver's recovery action, `reset_gpu`; `action_9` for one that is newer than this table."""
    return RECOVERY_ACTIONS[number] if 0 <= number < len(RECOVERY_ACTIONS) else f"action_{number}"


def gpus_say(root: Rule, findings: Iterable[Finding], checks: Iterable[Context]) -> Literal["confirmed", "contradicted"] | None:
    """Whether the GPUs bear a fault out: one that does is enough; None where they say nothing that settles it.

    Args:
        root: Its rule.
        findings: All that belongs to it; asked are the GPUs of those of this rule, all of them where one names none.
        checks: What the GPUs say, one reading each.
    """
    struck = {finding.event.pci for finding in findings if finding.rule.id == root.id}
    about = [dict(check.facts) for check in checks if check.pci in struck or None in struck]
    # What it once confirmed stays true when it is over.
    named = [facts for facts in about if facts.get("check") in root.confirm]
    answers = {(facts.get("check"), facts.get("was") or facts.get("answer")) for facts in named}
    if any(answer == "confirmed" for _, answer in answers):
        return "confirmed"
    return "contradicted" if any(answer == "contradicted" and name not in ASIDE for name, answer in answers) else None


def worth_telling(checks: Sequence[Mapping[str, str]], *, driver_told: bool) -> list[tuple[str, Mapping[str, str]]]:
    """What GPUs say of an incident, each with its answer in a word.

    Left out is the summary where a reading of that GPU answers the same. That the driver asks something is left out where
    `driver_told` says that it is told elsewhere; that it asks nothing, always: it is told where it is set beside what we ask.

    Args:
        checks: As an incident's `checks` have them: with "gpu", "said", "check", "answer", and "was" where it was so before.
    """
    answered = {(check["gpu"], check["answer"]) for check in checks if check["check"] != STATE}
    shown = []
    for check in checks:
        name, answer = check["check"], check["answer"]
        content = name == "recovery_action" and (driver_told or answer != "confirmed")
        if not content and not (name == STATE and (check["gpu"], answer) in answered):
            shown.append(("no longer" if check.get("was") else answer, check))
    return shown


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
            # A program that is to be started anew is nothing that the driver would ask of a GPU.
            if recovery in RUNGS and RUNGS.index(recovery) >= RUNGS.index("reset_gpu"):
                said.append(f"the driver itself asks nothing of {pci}; the vendor's catalogue asks for this step all the same")
        else:
            more = "more" if rung in RUNGS and RUNGS.index(rung) > RUNGS.index(recovery) else "less"
            said.append(f"the driver itself asks {more} of {pci}: {words}")
    return "; ".join(filter(None, said)) or None
