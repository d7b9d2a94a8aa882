"""The sub-commands around the daemon: watch, follow, status, history, incident, maintenance."""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xidwatch.apart import apart
from xidwatch.config import Config, load_config
from xidwatch.errors import XidwatchError
from xidwatch.plainfile import read_state_bytes

if TYPE_CHECKING:
    from xidwatch.core.classify import RuleTable
    from xidwatch.sources.live import LiveSource

STALE_S = 180.0
"""state.json is written at least once a minute; older than this the daemon is not watching."""
_CONNECT_S = 5.0


def add_watch(parser: argparse.ArgumentParser) -> None:
    """`xidwatch watch`: the daemon in the foreground, as systemd runs it."""
    parser.description = "Watches this node: tails the kernel, serves Prometheus, keeps history. Runs until SIGTERM."
    _config_argument(parser)
    parser.add_argument("--source", choices=("auto", "kmsg", "journal"), help="default: auto, both where both can be read")
    parser.add_argument("--kmsg", metavar="PATH", help="the kernel's log device; default: /dev/kmsg")
    parser.add_argument("--listen", metavar="HOST:PORT", help="address of the metrics; default: 127.0.0.1:19079")
    parser.add_argument("--web.config.file", dest="web_config_file", metavar="FILE", help="TLS and passwords for it")
    parser.add_argument("--rules", metavar="DIR", action="append", help="folder of further rules; may be given again")
    parser.add_argument(
        "--accept-injected", action="store_true", default=None, help="for tests: believe lines that user space wrote"
    )
    _folder_arguments(parser)
    parser.add_argument(
        "--scenario",
        metavar="FILE",
        help="no real node: GPUs out of a file; needs --kmsg PIPE, --listen and folders of its own",
    )
    parser.set_defaults(run=_watch)


def add_follow(parser: argparse.ArgumentParser) -> None:
    """`xidwatch follow`: one line a change."""
    parser.description = "Prints what holds now, then every incident that opens, changes or ends, one line each, for ever."
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    _config_argument(parser)
    _folder_arguments(parser)
    parser.set_defaults(run=_follow)


def add_status(parser: argparse.ArgumentParser) -> None:
    """`xidwatch status`: what the daemon knows."""
    parser.description = "Sources, active incidents and the next step, as the daemon last wrote them."
    parser.epilog = (
        "exit status: 0 fit, 1 not fit (a critical incident, or a GPU for which `xidwatch check` says so), "
        "2 not known (the daemon does not watch), 3 a bug"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    _config_argument(parser)
    _folder_arguments(parser)
    parser.set_defaults(run=_status)


def add_history(parser: argparse.ArgumentParser) -> None:
    """`xidwatch history`: what was seen."""
    parser.description = "Every event that the daemon kept, oldest first."
    parser.add_argument("--since", metavar="TIME", help="only from then on: 2026-11-30T02:13, yesterday, '2 hours ago'")
    parser.add_argument("--gpu", metavar="GPU", help="only this GPU: PCI address, its end (4e:00) or GPU-<uuid>")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="json: one object a line; default: text")
    _config_argument(parser)
    _folder_arguments(parser)
    parser.set_defaults(run=_history)


def add_incident(parser: argparse.ArgumentParser) -> None:
    """`xidwatch incident list | show ID | close ID --reason`."""
    parser.description = "Lists, shows or closes incidents of the running daemon."
    commands = parser.add_subparsers(title="commands", required=True)
    listed = commands.add_parser("list", help="one incident a line")
    shown = commands.add_parser("show", help="one incident in full, as JSON")
    closed = commands.add_parser("close", help="say that it is over")
    for own, run in ((listed, _incident_list), (shown, _incident_show), (closed, _incident_close)):
        _config_argument(own)
        _folder_arguments(own)
        own.set_defaults(run=run)
    for own in (shown, closed):
        own.add_argument("id", metavar="ID", help="as `xidwatch incident list` prints it")
    closed.add_argument("--reason", required=True, help="kept in the history")


