"""A Slurm of one node, on the loopback, with processes of its own: munged, slurmctld, slurmd."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.monitoring import free_port
from tests.system.live import until

NODE = "node1"
PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "srun", "sbatch")
_SETTINGS = """\
ClusterName=xidwatch
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
SlurmctldPort={controller}
SlurmdPort={daemon}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
ReturnToService=0
{hooks}
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 CPUs=1
PartitionName=all Nodes={node} Default=YES MaxTime=10
"""


def impossible() -> str | None:
    """Why it cannot run here; None when it can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    return f"{', '.join(missing)} missing: apt-get install slurmctld slurmd slurm-client munge" if missing else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm:
    """The running cluster."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What its commands need."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def call(self, *command: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run one of its commands."""
        return subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False, timeout=timeout_s
        )

    def state(self) -> str:
        """Of the node, such as `IDLE+DRAIN`; "" while the controller does not answer."""
        return self._field("State").split(" ")[0]

    def reason(self) -> str:
        """Why the node is down or drained, without who said so and when."""
        return re.sub(r" \[[^]]*\]$", "", self._field("Reason"))

    def resume(self) -> None:
        """As an admin does after the repair."""
        self.call("scontrol", "update", f"nodename={NODE}", "state=resume")
        until(lambda: "DRAIN" not in self.state() and "IDLE" in self.state(), what="the node is back in service")

    def _field(self, name: str) -> str:
        found = re.search(rf"^ *{name}=(.*)$", self.call("scontrol", "show", "node", NODE).stdout, re.MULTILINE)
        return found[1] if found else ""


@contextmanager
def running(folder: Path, hooks: str) -> Iterator[Slurm]:
    """Start it with these lines in slurm.conf, wait until its node has registered, and end it."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
    (folder / "munge.key").chmod(0o600)
    host = socket.gethostname().partition(".")[0]
    settings = _SETTINGS.format(host=host, folder=folder, controller=free_port(), daemon=free_port(), node=NODE, hooks=hooks)
    (folder / "slurm.conf").write_text(settings, encoding="utf-8")
    slurm = Slurm(folder=folder)
    munge = [f"--{key}={folder}/munge.{end}" for key, end in
             (("socket", "sock"), ("key-file", "key"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))]  # fmt: skip
    with ExitStack() as stack:
        # --force: the test's folder lies under one that everybody may write to.
        stack.enter_context(_program(slurm, ["munged", "--foreground", "--force", "--num-threads=2", *munge]))
        until((folder / "munge.sock").exists, what="munged listens")
        stack.enter_context(_program(slurm, ["slurmctld", "-D", "-i"]))
        stack.enter_context(_program(slurm, ["slurmd", "-D", "-N", NODE]))
        until(lambda: slurm.state().rstrip("*") not in ("", "UNKNOWN", "DOWN"), what="the node has registered")
        yield slurm


@contextmanager
def _program(slurm: Slurm, command: Sequence[str]) -> Iterator[None]:
    with open(slurm.folder / f"{command[0]}.out", "wb") as out:
        process = subprocess.Popen(
            command, env=slurm.environment, cwd=slurm.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
