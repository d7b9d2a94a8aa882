"""`xidwatch demo`: every story comes as told, leaves nothing behind, and cannot touch what is real."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.monitoring import ROOT
from xidwatch.demo.stories import ALERTS, STORIES, Story
from xidwatch.demo.telling import Awaited, Manner, Play
from xidwatch.demo.theatre import NotAsTold, Theatre
from xidwatch.democli import _played

SOON_S = 60.0
README = (ROOT / "README.md").read_text(encoding="utf-8")
_pause = Event().wait


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty folder with a short name: a socket's path has room for no long one, and the demo would go elsewhere."""
    with tempfile.TemporaryDirectory(prefix="xw-", dir="/tmp") as folder:
        yield Path(folder)


def command(*arguments: str) -> list[str]:
    """The demo, as fast as it goes."""
    return [sys.executable, "-m", "xidwatch", "demo", "--speed", "1000", *arguments]


def environment(folder: Path, **more: str) -> dict[str, str]:
    """One in which the demo's folder lies in ours."""
    plain = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR", "NO_COLOR")}
    return {**plain, "TMPDIR": str(folder), **more}


def told(folder: Path, *arguments: str, **more: str) -> tuple[int, str, str]:
    """Exit status, output, complaints."""
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, check=False, env=environment(folder, **more), timeout=SOON_S
    )
    return done.returncode, done.stdout, done.stderr


def processes(folder: Path) -> list[int]:
    """Living processes that have this folder in their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def until(holds: Callable[[], object], what: str) -> None:
    """Wait for it, with a deadline."""
    end = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < end, what
        _pause(0.02)


@contextmanager
def kept(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A demo that has told its story and runs on."""
    process = subprocess.Popen(
        command("--story", "application", "--keep"), stdout=subprocess.PIPE, text=True, env=environment(folder), bufsize=1
    )
    assert process.stdout is not None
    try:
        while "xidwatch status" not in (line := process.stdout.readline()):
            assert line, "the demo has ended"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        until(lambda: not processes(folder), "what it had started ends")


@pytest.mark.parametrize("story", [story.name for story in STORIES])
def test_every_story_comes_as_told(story: str, place: Path) -> None:
    """Exit status 0, nobody complains, no process and no file is left."""
    code, said, complaints = told(place, "--story", story)
    assert (0, "") == (code, complaints), said
    assert "All came as told." in said
    assert ([], []) == (processes(place), list(place.iterdir()))


def test_nobody_takes_it_for_real(place: Path) -> None:
    """Each paragraph says that it is a demo, and so does whatever the daemon shows or sends."""
    with Theatre("include healthy.txt") as theatre:
        theatre.kernel(["NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus."])
        theatre.until(theatre.hook_was_told, "the hook runs")
        message, state = theatre.hook_was_told()[0], theatre.state()
        demo = theatre.series("xidwatch_demo")
        status = theatre.command("status")
        heard = list(theatre.heard)
    assert (True, "demo", True, "demo") == (message["demo"], message["host"], state["demo"], state["host"])
    assert {"demo"} == {host for incident in state["incidents"] for host in incident["hosts"]}
    assert [1.0] == [one.value for one in demo]
    assert status.startswith("demo: ") and "made up" in status
    assert {(True, "demo")} == {(one["demo"], one["host"]) for one in heard}
    _, said, _ = told(place, "--story", "application")
    assert [] == [block for block in said.split("\n\n") if "demo" not in block.splitlines()[0]]


def test_nothing_real_is_open(place: Path) -> None:
    """No process of a demo has the kernel's log, a GPU, or a folder of the service open; it listens on the loopback alone."""
    with kept(place) as demo:
        opened = {str(link.readlink()) for pid in processes(place) for link in Path(f"/proc/{pid}/fd").iterdir()}
        assert len(processes(place)) >= 3, "daemon, hook and NVML's child"
        assert [] == [path for path in opened if re.match(r"/dev/(kmsg|nvidia)|/(etc|run|var/lib)/", path)]
        assert demo.poll() is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_keep_ends_at_a_signal(number: signal.Signals, place: Path) -> None:
    """Ctrl-C, SIGTERM and a closed terminal end what was kept, and clean up."""
    with kept(place) as demo:
        demo.send_signal(number)
        assert 0 == demo.wait(SOON_S)
        assert ([], []) == (processes(place), list(place.iterdir()))


def test_ctrl_c_in_the_middle_cleans_up(place: Path) -> None:
    """The exit status is that of an interruption, nothing is left, and no traceback is shown."""
    slow = [sys.executable, "-m", "xidwatch", "demo", "--speed", "0.01"]
    process = subprocess.Popen(slow, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(place))
    assert process.stdout is not None
    while "answer through NVML" not in process.stdout.readline():
        continue
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=SOON_S)
    assert (130, "") == (process.returncode, complaints)
    assert ([], []) == (processes(place), list(place.iterdir()))


def test_kill_9_leaves_no_process(place: Path) -> None:
    """Daemon, hook and NVML's child end with the demo, however it ends."""
    with kept(place) as demo:
        assert len(processes(place)) >= 3
        demo.kill()
        demo.wait()
        until(lambda: not processes(place), "they end")


def test_narrow_and_without_colour(place: Path) -> None:
    """In 40 columns only what cannot be broken is longer; piped, or with NO_COLOR, there is no escape in it."""
    _, said, _ = told(place, "--story", "application", COLUMNS="40")
    assert "\x1b" not in said
    assert [] == [line for line in said.splitlines() if len(line) > 40 and " " in line.strip()]
    _, said, _ = told(place, "--story", "application", "--color", "always")
    assert "\x1b[" in said


