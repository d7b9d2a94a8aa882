"""What one scrape shows, as a value: the loop makes it, the web server's threads only read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from xidwatch import __version__
from xidwatch.core.incident import Incident
from xidwatch.sinks.history import HistoryHealth, TotalKey

Buckets = tuple[tuple[tuple[float, int], ...], int, float]
"""((upper bound in seconds, how many in that bucket alone), ...), how many in all, their sum in seconds."""


class SourceState(Protocol):
    """What a source says of itself; `sources.live.SourceHealth` is one."""

    @property
    def up(self) -> bool:
        """It is open and being read."""

    @property
    def why(self) -> str | None:
        """What is wrong, for a person; None while up."""

    @property
    def records_total(self) -> int:
        """Records handed out."""

    @property
    def lost_records_total(self) -> int:
        """Records overwritten before they could be read."""

    @property
    def gaps_total(self) -> int:
        """Stretches of unknown length that are gone."""

    @property
    def restarts_total(self) -> int:
        """How often it was opened again."""

    @property
    def untrusted_total(self) -> int:
        """Records of user space that look like a fault's."""

    @property
    def malformed_total(self) -> int:
        """What could not be read as a record."""

    @property
    def last_record_wall_us(self) -> int | None:
        """Wall clock of the newest record; None before the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that a scrape shows. None means unknown: such a series is absent.

    Attributes:
        rules_version: Short hash of the rules in force.
        zeros: Counters that stand at 0 until they rise (`totals.zero_totals`).
        totals: Counters that the history keeps.
        times: Gauges `..._last_timestamp_seconds`, seconds since 1970 (`totals.timestamp_of` gives their keys).
        incidents: Those that are over are left out of the answer.
        driver_actions: The latest Xid 154 of each GPU, by number.
        sources: By the name that is their label.
        parse_failures: By kind; unreadable records of the sources are added as kind `record`.
        rules_reload_success: Whether the latest attempt to read the rules went well.
        rules_reload_timestamp_s: When those in force were read, since 1970.
        latencies: By source.
        readings: Further series of families in `families.FAMILIES`: what NVML, /proc and the hook tell.
    """

    version: str = __version__
    rules_version: str = ""
    zeros: Mapping[TotalKey, float] = field(default_factory=dict)
    totals: Mapping[TotalKey, float] = field(default_factory=dict)
    times: Mapping[TotalKey, float] = field(default_factory=dict)
    incidents: tuple[Incident, ...] = ()
    driver_actions: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, SourceState] = field(default_factory=dict)
    parse_failures: Mapping[str, int] = field(default_factory=dict)
    maintenance: bool = False
    injection_accepted: bool = False
    rules_reload_success: bool = True
    rules_reload_timestamp_s: float | None = None
    history: HistoryHealth | None = None
    latencies: Mapping[str, Buckets] = field(default_factory=dict)
    readings: Mapping[TotalKey, float] = field(default_factory=dict)
