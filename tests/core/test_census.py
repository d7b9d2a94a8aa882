"""Which GPUs should be there, and how each slot stands."""

from __future__ import annotations

from dataclasses import replace

from tests.nvml.states import HEALTHY
from xidwatch.core import nvrm
from xidwatch.core.census import Absences, Card, Slot, card_of, census, missed, noted, remembered, slot_object, too_few
from xidwatch.core.codec import decode, encode
from xidwatch.core.event import Context
from xidwatch.core.gpu import Lost, NotFound, Place, RowRemap, Unresponsive
from xidwatch.core.pci import PciAddress
from xidwatch.core.record import Record

SLOT, OTHER = PciAddress(0, 0x1B, 0), PciAddress(0, 0x43, 0)
CARD = card_of(HEALTHY)


def the(slots: tuple[Slot, ...], pci: PciAddress) -> Slot:
    """The slot with this address."""
    return next(slot for slot in slots if slot.pci == pci)


def test_a_card_that_is_gone_is_missed_by_name() -> None:
    """Known before and not on the bus: missing, with serial and UUID, also when NVML was never asked in this run."""
    assert CARD is not None
    slot = the(census({OTHER: "nvidia"}, {}, {SLOT: CARD}, {}), SLOT)
    assert slot.missing
    assert "NVIDIA H100 80GB HBM3, serial 1652923000100, GPU-00000000-0000-4000-8000-000000000000, module 1" == str(slot.card)


def test_a_card_that_was_given_away_is_not_missed() -> None:
    """Bound to vfio-pci for a guest, it is on the bus and no fault; unknown to the driver that holds it, it is one."""
    lost = NotFound(at_us=5, last_good=HEALTHY)
    given, unknown = (census({SLOT: driver}, {SLOT: lost}, {SLOT: Card()}, {}) for driver in ("vfio-pci", "nvidia"))
    assert [False, True] == [the(slots, SLOT).missing for slots in (given, unknown)]


def test_silence_is_not_absence() -> None:
    """A GPU that does not answer, or is lost but on the bus, is not missing; its answer says what it is."""
    silent = Unresponsive(since_us=7, last_good=HEALTHY, why="stuck")
    gone = Lost(code=15, text="lost", at_us=9, last_good=HEALTHY)
    slots = census({SLOT: "nvidia", OTHER: "nvidia"}, {SLOT: silent, OTHER: gone}, {}, {OTHER: True})
    shown = [slot_object(slot) for slot in slots]
    assert [(False, "unresponsive", 7, None), (False, "lost", 9, True)] == [
        (one["missing"], one["answer"], one["since_us"], one["config_space_dead"]) for one in shown
    ]
    assert ["1652923000100"] * 2 == [one["serial"] for one in shown]


def test_fewer_than_configured_are_missed_without_a_name() -> None:
    """A node that should have eight and never showed more than two lacks six in slots that nobody knows."""
    slots = census({SLOT: "nvidia", OTHER: None}, {}, {}, {})
    assert [6, 0, 0] == [too_few(slots, expected) for expected in (8, 2, None)]


def test_history_gives_the_cards_back() -> None:
    """What was noted is remembered; what the driver printed of a GPU is no card of ours."""
    placed = replace(
        HEALTHY, identity=replace(HEALTHY.identity, place=Place(chassis_serial="182", slot=9, tray=4, host=1, module_id=2))
    )
    for card in (card_of(placed), Card()):
        assert card is not None
        kept = decode(encode(noted(SLOT, card, 1, "n1")))
        assert isinstance(kept, Context)
        assert (SLOT, card) == remembered(kept)
    printed = Context(
        kind="gpu_identity", record=Record(text="GPU at PCI:0000:1b:00: GPU-1"), pci=SLOT, facts=(("uuid", "GPU-1"),)
    )
    assert remembered(printed) is None


def test_readings_are_null_where_nobody_told() -> None:
    """A slot without an answer has no reading, and none is false or 0."""
    shown = slot_object(the(census({SLOT: "nvidia"}, {}, {}, {}), SLOT))
    assert {None} == {
        shown[name] for name in ("answer", "row_remap_pending", "recovery_action", "persistence_mode", "pcie_width")
    }
    pending = replace(HEALTHY, row_remap=RowRemap(correctable=0, uncorrectable=1, pending=True, failed=False))
    assert slot_object(the(census({SLOT: "nvidia"}, {SLOT: pending}, {}, {}), SLOT))["row_remap_pending"] is True


def test_only_what_stays_away_is_told_and_once_each_time() -> None:
    """A bus that is scanned anew takes a card away for a moment; one that stays away is told once, and again after it was back."""
    gone, there = census({}, {}, {SLOT: CARD or Card()}, {}), census({SLOT: "nvidia"}, {}, {SLOT: CARD or Card()}, {})
    absences = Absences()
    told = [
        [times for _, times in absences.news(slots, now_s, 60.0)]
        for now_s, slots in (
            (0, gone),
            (30, there),
            (40, gone),
            (99, gone),
            (100, gone),
            (500, gone),
            (600, there),
            (700, gone),
            (760, gone),
        )
    ]
    assert [[], [], [], [], [0], [], [], [], [1]] == told
    assert absences.due_s(800, 60.0) is None


def test_what_nvml_never_knew_is_not_missed() -> None:
    """In a container NVML shows some of the GPUs of the bus: only one that it showed before can go missing there."""
    lost = {SLOT: NotFound(at_us=5)}
    for card, expected in ((Card(), 0), (CARD or Card(), 1)):
        absences = Absences()
        absences.news(census({SLOT: "nvidia"}, lost, {SLOT: card}, {}), 0, 60.0)
        assert expected == len(absences.news(census({SLOT: "nvidia"}, lost, {SLOT: card}, {}), 61, 60.0))


def test_a_missing_card_is_an_event_that_a_log_could_tell() -> None:
    """What the daemon writes of it reads back as the same event, with slot, serial and UUID."""
    (slot,) = census({}, {}, {SLOT: CARD or Card()}, {})
    event = missed(slot, Record(text="", wall_us=7))
    (again,) = nvrm.start(event.record)
    assert (event.what, event.pci, event.gpu_uuid) == (again.what, again.pci, again.gpu_uuid)
    assert "serial 1652923000100" in event.record.text


def test_a_refused_reading_does_not_make_a_card_forgotten() -> None:
    """The serial that NVML does not tell this time is still the card's; another card inherits nothing."""
    card = CARD or Card()
    assert card == replace(card, serial="").with_what_is_known(card)
    other = Card(gpu_uuid="GPU-x")
    assert other == other.with_what_is_known(card)
