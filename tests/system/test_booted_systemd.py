"""The service as an operator installs it, under a systemd of its own: what it shows, what it tells, how it stops and comes back.

The tests are in the order of an operator's day and share one machine.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.monitoring import ask, free_port, receiving, running_alertmanager, running_prometheus
from tests.postmortems import ROOT
from tests.system import nspawn
from tests.system.live import Gpu, Scrape, scrape, scraped, skip_unless_possible, until, write_line

pytestmark = [pytest.mark.system, pytest.mark.root]
XIDWATCH = "/opt/xidwatch/bin/xidwatch"
PROGRAM = """\
#!/bin/sh
# What an operator's program might do: keep the message.
cat >> "$STATE_DIRECTORY/told"
"""
CAP_SYSLOG = 1 << 34
CAP_SYS_RESOURCE = 1 << 24
UNCONTAINED = "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"
"""Critical, and an incident of its own for each GPU (two GPUs lost within 5 s would be one)."""
FIRST_PID = 1_000_000
"""Of the numbered stream; the same pid on two GPUs would join their incidents."""


@dataclass(slots=True)
class Node:
    """The machine with xidwatch on it. `port` answers the scrapes."""

    machine: nspawn.Machine
    port: int
    gpu: Gpu = field(default_factory=Gpu)

    def xidwatch(self, *arguments: str) -> str:
        """What a command prints."""
        return self.machine.run(XIDWATCH, *arguments)

    def scrape(self) -> Scrape:
        """The metrics now."""
        return scrape(self.port)

    def wait_until_it_watches(self) -> Scrape:
        """Until the service is active and answers."""
        until(lambda: self.machine.ask("systemctl", "is-active", "xidwatch") == "active", what="active")
        return until(lambda: scraped(self.port), what="the first scrape")

    def show(self, unit: str, key: str) -> str:
        """A property of a unit."""
        return self.machine.ask("systemctl", "show", "--value", "-p", key, unit)

    def told(self, label: str) -> list[str]:
        """What the hook's program was told of a GPU: the changes, in order."""
        file = self.machine.file("/var/lib/private/xidwatch-hook/told")
        if not file.exists():
            return []
        messages = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        return [message["change"] for message in messages if label in message["incident"]["gpus"]]

    def wait_until_told(self, label: str, *changes: str, within_s: float = 10) -> None:
        """Until the program was told exactly these changes of a GPU."""
        with suppress(AssertionError):
            until(lambda: self.told(label) == list(changes), within_s)
        assert list(changes) == self.told(label), self.machine.journal("xidwatch-hook") + self.machine.journal("xidwatch")

    def looks_at_tasks(self) -> bool:
        """Whether state.json says so; it is written a moment after the metrics are there."""
        state = json.loads(self.machine.file("/run/xidwatch/state.json").read_text(encoding="utf-8"))
        return bool(state["d_state"]["up"])

    def incident(self, label: str) -> dict[str, Any]:
        """The active incident of a GPU."""
        state = json.loads(self.machine.file("/run/xidwatch/state.json").read_text(encoding="utf-8"))
        return next((one for one in state["incidents"] if label in one["gpus"]), {})


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A machine on which an operator has installed xidwatch, and has started neither service yet."""
    skip_unless_possible(nspawn.impossible())
    folder = tmp_path_factory.mktemp("machine")
    wheels = nspawn.wheels(tmp_path_factory.mktemp("wheels"))
    with nspawn.booted(folder, read_only=[(wheels, "/wheels")]) as machine:
        machine.run("python3", "-m", "venv", "--system-site-packages", "/opt/xidwatch")
        machine.run("/opt/xidwatch/bin/pip", "install", "--quiet", "--no-index", "--find-links=/wheels", "xidwatch[watch]")
        machine.run(XIDWATCH, "install-service")
        port = free_port()
        machine.write("/usr/local/sbin/on-gpu-incident", PROGRAM)
        config = machine.file("/etc/xidwatch/config.toml").read_text(encoding="utf-8")
        config = config.replace('#listen = "127.0.0.1:19079"', f'listen = "127.0.0.1:{port}"')
        machine.write("/etc/xidwatch/config.toml", config + '[hook]\ncommand = ["/usr/local/sbin/on-gpu-incident"]\n')
        machine.run("systemctl", "daemon-reload")
        yield Node(machine, port)


def test_it_is_active_once_it_watches(node: Node) -> None:
    """`enable --now` returns when the service has said that it is ready; both sources are read, the hook follows."""
    node.machine.run("systemctl", "enable", "--now", "xidwatch", "xidwatch-hook")
    states = node.machine.ask("systemctl", "is-active", "xidwatch", "xidwatch-hook").split()
    shown = node.wait_until_it_watches()
    assert ["active", "active"] == states, node.machine.journal("xidwatch")
    assert (1, 1) == (shown.total("xidwatch_source_up", source="kmsg"), shown.total("xidwatch_source_up", source="journal"))
    until(lambda: "follows" in node.show("xidwatch-hook", "StatusText"), what="the hook on the socket")


def test_it_runs_with_one_capability_and_is_killed_last(node: Node) -> None:
    """Nobody's user, CAP_SYSLOG and no other right; the hook has none at all. Killed last, where the machine may ask for that."""
    rights = {}
    for unit in ("xidwatch", "xidwatch-hook"):
        pid = node.show(unit, "MainPID")
        status = dict(re.findall(r"(\w+):\t(.*)", node.machine.run("cat", f"/proc/{pid}/status")))
        rights[unit] = (
            int(status["CapEff"], 16),
            int(status["CapBnd"], 16),
            status["NoNewPrivs"],
            "0" in status["Uid"].split(),
        )
    score = node.machine.run("cat", f"/proc/{node.show('xidwatch', 'MainPID')}/oom_score_adj").strip()
    assert {"xidwatch": (CAP_SYSLOG, CAP_SYSLOG, "1", False), "xidwatch-hook": (0, 0, "1", False)} == rights
    may_ask = int(re.findall(r"CapEff:\t(\w+)", node.machine.run("cat", "/proc/1/status"))[0], 16) & CAP_SYS_RESOURCE
    assert ("-900" if may_ask else "0") == score


