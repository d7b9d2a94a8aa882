"""A healthy card as a value, for tests that change one thing about it."""

from __future__ import annotations

from xidwatch.core.gpu import GpuState, Identity, Memory, Mig, NotSupported, Pcie, RetiredPages, RowRemap, Utilization
from xidwatch.core.pci import PciAddress

_NOT = NotSupported(code=3, text="not supported", at_us=0)

HEALTHY = GpuState(
    identity=Identity(
        pci=PciAddress(0, 0x1B, 0),
        index=0,
        gpu_uuid="GPU-00000000-0000-4000-8000-000000000000",
        serial="1652923000100",
        name="NVIDIA H100 80GB HBM3",
        part_number=_NOT,
        vbios_version=_NOT,
        module_id=1,
        place=_NOT,
    ),
    at_us=1_000_000,
    persistence_mode=True,
    recovery_action=0,
    ecc_enabled=True,
    ecc=(),
    sram=_NOT,
    retired_pages=RetiredPages(corrected=_NOT, uncorrected=_NOT, pending=_NOT),
    row_remap=RowRemap(correctable=0, uncorrectable=0, pending=False, failed=False),
    spare_rows=_NOT,
    clock_reasons=(),
    pcie=Pcie(
        generation=5,
        width=16,
        max_generation=5,
        max_width=16,
        replays=0,
        replay_rollovers=0,
        correctable=0,
        non_fatal=0,
        fatal=0,
    ),
    nvlinks=(),
    processes=(),
    memory=Memory(total_bytes=80 << 30, used_bytes=0, free_bytes=80 << 30),
    utilization=Utilization(gpu_ratio=0.98, memory_ratio=0.61),
    activity=_NOT,
    temperature_celsius=52,
    memory_celsius=48,
    power_watts=612.0,
    power_limit_watts=700.0,
    mig=Mig(enabled=False, pending=False, devices=()),
    gsp=_NOT,
    fabric=_NOT,
)
"""An H100 SXM without ECC errors, at work."""
