from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path

import pytest

from xidwatch.config import Config, load_config
from xidwatch.errors import XidwatchError
from xidwatch.installer import FIRST_CONFIG, MARK, Runtime, add_arguments, carry_out, hindrances_of, installation, run

RUNTIME = Runtime(command=Path("/opt/xidwatch/bin/xidwatch"), interpreter=Path(os.path.realpath("/bin/sh")))


def called(*arguments: str) -> int:
    """`xidwatch install-service` with these."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(arguments))


def files(root: Path) -> dict[str, str]:
    """Every file below a folder."""
    return {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in root.rglob("*") if path.is_file()}


def test_puts_the_units_and_a_configuration_in_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Units with the command's own path, readable by all, and the commands to give next."""
    assert 0 == called("--root", str(tmp_path), "--command", "/srv/x/bin/xidwatch")
    told, units = capsys.readouterr().out, tmp_path / "etc/systemd/system"
    assert {
        "etc/systemd/system/xidwatch.service",
        "etc/systemd/system/xidwatch-hook.service",
        "etc/xidwatch/config.toml",
    } == set(files(tmp_path))
    assert "\nExecStart=/srv/x/bin/xidwatch watch\n" in (units / "xidwatch.service").read_text(encoding="utf-8")
    assert "\nExecStart=/srv/x/bin/xidwatch hook\n" in (units / "xidwatch-hook.service").read_text(encoding="utf-8")
    assert {0o644} == {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    assert "systemctl daemon-reload" in told
    assert "systemctl enable --now xidwatch.service" in told


def test_again_changes_nothing_and_keeps_the_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second run finds everything as it left it; what the operator wrote stays."""
    called("--root", str(tmp_path))
    (tmp_path / "etc/xidwatch/config.toml").write_text("expected_gpus = 8\n", encoding="utf-8")
    before = files(tmp_path)
    capsys.readouterr()
    called("--root", str(tmp_path))
    told = capsys.readouterr().out
    assert before == files(tmp_path)
    assert ["unchanged", "unchanged", "kept"] == [line.split()[0] for line in told.splitlines()[:3]]


def test_an_upgrade_replaces_our_units(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An older unit of ours is written anew, and the next step is a restart."""
    unit = tmp_path / "etc/systemd/system/xidwatch.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(MARK + "[Service]\n", encoding="utf-8")
    called("--root", str(tmp_path))
    assert "ExecStart=" in unit.read_text(encoding="utf-8")
    assert "systemctl restart xidwatch.service" in capsys.readouterr().out


def test_a_unit_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    """A file that was not written by us is neither replaced nor removed."""
    unit = tmp_path / "etc/systemd/system/xidwatch.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\n", encoding="utf-8")
    with pytest.raises(XidwatchError, match="drop-in"):
        called("--root", str(tmp_path))
    called("--root", str(tmp_path), "--uninstall")
    assert {"etc/systemd/system/xidwatch.service": "[Service]\n"} == files(tmp_path)


def test_uninstall_takes_away_what_was_put_there(tmp_path: Path) -> None:
    """Units, drop-ins and the links that enabled them go; configuration and other people's drop-ins stay."""
    called("--root", str(tmp_path), "--drop-in", "d-state", "--drop-in", "remote-scrape")
    system = tmp_path / "etc/systemd/system"
    assert {"d-state.conf", "remote-scrape.conf"} == {path.name for path in (system / "xidwatch.service.d").iterdir()}
    wants = system / "multi-user.target.wants"
    wants.mkdir()
    (wants / "xidwatch.service").symlink_to("/etc/systemd/system/xidwatch.service")
    (system / "xidwatch.service.d" / "override.conf").write_text("[Service]\n", encoding="utf-8")
    called("--root", str(tmp_path), "--uninstall")
    assert {"etc/xidwatch/config.toml", "etc/systemd/system/xidwatch.service.d/override.conf"} == set(files(tmp_path))
    assert [] == list(wants.iterdir())
    called("--root", str(tmp_path), "--uninstall")


@pytest.mark.parametrize("more", [(), ("--uninstall",)])
def test_dry_run_writes_nothing(tmp_path: Path, more: tuple[str, ...]) -> None:
    """It only says what it would do."""
    if more:
        called("--root", str(tmp_path))
    before = files(tmp_path)
    assert 0 == called("--root", str(tmp_path), "--dry-run", "--drop-in", "d-state", *more)
    assert before == files(tmp_path)


