from __future__ import annotations

from collections.abc import Iterable

import pytest

from xidwatch.core import sxid
from xidwatch.core.event import Event, MalformedLine, SxidDetail
from xidwatch.core.record import Record


def line(switch: int, rest: str) -> str:
    """A line of one switch, whose bus number is its own number."""
    return f"nvidia-nvswitch{switch}: SXid (PCI:0000:c{switch}:00.0): {rest}"


def record(text: str, at_ms: int = 0) -> Record:
    """A record of this text; without a time unless `at_ms` gives one."""
    return Record(text=text, timed=True, seq=at_ms, since_boot_us=at_ms * 1000)


def fold(records: Iterable[Record]) -> list[Event]:
    """Events of records that arrive one after another, each taken by the latest event that wants it."""
    events: list[Event] = []
    for item in records:
        for place in reversed(range(len(events))):
            if (richer := sxid.extend(events[place], item)) is not None:
                events[place] = richer
                break
        else:
            events.extend(sxid.start(item))
    return events


@pytest.mark.parametrize(
    ("rest", "code", "detail"),
    [
        (
            "22013, Non-fatal, Link 52 Minion Link DLREQ interrupt",
            22013,
            SxidDetail(message="Link 52 Minion Link DLREQ interrupt", switch=1, severity_word="Non-fatal", link=52),
        ),
        (
            "20034, Fatal, Link 30 LTSSM Fault Up (First)",
            20034,
            SxidDetail(message="Link 30 LTSSM Fault Up (First)", switch=1, severity_word="Fatal", link=30),
        ),
        (
            "12021, Correctable, Link 04 x",
            12021,
            SxidDetail(message="Link 04 x", switch=1, severity_word="Correctable", link=4),
        ),
        (
            "23001, Fatal, some text, instance=1, chiplet=0",
            23001,
            SxidDetail(message="some text, instance=1, chiplet=0", switch=1, severity_word="Fatal", instance=1),
        ),
        (
            "10003, Fatal, unhandled interrupt in host(0)",
            10003,
            SxidDetail(message="unhandled interrupt in host(0)", switch=1, severity_word="Fatal"),
        ),
        (
            "10004, NVSWITCH Temperature 96C | TSENSE WARN Threshold 95C",
            10004,
            SxidDetail(message="NVSWITCH Temperature 96C | TSENSE WARN Threshold 95C", switch=1),
        ),
        (
            "20034, Severity 1 Engine instance 30 Sub-engine instance 00",
            20034,
            SxidDetail(
                message="Severity 1 Engine instance 30 Sub-engine instance 00", switch=1, severity_word="Fatal", instance=30
            ),
        ),
        (
            "20034, Data {0x00000050, 0x00000001}",
            20034,
            SxidDetail(message="Data {0x00000050, 0x00000001}", switch=1, registers=(80, 1)),
        ),
    ],
)
def test_every_form_is_an_event(rest: str, code: int, detail: SxidDetail) -> None:
    """Each wording, and a continuation line whose text was lost, gives number, switch address and details."""
    (event,) = sxid.start(record(line(1, rest)))
    assert (code, "0000:c1:00.0", detail) == (event.code, str(event.pci), event.detail)


def test_the_continuation_lines_belong_to_the_text() -> None:
    """Text, `Severity` and two `Data` lines of one switch and number are one event of four lines."""
    (event,) = fold(
        record(line(1, rest), at_ms)
        for at_ms, rest in enumerate(
            [
                "22013, Non-fatal, Link 60 Minion Link DLREQ interrupt",
                "22013, Severity 0 Engine instance 60 Sub-engine instance 00",
                "22013, Data {0x0000003c, 0x00000001}",
                "22013, Data {0x00000002}",
            ]
        )
    )
    assert 4 == event.lines
    assert (
        SxidDetail(
            message="Link 60 Minion Link DLREQ interrupt",
            switch=1,
            severity_word="Non-fatal",
            link=60,
            instance=60,
            registers=(0x3C, 1, 2),
        )
        == event.detail
    )


@pytest.mark.parametrize(
    "second",
    [
        record(line(2, "22013, Severity 0 Engine instance 60 Sub-engine instance 00"), 1),
        record(line(1, "20034, Severity 0 Engine instance 60 Sub-engine instance 00"), 1),
        record(line(1, "22013, Severity 0 Engine instance 61 Sub-engine instance 00"), 1),
        record(line(1, "22013, Severity 0 Engine instance 60 Sub-engine instance 00"), 5000),
        record(line(1, "22013, Non-fatal, Link 60 Minion Link DLREQ interrupt"), 1),
    ],
)
def test_other_switches_numbers_links_and_times_are_other_events(second: Record) -> None:
    """A continuation joins only its own switch, number, link and second; a repeated text is a new event."""
    first = record(line(1, "22013, Non-fatal, Link 60 Minion Link DLREQ interrupt"))
    assert 2 == len(fold([first, second]))


def test_interleaved_switches_are_kept_apart() -> None:
    """Lines of two switches that come mixed are folded each into its own event."""
    events = fold(
        [
            record(line(1, "20034, Fatal, Link 30 LTSSM Fault Up"), 0),
            record(line(2, "20034, Fatal, Link 31 LTSSM Fault Up"), 1),
            record(line(1, "20034, Severity 1 Engine instance 30 Sub-engine instance 00"), 2),
            record(line(2, "20034, Data {0x1}"), 3),
        ]
    )
    assert [("0000:c1:00.0", 2), ("0000:c2:00.0", 2)] == [(str(event.pci), event.lines) for event in events]


def test_an_xid_is_no_sxid() -> None:
    """A GPU's line is not taken for a switch's."""
    assert () == sxid.start(record("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."))


def test_an_unreadable_sxid_line_is_malformed() -> None:
    """A switch's line without a readable address or number is told, not dropped."""
    with pytest.raises(MalformedLine):
        sxid.start(record("nvidia-nvswitch3: SXid (PCI:0000:c1"))
