"""Every format that a log line arrives in, and what is read from it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.logclock import LogClock
from xidwatch.core.logtext import LogLine, Stamp, parse_line, unglued
from xidwatch.core.record import Record

XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
UTC = timezone.utc
NOW_US = int(datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()) * 1_000_000


def micros(*fields: int) -> int:
    """Microseconds since 1970 of a UTC date."""
    return int(datetime(*fields, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[misc, arg-type]


UPTIMES = {
    f"[ 1234.567890] {XID}": 1_234_567_890,
    f"[    1.000042] {XID}": 1_000_042,
    f"[1231741.378609] {XID}": 1_231_741_378_609,
    f" 4428.423595] {XID}": 4_428_423_595,
    f"[14201.84] {XID}": 14_201_840_000,
    f"[ 1052.080846][   T41] {XID}": 1_052_080_846,
    f"[ 130.456250] [ T1946] {XID}": 130_456_250,
    f"[  130.456250][    C5] {XID}": 130_456_250,
    f"<4>[ 1126.588405] {XID}": 1_126_588_405,
    f"kern  :warn  : [  123.456789] {XID}": 123_456_789,
    f"[   12.000000 <    0.000002>] {XID}": 12_000_000,
    f"\x1b[32m[  123.456789] \x1b[0m\x1b[33mNVRM: \x1b[0m{XID[6:]}": 123_456_789,
    f"> [   20.455719] {XID}": 20_455_719,
    f"                  [ 5300.229390] {XID}": 5_300_229_390,
    f"| [14201.84] {XID}    |": 14_201_840_000,
    f"kern.log.1:123:[    1.000000] {XID}": 1_000_000,
    f"node07: [  123.456789] {XID}": 123_456_789,
    f"[ 1234.567890] node07 kernel: {XID}": 1_234_567_890,
    f" [34315.120624] [34315.180090] {XID}": 34_315_180_090,
    f"app-sv-1 kernel:[34315.166784] {XID}": 34_315_166_784,
    f"6,3973,227996636,-;{XID}": 227_996_636,
    f"6,3973,227996636,c,caller=T12,new=1;{XID}": 227_996_636,
    f"[  123.456789] {XID}\r\n": 123_456_789,
    f"\0\0\0[  123.456789] {XID}   ": 123_456_789,
}


@pytest.mark.parametrize("line", UPTIMES)
def test_uptime_of_the_kernel(line: str) -> None:
    """The clock of printk is read wherever it stands, and the message is left alone."""
    read = parse_line(line)
    assert (XID, UPTIMES[line], True, False, "unverifiable") == (
        read.text,
        read.uptime_us,
        read.timed,
        read.glued,
        read.trusted,
    )


def stamp(*fields: int, year: int | None = None, micro: int = 0, offset_s: int | None = None) -> tuple[int | None, ...]:
    """The fields of a Stamp without its resolution."""
    return (year, *fields, micro, offset_s)


WALLS = {
    f"Sep  9 16:18:02 node01 kernel: {XID}": ("node01", stamp(9, 9, 16, 18, 2)),
    f"Sep 19 16:18:02 node01 kernel: [68183.615790] {XID}": ("node01", stamp(9, 19, 16, 18, 2)),
    f"Mar 29 15:38:59 kernel: {XID}": (None, stamp(3, 29, 15, 38, 59)),
    f"Feb 23 03:28:16  kernel: {XID}": (None, stamp(2, 23, 3, 28, 16)),
    f"Jan 11 22:31:37 :HOSTNAME: kernel: {XID}": (":HOSTNAME:", stamp(1, 11, 22, 31, 37)),
    f"Feb 14 05:03:41 000-000-00000-1-gpu-1 kernel: {XID}": ("000-000-00000-1-gpu-1", stamp(2, 14, 5, 3, 41)),
    f"Aug 30 06:58:55.050705 ... kernel: {XID}": (None, stamp(8, 30, 6, 58, 55, micro=50_705)),
    f"Nov 19 01:03:26.198647 node0001 kernel: {XID}": ("node0001", stamp(11, 19, 1, 3, 26, micro=198_647)),
    f"4月 19 22:36:49 n kernel: {XID}": ("n", stamp(4, 19, 22, 36, 49)),
    f"11月 19 22:36:49 n kernel: {XID}": ("n", stamp(11, 19, 22, 36, 49)),
    f" 4월 19 22:36:49 n kernel: {XID}": ("n", stamp(4, 19, 22, 36, 49)),
    f"      авг 04 01:42:57 n kernel: {XID}": ("n", stamp(8, 4, 1, 42, 57)),
    f"Mär 04 01:42:57 n kernel: {XID}": ("n", stamp(3, 4, 1, 42, 57)),
    f"févr. 04 01:42:57 n kernel: {XID}": ("n", stamp(2, 4, 1, 42, 57)),
    f"ago 04 01:42:57 n kernel: {XID}": ("n", stamp(8, 4, 1, 42, 57)),
    f"giu 04 01:42:57 n kernel: {XID}": ("n", stamp(6, 4, 1, 42, 57)),
    f"dez 04 01:42:57 n kernel: {XID}": ("n", stamp(12, 4, 1, 42, 57)),
    f"mrt 04 01:42:57 n kernel: {XID}": ("n", stamp(3, 4, 1, 42, 57)),
    f"paź 04 01:42:57 n kernel: {XID}": ("n", stamp(10, 4, 1, 42, 57)),
    f"čec 04 01:42:57 n kernel: {XID}": ("n", stamp(7, 4, 1, 42, 57)),
    f"<6>Jun  1 10:00:00 h kernel: {XID}": ("h", stamp(6, 1, 10, 0, 0)),
    f"**Nov 22 14:56:47 gpubox kernel: [94558.085056] {XID}**": ("gpubox", stamp(11, 22, 14, 56, 47)),
    f"/var/log/kern.log:Nov 22 14:56:47 gpubox kernel: {XID}": ("gpubox", stamp(11, 22, 14, 56, 47)),
    f"[Mon Mar  6 21:34:31 2023] {XID}": (None, stamp(3, 6, 21, 34, 31, year=2023)),
    f" [Sun Jan 11 09:52:01 2026] {XID}": (None, stamp(1, 11, 9, 52, 1, year=2026)),
    f"[Mo Mär  6 21:34:31 2023] {XID}": (None, stamp(3, 6, 21, 34, 31, year=2023)),
    f"[May19 19:57] {XID}": (None, stamp(5, 19, 19, 57, 0)),
    f"kern  :warn  : 2025-01-21T04:41:44,283302+00:00 {XID}": (
        None,
        stamp(1, 21, 4, 41, 44, year=2025, micro=283_302, offset_s=0),
    ),
    f"2025-01-21T04:41:44,283302-04:00 {XID}": (None, stamp(1, 21, 4, 41, 44, year=2025, micro=283_302, offset_s=-14400)),
    f"2025-08-16T00:03:03.9375-04:00 n kernel: {XID}": ("n", stamp(8, 16, 0, 3, 3, year=2025, micro=937_500, offset_s=-14400)),
    f"2019-08-19T04:18:38.274652-04:00 n kernel: [ 261.273226] {XID}": (
        "n",
        stamp(8, 19, 4, 18, 38, year=2019, micro=274_652, offset_s=-14400),
    ),
    f"2026-02-26T10:00:00+0100 n kernel: {XID}": ("n", stamp(2, 26, 10, 0, 0, year=2026, offset_s=3600)),
    f"Thu 2026-02-26 10:00:00 CET n kernel: {XID}": ("n", stamp(2, 26, 10, 0, 0, year=2026)),
    f"Thu 2026-02-26 10:00:00 UTC n kernel: {XID}": ("n", stamp(2, 26, 10, 0, 0, year=2026, offset_s=0)),
    f"2024-07-02 18:46:08.681559 kernel:[   21.766727] {XID}": (None, stamp(7, 2, 18, 46, 8, year=2024, micro=681_559)),
    f"<4>1 2003-10-11T22:14:15.003Z n kernel - - - {XID}": ("n", stamp(10, 11, 22, 14, 15, year=2003, micro=3000, offset_s=0)),
    f"192.168.1.19: kern: warning: [2026-04-22T21:30:51.52643656Z]: {XID}": (
        "192.168.1.19",
        stamp(4, 22, 21, 30, 51, year=2026, micro=526_436, offset_s=0),
    ),
    f"2026-01-01T00:00:00.5Z stdout F {XID}": (None, stamp(1, 1, 0, 0, 0, year=2026, micro=500_000, offset_s=0)),
    f"Xid errors on instance: ip-1, Error: May 19 07:08:57 ip-10-0-0-1 kernel: [680111.646286] {XID}": (
        "ip-10-0-0-1",
        stamp(5, 19, 7, 8, 57),
    ),
    f'{{"log":"{XID}\\n","stream":"stderr","time":"2026-01-01T00:00:00.25Z"}}': (
        None,
        stamp(1, 1, 0, 0, 0, year=2026, micro=250_000, offset_s=0),
    ),
    f'{{"message":"{XID}","@timestamp":"2026-01-01T00:00:00Z","host":"n9"}}': (
        "n9",
        stamp(1, 1, 0, 0, 0, year=2026, offset_s=0),
    ),
    f'{{"_raw":"May 19 07:08:57 n2 kernel: [680111.646286] {XID}"}}': ("n2", stamp(5, 19, 7, 8, 57)),
}


@pytest.mark.parametrize("line", WALLS)
def test_wall_clock_time_and_host(line: str) -> None:
    """Date, time, zone and host are read from every form that syslog, journalctl, dmesg and shippers print."""
    read = parse_line(line)
    assert read.stamp is not None
    assert (XID, *WALLS[line], True, False) == (read.text, read.host, tuple(read.stamp)[:-1], read.timed, read.glued)


PLAIN = {
    XID: XID,
    f"    {XID}": XID,
    f'"{XID}"': XID,
    f"**{XID}**": XID,
    f"> > {XID}": XID,
    f"- {XID}": XID,
    f"kernel: {XID}": XID,
    f"[...] {XID}": XID,
    f"    MESSAGE={XID}": XID,
    "       NVRM: this kernel module has": "NVRM: this kernel module has",
    "      Tainted: P           OE": "      Tainted: P           OE",
    "|            PTE 0x00000000 Address 0x7fa2b0000000        |": "           PTE 0x00000000 Address 0x7fa2b0000000",
    ">    5.10.0-testos #83": "   5.10.0-testos #83",
}


@pytest.mark.parametrize("line", PLAIN)
def test_lines_without_time(line: str) -> None:
    """A line without a time loses its frame and keeps the indent that tells a wrapped line."""
    read = parse_line(line)
    assert (PLAIN[line], None, None, False) == (read.text, read.stamp, read.uptime_us, read.glued)


def test_stack_frames_keep_their_indent() -> None:
    """The blank in front of a stack frame is part of the message, after a tag and after printk's time."""
    assert " __schedule+0x1/0x2" == parse_line("Nov 19 01:03:26 n kernel:  __schedule+0x1/0x2").text
    assert " ? up+0x58/0xa0" == parse_line("[    1.000001]  ? up+0x58/0xa0").text


