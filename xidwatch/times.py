"""Times as people and programs write them: RFC 3339 out, `--since` and `--tz` in."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone, tzinfo

from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record
from xidwatch.core.verdict import wall_time
from xidwatch.errors import XidwatchError

UTC = timezone.utc
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET = lazy(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?$", re.IGNORECASE)
_AGO = lazy(r"-?\s*(\d+)\s*(s|sec|second|m|min|minute|h|hour|d|day|w|week)s?(\s+ago)?$", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_MOMENT = lazy(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[T ](\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?\s*(Z|[+-]\d{2}:?\d{2})?)?$",
    re.IGNORECASE,
)
_CLOCK = lazy(r"(\d{1,2}):(\d{2})(?::(\d{2}))?$")


def moment(record: Record, zone: tzinfo | None = None) -> datetime | None:
    """When a record was written, in the zone the log itself uses; None without a wall-clock time.

    Args:
        zone: Used when the log names no zone of its own; None means UTC.
    """
    return wall_time(record, zone or UTC)


def rfc3339(record: Record | None, zone: tzinfo | None = None) -> str | None:
    """`2026-11-30T02:13:05.123456+01:00`, or None; the fraction is left out when the log has whole seconds only."""
    at = moment(record, zone) if record is not None else None
    return at.isoformat() if at is not None else None


def clock(at: datetime) -> str:
    """`02:13:05.123`, or `02:13:05` when there is no fraction."""
    return at.strftime("%H:%M:%S") + (f".{at.microsecond // 1000:03d}" if at.microsecond else "")


def zone_name(at: datetime) -> str:
    """`UTC` or `UTC+01:00`."""
    offset = at.utcoffset() or timedelta(0)
    minutes = round(offset.total_seconds() / 60)
    return "UTC" if not minutes else f"UTC{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def parse_zone(text: str) -> tzinfo:
    """Read `--tz`: `UTC`, `local`, an offset (`+01:00`) or a name of the time-zone database (`Europe/Berlin`).

    Raises:
        XidwatchError: no such zone.
    """
    if text.lower() in ("utc", "z", "gmt"):
        return UTC
    if text.lower() == "local":
        return datetime.now().astimezone().tzinfo or UTC
    if offset := _OFFSET.match(text):
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        if minutes < 24 * 60:
            return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(text)
    except (ValueError, OSError, KeyError):
        raise XidwatchError(f"--tz {text}: no such time zone; write UTC, local, +01:00 or a name like Europe/Berlin") from None


def parse_year(text: str) -> int:
    """Read `--year`.

    Raises:
        XidwatchError: no year between 1970 and 2100, within which logs of this kind are written.
    """
    if re.fullmatch(r"[0-9]{4}", text) and 1970 <= int(text) <= 2100:
        return int(text)
    raise XidwatchError(f"--year {text}: not a year from 1970 to 2100")


def parse_moment(text: str, *, now: datetime, option: str = "--since") -> datetime:
    """Read `--since` and `--until`: RFC 3339, `2026-11-30`, `2026-11-30 02:13`, `02:13`, `2h`, `3 days ago`, `yesterday`.

    Args:
        now: Aware; gives the zone for a time without one, today's date for a bare clock time, and what `ago` counts from.

    Raises:
        XidwatchError: none of these.
    """
    text = text.strip()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    words = {"now": now, "today": midnight, "yesterday": midnight - timedelta(days=1)}
    try:
        if text.lower() in words:
            return words[text.lower()]
        if ago := _AGO.match(text):
            return now - timedelta(seconds=int(ago[1]) * _SECONDS[ago[2][0].lower()])
        if clock_time := _CLOCK.match(text):
            hour, minute, second = (int(part or 0) for part in clock_time.groups())
            return now.replace(hour=hour, minute=minute, second=second, microsecond=0)
        if form := _MOMENT.match(text):
            return _from_form(form, now)
    except (ValueError, OverflowError) as error:
        raise XidwatchError(f"{option} {text}: {error}") from None
    raise XidwatchError(f"{option} {text}: not a time; write 2026-11-30T02:13, 02:13, yesterday or '2 hours ago'")


def _from_form(form: re.Match[str], now: datetime) -> datetime:
    year, month, day, hour, minute, second = (int(part or 0) for part in form.groups()[:6])
    fraction = int((form[7] or "0")[:6].ljust(6, "0"))
    zone: tzinfo | None = now.tzinfo
    if form[8]:
        if form[8] not in "Zz" and int(form[8][1:3]) > 23:
            raise ValueError("no zone is that far from UTC")
        zone = parse_zone("UTC" if form[8] in "Zz" else form[8])
    return datetime(year, month, day, hour, minute, second, fraction, tzinfo=zone)
