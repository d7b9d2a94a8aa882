"""Month names of many languages."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from xidwatch.core.logclock import LogClock
from xidwatch.core.logtext import parse_line
from xidwatch.core.months import month_number, months_of

NOW_US = int(datetime(2026, 11, 30, 12, tzinfo=timezone.utc).timestamp()) * 1_000_000
NAMES = {
    "Νοε": 11, "листоп": None, "нояб.": 11, "lapkr.": 11, "Kas": 11, "de nov.": 11, "Thg 11": 11, "תשרי": None, "נוב": 11,
    "پایان": None, "marras": 11, "Samh": 11, "aza": 11, "一月": 1, "dets": 12, "11-р сар": 11, "11월": 11, "13月": None,
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in NAMES if NAMES[name]])
def test_names_of_the_c_library(name: str) -> None:
    """glibc's abbreviated months are read in front of a day, those of several words too."""
    assert NAMES[name] == month_number(name)
    line = parse_line(f"{name} 20 02:13:41 gpu07 kernel: NVRM: Xid (PCI:0000:3b:00): 79, x")
    assert line.stamp is not None
    assert (NAMES[name], 20, 2, "gpu07") == (line.stamp.month, line.stamp.day, line.stamp.hour, line.host)


@pytest.mark.parametrize("name", [name for name in NAMES if not NAMES[name]])
def test_other_words_are_no_months(name: str) -> None:
    """What no locale has is no month."""
    assert month_number(name) is None


def test_names_that_mean_two_months_are_told_by_their_neighbours() -> None:
    """lip is June in Croatian and July in Polish: the other names in the log decide, else the likelier one with a note."""
    assert (7, 6) == months_of("lip")
    assert ((6,), (7,)) == (months_of("lip", ["ožu"]), months_of("lip", ["sie"]))
    lines = [parse_line(f"{name} 20 02:13:41 n kernel: x") for name in ("svi", "lip", "srp")]
    clock = LogClock(timezone.utc, NOW_US, 2026)
    clock.look_ahead(lines, [])
    assert [5, 6, 7] == [line.stamp.month for line in lines if line.stamp]
    assert not clock.odd_months
    alone = LogClock(timezone.utc, NOW_US, 2026)
    alone.record(parse_line("lip 20 02:13:41 n kernel: x"), stream=0, seq=1, number=1)
    assert {"lip"} == alone.odd_months