NO_TIME = (
    "[ 185665]     0 185665     2201    8123  0 python3",
    "[38910]   950 38910    28321        0      14       53             0 respawn.sh",
    "[15:58:29] WARNING  Sending process 197",
    "- 1134784680 2005.12.16 R66-M0-N8-I:J18-U01 2005-12-16-17.58.00.577715 R66 RAS KERNEL INFO x",
    "ARPT: 620701.011328: AirPort_Brcm43xx::syncPowerState",
    "IP 0.0.0.0.68 > 255.255.255.255.67: BOOTP/DHCP, Request, xid 0x1758c71e",
    "Foo 12 10:00:00 n kernel: x",
)


@pytest.mark.parametrize("line", NO_TIME)
def test_what_only_looks_like_a_time(line: str) -> None:
    """OOM tables, list numbers and foreign formats are no times."""
    read = parse_line(line)
    assert (line, None, None) == (read.text, read.stamp, read.uptime_us)


PROGRAMS = {
    "Jul  1 09:02:26 node01 kernel[0]: ARPT: 620701.011328: x": ("kernel", 0, "ARPT: 620701.011328: x", "unverifiable"),
    "2025-08-16T00:03:04.070671-04:00 h (udev-worker)[106246]: nvidia: x": (
        "(udev-worker)", 106246, "nvidia: x", "unverifiable",
    ),
    "Nov  9 15:43:47 abrtd: Scanning syslog...": ("abrtd", None, "Scanning syslog...", "unverifiable"),
    "Thu 2026-02-26 10:00:00 CET h foo.service/foo[12]: bar": ("foo.service/foo", 12, "bar", "unverifiable"),
    "<165>1 2003-10-11T22:14:15.003Z h app 123 ID47 [ex a=\"b]\"] hello": ("app", 123, "hello", "unverifiable"),
    f"Jun 01 20:11:11 h NVRM: {XID[6:]}": ("NVRM", None, XID, "no"),
    f"2026-06-01T20:11:11.000001+00:00 h NVRM: {XID[6:]}": ("NVRM", None, XID, "no"),
    f"Jun 01 20:11:11 h dockerd[7]: {XID}": ("dockerd", 7, XID, "no"),
    f"Jun 01 20:11:11 h logger: {XID}": ("logger", None, XID, "no"),
}  # fmt: skip


