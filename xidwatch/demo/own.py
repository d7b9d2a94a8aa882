"""A scenario of one's own as a story: its kernel lines are printed when they are due, and what comes of it is told."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from xidwatch.demo.stories import Story
from xidwatch.demo.telling import Play
from xidwatch.nvml.scenario import read_scenario

_TURN_S = 0.1
_AFTERWARDS_S = 3.0
"""What is told of the last change may take so long."""
_pause = threading.Event().wait


def own_story(path: Path) -> Story:
    """The story of a scenario file.

    Raises:
        XidwatchError: it has mistakes.
    """
    path = path.resolve()
    read_scenario(path)
    return Story(path.stem, "a scenario of your own", lambda play: _play(play, path), (f"include {path}",))


def _play(play: Play, path: Path) -> None:
    play.tell("xidwatch watches.", f"metrics: {play.theatre.url}")
    began_s, printed, told, last_s = time.monotonic(), 0, 0, time.monotonic()
    while True:
        now = read_scenario(path, time.monotonic() - began_s)
        if lines := now.kernel[printed:]:
            play.tell("The kernel prints:")
            play.kernel(*lines)
            printed = len(now.kernel)
        messages = play.theatre.heard[told:]
        told += len(messages)
        for message in messages:
            _tell(play, message)
        if lines or messages or now.changes:
            last_s = time.monotonic()
        if time.monotonic() - last_s > _AFTERWARDS_S:
            break
        _pause(_TURN_S)
    play.command("status")


def _tell(play: Play, message: dict[str, Any]) -> None:
    if (incident := message.get("incident")) is not None:
        play.tell(f"xidwatch: an incident has {message['change'] if message['change'] != 'present' else 'begun'}")
        play.describe(incident)
