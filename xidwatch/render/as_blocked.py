"""Tasks in D state for a person: what each waits for, whether SIGKILL ends it, and the way out, gentlest step first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from xidwatch.core.blocked import Blocked
from xidwatch.core.job import Job, job_words
from xidwatch.core.ladder import action_at
from xidwatch.core.pattern import lazy
from xidwatch.render.layout import visible, wrap
from xidwatch.render.steps import Known, command_lines
from xidwatch.render.wording import counted, seconds

if TYPE_CHECKING:
    from xidwatch.core.classify import RuleTable

_MOST = 8
_WIDTH = 79
_MOST_NAMED = 4
_WORK = ("slurm_job", "pod", "container", "unit")
_NEED_IT_FREE = ("reset_gpu", "bus_reset", "reset_fabric", "reload_driver")
_NFS = lazy(r"_*(?:nfs|rpc)")
_BMC = ("ipmitool", "racadm", "redfishtool")
_RELEASES: dict[str, tuple[str, str | None]] = {
    "gpu": ("the call into the driver must return: look for the Xid before it, and end what else holds the GPU",
            "sh -c 'fuser -v /dev/nvidia*'"),
    "storage": ("the storage must answer: bring the disk, array or server back, thaw what was frozen",
                "findmnt -o TARGET,SOURCE,FSTYPE"),
    "network": ("the link or the peer must answer", "ip -s link"),
    "other": ("what it waits for must happen", None),
    "unknown": ("find out what it waits in", "cat /proc/<pid>/stack"),
}  # fmt: skip
Step = dict[str, str | None]
"""`do`, and `command` where there is one."""


def way_out(blocked: Blocked, rules: RuleTable, *, guest: bool | None) -> list[Step]:
    """What ends the wait, in the order in which to try it.

    The rungs beyond are those of `reboot_node`, with their warnings. A guest has no BMC of its own: its host restarts it.
    """
    wait, pid = blocked.wait, str(blocked.task.key.pid)
    steps: list[Step] = []
    if wait.waits_for is not None:
        steps.append({"do": f"it waits for {wait.waits_for}: that must end or let go", "command": None})
    say, command = _RELEASES[wait.attribution]
    if wait.waits_for is None or wait.attribution != "other":
        steps.append({"do": say, "command": command.replace("<pid>", pid) if command else None})
    frames = blocked.evidence.stack if isinstance(blocked.evidence.stack, tuple) else ()
    if wait.attribution == "storage" and any(map(_NFS.match, frames)):
        steps.append({"do": "a server that does not come back: give the mount up", "command": "umount -f <mount>"})
    if wait.killable is not False:
        sure = "SIGKILL ends it" if wait.killable else "try SIGKILL once; if it is still there after 10 s, no signal ends it"
        steps.append({"do": sure, "command": f"kill -9 {pid}"})
    if wait.killable is True:
        return steps
    stuck = "; on a stuck file system sync waits beside it" if wait.attribution == "storage" else ""
    steps.append(
        {"do": f"before any reboot: drain the node and write out what can be written{stuck}", "command": "timeout 60 sync"}
    )
    return [*steps, *_reboots(rules, guest=guest)]


def blocked_lines(state: dict[str, Any], now_us: int) -> list[str]:
    """The part of `xidwatch status` about tasks in D state, from state.json; empty when there is nothing to tell.

    The daemon writes the file anew when a wait ends: one that is in it goes on at `now_us`.
    """
    tasks: list[dict[str, Any]] = state.get("blocked", [])
    scan: dict[str, Any] = state.get("d_state", {})
    lines: list[str] = []
    if tasks:
        count = max(scan.get("blocked", 0), len(tasks))
        lines += ["", f"{counted(count, 'task')} in D state (uninterruptible wait):"]
        groups = _groups(tasks)
        for group in groups[:_MOST]:
            lines += _group_lines(group, now_us)
        if len(groups) > _MOST:
            lines.append(f"  and {counted(len(groups) - _MOST, 'more place')}; --format json has them all")
        lines += _way_out_lines(groups[0][0])
    if not scan.get("up", True) and scan.get("why") and scan.get("scan") != "off":
        lines += ["", f"tasks in D state are not looked for: {scan['why']}"]
    elif scan.get("cannot_see"):
        lines += ["", *(f"not seen: {spot}" for spot in scan["cannot_see"])]
    return lines


def job_lines(incident: dict[str, Any], state: dict[str, Any]) -> Iterator[str]:
    """Whose work an incident hit, and who holds a GPU that is to be reset; from the JSON of incident and state."""
    holders = state.get("holders", ())
    stuck = {task["pid"] for task in state.get("blocked", ()) if task["killable"] is not True}
    work = [event for event in incident.get("events", ()) if any((event.get("job") or {}).get(name) for name in _WORK)]
    told = [", ".join(filter(None, (_process(event) if event["pid"] else "", _words(event["job"])))) for event in work]
    yield from _listed("Hit: ", [words for words in told if words not in incident.get("sentence", "")])
    if incident["recovery"]["rung"] in _NEED_IT_FREE:
        gpus = set(incident["gpus"])
        holding = [one for one in holders if one["alive"] and (not gpus or not one["gpus"] or gpus & {*one["gpus"]})]
        yield from _listed("Held by: ", [", ".join(filter(None, (_process(one), _words(one["job"])))) for one in holding])
        if deaf := [one for one in holding if one["pid"] in stuck]:
            yield from _listed("In D state: ", [_process(one) for one in deaf])
            yield "      A reset cannot work while it holds the GPU: reboot, unless it goes on."


def _listed(front: str, parts: list[str]) -> Iterator[str]:
    distinct = list(dict.fromkeys(parts))
    more = f" and {len(distinct) - _MOST_NAMED} more" if len(distinct) > _MOST_NAMED else ""
    if distinct:
        yield from wrap(visible("; ".join(distinct[:_MOST_NAMED]) + more), _WIDTH, first=f"  {front}", rest=" " * 6)


def _words(job: dict[str, Any] | None) -> str:
    return job_words(Job(**{name: job[name] for name in Job.__slots__ if name in job})) if job else ""


def _process(one: dict[str, Any]) -> str:
    return f"{one['process'] or 'a process'} (pid {one['pid']})"


def _groups(tasks: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Tasks that wait in the same place together; those that wait for a GPU first, then the longest waits."""
    found: dict[object, list[dict[str, Any]]] = {}
    for task in tasks:
        place = (task["stack"] or [task["wchan"]])[0]
        key = (task["attribution"], place, task["killable"]) if place else task["tid"]
        found.setdefault(key, []).append(task)
    return sorted(found.values(), key=lambda group: (group[0]["attribution"] != "gpu", -group[0]["at_least_s"]))


