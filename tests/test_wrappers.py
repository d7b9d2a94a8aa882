"""What ships for schedulers: the scripts' exit statuses with a pretended scontrol, and the file for node-problem-detector."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.postmortems import ROOT
from xidwatch.render.as_check import LINE_CHARACTERS

NOT_FIT = "not fit: 0000:61:00.0 lost"
SHOWN = "NodeName=node1\n   State={state} ThreadsPerCore=1\n   Reason={reason} [root@2026-12-01T02:39:12]\n"


class Node:
    """Commands of its own in front of the PATH: `xidwatch` and `scontrol`."""

    def __init__(self, folder: Path) -> None:
        """Fit, and idle."""
        self.folder = folder
        self.says(0, "fit: 8 GPUs")
        self.shows("IDLE", None)

    def says(self, code: int, line: str) -> None:
        """What `xidwatch check --line` does."""
        (self.folder / "line").write_text(line + "\n", encoding="utf-8")
        self._script("xidwatch", f"cat {self.folder}/line; exit {code}")

    def shows(self, state: str, reason: str | None) -> None:
        """What `scontrol show node` prints; an update is written down."""
        text = SHOWN.format(state=state, reason=reason) if reason else SHOWN.partition("   Reason")[0].format(state=state)
        (self.folder / "shown").write_text(text, encoding="utf-8")
        self._script(
            "scontrol", f'if [ "$1" = show ]; then cat {self.folder}/shown; else printf "%s\\n" "$@" >{self.folder}/updated; fi'
        )

    def run(self, script: str, **variables: str) -> int:
        """Exit status of a wrapper that is called as slurmd does."""
        environment = {
            "PATH": f"{self.folder}:/usr/bin:/bin",
            "XIDWATCH": str(self.folder / "xidwatch"),
            "SLURMD_NODENAME": "node1",
        }
        command = [str(ROOT / "slurm" / script)]
        return subprocess.run(command, env=environment | variables, check=False, timeout=60).returncode

    def updated(self) -> list[str] | None:
        """Arguments of the last `scontrol update`; None when there was none."""
        place = self.folder / "updated"
        return place.read_text(encoding="utf-8").splitlines() if place.exists() else None

    def _script(self, name: str, body: str) -> None:
        place = self.folder / name
        place.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        place.chmod(0o755)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A fit, idle node."""
    return Node(tmp_path)


@pytest.mark.parametrize(("code", "prolog", "drains"), [(0, 0, 0), (1, 1, 1), (2, 0, 0), (3, 0, 0), (127, 0, 0)])
def test_who_drains_and_with_which_status(node: Node, code: int, prolog: int, drains: int) -> None:
    """The health check always ends with 0; the prolog with 1 on an unfit node alone; only that one is drained."""
    node.says(code, NOT_FIT)
    assert 0 == node.run("xidwatch-healthcheck")
    assert drains == len([node.updated()] if node.updated() else [])
    assert prolog == node.run("xidwatch-prolog")


def test_unknown_drains_where_the_site_wants_it(node: Node) -> None:
    """XIDWATCH_DRAIN_UNKNOWN=1."""
    node.says(2, "not known: NVML did not answer in time")
    assert 0 == node.run("xidwatch-healthcheck", XIDWATCH_DRAIN_UNKNOWN="1")
    assert [
        "update",
        "nodename=node1",
        "state=drain",
        "reason=xidwatch: not known: NVML did not answer in time",
    ] == node.updated()
    assert 1 == node.run("xidwatch-prolog", XIDWATCH_DRAIN_UNKNOWN="1")


