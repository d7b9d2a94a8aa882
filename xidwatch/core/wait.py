"""What a wait in D state is: for what, on what evidence, whether SIGKILL ends it, and whom it waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from xidwatch.core.blocked import Blocked, Evidence, Hidden, Moment, Sighting, Spell, Wait, spell_id
from xidwatch.core.event import Attribution, Event, HungTaskDetail
from xidwatch.core.hung_task import attribute
from xidwatch.core.job import Job
from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record

_PROVEN_DEAF_S = 2.0
"""A task that has had a SIGKILL for this long and is still in D does not hear it."""
_FROZEN = lazy(r"_*(?:refrigerator|try_to_freeze)")
_VFORK = lazy(r"_*(?:kernel_clone|do_fork|wait_for_vfork_done)")
_DRIVER_LAYER = lazy(r"_*(?:os_(?:acquire|cond|wait|delay|schedule)|nv_|nvkms_|nvswitch_|nvidia|uvm_|_nv\d+rm)")
"""What NVIDIA's modules call their own waits (kernel-open/nvidia/os-interface.c, nv-kthread-q.c): too plain to count alone."""
_DEAF = lazy(r"_*(?:percpu_rwsem_wait|wait_on_buffer|wait_transaction_locked|jbd2_log_wait_commit|rq_qos_wait|blk_mq_get_tag)")
"""Waits that are TASK_UNINTERRUPTIBLE and nothing else (kernel/locking/percpu-rwsem.c, fs/buffer.c, fs/jbd2, block/)."""
_KILLABLE = lazy(r"\w*_killable")
_GPU_DEVICE = lazy(r"/dev/(?:nvidia|kfd$|dri/)")
_SYSCALL_FRAMES = lazy(r"_*(?:entry_SYSCALL|do_syscall|x64_sys|se_sys|do_sys|arm64_sys|el0|invoke_syscall|ret_from_fork)")


def blocked_tasks(spells: Iterable[tuple[Spell, Evidence]], now: Moment, boot_id: str | None) -> tuple[Blocked, ...]:
    """These waits with what they mean, longest first. One that was made on purpose, a frozen cgroup, is none."""
    known = [(spell, evidence, wait) for spell, evidence in spells if (wait := judge(spell, evidence, now)) is not None]
    places = Counter(wait.place for _, _, wait in known)
    found = [
        Blocked(
            task=spell.task,
            since_us=now.wall_us - round((now.steady_s - spell.since_s) * 1e6),
            at_least_s=max(0.0, now.steady_s - spell.since_s),
            spell=spell_id(boot_id, spell),
            wait=wait,
            evidence=evidence,
            together=places[wait.place] if wait.place is not None else 1,
        )
        for spell, evidence, wait in known
    ]
    return tuple(sorted(found, key=lambda one: -one.at_least_s))


def judge(spell: Spell, evidence: Evidence, now: Moment) -> Wait | None:
    """What a wait is; None for a task that is frozen on purpose."""
    frames = _frames(evidence)
    if is_frozen(evidence):
        return None
    attribution, why = _attributed(spell.task, evidence)
    killable, killable_why = _killable(spell, frames, now)
    waits_for = None
    if any(_VFORK.match(frame) for frame in frames[:2]):
        children = ", ".join(map(str, evidence.children[:4]))
        waits_for = f"its vfork child (pid {children})" if children else "its vfork child"
        killable, killable_why = True, "the wait for a vfork child is a killable one"
    place = f"{attribution} {frames[0]}" if frames else None
    return Wait(
        attribution=attribution, why=why, killable=killable, killable_why=killable_why, waits_for=waits_for, place=place
    )


def is_frozen(evidence: Evidence) -> bool:
    """Whether it is in D because somebody wants it so: the freezer of cgroup version 1 (`docker pause`), or a suspend."""
    return evidence.frozen is True or any(_FROZEN.match(frame) for frame in _frames(evidence)[:3])


