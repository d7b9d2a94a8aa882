"""What `xidwatch evidence` gets from NVML, whatever state NVML is in."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from tests.nvml.fake import ALONE, SLOTS, Fake, children
from xidwatch.evidence import Subject, nvml
from xidwatch.evidencecli import _serials

GPU = Subject(pci=SLOTS[1], uuid=None, here=True)


@pytest.mark.parametrize(
    ("scenario", "why"), [("healthy", None), ("remap_failure", None), ("lost", "lost"), ("reset_required", "requires restart")]
)
def test_an_answer_is_evidence_also_where_it_is_an_error(scenario: str, why: str | None, fake: Fake) -> None:
    """A state, or NVML's own word for why there is none."""
    fake.use(scenario)
    items = [nvml(Subject(pci=pci, uuid=None, here=True), released=False, means=ALONE) for pci in SLOTS]
    assert {"got"} == {item.outcome for item in items}
    said = " ".join(item.why or "" for item in items)
    assert (why or "") in said and (why is not None or not said.strip())


def test_serial_numbers_are_found_to_be_masked(fake: Fake) -> None:
    """The card's own serial stands in what NVML told."""
    item = nvml(GPU, released=False, means=ALONE)
    assert item.data is not None and [] != list(_serials(item.data))


def test_a_call_that_never_returns_is_told(fake: Fake) -> None:
    """It is given up at the deadline, its process named and left alone."""
    fake.use("blocked")
    items = [
        nvml(Subject(pci=pci, uuid=None, here=True), released=False, deadline_s=1.5, means=ALONE)
        for pci in (SLOTS[0], SLOTS[3])
    ]
    for pid in children():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert ["got", "timed out"] == [item.outcome for item in items]
    assert "still blocked" in (items[1].why or "")


def test_an_operator_who_released_nvml_is_obeyed() -> None:
    """Nothing is asked then, nor of a GPU that is elsewhere."""
    assert "not there" == nvml(GPU, released=True).outcome
    assert "not there" == nvml(Subject(pci=SLOTS[0], uuid=None, here=False), released=False).outcome
