"""What every source gives the core: one log record, freed from the decoration it travelled in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Trust = Literal["kernel", "unverifiable", "no", "injected"]
TimeSource = Literal["log", "boot_offset", "arrival"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One log record.

    Attributes:
        text: The message alone: no time, host, tag or level in front, newlines as newlines, no trailing blanks.
        stream: Which ordered stream it belongs to: the index of an input or of a section of one, or a live source.
        seq: Position within the stream, ascending in the order of time: the line number (from 1), or the source's counter.
        line: Line number in the file as a person counts it, from 1; equals `seq` unless the log was reversed.
        wall_us: Microseconds since 1970 (UTC); None when the record has no wall-clock time.
        since_boot_us: Microseconds on printk's clock; never compared across boots.
        boot_id: The boot it belongs to, as the source names it or as counted in the file; None when unknown.
        host: Node name as the record or its directory gives it.
        program: Syslog identifier when it is not the kernel (`dockerd`); None for kernel text and for bare lines.
        program_pid: The pid that went with `program`.
        trusted: "kernel" only where the transport proves it, "no" where user space is known to have written it;
            "injected" for such a line where a test asked for it to count.
        glued: The text was found behind other text in its line, so it is not known to start a message.
        timed: This physical line carried its own time (a line without one may continue the line before it).
        time_source: Where `wall_us` came from; None without one.
        uncertainty_s: How far off `wall_us` may be, in seconds.
        utc_offset_s: Seconds east of UTC in which the source wrote the time, for showing it as the log does; None when it does
            not say.
        repeats: Lines right before it, of the same second, that would have given the same event and were left out.
    """

    text: str
    stream: int = 0
    seq: int = 0
    line: int = 0
    wall_us: int | None = None
    since_boot_us: int | None = None
    boot_id: str | None = None
    host: str | None = None
    program: str | None = None
    program_pid: int | None = None
    trusted: Trust = "unverifiable"
    glued: bool = False
    timed: bool = False
    time_source: TimeSource | None = None
    uncertainty_s: float = 0.0
    utc_offset_s: int | None = None
    repeats: int = field(default=0, compare=False)


def gap_s(earlier: Record, later: Record) -> float | None:
    """Seconds from one record to another; None when they share no clock.

    printk's clock is preferred: syslog's wall time is when the line was written, which may be minutes late.
    Boots counted in two files (`boot-1` in each) need not be the same boot, so there the wall clock comes first.
    """
    hosts_differ = earlier.host != later.host and bool(earlier.host and later.host)
    uptime = None
    same_boot = not hosts_differ and earlier.boot_id == later.boot_id
    if same_boot and earlier.since_boot_us is not None and later.since_boot_us is not None:
        uptime = (later.since_boot_us - earlier.since_boot_us) / 1e6
    if uptime is not None and (earlier.stream == later.stream or not (earlier.boot_id or "boot-").startswith("boot-")):
        return uptime
    if earlier.wall_us is not None and later.wall_us is not None:
        return (later.wall_us - earlier.wall_us) / 1e6
    return uptime
