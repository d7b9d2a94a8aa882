"""Work in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from xidwatch.apart import apart
from xidwatch.config import Config, ConfigError, load_config


def test_answer_comes_back_from_another_process() -> None:
    """What was made is here, and what made it is gone."""
    assert threading.active_count() == 1
    assert os.getpid() != apart(os.getpid)
    assert Config() == apart(Config)


def test_error_is_the_callers() -> None:
    """A mistake is raised here as if it had been done here."""
    with pytest.raises(ConfigError, match="--listen"):
        apart(lambda: load_config(options={"listen": 7}, environ={}))


def test_threads_keep_the_work_at_home() -> None:
    """A process with several threads is not divided."""
    end = threading.Event()
    other = threading.Thread(target=end.wait)
    other.start()
    assert os.getpid() == apart(os.getpid)
    end.set()
    other.join()


def test_daemon_starts_without_what_checks_its_settings() -> None:
    """Options are checked by pydantic, and it is not loaded afterwards."""
    code = (
        "import sys; from xidwatch.apart import apart; from xidwatch.config import load_config;"
        "print(apart(lambda: load_config(options={'listen': '127.0.0.1:1'}, environ={})).listen, 'pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "127.0.0.1:1 False\n" == done.stdout


def test_a_killed_parent_leaves_nothing_behind() -> None:
    """The pipe breaks with the parent: the answer that nobody takes keeps no process alive."""
    script = "import os, signal, sys\nfrom xidwatch.apart import apart\n" + (
        "def work():\n    print(os.getpid(), flush=True)\n    os.kill(os.getppid(), signal.SIGKILL)\n    return bytes(1 << 20)\napart(work)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        out, _ = parent.communicate(timeout=30)  # ends when the last process that has its output open has ended
    assert out.strip().isdecimal()
