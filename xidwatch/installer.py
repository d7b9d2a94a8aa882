"""`xidwatch install-service`: puts the systemd units and a first configuration in place, or takes them away again.

It writes files and runs nothing: the commands that follow are printed, for a person or a playbook to give.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from xidwatch.errors import XidwatchError

UNITS = ("xidwatch.service", "xidwatch-hook.service")
DROP_INS = ("d-state", "d-state-stack", "remote-scrape")
WRAPPERS = {
    "slurm": (("slurm/xidwatch-healthcheck", "usr/local/libexec/xidwatch/xidwatch-healthcheck"),
              ("slurm/xidwatch-prolog", "usr/local/libexec/xidwatch/xidwatch-prolog")),
    "node-problem-detector": (("npd/xidwatch.json", "etc/xidwatch/node-problem-detector.json"),),
}  # fmt: skip
"""By scheduler: what ships, and where it goes."""
_MARK_WORDS = "Written by `xidwatch install-service`, which will write it anew."
MARK = f"# {_MARK_WORDS}\n"
"""First line of every file that is ours to replace and to remove."""
_MARKED_CHARACTERS = 200
_TEMPLATE_COMMAND = "/opt/xidwatch/bin/xidwatch"
_HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # the units hide them
_DO_THIS = "Install it where a service can reach it: python3 -m venv --system-site-packages /opt/xidwatch"
Act = Literal["write", "update", "unchanged", "keep", "remove", "absent"]

FIRST_CONFIG = """\
# Settings of xidwatch on this node. What stands behind a # is the default, or an example; take the # away to change it.
# After a change: systemctl restart xidwatch. After a change of rules alone: systemctl reload xidwatch.

# Where the kernel's lines come from: auto (all that can be read), kmsg or journal.
#source = "auto"

# Address of the metrics. Another machine reaches it only with `xidwatch install-service --drop-in remote-scrape`.
#listen = "127.0.0.1:19079"

# TLS and passwords for it, in the form of the Prometheus exporter toolkit.
#web_config_file = "/etc/xidwatch/web.yml"

# Folders with rules of the site's own, besides /etc/xidwatch/rules.d.
#rules = ["/etc/xidwatch/rules.d"]

# GPUs that this node should have. Without it: as many as were seen before.
#expected_gpus = 8

# What takes this node out of service, and remarks of `xidwatch check` that this site lives with.
#[check]
#not_fit_from = "critical"
#ignore = ["sysrq"]

# How much history is kept; the totals of the metrics never fall.
#[history]
#max_age_days = 90.0
#max_mb = 200

# Tasks in D state, looked for in /proc: after how many seconds without a break one is told, and is an incident.
#[d_state]
#scan = "auto"
#gpu_after_s = 30.0
#others_after_s = 60.0
#incident_after_s = 120.0

# A program that is run for every incident that opens, changes or ends: systemctl enable --now xidwatch-hook
#[hook]
#command = ["/usr/local/sbin/on-gpu-incident"]
#timeout_s = 30.0
#min_severity = "warning"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One file and what becomes of it. `content` is None for those that are not written."""

    act: Act
    path: Path
    content: str | None = None
    mode: int = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What the units are to start. `interpreter` is the Python behind the command, all links followed."""

    command: Path
    interpreter: Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `xidwatch install-service`."""
    parser.description = (
        "Writes xidwatch.service and xidwatch-hook.service into /etc/systemd/system, and /etc/xidwatch/config.toml if there is "
        "none. May be run again, after every upgrade. Starts nothing; prints the commands that do."
    )
    add = parser.add_argument
    add("--drop-in", choices=DROP_INS, action="append", default=[], help="also grant this; may be given again")
    add("--for", dest="wrappers", choices=tuple(WRAPPERS), action="append", default=[],
        help="also write what makes it ask `xidwatch check`; may be given again")  # fmt: skip
    add("--dry-run", action="store_true", help="only say what would be done")
    add("--uninstall", action="store_true", help="remove the units; configuration and history stay")
    add("--root", metavar="DIR", default="/", help="the root of an image instead of this machine's")
    add("--command", metavar="PATH", help="the xidwatch that the units start; default: this one")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do it, and print what was done and what to do next.

    Raises:
        XidwatchError: the command is where a service cannot reach it, a file is not ours, or root's rights are missing.
    """
    root, runtime = Path(options.root), this_runtime(options.command)
    steps = list(removal(root) if options.uninstall else installation(root, runtime, options.drop_in, options.wrappers))
    hindrances = [] if options.uninstall else list(hindrances_of(runtime))
    if hindrances and root == Path("/") and not options.dry_run:
        raise XidwatchError("\n".join(hindrances))
    if not options.dry_run:
        carry_out(steps)
    told = told_of(steps, dry_run=options.dry_run)
    told += [f"Note: {hindrance}" for hindrance in hindrances]
    told += _after_removal() if options.uninstall else [*_after_installation(steps), *_after_wrappers(options.wrappers)]
    sys.stdout.write("\n".join(told) + "\n")
    return 0


def shipped(folder: str) -> Path:
    """A folder that came with xidwatch: in the wheel, else beside the package (editable install)."""
    inside = Path(__file__).parent / f"_{folder}"
    return inside if inside.is_dir() else Path(__file__).parent.parent / folder


def this_runtime(command: str | None = None) -> Runtime:
    """The command that runs now, or another one's path as it is on the machine that the units are for."""
    own = Path(command) if command else Path(sys.executable).parent / "xidwatch"
    return Runtime(command=Path(os.path.abspath(own)), interpreter=Path(os.path.realpath(sys.executable)))


