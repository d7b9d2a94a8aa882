"""`xidwatch evidence`: everything about one GPU in one archive, for the vendor or the next engineer."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xidwatch import __version__
from xidwatch.config import load_config
from xidwatch.core.classify import RuleTable
from xidwatch.core.evidence import Item, manifest, masked
from xidwatch.core.incident import HostReport, Postmortem
from xidwatch.core.machine import UNKNOWN
from xidwatch.core.pci import PciAddress, parse_pci
from xidwatch.core.stateshape import read_json
from xidwatch.errors import XidwatchError
from xidwatch.evidence import (
    Past,
    Subject,
    archive_name,
    bug_report,
    here,
    history,
    lines,
    machine_items,
    nvml,
    of_gpu,
    read_past,
    reports,
    slot_state,
    summary,
    uuid_of,
    vendor_commands,
)
from xidwatch.explain import ExplainOptions, explain, unread_sentences
from xidwatch.gpuchoice import KnownGpu, choose_gpus
from xidwatch.plainfile import read_state_bytes
from xidwatch.rulefiles import load_rules
from xidwatch.sinks.bundle import write_bundle
from xidwatch.sources.devices import list_gpus
from xidwatch.sources.machine import read_machine

_DESCRIPTION = """\
Gathers what a vendor or an engineer asks for about one GPU into one .tar.gz:
the report, the log lines, the history, what NVML says, driver files, lspci,
kernel settings, versions, and the vendor's own command. A MANIFEST says of
each item: got, not permitted, not there, timed out or failed. No item that
hangs holds up the others; nothing is reset or changed."""
_END = """\
examples:
  xidwatch evidence --gpu 0 --out /root
  xidwatch evidence --gpu 3b:00 --log /var/log/kern.log --out . --redact

exit status: 0 written, 2 wrong usage or not written, 3 a bug"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `xidwatch evidence`."""
    parser.description, parser.epilog = _DESCRIPTION, _END
    add = parser.add_argument
    add("--gpu", required=True, metavar="PCI|UUID|INDEX", help="an address or its end (3b:00), GPU-..., or nvidia-smi's index")
    add("--out", required=True, metavar="DIR", help="folder for the archive")
    add("--log", metavar="FILE", action="append", default=[], help="log or folder to report on; may be given again; "
        "default: the daemon's history, else the kernel's ring buffer")  # fmt: skip
    add("--redact", action="store_true", help="mask host names, UUIDs, serials, addresses, users, their paths and logins")
    add("--run-bug-report", action="store_true", help="run the vendor's nvidia-bug-report.sh too; on a sick GPU it may hang")
    add("--deadline", metavar="SECONDS", type=int, default=900, help="for the vendor's script; default: 900")
    add("--rules", metavar="DIR", action="append", default=[], help="folder of further rules; may be given again")
    add("--config", metavar="FILE", help="default: /etc/xidwatch/config.toml, where it exists")
    add("--state-dir", metavar="DIR", help="what outlives a reboot; default: /var/lib/xidwatch")
    add("--run-dir", metavar="DIR", help="state.json and the socket; default: /run/xidwatch")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Gather and write. Returns the exit code."""
    if options.redact and options.run_bug_report:
        raise XidwatchError("--redact cannot mask what the vendor's script gathers: give one of --redact and --run-bug-report")
    if options.deadline <= 0:
        raise XidwatchError(f"--deadline {options.deadline}: seconds, more than 0")
    folder = _folder(options.out)
    given = {name: getattr(options, name) for name in ("state_dir", "run_dir") if getattr(options, name) is not None}
    config = load_config(Path(options.config) if options.config else None, given)
    rules = load_rules([Path(name) for name in options.rules])
    past = read_past(config.state_dir / "history.db", rules, read_machine())
    told = _told(options.log, past, rules)
    state = _state(config.run_dir / "state.json")
    subject = _subject(options.gpu, told, past, _by_index(state))
    items = [
        *_reported(told, subject, rules),
        *history(past, subject, config.state_dir / "history.db", rules),
        slot_state(state, subject, config.run_dir / "state.json"),
        nvml(subject, released=_is_released(state)),
        *machine_items(subject),
        vendor_commands(subject),
        *([bug_report(options.deadline)] if options.run_bug_report else []),
    ]
    host = here() if subject.here else _host_of(told)
    if options.redact:
        items, host, subject = _masked(items, host, (told, past), subject, rules)
    _write(items, host, subject, folder)
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What the report is made of.

    Attributes:
        how: Where it comes from.
        ours: From this machine for sure.
        why: What of it could not be read.
    """

    postmortem: Postmortem
    how: str
    ours: bool
    why: str | None = None