def test_anybody_may_ask_for_the_status(node: Node) -> None:
    """state.json and the socket can be read by every user of the node, the history by root."""
    assert "source kmsg: up" in node.machine.run(
        "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", XIDWATCH, "status"
    )
    follow = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/xidwatch/follow.sock'); print(s.recv(1))"
    said = node.machine.run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "python3", "-c", follow)
    assert "b'{'" == said.strip()
    node.xidwatch("history")


def test_a_line_of_user_space_is_untrusted_and_nothing_else(node: Node) -> None:
    """It is counted as untrusted; no series, no incident, no word to the hook comes of it."""
    before = node.scrape().total("xidwatch_source_untrusted_total", source="kmsg")
    write_line(node.gpu.xid(95, 1, UNCONTAINED))
    until(lambda: node.scrape().total("xidwatch_source_untrusted_total", source="kmsg") > before, 5, what="a count")
    shown = node.scrape()
    assert [] == shown.series(gpu=node.gpu.label)
    assert 0 == shown.total("xidwatch_injection_accepted")
    assert ({}, []) == (node.incident(node.gpu.label), node.told(node.gpu.label))


def test_a_line_is_in_the_metrics_and_at_the_hook_within_a_second(node: Node) -> None:
    """With the switch for tests in a drop-in, a line written to /dev/kmsg is counted, judged and told within a second."""
    switch = f"[Service]\nExecStart=\nExecStart={XIDWATCH} watch --accept-injected\n"
    node.machine.write("/etc/systemd/system/xidwatch.service.d/test.conf", switch)
    node.machine.run("systemctl", "daemon-reload")
    node.machine.run("systemctl", "restart", "xidwatch")
    assert 1 == node.wait_until_it_watches().total("xidwatch_injection_accepted")
    until(lambda: "follows" in node.show("xidwatch-hook", "StatusText"), what="the hook on the socket")
    wrote_s, gpu = time.monotonic(), Gpu()
    write_line(gpu.xid(95, 2, UNCONTAINED))
    until(lambda: node.scrape().total("xidwatch_xid_events_total", gpu=gpu.label, xid="95") == 1, 5, what="a count")
    counted_s = time.monotonic() - wrote_s
    until(lambda: node.told(gpu.label), 5, what="the hook")
    told_s = time.monotonic() - wrote_s
    until(
        lambda: node.scrape().total("xidwatch_incident_active", gpu=gpu.label, severity="critical") == 1, 5, what="an incident"
    )
    assert (True, True) == (counted_s < 1, told_s < 1), (counted_s, told_s)
    assert ["opened"] == node.told(gpu.label)


