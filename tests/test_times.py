"""Times in and out."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from xidwatch.core.record import Record
from xidwatch.errors import XidwatchError
from xidwatch.times import UTC, clock, parse_moment, parse_year, parse_zone, rfc3339, zone_name

CET = timezone(timedelta(hours=1))
NOW = datetime(2026, 11, 30, 12, 30, tzinfo=CET)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-30", datetime(2026, 11, 30, tzinfo=CET)),
        ("2026-11-30 02:13", datetime(2026, 11, 30, 2, 13, tzinfo=CET)),
        ("2026-11-30T02:13:05.123Z", datetime(2026, 11, 30, 2, 13, 5, 123000, tzinfo=UTC)),
        ("2026-11-30T02:13:05-0500", datetime(2026, 11, 30, 2, 13, 5, tzinfo=timezone(timedelta(hours=-5)))),
        ("02:13", datetime(2026, 11, 30, 2, 13, tzinfo=CET)),
        ("yesterday", datetime(2026, 11, 29, tzinfo=CET)),
        ("today", datetime(2026, 11, 30, tzinfo=CET)),
        ("2 hours ago", NOW - timedelta(hours=2)),
        ("-3d", NOW - timedelta(days=3)),
        ("90min", NOW - timedelta(minutes=90)),
    ],
)
def test_moments(text: str, expected: datetime) -> None:
    """Every spelling that a person would try is understood; a time without a zone is in the asker's."""
    assert expected == parse_moment(text, now=NOW)


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "25:00", "2026-11-30T02:13:05+99:00", "99999999999999 days ago"])
def test_wrong_moments(text: str) -> None:
    """What is no time is told with the option it was given to."""
    with pytest.raises(XidwatchError, match="--until"):
        parse_moment(text, now=NOW, option="--until")


def test_zones() -> None:
    """A zone is an offset, UTC, or a name that exists."""
    at = datetime(2026, 7, 1, tzinfo=UTC)
    assert timedelta(hours=5, minutes=30) == parse_zone("+05:30").utcoffset(at)
    assert timedelta(hours=-8) == parse_zone("UTC-8").utcoffset(at)
    assert UTC == parse_zone("utc")
    for wrong in ("Middle/Earth", "../etc/passwd", "", "+25:00"):
        with pytest.raises(XidwatchError, match="no such time zone"):
            parse_zone(wrong)


def test_records() -> None:
    """A record is shown in its own zone, else in the one given, else in UTC; without a time that a calendar holds, not."""
    assert "1970-01-01T01:00:00+01:00" == rfc3339(Record(text="", wall_us=0, utc_offset_s=3600), UTC)
    assert "1970-01-01T01:00:00.000500+01:00" == rfc3339(Record(text="", wall_us=500), CET)
    assert "1970-01-01T00:00:00+00:00" == rfc3339(Record(text="", wall_us=0))
    assert None is rfc3339(Record(text=""))
    assert None is rfc3339(None)
    assert None is rfc3339(Record(text="", wall_us=1 << 62))


def test_clock_and_zone_names() -> None:
    """A clock shows milliseconds only where there are some."""
    assert "02:13:05" == clock(datetime(2026, 1, 1, 2, 13, 5, tzinfo=UTC))
    assert "02:13:05.123" == clock(datetime(2026, 1, 1, 2, 13, 5, 123456, tzinfo=UTC))
    assert ("UTC", "UTC+01:00", "UTC-03:30") == (
        zone_name(NOW.astimezone(UTC)), zone_name(NOW), zone_name(NOW.astimezone(timezone(timedelta(hours=-3, minutes=-30)))),
    )  # fmt: skip


def test_years() -> None:
    """A year is four digits, of a time in which such logs are written."""
    assert [1970, 2026, 2100] == [parse_year(text) for text in ("1970", "2026", "2100")]
    for wrong in ("0", "-5", "1969", "2101", "10000", "99999", "26", "", "2_026", "２０２６", "2026 "):
        with pytest.raises(XidwatchError, match="1970 to 2100"):
            parse_year(wrong)
