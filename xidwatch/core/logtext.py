"""One physical line of any log -> the message in it, and what the decoration in front said.

Time is only read here, not interpreted: `LogClock` makes a Record of a LogLine.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from xidwatch.core.journal import parse_journal
from xidwatch.core.kmsg import parse_kmsg
from xidwatch.core.months import is_english, month_number
from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record, Trust

MESSAGE_STARTS: tuple[str, ...] = (
    "NVRM:", "NVRM ", "nvidia-nvswitch", "nvidia-uvm:", "nvidia-modeset:", "SXid (PCI", "INFO: task ",
    "NMI watchdog: ", "watchdog: BUG:", "BUG: soft lockup",
)  # fmt: skip
"""How the messages that matter begin: found behind other text, they are glued to it."""
_OF_GPUS = MESSAGE_STARTS[:6]


class Stamp(NamedTuple):
    """A wall-clock time as printed. `offset_s` is None where no zone is given, `year` where no year is."""

    year: int | None
    month: int
    day: int
    hour: int
    minute: int
    second: int
    micro: int
    offset_s: int | None
    resolution_s: float


@dataclass(slots=True)
class LogLine:
    """What one physical line says. Fields that Record has too mean the same here.

    Attributes:
        stamp: Wall-clock time as printed.
        epoch_us: Wall-clock time that was printed as a number of microseconds since 1970.
        delta_us: Time since the record before it (`[  +0.000092]`).
        form: Name of the format, for the report; "" for a bare line.
        kernel: The decoration says that the kernel wrote it (a tag, printk's clock, facility 0).
        record: A complete record, where the line was a journal entry.
        facility: The facility that syslog printed in front (0 is the kernel).
        month_word: The name of the month, where it is not the English one.
        partial: A container's runtime cut the message here; the next line goes on with it.
    """

    text: str
    stamp: Stamp | None = None
    epoch_us: int | None = None
    delta_us: int | None = None
    uptime_us: int | None = None
    boot_id: str | None = None
    host: str | None = None
    program: str | None = None
    program_pid: int | None = None
    trusted: Trust = "unverifiable"
    glued: bool = False
    timed: bool = False
    form: str = ""
    kernel: bool = False
    record: Record | None = None
    facility: int | None = None
    partial: bool = False
    month_word: str | None = None


_ANSI = lazy(r"(?:\x1b|#033|\^\[)\[[0-9;?]*[ -/]*[@-~]")
_OCTAL = lazy(r"#0(11|12|15)")
_GREP = lazy(
    r"(?:[\w./+@-]*(?:\.log|\.txt|\.gz|syslog|messages|dmesg)[\w.-]*)[:-](?:\d+[:-])?(?=[^\s/])|\d{1,9}[:-](?=[\[A-Z<]\S)"
)
_UPTIME = lazy(r"\[? {0,11}(\d{1,9})\.(\d{1,9})(?: <[ \d.+]*>)? {0,20}\] ?")
_CALLER = lazy(r"\[ *[TC]\d+\] ?")
_CTIME = lazy(r"\[([^\W\d][^\]:\[]{2,40}?) +(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})(?: <[ \d.+]*>)?\] ?")
_HEADING = lazy(r"\[([^\W\d][^\d\]:\[]{1,14}?|\d{1,2}[月월]) *(\d{1,2}) (\d\d):(\d\d)\] ?")
_DELTA = lazy(r"\[ *[+<] *(\d{1,9})\.(\d{6}) *>?\] ?")
_ELIDED = lazy(r"\[ ?(?:\.\.\.|…) ?\] ?")
_ZONE = r"(?: ?(Z|UTC|GMT|[+-]\d\d:?\d\d)(?![\w:]))?"
_ISO = lazy(
    r"(\[?)(?:[A-Z][a-z]{2},? )?(\d{4})([-/])(\d\d)[-/](\d\d)([T ])(\d\d):(\d\d):(\d\d)(?:([.,])(\d{1,9}))?"
    + _ZONE
    + r"(?: [A-Z]{3,4}(?= \S+ \S+:))?(?:\]:? ?|:? +|:?$|(?=\())"
)
_RFC3164 = lazy(
    r"(\S{1,14}(?: [^\s:]{1,10}){0,2}?) {1,3}(\d{1,2})(?: (\d{4}))? (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?" + _ZONE + r"(?: |$)"
)
_UNIX = lazy(r"(\d{10})\.(\d{6}) (?=\S+ \S+:)")
_PRI = lazy(r"<(\d{1,3})>(?=[\[\w ])")
_RFC5424 = lazy(r"1 (?=(?:-|\d{4}-\d\d-\d\dT)\S* )")
_RFC5424_REST = lazy(r"(\S+) (\S+) (\S+) (\S+) \S+ (?:-|(?:\[(?:[^\]\"\\]|\"(?:[^\"\\]|\\.)*\"|\\.)*\])+)(?: \ufeff?|$)")
_LEVEL = lazy(
    r"(kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local\d) *: *"
    r"(?:emerg|alert|crit|err|error|warn|warning|notice|info|debug) *: ?"
)
_TALOS = lazy(r"([\w.-]+): (?=(?:kern|user|daemon): )")
_CLUSTER = lazy(r"([A-Za-z][\w.-]*): (?=\[ *\d+\.\d{2}|\[[A-Z][a-z]{2} [A-Z][a-z]{2} )")
_CRI = lazy(r"(?:stdout|stderr) ([FP]) ")
_COMPONENT = lazy(r"\[[A-Z]+\](?=\d{4}-)")
_KERNEL_TAG = lazy(r"(?:(\S+) +)??kernel:(?: |(?=\[)|$)")
_TAG = lazy(r"(?:([\w.:-]+) +)?(\([^\s()]+\)|[^\s:\[\]()]+)(?:\[(\d*)\])?:(?: |$)")
_BARE_TAG = lazy(r"(\([^\s()]+\)|[^\s:\[\]()]+)(?:\[(\d*)\])?:(?: |$)")
_LEVEL_WORD = lazy(r"(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|ERR|CRITICAL|FATAL|PANIC|-)$", re.IGNORECASE)
_INJECTED = lazy(r"(?:NVRM|nvidia-(?:nvswitch\d+|uvm|modeset|nvlink|peermem)|mce|rcu)$")
_CONSOLE = lazy(r"\[ *(\d{1,9})\.(\d{6})\](?=[ \[])")
_VLLM = lazy(r"(?:\([^()]*\) )?(?:INFO|WARNING|ERROR|DEBUG|CRITICAL) (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d) ")
_GLOG = lazy(r"(?:\[\d+\] )?(?:\[rank\d+\]:)?\[?[IWEF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6})")
_BEHIND_PROCESS = lazy(r"\([^()]*\) (?=\[?\d{4}-)")
_APP_FIRST = frozenset("([IWEFDC")
_CANDIDATE = lazy(
    r"(?<!\S)(?=[A-Z][a-z]{2} [ \d]\d \d\d:|\d{4}-\d\d-\d\d[T ]|\S+ kernel: |kernel:|\[[ \d]+\.\d\d|\[[A-Z][a-z]{2} |kern +:)"
)
_BOOT = lazy(r"-- (?:Boot ([0-9a-f]{32})|Reboot) --$")
_VERBOSE = lazy(r"(?:_|__)?[A-Z][A-Z_]{2,}=")
_SEL = lazy(
    r" {0,4}[0-9a-f]{1,4} *\| *"
    r"(?:(\d\d)/(\d\d)/(\d{4}|\d\d) *\| *(\d\d):(\d\d):(\d\d)(?: ([A-Z]{2,5}|[+-]\d\d))?|Pre-Init *\|[^|]*) *\|"
)
"""ipmitool sel list, sel elist; the zone since 1.8.19."""
_SHIPPED = lazy(r"(?:(\S+)\t([\w.-]+)\t|(\d{4}-\d\d-\d\d \S+ [+-]\d{4}) ([\w.-]+): )(?=\{.)")
"""Fluentd's out_file (tabs) and out_stdout: time, tag, object."""
_LONGEST_JSON = 1 << 16


def parse_line(line: str, starts: tuple[str, ...] = MESSAGE_STARTS) -> LogLine:
    """Free one physical line from its decoration; never raises.

    Args:
        line: Decoded, with or without its line end.
        starts: How the messages that matter begin.
    """
    rest = _clean(line).removeprefix("data: ")
    out = LogLine(rest)
    if rest.startswith("{") and len(rest) <= _LONGEST_JSON and (entry := _json_object(rest)) is not None:
        return _from_object(entry, starts) or out
    if (kmsg := parse_kmsg(rest) if rest[:1].isdecimal() else None) is not None:
        out.text, out.uptime_us, out.timed, out.form, out.kernel = (
            kmsg.text,
            kmsg.since_boot_us,
            True,
            "/dev/kmsg records",
            True,
        )
        out.trusted = "no" if kmsg.trusted == "no" else "unverifiable"
        return _judge(out, starts)
    if rest.startswith("-- ") and (boot := _BOOT.match(rest)):
        out.boot_id, out.form, out.kernel = boot[1] or "", "journalctl", True
        return out
    if rest.endswith("}") and (shipped := _shipped_object(rest, starts)) is not None:
        return shipped
    text = _peel(rest, out)
    if out.timed or out.kernel or out.program:
        out.text = text
    elif (sel := _SEL.match(rest)) is not None:
        _sel_time(sel, out)
    else:
        _unframe(rest, out)
    if not out.timed:
        _app_time(out.text.lstrip(), out)
    if out.partial:
        out.text += line[len(line.rstrip("\r\n \t")) :].rstrip("\r\n")
    return _judge(out, starts)


def _clean(line: str) -> str:
    rest = line.rstrip("\r\n \t\0").lstrip("\0\ufeff\x1e")
    if "\x1b" in rest or "#033[" in rest or "^[[" in rest:
        rest = _ANSI.sub("", rest).rstrip()
    if "\r" in rest:
        rest = rest[rest.rfind("\r") + 1 :]
    if "#0" in rest:
        rest = _OCTAL.sub(lambda octal: {"11": "\t", "12": "\n", "15": ""}[octal[1]], rest).rstrip()
    return rest


def _sel_time(sel: re.Match[str], out: LogLine) -> None:
    """The time of a line of the BMC's event log, which stays in the text: it is a column of it."""
    out.timed, out.form = True, "ipmitool sel"
    if sel[1] is None:
        return
    month, day, year, hour, minute, second = map(int, sel.group(1, 2, 3, 4, 5, 6))
    year += 2000 if year < 100 else 0
    out.stamp = Stamp(year, month, day, hour, minute, second, 0, 0 if sel[7] in ("UTC", "GMT") else None, 1.0)


def _unframe(rest: str, out: LogLine) -> None:
    """Try again behind quote marks, bold marks, a table's frame, a file name from grep."""
    inner = _without_marks(rest)
    text = _peel(inner, out)
    if out.timed or out.kernel or out.program:
        out.text = text
    elif inner is not rest:
        out.text = inner
    if field := _VERBOSE.match(out.text.lstrip()):
        out.text = out.text.lstrip()[field.end() :] if field[0] == "MESSAGE=" else out.text


def _without_marks(rest: str) -> str:
    """The line without what a mail, a forum or grep put around it; its indent, which tells a wrapped line, stays."""
    inner = rest.strip()
    first, last = inner[:1], inner[-1:]
    if len(inner) < 3:
        inner = rest
    elif first in "|│" and last in "|│":
        inner = inner[1:-1].rstrip().removeprefix(" ")
    elif first == ">":
        while inner.startswith(">"):
            inner = inner[1:].removeprefix(" ")
    elif inner.startswith(("**", "`")):
        inner = inner.strip("*`")
    elif first in "\"'" and first == last and inner.count(first) == 2:
        inner = inner[1:-1]
    elif grep := _GREP.match(inner):
        inner = inner[grep.end() :]
    elif first_start(inner) != 2 or not inner.startswith("- "):
        inner = rest
    return inner


# --- decoration, from the left: each function takes off one layer, or gives None when it is not there ---------------------


def _peel(rest: str, out: LogLine) -> str:
    """Take off one layer after another until none is left."""
    for _ in range(6):
        if rest[:1] == " " and not out.timed:
            rest = rest.lstrip()
        for take_off in _layers(rest[:1]):
            layer = take_off(rest, out)
            if layer is not None:
                break
        else:
            return rest
        rest = layer
        if out.kernel and out.uptime_us is not None:
            break
    return rest


def _layers(first: str) -> tuple[_Layer, ...]:
    if first == "[":
        return _IN_BRACKETS
    if first == "<":
        return (_priority,)
    if first.isdecimal():
        return _FROM_DIGITS
    return _FROM_WORDS if first.isalpha() or first in {":", "."} else ()


def _uptime(rest: str, out: LogLine) -> str | None:
    uptime = _UPTIME.match(rest)
    if uptime is None or (rest[0] != "[" and out.timed):
        return None
    return _behind_uptime(rest, uptime, out)


def _ctime(rest: str, out: LogLine) -> str | None:
    ctime = _CTIME.match(rest)
    month = _last_month(ctime[1], out) if ctime else None
    if ctime is None or month is None:
        return None
    day, hour, minute, second, year = map(int, ctime.group(2, 3, 4, 5, 6))
    _timed(out, Stamp(year, month, day, hour, minute, second, 0, None, 1.0), "dmesg -T")
    out.kernel = True
    return rest[ctime.end() :]


def _last_month(words: str, out: LogLine) -> int | None:
    """The month behind a weekday; either may be several words."""
    parts = words.split()
    months = (_month(" ".join(parts[at:]), out) for at in range(1, len(parts)))
    return next((month for month in months if month is not None), None)


def _month(word: str, out: LogLine) -> int | None:
    month = month_number(word)
    if month is not None and not is_english(word):
        out.month_word = word
    return month


def _heading(rest: str, out: LogLine) -> str | None:
    heading = _HEADING.match(rest)
    month = _month(heading[1], out) if heading else None
    if heading is None or month is None:
        return None
    day, hour, minute = map(int, heading.group(2, 3, 4))
    _timed(out, Stamp(None, month, day, hour, minute, 0, 0, None, 60.0), "dmesg -H")
    out.kernel = True
    return rest[heading.end() :]


def _delta(rest: str, out: LogLine) -> str | None:
    delta = _DELTA.match(rest)
    if delta is None:
        return None
    out.delta_us, out.timed, out.kernel, out.form = int(delta[1]) * 1_000_000 + int(delta[2]), True, True, "dmesg -H"
    return rest[delta.end() :]


def _elided(rest: str, out: LogLine) -> str | None:
    elided = _ELIDED.match(rest)
    if elided is None:
        return None
    out.timed, out.kernel, out.form = True, True, "dmesg, times elided"
    return rest[elided.end() :]


def _component(rest: str, out: LogLine) -> str | None:
    component = _COMPONENT.match(rest) if not out.timed else None
    return rest[component.end() :] if component else None


def _iso(rest: str, out: LogLine) -> str | None:
    iso = _ISO.match(rest)
    return _behind_iso(rest, iso, out) if iso else None


def _behind_uptime(rest: str, uptime: re.Match[str], out: LogLine) -> str:
    out.uptime_us = int(uptime[1]) * 1_000_000 + int(uptime[2][:6].ljust(6, "0"))
    if uptime[0].rstrip().endswith((" ]", " >]")):
        out.timed, out.form = True, "journalctl -o short-delta"
        return _behind_time(rest[uptime.end() :], out)
    out.form = "syslog with uptime" if out.stamp else f"{out.form} with uptime" if out.form else "dmesg"
    had_tag = out.kernel
    out.timed = out.kernel = True
    rest = rest[uptime.end() :]
    if caller := _CALLER.match(rest.lstrip()):
        rest = rest.lstrip()[caller.end() :]
    elif (again := _UPTIME.match(rest)) and rest[0] == "[":
        return _behind_uptime(rest, again, out)
    elif not had_tag and (tag := _KERNEL_TAG.match(rest)) and tag[1]:
        out.host, out.form = _host(tag[1]), "journalctl -o short-monotonic"
        rest = rest[tag.end() :]
    return rest


def _priority(rest: str, out: LogLine) -> str | None:
    if out.timed or not (priority := _PRI.match(rest)) or int(priority[1]) > 191:
        return None
    facility = int(priority[1]) >> 3
    out.form = "printk levels"
    rest = rest[priority.end() :]
    if version := _RFC5424.match(rest):
        return _behind_rfc5424(rest[version.end() :], facility, out)
    out.kernel, out.facility = facility == 0, facility
    if facility and rest.lstrip().startswith("["):
        out.trusted = "no"
    return rest


def _behind_rfc5424(rest: str, facility: int | None, out: LogLine) -> str:
    iso = _ISO.match(rest)
    fields = _RFC5424_REST.match(rest)
    if fields is None:
        return rest
    if iso:
        _timed(out, _iso_stamp(iso), "syslog (RFC 5424)")
    out.timed, out.host, out.facility = True, _host(fields[2]), facility
    return _told_by(fields[3], fields[4] if fields[4].isdecimal() else None, rest[fields.end() :], out)


def _bare_rfc5424(rest: str, out: LogLine) -> str | None:
    version = _RFC5424.match(rest) if not out.timed else None
    return _behind_rfc5424(rest[version.end() :], None, out) if version else None


def _rfc3164(rest: str, out: LogLine) -> str | None:
    date = _RFC3164.match(rest) if out.uptime_us is None else None
    return _behind_rfc3164(rest, date, out) if date else None


def _unix_time(rest: str, out: LogLine) -> str | None:
    number = _UNIX.match(rest) if not out.timed else None
    if number is None:
        return None
    out.epoch_us, out.timed, out.form = int(number[1] + number[2]), True, "journalctl -o short-unix"
    return _behind_time(rest[number.end() :], out)


def _level(rest: str, out: LogLine) -> str | None:
    level = _LEVEL.match(rest)
    if level is None:
        return None
    out.kernel = level[1] == "kern"
    if not out.kernel:
        out.trusted = "no"
    out.form = "dmesg -x"
    return rest[level.end() :]


def _kernel_tag(rest: str, out: LogLine) -> str | None:
    tag = _KERNEL_TAG.match(rest) if not out.kernel and not out.program else None
    if tag is None or (tag[1] and not out.timed):
        return None
    out.kernel, out.host = True, _host(tag[1]) or out.host
    out.form = out.form or "message part of a syslog"
    return rest[tag.end() :]


def _node(rest: str, out: LogLine) -> str | None:
    """What Talos, pdsh or Ansible put in front: the node."""
    named = (_TALOS.match(rest) or _CLUSTER.match(rest)) if not out.timed and not out.kernel else None
    if named is None:
        return None
    out.host = named[1]
    return rest[named.end() :]


_Layer = Callable[[str, LogLine], str | None]
_IN_BRACKETS: tuple[_Layer, ...] = (_uptime, _ctime, _delta, _heading, _elided, _component, _iso)
_FROM_DIGITS: tuple[_Layer, ...] = (_iso, _rfc3164, _uptime, _unix_time, _bare_rfc5424, _node)
_FROM_WORDS: tuple[_Layer, ...] = (_rfc3164, _level, _iso, _kernel_tag, _node)


def _behind_iso(rest: str, iso: re.Match[str], out: LogLine) -> str | None:
    if out.uptime_us is not None:
        return None
    bracketed, dmesg = iso[1] == "[", iso[10] == "," and iso[6] == "T"
    if bracketed != ("]" in iso[0][-3:]):
        return None
    stamp = _iso_stamp(iso)
    if stamp is None:
        return None
    form = "dmesg --time-format iso" if dmesg else "ISO times" if iso[3] == "-" else "dated lines"
    _timed(out, stamp, out.form or form)
    rest = rest[iso.end() :]
    if cri := _CRI.match(rest):
        out.form, out.timed, out.partial = "container log", True, cri[1] == "P"
        return rest[cri.end() :]
    out.kernel = out.kernel or dmesg
    return rest if dmesg or bracketed or iso[3] == "/" or out.kernel else _behind_time(rest, out, spaced=iso[6] == " ")


def _iso_stamp(iso: re.Match[str]) -> Stamp | None:
    year, month, day, hour, minute, second = map(int, iso.group(2, 4, 5, 7, 8, 9))
    return Stamp(year, month, day, hour, minute, second, _fraction_us(iso[11]), _zone_s(iso[12]), _resolution_s(iso[11]))


def _behind_rfc3164(rest: str, date: re.Match[str], out: LogLine) -> str | None:
    month = _month(date[1], out)
    if month is None:
        return None
    day, hour, minute, second = map(int, date.group(2, 4, 5, 6))
    year = int(date[3]) if date[3] else None
    stamp = Stamp(year, month, day, hour, minute, second, _fraction_us(date[7]), _zone_s(date[8]), _resolution_s(date[7]))
    _timed(out, stamp, "syslog" if not date[7] else "journalctl -o short-precise")
    return _behind_time(rest[date.end() :], out)


def _behind_time(rest: str, out: LogLine, *, spaced: bool = False) -> str:
    """Host and tag behind a time; `spaced`: a date and time with a blank between, which programs print too."""
    rest = rest.lstrip() if not rest.startswith("  ") or _KERNEL_TAG.match(rest.lstrip()) else rest
    if (tag := _KERNEL_TAG.match(rest)) and not (tag[1] or "").endswith("]:"):
        out.host, out.kernel = _host(tag[1]) or out.host, out.trusted != "no"
        return rest[tag.end() :]
    bare = _BARE_TAG.match(rest)
    tagged = bare or _TAG.match(rest)
    if tagged is None:
        return rest
    host: str | None = None if bare else tagged[1]
    program, pid = tagged.group(*((1, 2) if bare else (2, 3)))
    if _LEVEL_WORD.match(program) or (host and _LEVEL_WORD.match(host)) or (spaced and not pid):
        return rest
    injected = _INJECTED.match(program) is not None
    if host is None and pid is None and injected:
        return rest
    out.host = _host(host) or out.host
    if injected or (host and pid is None and rest[tagged.end(2) :].startswith(": BUG:")):
        # The journal prints lines that root wrote into /dev/kmsg with their first word as the tag; `logger -t` can do the same.
        out.program, out.trusted = program, "no"
        return rest[tagged.start(2) :] if pid is None else f"{program}: {rest[tagged.end() :]}"
    _tagged(out, program, pid)
    return rest[tagged.end() :]


def _told_by(tag: str, pid: str | None, message: str, out: LogLine) -> str:
    """Take a tag that travels in a field of its own; the message, with the first word back that syslog made a tag of."""
    if pid is None and _INJECTED.match(tag):
        out.program, out.trusted, out.kernel = tag, "no", False
        return f"{tag}: {message.lstrip()}"
    _tagged(out, tag, pid)
    return message


def _tagged(out: LogLine, program: str, pid: str | None) -> None:
    if program == "kernel" and pid is None:
        out.kernel = True
    elif program != "-":
        out.kernel, out.program, out.program_pid = False, program, int(pid) if pid else None


def _timed(out: LogLine, stamp: Stamp | None, form: str) -> None:
    out.stamp, out.timed, out.form = stamp, True, form


def _host(word: str | None) -> str | None:
    """A node name; None for what stands in its place when somebody cut it out."""
    return word if word and word.strip(".…-*") else None


def _fraction_us(digits: str | None) -> int:
    return int(digits[:6].ljust(6, "0")) if digits else 0


def _resolution_s(digits: str | None) -> float:
    return 1.0 if not digits else 0.001 if len(digits) < 6 else 0.0


def _zone_s(zone: str | None) -> int | None:
    if zone is None:
        return None
    if zone in ("Z", "UTC", "GMT"):
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return 60 * (minutes if zone[0] == "+" else -minutes)


def _app_time(rest: str, out: LogLine) -> None:
    """A program's own time, read but left in the text, where its parsers look for the process in front of it."""
    if rest[:1] not in _APP_FIRST:
        return
    if vllm := _VLLM.match(rest):
        month, day, hour, minute, second = map(int, vllm.groups())
        _timed(out, Stamp(None, month, day, hour, minute, second, 0, None, 1.0), "vLLM log")
    elif glog := _GLOG.match(rest):
        month, day, hour, minute, second, micro = map(int, glog.groups())
        _timed(out, Stamp(None, month, day, hour, minute, second, micro, None, 0.0), "PyTorch log")
    elif (behind := _BEHIND_PROCESS.match(rest)) and (iso := _ISO.match(rest, behind.end())):
        _timed(out, _iso_stamp(iso), "program log")


# --- the message -------------------------------------------------------------------------------------------------------


def _judge(out: LogLine, starts: tuple[str, ...]) -> LogLine:
    """Find our own text behind other text, and say whether user space is known to have written it."""
    at = first_start(out.text, starts)
    if "[" in out.text and not out.kernel and not out.program and not out.text.startswith("NVRM") and _console(out, at):
        at = first_start(out.text, starts)
    if at > 0:
        at = _behind_other_text(out, at)
    if at >= 0 and out.program is not None and out.record is None:
        out.trusted = "no"
    if out.facility and out.program is None and (out.kernel or at >= 0):
        out.trusted, out.kernel = "no", False
    return out


def _behind_other_text(out: LogLine, at: int) -> int:
    """Cut the text down to the message that starts at `at`, and say whether it is glued; its new place."""
    text = out.text
    front = text[:at]
    if not any(map(str.isalnum, front)) and "[" not in front:
        out.text = text[at:].rstrip('"*`') if front.strip() else text[at:]
        return 0
    if not out.kernel and not out.program and _embedded(out, at):
        return 0
    out.glued = True
    out.text = text[at:].rstrip('"') if front.endswith('"') else text[at:]
    return at


def unglued(record: Record) -> Record:
    """A record whose message that matters stands behind other text: that message alone, marked as glued.

    A program that quotes what the kernel said of a task says nothing of its own; of a GPU it may be the only one to tell.
    """
    at = first_start(record.text, MESSAGE_STARTS if record.program is None else _OF_GPUS)
    if at <= 0:
        return record
    front, text = record.text[:at], record.text[at:]
    if not any(map(str.isalnum, front)) and "[" not in front:
        return replace(record, text=text)
    return replace(record, text=text.rstrip('"') if front.endswith('"') else text, glued=True)


def _embedded(out: LogLine, at: int) -> bool:
    """A shipper's words in front of a whole log line: take the decoration that ends where the message begins."""
    text = out.text
    for candidate in _CANDIDATE.finditer(text, 0, at):
        inner = LogLine(text)
        peeled = _peel(text[candidate.start() :], inner)
        if len(peeled) == len(text) - at and (inner.kernel or inner.timed):
            out.text, out.kernel, out.timed = peeled, inner.kernel, True
            out.stamp, out.epoch_us = inner.stamp or out.stamp, inner.epoch_us or out.epoch_us
            out.uptime_us, out.delta_us, out.form = inner.uptime_us, inner.delta_us, inner.form or out.form
            out.host, out.program, out.program_pid = inner.host or out.host, inner.program, inner.program_pid
            return True
    return False


def _console(out: LogLine, at: int) -> bool:
    """A serial console prints what several wrote at once: the record stands behind the last of printk's times.

    Not where a message starts further on in the line (at `at`): that one is glued, or a shipper's words stand before it.
    """
    times = list(_CONSOLE.finditer(out.text))
    last = times[-1] if times else None
    if last is None or at > 0:
        return False
    out.uptime_us = int(last[1]) * 1_000_000 + int(last[2])
    out.text = out.text[last.end() :].removeprefix(" ")
    out.timed = out.kernel = True
    out.form = "serial console"
    return True


def first_start(text: str, starts: tuple[str, ...] = MESSAGE_STARTS) -> int:
    """Where the first of the message starts stands in the text; -1 when none does."""
    if text.startswith(starts):
        return 0
    found = -1
    for start in starts:
        at = text.find(start)
        if at >= 0 and (found < 0 or at < found):
            found = at
    return found


# --- lines that are objects --------------------------------------------------------------------------------------------


def _json_object(text: str) -> dict[str, object] | None:
    import json  # few logs need it, and it takes a millisecond

    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _from_object(entry: dict[str, object], starts: tuple[str, ...]) -> LogLine | None:
    if "MESSAGE" in entry and ("__REALTIME_TIMESTAMP" in entry or "_TRANSPORT" in entry or "PRIORITY" in entry):
        record = parse_journal(entry)
        if record is None:
            return None
        out = LogLine(
            record.text, None, record.wall_us, None, record.since_boot_us, record.boot_id, record.host, record.program,
            record.program_pid, record.trusted, False, True, "journalctl -o json", record.program is None, record,
        )  # fmt: skip
        return _judge(out, starts)
    entry = _with_payload(entry)
    key = next((key for key in _MESSAGE_KEYS if _inner_text(entry.get(key)) is not None), None)
    if key is None:
        return None
    message = _inner_text(entry[key]) or ""
    out = parse_line(message.rstrip("\n"), starts)
    out.form = "JSON lines" + (f" ({out.form})" if out.form else "")
    out.partial = out.partial or (key == "log" and "stream" in entry and not message.endswith("\n"))
    out.text += message[len(message.rstrip(" ")) :] if out.partial else ""
    _object_clocks(entry, out)
    out.host = out.host or next((name for key in _HOST_KEYS if isinstance(name := entry.get(key), str) and name), None)
    return _object_sender(entry, out, starts)


def _with_payload(entry: dict[str, object]) -> dict[str, object]:
    """With what an envelope holds: Google Cloud's `jsonPayload`, Fluentd's `record`."""
    inner = next((inner for key in _PAYLOADS if isinstance(inner := entry.get(key), dict)), None)
    return entry if inner is None else {**entry, **inner}


def _object_clocks(entry: dict[str, object], out: LogLine) -> None:
    """The time beside the message, where the message itself has none; `dmesg -J` has printk's clock there."""
    time = entry.get("time")
    if "pri" in entry and isinstance(time, (int, float)) and 0 <= time < 1e8:
        out.uptime_us, out.timed, out.form = round(time * 1e6), True, "dmesg -J"
        return
    outer = next((time for key in _TIME_KEYS if (time := _object_time(entry.get(key))) is not None), None)
    if outer is not None and out.stamp is None and out.epoch_us is None:
        out.stamp, out.epoch_us = (outer, None) if isinstance(outer, Stamp) else (None, outer)
    out.timed = out.timed or outer is not None


def _object_sender(entry: dict[str, object], out: LogLine, starts: tuple[str, ...]) -> LogLine:
    """Who sent it, by the fields beside the message: a facility other than the kernel's is user space."""
    out.facility = out.facility or _object_facility(entry)
    tag = next((tag for key in _TAG_KEYS if isinstance(tag := entry.get(key), str) and tag.strip(" -")), "").strip()
    tagged = _BARE_TAG.match(f"{tag.rstrip(':')}:") if tag else None
    if tagged is not None and out.program is None and not out.kernel:
        out.text = _told_by(tagged[1], tagged[2] or None, out.text, out)
    return _judge(out, starts)


def _object_facility(entry: dict[str, object]) -> int | None:
    """As a number or a word; `dmesg -J` has it in `pri`, or with -x in `fac`."""
    for key in _FACILITY_KEYS:
        value = entry.get(key)
        number = _whole_number(value)
        if number is not None and number < 24:
            return number
        if number is None and isinstance(value, str) and value:
            return 0 if value.lower() in ("kern", "kernel") else 1
    pri = _whole_number(entry.get("pri"))
    return pri >> 3 if pri is not None and pri < 192 else None


def _whole_number(value: object) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    return value if isinstance(value, int) and value >= 0 else None


def _shipped_object(rest: str, starts: tuple[str, ...]) -> LogLine | None:
    """An object behind a time and a tag."""
    front = _SHIPPED.match(rest) if len(rest) <= _LONGEST_JSON else None
    entry = _json_object(rest[front.end() :]) if front else None
    if front is None or entry is None:
        return None
    return _from_object({"@timestamp": front[1] or front[3], **entry}, starts)


_MESSAGE_KEYS = ("MESSAGE", "message", "msg", "log", "text", "_raw", "body", "Body", "line", "textPayload")
_PAYLOADS = ("jsonPayload", "record")
_TAG_KEYS = ("syslogtag", "programname", "app-name", "appname", "app_name", "ident", "SYSLOG_IDENTIFIER")
_FACILITY_KEYS = ("syslogfacility", "fac", "facility", "syslog_facility", "SYSLOG_FACILITY", "facility_label")
_TIME_KEYS = ("timereported", "@timestamp", "time", "timestamp", "ts", "__REALTIME_TIMESTAMP", "_time", "Timestamp", "date")
_HOST_KEYS = ("host", "hostname", "_HOSTNAME", "node", "node_name", "instance")


def _inner_text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    return _inner_text(value.get("stringValue")) if isinstance(value, dict) and "stringValue" in value else None


def _object_time(value: object) -> Stamp | int | None:
    """An ISO time, or seconds, milliseconds, micro- or nanoseconds since 1970, told apart by their size."""
    if isinstance(value, str):
        if (iso := _ISO.match(value)) and iso[1] == "":
            return _iso_stamp(iso)
        try:
            value = float(value) if "." in value else int(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1e8 < value < 1e20:
        return None
    scale = 1e6 if value < 1e11 else 1e3 if value < 1e14 else 1 if value < 1e17 else 1e-3
    return int(value * scale) if scale != 1 else int(value)
