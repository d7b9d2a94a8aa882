"""argv to one function to an exit code. The one place that prints, and the one error boundary."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, NoReturn

from xidwatch import __version__, terminal
from xidwatch.errors import XidwatchError

if TYPE_CHECKING:
    import argparse
    from datetime import tzinfo

    from xidwatch.core.classify import RuleTable
    from xidwatch.core.floor import Floor
    from xidwatch.core.incident import Postmortem
    from xidwatch.core.machine import Machine

FOUND, MISUSED, BROKEN, INTERRUPTED = 1, 2, 3, 130
"""Exit codes: something was found, the caller must mend something, a bug, Ctrl-C."""
_CLASSES = ("memory", "compute", "interconnect", "platform", "software", "unknown")
_SEVERITIES = ("info", "warning", "critical")
_MOST_UNREAD = 5
_REPORT_A_BUG = "xidwatch: this is a bug. Please report it with the text above and, if you may, the line it stumbled on."

_EXPLAIN = """\
Works out which fault came first, what kind it is, and what to do next.
Reads text logs, compressed logs, journal exports and bug reports; `-` is standard input; without an argument the kernel's ring
buffer is read.
A number, a name or a pasted log line instead of a file is explained itself (an existing file of that name is read)."""
_EXPLAIN_END = """\
examples:
  xidwatch explain /var/log/kern.log.1.gz
  journalctl -k -b -1 -o export | xidwatch explain -
  xidwatch explain 94
  xidwatch explain 'NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.'

exit status: 0 nothing at or above --fail-on, 1 something, 2 wrong usage, or nothing found and an input was unreadable,
3 a bug; with a code: 0"""


def run() -> NoReturn:
    """The console script: `main`, then out at once.

    Taking the interpreter apart piece by piece costs a seventh of a short run, and would wait for whatever is stuck.
    """
    # What the imports create stays: looking through it for garbage again and again finds none.
    gc.set_threshold(50_000, 20, 20)
    try:
        status = main()
    except SystemExit as done:  # argparse's own: --help and usage errors
        status = done.code if isinstance(done.code, int) else 0
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code; never raises, except SystemExit from argparse's own --help and usage errors."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _replace_closed_streams()
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()
    except XidwatchError as error:
        _complain(f"xidwatch: {error}")
        return MISUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`): nothing is wrong, and the interpreter must not complain about it at exit.
        _forget_output()
        return 0
    except Exception as error:  # noqa: BLE001  # the one boundary: a bug is told as one and gets its own exit code
        if isinstance(error, OSError) and (why := _why_unwritable(error)) is not None:
            _forget_output()
            _complain(f"xidwatch: cannot write: {why}")
            return MISUSED
        return INTERRUPTED if _is_interrupt(error) else _broken()


def _broken() -> int:
    import traceback

    traceback.print_exc()
    _complain(_REPORT_A_BUG)
    return BROKEN


def _is_interrupt(error: BaseException) -> bool:
    """Whether Ctrl-C is behind it: CPython 3.11 wraps one that falls into `__set_name__` in a RuntimeError."""
    seen: set[int] = set()
    while id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__ or error
    return False


def _replace_closed_streams() -> None:
    """Python has None for a stream that the caller closed (`>&-`): what is said there is lost, the report is not written."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it stays open as stderr does
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: SIM115


def _why_unwritable(error: OSError) -> str | None:
    """Why standard output takes nothing, found out by a line's end more; None when it does, and the error was another's."""
    if error.filename is not None:
        return None
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError as reason:
        if reason.errno == errno.EBADF:
            return "standard output is closed; give --output FILE, or > /dev/null"
        if reason.errno in (errno.ENOSPC, errno.EDQUOT):
            return "no space left where standard output goes"
        return reason.strerror or str(reason)
    return None