def test_a_command_that_the_service_cannot_see_is_refused(tmp_path: Path) -> None:
    """Under /home, /root or /tmp, missing, or shut to others: each is said with what to do."""
    folder = tmp_path / "shut"
    folder.mkdir(mode=0o700)
    for command, said in (
        ("/home/ann/.venv/bin/xidwatch", "under /home"),
        ("/root/.local/bin/xidwatch", "under /root"),
        ("/opt/no-such/bin/xidwatch", "not there"),
    ):
        told = list(hindrances_of(Runtime(command=Path(command), interpreter=RUNTIME.interpreter)))
        assert [True] == [said in one for one in told if "pip install" not in one]
    assert [] == [
        one for one in hindrances_of(Runtime(command=RUNTIME.interpreter, interpreter=RUNTIME.interpreter)) if "/" in one
    ]


@pytest.mark.parametrize(
    ("command", "written"),
    [
        ("/opt/50%/xidwatch", "ExecStart=/opt/50%%/xidwatch watch"),
        ('/opt/a "b"/xidwatch', r'ExecStart="/opt/a \"b\"/xidwatch" watch'),
    ],
)
def test_unusual_paths_reach_systemd_unharmed(tmp_path: Path, command: str, written: str) -> None:
    """% begins a specifier in a unit, and blanks end a word."""
    steps = list(installation(tmp_path, Runtime(command=Path(command), interpreter=Path(sys.executable))))
    assert written in (steps[0].content or "").splitlines()


def test_first_configuration_shows_every_default_and_changes_none(tmp_path: Path) -> None:
    """As it stands it sets nothing; with every # taken away it is a configuration, and its defaults are the true ones."""
    file = tmp_path / "config.toml"
    file.write_text(FIRST_CONFIG, encoding="utf-8")
    assert Config() == load_config(file, environ={})
    file.write_text(re.sub(r"(?m)^#(?=[\[a-z])", "", FIRST_CONFIG), encoding="utf-8")
    shown, default = load_config(file, environ={}), Config()
    assert (default.source, default.listen, default.history) == (shown.source, shown.listen, shown.history)
    assert shown.hook is not None
    assert (30.0, "warning") == (shown.hook.timeout_s, shown.hook.min_severity)


def test_a_file_system_that_says_no_is_the_operators_to_mend(tmp_path: Path) -> None:
    """A folder in the way is an error with the path, not a traceback."""
    (tmp_path / "etc").write_text("", encoding="utf-8")
    with pytest.raises(XidwatchError, match="etc"):
        carry_out(list(installation(tmp_path, RUNTIME)))


def test_wrappers_for_schedulers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--for writes scripts that may be run and start this xidwatch, and a file that is still JSON; all go with --uninstall."""
    assert 0 == called(
        "--root", str(tmp_path), "--command", "/srv/x/bin/xidwatch", "--for", "slurm", "--for", "node-problem-detector"
    )
    told = capsys.readouterr().out
    scripts = [tmp_path / f"usr/local/libexec/xidwatch/xidwatch-{name}" for name in ("healthcheck", "prolog")]
    for script in scripts:
        assert script.read_text(encoding="utf-8").startswith(f"#!/bin/sh\n{MARK}")
        assert 0o755 == script.stat().st_mode & 0o777
        assert f"/{script.relative_to(tmp_path)}" in told
    assert "xidwatch=${XIDWATCH:-/srv/x/bin/xidwatch}" in scripts[0].read_text(encoding="utf-8")
    plugin = json.loads((tmp_path / "etc/xidwatch/node-problem-detector.json").read_text(encoding="utf-8"))
    assert "/srv/x/bin/xidwatch" == plugin["rules"][0]["path"]
    before = files(tmp_path)
    called("--root", str(tmp_path), "--command", "/srv/x/bin/xidwatch", "--for", "slurm", "--for", "node-problem-detector")
    assert before == files(tmp_path)
    called("--root", str(tmp_path), "--uninstall")
    assert {"etc/xidwatch/config.toml"} == set(files(tmp_path))


def test_a_wrapper_of_somebody_elses_stays(tmp_path: Path) -> None:
    """A script of that name without our mark is not written over."""
    own = tmp_path / "usr/local/libexec/xidwatch/xidwatch-prolog"
    own.parent.mkdir(parents=True)
    own.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    with pytest.raises(XidwatchError, match="xidwatch-prolog"):
        called("--root", str(tmp_path), "--for", "slurm")