def test_first_event_ever_pages_and_its_end_resolves_the_page(node: Node, tmp_path: Path) -> None:
    """A real Prometheus with the shipped rules fires on it, a real Alertmanager tells the pager, twice in all."""
    for program in ("prometheus", "prometheus-alertmanager"):
        skip_unless_possible(None if shutil.which(program) else f"needs: apt-get install {program}")
    gpu, rules = Gpu(), (ROOT / "prometheus" / "xidwatch.rules.yml").read_text(encoding="utf-8")
    # Only the times are made short: the rule looks back for minutes, over a lost scrape.
    rules = re.sub(r'interval: "15s"', 'interval: "1s"', re.sub(r"\[5m\]", "[5s]", rules))
    (tmp_path / "xidwatch.rules.yml").write_text(rules, encoding="utf-8")
    with receiving() as (hook_port, received):
        route = "receiver: pager, group_by: [alertname, gpu], group_wait: 0s, group_interval: 1s"
        pager = f"{{url: 'http://127.0.0.1:{hook_port}/', send_resolved: true}}"
        alertmanager = f"route: {{{route}}}\nreceivers: [{{name: pager, webhook_configs: [{pager}]}}]\n"
        with running_alertmanager(tmp_path, alertmanager) as alerts_to:
            prometheus = (
                "global: {scrape_interval: 500ms, evaluation_interval: 1s}\n"
                f"rule_files: [{tmp_path / 'xidwatch.rules.yml'}]\n"
                f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{alerts_to.removeprefix('http://')}']}}]}}]}}\n"
                f"scrape_configs: [{{job_name: xidwatch, static_configs: [{{targets: ['127.0.0.1:{node.port}']}}]}}]\n"
            )
            with running_prometheus(tmp_path, prometheus) as address:
                until(lambda: ask(address, "xidwatch_build_info"), what="a scrape before the event")
                write_line(gpu.xid(95, 3, UNCONTAINED))
                firing = f'ALERTS{{alertname="XidwatchIncidentCritical",alertstate="firing",gpu="{gpu.label}"}}'
                until(lambda: ask(address, firing), what="a firing alert")
                assert "firing" == _paged(received, gpu.label)
                node.xidwatch("incident", "close", node.incident(gpu.label)["id"], "--reason", "card replaced")
                assert "resolved" == _paged(received, gpu.label)
                assert [] == ask(address, firing)
    until(lambda: node.told(gpu.label)[-1:] == ["ended"], what="the hook")


