"""The daemon's settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from xidwatch.config import Config, ConfigError, HistoryLimits, Hook, Workload, load_config
from xidwatch.errors import XidwatchError

FULL = """
source = "kmsg"
kmsg = "/run/fake-kmsg"
state_dir = "/srv/state"
run_dir = "/srv/run"
listen = "[::1]:0"
web_config_file = "/etc/xidwatch/web.yml"
rules = ["/etc/a", "/etc/b"]
accept_injected = true
expected_gpus = 8

[hook]
command = ["/usr/local/bin/page", "--team", "gpu"]
user = "pager"
timeout_s = 5
min_severity = "critical"

[history]
max_age_days = 7
max_mb = 50

[workload]
accelerator = "H100 SXM"
params = "70B"
tp = 8
"""
BAD = """\
listen = "127.0.0.1:99999"
sorce = "kmsg"
rules = ["site", "/etc/b"]
accept_injected = "yes"

[hook]
command = ["page.sh"]
timeout_s = 0
min_severity = "bad"
"""


def written(tmp_path: Path, text: str) -> Path:
    """A settings file."""
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_empty_file_leaves_the_defaults(tmp_path: Path) -> None:
    """Nothing has to be configured: the metrics stay on the node and the history where systemd puts state."""
    config = load_config(written(tmp_path, ""), environ={})
    assert Config() == config
    assert ("auto", "127.0.0.1:19079", Path("/var/lib/xidwatch")) == (config.source, config.listen, config.state_dir)


def test_a_file_sets_everything(tmp_path: Path) -> None:
    """Each key arrives in its type."""
    expected = Config(
        source="kmsg",
        kmsg=Path("/run/fake-kmsg"),
        state_dir=Path("/srv/state"),
        run_dir=Path("/srv/run"),
        listen="[::1]:0",
        web_config_file=Path("/etc/xidwatch/web.yml"),
        rules=(Path("/etc/a"), Path("/etc/b")),
        hook=Hook(command=("/usr/local/bin/page", "--team", "gpu"), user="pager", timeout_s=5.0, min_severity="critical"),
        history=HistoryLimits(max_age_days=7.0, max_mb=50),
        accept_injected=True,
        expected_gpus=8,
        workload=Workload(accelerator="H100 SXM", params="70B", tp=8),
    )
    assert expected == load_config(written(tmp_path, FULL), environ={"STATE_DIRECTORY": "/elsewhere"})


def test_options_win_over_the_file(tmp_path: Path) -> None:
    """What the command line says holds; what it does not say is left to the file."""
    config = load_config(written(tmp_path, FULL), {"listen": ":9000", "source": None, "rules": [tmp_path]})
    assert (":9000", "kmsg", (tmp_path,)) == (config.listen, config.source, config.rules)


def test_a_relative_path_on_the_command_line_is_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--state-dir here` means the folder in which the command was given."""
    monkeypatch.chdir(tmp_path)
    assert tmp_path / "here" == load_config(written(tmp_path, ""), {"state_dir": "here"}).state_dir


def test_systemds_folders_stand_in_for_the_defaults(tmp_path: Path) -> None:
    """Of several state folders the first is ours."""
    environ = {"STATE_DIRECTORY": "/var/lib/private/x:/srv", "RUNTIME_DIRECTORY": "/run/x"}
    config = load_config(written(tmp_path, ""), environ=environ)
    assert (Path("/var/lib/private/x"), Path("/run/x")) == (config.state_dir, config.run_dir)


def test_all_mistakes_are_told_at_once_with_their_lines(tmp_path: Path) -> None:
    """One start names each wrong key and value, with file and line, in their order."""
    path = written(tmp_path, BAD)
    with pytest.raises(ConfigError) as raised:
        load_config(path, {"source": "syslog"})
    places = [mistake.partition(": ")[0] for mistake in raised.value.mistakes]
    assert ["--source", *(f"{path}:{line}" for line in (1, 2, 3, 4, 7, 8, 9))] == places


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('sorce = "kmsg"', "did you mean source?"),
        ("[hook]\nuser = 'x'", "hook.command: is missing"),
        ("[hook]\ncommand = []", "absolute path of a program"),
        ('listen = "here"', "HOST:PORT"),
        ("[history]\nmax_age_days = nan", "not within"),
        ("[history]\nmax_mb = 0", "not within"),
        ("expected_gpus = -1", "not within"),
        ("expected_gpus = true", "integer"),
        ('[workload]\nparams = "many"', "is not a number"),
        ('state_dir = "state"', "not an absolute path"),
        ("listen = 1 = 2", "line 1"),
        ("history = 5", "history"),
    ],
)
def test_a_mistake_says_what_is_wrong(tmp_path: Path, text: str, word: str) -> None:
    """Wrong keys, missing ones, values out of range and broken TOML each have their sentence."""
    with pytest.raises(XidwatchError, match=word.replace("?", r"\?")):
        load_config(written(tmp_path, text))


def test_a_file_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    """Only the default file may be missing."""
    with pytest.raises(ConfigError, match="no such file"):
        load_config(tmp_path / "none.toml")


def test_without_settings_pydantic_is_not_imported(tmp_path: Path) -> None:
    """A daemon with defaults does without it."""
    script = (
        "import pathlib, sys; from xidwatch.config import load_config\n"
        "load_config(pathlib.Path(sys.argv[1])); print('pydantic' in sys.modules)"
    )
    command = [sys.executable, "-c", script, str(written(tmp_path, ""))]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "False\n" == run.stdout
