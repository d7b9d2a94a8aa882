"""Tasks in D state as `xidwatch status` shows them, and the way out."""

from __future__ import annotations

from typing import Any

import pytest

from xidwatch.core.blocked import Blocked, Evidence, Hidden, Sighting, TaskKey, Wait
from xidwatch.core.classify import RuleTable
from xidwatch.core.event import Attribution
from xidwatch.core.job import Job
from xidwatch.render.as_blocked import blocked_lines, job_lines, way_out
from xidwatch.rulefiles import load_rules
from xidwatch.tasks import blocked_object

NOW_US = 1_796_000_000_000_000


@pytest.fixture(scope="module")
def rules() -> RuleTable:
    """Those that ship."""
    return load_rules(())


def wait(
    attribution: Attribution = "gpu", *, killable: bool | None = None, waits_for: str | None = None, **changes: Any
) -> Blocked:
    """A wait of python3, four minutes long."""
    evidence: dict[str, Any] = {
        "stack": ("os_acquire_rwlock_write [nvidia]", "nvidia_unlocked_ioctl [nvidia]"), "wchan": "os_acquire_rwlock_write",
        "syscall": "ioctl", "file": "/dev/nvidiactl", "devices": ("/dev/nvidia0", "/dev/nvidiactl"),
        "job": Job(slurm_job="88123", uid=1000, user="alice"),
    }  # fmt: skip
    task: dict[str, Any] = {"pid": 4711, "tid": 4711, "comm": "python3"} | {
        name: changes.pop(name) for name in ("pid", "tid", "comm") if name in changes
    }
    return Blocked(
        task=Sighting(
            key=TaskKey(task["pid"], task["tid"], 1), comm=task["comm"], kernel_thread=False, switches=1, killed=False,
        ),
        since_us=NOW_US - 240_000_000, at_least_s=240.0, spell=f"task/b/{task['tid']}/1/1",
        wait=Wait(attribution=attribution, why="waits in os_acquire_rwlock_write [nvidia]", killable=killable,
                  killable_why="the frames do not tell", waits_for=waits_for),
        evidence=Evidence(**evidence | changes),
    )  # fmt: skip


def shown(rules: RuleTable, *waits: Blocked, **scan: Any) -> str:
    """What status prints of these."""
    blocked = [blocked_object(one, NOW_US) | {"way_out": way_out(one, rules, guest=None)} for one in waits]
    return "\n".join(blocked_lines({"blocked": blocked, "d_state": {"up": True, "why": None, "cannot_see": []} | scan}, NOW_US))


def commands(rules: RuleTable, one: Blocked, *, guest: bool | None = False) -> list[str]:
    """The commands of the way out, in order."""
    return [step["command"] for step in way_out(one, rules, guest=guest) if step["command"]]


def test_who_what_for_and_since_when(rules: RuleTable) -> None:
    """Job and user, what it waits for, what it holds, and whether SIGKILL helps are on the first screen."""
    text = " ".join(shown(rules, wait()).split())
    for part in (
        "1 task in D state", "python3 (pid 4711), Slurm job 88123, user alice: for at least 4 min",
        "GPU: waits in os_acquire_rwlock_write [nvidia]", "ioctl on /dev/nvidiactl", "it holds /dev/nvidia0", "SIGKILL may or may not end it",
    ):  # fmt: skip
        assert part in text


def test_tasks_in_the_same_place_are_one_entry_and_gpu_comes_first(rules: RuleTable) -> None:
    """When a file server dies hundreds wait for it; the one that waits for the GPU must not drown among them."""
    stack: dict[str, Any] = {"stack": ("mnt_want_write",), "devices": (), "file": None}
    others = [wait("storage", pid=5000 + n, tid=5000 + n, comm="dd", **stack) for n in range(40)]
    text = shown(rules, *others, wait())
    assert text.index("python3 (pid 4711)") < text.index("dd (pid 5000)")
    assert "and 39 more tasks in the same place" in " ".join(text.split())
    assert "dd (pid 5001)" not in text


def test_gentle_steps_come_before_hard_ones_and_the_hard_one_has_its_warning(rules: RuleTable) -> None:
    """What releases it, one SIGKILL, sync, reboot, forced reboot, sysrq with its warning, the BMC last."""
    steps = way_out(wait(), rules, guest=False)
    order = [next(i for i, step in enumerate(steps) if word in f"{step['do']} {step['command']}")
             for word in ("fuser", "kill -9 4711", "timeout 60 sync", "systemctl reboot", "reboot --force", "sysrq-trigger", "ipmitool")]  # fmt: skip
    assert order == sorted(order)
    last = next(step for step in steps if "echo b" in str(step["command"]))
    assert "data not yet written is lost" in str(last["do"])


