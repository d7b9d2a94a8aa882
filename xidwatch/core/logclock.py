"""From the times that lines print to the times that records have: years, zones, boots, uptime to wall clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, timezone, tzinfo
from itertools import pairwise

from xidwatch.core.logtext import LogLine, Stamp
from xidwatch.core.months import months_of
from xidwatch.core.record import Record, TimeSource

_BOOT_AFTER_US = 2_000_000
_DAY_US = 86_400_000_000
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_MOST_HOSTS = 1000
_MOST_MONTH_WORDS = 48
_FARTHEST_ZONE_S = 14 * 3600
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999: what a date can show."""


@dataclass(slots=True)
class _Boot:
    """Boot state of one host. `offset_us` is wall clock minus printk's clock: the least seen, since syslog writes late."""

    number: int = 1
    boot_id: str | None = None
    seen: bool = False
    uptime_us: int | None = None
    offset_us: int | None = None
    offset_error_s: float = 1.0


@dataclass(slots=True)
class LogClock:
    """Turns the LogLines of one stream, in order of time, into Records.

    Attributes:
        boot_ids: The boots met so far, in order.
        tz: Zone of wall times that name none.
        now_us: No line is newer than this (a day's slack for zones); it decides the year of lines without one.
        year: The year of the first line without a year, when somebody knows it; else worked out by `look_ahead`.
        assumed_year: True once a year had to be worked out.
        first_year: The year that the log was taken to begin in.
        odd_zones: Times met whose zone does not exist; they were read as if they named none.
        odd_months: Names of months that mean several, with nothing in the log to tell which.
    """

    tz: tzinfo
    now_us: int
    year: int | None = None
    assumed_year: bool = False
    first_year: int | None = None
    odd_zones: int = 0
    odd_months: set[str] = field(default_factory=set)
    boot_ids: list[str] = field(default_factory=list)
    _month_words: set[str] = field(default_factory=set)
    _yearday: int = 0
    _hosts: dict[str | None, _Boot] = field(default_factory=dict)
    _previous_us: int | None = None
    _previous_error_s: float = 0.0
    _hours: dict[tuple[int, int, int, int], int | None] = field(default_factory=dict)

    def look_ahead(self, head: list[LogLine], tail: list[LogLine]) -> None:
        """Settle what only the whole log shows: the year it begins in, and how printk's clock lies to the wall clock."""
        for line in (*head, *tail):
            self._learn_month(line)
        for line in (*head, *tail):
            self._settle_month(line)
        stamps = [line.stamp for line in (*head, *tail) if line.stamp is not None and line.stamp.year is None]
        if self.year is None and stamps:
            self._assume(stamps)
        saved = self.year, self._yearday
        for line in head:
            if line.uptime_us is not None and (line.stamp or line.epoch_us is not None):
                self._learn_offset(self._boot(line.host), line, self._wall_us(line))
        self.year, self._yearday = saved

    def _assume(self, stamps: list[Stamp]) -> None:
        """Settle the year of the first of these dates: as late as lets the last of them not lie in the future."""
        newest = datetime.fromtimestamp(0, timezone.utc) + timedelta(microseconds=self.now_us + _DAY_US)
        last = stamps[-1]
        year = newest.year - ((last.month, last.day) > (newest.month, newest.day))
        yeardays = [stamp.month * 31 + stamp.day for stamp in stamps]
        steps = [later - earlier for earlier, later in pairwise(yeardays)]
        wraps = sum(step < -182 for step in steps) - sum(step > 182 for step in steps)
        year -= max(0, wraps)
        leap = any((stamp.month, stamp.day) == (2, 29) for stamp in stamps)
        while leap and not _is_leap(year):
            year -= 1
        self.year = self.first_year = year
        self.assumed_year = True

    def record(self, line: LogLine, *, stream: int, seq: int, number: int) -> Record:
        """The Record of a line; `number` is its line number in the file."""
        if line.record is not None:
            return replace(
                line.record, text=line.text, stream=stream, seq=seq, line=number, glued=line.glued, trusted=line.trusted
            )  # fmt: skip
        if line.stamp is not None and abs(line.stamp.offset_s or 0) > _FARTHEST_ZONE_S:
            line.stamp = line.stamp._replace(offset_s=None)
            self.odd_zones += 1
        if line.month_word is not None:
            self._learn_month(line)
            self._settle_month(line)
        boot = self._boot(line.host)
        if line.boot_id is not None:
            self._turn_boot(line.boot_id)
        wall_us = self._wall_us(line)
        if line.boot_id is None and line.kernel:
            self._notice_boot(boot, line, wall_us)
        source: TimeSource | None = None if wall_us is None else "log"
        error_s = self._error_s(line)
        if line.uptime_us is not None:
            boot.uptime_us = line.uptime_us
            if wall_us is not None:
                self._learn_offset(boot, line, wall_us)
            elif boot.offset_us is not None:
                wall_us, source, error_s = line.uptime_us + boot.offset_us, "boot_offset", boot.offset_error_s
        if wall_us is not None:
            self._previous_us, self._previous_error_s = wall_us, error_s
        boot.seen = boot.seen or line.kernel
        boot_id = boot.boot_id or f"boot-{boot.number}"
        if boot_id not in self.boot_ids[-8:]:
            self.boot_ids.append(boot_id)
        return Record(
            text=line.text,
            stream=stream,
            seq=seq,
            line=number,
            wall_us=wall_us,
            since_boot_us=line.uptime_us,
            boot_id=boot_id,
            host=line.host,
            program=line.program,
            program_pid=line.program_pid,
            trusted=line.trusted,
            glued=line.glued,
            timed=line.timed,
            time_source=source,
            uncertainty_s=error_s if wall_us is not None else 0.0,
            utc_offset_s=line.stamp.offset_s if line.stamp is not None and source == "log" else None,
        )

    def skip(self) -> None:
        """Lines were left out: what the next one says is not to be held against the latest."""
        self._previous_us = None

    # --- months ---

    def _learn_month(self, line: LogLine) -> None:
        if line.month_word is not None and len(self._month_words) < _MOST_MONTH_WORDS:
            self._month_words.add(line.month_word)

    def _settle_month(self, line: LogLine) -> None:
        """Let the other names in the log decide a name that means different months in different languages."""
        if line.month_word is None or line.stamp is None:
            return
        months = months_of(line.month_word, self._month_words)
        if len(months) > 1:
            self.odd_months.add(line.month_word)
        elif months:
            self.odd_months.discard(line.month_word)
        if months and months[0] != line.stamp.month:
            line.stamp = line.stamp._replace(month=months[0])

    # --- boots ---

    def _boot(self, host: str | None) -> _Boot:
        boot = self._hosts.get(host)
        if boot is None:
            if len(self._hosts) >= _MOST_HOSTS:
                self._hosts.pop(next(iter(self._hosts)))
            unnamed = self._hosts.get(None)
            boot = self._hosts[host] = _Boot(unnamed.number, unnamed.boot_id) if unnamed else _Boot()
        return boot

    def _turn_boot(self, boot_id: str) -> None:
        """The log itself says that a new boot begins, with its id or ""."""
        self._hosts.setdefault(None, _Boot())
        for boot in self._hosts.values():
            boot.number += boot.seen
            boot.boot_id, boot.seen, boot.uptime_us, boot.offset_us = boot_id or None, False, None, None

    def _notice_boot(self, boot: _Boot, line: LogLine, wall_us: int | None) -> None:
        """A boot shows by the kernel's first line, by uptime zero, or by an uptime that began after the line before.

        An uptime that merely falls is a resume or a mix of excerpts.
        """
        if line.uptime_us == 0:
            begins = boot.uptime_us is None or boot.uptime_us > 0
        else:
            begins = line.text.startswith("Linux version ") and boot.uptime_us != 0
        fell = None not in (line.uptime_us, boot.uptime_us) and (line.uptime_us or 0) < (boot.uptime_us or 0)
        if fell and wall_us is not None and self._previous_us is not None:
            begins = begins or wall_us - (line.uptime_us or 0) > self._previous_us + _BOOT_AFTER_US
        if not begins or (boot.boot_id is not None and not boot.seen):
            return
        boot.number += boot.seen
        boot.boot_id, boot.seen, boot.uptime_us, boot.offset_us = None, False, line.uptime_us, None

    def _learn_offset(self, boot: _Boot, line: LogLine, wall_us: int | None) -> None:
        if wall_us is None or line.uptime_us is None:
            return
        offset = wall_us - line.uptime_us
        if boot.offset_us is None or offset < boot.offset_us or offset - boot.offset_us > 5_000_000:
            boot.offset_us = offset
            boot.offset_error_s = max(1.0, line.stamp.resolution_s if line.stamp else 0.0)

    # --- wall clock ---

    def _error_s(self, line: LogLine) -> float:
        if line.stamp is not None:
            return line.stamp.resolution_s
        return self._previous_error_s if line.delta_us is not None else 0.0

    def _wall_us(self, line: LogLine) -> int | None:
        wall_us = self._read_wall_us(line)
        return wall_us if wall_us is not None and _FIRST_US <= wall_us <= _LAST_US else None

    def _read_wall_us(self, line: LogLine) -> int | None:
        if line.epoch_us is not None:
            return line.epoch_us
        if line.stamp is not None:
            return self._stamp_us(line.stamp)
        if line.delta_us is not None and self._previous_us is not None:
            return self._previous_us + line.delta_us
        return None

    def _stamp_us(self, stamp: Stamp) -> int | None:
        year = stamp.year if stamp.year is not None else self._year_of(stamp)
        hour_us = self._hour_us(year, stamp)
        if hour_us is None or stamp.minute > 59 or stamp.second > 60:
            return None
        return hour_us + (stamp.minute * 60 + stamp.second) * 1_000_000 + stamp.micro

    def _hour_us(self, year: int, stamp: Stamp) -> int | None:
        """Start of the hour in UTC; None for a date that does not exist."""
        if stamp.offset_s is not None:
            try:
                day = date(year, stamp.month, stamp.day).toordinal() - _EPOCH_ORDINAL
            except ValueError:
                return None
            return day * _DAY_US + (stamp.hour * 3600 - stamp.offset_s) * 1_000_000 if stamp.hour < 24 else None
        key = (year, stamp.month, stamp.day, stamp.hour)
        if key not in self._hours:
            if len(self._hours) > 1000:
                self._hours.clear()
            try:
                self._hours[key] = int(datetime(*key, tzinfo=self.tz).timestamp()) * 1_000_000
            except (ValueError, OverflowError, OSError):
                self._hours[key] = None
        return self._hours[key]

    def _year_of(self, stamp: Stamp) -> int:
        """The year of a line that prints none: it steps forward when December turns into January."""
        if self.year is None:
            self._assume([stamp])
        year = self.year or 1970
        yearday = stamp.month * 31 + stamp.day
        step = yearday - self._yearday if self._yearday else 0
        if step > 182:  # a line of the old year behind one of the new
            return year - 1
        if step < -182:
            year += 1
        self.year, self._yearday = year, yearday
        return year


def _is_leap(year: int) -> bool:
    """Whether it has a 29th of February; `calendar` would cost a short run more than all its dates."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
