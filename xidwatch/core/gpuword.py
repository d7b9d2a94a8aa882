"""What a GPU answered now, in the words of `check`."""

from __future__ import annotations

import re
from typing import TypeVar

from xidwatch.core.answered import action_word
from xidwatch.core.gpu import (
    Fabric,
    GpuAnswer,
    GpuState,
    Mig,
    Refused,
    RowRemap,
    SpareRows,
    Sram,
    Unresponsive,
    hardware_slowdown,
)
from xidwatch.core.node import Gpu

T = TypeVar("T")
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def gpu_of(pci: str, answer: GpuAnswer) -> Gpu:
    """One answer; a reading that NVML refused is not known."""
    if not isinstance(answer, GpuState):
        since_us = answer.since_us if isinstance(answer, Unresponsive) else answer.at_us
        return Gpu(pci=pci, answer=_WORD.sub("_", type(answer).__name__).lower(), since_us=since_us)
    rows, sram, mig, fabric = answer.row_remap, answer.sram, answer.mig, answer.fabric
    return Gpu(
        pci=pci,
        answer="state",
        gpu_uuid=_known(answer.identity.gpu_uuid),
        serial=_known(answer.identity.serial),
        recovery_action=action_word(answer.recovery_action) if isinstance(answer.recovery_action, int) else None,
        row_remap_pending=rows.pending if isinstance(rows, RowRemap) else None,
        row_remap_failed=rows.failed if isinstance(rows, RowRemap) else None,
        banks_without_rows=answer.spare_rows.none if isinstance(answer.spare_rows, SpareRows) else None,
        banks_with_one_row=answer.spare_rows.low if isinstance(answer.spare_rows, SpareRows) else None,
        pages_pending=_known(answer.retired_pages.pending),
        sram_threshold_exceeded=sram.threshold_exceeded if isinstance(sram, Sram) else None,
        ecc_enabled=_known(answer.ecc_enabled),
        mig_enabled=mig.enabled if isinstance(mig, Mig) else None,
        mig_pending=mig.pending if isinstance(mig, Mig) else None,
        persistence_mode=_known(answer.persistence_mode),
        fabric=fabric.probe if isinstance(fabric, Fabric) else None,
        fabric_status=fabric.status if isinstance(fabric, Fabric) else None,
        slowed_by=hardware_slowdown(_known(answer.clock_reasons)),
        temperature_celsius=_known(answer.temperature_celsius),
        nvlinks=len(answer.nvlinks) or None,
        nvlinks_down=tuple(link.link for link in answer.nvlinks if not link.active) if answer.nvlinks else None,
        pcie_width=_known(answer.pcie.width),
        pcie_max_width=_known(answer.pcie.max_width),
    )


def _known(reading: T | Refused) -> T | None:
    return None if isinstance(reading, Refused) else reading
