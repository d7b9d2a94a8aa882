"""A true D state inside an NVML call, made by a frozen file system."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.nvml.fake import QUICK, SLOTS, Fake, Hands, Slowest, children, sampled, state_of, turn
from tests.system import hung_task
from xidwatch.core.gpu import GpuState, Unresponsive
from xidwatch.nvml.client import Means
from xidwatch.nvml.kin import left_overs

pytestmark = [pytest.mark.system, pytest.mark.root]

EARLIER = """
import json, time
from xidwatch.nvml.client import Means, NvmlClient, Timing
client = NvmlClient(Timing(deadline_s=2), means=Means(module=None))
while not client.health().missed_total:
    client.tick()
began = time.monotonic()
client.close()
print(json.dumps([client.health().why, time.monotonic() - began]), flush=True)
"""
"""A daemon that is told to stop while its child is stuck."""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """A file system of its own that the fake touches."""
    if (why := hung_task.no_loop_mount()) is not None:
        pytest.skip(why)
    with hung_task.own_file_system(tmp_path) as mounted:
        monkeypatch.setenv("FAKE_NVML_FROZEN", str(mounted))
        yield mounted


def test_d_state_leaves_the_loop_untouched(fake: Fake, disk: Path) -> None:
    """With the child in D state, deaf even to SIGKILL, no call of the client waits; thawed, all is well again."""
    slowest, clocks = Slowest(), Hands()
    fake.use("d_state")
    with fake.client(clocks=clocks) as client:
        client.expect(SLOTS)
        with hung_task.frozen(disk):
            turn(client, lambda: "D" in [state_of(pid) for pid in children()], slowest)
            (child,) = children()
            clocks.seconds += QUICK.deadline_s
            slowest.of(client.tick)
            os.kill(child, signal.SIGKILL)
            node = client.answers()
            assert [GpuState] * 3 + [Unresponsive] * 5 == [type(node.gpus[pci]) for pci in SLOTS]
            for _ in range(100):
                clocks.seconds += 60
                client.ask()
                slowest.of(client.tick)
                slowest.of(client.read)
            assert 6000.0 == client.health().stuck_s
            assert ([child], "D", 1) == (children(), state_of(child), client.health().children_total)
        turn(client, lambda: not client.health().busy, slowest)
        assert [GpuState] * 8 == [type(one) for one in sampled(client, slowest).gpus.values()]
        assert (True, 0.0) == (client.health().up, client.health().stuck_s)
    assert slowest.seconds < 1


def test_restart_beside_a_child_in_d_state(fake: Fake, disk: Path) -> None:
    """A daemon stops at once beside its stuck child; its successor finds it, starts no second one, and begins when it is gone."""
    fake.use("d_state")
    with hung_task.frozen(disk):
        done = subprocess.run(
            [sys.executable, "-c", EARLIER], stdout=subprocess.PIPE, check=True, timeout=20, cwd=Path(__file__).parents[2]
        )
        why, took_s = json.loads(done.stdout)
        child = int(why.split("child ")[1].split()[0])
        assert ("D", (child,)) == (state_of(child), left_overs())
        assert took_s < 1
        with fake.client(means=Means(module=None)) as client:
            began = time.monotonic()
            client.tick()
            assert time.monotonic() - began < 1
            turn(client, lambda: client.health().stuck_s > 0.3)
            assert (0, []) == (client.health().children_total, children())
            assert f"child {child} of an earlier run" in (client.health().why or "")
    with fake.client() as client:
        turn(client, lambda: client.health().samples_total)
        assert 8 == len(client.answers().gpus)
