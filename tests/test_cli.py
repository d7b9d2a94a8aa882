"""The command line: what it takes, what it answers, and how it ends."""

from __future__ import annotations

import gzip
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.postmortems import ROOT
from xidwatch.cli import main

LOST = "Nov 30 02:13:05 node01 kernel: [12345.678901] NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.\n"
FAULT = (
    "Nov 30 02:13:05 node01 kernel: [12345.678901] NVRM: Xid (PCI:0000:3b:00): 31, pid=2201, name=python3, Ch 0000000a, "
    "intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_0 faulted @ 0x7f12_3a000000. "
    "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ\n"
)
QUIET = "Nov 30 02:13:05 node01 kernel: [12345.678901] usb 1-1: new high-speed USB device number 2\n"


@pytest.fixture
def lost(tmp_path: Path) -> str:
    """A log with a GPU that fell off the bus."""
    return written(tmp_path / "kern.log", LOST)


def written(path: Path, text: str) -> str:
    """The path of a file with this text."""
    path.write_text(text, encoding="utf-8")
    return str(path)


def run(*arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """One whole process."""
    command = [sys.executable, "-m", "xidwatch", *arguments]
    return subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, check=False, env={**os.environ, **(env or {})})


def test_help_lists_every_command_and_option() -> None:
    """Help names all that there is."""
    assert [] == [name for name in ("explain", "rules", "floor", "--version") if name not in run("--help").stdout.decode()]
    options = (
        "--format",
        "--since",
        "--until",
        "--gpu",
        "--class",
        "--fail-on",
        "--tz",
        "--year",
        "--redact",
        "--rules",
        "--color",
    )
    assert [] == [name for name in options if name not in run("explain", "--help").stdout.decode()]
    assert [] == [name for name in ("list", "show", "check", "matrix") if name not in run("rules", "--help").stdout.decode()]


