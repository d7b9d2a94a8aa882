"""The shipped wrappers on a real Slurm: an unfit node is drained with the reason, a healthy one is left alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.nodes import Root, incident
from tests.postmortems import ROOT
from tests.system import slurm
from tests.system.live import skip_unless_possible, until
from tests.system.slurm import NODE, Slurm

pytestmark = [pytest.mark.system, pytest.mark.root]
FAULT = "not fit: 0000:61:00.0 GPU has fallen off the bus: reboot node"
# As slurmd calls it, except that it finds this Slurm and this xidwatch, and that each call that has ended leaves a line.
_CALL = """\
#!/bin/sh
export SLURM_CONF={folder}/slurm.conf XIDWATCH={folder}/xidwatch
{wrapper}
code=$?
echo $code >>{folder}/called
exit $code
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A node that is pretended to be healthy or not, and the Slurm that it is in."""

    slurm: Slurm
    root: Root

    def healthy(self) -> None:
        """From the next check on."""
        self.root.daemon()

    def faulty(self, **parts: str) -> None:
        """From the next check on it has a critical incident."""
        self.root.daemon(incidents=[incident(**parts)])

    def repaired(self) -> None:
        """Healthy, no check of before still under way, and resumed by an admin."""
        self.healthy()
        self.checked_again()
        self.slurm.resume()

    def calls(self) -> list[str]:
        """Exit statuses of the wrapper so far."""
        place = self.slurm.folder / "called"
        return place.read_text(encoding="ascii").split() if place.exists() else []

    def checked_again(self) -> None:
        """Wait for a check that began and ended from here on: the second end that is seen from now."""
        before = len(self.calls())
        until(lambda: len(self.calls()) >= before + 2, what="two health checks")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For the cluster whose health is checked."""
    return tmp_path_factory.mktemp("health")


def site(folder: Path, hook: str, settings: str) -> Iterator[Site]:
    """A cluster with one of the wrappers; the node is unfit when slurmd registers, if the hook is the health check."""
    skip_unless_possible(slurm.impossible())
    root = Root(folder / "root")
    scripts = {"xidwatch": f'#!/bin/sh\nexec {sys.executable} -m xidwatch "$@" --root {root.folder}\n',
               "hook": _CALL.format(folder=folder, wrapper=ROOT / "slurm" / hook)}  # fmt: skip
    for name, text in scripts.items():
        (folder / name).write_text(
            text.replace("exec ", f"cd {ROOT} && exec ", 1) if name == "xidwatch" else text, encoding="utf-8"
        )
        (folder / name).chmod(0o755)
    root.daemon(incidents=[incident()])
    with slurm.running(folder, settings.format(hook=folder / "hook")) as cluster:
        yield Site(slurm=cluster, root=root)


@pytest.fixture(scope="module")
def health(folder: Path) -> Iterator[Site]:
    """With HealthCheckProgram every second."""
    yield from site(
        folder, "xidwatch-healthcheck", "HealthCheckProgram={hook}\nHealthCheckInterval=1\nHealthCheckNodeState=ANY"
    )


@pytest.fixture(scope="module")
def prolog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """With Prolog at each job's begin."""
    yield from site(tmp_path_factory.mktemp("prolog"), "xidwatch-prolog", "Prolog={hook}\nPrologFlags=Alloc")


def test_an_unfit_node_is_drained_and_kept_drained(health: Site) -> None:
    """slurmd registers although the node is unfit; the node is drained with the reason; being well again un-drains nothing."""
    until(lambda: health.slurm.reason() == f"xidwatch: {FAULT}", what="the node is drained")
    assert "DRAIN" in health.slurm.state()
    health.healthy()
    health.checked_again()
    assert f"xidwatch: {FAULT}" == health.slurm.reason()
    assert "DRAIN" in health.slurm.state()
    assert {"0"} == set(health.calls())


