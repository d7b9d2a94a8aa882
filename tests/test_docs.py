"""What the documents say is so: commands run, output is current, names exist."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from tests.postmortems import ROOT
from xidwatch.core.event import Kind
from xidwatch.core.rule import INVESTIGATIONS, RUNGS, FaultClass, Origin, Severity

README = (ROOT / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def xidwatch(*arguments: str) -> str:
    """What the command prints; it must end with 0 or 1."""
    command = [sys.executable, "-m", "xidwatch", *arguments]
    plain = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}
    run = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stderr
    return run.stdout


def subcommands() -> list[str]:
    """Every subcommand that the command's own help names."""
    listed = re.search(r"\{([\w,-]+)\}", xidwatch("--help"))
    return listed[1].split(",") if listed else []


def test_readme_begins_with_a_command_and_its_output(pytestconfig: pytest.Config) -> None:
    """README's first command prints, word for word, what README shows under it."""
    (_, command), (_, shown) = BLOCK.findall(README)[:2]
    program, *arguments = shlex.split(command.rpartition("&&")[2])
    printed = xidwatch(*arguments)
    if pytestconfig.getoption("--update-expected"):
        (ROOT / "README.md").write_text(README.replace(shown, printed, 1), encoding="utf-8")
        shown = printed
    assert ".venv/bin/xidwatch" == program
    assert shown == printed


def test_readme_names_the_command_that_ci_runs() -> None:
    """A newcomer and CI set up and test with the same command."""
    assert "bash scripts/test" in README
    assert "bash scripts/test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_subcommand_is_documented() -> None:
    """README shows each subcommand at least once."""
    assert subcommands()
    assert [] == [name for name in subcommands() if f"xidwatch {name}" not in README]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    """Every relative link in a document names a file of the project."""
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", path.read_text(encoding="utf-8"))
    assert [] == [target for target in targets if not (path.parent / target).exists()]


def test_architecture_names_every_module() -> None:
    """Every module has its line in the page's tree, and the tree names no module that is not there."""
    tree = next(body for _, body in BLOCK.findall(ARCHITECTURE) if "cli.py" in body)
    modules = {path.name for path in (ROOT / "xidwatch").rglob("*.py")} - {"__init__.py", "__main__.py"}
    assert modules == set(re.findall(r"\b\w+\.py\b", tree))


@pytest.mark.parametrize(
    "words", [get_args(Kind), get_args(FaultClass), get_args(Origin), get_args(Severity), RUNGS, INVESTIGATIONS]
)
def test_architecture_names_every_word(words: tuple[str, ...]) -> None:
    """Each word of a closed vocabulary stands on the page."""
    assert [] == [word for word in words if f"`{word}`" not in ARCHITECTURE]


def test_changelog_has_an_unreleased_part() -> None:
    """A change has a place to be written down."""
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
