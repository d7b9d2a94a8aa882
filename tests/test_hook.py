from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from xidwatch.config import Hook
from xidwatch.errors import XidwatchError
from xidwatch.hook import HookRunner, add_arguments, run

DEADLINE_S = 20.0


def until(holds: Callable[[], object]) -> None:
    """Wait for what another process does."""
    never, end = threading.Event(), time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end, "the deadline passed"
        never.wait(0.01)


class Daemon:
    """A stand-in for the daemon's socket, with one follower at a time."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._listener.settimeout(DEADLINE_S)
        self._follower: socket.socket | None = None

    def accept(self, *greeting: dict[str, Any]) -> None:
        """Wait for the follower and greet it."""
        self._follower, _ = self._listener.accept()
        self.say(*greeting)

    def say(self, *messages: dict[str, Any]) -> None:
        """Send lines."""
        assert self._follower is not None
        self._follower.sendall(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def say_raw(self, text: bytes) -> None:
        """Send what is no message."""
        assert self._follower is not None
        self._follower.sendall(text)

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._follower, self._listener):
            if end is not None:
                end.close()


def change(kind: str, id_: str = "a", severity: str = "critical") -> dict[str, Any]:
    """One change of an incident."""
    state = "resolved" if kind == "ended" else "active"
    incident = {"id": id_, "severity": severity, "state": state, "title": "$(touch /tmp/no) `no` \x1b[31m"}
    return {"schema": "xidwatch.follow/1", "change": kind, "maintenance": False, "incident": incident}


def watching(*ids: str) -> dict[str, Any]:
    """The end of a greeting."""
    return {"schema": "xidwatch.follow/1", "change": "watching", "maintenance": False, "incidents": list(ids)}


def program(folder: Path, text: str) -> tuple[str, ...]:
    """A shell script as the hook's program; `$out` is a file for what it tells."""
    file = folder / "program"
    file.write_text(f"#!/bin/sh\nout={folder / 'out'}\n{text}\n", encoding="utf-8")
    file.chmod(0o755)
    return (str(file),)


def lines(folder: Path) -> list[str]:
    """What the program has told."""
    with suppress(FileNotFoundError):
        return (folder / "out").read_text(encoding="utf-8").splitlines()
    return []


@contextmanager
def running(folder: Path, hook: Hook) -> Iterator[HookRunner]:
    """The hook, until the end of the block."""
    runner = HookRunner(hook, folder / "follow.sock", folder / "state")
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        yield runner
    finally:
        runner.stop()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def test_program_gets_the_message_on_standard_input(tmp_path: Path) -> None:
    """The whole message, as JSON, unharmed by any shell, and no argument but its own."""
    hook = Hook(command=(*program(tmp_path, 'cat >> $out; echo "args $*" >> $out'), "--own"))
    with Daemon(tmp_path / "follow.sock") as daemon, running(tmp_path, hook):
        daemon.accept(watching())
        daemon.say(change("opened"))
        until(lambda: len(lines(tmp_path)) == 2)
    assert [change("opened"), "args --own"] == [json.loads(lines(tmp_path)[0]), lines(tmp_path)[1]]


def test_it_waits_for_the_daemon_and_comes_back_to_it(tmp_path: Path) -> None:
    """It begins before the daemon, survives its restart, tells nothing twice, and tells what ended meanwhile."""
    with running(tmp_path, Hook(command=program(tmp_path, "cat >> $out"))):
        for greeting in ([change("present"), change("present", "b"), watching("a", "b")], [change("present"), watching("a")]):
            with Daemon(tmp_path / "follow.sock") as daemon:
                daemon.accept(*greeting)
                until(lambda: len(lines(tmp_path)) >= 2)
        until(lambda: len(lines(tmp_path)) == 3)
    told = [json.loads(line) for line in lines(tmp_path)]
    assert [("ended", "b"), ("opened", "a"), ("opened", "b")] == sorted((one["change"], one["incident"]["id"]) for one in told)


def test_its_own_restart_tells_nothing_twice(tmp_path: Path) -> None:
    """What the program was told is remembered on the disk."""
    hook = Hook(command=program(tmp_path, "cat >> $out"))
    for ids in (["a"], ["a", "b"]):
        with Daemon(tmp_path / "follow.sock") as daemon, running(tmp_path, hook):
            daemon.accept(*(change("present", id_) for id_ in ids), watching(*ids))
            until(partial(remembers, tmp_path, ids))
    assert ["a", "b"] == [json.loads(line)["incident"]["id"] for line in lines(tmp_path)]