def test_a_terminal_without_utf8(place: Path) -> None:
    """What it cannot show is shown in ASCII."""
    code, said, complaints = told(place, "--story", "application", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (0, "") == (code, complaints)
    assert "memory - application - info" in said


def test_a_product_that_does_otherwise_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A story that does not come about ends with 3 and says what should have been."""

    def play(play: Play) -> None:
        play.theatre._patience_s = 1.0
        play.healthy(7)

    class Options:
        scenario, keep = None, False

    assert 3 == _played(Story("wrong", "", play), Manner(write=lambda _: None), Options())  # type: ignore[arg-type]
    assert "NOT AS TOLD" in capsys.readouterr().err


def test_a_daemon_that_cannot_start_is_told() -> None:
    """Its own words are handed on."""
    with pytest.raises(NotAsTold, match=r"the daemon has ended.*a line begins with"), Theatre("nonsense here"):
        pass


@pytest.mark.parametrize(
    ("change", "met"),
    [
        ({}, True),
        ({"severity": "warning"}, False),
        ({"gpus": []}, False),
        ({"recovery": {"rung": "none", "when": None}}, False),
    ],
)
def test_awaited(change: dict[str, Any], *, met: bool) -> None:
    """An incident is the awaited one when root, severity, recovery, GPUs, codes and count are as they should be."""
    events = [
        {"kind": "xid", "code": 79, "what": None, "count": 2},
        {"kind": "nvrm", "code": None, "what": "gpu_lost", "count": 1},
    ]
    incident = {
        "events": events, "root": 0, "severity": "critical", "gpus": ["a"], "recovery": {"rung": "reboot_node", "when": "now"}
    } | change  # fmt: skip
    awaited = Awaited("xid 79", "critical", "reboot_node", "now", ("a",), frozenset({79}), 3)
    assert met == awaited.is_met_by(incident)
    assert not Awaited("xid 79", "critical", "reboot_node", "now", ("a",), frozenset({45}), 3).is_met_by(incident)
    assert not Awaited("xid 79", "critical", "reboot_node", "now", ("a",), frozenset({79}), 4).is_met_by(incident)


def test_a_scenario_of_ones_own(place: Path) -> None:
    """Its kernel lines are printed when they are due, its GPUs are asked, and what came of it is told."""
    mine = place / "mine.txt"
    mine.write_text(
        "include healthy.txt\nat 1\n3 fail * 15\n"
        "kernel NVRM: Xid (PCI:0000:61:00): 79, pid=7, name=a#b, GPU has fallen off the bus.\n",
        encoding="ascii",
    )
    folder = place / "tmp"
    folder.mkdir()
    code, said, complaints = told(folder, "--scenario", str(mine))
    assert (0, "") == (code, complaints)
    assert "name=a#b" in said and "root  Xid 79  GPU has fallen off the bus" in said
    assert "demo: 1 active incident" in said
    assert [] == list(folder.iterdir())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--story", "none"], "no story 'none'; there are: memory, lost, replaced, missing, gsp, storm, nvml-stuck"),
        (["--scenario", "/nowhere"], "/nowhere: No such file"),
        (["--scenario", "x", "--story", "lost"], "either --story or --scenario"),
        (["--speed", "0"], "a number above 0"),
    ],
)
def test_wrong_usage(arguments: list[str], why: str, place: Path) -> None:
    """Exit status 2 and one sentence; nothing is started."""
    code, _, complaints = told(place, *arguments)
    assert 2 == code
    assert why in complaints and "Traceback" not in complaints
    assert [] == list(place.iterdir())


def test_list(place: Path) -> None:
    """One line a story."""
    code, said, _ = told(place, "--list")
    assert (0, [story.name for story in STORIES]) == (code, [line.split()[0] for line in said.splitlines()])


@pytest.mark.parametrize("alert", ALERTS)
def test_alerts_that_are_named_exist(alert: str) -> None:
    """Each alert that a story names is shipped, and stands on the metric that the story shows."""
    rules = (ROOT / "prometheus" / "xidwatch.rules.yml").read_text(encoding="utf-8")
    assert ALERTS[alert] in rules.split(f'alert: "{alert}"')[1].split("labels:")[0]


def test_readme_shows_what_it_prints(place: Path, pytestconfig: pytest.Config) -> None:
    """What README shows is there word for word, but for times, addresses and ids."""
    before, mark, rest = README.partition("xidwatch demo\n```\n\n```text\n")
    shown, fence, after = rest.partition("```")
    _, said, _ = told(place)
    if pytestconfig.getoption("--update-expected"):
        now = (
            "\n\n".join(block for block in said.split("\n\n") if re.search("makes one incident|Prometheus scrapes", block))
            + "\n"
        )
        (ROOT / "README.md").write_text(before + mark + now + fence + after, encoding="utf-8")
        shown = now
    assert [] == [block for block in plain(shown).strip().split("\n\n") if block not in plain(said)]


def plain(text: str) -> str:
    """Without times, ages, ports and ids, and however it is wrapped."""
    text = re.sub(r"demo +[\d.]+ s", "demo 0 s", text)
    text = re.sub(r"\s*\(read\s[^)]*\)", "", text)
    text = re.sub(r"\d\d:\d\d:\d\d|127\.0\.0\.1:\d+|\b[0-9a-f]{12}\b", "?", text)
    return "\n\n".join(" ".join(block.split()) for block in text.split("\n\n"))
