"""The client never waits for its child, never starts a second one, and lets go of the GPUs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.nvml.fake import ALONE, QUICK, SLOTS, SOON_S, Fake, Hands, Slowest, children, library, sampled, turn
from xidwatch.core.gpu import DriverNotLoaded, GpuState, Unresponsive, VersionMismatch
from xidwatch.nvml.client import Means, NvmlClient, Timing
from xidwatch.nvml.kin import left_overs
from xidwatch.nvml.protocol import Done, write

DEAF = """
import os, signal, sys
def count(*_):
    with open(sys.argv[1], "a") as file: file.write("SIGTERM ")
signal.signal(signal.SIGTERM, count)
with open(sys.argv[2], "a") as file: print(os.getpid(), file=file)
print("nonsense", flush=True)
while True: signal.pause()
"""
"""A child that talks nonsense, never answers, and outlives SIGTERM as one in D state does."""
FORSAKEN = """
import os, subprocess, sys
stay = "import signal; open('/proc/self/comm', 'w').write('nvml-of-%d'); print(flush=True)\\nwhile True: signal.pause()"
child = subprocess.Popen([sys.executable, "-c", stay % os.getpid()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
"""
"""A daemon that is gone while its child still waits for the driver."""


def until(what: Callable[[], object]) -> None:
    """Wait for what another process does."""
    end = time.monotonic() + SOON_S
    while not what():
        assert time.monotonic() < end
        os.sched_yield()


@pytest.fixture
def deaf(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """The command of a child that never answers; it writes each SIGTERM into tmp_path / "signals"."""
    signals, pids = tmp_path / "signals", tmp_path / "pids"
    signals.touch()
    yield (sys.executable, "-c", DEAF, str(signals), str(pids))
    for pid in map(int, pids.read_text().split()):
        with contextlib.suppress(OSError):
            if str(pids).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():  # not another's number by now
                kill(pid)


def kill(pid: int) -> None:
    """End a child that a test left stuck on purpose, and reap it where it is our own."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists() or ") Z" in Path(f"/proc/{pid}/stat").read_text())


def test_nothing_is_open_between_samples(fake: Fake) -> None:
    """The device is open during a sample, and no longer once it is told; the child lives on."""
    fake.use("blocked")
    with fake.client() as client:
        turn(client, lambda: fake.holders(*children()))
    until(lambda: not children())
    fake.use("healthy")
    with fake.client() as client:
        sampled(client)
        assert (1, []) == (len(children()), fake.holders(*children()))
        assert not client.health().busy
        sampled(client)
        assert (1, []) == (client.health().children_total, fake.holders(*children()))


def test_what_the_library_leaves_open_ends_the_child(fake: Fake) -> None:
    """Where nvmlShutdown does not close the device, the child's end does, and a fresh one asks the next time."""
    fake.use("leak")
    with fake.client() as client:
        sampled(client)
        turn(client, lambda: not client.health().busy)
        assert [] == children()
        assert [GpuState] * 8 == [type(one) for one in sampled(client).gpus.values()]
        assert 2 == client.health().children_total


def test_a_call_that_never_returns(fake: Fake) -> None:
    """No call of the client waits; those before the stuck GPU are told, the others are silent since the question."""
    fake.use("blocked")
    slowest, clocks = Slowest(), Hands()
    with fake.client(clocks=clocks) as client:
        client.expect(SLOTS)
        fake.block(client, clocks, slowest)
        node, health = client.answers(), client.health()
        assert [GpuState] * 3 + [Unresponsive] * 5 == [type(node.gpus[pci]) for pci in SLOTS]
        silent = node.gpus[SLOTS[3]]
        assert isinstance(silent, Unresponsive)
        assert "0000:61:00.0" in silent.why and "still blocked" in silent.why
        assert clocks.seconds - QUICK.deadline_s == silent.since_us / 1e6
        assert (False, 1, 1) == (health.up, health.children_total, health.missed_total)
        # It sleeps where signals reach it, so SIGTERM ends it.
        turn(client, lambda: not children(), slowest)
        fake.use("healthy")
        assert [GpuState] * 8 == [type(one) for one in sampled(client, slowest).gpus.values()]
    assert slowest.seconds < 1


def test_nvml_init_that_never_returns(fake: Fake) -> None:
    """Every GPU that was known is silent, and keeps what it said last; what it counted does not fall."""
    clocks = Hands()
    with fake.client(clocks=clocks) as client:
        sampled(client)
        fake.use("blocked_init")
        fake.block(client, clocks)
        node = client.answers()
    assert isinstance(node.driver, Unresponsive) and "nvmlInit" in node.driver.why
    assert [("Unresponsive", "GpuState")] * 8 == [
        (type(one).__name__, type(getattr(one, "last_good", None)).__name__) for one in node.gpus.values()
    ]


def test_sigterm_once_and_no_second_child(deaf: tuple[str, ...], tmp_path: Path) -> None:
    """A child that misses its deadline gets one SIGTERM and no SIGKILL; while it lives the stuck seconds grow and no other starts."""
    slowest, clocks = Slowest(), Hands()
    client = NvmlClient(Timing(deadline_s=10, interval_s=60, apart_s=1), clocks, replace(ALONE, command=deaf))
    slowest.of(client.tick)
    turn(client, lambda: client.health().malformed_total, slowest)
    clocks.seconds += 10.5
    slowest.of(client.tick)
    turn(client, lambda: (tmp_path / "signals").read_text() == "SIGTERM ", slowest)
    stuck = [client.health().stuck_s]
    for _ in range(50):
        clocks.seconds += 100
        client.ask()
        slowest.of(client.tick)
        slowest.of(client.read)
        stuck.append(client.health().stuck_s)
    assert [0.5 + 100 * turn for turn in range(51)] == stuck
    assert (1, 1, True) == (client.health().children_total, client.health().missed_total, client.health().busy)
    assert "SIGTERM " == (tmp_path / "signals").read_text()
    slowest.of(client.close)
    assert slowest.seconds < 1
    pid = int((client.health().why or "").split("child ")[1].split()[0])
    kill(pid)


def test_it_recovers_when_the_stuck_child_ends(deaf: tuple[str, ...]) -> None:
    """Once the driver lets the child go, the next sample has a fresh one."""
    clocks = Hands()
    client = NvmlClient(Timing(deadline_s=10, interval_s=60, apart_s=1), clocks, replace(ALONE, command=deaf))
    client.tick()
    turn(client, lambda: client.health().malformed_total)
    clocks.seconds += 61
    client.tick()
    pid = int((client.health().why or "").split("child ")[1].split()[0])
    os.kill(pid, signal.SIGKILL)
    turn(client, lambda: client.health().children_total == 2)
    assert 0.0 == client.health().stuck_s
    client.close()


def test_no_child_beside_one_of_an_earlier_daemon(fake: Fake) -> None:
    """A new daemon finds the stuck child of the one before, starts none beside it, and begins once it is gone."""
    forsaken = int(subprocess.run([sys.executable, "-c", FORSAKEN], check=True, stdout=subprocess.PIPE).stdout)
    try:
        until(lambda: forsaken in left_overs())
        clocks = Hands()
        with fake.client(QUICK, clocks, Means(module=None)) as client:
            client.expect(SLOTS)
            for _ in range(10):
                client.ask()
                client.tick()
                clocks.seconds += 7
            health, node = client.health(), client.answers()
            assert (0, [], False, True, 70.0) == (health.children_total, children(), health.up, health.busy, health.stuck_s)
            assert [Unresponsive] * 8 == [type(one) for one in node.gpus.values()]
            assert f"child {forsaken} of an earlier run" in (health.why or "")
            kill(forsaken)
            clocks.seconds += 7
            assert [GpuState] * 8 == [type(one) for one in sampled(client).gpus.values()]
            assert (True, 0.0) == (client.health().up, client.health().stuck_s)
    finally:
        if Path(f"/proc/{forsaken}").exists():
            os.kill(forsaken, signal.SIGKILL)


def test_our_own_child_is_no_left_over(fake: Fake) -> None:
    """A child whose daemon lives is not taken for one that was left behind."""
    with fake.client() as client:
        sampled(client)
        assert set() == set(children()) & set(left_overs())
        assert 1 == len(children())


def test_a_library_that_takes_the_process_down(fake: Fake) -> None:
    """The child's death is no GPU's: those told are told, the others have given no answer, and how it died is said."""
    fake.use("crash")
    with fake.client() as client:
        client.expect(SLOTS)
        turn(client, lambda: client.health().up is False)
        node = client.answers()
        assert [GpuState] * 3 + [Unresponsive] * 5 == [type(node.gpus[pci]) for pci in SLOTS]
        assert "ended with signal 6" in (client.health().why or "")
        assert (0.0, False) == (client.health().stuck_s, client.health().busy)


def test_the_sick_one_is_asked_last(fake: Fake) -> None:
    """After one stuck sample the healthy GPUs are asked first: only the sick one is silent in the next."""
    clocks = Hands()
    with fake.client(clocks=clocks) as client:
        sampled(client)
        fake.use("blocked")
        fake.block(client, clocks)
        first = client.answers()
        for _ in range(2):
            turn(client, lambda: not client.health().busy)
            fake.block(client, clocks)
        node = client.answers()
    assert [GpuState] * 3 + [Unresponsive] * 5 == [type(first.gpus[pci]) for pci in SLOTS]
    before, after = first.gpus[SLOTS[3]], node.gpus[SLOTS[3]]
    assert isinstance(before, Unresponsive) and isinstance(after, Unresponsive)
    assert before.since_us == after.since_us
    assert [SLOTS[3]] == [pci for pci in SLOTS if not isinstance(node.gpus[pci], GpuState)]


def test_driver_upgrade_under_the_daemon(fake: Fake) -> None:
    """A mismatch is told as such; the next sample has a fresh child and is good again."""
    with fake.client() as client:
        sampled(client)
        fake.use("version_mismatch")
        assert isinstance(sampled(client).driver, VersionMismatch)
        fake.use("healthy")
        assert [GpuState] * 8 == [type(one) for one in sampled(client).gpus.values()]
        assert (2, True) == (client.health().children_total, client.health().up)


def test_library_replaced_on_the_disk(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that has mapped a library which is no longer the file of its name leaves, and a fresh one maps the new file."""
    own = fake.folder / "lib"
    shutil.copytree(library(old=False), own)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(own))
    with fake.client() as client:
        sampled(client)
        shutil.copy(own / "libnvidia-ml.so.1", own / "new")
        (own / "new").replace(own / "libnvidia-ml.so.1")
        sampled(client)
        sampled(client)
        assert 2 == client.health().children_total


def test_nvml_is_not_touched_without_the_module(fake: Fake) -> None:
    """With the kernel module unloaded nvmlInit, which would load it again, is not called."""
    fake.use("blocked_init")
    module = fake.folder / "module"
    with fake.client(means=replace(ALONE, module=str(module))) as client:
        assert isinstance(sampled(client).driver, DriverNotLoaded)
        fake.use("healthy")
        module.mkdir()
        assert 8 == len(sampled(client).gpus)


def test_persistence_mode_off_means_events_only(fake: Fake) -> None:
    """With persistence mode off nothing is due until something asks, and then twice more: a GPU may be lost a little later."""
    clocks = Hands()
    with fake.client(Timing(interval_s=60, apart_s=5), clocks=clocks) as client:
        sampled(client)
        fake.use("persistence_off")
        clocks.seconds += 60
        sampled(client)
        for wait_s, samples in ((5.0, 3), (25.0, 4)):
            assert wait_s == client.due_s()
            clocks.seconds += wait_s
            turn(client, lambda wanted=samples: client.health().samples_total == wanted)  # type: ignore[misc]
        assert client.due_s() is None
        clocks.seconds += 3600
        client.tick()
        assert not client.health().busy
        client.ask()
        assert 0.0 == client.due_s()
        assert 3600.0 == client.health().sample_age_s


def test_a_storm_of_events_asks_once(fake: Fake) -> None:
    """However many events ask, samples begin no closer than `apart_s`."""
    clocks = Hands()
    with fake.client(Timing(interval_s=60, apart_s=5), clocks=clocks) as client:
        sampled(client)
        for _ in range(1000):
            client.ask()
            client.tick()
        assert (1, 5.0, False) == (client.health().samples_total, client.due_s(), client.health().busy)
        clocks.seconds += 5
        turn(client, lambda: client.health().samples_total == 2)


def test_release_and_resume(fake: Fake) -> None:
    """Released, no child is left and nothing asks, not even an event; resumed, the next sample is due at once."""
    with fake.client() as client:
        sampled(client)
        client.release()
        turn(client, lambda: not client.health().busy)
        assert ([], None) == (children(), client.health().up)
        client.ask()
        assert client.due_s() is None
        client.tick()
        assert [] == children()
        assert 8 == len(client.answers().gpus)
        client.resume()
        turn(client, lambda: client.health().samples_total == 2)
        assert client.health().up is True


def test_release_during_a_sample(fake: Fake) -> None:
    """The sample that is going on is finished, and then nothing is held."""
    fake.use("slow", "* slow nvmlDeviceGetTemperature 250")
    with fake.client() as client:
        turn(client, lambda: fake.holders(*children()))
        client.release()
        assert client.health().busy
        turn(client, lambda: not client.health().busy)
        assert [] == children()


def test_the_child_ends_with_its_daemon(fake: Fake) -> None:
    """The child has nothing to stay for once its input has ended."""
    with fake.client() as client:
        sampled(client)
        (child,) = children()
    until(lambda: child not in children())


def test_no_child_can_be_started() -> None:
    """What cannot be started is said, and tried again at the interval."""
    client = NvmlClient(clocks=Hands(), means=replace(ALONE, command=("/nonexistent/python",)))
    client.tick()
    assert (False, 60.0) == (client.health().up, client.due_s())
    assert "no child could be started" in (client.health().why or "")
    client.close()


def test_an_answer_to_another_question_is_not_believed() -> None:
    """Answers carry the number of their question."""
    stale = write(Done(number=99)).decode()
    script = f"import sys; print({stale!r}, flush=True); sys.stdin.read()"
    client = NvmlClient(means=replace(ALONE, command=(sys.executable, "-c", script)))
    client.tick()
    turn(client, lambda: client.health().malformed_total)
    assert 0 == client.health().samples_total
    client.close()