def _group_lines(group: list[dict[str, Any]], now_us: int) -> Iterator[str]:
    first = group[0]
    more = f"; and {counted(len(group) - 1, 'more task')} in the same place" if len(group) > 1 else ""
    who = ", ".join(part for part in (_named(first), _words(first["job"])) if part)
    long_s = max(first["at_least_s"], (now_us - first["since_us"]) / 1e6)
    yield from wrap(f"{who}{more}: for at least {seconds(long_s)}", _WIDTH, first="  ", rest="    ")
    what = {"gpu": "GPU", "storage": "storage", "network": "network", "other": "none of GPU, storage, network"}
    yield from _indented(f"{what.get(first['attribution'], 'not known what for')}: {first['why']}")
    if first["waits_for"]:
        yield from _indented(f"it waits for {first['waits_for']}")
    call = " on ".join(part for part in (first["syscall"], first["file"]) if part)
    if call:
        yield from _indented(f"system call: {call}")
    if first["devices"]:
        yield from _indented(f"it holds {', '.join(first['devices'][:4])}: no reset, no unload of the driver while it lives")
    word = {True: "ends it", False: "does nothing"}.get(first["killable"], "may or may not end it")
    yield from _indented(f"SIGKILL {word}: {first['killable_why']}")


def _indented(text: str) -> Iterator[str]:
    yield from wrap(visible(text), _WIDTH, first="    ", rest="      ")


def _named(task: dict[str, Any]) -> str:
    thread = f", thread {task['tid']}" if task["tid"] != task["pid"] else ""
    inside = f", {task['inner_pid']} in its container" if task["inner_pid"] is not None else ""
    return f"{visible(task['process'])} (pid {task['pid']}{thread}{inside})"


def _way_out_lines(task: dict[str, Any]) -> Iterator[str]:
    steps: Sequence[Step] = task.get("way_out") or ()
    if steps:
        yield f"  Way out for {_named(task)}, in this order:"
    for number, step in enumerate(steps, start=1):
        yield from wrap(visible(str(step["do"])), _WIDTH, first=f"    {number}. ", rest=" " * 7)
        if step["command"]:
            yield f"       {step['command']}"


def _reboots(rules: RuleTable, *, guest: bool | None) -> Iterator[Step]:
    known: Known = {}
    for command in action_at(rules, "reboot_node").commands:
        if command.argv[0] in _BMC and guest:
            yield {"do": "when nothing else answers: reset the virtual machine from its host or cloud", "command": None}
            continue
        say = command.note or rules.action("reboot_node").say
        if command.argv[0] in _BMC:
            say = f"{say} (power cycle by the BMC)" + ("" if guest is False else "; a guest: reset it from its host or cloud")
        yield {"do": say, "command": command_lines(command, known)[0]}
