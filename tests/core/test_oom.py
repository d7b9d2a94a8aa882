from __future__ import annotations

import pytest

from tests.core.reading import read, read_events
from xidwatch.core.event import OomDetail
from xidwatch.core.record import Record

SUMMARY = (
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/,"
    "task=python3,pid=2201,uid=0"
)


@pytest.mark.parametrize(
    ("line", "process", "pid", "memcg"),
    [
        (SUMMARY, "python3", 2201, False),
        (
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0-1,oom_memcg=/k,"
            "task_memcg=/k/x,task=a,b,pid=7,uid=0",
            "a,b", 7, True,
        ),
        ("Memory cgroup out of memory: Killed process 2201 (python3) total-vm:36kB, anon-rss:3kB, UID:0 "
         "pgtables:6kB", "python3", 2201, True),
        ("Out of memory: Killed process 2201 (StreamTrans #72) total-vm:36kB, anon-rss:3kB", "StreamTrans #72", 2201, False),
        ("Out of memory: Killed process 12 ((sd-pam)) total-vm:36kB", "(sd-pam)", 12, False),
        ("Out of memory: Killed process 274557 (rsyslogd)", "rsyslogd", 274557, False),
        ("Out of memory: Kill process 456 (python) score 50 or sacrifice child", "python", 456, False),
        ("Memory cgroup out of memory: Kill process 456 (python) score 50 or sacrifice child", "python", 456, True),
        ("Out of memory: kill process 456 (python) score 12 or a child", "python", 456, False),
        ("Out of Memory: Killed process 456 (python).", "python", 456, False),
        ("Out of memory: Killed process 123, UID 48, (httpd).", "httpd", 123, False),
        ("Out of memory (oom_kill_allocating_task): Kill process 9 (x) score 0 or sacrifice child", "x", 9, False),
        ("Killed process 2201 (python3) total-vm:36kB, anon-rss:3kB, file-rss:1kB", "python3", 2201, False),
        ("Killed process 2201 (python3) vsz:36kB, anon-rss:3kB, file-rss:1kB", "python3", 2201, False),
    ],
)  # fmt: skip
def test_kill(line: str, process: str, pid: int, memcg: bool) -> None:  # noqa: FBT001 a row of the table
    """Victim, pid and cgroup are read in the wordings of Linux 2.6 to 7.0."""
    (event,) = read_events(line)
    assert isinstance(event.detail, OomDetail)
    assert (process, pid, memcg) == (event.process, event.pid, event.detail.memcg)


@pytest.mark.parametrize(
    "line",
    [
        "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),",
        "oom-kill:constraint=OTHER_CONSTRAINT",
        "oom_reaper: reaped process 345646 (vector), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
        "ODEBUG: Out of memory. ODEBUG disabled",
        "Memory cgroup out of memory: OOM victim 12 (x) is already exiting. Skip killing the task",
        "Tasks in /kubepods are going to be killed due to memory.oom.group set",
        "Killed /user.slice/x.scope due to memory pressure for /user.slice being 51.07% > 50.00% for > 20s",
        '[talos] Sending SIGKILL to cgroup {"controller": "runtime.OOMController"}',
    ],
)
def test_no_kill(line: str) -> None:
    """What names no victim of the kernel is no kill."""
    assert [] == read_events(line)


def test_one_kill_in_three_lines() -> None:
    """Summary, `Killed process` and the reaper's line are one kill."""
    text = (
        f"{SUMMARY}\nOut of memory: Killed process 2201 (python3) total-vm:9kB, anon-rss:4kB\noom_reaper: reaped "
        f"process 2201 (python3), now"
    )
    (event,) = read_events(text)
    assert isinstance(event.detail, OomDetail)
    assert (4096, "CONSTRAINT_NONE", 3) == (event.detail.anon_rss_bytes, event.detail.constraint, event.last_record.seq)


def test_child_killed_instead() -> None:
    """`or sacrifice child`: the process that the next line names is the one that died."""
    text = (
        "Out of memory: Kill process 456 (make) score 50 or sacrifice child\nKilled process 460 (cc1) total-vm:9kB, "
        "anon-rss:4kB"
    )
    (event,) = read_events(text)
    assert ("cc1", 460) == (event.process, event.pid)


def test_group_kill() -> None:
    """Each process of a killed cgroup is a kill of its own."""
    text = "\n".join(f"Memory cgroup out of memory: Killed process {pid} (mount) total-vm:9kB" for pid in (1, 2, 3))
    assert [1, 2, 3] == [event.pid for event in read_events(text)]


@pytest.mark.parametrize(
    "text",
    [
        "Kernel panic - not syncing: Out of memory: system-wide panic_on_oom is enabled",
        "Kernel panic - not syncing: Out of memory: compulsory panic_on_oom is enabled",
        "Out of memory and no killable processes...\nKernel panic - not syncing: System is deadlocked on memory",
        "Kernel panic - not syncing: Out of memory and no killable processes...",
    ],
)
def test_panic(text: str) -> None:
    """A panic for want of memory is one event, of the process that asked."""
    (event,) = read_events(f"{text}\nCPU: 0 PID: 35943 Comm: webservice Not tainted 3.10.0 #1")
    assert isinstance(event.detail, OomDetail)
    assert (True, "webservice", 35943) == (event.detail.panic, event.process, event.pid)


def test_quoted_by_a_program() -> None:
    """A program that reports a kill in its own words is not the kernel."""
    like = Record(text="", program="kubelet", timed=True)
    assert ([], []) == read("saw event: Out of memory: Killed process 12 (x) total-vm:9kB", like)