def _folder(name: str) -> Path:
    """Before anything is gathered: a folder that cannot take the archive is told at once. A new one is made at the end."""
    folder = Path(name)
    try:
        folder.stat()
    except FileNotFoundError:
        if not folder.parent.is_dir():
            raise XidwatchError(f"--out {name}: {folder.parent} is no folder") from None
        if not os.access(folder.parent, os.W_OK | os.X_OK):
            raise XidwatchError(f"--out {name}: not allowed to make it in {folder.parent}") from None
        return folder
    except OSError as reason:
        raise XidwatchError(f"--out {name}: {reason.strerror}") from None
    if not folder.is_dir():
        raise XidwatchError(f"--out {name}: no folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise XidwatchError(f"--out {name}: not allowed to write there")
    return folder


def _told(logs: Sequence[str], past: Past, rules: RuleTable) -> _Told:
    if not logs and past.incidents:
        return _Told(postmortem=past.postmortem, how="the daemon's history", ours=True)
    how = f"xidwatch explain {' '.join(logs)}".strip()
    try:
        found = explain(logs, ExplainOptions(machine=read_machine() if not logs else UNKNOWN), rules)
    except XidwatchError as error:
        if logs:
            raise
        return _Told(postmortem=past.postmortem, how=how, ours=True, why=str(error))
    unread = unread_sentences(found)
    if unread and logs and not found.records:
        raise XidwatchError("\n".join(unread))
    return _Told(postmortem=found, how=how, ours=not logs, why="; ".join(unread) or None)


def _subject(asked: str, told: _Told, past: Past, by_index: dict[str, KnownGpu]) -> Subject:
    """Which GPU is meant: an index is NVML's, else counts this machine's in the order of their slots, as nvidia-smi does.

    Args:
        by_index: What the daemon knows; it is of this machine, and other machines' logs are not about it.
    """
    if told.ours and asked in by_index:
        return Subject(pci=by_index[asked].pci, uuid=by_index[asked].uuid, here=True)
    own = {gpu.pci: uuid_of(gpu.pci) for gpu in list_gpus()}
    if asked.isdecimal() and int(asked) < len(own):
        pci = sorted(own)[int(asked)]
        return Subject(pci=pci, uuid=own[pci], here=True)
    known = {KnownGpu("", pci, uuid) for pci, uuid in (*own.items(), *_named_in(told.postmortem), *_named_in(past.postmortem))}
    with_uuid = {gpu.pci for gpu in known if gpu.uuid is not None}
    known = {gpu for gpu in known if gpu.uuid is not None or gpu.pci not in with_uuid}
    chosen = choose_gpus(asked, known)
    slots = {gpu.pci for gpu in chosen}
    if len(slots) > 1:
        raise XidwatchError(f"--gpu {asked}: several GPUs are meant: {', '.join(map(str, sorted(slots)))}; give one")
    (pci,) = slots
    hosts = {report.host for report in told.postmortem.hosts if str(pci) in report.gpus}
    if len(hosts) > 1:
        raise XidwatchError(f"--gpu {asked}: {len(hosts)} hosts of these logs have a GPU at {pci}; give the log of one node")
    uuid = own.get(pci) or next((gpu.uuid for gpu in chosen if gpu.uuid is not None), None)
    return Subject(pci=pci, uuid=uuid, here=_is_here(told, on_bus=pci in own))


def _by_index(state: dict[str, Any]) -> dict[str, KnownGpu]:
    """The GPUs that the daemon knows, by NVML's index as of its latest answer."""
    gpus = state.get("gpus")
    found: dict[str, KnownGpu] = {}
    for one in gpus if isinstance(gpus, list) else ():
        if isinstance(one, dict) and type(one.get("index")) is int and (pci := parse_pci(str(one.get("pci")))) is not None:
            uuid = one.get("gpu_uuid")
            found[str(one["index"])] = KnownGpu("", pci, uuid if isinstance(uuid, str) else None)
    return found


def _named_in(told: Postmortem) -> Iterator[tuple[PciAddress, str | None]]:
    named = [(name, uuid) for report in told.hosts for name, (uuid, _) in report.gpus.items()]
    named += [(name, None) for one in told.incidents for name in one.gpus]
    for name, uuid in named:
        if (pci := parse_pci(name)) is not None:
            yield pci, uuid


def _is_here(told: _Told, *, on_bus: bool) -> bool:
    """Whether the report is about this machine: no log was given, it names this host, or it names none and the GPU is here."""
    hosts = {report.host.partition(".")[0] for report in told.postmortem.hosts if report.host is not None}
    return told.ours or here().partition(".")[0] in hosts or (not hosts and on_bus)


def _state(path: Path) -> dict[str, Any]:
    try:
        state = read_json(read_state_bytes(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}


def _is_released(state: dict[str, Any]) -> bool:
    way = state.get("nvml")
    return isinstance(way, dict) and bool(way.get("released"))


def _reported(told: _Told, subject: Subject, rules: RuleTable) -> list[Item]:
    own = of_gpu(told.postmortem, subject.pci)
    items = [*reports(own, rules, told.how), lines(own, told.how)]
    return [replace(item, why=told.why or item.why) for item in items]


def _host_of(told: _Told) -> str:
    named = {report.host for report in told.postmortem.hosts if report.host is not None}
    return named.pop() if len(named) == 1 else "unknown"


def _masked(
    items: list[Item], host: str, sources: tuple[_Told, Past], subject: Subject, rules: RuleTable
) -> tuple[list[Item], str, Subject]:
    """Everything under the same masks: what the report, the history and NVML teach is masked in the other items too."""
    from xidwatch.render.redact import Redactor

    redactor, (told, past) = Redactor(), sources
    serials = {
        serial for item in items if item.data is not None and item.name.endswith(".json") for serial in _serials(item.data)
    }
    ours = [HostReport(host=here(), gpus={str(subject.pci): (subject.uuid, serial)}) for serial in (None, *sorted(serials))]
    shown = told.postmortem
    taught = replace(
        shown,
        hosts=(*shown.hosts, *past.postmortem.hosts, *ours),
        incidents=(*shown.incidents, *past.incidents),
    )
    hidden = redactor.postmortem(taught)
    hidden = replace(hidden, hosts=hidden.hosts[: len(shown.hosts)], incidents=hidden.incidents[: len(shown.incidents)])
    again = {item.name: item for item in _reported(replace(told, postmortem=hidden), subject, rules)}
    found = [masked(again.get(item.name, item), redactor.text) for item in items]
    uuid = redactor.text(subject.uuid) if subject.uuid is not None else None
    return found, redactor.text(host), replace(subject, uuid=uuid)


def _serials(data: bytes) -> Iterator[str]:
    """Values of what is called a serial number, anywhere in a JSON text."""
    left: list[Any] = [json.loads(data)]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield from (str(one) for name, one in value.items() if "serial" in name and isinstance(one, str | int) and str(one))
        left += value.values() if isinstance(value, dict) else value if isinstance(value, list) else []


def _write(items: list[Item], host: str, subject: Subject, folder: Path) -> None:
    now_s = time.time()
    name = archive_name(host, subject, now_s)
    heading = (
        f"xidwatch {__version__}: evidence about GPU {subject.pci}{f' ({subject.uuid})' if subject.uuid else ''} of {host}",
        f"gathered {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(now_s))} UTC{'' if os.geteuid() == 0 else ', not as root'}",
    )
    try:
        folder.mkdir(exist_ok=True)
    except OSError as reason:
        raise XidwatchError(f"--out {folder}: {reason.strerror}") from None
    path = folder / f"{name}.tar.gz"
    write_bundle(path, name, items, manifest(items, heading), now_s)
    sys.stdout.write(f"{path}\n")
    if missing := summary(items):
        sys.stdout.write(f"{missing}\n")