@pytest.mark.parametrize("line", PROGRAMS)
def test_programs_are_not_the_kernel(line: str) -> None:
    """A program's line names it, and kernel text that user space wrote is trusted "no"."""
    read = parse_line(line)
    assert PROGRAMS[line] == (read.program, read.program_pid, read.text, read.trusted)


@pytest.mark.parametrize(
    "line",
    [
        f"syslog:err   : 2025-05-27T04:18:56,089671+00:00 {XID}",
        f"user  :notice: [  123.456789] {XID}",
        f"<12>[  123.456789] {XID}",
        f"12,345,678901,-;{XID}",
        f"user: warning: [2026-01-12T20:27:31.913975631Z]: {XID}",
    ],
)
def test_other_facilities_are_not_the_kernel(line: str) -> None:
    """A facility other than kern says that user space wrote the line into the kernel's log."""
    read = parse_line(line)
    assert ("no", XID) == (read.trusted, read.text)


GLUED = {
    f"[    5.100000] random: crng init{XID}": XID,
    f"[    5.100000] process '/tmp/kernel: [1.000000] {XID}' started": f"{XID}' started",
    f"diff:371;{XID}": XID,
    f'[XID found] (54 minutes ago) "{XID}"': XID,
}


@pytest.mark.parametrize("line", GLUED)
def test_messages_behind_other_text_are_glued(line: str) -> None:
    """Text in front that is no decoration cannot pass for one: the message is kept and marked, whatever that text imitates."""
    read = parse_line(line)
    assert (GLUED[line], True) == (read.text, read.glued)


