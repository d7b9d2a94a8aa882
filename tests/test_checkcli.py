"""`xidwatch check`, whole: a pretended node's files, the fake NVML behind it, exit codes and what is said."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.nodes import SLOTS, Root, incident, slot, state
from tests.nvml.fake import Fake, children, library
from tests.postmortems import ROOT
from tests.system.live import until
from xidwatch.cli import main
from xidwatch.core.remarks import CHECKS

ANSWER_S = 20.0
"""It promises five seconds; a test machine with other things to do gets more."""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Fake:
    """The fake NVML with eight healthy GPUs, until told otherwise."""
    library(old=False)
    return Fake(monkeypatch, tmp_path_factory.mktemp("fake"))


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """A well set-up node with eight GPUs and no daemon."""
    return Root(tmp_path)


class Said:
    """What one `xidwatch check` did."""

    def __init__(self, code: int, out: str) -> None:
        """`out` is its standard output."""
        self.code, self.out = code, out

    def told(self) -> dict[str, Any]:
        """The JSON."""
        told = json.loads(self.out)
        assert isinstance(told, dict)
        return told

    def ids(self, part: str) -> list[str]:
        """Ids of a part of the JSON."""
        return [one["id"] for one in self.told()[part]]


def check(root: Root, capsys: pytest.CaptureFixture[str], *options: str) -> Said:
    """Run it there."""
    capsys.readouterr()
    code = main([*root.arguments, *options])
    return Said(code, capsys.readouterr().out)


def as_line(root: Root, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """Exit code and the one line, which always is one: printable ASCII, at most 80 characters."""
    said = check(root, capsys, "--line", *options)
    assert re.fullmatch(r"[ -~]{1,80}\n", said.out), said.out
    return said.code, said.out.removesuffix("\n")


def test_without_a_gpu_the_node_is_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No GPU on the bus and none expected: 0, and said so; NVML is left alone."""
    root = Root(tmp_path, slots=())
    root.daemon(slots=(), gpus=[], expected_gpus=None, nvml=None)
    assert (0, "fit: no NVIDIA GPU on the PCI bus") == as_line(root, capsys)
    assert "needless" == check(root, capsys, "--format", "json").told()["nvml"]


def test_without_a_gpu_that_should_be_there_it_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """expected_gpus in the configuration makes an empty bus a fault."""
    root = Root(tmp_path, slots=())
    root.write("etc/xidwatch/config.toml", "expected_gpus = 8")
    assert (1, "not fit: 0 of 8 GPUs on the PCI bus") == as_line(root, capsys)