def _paged(received: Any, gpu: str) -> str:
    """What the pager is next told of the critical incident of a GPU."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        _, message = received.get(timeout=60)
        for alert in message["alerts"]:
            if (alert["labels"].get("alertname"), alert["labels"].get("gpu")) == ("XidwatchIncidentCritical", gpu):
                return str(alert["status"])
    raise AssertionError("no page")


def test_nobody_is_told_during_maintenance(node: Node) -> None:
    """The hook hears nothing while it lasts; what is left of it afterwards is told."""
    gpu = Gpu()
    node.xidwatch("maintenance", "start", "--for", "1h", "--reason", "cable")
    until(lambda: node.scrape().total("xidwatch_maintenance") == 1, what="maintenance")
    write_line(gpu.xid(95, 4, UNCONTAINED))
    until(lambda: node.scrape().total("xidwatch_incident_active", gpu=gpu.label) == 1, 10, what="an incident")
    assert [] == node.told(gpu.label)
    node.xidwatch("maintenance", "end")
    node.wait_until_told(gpu.label, "opened")


def test_a_broken_rule_leaves_the_old_ones_in_force(node: Node) -> None:
    """After `reload` the metric is 0 and the journal names file and line; events go on; mended, it is 1 again."""
    gpu, good = Gpu(), node.scrape()
    assert 1 == good.total("xidwatch_rules_reload_success")
    node.machine.write("/etc/xidwatch/rules.d/site.toml", '[[rule]]\nid = "xid-95"\nseverity = "very"\n')
    node.machine.run("systemctl", "reload", "xidwatch")
    until(lambda: node.scrape().total("xidwatch_rules_reload_success") == 0 and good, 10, what="the failed reload")
    until(lambda: "site.toml" in node.machine.journal("xidwatch"), what="the mistakes in the journal")
    assert "active" == node.machine.ask("systemctl", "is-active", "xidwatch")
    write_line(gpu.xid(95, 5, UNCONTAINED))
    until(
        lambda: node.scrape().total("xidwatch_incident_active", gpu=gpu.label, severity="critical") == 1, 5, what="an incident"
    )
    node.machine.write("/etc/xidwatch/rules.d/site.toml", "")
    node.machine.run("systemctl", "reload", "xidwatch")
    until(lambda: node.scrape().total("xidwatch_rules_reload_success") == 1, 10, what="the good reload")


def test_killed_it_comes_back_and_nothing_is_lost(node: Node) -> None:
    """kill -9 in the middle of a stream of events, twice: systemd starts it again, each event is kept and counted once."""
    gpu, number, ending = Gpu(), 0, threading.Event()

    def stream() -> None:
        nonlocal number
        while not ending.wait(0.02):
            number += 1
            write_line(gpu.xid(43, FIRST_PID + number))

    writer = threading.Thread(target=stream)
    writer.start()
    try:
        for _ in range(2):
            pid, counted = node.show("xidwatch", "MainPID"), node.scrape().total("xidwatch_xid_events_total", gpu=gpu.label)
            until(partial(_counts_more, node, gpu.label, counted), what="events")
            node.machine.run("kill", "-9", pid)
            until(lambda pid=pid: node.show("xidwatch", "MainPID") not in (pid, "0"), what="another start")  # type: ignore[misc]
            node.wait_until_it_watches()
    finally:
        ending.set()
        writer.join()
    until(lambda: node.scrape().total("xidwatch_xid_events_total", gpu=gpu.label, xid="43") == number, what="every event")
    until(lambda: node.scrape().total("xidwatch_history_backlog") == 0, what="the history on the disk")
    kept = [json.loads(line)["item"] for line in node.xidwatch("history", "--gpu", gpu.label, "--format", "json").splitlines()]
    assert list(range(1, number + 1)) == sorted(item["pid"] - FIRST_PID for item in kept)
    assert "2" == node.show("xidwatch", "NRestarts")


def _counts_more(node: Node, label: str, than: float) -> bool:
    shown = scraped(node.port)
    return shown is not None and shown.total("xidwatch_xid_events_total", gpu=label) > than + 10


def test_restart_of_the_daemon_tells_the_hook_nothing_twice(node: Node) -> None:
    """The hook comes back to the daemon by itself; of every incident it was told each change once."""
    until(lambda: "follows" in node.show("xidwatch-hook", "StatusText"), what="the hook on the socket")
    gpu = Gpu()
    write_line(gpu.xid(95, 6, UNCONTAINED))
    node.wait_until_told(gpu.label, "opened")
    node.machine.run("systemctl", "restart", "xidwatch", "xidwatch-hook")
    node.wait_until_it_watches()
    after = Gpu()
    write_line(after.xid(95, 7, UNCONTAINED))
    node.wait_until_told(after.label, "opened")
    assert ["opened"] == node.told(gpu.label)


def test_another_machine_scrapes_it_only_after_two_steps(node: Node) -> None:
    """With another address in config.toml alone nobody outside is answered; with the drop-in `remote-scrape` too, he is."""
    own_address = _address_of_this_machine()
    skip_unless_possible(None if own_address else "needs an address besides the loopback")
    if _reaches(node, node.port):
        pytest.skip("this machine's kernel or container has no BPF filter for addresses (IPAddressDeny=)")
    config = node.machine.file("/etc/xidwatch/config.toml").read_text(encoding="utf-8")
    node.machine.write("/etc/xidwatch/config.toml", config.replace("127.0.0.1:", ":"))
    node.machine.run("systemctl", "restart", "xidwatch")
    node.wait_until_it_watches()
    with pytest.raises(OSError, match="timed out"), socket.create_connection((own_address, node.port), timeout=0.5):
        pass
    node.xidwatch("install-service", "--drop-in", "remote-scrape")
    node.machine.run("systemctl", "daemon-reload")
    node.machine.run("systemctl", "restart", "xidwatch")
    node.wait_until_it_watches()
    with socket.create_connection((own_address, node.port), timeout=5):
        pass


def _address_of_this_machine() -> str:
    """The address that it would use towards others; "" without one. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))
        found = str(probe.getsockname()[0])
        return "" if found.startswith("127.") else found
    return ""