def _forget_output() -> None:
    """Let the interpreter drop at its exit what cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    arguments = _joined(arguments)
    parser = build_parser(arguments[0] if arguments else None)
    options = parser.parse_args(arguments)
    run: Callable[[argparse.Namespace], int] | None = getattr(options, "run", None)
    if run is None:
        terminal.say(parser.format_help())
        return MISUSED
    return run(options)


def _joined(arguments: list[str]) -> list[str]:
    """`--tz -05:00` as `--tz=-05:00`: argparse takes a value that begins with a minus for an option."""
    joined: list[str] = []
    for place, argument in enumerate(arguments):
        if argument == "--":
            return joined + arguments[place:]
        before = joined[-1] if joined else ""
        if re.match(r"-\d", argument) and re.fullmatch(r"--[a-z-]+", before) and before != "--redact":
            joined[-1] = f"{before}={argument}"
        else:
            joined.append(argument)
    return joined


# the commands


def _explain(options: argparse.Namespace) -> int:
    for argument in options.what:
        if re.fullmatch(r"-\d+", argument):
            raise XidwatchError(f"{argument}: no code is negative; the boot before this one is read with --boot -1")
    codes = [argument for argument in options.what if not _is_input(argument)]
    if codes and len(codes) == len(options.what):
        return _explain_codes(codes, options)
    if codes and (known := _known_codes(codes, options)):
        raise XidwatchError(f"{known[0]!r}: no such file; give either files or codes, not both")
    return _explain_logs(options.what, options)


def _is_input(argument: str) -> bool:
    """Whether it is to be read; a path that is not there is left to the reader, which knows why."""
    return argument == "-" or os.path.lexists(argument) or ("/" in argument and " " not in argument)


def _known_codes(arguments: list[str], options: argparse.Namespace) -> list[str]:
    from xidwatch.render.code_text import look_up

    rules = _rules(options)
    return [argument for argument in arguments if look_up(argument, rules) is not None]


def _explain_codes(codes: list[str], options: argparse.Namespace) -> int:
    from xidwatch.render.code_text import explain_code, explain_code_json

    if options.format in ("markdown", "html"):
        raise XidwatchError(f"--format {options.format} is for logs; a code is explained as text or json")
    rules = _rules(options)
    texts: list[str] = []
    unknown: list[str] = []
    for code in codes:
        if options.format == "json":
            text = explain_code_json(code, rules)
        else:
            text = explain_code(code, rules, color=terminal.wants_color(options.color), width=terminal.width())
        if text is None:
            unknown.append(f"{code!r}: no such file, and no Xid, SXid or name that xidwatch knows (try: xidwatch rules list)")
        else:
            texts.append(text)
    if texts:
        as_list = options.format == "json" and len(codes) > 1
        _deliver("[\n" + ",\n".join(texts) + "]\n" if as_list else "\n".join(texts), options.output)
    if unknown:
        raise XidwatchError("\n".join(unknown))
    return 0


def _explain_logs(paths: list[str], options: argparse.Namespace) -> int:
    from datetime import datetime, timezone

    from xidwatch.explain import ExplainOptions, anything_read, explain, unread_sentences
    from xidwatch.times import parse_moment, parse_year, parse_zone

    if options.format == "html":
        # Not after an hour of reading: a missing package is told first.
        from xidwatch.render.as_html import load_template

        load_template()
    zone = parse_zone(options.tz) if options.tz is not None else None
    now = datetime.now(timezone.utc).astimezone(zone)
    rules = _rules(options)
    bar = ProgressBar(sys.stderr, clock=time.monotonic) if sys.stderr.isatty() else None
    try:
        postmortem = explain(
            paths,
            ExplainOptions(
                since=parse_moment(options.since, now=now, option="--since") if options.since is not None else None,
                until=parse_moment(options.until, now=now, option="--until") if options.until is not None else None,
                boot=options.boot,
                gpu=options.gpu,
                fault_class=options.fault_class,
                tz=zone,
                year=parse_year(options.year) if options.year is not None else None,
                progress=bar,
                waiting=_say_waiting,
                floor=_floor(options),
                machine=_machine(options),
            ),
            rules,
        )
    finally:
        if bar is not None:
            bar.clear()
    unread = unread_sentences(postmortem)
    if unread and not anything_read(postmortem) and options.format != "json":
        raise XidwatchError("\n".join(unread))
    if options.redact:
        from xidwatch.render.redact import Redactor

        postmortem = Redactor().postmortem(postmortem)
    _deliver(_rendered(postmortem, rules, options, now.tzinfo), options.output)
    sys.stdout.flush()
    for sentence in unread[:_MOST_UNREAD]:
        _complain(f"xidwatch: {sentence}")
    if len(unread) > _MOST_UNREAD:
        _complain(f"xidwatch: and {len(unread) - _MOST_UNREAD} more that could not be read; the report names them")
    code = _exit_code(postmortem, options.fail_on)
    return MISUSED if unread and code == 0 else code


def _floor(options: argparse.Namespace) -> Floor | None:
    """What the node serves: by --config; this machine's own configuration speaks for its own ring buffer only."""
    from pathlib import Path

    own = "/etc/xidwatch/config.toml"
    file = options.config or (own if not options.what and os.path.exists(own) else None)
    if file is None:
        return None
    from xidwatch.config import load_config
    from xidwatch.workload import read_workload

    config = load_config(Path(file))
    return read_workload(config.workload).floor() if config.workload is not None else None