def test_a_healthy_node_is_left_alone(health: Site) -> None:
    """Checks come and go, the node stays idle without a reason and takes a job."""
    health.repaired()
    health.checked_again()
    assert ("IDLE", "") == (health.slurm.state(), health.slurm.reason())
    assert "here\n" == health.slurm.call("srun", "--immediate=30", "echo", "here").stdout


def test_what_is_not_known_drains_nothing_unless_asked_for(health: Site) -> None:
    """In maintenance a fault is «not known»: the node stays; with XIDWATCH_DRAIN_UNKNOWN=1 it is drained."""
    health.root.daemon(incidents=[incident()], maintenance={"active": True, "until_us": None, "reason": "new driver"})
    health.checked_again()
    assert ("IDLE", "") == (health.slurm.state(), health.slurm.reason())
    hook, everything = str(health.slurm.folder / "hook"), {"XIDWATCH_DRAIN_UNKNOWN": "1", "SLURMD_NODENAME": NODE}
    assert 0 == subprocess.run([hook], env=health.slurm.environment | everything, check=False, timeout=60).returncode
    assert "xidwatch: not known: in maintenance (new driver)" == health.slurm.reason()
    health.repaired()


def test_somebody_elses_reason_stays(health: Site) -> None:
    """A node that an admin has drained keeps his reason, also when it becomes unfit; one of ours follows the fault."""
    health.slurm.call("scontrol", "update", f"nodename={NODE}", "state=drain", "reason=new disk, ask the storage team")
    health.faulty()
    health.checked_again()
    assert "new disk, ask the storage team" == health.slurm.reason()
    health.repaired()
    health.faulty()
    until(lambda: health.slurm.reason() == f"xidwatch: {FAULT}", what="the node is drained")
    health.faulty(title="row remap failed")
    until(lambda: "row remap failed" in health.slurm.reason(), what="the reason follows")
    health.repaired()


def test_hostile_words_do_nothing(health: Site) -> None:
    """Quotes, dollars and newlines in an incident's title come to Slurm as plain words of one reason."""
    mark = health.slurm.folder / "owned"
    health.faulty(title=f"x\" state=resume; `touch {mark}` $(touch {mark})\nstate=idle \x1b[31m'")
    until(lambda: "DRAIN" in health.slurm.state(), what="the node is drained")
    assert health.slurm.reason().startswith("xidwatch: not fit: 0000:61:00.0 x stateresume; touch /")
    assert not mark.exists()
    health.repaired()


def test_the_reason_of_a_node_that_is_down_can_still_be_read(health: Site) -> None:
    """A node that is down would come back by itself, unfit: it is drained, and the first reason stands behind ours."""
    health.slurm.call("scontrol", "update", f"nodename={NODE}", "state=down", "reason=fan tray")
    health.faulty()
    until(lambda: "DRAIN" in health.slurm.state(), what="the node is drained")
    assert f"xidwatch: {FAULT}; before: fan tray" == health.slurm.reason()
    health.checked_again()
    assert f"xidwatch: {FAULT}; before: fan tray" == health.slurm.reason()
    health.healthy()


def test_prolog_of_a_healthy_node_lets_the_job_in(prolog: Site) -> None:
    """The job runs, and the node keeps its state."""
    prolog.healthy()
    assert "here\n" == prolog.slurm.call("srun", "--immediate=30", "echo", "here").stdout
    assert ["0"] == prolog.calls()
    assert "" == prolog.slurm.reason()


def test_prolog_of_an_unfit_node_keeps_the_job_out(prolog: Site) -> None:
    """The node is drained with our reason, not Slurm's own, and the job waits for another node."""
    prolog.faulty()
    prolog.slurm.call("sbatch", "--requeue", "--wrap", f"touch {prolog.slurm.folder}/ran")
    until(lambda: "1" in prolog.calls() and "DRAIN" in prolog.slurm.state(), what="the prolog has failed")
    assert f"xidwatch: {FAULT}" == prolog.slurm.reason()
    assert not (prolog.slurm.folder / "ran").exists()