def _reaches(node: Node, port: int) -> bool:
    """Whether a unit that may talk to nobody reaches a port of the loopback."""
    script = f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=1); print('reached')"
    return "reached" in node.machine.ask(
        "systemd-run", "--quiet", "--wait", "--pipe", "-p", "IPAddressDeny=any", "python3", "-c", script
    )


def blind_spots(node: Node) -> list[str]:
    """What the service says that it cannot see of tasks."""
    until(node.looks_at_tasks, what="its word in state.json")
    state = json.loads(node.machine.file("/run/xidwatch/state.json").read_text(encoding="utf-8"))
    return [spot.partition(":")[0] for spot in state["d_state"]["cannot_see"]]


def test_tasks_are_seen_by_default_and_their_waits_with_the_drop_ins(node: Node) -> None:
    """Without further rights the service sees all tasks and says what it does not see; each drop-in adds what it promises."""
    until(lambda: node.scrape().total("xidwatch_task_scan_tasks") > 3, what="the look at all tasks")
    waits, stacks = "what tasks wait in and which devices they hold", "kernel stacks"
    inside = ["whose job a pid in the kernel's log is"]
    assert [waits, stacks, *inside] == blind_spots(node)
    assert "not seen: kernel stacks" in node.machine.ask(XIDWATCH, "status")
    for more, left in (("d-state", [stacks, *inside]), ("d-state-stack", inside)):
        node.xidwatch("install-service", "--drop-in", more)
        node.machine.run("systemctl", "daemon-reload")
        node.machine.run("systemctl", "restart", "xidwatch")
        node.wait_until_it_watches()
        until(lambda: node.scrape().total("xidwatch_task_scans_total"), what="a look at all tasks")
        assert left == blind_spots(node), node.machine.journal("xidwatch")


def test_stop_ends_within_its_time_and_uninstall_leaves_nothing_running(node: Node) -> None:
    """Stopped by SIGTERM, not killed, with exit status 0; without its units systemd knows it no more."""
    began_s = time.monotonic()
    node.machine.run("systemctl", "stop", "xidwatch", "xidwatch-hook")
    took_s = time.monotonic() - began_s
    ends = [(node.show(unit, "Result"), node.show(unit, "ExecMainStatus")) for unit in ("xidwatch", "xidwatch-hook")]
    assert [("success", "0"), ("success", "0")] == ends, node.machine.journal("xidwatch")
    assert took_s < 10
    node.machine.file("/etc/systemd/system/xidwatch.service.d/test.conf").unlink()
    node.xidwatch("install-service", "--uninstall")
    node.machine.run("systemctl", "daemon-reload")
    assert ["not-found", "not-found"] == [node.show(unit, "LoadState") for unit in ("xidwatch", "xidwatch-hook")]
    assert node.machine.file("/var/lib/private/xidwatch/history.db").exists()