def _machine(options: argparse.Namespace) -> Machine:
    """What this machine is, where its own log is read; of any other only its log tells."""
    if options.what:
        from xidwatch.core.machine import UNKNOWN

        return UNKNOWN
    from xidwatch.sources.machine import read_machine

    return read_machine()


def _say_waiting(path: str) -> None:
    if path == "-":
        _complain("xidwatch: reading what is typed or pasted here; Ctrl-D ends it (a log is piped in, or given as a file)")
    else:
        _complain(f"xidwatch: {path}: a pipe that nobody has written to yet; waiting for a writer (Ctrl-C gives up)")


def _rendered(postmortem: Postmortem, rules: RuleTable, options: argparse.Namespace, zone: tzinfo | None) -> str:
    if options.format == "json":
        from xidwatch.render.as_json import render_json

        return render_json(postmortem, rules, zone=zone)
    if options.format == "markdown":
        from xidwatch.render.as_markdown import render_markdown

        return render_markdown(postmortem, rules, zone=zone)
    if options.format == "html":
        from xidwatch.render.as_html import render_html

        return render_html(postmortem, rules, zone=zone)
    from xidwatch.render.as_text import render_text

    return render_text(postmortem, rules, color=terminal.wants_color(options.color), width=terminal.width(), zone=zone)


def _exit_code(postmortem: Postmortem, fail_on: str) -> int:
    if fail_on == "never":
        return 0
    least = _SEVERITIES.index(fail_on)
    return FOUND if any(_SEVERITIES.index(incident.severity) >= least for incident in postmortem.incidents) else 0


def _rules_list(options: argparse.Namespace) -> int:
    from xidwatch.render.matrix import chosen, render_list

    found = chosen(_rules(options).rules(), fault_class=options.fault_class, severity=options.severity, family=options.family)
    terminal.say(render_list(found, terminal.width()) if found else "No rule matches.\n")
    return 0


def _rules_matrix(options: argparse.Namespace) -> int:
    from xidwatch.render.matrix import chosen, render_matrix_markdown, render_matrix_text

    rules = _rules(options)
    found = chosen(rules.rules(), fault_class=options.fault_class, severity=options.severity, family=options.family)
    if options.family is None:
        found = [rule for rule in found if rule.sxid is None]
    terminal.say(
        render_matrix_markdown(found, rules)
        if options.format == "markdown"
        else render_matrix_text(found, rules, terminal.width())
    )
    return 0


def _rules_show(options: argparse.Namespace) -> int:
    from xidwatch.render.matrix import render_rule

    rules = _rules(options)
    try:
        rule = rules.rule(options.id)
    except KeyError:
        near = [known for known in rules.rule_ids() if options.id.lower() in known][:5]
        hint = f"near it: {', '.join(near)}" if near else "xidwatch rules list shows all"
        raise XidwatchError(f"no rule {options.id!r}; {hint}") from None
    terminal.say(render_rule(rule))
    return 0


def _rules_check(options: argparse.Namespace) -> int:
    from pathlib import Path

    from xidwatch.rulefiles import check_dir

    mistakes = check_dir(Path(options.dir))
    if mistakes:
        raise XidwatchError("\n".join([f"{len(mistakes)} mistake{'s' if len(mistakes) != 1 else ''}", *mistakes]))
    terminal.say(f"{options.dir}: good\n")
    return 0


def _rules(options: argparse.Namespace) -> RuleTable:
    from pathlib import Path

    from xidwatch.rulefiles import load_rules

    return load_rules([Path(folder) for folder in options.rules])