def test_a_fault_is_told_and_counted(lost: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A critical fault is in the first line, and the exit code says that something was found."""
    assert 1 == main(["explain", lost])
    assert "0000:4e:00.0" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize(
    ("text", "fail_on", "code"),
    [
        (LOST, "critical", 1),
        (LOST, "never", 0),
        (FAULT, "info", 1),
        (FAULT, "warning", 0),
        (QUIET, "info", 0),
    ],
)
def test_exit_codes(text: str, fail_on: str, code: int, tmp_path: Path) -> None:
    """0 nothing at or above --fail-on, 1 something."""
    assert code == main(["explain", written(tmp_path / "log", text), "--fail-on", fail_on])


def test_codes_end_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    """A code, known or not, is an answer and no fault."""
    assert 0 == main(["explain", "79", "999"])
    out = capsys.readouterr().out
    assert out.startswith("Xid 79")
    assert "Xid 999  no rule knows this code" in out


def test_codes_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """One code is one object, several are a list."""
    main(["explain", "79", "--format", "json"])
    assert "Xid 79" == json.loads(capsys.readouterr().out)["title"]
    main(["explain", "79", "94", "--format", "json"])
    assert ["Xid 79", "Xid 94"] == [answer["title"] for answer in json.loads(capsys.readouterr().out)]


def test_a_file_wins_over_a_code(tmp_path: Path) -> None:
    """A file that happens to be named 94 is read."""
    written(tmp_path / "94", QUIET)
    command = [sys.executable, "-m", "xidwatch", "explain", "94"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True
    )
    assert done.stdout.startswith("No GPU fault found")


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "no-such-thing"],
        ["explain", "/no/such/file"],
        ["explain", "94", "/dev/null"],
        ["explain", "/dev/null", "--tz", "Middle/Earth"],
        ["explain", "/dev/null", "--since", "soon"],
        ["explain", "/dev/null", "--rules", "/no/such/folder"],
        ["explain", "/dev/null", "--tz", ""],
        ["explain", "/dev/null", "--since", ""],
        ["explain", "/dev/null", "--since", "2026-11-30", "--until", "2026-11-29"],
        ["explain", "/dev/null", "--year", "0"],
        ["explain", "/dev/null", "--year", "-5"],
        ["explain", "/dev/null", "--year", "10000"],
        ["explain", "/dev/null", "--year", "99999"],
        ["explain", "/dev/null", "/dev/zero", "--boot", "0"],
        ["explain", "-1"],
        ["explain", "--", "-79"],
        ["explain", "/no/such/file", "/no/other/file"],
        ["rules", "show", "xid-0815"],
        ["rules", "check", "/no/such/folder"],
    ],
)
def test_mistakes_get_a_sentence(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What the caller must mend is told in words on stderr, without a traceback, and ends with 2."""
    assert 2 == main(arguments)
    out, err = capsys.readouterr()
    assert "" == out
    assert err.startswith("xidwatch: ")
    assert "Traceback" not in err


BROKEN_INPUTS = {
    "binary": bytes(range(256)) * 400,
    "gzip": b"\x1f\x8b\x08\0\0\0\0\0\0\3" + b"\xff" * 3000,
    "xz": b"\xfd7zXZ\0" + b"\xff" * 3000,
    "bzip2": b"BZh9" + b"\xff" * 3000,
    "zstd": b"\x28\xb5\x2f\xfd" + b"\xff" * 3000,
    "ends early": gzip.compress(LOST.encode())[:11],
}


@pytest.mark.parametrize("why", BROKEN_INPUTS)
def test_an_input_that_cannot_be_read_is_no_empty_one(why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Broken, cut or binary bytes are told as what they are, and end with 2."""
    path = tmp_path / "bad.log"
    path.write_bytes(BROKEN_INPUTS[why])
    assert 2 == main(["explain", str(path)])
    out, err = capsys.readouterr()
    assert ("", True, False) == (out, why in err, "what" in err or "empty" in err)
    assert 2 == main(["explain", str(path), written(tmp_path / "quiet.log", QUIET)])
    assert f"not read: {path}." in " ".join(capsys.readouterr().out.split())


def test_an_empty_file_is_no_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing in it is an answer."""
    path = written(tmp_path / "empty.log", "")
    assert 0 == main(["explain", path])
    assert " ".join(capsys.readouterr().out.split()).startswith(f"Nothing was read: the input is empty ({path}).")


@pytest.mark.parametrize(("text", "code"), [(LOST, 1), (QUIET, 2)])
def test_what_can_be_read_is_explained(
    text: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An input that is missing costs no other its answer: it is told in the report and on stderr."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "kern.log", text)
    (tmp_path / "loop").symlink_to("loop")
    assert code == main(["explain", "kern.log", "/nope.log", "missing.log", "loop", "--format", "json"])
    out, err = capsys.readouterr()
    missing = {one["path"]: one["notes"] for one in json.loads(out)["inputs"] if one["format"] == "not read"}
    assert {"/nope.log", "missing.log", "loop"} == set(missing)
    assert "loop of symbolic links" in missing["loop"][0]
    assert [True] * 3 == [f"xidwatch: {path}: " in err for path in missing]


def test_codes_that_are_known_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """A word that nobody knows costs no code its answer."""
    assert 2 == main(["explain", "79", "no-such-thing"])
    out, err = capsys.readouterr()
    assert (True, True) == (out.startswith("Xid 79"), "no-such-thing" in err)


def test_what_is_true_of_many_inputs_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A note that several files share names the first and counts the others."""
    files = [written(tmp_path / f"node{number}.log", LOST.replace("node01", f"node{number}")) for number in range(5)]
    main(["explain", *files])
    said = " ".join(capsys.readouterr().out.split())
    assert 1 == said.count("name no year")
    assert "node0.log and 4 more inputs: its dates name no year" in said


def test_a_folder_that_one_may_not_enter(tmp_path: Path) -> None:
    """What another user may not reach is told with the command that may, as a file, a folder and a folder of rules."""
    inside = tmp_path / "closed" / "kern.log"
    inside.parent.mkdir()
    written(inside, LOST)
    inside.parent.chmod(0)
    no_override = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.getuid() == 0 else []
    for arguments in ([str(inside)], [str(inside.parent)], ["79", "--rules", str(inside)]):
        command = [*no_override, sys.executable, "-m", "xidwatch", "explain", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)
        assert (2, False) == (done.returncode, "Traceback" in done.stderr), done.stderr
        assert "--rules" in arguments or f"try: sudo xidwatch explain {arguments[0]}" in done.stderr
    inside.parent.chmod(0o700)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("explain - <&-", 2, "standard input is closed"),
        ("explain {log} >&-", 2, "standard output is closed"),
        ("explain {log} >&- 2>&-", 2, ""),
        ("rules list >&-", 2, "standard output is closed"),
        ("explain {log} >/dev/full", 2, "cannot write: no space left"),
        ("rules matrix >/dev/full", 2, "cannot write: no space left"),
        ("explain {log} --output /dev/full", 2, "No space left"),
        ("explain {log} --format html --output /dev/null >&-", 1, ""),
    ],
)
def test_streams_that_are_closed_or_full(command: str, code: int, said: str, unbuffered: str, lost: str) -> None:
    """Without a place to read from or to write to there is a sentence, never a traceback."""
    line = f"{shlex.quote(sys.executable)} -m xidwatch {command.format(log=shlex.quote(lost))}"
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, check=False, text=True, env=env)
    assert (code, False) == (done.returncode, "Traceback" in done.stderr)
    assert said in done.stderr


def test_a_pipe_without_a_writer_says_that_it_waits(tmp_path: Path) -> None:
    """After two seconds of silence stderr says what is waited for; what is written then is read."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "xidwatch", "explain", str(fifo)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
        assert reader.stderr is not None
        assert "waiting for a writer" in reader.stderr.readline()
        fifo.write_text(LOST)
        out, _ = reader.communicate(timeout=60)
    assert (1, True) == (reader.returncode, "0000:4e:00.0" in out)


def test_wrong_usage_ends_with_2() -> None:
    """An option that does not exist, or no command at all, is wrong usage."""
    assert 2 == run("explain", "--no-such-option").returncode
    assert 2 == run().returncode


def test_a_bug_is_called_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Anything that is not the caller's to mend shows its traceback, asks for a report, and ends with 3."""
    assert 3 == main(["explain", 94])  # type: ignore[list-item]  # a caller's bug stands in for ours
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "bug" in err.splitlines()[-1]


class Interrupted(str):
    """An argument that is looked at when Ctrl-C comes, which Python wraps in an error of its own."""

    __slots__ = ()

    def __getitem__(self, place: object) -> str:
        """Ctrl-C."""
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as reason:
            raise RuntimeError("Error calling __set_name__") from reason


def test_a_wrapped_interrupt_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C that Python wraps in another error ends with 130 and without a word."""
    assert 130 == main(["explain", Interrupted("-")])
    assert not capsys.readouterr().err


def test_standard_input() -> None:
    """`-` reads what is piped in."""
    done = run("explain", "-", "--format", "json", stdin=LOST.encode())
    assert (1, 79) == (done.returncode, json.loads(done.stdout)["events"][0]["code"])


def test_a_reader_that_leaves_is_no_fault(lost: str) -> None:
    """`| head` closes the pipe: no traceback, no complaint."""
    command = (
        f"{sys.executable} -m xidwatch rules list | head -n 1; {sys.executable} -m xidwatch explain {lost} --format json | true"
    )
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, check=False, text=True)
    assert "" == done.stderr
    assert 1 == len(done.stdout.splitlines())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_terminal_can_show_it(encoding: str, tmp_path: Path) -> None:
    """An output encoding without the report's characters gets others, never an error."""
    log = written(tmp_path / "log", LOST + LOST.replace("79, GPU has fallen off the bus.", "79, 電源が落ちた"))
    done = run("explain", log, env={"PYTHONIOENCODING": encoding})
    assert (1, b"") == (done.returncode, done.stderr)
    assert "platform" in done.stdout.decode(encoding)


def test_gpu_in_any_spelling(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--gpu takes every spelling of an address, or its end; one that is not in the log gets the list of those that are."""
    log = written(tmp_path / "log", LOST + FAULT)
    for spelling in ("0000:4e:00.0", "00000000:4E:00.0", "PCI:0000:4e:00", "4e:00.0", "4e:00", "4E:00"):
        main(["explain", log, "--format", "json", "--gpu", spelling])
        assert [["0000:4e:00.0"]] == [incident["gpus"] for incident in json.loads(capsys.readouterr().out)["incidents"]]
    for wrong in ("99:00", "", "0", "e:00", "0000"):
        assert 2 == main(["explain", log, "--gpu", wrong])
        assert "it names: 0000:3b:00.0, 0000:4e:00.0" in capsys.readouterr().err


def test_what_a_filter_hides_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With every filter each format tells how many incidents it hides, and how bad the worst of them is."""
    log = written(tmp_path / "log", LOST + FAULT.replace("02:13:05", "04:00:00").replace("12345.", "18800."))
    common = ["explain", log, "--year", "2025", "--tz", "UTC"]
    for filtered in (["--class", "memory"], ["--gpu", "3b:00"], ["--since", "2025-11-30T03:00Z"]):
        main([*common, *filtered, "--format", "json"])
        hidden = json.loads(capsys.readouterr().out)["filtered"]
        assert (1, "critical") == (hidden["incidents_left_out"], hidden["worst_left_out"])
        for form in ("text", "markdown", "html"):
            main([*common, *filtered, "--format", form])
            assert "out 1 incident (worst: critical)" in " ".join(capsys.readouterr().out.split())
    assert 0 == main([*common, "--until", "2020-01-01"])
    assert capsys.readouterr().out.startswith("No GPU fault left by the filter in 2 lines")
    main([*common, "--format", "json"])
    assert None is json.loads(capsys.readouterr().out)["filtered"]


def test_a_limit_of_time_on_a_log_without_dates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where no line has a date nothing is left out, and a note says so."""
    log = written(tmp_path / "dmesg", "[    5.000000] NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.\n")
    assert 1 == main(["explain", log, "--since", "2026-01-01", "--format", "json"])
    report = json.loads(capsys.readouterr().out)
    assert "no date" in report["inputs"][0]["notes"][-1]
    assert 1 == report["filtered"]["undated_events"]


@pytest.mark.parametrize("option", [["--tz", "-05:00"], ["--since", "-3d"], ["--tz=-05:00"], ["--until", "-1h"]])
def test_values_may_begin_with_a_minus(option: list[str], tmp_path: Path) -> None:
    """What begins with a minus and a digit is an option's value."""
    assert 0 == main(["explain", written(tmp_path / "log", QUIET), *option])


def test_class_and_time_choose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--class keeps one class; --since and --until keep a time."""
    log = written(tmp_path / "log", LOST + FAULT.replace("02:13:05", "04:00:00").replace("12345.", "18800."))
    options = ["explain", log, "--format", "json", "--year", "2025", "--tz", "UTC"]
    for more, codes in (
        (["--class", "memory"], [31]),
        (["--since", "2025-11-30T03:00Z"], [31]),
        (["--until", "2025-11-30 03:00"], [79]),
    ):
        main([*options, *more])
        report = json.loads(capsys.readouterr().out)
        assert codes == [report["events"][incident["root"]]["code"] for incident in report["incidents"]]


def test_redaction(lost: str, capsys: pytest.CaptureFixture[str]) -> None:
    """--redact leaves no host name in either format."""
    for form in ("text", "json"):
        main(["explain", lost, "--redact", "--format", form])
        assert "node01" not in capsys.readouterr().out


def test_colour_on_demand(lost: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No colour in a pipe, unless asked for."""
    main(["explain", lost])
    assert "\x1b" not in capsys.readouterr().out
    main(["explain", lost, "--color", "always"])
    assert "\x1b[1;31m" in capsys.readouterr().out


def test_rules_commands(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """List filters, show prints the rule and its file, matrix has the article's codes, check is content with no mistakes."""
    assert 0 == main(["rules", "list", "--class", "memory", "--severity", "critical"])
    lines = capsys.readouterr().out.splitlines()[1:]
    assert lines
    assert [] == [line for line in lines if not line.startswith(" ") and ("memory" not in line or "critical" not in line)]
    assert 0 == main(["rules", "show", "xid-79"])
    assert capsys.readouterr().out.startswith('# from xid.toml\n[[rule]]\nid = "xid-79"\nxid = 79\n')
    assert 0 == main(["rules", "matrix", "--format", "markdown"])
    assert "| Xid 79 |" in capsys.readouterr().out
    assert 0 == main(["rules", "check", str(tmp_path)])


def test_rules_check_tells_every_mistake(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A folder with mistakes ends with 2, and all of them are told."""
    written(tmp_path / "site.toml", '[[rule]]\nid = "site-1"\nxid = "79"\n\n[[rule]]\nid = "site-2"\nseverity = "dire"\n')
    assert 2 == main(["rules", "check", str(tmp_path)])
    err = capsys.readouterr().err
    assert "site-1" in err
    assert "site-2" in err


def test_site_rules_are_used(lost: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--rules overrides a shipped rule by its id."""
    main(["rules", "show", "xid-79"])
    shown = capsys.readouterr().out
    folder = tmp_path / "rules"
    folder.mkdir()
    written(folder / "site.toml", shown.replace('severity = "critical"', 'severity = "info"'))
    assert 0 == main(["explain", lost, "--rules", str(folder)])


def test_small_files_need_no_outside_package(lost: str) -> None:
    """Explaining a small file starts without pydantic, rich and jinja2."""
    script = (
        "import sys; from xidwatch.cli import main; main(sys.argv[1:])\n"
        "print('IMPORTED', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", script, "explain", lost], cwd=ROOT, capture_output=True, check=True, text=True)
    imported = set(done.stdout.rpartition("IMPORTED")[2].split())
    assert set() == imported & {"pydantic", "rich", "jinja2", "pynvml"}


def test_progress_is_only_for_terminals_and_big_inputs() -> None:
    """The bar waits half a second, then draws one line, and takes it away again."""
    from xidwatch.cli import ProgressBar

    terminal, now = io.StringIO(), [0.0]
    bar = ProgressBar(terminal, clock=lambda: now[0])
    bar(1, 100)
    assert "" == terminal.getvalue()
    now[0] = 0.6
    bar(50 << 20, 100 << 20)
    assert "50% of 100 MiB" in terminal.getvalue()
    now[0] = 1.0
    bar(50 << 20, None)
    assert "50 MiB" in terminal.getvalue()
    bar.clear()
    assert terminal.getvalue().endswith("\r\x1b[K")