def test_a_killable_wait_needs_no_reboot(rules: RuleTable) -> None:
    """Where SIGKILL ends it nothing harder is offered."""
    assert ["findmnt -o TARGET,SOURCE,FSTYPE", "kill -9 4711"] == commands(
        rules, wait("storage", killable=True, stack=("ext4_x",))
    )


def test_a_deaf_wait_is_not_sent_signals(rules: RuleTable) -> None:
    """Where SIGKILL is known to do nothing it is not advised."""
    assert not any("kill -9" in command for command in commands(rules, wait(killable=False)))


def test_a_guest_has_no_bmc(rules: RuleTable) -> None:
    """A virtual machine is reset from outside."""
    assert not any("ipmitool" in command for command in commands(rules, wait(), guest=True))
    assert "from its host" in str(way_out(wait(), rules, guest=True)[-1]["do"])
    assert any("ipmitool" in command for command in commands(rules, wait(), guest=None))


def test_a_dead_nfs_server_can_be_given_up(rules: RuleTable) -> None:
    """A mount whose server does not come back can be taken away by force."""
    assert "umount -f <mount>" in commands(
        rules, wait("storage", stack=("rpc_wait_bit_killable [sunrpc]", "nfs4_do_open [nfsv4]"))
    )


def test_whom_it_waits_for_comes_first(rules: RuleTable) -> None:
    """A lock's owner or a vfork child is the first thing to look at."""
    one = wait("other", killable=True, waits_for="its vfork child (pid 4712)")
    assert "its vfork child (pid 4712)" in str(way_out(one, rules, guest=None)[0]["do"])
    assert "it waits for its vfork child (pid 4712)" in shown(rules, one)


def test_what_cannot_be_seen_is_said(rules: RuleTable) -> None:
    """Not permitted is shown with what would help, and a scan that does not run with the reason."""
    hidden = Hidden(why="needs CAP_SYS_ADMIN")
    one = wait("unknown", stack=hidden, wchan=None, syscall=None, file=None, devices=())
    text = shown(rules, one, cannot_see=["kernel stacks: not permitted (CAP_SYS_ADMIN; drop-in d-state-stack)"])
    assert "not known what for" in text
    assert "not seen: kernel stacks: not permitted" in text
    assert {"stack": "needs CAP_SYS_ADMIN"} == blocked_object(one, NOW_US)["hidden"]
    assert "not looked for: switched off" in "\n".join(
        blocked_lines({"blocked": [], "d_state": {"up": False, "why": "switched off"}}, NOW_US)
    )


def test_a_state_of_an_older_daemon_shows_nothing() -> None:
    """A file without these parts is no error."""
    assert [] == blocked_lines({}, NOW_US)


def test_a_hostile_name_stays_text(rules: RuleTable) -> None:
    """A process chooses its name; a terminal does not obey it."""
    assert "\x1b" not in shown(rules, wait(comm="\x1b[2Jevil\n"))


EVENT = {"process": "python3", "pid": 4711, "job": {"slurm_job": "88123", "uid": 1000, "user": "alice"}}
HOLDER = {"process": "vllm", "pid": 42, "alive": True, "gpus": ["0000:3b:00.0"], "job": {"unit": "vllm.service"}}


def test_whose_work_was_hit_and_who_is_in_the_way_of_a_reset() -> None:
    """Before a GPU is reset the admin reads whom that costs: the living holders of this GPU, not of others, not the dead."""
    incident = {"events": [EVENT, EVENT], "gpus": ["0000:3b:00.0"], "recovery": {"rung": "reset_gpu"}}
    holders = [HOLDER, HOLDER | {"pid": 43, "alive": False}, HOLDER | {"pid": 44, "gpus": ["0000:9b:00.0"]}]
    expected = ["  Hit: python3 (pid 4711), Slurm job 88123, user alice", "  Held by: vllm (pid 42), unit vllm.service"]
    assert expected == list(job_lines(incident, {"holders": holders}))
    assert expected[:1] == list(job_lines(incident | {"recovery": {"rung": "restart_app"}}, {"holders": holders}))


def test_a_holder_in_d_state_makes_a_reset_impossible() -> None:
    """Whatever it waits for: a process that cannot end holds the device."""
    incident = {"events": [], "gpus": ["0000:3b:00.0"], "recovery": {"rung": "reset_gpu"}}
    lines = list(job_lines(incident, {"holders": [HOLDER], "blocked": [{"pid": 42, "killable": None}]}))
    assert [
        "  In D state: vllm (pid 42)",
        "      A reset cannot work while it holds the GPU: reboot, unless it goes on.",
    ] == lines[1:]
    assert 1 == len(list(job_lines(incident, {"holders": [HOLDER], "blocked": [{"pid": 42, "killable": True}]})))