# argv


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of one command, or without one that of the overview: what is not asked for is not built."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="xidwatch",
        description="Reads what the kernel and the NVIDIA driver said; tells which GPU fault came first and what to do next.",
        epilog="`xidwatch COMMAND --help` tells more.",
    )
    parser.add_argument("--version", action="version", version=f"xidwatch {__version__}")
    # Without its name argparse would lay out a help page only to find it.
    commands = parser.add_subparsers(title="commands", prog="xidwatch")
    for name, (summary, add) in _COMMANDS.items():
        if command == name:
            add(commands.add_parser(name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter))
        elif command not in _COMMANDS:
            commands.add_parser(name, help=summary)
    return parser


def _explain_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = _EXPLAIN, _EXPLAIN_END
    add = parser.add_argument
    add(
        "what",
        nargs="*",
        metavar="PATH|CODE|LINE",
        help="files, folders (several: each a node), `-`, or codes such as 94, sxid20034, hung_task",
    )
    add(
        "--format",
        choices=("text", "json", "markdown", "html"),
        default="text",
        help="markdown is for a ticket, html one file for a browser; default: text",
    )
    add("--output", metavar="FILE", help="write the report there; default: standard output")
    add(
        "--boot",
        metavar="N|ID",
        help="a boot of this machine out of its journal: -1 the one before, 0 this one; says how it ended",
    )
    add("--since", metavar="TIME", help="only what happened at or after it: 2026-11-30T02:13, 02:13, yesterday, '2 hours ago'")
    add("--until", metavar="TIME", help="only what happened at or before it")
    add(
        "--gpu",
        metavar="GPU",
        help="only incidents of this GPU: a PCI address in any spelling, its bus (4e), bus and device (4e:00), "
        "or a UUID or its first eight digits and more",
    )
    add("--class", dest="fault_class", choices=_CLASSES, help="only incidents of this class")
    add(
        "--fail-on",
        choices=(*_SEVERITIES, "never"),
        default="warning",
        help="exit with 1 from this severity on; default: warning",
    )
    add("--tz", metavar="ZONE", help="zone of times that name none: UTC, local, +01:00, Europe/Berlin; default: local")
    add("--year", metavar="YEAR", help="year of dates that name none, 1970 to 2100")
    add("--redact", action="store_true", help="mask host names, UUIDs, serials, addresses, users, their paths and logins")
    add("--config", metavar="FILE", help="the node's config.toml: its [workload] tells a slow kernel from a hung one")
    _rules_argument(parser)
    add("--color", choices=("auto", "always", "never"), default="auto", help="default: auto")
    parser.set_defaults(run=_explain)


def _rules_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Shows and checks the rules: what each code means and asks for."
    commands = parser.add_subparsers(title="commands", dest="rules_command", required=True)
    listed = commands.add_parser("list", help="one rule a line")
    shown = commands.add_parser("show", help="one rule in force, and the file it came from")
    checked = commands.add_parser("check", help="every mistake in a folder of site rules; exit status 2 when there are any")
    matrix = commands.add_parser("matrix", help="the decision matrix: memory against compute, what is seen, the first command")
    for own in (listed, matrix):
        own.add_argument("--class", dest="fault_class", choices=_CLASSES, help="only this class")
        own.add_argument("--severity", choices=_SEVERITIES, help="only this severity")
        own.add_argument(
            "--family", metavar="KIND", help="only xid, sxid or one kind (nvrm, hung_task, ...); matrix: default no sxid"
        )
    matrix.add_argument("--format", choices=("text", "markdown"), default="text", help="default: text")
    shown.add_argument("id", metavar="ID", help="such as xid-79")
    checked.add_argument("dir", metavar="DIR", help="folder with *.toml")
    for own, run in ((listed, _rules_list), (shown, _rules_show), (matrix, _rules_matrix)):
        _rules_argument(own)
        own.set_defaults(run=run)
    checked.set_defaults(run=_rules_check)


def _hook_arguments(parser: argparse.ArgumentParser) -> None:
    from xidwatch.hook import add_arguments

    add_arguments(parser)


def _install_arguments(parser: argparse.ArgumentParser) -> None:
    from xidwatch.installer import add_arguments

    add_arguments(parser)