def installation(root: Path, runtime: Runtime, drop_ins: Sequence[str] = (), wrappers: Sequence[str] = ()) -> Iterator[Step]:
    """What has to be written. A file that is not ours is not touched.

    Raises:
        XidwatchError: a file of the same name is there that is not ours.
    """
    system = root / "etc/systemd/system"
    command = _quoted(runtime.command)
    for name in UNITS:
        text = (shipped("systemd") / name).read_text(encoding="utf-8")
        yield _written(system / name, MARK + text.replace(f"ExecStart={_TEMPLATE_COMMAND} ", f"ExecStart={command} "))
    for name in drop_ins:
        text = (shipped("systemd") / "drop-ins" / f"{name}.conf").read_text(encoding="utf-8")
        yield _written(system / "xidwatch.service.d" / f"{name}.conf", MARK + text)
    for source, target in (pair for name in wrappers for pair in WRAPPERS[name]):
        yield _wrapper(source, root / target, runtime.command)
    config = root / "etc/xidwatch/config.toml"
    yield Step(act="keep", path=config) if config.exists() else Step(act="write", path=config, content=FIRST_CONFIG)


def removal(root: Path) -> Iterator[Step]:
    """What has to be removed: our units, our drop-ins, and the links that enabled them."""
    system = root / "etc/systemd/system"
    links = (system / "multi-user.target.wants" / name for name in UNITS)
    drop_ins = (system / "xidwatch.service.d" / f"{name}.conf" for name in DROP_INS)
    wrappers = (root / target for pairs in WRAPPERS.values() for _, target in pairs)
    for path in (*links, *drop_ins, *wrappers, *(system / name for name in UNITS)):
        if path.is_symlink():
            yield Step(act="remove", path=path)
        elif path.exists():
            yield Step(act="remove" if _is_ours(path) else "keep", path=path)
        elif path.name in UNITS and path.parent == system:
            yield Step(act="absent", path=path)


def carry_out(steps: Iterable[Step]) -> None:
    """Write and remove.

    Raises:
        XidwatchError: the file system says no.
    """
    for step in steps:
        try:
            if step.content is not None and step.act in ("write", "update"):
                step.path.parent.mkdir(parents=True, exist_ok=True)
                fresh = step.path.with_name(f".{step.path.name}.new")
                fresh.write_text(step.content, encoding="utf-8")
                # The service runs as nobody in particular and must be able to read it.
                fresh.chmod(step.mode)
                fresh.replace(step.path)
            elif step.act == "remove":
                step.path.unlink()
                if step.path.parent.name.endswith(".service.d") and not any(step.path.parent.iterdir()):
                    step.path.parent.rmdir()
        except PermissionError as error:
            raise XidwatchError(f"{step.path}: {error.strerror}; run it as root, or see what it would do: --dry-run") from error
        except OSError as error:
            raise XidwatchError(f"{step.path}: {error.strerror}") from error


def told_of(steps: Iterable[Step], *, dry_run: bool = False) -> list[str]:
    """One line a file."""
    done = {"write": "wrote", "update": "updated", "remove": "removed", "keep": "kept", "absent": "not there"}
    would = {"write": "would write", "update": "would update", "remove": "would remove", "keep": "would keep"}
    words: dict[str, str] = done | would if dry_run else dict(done)
    return [f"{words.get(step.act, step.act):<13} {step.path}" for step in steps]