def test_eight_healthy_by_the_daemons_word(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """A daemon that watches and eight GPUs that answered: 0 also with --strict, without asking NVML."""
    root.daemon()
    assert (0, "fit: 8 GPUs, no critical incident") == as_line(root, capsys, "--strict")
    told = check(root, capsys, "--format", "json").told()
    assert ("daemon", [], [], [], [], []) == (
        told["nvml"],
        *(told[part] for part in ("reasons", "unknowns", "warnings", "remarks", "not_read")),
    )


def test_eight_healthy_without_a_daemon(fake: Fake, root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a daemon NVML is asked: 0, with the remark that nobody reads the log; with --strict that is 1."""
    assert (0, "fit: 8 GPUs, no daemon: log not watched; 1 remark") == as_line(root, capsys)
    assert (1, "not fit: set-up: daemon") == as_line(root, capsys, "--strict")
    told = check(root, capsys, "--format", "json")
    assert (["daemon"], "asked") == (told.ids("remarks"), told.told()["nvml"])
    until(lambda: not children(), what="the child that was asked has ended")


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        ("lost", (1, "not fit: 0000:61:00.0 lost")),
        ("lost_inside", (1, "not fit: 0000:61:00.0 lost")),
        ("reset_required", (1, "not fit: 0000:d1:00.0 needs a reset")),
        ("unknown_error", (1, "not fit: 0000:d1:00.0 NVML unknown error")),
        ("gone", (1, "not fit: 0000:df:00.0 not known to the driver")),
        ("remap_failure", (1, r"not fit: 0000:\w\w:00.0 row remap failed(?: \(\+\d more\))?")),
        ("remap_pending", (0, "fit: 8 GPUs, no daemon: log not watched; 2 warnings, 1 remark")),
        ("sram_threshold", (0, r"fit: 8 GPUs, no daemon: log not watched; \d warnings?, 1 remark")),
        ("not_loaded", (1, r"not fit: 0000:1b:00.0 \+7 driver not loaded")),
        ("version_mismatch", (1, r"not fit: 0000:1b:00.0 \+7 driver/library version mismatch")),
        ("no_permission", (2, r"not known: 0000:1b:00.0 \+7 NVML: no permission")),
        ("crash", (2, "not known: .*NVML did not answer in time.*")),
        ("throttled", (0, "fit: .*")),
        ("mig", (0, "fit: .*")),
        ("nvlink_down", (0, "fit: .*")),
        ("replaced", (0, "fit: .*")),
    ],
)
def test_each_fault_without_a_daemon(
    fake: Fake, root: Root, capsys: pytest.CaptureFixture[str], scenario: str, expected: tuple[int, str]
) -> None:
    """Each scenario of the fake NVML has its exit code and its one line."""
    fake.use(scenario)
    found, said = as_line(root, capsys)
    assert re.fullmatch(expected[1], said), said
    assert expected[0] == found


def test_nvml_that_never_answers_is_not_waited_for(fake: Fake, root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """A call that blocks for ever: «not known» in its time, and the child has had its SIGTERM."""
    fake.use("blocked_init")
    began_s = time.monotonic()
    code, line = as_line(root, capsys)
    assert time.monotonic() - began_s < ANSWER_S
    assert (2, "not known: 0000:1b:00.0 +7 NVML did not answer in time") == (code, line)


def test_one_gpu_that_blocks_leaves_the_others_word(fake: Fake, root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """Where one GPU holds up NVML, what the others said before still counts."""
    fake.use("blocked", "0 fail * 15")
    found = check(root, capsys, "--format", "json")
    assert (1, ["gpu_lost"]) == (found.code, found.ids("reasons"))
    assert "gpu_unresponsive" in found.ids("unknowns")


# the daemon's word


@pytest.mark.parametrize(
    ("change", "code", "line"),
    [
        ({"answer": "lost"}, 1, "not fit: 0000:61:00.0 lost"),
        ({"answer": "reset_required"}, 1, "not fit: 0000:61:00.0 needs a reset"),
        ({"answer": "unresponsive", "since_us": 0}, 1, r"not fit: 0000:61:00.0 no answer for \d+ h"),
        ({"answer": "library_missing"}, 2, "not known: 0000:61:00.0 NVML: library missing"),
        ({"answer": "not_found", "missing": True, "serial": "1652923000103"}, 1, "not fit: 0000:61:00.0 missing"),
        ({"recovery_action": "reset_gpu"}, 1, "not fit: 0000:61:00.0 driver asks: reset gpu"),
        ({"recovery_action": "reboot_node"}, 1, "not fit: 0000:61:00.0 driver asks: reboot node"),
        ({"recovery_action": "drain_and_reset"}, 0, "fit: 8 GPUs, no critical incident; 1 warning"),
        ({"row_remap_failed": True}, 1, "not fit: 0000:61:00.0 row remap failed"),
        ({"config_space_dead": True}, 1, "not fit: 0000:61:00.0 does not answer on the bus"),
        ({"config_space_dead": True, "answer": "lost"}, 1, "not fit: 0000:61:00.0 lost"),
        ({"banks_without_spare_rows": {"one_left": 3, "none_left": 0}}, 0, "fit: 8 GPUs, no critical incident; 1 warning"),
        ({"banks_without_spare_rows": {"one_left": 3, "none_left": 1}}, 0, "fit: 8 GPUs, no critical incident; 1 warning"),
        ({"row_remap_pending": True}, 0, "fit: 8 GPUs, no critical incident; 1 warning"),
        ({"sram_threshold_exceeded": True}, 0, "fit: 8 GPUs, no critical incident; 1 warning"),
        ({"fabric": {"probe": "in_progress", "status": 0}}, 1, "not fit: 0000:61:00.0 NVLink fabric in progress"),
        ({"fabric": {"probe": "completed", "status": 999}}, 1, "not fit: 0000:61:00.0 NVLink fabric error 999"),
        ({"row_remap_pending": None, "recovery_action": None, "ecc_enabled": None}, 0, "fit: 8 GPUs, no critical incident"),
    ],
)  # fmt: skip
def test_each_fault_by_the_daemons_word(
    root: Root, capsys: pytest.CaptureFixture[str], change: dict[str, Any], code: int, line: str
) -> None:
    """What the daemon says of a GPU decides, without NVML; what is not known speaks for nothing."""
    gpus = [slot(pci, **(change if pci == "0000:61:00.0" else {})) for pci in SLOTS]
    root.daemon(gpus=gpus)
    found, said = as_line(root, capsys)
    assert re.fullmatch(line, said), said
    assert code == found


def test_a_gpu_that_is_slow_for_a_moment_is_not_a_fault(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """Silent for less than a minute: not known, not unfit."""
    since_us = time.time_ns() // 1000 - 20_000_000
    root.daemon(gpus=[slot(pci, answer="unresponsive", since_us=since_us) for pci in SLOTS])
    assert (2, "not known: 0000:1b:00.0 +7 NVML did not answer in time") == as_line(root, capsys)


def test_a_daemon_that_has_just_started_knows_nothing_yet(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """Before NVML's first answer no GPU is taken to be well."""
    root.daemon(nvml={"asked": True, "up": None, "released": False}, gpus=[slot(pci, answer=None) for pci in SLOTS])
    assert (2, "not known: NVML has not answered the daemon yet") == as_line(root, capsys)


def test_incidents_decide_by_severity(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """A critical incident is 1 with its title and step; a warning is 0, unless the site wants it otherwise; info is nothing."""
    root.daemon(incidents=[incident()])
    assert (1, "not fit: 0000:61:00.0 GPU has fallen off the bus: reboot node") == as_line(root, capsys)
    root.daemon(incidents=[incident("info"), incident("warning", title="row waits to be remapped", gpus=[])])
    assert (0, "fit: 8 GPUs, no critical incident; 1 warning") == as_line(root, capsys)
    assert 1 == as_line(root, capsys, "--strict")[0]
    root.write("etc/xidwatch/config.toml", '[check]\nnot_fit_from = "warning"')
    assert (1, "not fit: row waits to be remapped: reboot node") == as_line(root, capsys)


def test_each_incident_is_told(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """Two incidents of the same kind on two GPUs are two, each with its own step."""
    root.daemon(incidents=[incident(), incident(id="6", gpus=["0000:c3:00.0"], sentence="GPU 0000:c3:00.0 fell off.")])
    assert (1, "not fit: 0000:61:00.0 GPU has fallen off the bus: reboot node (+1 more)") == as_line(root, capsys)
    assert "GPU 0000:c3:00.0 fell off. (critical incident 6)" in check(root, capsys).out


def test_in_maintenance_faults_are_not_held_against_it(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """While planned work lasts a fault is «not known», so that nothing drains or pages; without one the node is fit."""
    maintenance = {"active": True, "until_us": None, "reason": "driver upgrade"}
    root.daemon(incidents=[incident()], maintenance=maintenance)
    assert (2, "not known: in maintenance (driver upgrade)") == as_line(root, capsys)
    assert "fell off the PCIe bus" in check(root, capsys).out
    root.daemon(maintenance=maintenance)
    assert (0, "fit: 8 GPUs, no critical incident, in maintenance") == as_line(root, capsys)


def test_a_stale_state_is_not_believed(fake: Fake, root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """A daemon that has stopped writing does not watch: NVML is asked, and the age is told."""
    root.daemon(age_s=600, gpus=[slot(pci, answer="lost") for pci in SLOTS])
    found = check(root, capsys, "--format", "json")
    assert (0, ["daemon"], "asked") == (found.code, found.ids("remarks"), found.told()["nvml"])
    assert "10 minutes ago" in found.told()["remarks"][0]["what"]


def test_a_daemons_last_word_that_was_critical_leaves_a_doubt(
    fake: Fake, root: Root, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether the incident of a daemon that has died still holds cannot be said: 2, whatever NVML says."""
    root.daemon(age_s=600, incidents=[incident()])
    assert (2, "not known: daemon gone; last: GPU has fallen off the bus") == as_line(root, capsys)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"time_us": "now"}', '{"time_us": 1e400}', "[" * 100_000,
     json.dumps(state() | {"incidents": [7]}), json.dumps(state() | {"gpus": [{"pci": None}]}), json.dumps(state(age_s=-7200))],
)  # fmt: skip
def test_a_state_that_cannot_be_understood_is_as_good_as_none(
    fake: Fake, root: Root, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """Torn, foreign, from the future: NVML is asked, and the remark says what is wrong with the file."""
    root.write("run/xidwatch/state.json", text)
    found = check(root, capsys, "--format", "json")
    assert (0, ["daemon"]) == (found.code, found.ids("remarks"))


def test_a_blind_daemon_knows_nothing(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """A daemon none of whose sources is up cannot say that nothing happened."""
    root.daemon(sources=[{"name": "kmsg", "up": False}])
    assert (2, "not known: no source of kernel lines is up") == as_line(root, capsys)


def test_nobody_who_looks_means_not_known(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """No daemon and NVML not to be asked: 2, and a GPU that sleeps is not woken."""
    root.write("etc/xidwatch/config.toml", 'nvml = "off"')
    assert (2, "not known: no daemon, and NVML cannot be asked") == as_line(root, capsys)
    root.write("etc/xidwatch/config.toml", "")
    root.write(f"sys/bus/pci/devices/{SLOTS[0]}/power/runtime_status", "suspended")
    assert (2, "not known: no daemon, and NVML is not asked: it would wake the GPU") == as_line(root, capsys)


def test_gpus_given_away_are_not_ours(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """GPUs bound to vfio-pci belong to a guest: nothing is asked and nothing held against the host."""
    for pci in SLOTS:
        root.gpu(pci, driver="vfio-pci")
    assert (0, "fit: 8 GPUs, none driven by nvidia here; 1 remark") == as_line(root, capsys)


def test_a_gpu_that_nothing_drives_is_a_fault(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """On the bus, and no driver took it: its probe failed, or the module is not loaded."""
    root.daemon(gpus=[slot(pci) for pci in SLOTS[1:]])
    root.gpu(SLOTS[0], driver=None)
    assert (1, "not fit: 0000:1b:00.0 no driver bound") == as_line(root, capsys)


def test_fewer_gpus_than_expected(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """Seven of eight on the bus, with a daemon that remembers eight and names none."""
    (root.folder / "sys/bus/pci/devices" / SLOTS[7] / "vendor").unlink()
    root.daemon(gpus=[slot(pci) for pci in SLOTS[:7]], expected_gpus=8)
    assert (1, "not fit: 7 of 8 GPUs on the PCI bus") == as_line(root, capsys)


def test_nvswitch_without_fabric_manager(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """Without Fabric Manager no CUDA program starts: not fit; running, or unseen from a container, nothing is said."""
    root.link("sys/bus/pci/drivers/nvidia-nvswitch/0000:c1:00.0", "../../devices/0000:c1:00.0")
    root.daemon()
    assert (1, "not fit: NVSwitch without Fabric Manager") == as_line(root, capsys)
    root.link("proc/self/ns/pid", "pid:[4026532281]")
    assert 0 == as_line(root, capsys, "--strict")[0]
    root.link("proc/self/ns/pid", "pid:[4026531836]")
    root.process(900, "nv-fabricmanage")
    assert 0 == as_line(root, capsys, "--strict")[0]


def test_a_node_that_is_booting_gets_its_time(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """In the first five minutes a driver or fabric that is not up yet is «not known»: nothing is drained for it."""
    root.daemon(gpus=[slot(pci, fabric={"probe": "in_progress", "status": 0}) for pci in SLOTS])
    assert (1, "not fit: 0000:1b:00.0 +7 NVLink fabric in progress") == as_line(root, capsys)
    root.write("proc/uptime", "95.20 100.00")
    assert (2, "not known: 0000:1b:00.0 +7 NVLink fabric in progress") == as_line(root, capsys)
    assert "has been up for 95 s" in check(root, capsys).out
    root.daemon(gpus=[slot(pci, answer="lost") for pci in SLOTS])
    assert (1, "not fit: 0000:1b:00.0 +7 lost") == as_line(root, capsys)


def test_from_inside_a_container_unseen_gpus_are_not_missing(
    fake: Fake, root: Root, capsys: pytest.CaptureFixture[str]
) -> None:
    """A container sees the whole bus and some of the GPUs: those that it does not see are not held against the node."""
    fake.use("gone")
    root.link("proc/self/ns/pid", "pid:[4026532281]")
    assert (2, "not known: 0000:df:00.0 not known to the driver") == as_line(root, capsys)


def test_the_daemons_bus_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where sysfs is not to be seen, the GPUs that the daemon saw are there; one that left the bus is not."""
    root = Root(tmp_path, slots=())
    root.daemon()
    assert (0, "fit: 8 GPUs, no critical incident") == as_line(root, capsys)
    root.daemon(gpus=[slot(pci, on_bus=pci != SLOTS[2], missing=pci == SLOTS[2], answer=None) for pci in SLOTS])
    assert (1, "not fit: 0000:52:00.0 missing") == as_line(root, capsys)


def test_where_no_process_can_be_started(
    root: Root, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of processes, or an interpreter that is gone: the daemon's word still counts, and what was not looked at is told."""
    monkeypatch.setattr("sys.executable", str(root.folder / "gone"))
    root.daemon(incidents=[incident()])
    found = check(root, capsys, "--format", "json")
    assert (1, ["the node's files"]) == (found.code, [one["path"] for one in found.told()["not_read"]])
    root.daemon()
    assert (0, "fit: 8 GPUs, no critical incident") == as_line(root, capsys)


# what is said


def test_hostile_text_stays_one_line(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever an incident's title holds, the line is one, printable, and cut; the text escapes what could act."""
    title = 'a\nb\x1b[31m"; scontrol reboot $(id) ' + "\u202e\U0001f525" + "x" * 300
    root.daemon(incidents=[incident(title=title, sentence=title), incident(id="6", title="other", gpus=[])])
    code, line = as_line(root, capsys)
    assert 1 == code
    assert line.startswith("not fit: 0000:61:00.0 a b?[31m")
    assert line.endswith("... (+1 more)")
    assert "\x1b" not in check(root, capsys).out


def test_text_tells_reason_and_command_first(
    root: Root, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict on the first line, the reason and its command right under it."""
    monkeypatch.setenv("COLUMNS", "120")
    root.daemon(incidents=[incident()])
    first, reason, command = check(root, capsys).out.splitlines()[:3]
    assert f"{os.uname().nodename}: not fit" == first
    assert "  GPU 0000:61:00.0 fell off the PCIe bus at 02:13:05. (critical incident 5f0c1a2b)" == reason
    assert "    do:  systemctl reboot" == command


def test_json_is_whole(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """The object has the exit code, the line, and every finding with its GPUs."""
    root.daemon(gpus=[slot(pci, answer="lost") for pci in SLOTS])
    found = check(root, capsys, "--format", "json")
    told = found.told()
    assert ("xidwatch.check/1", "not_fit", 1, found.code) == (told["schema"], told["verdict"], told["exit"], 1)
    assert "not fit: 0000:1b:00.0 +7 lost" == told["line"]
    assert [list(SLOTS)] == [one["gpus"] for one in told["reasons"]]


# the set-up, from files to remark


def test_remarks_can_be_ignored_by_the_site(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """A remark that the site lives with is not made; an id that is none is the operator's mistake."""
    root.daemon()
    root.write("proc/sys/kernel/hung_task_timeout_secs", 0)
    assert ["hung_task_timeout"] == check(root, capsys, "--format", "json").ids("remarks")
    root.write("etc/xidwatch/config.toml", '[check]\nignore = ["hung_task_timeout"]')
    assert 0 == check(root, capsys, "--strict").code
    root.write("etc/xidwatch/config.toml", '[check]\nignore = ["hung_tsk"]')
    assert 2 == check(root, capsys).code


def test_jobs_environments_are_read_and_nothing_else_of_them(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """Variables of processes that hold a GPU; not of those with a thread in D state, not of others, and no secret."""
    root.daemon()
    root.process(4711, "python3", holds="/dev/nvidia3", CUDA_LAUNCH_BLOCKING="1")
    root.process(4800, "python3", holds="/dev/nvidia4", states="SD", TORCH_NCCL_ASYNC_ERROR_HANDLING="0")
    root.process(4900, "python3", holds="/dev/null", NCCL_DEBUG="TRACE")
    found = check(root, capsys, "--format", "json")
    assert ["cuda_launch_blocking"] == found.ids("remarks")
    assert "CUDA_LAUNCH_BLOCKING=1 in pid 4711" == found.told()["remarks"][0]["what"]
    assert [{"path": "/proc/4800/environ", "why": "a thread of it is in D state"}] == found.told()["not_read"]
    assert "do-not-read" not in found.out


def test_a_file_that_is_a_pipe_holds_nobody_up(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """A settings file that is a pipe without a writer is empty, and not waited for."""
    root.daemon()
    root.make("etc/modprobe.d")
    os.mkfifo(root.folder / "etc/modprobe.d/trap.conf")
    assert 0 == check(root, capsys, "--strict").code


@pytest.mark.parametrize("command", ["check", "status", "gpus", "incident list"])
def test_a_state_that_is_a_pipe_or_has_no_end_holds_nobody_up(
    fake: Fake, root: Root, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """In place of state.json: a pipe without a writer and a device without an end are told within the time promised."""
    root.make("run/xidwatch")
    place = root.folder / "run/xidwatch/state.json"
    for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path)):
        make(place)
        began_s = time.monotonic()
        if command == "check":
            said = check(root, capsys, "--format", "json")
            assert (0, ["daemon"]) == (said.code, said.ids("remarks"))
            assert "not a regular file" in said.told()["remarks"][0]["what"]
        else:
            assert 2 == main([*command.split(), "--run-dir", str(place.parent)])
            assert "not a regular file" in capsys.readouterr().err
        assert time.monotonic() - began_s < ANSWER_S
        place.unlink()


def test_help_names_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """What a scheduler needs to know stands in --help; the option for tests does not."""
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    said = capsys.readouterr().out
    assert "0 fit, 1 not fit, 2 not known" in said
    assert "--root" not in said


def test_every_remark_is_documented() -> None:
    """docs/check.md names each."""
    page = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    assert [] == [one.id for one in CHECKS if f"`{one.id}`" not in page]


def test_every_check_has_an_id_of_its_own() -> None:
    """A site names a remark by its id."""
    ids = [one.id for one in CHECKS]
    assert len(ids) == len(set(ids))