def _floor_arguments(parser: argparse.ArgumentParser) -> None:
    from xidwatch.floorcli import add_arguments, run

    parser.description = "The least time that prefill and decode can take on a card, what binds, and what helps."
    add_arguments(parser)
    parser.set_defaults(run=run)


def _check_arguments(parser: argparse.ArgumentParser) -> None:
    from xidwatch.checkcli import add_arguments

    add_arguments(parser)


def _demo_arguments(parser: argparse.ArgumentParser) -> None:
    from xidwatch.democli import add_arguments

    add_arguments(parser)
    parser.set_defaults(run=_demo)


def _demo(options: argparse.Namespace) -> int:
    from xidwatch.demo.telling import Manner
    from xidwatch.democli import run

    def say(text: str) -> None:
        terminal.say(text)
        sys.stdout.flush()

    return run(options, lambda speed: Manner(say, terminal.width(), terminal.wants_color(options.color), speed))


def _evidence_arguments(parser: argparse.ArgumentParser) -> None:
    from xidwatch.evidencecli import add_arguments

    add_arguments(parser)


def _rules_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rules", metavar="DIR", action="append", default=[], help="folder of further rules; may be given again"
    )


def _daemon(name: str) -> Callable[[argparse.ArgumentParser], None]:
    def add(parser: argparse.ArgumentParser) -> None:
        from xidwatch import daemoncli

        getattr(daemoncli, name)(parser)

    return add


_COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "explain": ("what happened in these logs, or what a code means", _explain_arguments),
    "rules": ("list, show, check the rules; the decision matrix", _rules_arguments),
    "watch": ("the daemon: tail the kernel, serve Prometheus, keep history", _daemon("add_watch")),
    "follow": ("one line for every incident that opens, changes or ends", _daemon("add_follow")),
    "status": ("what the daemon knows: incidents, the next step, sources", _daemon("add_status")),
    "check": ("is this node fit, and set up to tell when it is not; for schedulers too", _check_arguments),
    "history": ("every event that the daemon kept", _daemon("add_history")),
    "incident": ("list, show or close incidents", _daemon("add_incident")),
    "maintenance": ("planned work: nothing pages while it lasts", _daemon("add_maintenance")),
    "evidence": ("one archive about one GPU, for the vendor or the next engineer", _evidence_arguments),
    "hook": ("runs the site's program for every incident", _hook_arguments),
    "demo": ("a whole incident on a machine without a GPU", _demo_arguments),
    "install-service": ("put the systemd units in place", _install_arguments),
    "gpus": ("the node's GPUs: slot, card, what is missing", _daemon("add_gpus")),
    "nvml": ("take xidwatch off the GPUs, or let it ask them again", _daemon("add_nvml")),
    "floor": ("the least time that prefill and decode can take on a card", _floor_arguments),
}


# the terminal


def _deliver(report: str, path: str | None) -> None:
    """Write a report to a file, as UTF-8, or to standard output."""
    if path is None:
        terminal.say(report)
        return
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(report)
    except OSError as error:
        raise XidwatchError(f"--output {path}: {error.strerror}") from error


def _complain(text: str) -> None:
    from xidwatch.render.layout import visible

    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    shown = "\n".join(visible(line) for line in text.split("\n"))
    sys.stderr.write(shown.encode(encoding, "backslashreplace").decode(encoding, "replace") + "\n")


class ProgressBar:
    """One line on a terminal that says how far the reading is; silent for the first half second."""

    def __init__(self, terminal: IO[str], *, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        self._terminal, self._clock = terminal, clock
        self._next = clock() + 0.5
        self._shown = False

    def __call__(self, done_bytes: int, total_bytes: int | None) -> None:
        """Draw, at most ten times a second."""
        now = self._clock()
        if now < self._next:
            return
        self._next, self._shown = now + 0.1, True
        if total_bytes:
            part = min(done_bytes / total_bytes, 1.0)
            bar = "#" * round(part * 30)
            text = f"reading [{bar:<30}] {part:4.0%} of {total_bytes / 2**20:,.0f} MiB"
        else:
            text = f"reading {done_bytes / 2**20:,.0f} MiB"
        self._terminal.write(f"\r\x1b[K{text}")
        self._terminal.flush()

    def clear(self) -> None:
        """Take the line away again."""
        if self._shown:
            self._terminal.write("\r\x1b[K")
            self._terminal.flush()