def hindrances_of(runtime: Runtime) -> Iterator[str]:
    """Why a service could not start this command, each with the next step; empty when it can."""
    for path in dict.fromkeys((runtime.command, runtime.interpreter)):
        if hidden := next((folder for folder in _HIDDEN if path.is_relative_to(folder)), None):
            yield f"{path} is under {hidden}, which the service does not see. {_DO_THIS}"
        elif not path.exists():
            yield f"{path} is not there. {_DO_THIS}"
        elif closed := next((part for part in (path, *path.parents) if not part.stat().st_mode & stat.S_IXOTH), None):
            yield f"{path} cannot be run by others than its owner: see the mode of {closed}"
    if importlib.util.find_spec("prometheus_client") is None:
        yield "the metrics need a package that is not there: pip install 'xidwatch[watch]'"


def _after_installation(steps: Sequence[Step]) -> list[str]:
    restart = any(step.act == "update" and step.path.name == UNITS[0] for step in steps)
    start = f"systemctl restart {UNITS[0]}" if restart else f"systemctl enable --now {UNITS[0]}"
    told = ["", "Next:", "  systemctl daemon-reload", f"  {start}", "  xidwatch status"]
    told += [
        "A program that is told of incidents: name it under [hook] in config.toml, then",
        f"  systemctl enable --now {UNITS[1]}",
    ]
    if importlib.util.find_spec("systemd") is None:
        told += [
            "Without the journal only the kernel's own buffer is read, and nothing of earlier boots. To read it too:",
            "  apt install python3-systemd     (in a venv with --system-site-packages), or",
            "  pip install 'xidwatch[journal]' (built from source)",
        ]
    return told


def _after_wrappers(wrappers: Sequence[str]) -> list[str]:
    told = []
    if "slurm" in wrappers:
        folder = f"/{WRAPPERS['slurm'][0][1].rpartition('/')[0]}"
        told += [
            "Slurm asks it with one of these in slurm.conf, or both; then: scontrol reconfigure",
            f"  HealthCheckProgram={folder}/xidwatch-healthcheck",
            "  HealthCheckInterval=60",
            f"  Prolog={folder}/xidwatch-prolog",
        ]
    if "node-problem-detector" in wrappers:
        told += [
            "node-problem-detector asks it with",
            f"  --config.custom-plugin-monitor=/{WRAPPERS['node-problem-detector'][0][1]}",
        ]
    return told


def _after_removal() -> list[str]:
    return [
        "", "Next:", f"  systemctl stop {' '.join(UNITS)}", "  systemctl daemon-reload",
        "Configuration and history stay: /etc/xidwatch, /var/lib/private/xidwatch, /var/lib/private/xidwatch-hook",
    ]  # fmt: skip


def _wrapper(source: str, path: Path, command: Path) -> Step:
    """A script keeps `#!` as its first line, JSON has no comments: the mark goes where it may stand."""
    if shlex.quote(str(command)) != str(command):
        raise XidwatchError(f"{command}: blanks and quotes in this path do not go into {path.name}")
    folder, name = source.split("/")
    text = (shipped(folder) / name).read_text(encoding="utf-8").replace(_TEMPLATE_COMMAND, str(command))
    if name.endswith(".json"):
        return _written(path, text.replace("{\n", f'{{\n  "comment": "{_MARK_WORDS}",\n', 1))
    first, _, rest = text.partition("\n")
    return replace(_written(path, f"{first}\n{MARK}{rest}"), mode=0o755)


def _written(path: Path, content: str) -> Step:
    try:
        before = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Step(act="write", path=path, content=content)
    except (OSError, UnicodeDecodeError) as error:
        raise XidwatchError(f"{path}: {error}") from error
    if before == content:
        return Step(act="unchanged", path=path)
    if not _is_ours(path):
        raise XidwatchError(
            f"{path} was not written by install-service; move it away. "
            f"Own settings belong in a drop-in: systemctl edit {path.name}"
        )
    return Step(act="update", path=path, content=content)


def _is_ours(path: Path) -> bool:
    try:
        return _MARK_WORDS in path.read_text(encoding="utf-8")[:_MARKED_CHARACTERS]
    except (OSError, UnicodeDecodeError):
        return False


def _quoted(command: Path) -> str:
    """As systemd reads it: % begins a specifier there (systemd.syntax(7))."""
    text = str(command).replace("%", "%%")
    return text if shlex.quote(text) == text else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