@pytest.mark.parametrize(
    ("state", "before", "reason"),
    [
        ("IDLE", None, f"xidwatch: {NOT_FIT}"),
        ("MIXED", "a note", f"xidwatch: {NOT_FIT}"),
        ("IDLE+DRAIN", "bob: new disk", None),
        ("DOWN*+DRAIN", "Not responding", None),
        ("IDLE+DRAIN", f"xidwatch: {NOT_FIT}", None),
        ("IDLE+DRAIN", "xidwatch: not fit: other", f"xidwatch: {NOT_FIT}"),
        ("DOWN*", "Not responding", f"xidwatch: {NOT_FIT}; before: Not responding"),
        ("DOWN+DRAIN", f"xidwatch: {NOT_FIT}; before: fan tray", None),
        ("DOWN+DRAIN", "xidwatch: not fit: other; before: fan tray", f"xidwatch: {NOT_FIT}; before: fan tray"),
    ],
)
def test_whose_reason_stays(node: Node, state: str, before: str | None, reason: str | None) -> None:
    """Somebody else's drain is left alone; ours follows the fault, and is not written again while it is the same."""
    node.says(1, NOT_FIT)
    node.shows(state, before)
    assert 0 == node.run("xidwatch-healthcheck")
    updated = node.updated()
    assert reason == (None if updated is None else updated[-1].removeprefix("reason="))


def test_a_reason_is_plain_words(node: Node) -> None:
    """Nothing that a shell, Slurm or a terminal could take for more than words."""
    node.says(1, "not fit: `id` $(id) \"a\" 'b' x=y | & > \x1b[31m \u202e é\nsecond line")
    node.run("xidwatch-healthcheck")
    assert "reason=xidwatch: not fit: id (id) a b xy    31m   second line" == (node.updated() or [""])[-1]


def test_without_scontrol_nothing_breaks(node: Node) -> None:
    """A controller that does not answer: the health check still ends with 0, the prolog still keeps the job out."""
    node.says(1, NOT_FIT)
    node._script("scontrol", "exit 1")
    assert 0 == node.run("xidwatch-healthcheck")
    assert 1 == node.run("xidwatch-prolog")


def test_slurmd_gives_no_path(node: Node) -> None:
    """slurmd calls it with next to nothing in the environment; the system's own folders are looked through."""
    environment = {"XIDWATCH": str(node.folder / "xidwatch")}
    run = subprocess.run([str(ROOT / "slurm" / "xidwatch-healthcheck")], env=environment, capture_output=True, check=False)
    assert (0, b"", b"") == (run.returncode, run.stdout, run.stderr)


def test_a_command_that_is_not_there_is_told(node: Node) -> None:
    """Not installed: nothing is drained, and standard error says why; one in the PATH is found."""
    command, environment = [str(ROOT / "slurm" / "xidwatch-healthcheck")], {"XIDWATCH": "/gone", "SLURMD_NODENAME": "node1"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (0, True) == (run.returncode, "ended with status 127" in run.stderr)
    node.says(1, NOT_FIT)
    assert 0 == node.run("xidwatch-healthcheck", XIDWATCH="/gone")
    assert node.updated() is not None


@pytest.mark.skipif(shutil.which("dash") is None, reason="dash is missing: apt-get install dash")
@pytest.mark.parametrize("script", ["xidwatch-healthcheck", "xidwatch-prolog"])
def test_scripts_are_plain_shell_and_may_be_run(script: str) -> None:
    """POSIX shell, and executable, so also in the wheel."""
    assert os.access(ROOT / "slurm" / script, os.X_OK)
    subprocess.run(["dash", "-n", str(ROOT / "slurm" / script)], check=True)


def test_node_problem_detector_takes_the_file() -> None:
    """As its own Validate() wants it: a rule's time is within the plugin's, its condition has a default, the line fits."""
    told = json.loads((ROOT / "npd" / "xidwatch.json").read_text(encoding="utf-8"))
    assert "custom" == told["plugin"]
    assert LINE_CHARACTERS == told["pluginConfig"]["max_output_length"]
    (rule,), (condition,) = told["rules"], told["conditions"]
    assert ("permanent", condition["type"]) == (rule["type"], rule["condition"])
    assert 5 < int(rule["timeout"].removesuffix("s")) <= int(told["pluginConfig"]["timeout"].removesuffix("s"))
    assert ["check", "--line"] == rule["args"]