def test_serial_console() -> None:
    """Where a console printed two things at once, the record is what stands behind the last of printk's times."""
    read = parse_line("INFO: task jbd2/[34315.188943]  __rq_qos_throttle+0x23/0x30")
    assert (" __rq_qos_throttle+0x23/0x30", 34_315_188_943) == (read.text, read.uptime_us)
    assert " ? wbt_rqw_done+0xe0/0xe0" == parse_line("Aug 26 00:03:33 [34315.158202]  ? wbt_rqw_done+0xe0/0xe0").text


def test_several_log_lines_in_one() -> None:
    """A status text that quotes two kernel lines keeps both, from the first one on."""
    read = parse_line(f"2026/05/11 10:35:49 INFO Message:x kernel: [16.435595] {XID};y kernel: [17.435595] {XID};")
    assert (16_435_595, f"{XID};y kernel: [17.435595] {XID};") == (read.uptime_us, read.text)


def test_rsyslog_escapes() -> None:
    """What rsyslog wrote as #012 and #011 becomes the newline and the tab they were."""
    assert "NVRM: a\nNVRM:\tb" == parse_line("Jun 30 11:07:05 n kernel: NVRM: a#012NVRM:#011b#012").text


PROGRAM_TIMES = {
    "INFO 07-28 06:40:59 [loggers.py:118] Engine 000: x": stamp(7, 28, 6, 40, 59),
    "(EngineCore pid=12244) ERROR 07-15 21:01:01 [core.py:1240] x": stamp(7, 15, 21, 1, 1),
    "[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] x": stamp(6, 26, 6, 24, 44, micro=903_881),
    "[80746] [rank0]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] x": stamp(3, 21, 2, 7, 8, micro=408_271),
}


@pytest.mark.parametrize("line", PROGRAM_TIMES)
def test_times_of_programs_stay_in_the_text(line: str) -> None:
    """The times that vLLM and PyTorch print are read, and the line stays whole for their parsers."""
    read = parse_line(line)
    assert read.stamp is not None
    assert (line, PROGRAM_TIMES[line]) == (read.text, tuple(read.stamp)[:-1])