def remembers(folder: Path, ids: list[str]) -> bool:
    """Whether these are what the program is known to have been told."""
    with suppress(FileNotFoundError):
        return ids == sorted(json.loads((folder / "state" / "told.json").read_text(encoding="utf-8"))["told"])
    return False


def test_program_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    """SIGTERM to its process group, then SIGKILL; a child of its own that ignores SIGTERM ends as well."""
    text = "trap '' TERM; sleep 1000 & echo $! >> $out; echo $$ >> $out; while :; do sleep 1000; done"
    hook = Hook(command=program(tmp_path, text), timeout_s=0.3)
    with Daemon(tmp_path / "follow.sock") as daemon, running(tmp_path, hook) as runner:
        daemon.accept(watching())
        daemon.say(change("opened"))
        until(lambda: len(lines(tmp_path)) == 2)
        until(lambda: not any(_alive(int(pid)) for pid in lines(tmp_path)))
        until(lambda: runner.ledger.as_json()["told"])


def _alive(pid: int) -> bool:
    """Whether it runs; one that has ended and is not waited for does not."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    return False


def test_a_slow_program_delays_no_other_incident(tmp_path: Path) -> None:
    """Programs of different incidents run at the same time, those of one after each other, in order."""
    text = 'read line; case $line in *\\"a\\"*) touch $out.began; while [ ! -e $out.go ]; do sleep 0.02; done;; esac; echo "$line" >> $out'
    hook = Hook(command=program(tmp_path, text))
    with Daemon(tmp_path / "follow.sock") as daemon, running(tmp_path, hook):
        daemon.accept(watching())
        daemon.say(change("opened"))
        until((tmp_path / "out.began").exists)
        daemon.say(change("ended"), change("opened", "b"))
        until(lambda: len(lines(tmp_path)) == 1)
        (tmp_path / "out.go").touch()
        until(lambda: len(lines(tmp_path)) == 3)
    told = [json.loads(line) for line in lines(tmp_path)]
    assert [("opened", "b"), ("opened", "a"), ("ended", "a")] == [(one["change"], one["incident"]["id"]) for one in told]


def test_what_is_no_message_does_no_harm(tmp_path: Path) -> None:
    """Torn and foreign lines are passed over, and the next message is told."""
    hook = Hook(command=program(tmp_path, "cat >> $out"))
    with Daemon(tmp_path / "follow.sock") as daemon, running(tmp_path, hook):
        daemon.accept(watching())
        daemon.say_raw(b'not json\n[]\n{"change":"opened","incident":{}}\n\xff\n{"change":"new kind"}\n')
        daemon.say(change("opened"))
        until(lambda: len(lines(tmp_path)) == 1)


def test_stop_ends_the_program_and_tells_it_again_next_time(tmp_path: Path) -> None:
    """A stop waits for no program; what was not told in full is told after the next start."""
    hook = Hook(command=program(tmp_path, "echo began >> $out; exec sleep 1000"))
    for count in (1, 2):
        with Daemon(tmp_path / "follow.sock") as daemon, running(tmp_path, hook):
            daemon.accept(change("present"), watching("a"))
            until(lambda count=count: len(lines(tmp_path)) == count)  # type: ignore[misc]


def test_without_a_program_it_says_what_to_write(tmp_path: Path) -> None:
    """No [hook], or one that cannot be run, is the operator's to mend."""
    import argparse

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    config = tmp_path / "config.toml"
    wrong_user = '[hook]\ncommand = ["/bin/true"]\nuser = "nobody-here"\n'
    for text, said in (("", r"\[hook\]"), ('[hook]\ncommand = ["/no/such"]\n', "/no/such"), (wrong_user, "nobody-here")):
        config.write_text(text, encoding="utf-8")
        with pytest.raises(XidwatchError, match=said):
            run(parser.parse_args(["--config", str(config), "--state-dir", str(tmp_path)]))


def test_sigterm_ends_it(tmp_path: Path) -> None:
    """As systemd stops it: exit status 0, also while no daemon is there."""
    config = tmp_path / "config.toml"
    config.write_text('[hook]\ncommand = ["/bin/true"]\n', encoding="utf-8")
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.bind(str(tmp_path / "notify"))
    heard.settimeout(DEADLINE_S)
    command = [sys.executable, "-m", "xidwatch", "hook", "--config", str(config), "--state-dir", str(tmp_path / "state"),
               "--run-dir", str(tmp_path)]  # fmt: skip
    hook = subprocess.Popen(command, env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}, stderr=subprocess.DEVNULL)
    with heard:
        assert heard.recv(1000).startswith(b"READY=1")
    hook.terminate()
    assert 0 == hook.wait(timeout=DEADLINE_S)
