"""What the GPU says of an incident: confirmed, contradicted, or left open, by readings before and now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.nvml.states import HEALTHY
from xidwatch.core.answered import driver_word
from xidwatch.core.census import Slot
from xidwatch.core.gpu import (
    EccCount,
    GpuAnswer,
    GpuState,
    Location,
    Lost,
    NotFound,
    NotSupported,
    NvLink,
    Pcie,
    ResetRequired,
    RowRemap,
    SpareRows,
    Sram,
    UnknownError,
    Unresponsive,
)
from xidwatch.core.pci import PciAddress
from xidwatch.core.standing import SETTLED_US, Check, Seen, checks

SLOT = PciAddress(0, 0x1B, 0)
NOW_US, START_US = 2_000_000, 1_500_000
NOW = replace(HEALTHY, at_us=NOW_US)
NO = NotSupported(code=3, text="no", at_us=0)


def seen(answer: GpuAnswer | None, before: GpuState | None = None, **slot: object) -> Seen:
    """A GPU on the bus that answers so now, and said `before` before the incident."""
    values: dict[str, object] = {"pci": SLOT, "on_bus": True, "driver": "nvidia", "answer": answer, **slot}
    return Seen(slot=Slot(**values), before=before, since_us=START_US)  # type: ignore[arg-type]


def answers(*names: str, of: Seen) -> dict[str, Check]:
    """The answers by reading."""
    return {check.name: check for check in checks(names, of, NOW_US)}


def ecc(aggregate: int, volatile: int, where: Location = "dram", state: GpuState = NOW) -> GpuState:
    """Uncorrected errors, the volatile ones in one place."""
    counts = (("aggregate", "total", aggregate), ("volatile", "total", volatile), ("volatile", where, volatile))
    found = tuple(
        EccCount(lifetime=lifetime, severity="uncorrected", location=place, count=count)  # type: ignore[arg-type]
        for lifetime, place, count in counts
    )
    return replace(state, ecc=found)


def rows(*, pending: bool, failed: bool = False) -> GpuState:
    """One row remapped for an uncorrectable error."""
    return replace(NOW, row_remap=RowRemap(correctable=0, uncorrectable=1, pending=pending, failed=failed))


def pcie(replays: int, width: int = 16) -> Pcie:
    """A link that has replayed so often."""
    return replace(HEALTHY.pcie, replays=replays, width=width)


def link(errors: int, *, active: bool = True) -> NvLink:
    """Link 3 with so many CRC errors."""
    return NvLink(
        link=3, active=active, remote=NO, replays=NO, recoveries=NO, crc_errors=errors, recovery_failures=NO, symbol_errors=NO
    )


LOST = Lost(code=15, text="lost", at_us=NOW_US, last_good=HEALTHY)
SILENT = Unresponsive(since_us=START_US, last_good=HEALTHY, why="deadline 10 s passed; child 7 still blocked")


@pytest.mark.parametrize(
    ("name", "expected", "says", "of"),
    [
        ("gpu_not_found", "confirmed", "config space reads all ones", seen(LOST, dead=True)),
        ("gpu_not_found", "confirmed", "NVML has lost it", seen(LOST, dead=None)),
        ("gpu_not_found", "confirmed", "not on the PCI bus", seen(None, on_bus=False)),
        ("gpu_not_found", "confirmed", "does not find it", seen(NotFound(at_us=NOW_US))),
        ("gpu_not_found", "confirmed", "fails at every question", seen(UnknownError(code=999, text="x", at_us=NOW_US))),
        ("gpu_not_found", "contradicted", "come back", seen(NOW)),
        ("gpu_not_found", "contradicted", "must be reset", seen(ResetRequired(code=16, text="x", at_us=NOW_US))),
        ("gpu_not_found", "open", "still blocked", seen(SILENT)),
        ("gpu_not_found", "confirmed", "config space reads all ones", seen(SILENT, dead=True)),
        ("gpu_state", "confirmed", "config space reads all ones", seen(SILENT, dead=True)),
        ("gpu_state", "open", "still blocked", seen(SILENT, dead=False)),
        ("gpu_not_found", "open", "not been asked since", seen(HEALTHY)),
        ("gpu_not_found", "open", "was not asked", seen(None)),
        ("ecc_uncorrected", "confirmed", "3 uncorrected errors in its life, 2 before, since the driver was loaded in dram 1",
         seen(ecc(3, 1), ecc(2, 0))),
        ("ecc_uncorrected", "contradicted", "still 2 uncorrected errors", seen(ecc(2, 0), ecc(2, 0))),
        ("ecc_uncorrected", "open", "l2 cache 2", seen(ecc(5, 2, "l2_cache"))),
        ("ecc_uncorrected", "open", "not known", seen(ecc(5, 0))),
        ("ecc_uncorrected", "open", "cannot be counted", seen(NOW)),
        ("row_remap_pending", "confirmed", "drain and reset", seen(rows(pending=True), HEALTHY)),
        ("row_remap_pending", "contradicted", "no row waits", seen(rows(pending=False))),
        ("row_remap_pending", "confirmed", "page waits",
         seen(replace(NOW, row_remap=NO, retired_pages=replace(HEALTHY.retired_pages, pending=True)))),
        ("row_remap_pending", "open", "cannot be read", seen(replace(NOW, row_remap=NO))),
        ("row_remap_failure", "confirmed", "RMA", seen(rows(pending=True, failed=True))),
        ("row_remap_failure", "contradicted", "not set", seen(rows(pending=True))),
        ("sram_threshold", "confirmed", "field diagnostic",
         seen(replace(NOW, sram=Sram(threshold_exceeded=True, uncorrected_parity=5, uncorrected_secded=0, corrected=0)))),
        ("sram_threshold", "open", "cannot be read", seen(NOW)),
        ("nvml_stuck", "confirmed", "still blocked", seen(SILENT)),
        ("nvml_stuck", "contradicted", "NVML answers", seen(NOW)),
        ("nvml_stuck", "open", "not been asked since", seen(HEALTHY)),
        ("nvlink_errors", "open", "whether before", seen(replace(NOW, nvlinks=(link(0, active=False),)))),
        ("nvlink_errors", "confirmed", "link 3 down",
         seen(replace(NOW, nvlinks=(link(0, active=False),)), replace(HEALTHY, nvlinks=(link(0),)))),
        ("nvlink_errors", "contradicted", "link 3 down as before",
         seen(replace(NOW, nvlinks=(link(0, active=False),)), replace(HEALTHY, nvlinks=(link(0, active=False),)))),
        ("nvlink_errors", "confirmed", "link 3 down",
         replace(seen(replace(NOW, nvlinks=(link(0, active=False),))), links=frozenset({3}))),
        ("nvlink_errors", "confirmed", "errors rose on link 3",
         seen(replace(NOW, nvlinks=(link(9),)), replace(HEALTHY, nvlinks=(link(4),)))),
        ("nvlink_errors", "contradicted", "have not moved",
         seen(replace(NOW, nvlinks=(link(4),)), replace(HEALTHY, nvlinks=(link(4),)))),
        ("nvlink_errors", "open", "how many before", seen(replace(NOW, nvlinks=(link(4),)))),
        ("pcie_replays", "confirmed", "90 PCIe replays, 2 before",
         seen(replace(NOW, pcie=pcie(90)), replace(HEALTHY, pcie=pcie(2)))),
        ("pcie_replays", "contradicted", "2 before", seen(replace(NOW, pcie=pcie(2)), replace(HEALTHY, pcie=pcie(2)))),
        ("pcie_replays", "confirmed", "8 lanes wide instead of 16", seen(replace(NOW, pcie=pcie(2, width=8)))),
        ("recovery_action", "confirmed", "recovery action: reset gpu", seen(replace(NOW, recovery_action=1))),
        ("recovery_action", "contradicted", "none", seen(NOW)),
        ("recovery_action", "open", "cannot be read", seen(replace(NOW, recovery_action=NO))),
    ],
)  # fmt: skip
def test_reading_against_the_log(name: str, expected: str, says: str, of: Seen) -> None:
    """Each reading answers for itself and says what it rests on; a GPU that is silent proves no fault but its silence."""
    check = answers(name, of=of)[name]
    assert expected == check.answer, check.said
    assert says in check.said


def test_a_bank_near_its_end_is_told_before_it_fails() -> None:
    """Whenever memory is asked about, spare rows are: a bank with one left is named while remapping still works."""
    near = replace(rows(pending=True), spare_rows=SpareRows(max=2550, high=9, partial=0, low=1, none=0))
    found = answers("row_remap_pending", of=seen(near))
    assert "1 memory bank has one spare row left, 7 of 8 used" in found["spare_rows"].said
    assert "confirmed" == found["spare_rows"].answer
    assert "spare_rows" not in answers("gpu_not_found", of=seen(near))


def test_what_it_said_before_the_incident_is_no_answer() -> None:
    """A sample from before the first line is a baseline, never a confirmation."""
    old = replace(rows(pending=True), at_us=START_US - 1)
    assert "open" == answers("row_remap_pending", of=seen(old))["row_remap_pending"].answer


@pytest.mark.parametrize(
    ("action", "rung", "words"),
    [
        ("reset_gpu", "reset_gpu", "asks the same"),
        ("drain_and_reset", "reset_gpu", "asks the same"),
        ("reboot_node", "reset_gpu", "asks more"),
        ("reset_gpu", "reboot_node", "asks less"),
        ("none", "reset_gpu", "asks nothing"),
        ("none", "none", None),
        ("none", "restart_app", None),
        ("action_9", "reset_gpu", "asks less"),
    ],
)
def test_the_drivers_demand_stands_beside_ours(action: str, rung: str, words: str | None) -> None:
    """Agreement and disagreement are both said; only two that ask nothing need no word."""
    said = driver_word({SLOT: action}, rung)
    assert (words is None and said is None) or (words is not None and said is not None and words in said)


@pytest.mark.parametrize("name", ["gpu_not_found", "nvml_stuck", "row_remap_pending", "recovery_action"])
def test_a_good_answer_too_soon_leaves_it_open(name: str) -> None:
    """Asked in the same moment a GPU that is about to be lost still answers: no reading speaks against the log yet."""
    soon, later = (replace(seen(NOW), last_us=NOW_US - ago_us) for ago_us in (SETTLED_US - 1, SETTLED_US))
    assert ["open", "contradicted"] == [answers(name, of=of)[name].answer for of in (soon, later)]