def test_journal_lines_in_json() -> None:
    """A line of `journalctl -o json` is a journal entry."""
    read = parse_line('{"__REALTIME_TIMESTAMP":"1790200000000001","_TRANSPORT":"kernel","MESSAGE":"NVRM: x"}')
    assert read.record is not None
    assert ("NVRM: x", 1_790_200_000_000_001) == (read.record.text, read.record.wall_us)


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("utf-8", "replace")))
def test_any_line_is_read(line: str) -> None:
    """No line raises, and none becomes longer."""
    clock = LogClock(UTC, NOW_US)
    read = parse_line(line)
    record = clock.record(read, stream=0, seq=1, number=1)
    assert len(record.text) <= len(line)


PIECES = st.sampled_from(
    [
        *("[", "]", " ", "1.234567", "Mar  6 21:34:31", "2023", "kernel:", "NVRM:", "<4>", "host", ":", "INFO: task ", ","),
        *("2026-01-01T00:00:00", "+00:00", "{", "}", '"', "|", "> ", "-", "99", "\\x0a", "kern  :warn  : ", "#012", "\x1b[1m"),
        *("E626 99:99:99.123456", "4月", "99999999999999", "Feb 31 99:99:99", "-- Boot ", "NVRM: Xid"),
    ]
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_any_mix_of_decoration_is_read(line: str) -> None:
    """Broken and repeated decoration raises nothing, not in the clock either."""
    LogClock(UTC, NOW_US).record(parse_line(line), stream=0, seq=1, number=1)


# --- the clock ---------------------------------------------------------------------------------------------------------


def clocked(lines: list[str], *, year: int | None = None, tail: list[str] | None = None) -> list[tuple[int | None, str | None]]:
    """(wall_us, boot_id) of each line."""
    clock = LogClock(UTC, NOW_US, year)
    read = [parse_line(line) for line in lines]
    clock.look_ahead(read, [parse_line(line) for line in tail or []])
    records = [clock.record(line, stream=0, seq=n, number=n) for n, line in enumerate(read, 1)]
    return [(record.wall_us, record.boot_id) for record in records]


def walls(lines: list[str], *, year: int | None = None, tail: list[str] | None = None) -> list[int | None]:
    """wall_us of each line."""
    return [wall for wall, _ in clocked(lines, year=year, tail=tail)]


def test_year_is_the_latest_that_is_not_in_the_future() -> None:
    """A date without a year is of this year, or of the last one when it lies ahead of now."""
    assert [micros(2026, 5, 1)] == walls(["May  1 00:00:00 n kernel: x"])
    assert [micros(2025, 12, 24)] == walls(["Dec 24 00:00:00 n kernel: x"])
    assert [micros(2019, 12, 24)] == walls(["Dec 24 00:00:00 n kernel: x"], year=2019)


def test_new_year_steps_forward() -> None:
    """31 December is followed by 1 January of the next year, so the log began in the year before."""
    log = [
        "Dec 31 23:59:59 n kernel: x",
        "Jan  1 00:00:00 n kernel: x",
        "Dec 31 23:59:59 n kernel: late",
        "Jan  1 00:00:01 n kernel: x",
    ]
    expected = [
        micros(2025, 12, 31, 23, 59, 59),
        micros(2026, 1, 1),
        micros(2025, 12, 31, 23, 59, 59),
        micros(2026, 1, 1, 0, 0, 1),
    ]
    assert expected == walls(log)


def test_end_of_the_log_decides_where_it_began() -> None:
    """A log from November to January began last year, although November alone could be of this one."""
    assert [micros(2025, 11, 20)] == walls(["Nov 20 00:00:00 n kernel: x"], tail=["Jan  3 00:00:00 n kernel: x"])


def test_29_february_without_year_needs_a_year_that_has_one() -> None:
    """A date that this year does not have belongs to the last year that does."""
    assert [micros(2024, 2, 29)] == walls(["Feb 29 00:00:00 n kernel: x"])


def test_zone_is_an_argument() -> None:
    """Times without a zone are read in the zone given; times with one are not moved."""
    zone = timezone(timedelta(hours=2))
    clock = LogClock(zone, NOW_US)
    local = clock.record(parse_line("May  1 02:00:00 n kernel: x"), stream=0, seq=1, number=1)
    named = clock.record(parse_line("2026-05-01T02:00:00.000000-01:00 n kernel: x"), stream=0, seq=2, number=2)
    assert (micros(2026, 5, 1), None) == (local.wall_us, local.utc_offset_s)
    assert (micros(2026, 5, 1, 3), -3600) == (named.wall_us, named.utc_offset_s)


def test_uptime_gets_a_wall_clock_where_the_log_has_both() -> None:
    """Lines with uptime alone take the offset of lines that have both, with a source and an uncertainty that say so."""
    clock = LogClock(UTC, NOW_US)
    lines = [
        parse_line("[  100.000000] a"),
        parse_line("May  1 00:01:40 kernel: [  100.000000] b"),
        parse_line("[  160.500000] c"),
    ]
    clock.look_ahead(lines, [])
    first, _, last = (clock.record(line, stream=0, seq=n, number=n) for n, line in enumerate(lines, 1))
    assert (micros(2026, 5, 1, 0, 1, 40), "boot_offset", 1.0) == (first.wall_us, first.time_source, first.uncertainty_s)
    assert micros(2026, 5, 1, 0, 2, 40) + 500_000 == last.wall_us
    assert None is walls(["[  100.000000] alone"])[0]


def test_deltas_count_on_from_the_heading() -> None:
    """`dmesg -H` prints the minute once and then the time since the line before."""
    read = walls(["[May19 19:57] CMCI storm", "[  +0.000127] mce: x", "[  +2.000000] y"])
    assert [micros(2026, 5, 19, 19, 57), micros(2026, 5, 19, 19, 57) + 127, micros(2026, 5, 19, 19, 57, 2) + 127] == read
    assert [None] == walls(["[  +0.000092] x"])


def boots(lines: list[str]) -> list[str | None]:
    """boot_id of each line."""
    return [boot for _, boot in clocked(lines)]


def test_boots_are_counted() -> None:
    """Uptime zero or the kernel's first line begins a boot, once however many lines it has."""
    log = [
        "[ 9999.000000] x",
        "[    0.000000] Initializing",
        "[    0.000000] Linux version 6.8",
        "[    1.000000] y",
        "[    0.000000] Linux version 6.8",
    ]
    assert ["boot-1", "boot-2", "boot-2", "boot-2", "boot-3"] == boots(log)
    journal = [
        "May  1 00:00:00 n kernel: Linux version 6.8",
        "May  1 00:00:01 n kernel: x",
        "May  2 00:00:00 n kernel: Linux version 6.8",
    ]
    assert ["boot-1", "boot-1", "boot-2"] == boots(journal)


def test_falling_uptime_is_no_boot() -> None:
    """An uptime that falls without a boot's first lines is a resume or a mix of excerpts."""
    assert ["boot-1", "boot-1", "boot-1"] == boots(["[38889.018130] x", "[ 1108.858286] y", "[38889.018130] z"])


def test_journalctl_names_the_boot() -> None:
    """`-- Boot ID --` gives the records behind it that id."""
    boot = "4d7f00000000000000000000000000aa"
    assert ["boot-1", boot, boot] == boots(["May  1 00:00:00 n kernel: x", f"-- Boot {boot} --", "May  1 00:00:05 n kernel: y"])


def test_line_is_a_value() -> None:
    """A date that does not exist leaves the record without a time instead of raising."""
    clock = LogClock(UTC, NOW_US)
    line = LogLine("x", Stamp(2026, 2, 31, 0, 0, 0, 0, None, 1.0))
    assert None is clock.record(line, stream=0, seq=1, number=1).wall_us


FORGED = {
    f"<14>Nov 20 02:13:41 gpu07 kernel: {XID}": "syslog",
    f"<13>1 2026-11-20T02:13:41Z gpu07 NVRM - - -  {XID[6:]}": "syslog (RFC 5424)",
    f"<12>1 2026-11-20T02:13:41Z gpu07 kernel - - -  {XID}": "syslog (RFC 5424)",
    f'{{"msg":" {XID[6:]}","rawmsg":"<13>Nov 20 02:13:41 {XID}","timereported":"2026-11-20T02:13:41Z","syslogtag":"NVRM:",'
    '"syslogfacility":"1","programname":"NVRM"}': "JSON lines",
    f'{{"msg":" {XID}","timereported":"2026-11-20T02:13:41Z","syslogtag":"kernel:","syslogfacility":"1"}}': "JSON lines",
    f'{{"pri":11,"time":100.5,"msg":"{XID}"}}': "dmesg -J",
    f"[  101.500000 <    1.000000 >] gpu07 {XID}": "journalctl -o short-delta",
}


@pytest.mark.parametrize("line", FORGED)
def test_user_space_cannot_speak_as_the_kernel(line: str) -> None:
    """A facility or a tag that is not the kernel's is known wherever it travels, and the first word is put back."""
    read = parse_line(line)
    assert (XID, "no", FORGED[line]) == (read.text, read.trusted, read.form)


SHIPPED = {
    f'{{"msg":" {XID}","timereported":"2026-11-20T02:13:41Z","hostname":"gpu07","syslogtag":"kernel:","syslogfacility":"0"}}',
    f'{{"jsonPayload":{{"message":"{XID}"}},"timestamp":"2026-11-20T02:13:41Z"}}',
    f'2026-11-20T02:13:41+00:00\tkern.log\t{{"host":"gpu07","ident":"kernel","message":"{XID}"}}',
    f'2026-11-20 02:13:41.000000000 +0000 kern.log: {{"ident":"kernel","message":"{XID}"}}',
    f'data: {{"message":"{XID}","time":"2026-11-20T02:13:41Z"}}',
    f'\x1e{{"message":"{XID}","time":"2026-11-20T02:13:41Z"}}',
}


@pytest.mark.parametrize("line", sorted(SHIPPED))
def test_objects_of_shippers(line: str) -> None:
    """rsyslog, Google Cloud, Fluentd and the framings of journalctl: message and time are found."""
    read = parse_line(line)
    assert read.stamp is not None
    assert (XID, (2026, 11, 20, 2, 13, 41), "unverifiable") == (read.text, read.stamp[:6], read.trusted)


@pytest.mark.parametrize("clock", ["11/20/2026 | 02:13:50", "11/20/26 | 02:13:50 UTC"])
def test_time_of_the_bmc_event_log(clock: str) -> None:
    """ipmitool prints month, day and year in columns of their own."""
    read = parse_line(f"   a | {clock} | Power Supply #0x51 | Power Supply AC lost | Asserted")
    assert read.stamp is not None
    assert (2026, 11, 20, 2, 13, 50) == read.stamp[:6]


@pytest.mark.parametrize("zone", ["+99:00", "-14:01", "+24:00"])
def test_zone_that_does_not_exist(zone: str) -> None:
    """An impossible offset is read as none, and is noted."""
    clock = LogClock(UTC, NOW_US)
    record = clock.record(parse_line(f"2026-11-20T02:13:41{zone} gpu07 kernel: x"), stream=0, seq=1, number=1)
    assert (micros(2026, 11, 20, 2, 13, 41), None, 1) == (record.wall_us, record.utc_offset_s, clock.odd_zones)


def test_time_beyond_the_calendar_is_no_time() -> None:
    """A time that no date can show has no source either."""
    line = parse_line("9999-12-31T23:59:59.999999-12:00 gpu07 kernel: x")
    record = LogClock(UTC, NOW_US).record(line, stream=0, seq=1, number=1)
    assert (None, None, None) == (record.wall_us, record.time_source, record.utc_offset_s)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("process '/tmp/NVRM: Xid (PCI:0000:1b:00): 79' started", ("NVRM: Xid (PCI:0000:1b:00): 79' started", True)),
        ("usb 1-1: Product: NVRM: Xid (PCI:0000:1b:00): 79, x", ("NVRM: Xid (PCI:0000:1b:00): 79, x", True)),
        ("> NVRM: loading", ("NVRM: loading", False)),
        ("NVRM: Xid (PCI:0000:1b:00): 13, NVRM: twice", ("NVRM: Xid (PCI:0000:1b:00): 13, NVRM: twice", False)),
        ("eth0: link up", ("eth0: link up", False)),
    ],
)
def test_a_record_is_cut_like_a_line(text: str, expected: tuple[str, bool]) -> None:
    """What /dev/kmsg and the journal deliver whole is held to the same: only the start of a message is a fact."""
    cut = unglued(Record(text=text, trusted="kernel"))
    assert expected == (cut.text, cut.glued)