def observation(blocked: Blocked, record: Record) -> Event:
    """The event that a wait of some length is, in the shape of the kernel's own report; `record` says when and where.

    The kernel's later line about the same task folds into it.
    """
    evidence, wait, task = blocked.evidence, blocked.wait, blocked.task
    detail = HungTaskDetail(
        blocked_s=int(blocked.at_least_s),
        stack=evidence.stack if isinstance(evidence.stack, tuple) else (),
        wchan=evidence.wchan if isinstance(evidence.wchan, str) else None,
        in_block=False,
        attribution=wait.attribution,
        gpu_related={"gpu": True, "unknown": None}.get(wait.attribution, False),
        killable=wait.killable,
        kernel_thread=task.kernel_thread,
        why=wait.why,
        seen_by="scan",
    )
    job = evidence.job if isinstance(evidence.job, Job) and evidence.job else None
    return Event(
        uid=(record.stream, record.seq, 0), kind="hung_task", record=record, last_record=record,
        pid=task.key.tid, process=task.comm or None, job=job, detail=detail,
    )  # fmt: skip


def is_worth_an_incident(blocked: Blocked) -> bool:
    """Whether the wait is evidence of something; a killable one that nobody can attribute is somebody's own affair."""
    wait = blocked.wait
    if wait.attribution in ("gpu", "storage", "network"):
        return True
    return wait.attribution == "other" and wait.killable is not True


def _frames(evidence: Evidence) -> tuple[str, ...]:
    if isinstance(evidence.stack, tuple) and evidence.stack:
        return evidence.stack
    return (evidence.wchan,) if isinstance(evidence.wchan, str) else ()


def _attributed(task: Sighting, evidence: Evidence) -> tuple[Attribution, str]:
    """By the stack; else by the one function that wchan names; else by the file that the call is about, or the task's name."""
    whole = isinstance(evidence.stack, tuple) and bool(evidence.stack)
    frames = _frames(evidence)
    if (
        frames
        and (found := _by_frames(task.comm, frames, kernel_thread=task.kernel_thread)) is not None
        and (whole or found[0] != "other")
    ):
        return found
    if not whole and (found := _by_device(evidence, frames)) is not None:
        return found
    if frames and _VFORK.match(frames[0]):
        return "other", f"waits in {frames[0]}"
    if frames:
        return "unknown", f"waits in {frames[0]}, which does not tell for what; its stack is hidden ({_why(evidence.stack)})"
    hidden = _why(evidence.wchan) or _why(evidence.stack) or "the kernel names nothing"
    return _by_frames(task.comm, (), kernel_thread=task.kernel_thread) or ("unknown", f"what it waits in is hidden ({hidden})")


def _by_device(evidence: Evidence, frames: tuple[str, ...]) -> tuple[Attribution, str] | None:
    devices = evidence.devices if isinstance(evidence.devices, tuple) else ()
    if frames and devices and _DRIVER_LAYER.match(frames[0]):
        return "gpu", f"waits in {frames[0]} and holds {devices[0]}"
    if isinstance(evidence.file, str) and _GPU_DEVICE.match(evidence.file):
        return "gpu", f"is in {_text(evidence.syscall) or 'a call'} on {evidence.file}"
    return None


@lru_cache(maxsize=1024)
def _by_frames(comm: str, frames: tuple[str, ...], *, kernel_thread: bool) -> tuple[Attribution, str] | None:
    """Remembered, since hundreds of tasks that wait in one place are looked at every few seconds."""
    telling = tuple(frame for frame in frames if not _SYSCALL_FRAMES.match(frame))
    found = attribute(comm, HungTaskDetail(stack=telling, kernel_thread=kernel_thread))
    return None if found is None or found.attribution == "unknown" else (found.attribution, found.why)


def _killable(spell: Spell, frames: tuple[str, ...], now: Moment) -> tuple[bool | None, str]:
    if spell.task.kernel_thread:
        return False, "it is a thread of the kernel, which takes no signals"
    if spell.killed_s is not None and now.steady_s - spell.killed_s >= _PROVEN_DEAF_S:
        return False, f"a SIGKILL has been waiting for it for {now.steady_s - spell.killed_s:.0f} s"
    if frames and _KILLABLE.match(frames[0]):
        return True, f"it waits in {frames[0]}, which a kill signal ends"
    if frames and _DEAF.match(frames[0]):
        return False, f"it waits in {frames[0]}, which hears no signal"
    return None, "the frames do not tell; one SIGKILL does no harm, and if it is still there after that, none will end it"


def _why(value: object) -> str | None:
    return value.why if isinstance(value, Hidden) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def with_owner(blocked: Blocked, owner: str) -> Blocked:
    """The same wait with the lock's owner, `name:pid`, that the kernel's log names."""
    name, _, pid = owner.rpartition(":")
    return replace(blocked, wait=replace(blocked.wait, waits_for=f"a lock that {name} (pid {pid}) holds"))
