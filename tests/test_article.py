"""The page that answers the article: every command on it runs and says what the page says it does."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.postmortems import ROOT

PAGE = (ROOT / "docs" / "article.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"`xidwatch ([^`]+)` says \*\*([^*]+)\*\*", PAGE)


def said(command: str) -> str:
    """What the command prints, on one line."""
    arguments = [sys.executable, "-m", "xidwatch", *shlex.split(command)]
    plain = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}
    run = subprocess.run(arguments, cwd=ROOT, env=plain, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stderr
    return " ".join(run.stdout.split())


@pytest.mark.parametrize(("command", "words"), SHOWN, ids=[command for command, _ in SHOWN])
def test_every_command_says_what_the_page_promises(command: str, words: str) -> None:
    """The words that the page prints in bold stand in the command's output."""
    assert words in said(command)


def test_every_command_of_the_page_is_tried() -> None:
    """No command stands on the page without words to look for."""
    assert len(SHOWN) == PAGE.count("`xidwatch ") > 30