def add_maintenance(parser: argparse.ArgumentParser) -> None:
    """`xidwatch maintenance start --for 2h | end`."""
    parser.description = (
        "While it lasts nothing pages: planned resets, driver upgrades, diagnostics. Everything is still recorded."
    )
    commands = parser.add_subparsers(title="commands", required=True)
    start = commands.add_parser("start", help="begin")
    start.add_argument("--for", dest="duration", metavar="TIME", required=True, help="it ends by itself after 90m, 2h, 1d")
    start.add_argument("--reason", default="", help="kept in the history")
    end = commands.add_parser("end", help="end it now")
    for own, run in ((start, _maintenance_start), (end, _maintenance_end)):
        _config_argument(own)
        _folder_arguments(own)
        own.set_defaults(run=run)


def add_nvml(parser: argparse.ArgumentParser) -> None:
    """`xidwatch nvml release | resume`."""
    parser.description = "Takes xidwatch off the GPUs, so that a reset, a MIG change or a module unload meets nothing of ours."
    commands = parser.add_subparsers(title="commands", required=True)
    release = commands.add_parser("release", help="ask NVML nothing until resume")
    resume = commands.add_parser("resume", help="ask again")
    for own, run in ((release, _nvml_release), (resume, _nvml_resume)):
        _config_argument(own)
        _folder_arguments(own)
        own.set_defaults(run=run)


def add_gpus(parser: argparse.ArgumentParser) -> None:
    """`xidwatch gpus [accept]`."""
    parser.description = "The node's GPUs as the daemon knows them: slot, card, how it answers; 1 when one is missing."
    parser.add_argument(
        "act", nargs="?", choices=("list", "accept"), default="list", help="accept: what is there now is what should be there"
    )
    _config_argument(parser)
    _folder_arguments(parser)
    parser.set_defaults(run=_gpus)


# watch


def _watch(options: argparse.Namespace) -> int:
    from xidwatch.allocator import give_back_early
    from xidwatch.rulefiles import SITE_RULES, load_rules, rules_version
    from xidwatch.watch import Watch

    give_back_early()
    if options.scenario:
        return _watch_stage(options)
    named = ("source", "kmsg", "listen", "web_config_file", "rules", "accept_injected", "state_dir", "run_dir")

    def settings() -> tuple[Config, RuleTable]:
        config = _config(options, *named)
        return config, load_rules(config.rules)

    config, rules = apart(settings)
    first = [rules]

    def load() -> tuple[RuleTable, str]:
        return first.pop() if first else load_rules(config.rules), rules_version(config.rules, SITE_RULES)

    return Watch(config, load, openers(config)).run()


def _watch_stage(options: argparse.Namespace) -> int:
    from xidwatch.rulefiles import load_rules, rules_version
    from xidwatch.sources.kmsg import KmsgSource
    from xidwatch.stage import NO_CONFIG, Stage, staged
    from xidwatch.watch import Watch

    options.config = options.config or str(NO_CONFIG)
    named = ("kmsg", "listen", "web_config_file", "rules", "state_dir", "run_dir")
    config = apart(lambda: staged(_config(options, *named), vars(options)))
    stage = Stage(Path(options.scenario))
    site = config.state_dir / "rules.d"

    def load() -> tuple[RuleTable, str]:
        return load_rules(config.rules, site=site), rules_version(config.rules, site)

    def kmsg(positions: dict[str, str]) -> LiveSource:
        return stage.source(KmsgSource(str(config.kmsg), positions.get("kmsg")))

    return Watch(config, load, [kmsg], stage=stage).run()


def openers(config: Config) -> list[Callable[[dict[str, str]], LiveSource]]:
    """How to open each source that the configuration asks for, given the positions to resume from.

    Raises:
        XidwatchError: nothing of it can be read on this machine.
    """
    from xidwatch.sources.kmsg import KmsgSource

    def kmsg(positions: dict[str, str]) -> LiveSource:
        return KmsgSource(str(config.kmsg), positions.get("kmsg"))

    def journal(positions: dict[str, str]) -> LiveSource:
        from xidwatch.sources.journald import JournalSource

        return JournalSource(positions.get("journal"))

    if config.source == "kmsg":
        return [kmsg]
    if config.source == "journal":
        return [journal]
    return [kmsg, journal] if _journal_readable() else [kmsg]


def _journal_readable() -> bool:
    import importlib.util

    folders = ("/var/log/journal", "/run/log/journal")
    return importlib.util.find_spec("systemd") is not None and any(Path(folder).is_dir() for folder in folders)


# follow, status


