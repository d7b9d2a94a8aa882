"""`xidwatch demo`: argv to a story to an exit code."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from xidwatch.errors import XidwatchError

if TYPE_CHECKING:
    from xidwatch.demo.stories import Story
    from xidwatch.demo.telling import Manner

DEFAULT = "memory"
NOT_AS_TOLD = 3
_ABOUT = """\
Plays an incident from its first line to the recovery: a whole daemon, whose kernel is a pipe and whose GPUs are a file,
with its metrics, its hook and its commands. Needs no GPU, no root, no systemd; touches nothing of this machine but a folder
under /tmp, which it removes. Each step is checked as it is told."""
_END = """\
examples:
  xidwatch demo
  xidwatch demo --story lost --speed 3
  xidwatch demo --keep                 # then: curl the address that it prints; Ctrl-C ends it

exit status: 0 all came as told, 2 wrong usage, 3 xidwatch did otherwise (a bug), 130 Ctrl-C"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `xidwatch demo`."""
    parser.description, parser.epilog = _ABOUT, _END
    add = parser.add_argument
    add("--list", action="store_true", help="say which stories there are")
    add("--story", metavar="NAME", help=f"default: {DEFAULT}")
    add("--scenario", metavar="FILE", help="instead of a story: GPUs and kernel lines of your own; docs/nvml.md tells the form")
    add("--speed", metavar="N", type=_speed, default=1.0, help="pauses are so many times shorter; default: 1")
    add("--keep", action="store_true", help="leave the daemon running afterwards, until Ctrl-C")
    add("--color", choices=("auto", "always", "never"), default="auto", help="default: auto")


def run(options: argparse.Namespace, manner: Callable[[float], Manner]) -> int:
    """Tell the story.

    Args:
        manner: How to tell it, given the speed.

    Raises:
        XidwatchError: there is no such story, or no such scenario.
    """
    from xidwatch.demo.stories import STORIES

    told = manner(options.speed)
    if options.list:
        for story in STORIES:
            told.write(f"{story.name:<12} {story.about}\n")
        return 0
    if options.story and options.scenario:
        raise XidwatchError("either --story or --scenario")
    if options.scenario:
        from xidwatch.demo.own import own_story

        return _played(own_story(Path(options.scenario)), told, options)
    stories = {story.name: story for story in STORIES}
    if (name := options.story or DEFAULT) not in stories:
        raise XidwatchError(f"no story {name!r}; there are: {', '.join(stories)}")
    return _played(stories[name], told, options)


def _played(story: Story, manner: Manner, options: argparse.Namespace) -> int:
    from xidwatch.demo.telling import Play
    from xidwatch.demo.theatre import NotAsTold, Theatre
    from xidwatch.render.layout import wrap

    if importlib.util.find_spec("prometheus_client") is None:
        raise XidwatchError("the demo runs the daemon, whose packages are not installed: pip install 'xidwatch[watch]'")
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    heading = f"xidwatch demo, story {story.name}: {story.about}."
    made_up = "The node, its GPUs and its kernel's lines are made up; nothing of this machine is watched."
    for text in (heading, made_up):
        manner.write("\n".join(wrap(text, manner.width)) + "\n")
    manner.write("\n")
    try:
        with Theatre(*story.begins) as theatre:
            play = Play(theatre, manner)
            story.play(play)
            manner.write("\n")
            play.tell("The end. All came as told." if not options.scenario else "The end.")
            with contextlib.suppress(KeyboardInterrupt):
                if options.keep:
                    play.note(f"The daemon runs on: {theatre.url} (Ctrl-C ends it)")
                    play.note(f"xidwatch status --run-dir {theatre.folder}/run")
                while options.keep:
                    signal.pause()
    except NotAsTold as error:
        sys.stdout.flush()
        sys.stderr.write(f"xidwatch demo: NOT AS TOLD: {error}\n")
        return NOT_AS_TOLD
    return 0


def _interrupt(_signal: int, _frame: object) -> None:
    """SIGTERM and a closed terminal end it as Ctrl-C does: nothing may be left running."""
    raise KeyboardInterrupt


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed <= 1000:
        raise argparse.ArgumentTypeError("a number above 0, at most 1000")
    return speed