def _follow(options: argparse.Namespace) -> int:
    config = _config(options, "state_dir", "run_dir")
    for message in followed(config.run_dir / "follow.sock"):
        sys.stdout.write(json.dumps(message) + "\n" if options.format == "json" else _follow_line(message))
        sys.stdout.flush()
    return 0


def followed(path: Path) -> Iterator[dict[str, Any]]:
    """Every message of the daemon's socket, until it hangs up.

    Raises:
        XidwatchError: nobody listens there.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_CONNECT_S)
        try:
            connection.connect(str(path))
        except OSError as error:
            raise XidwatchError(
                f"the daemon does not listen at {path}: {error.strerror}; is `xidwatch watch` running?"
            ) from error
        connection.settimeout(None)
        with connection.makefile("rb") as lines:
            for line in lines:
                yield json.loads(line)


def _follow_line(message: dict[str, Any]) -> str:
    from xidwatch.render.layout import visible

    at = datetime.fromtimestamp(message["time_us"] / 1e6, timezone.utc).astimezone()
    quiet = " (maintenance)" if message["maintenance"] else ""
    incident = message.get("incident")
    if incident is None:
        count = len(message["incidents"])
        return f"{at:%H:%M:%S} {message['change']:<7} {count} active incident{'s' if count != 1 else ''}{quiet}\n"
    step = incident["recovery"]["rung"]
    return (
        visible(f"{at:%H:%M:%S} {message['change']:<7} {incident['severity']:<8} {incident['sentence']} -> {step}{quiet}")
        + "\n"
    )


def _status(options: argparse.Namespace) -> int:
    config = _config(options, "state_dir", "run_dir")
    state = read_state(config.run_dir / "state.json")
    if options.format == "json":
        sys.stdout.write(json.dumps(state, indent=1) + "\n")
    else:
        sys.stdout.write(status_text(state))
    if time.time() - state["time_us"] / 1e6 > STALE_S:
        return 2
    return 1 if _is_unfit(state) else 0


def _is_unfit(state: dict[str, Any]) -> bool:
    """Whether `check` would say so from this state, and also in maintenance."""
    from xidwatch.core.daemonstate import read_daemon
    from xidwatch.core.fitness import judge_told
    from xidwatch.render.as_gpus import is_missing_any

    now_us = time.time_ns() // 1000
    uptime = Path("/proc/uptime")
    texts = {str(uptime): uptime.read_text(encoding="ascii")} if uptime.exists() else {}
    told = replace(read_daemon(state, now_us), maintenance=None)
    return is_missing_any(state) or judge_told(told, now_us, texts).verdict == "not_fit"


def read_state(path: Path) -> dict[str, Any]:
    """state.json as the daemon last wrote it.

    Raises:
        XidwatchError: it is not there, cannot be read, or lacks a part that a command shows.
    """
    from xidwatch.core.daemonstate import read_daemon
    from xidwatch.core.stateshape import read_shaped

    try:
        state = read_shaped(read_state_bytes(path))
        read_daemon(state, time.time_ns() // 1000)
    except FileNotFoundError:
        raise XidwatchError(
            f"{path}: not there; `xidwatch watch` does not run on this node, or elsewhere (--run-dir)"
        ) from None
    except OSError as error:
        raise XidwatchError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise XidwatchError(
            f"{path} is not what the daemon writes: {error}; read it with the program of the same version"
        ) from error
    return state


def status_text(state: dict[str, Any]) -> str:
    """The state for a person: worst first, then tasks in D state, then the sources."""
    from xidwatch.render.as_blocked import blocked_lines, job_lines
    from xidwatch.render.as_gpus import check_lines, gpu_lines
    from xidwatch.render.layout import visible

    age_s = time.time() - state["time_us"] / 1e6
    order = {"critical": 0, "warning": 1, "info": 2}
    incidents = sorted(state["incidents"], key=lambda one: order.get(one["severity"], 3))
    lines = [f"{state['host']}: {len(incidents)} active incident{'s' if len(incidents) != 1 else ''}"]
    if state.get("demo"):
        lines.append("Demo: this node, its GPUs and its kernel's lines are made up")
    if age_s > STALE_S:
        lines.append(f"STALE: written {age_s / 60:.0f} minutes ago; the daemon is not watching. Try: systemctl status xidwatch")
    if state["maintenance"]["active"]:
        lines.append("Maintenance: nothing pages. End it with: xidwatch maintenance end")
    for incident in incidents:
        lines += [
            "",
            f"{incident['severity']}  {incident['id']}  {incident['state'].replace('_', ' ')}",
            f"  {incident['sentence']}",
            *job_lines(incident, state),
        ]
        recovery = incident["recovery"]
        if recovery["rung"] != "none":
            when = {"now": "now", "after_drain": "after the running jobs", "when_idle": "when idle"}.get(recovery["when"], "")
            say = recovery.get("say") or recovery["rung"].replace("_", " ")
            lines.append(f"  Do: {say} {when}".rstrip())
            shown = [*recovery["commands"][:2], recovery.get("command")]
            lines += [f"      {command}" for command in dict.fromkeys(shown) if command is not None]
        elif incident.get("verify"):
            lines.append("  Not proven healthy. Before it takes work again run:")
            lines += [f"      {command}" for command in incident["verify"]["commands"][:3]]
        lines += check_lines(incident)
        if incident.get("driver_word"):
            lines.append(f"  The driver: {visible(incident['driver_word'])}")
    now_us = time.time_ns() // 1000 if age_s <= STALE_S else state["time_us"]
    lines += gpu_lines(state, now_us)
    lines += blocked_lines(state, now_us)
    lines.append("")
    for source in state["sources"]:
        word = "up" if source["up"] else "DOWN"
        lines.append(f"source {source['name']}: {word}, {source['records']:,} records, {source['lost']:,} lost, "
                     f"{source['untrusted']:,} untrusted, {source['restarts']:,} restarts")  # fmt: skip
    if not state["rules"]["success"]:
        lines += [
            "rules: the last reload failed, the old ones are in force:",
            *(f"  {line}" for line in state["rules"]["mistakes"]),
        ]
    if state["history"]["last_error"]:
        lines.append(f"history: {state['history']['last_error']}; {state['history']['backlog']:,} entries wait")
    if state["injection_accepted"]:
        lines.append("TEST SWITCH: lines that user space wrote are believed (--accept-injected)")
    return "\n".join(visible(line) for line in lines) + "\n"


# history


def _history(options: argparse.Namespace) -> int:
    from xidwatch.core.codec import encode
    from xidwatch.sinks.history_read import read_history

    config = _config(options, "state_dir", "run_dir")
    since_us = None
    if options.since:
        from xidwatch.times import parse_moment

        now = datetime.now(timezone.utc).astimezone()
        since_us = round(parse_moment(options.since, now=now, option="--since").timestamp() * 1e6)
    for entry in read_history(config.state_dir / "history.db", since_us, options.gpu):
        if options.format == "json":
            shown = {"id": entry.id, "identity": entry.identity, "wall_us": entry.wall_us, "boot_id": entry.boot_id,
                     "kind": entry.kind, "code": entry.code, "gpu": entry.gpu, "source": entry.source,
                     "item": encode(entry.item) if entry.item is not None else None}  # fmt: skip
            sys.stdout.write(json.dumps(shown) + "\n")
        else:
            sys.stdout.write(_history_line(entry))
    return 0


def _history_line(entry: Any) -> str:
    from xidwatch.core.event import Event
    from xidwatch.core.job import job_words
    from xidwatch.core.verdict import event_name
    from xidwatch.render.layout import visible

    at = datetime.fromtimestamp((entry.wall_us or entry.stored_us) / 1e6, timezone.utc).astimezone()
    name = event_name(entry.item) if isinstance(entry.item, Event) else (entry.kind or "?").replace("_", " ")
    text = entry.item.record.text.split("\n")[0] if entry.item is not None else "(details lost: the disk did not keep up)"
    injected = " INJECTED" if entry.item is not None and entry.item.record.trusted == "injected" else ""
    job = f"  [{words}]" if isinstance(entry.item, Event) and (words := job_words(entry.item.job)) else ""
    return visible(f"{at:%Y-%m-%d %H:%M:%S} {entry.gpu or '-':<12} {name:<12}{injected} {text}{job}") + "\n"


# incident, maintenance


def _incident_list(options: argparse.Namespace) -> int:
    from xidwatch.render.layout import visible

    state = read_state(_config(options, "state_dir", "run_dir").run_dir / "state.json")
    for incident in state["incidents"]:
        sys.stdout.write(
            visible(f"{incident['id']}  {incident['state']:<21} {incident['severity']:<8} {incident['sentence']}") + "\n"
        )
    if not state["incidents"]:
        sys.stdout.write("No active incident.\n")
    return 0


def _incident_show(options: argparse.Namespace) -> int:
    state = read_state(_config(options, "state_dir", "run_dir").run_dir / "state.json")
    sys.stdout.write(json.dumps(_incident(state, options.id), indent=1) + "\n")
    return 0


def _incident(state: dict[str, Any], id_: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = [incident for incident in state["incidents"] if incident["id"].startswith(id_)]
    if len(found) != 1:
        raise XidwatchError(f"no active incident {id_!r}; `xidwatch incident list` shows them" if not found
                            else f"{id_!r} fits {len(found)} incidents; give more digits")  # fmt: skip
    return found[0]


def _incident_close(options: argparse.Namespace) -> int:
    from xidwatch.sinks.history_read import add_note

    config = _config(options, "state_dir", "run_dir")
    incident = _incident(read_state(config.run_dir / "state.json"), options.id)
    add_note(config.state_dir / "history.db", "incident_close", {"id": incident["id"], "reason": options.reason})
    sys.stdout.write(f"closed {incident['id']}; the daemon takes it over within seconds\n")
    return 0


def _maintenance_start(options: argparse.Namespace) -> int:
    from xidwatch.sinks.history_read import add_note

    config = _config(options, "state_dir", "run_dir")
    until_us = time.time_ns() // 1000 + round(_duration_s(options.duration) * 1e6)
    add_note(config.state_dir / "history.db", "maintenance_start", {"until_us": until_us, "reason": options.reason})
    until = datetime.fromtimestamp(until_us / 1e6, timezone.utc).astimezone()
    sys.stdout.write(f"nothing pages until {until:%Y-%m-%d %H:%M} ({until:%Z}); end it sooner with: xidwatch maintenance end\n")
    return 0


def _maintenance_end(options: argparse.Namespace) -> int:
    from xidwatch.sinks.history_read import add_note

    config = _config(options, "state_dir", "run_dir")
    add_note(config.state_dir / "history.db", "maintenance_end", {})
    sys.stdout.write("maintenance ended\n")
    return 0


def _nvml_release(options: argparse.Namespace) -> int:
    return _nvml_note(options, "nvml_release", "NVML is left alone within seconds, until: xidwatch nvml resume")


def _nvml_resume(options: argparse.Namespace) -> int:
    return _nvml_note(options, "nvml_resume", "NVML is asked again")


def _nvml_note(options: argparse.Namespace, kind: str, said: str) -> int:
    from xidwatch.sinks.history_read import add_note

    add_note(_config(options, "state_dir", "run_dir").state_dir / "history.db", kind, {})
    sys.stdout.write(said + "\n")
    return 0


def _gpus(options: argparse.Namespace) -> int:
    from xidwatch.render.as_gpus import gpu_table, is_missing_any

    if options.act == "accept":
        return _nvml_note(options, "gpus_accept", "The GPUs that are there now are those that should be there.")
    state = read_state(_config(options, "state_dir", "run_dir").run_dir / "state.json")
    sys.stdout.write("\n".join([*gpu_table(state), ""]))
    return 1 if is_missing_any(state) else 0


def _duration_s(text: str) -> float:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = text[:-1], text[-1:]
    try:
        seconds = float(number) * units[unit]
    except (KeyError, ValueError):
        raise XidwatchError(f"--for {text!r}: give a number and s, m, h or d, such as 90m or 2h") from None
    if not 0 < seconds <= 30 * 86400:
        raise XidwatchError(f"--for {text!r}: between a moment and 30 days")
    return seconds


# options


def _config(options: argparse.Namespace, *names: str) -> Config:
    given = {name: getattr(options, name) for name in names if getattr(options, name, None) is not None}
    return load_config(Path(options.config) if options.config else None, given)


def _config_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="default: /etc/xidwatch/config.toml, where it exists")


def _folder_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state-dir", metavar="DIR", help="what outlives a reboot; default: /var/lib/xidwatch")
    parser.add_argument("--run-dir", metavar="DIR", help="state.json and the socket; default: /run/xidwatch")
