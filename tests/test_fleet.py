"""Several nodes in one report: which fault began it, and what elsewhere followed from it."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.postmortems import SAME_EVERYWHERE
from xidwatch.core.classify import RuleTable
from xidwatch.core.incident import Incident, Postmortem
from xidwatch.explain import explain
from xidwatch.render.answer import do_now, for_the_job
from xidwatch.render.lanes import chart
from xidwatch.render.steps import known_of
from xidwatch.render.timeline import rows

T0 = datetime(2026, 11, 30, 10, 0, 0, tzinfo=timezone.utc)
LOST = "NVRM: Xid (PCI:0000:9b:00): 79, pid=4711, name=python3, GPU has fallen off the bus."
DOWN = "mlx5_core 0000:5e:00.0 ibs1: Link down"
TORN_DOWN = "NVRM: Xid (PCI:0000:17:00): 45, pid=5000, name=python3, Ch 00000008"
MODEL_BUG = (
    "NVRM: Xid (PCI:0000:3b:00): 31, pid=900, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS "
    "GPCCLIENT_T1_2 faulted @ 0x7f21_4a000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
)
BUS = "RuntimeError: CUDA error: unspecified launch failure"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def kernel(host: str, message: str, after_s: float = 0.0) -> str:
    """A kernel line in syslog."""
    return f"{(T0 + timedelta(seconds=after_s)).isoformat()} {host} kernel: {message}\n"


def waits(ranks: range, after_s: float = 600.0, *, seq: int = 1580, op: str = "ALLREDUCE", limit_s: int = 600) -> str:
    """The watchdogs of some ranks, in a log that names no host."""
    at = T0 + timedelta(seconds=after_s)
    return "".join(
        f"[rank{rank}]:[E{at:%m%d %H:%M:%S}.{rank:06d} ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
        f"timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=4, NumelOut=4, Timeout(ms)={limit_s * 1000}) ran for "
        f"{limit_s * 1000 + 60} milliseconds before timing out.\n"
        for rank in ranks
    )


@pytest.fixture
def fleet(tmp_path: Path, rules: RuleTable) -> Fleet:
    """Folders of nodes to be filled."""
    return Fleet(tmp_path, rules)


class Fleet:
    """Nodes as folders: `fleet(node01={"kern.log": ...})` explains them together."""

    def __init__(self, root: Path, rules: RuleTable) -> None:
        self.root, self.rules = root, rules

    def __call__(self, **nodes: dict[str, str]) -> Postmortem:
        """The postmortem of these nodes: for each, its files."""
        for node, files in nodes.items():
            (self.root / node).mkdir()
            for name, text in files.items():
                (self.root / node / name).write_text(text, encoding="utf-8")
        paths = [f"{self.root / node}/" for node in nodes]
        return explain(paths, SAME_EVERYWHERE, self.rules)


def kinds(incident: Incident) -> list[str]:
    """What is in it, each kind once."""
    return sorted({member.finding.event.kind for member in incident.members})


def test_lost_gpu_and_time_outs_elsewhere(fleet: Fleet) -> None:
    """A GPU lost on one node and time-outs on two others are one incident of three nodes, the GPU its root."""
    found = fleet(
        node01={"kern.log": kernel("node01", LOST)},
        node02={"train.log": waits(range(8, 16)), "kern.log": kernel("node02", TORN_DOWN, 602.0)},
        node03={"train.log": waits(range(16, 24), 601.0)},
    )
    incident = found.incidents[0]
    root = incident.members[incident.root].finding.event
    assert (79, ("node01", "node02", "node03")) == (root.code, incident.hosts)
    assert ("platform", "hardware", "critical", "reboot_node") == (
        incident.fault_class, incident.origin, incident.severity, incident.recovery.rung,
    )  # fmt: skip
    assert "of node01" in incident.sentence
    assert "made 16 NCCL ranks on node02 and node03 time out" in incident.sentence
    assert do_now(fleet.rules, incident).endswith("reboot the node (node01)")
    assert (["0000:9b:00.0"], ["node01"]) == (known_of(incident)["gpu"], known_of(incident)["node"])
    assert any("clocks of node01, node02, node03" in text for text in incident.unknowns)
    assert any("whether node01 took part" in text for text in incident.unknowns)


def test_a_lane_for_each_node(fleet: Fleet) -> None:
    """The drawing has a lane for the GPU and one for each node, the cause's first; no row says again whose lane it is."""
    drawn = chart(fleet(
        node01={"kern.log": kernel("node01", LOST)},
        node02={"train.log": waits(range(8, 16))},
        node03={"train.log": waits(range(16, 24))},
    ))  # fmt: skip
    assert drawn is not None
    assert ["GPU 0000:9b:00.0 in node01", "Node node02", "Node node03"] == [lane.title for lane in drawn.lanes]
    assert not any("node0" in track.row.text for lane in drawn.lanes for track in lane.tracks)


def test_link_down_and_time_outs_elsewhere(fleet: Fleet) -> None:
    """A link that went down on one node makes the time-outs on the others the network's."""
    found = fleet(
        node01={"kern.log": kernel("node01", DOWN)},
        node02={"train.log": waits(range(8, 16))},
        node03={"train.log": waits(range(16, 24))},
    )
    (incident,) = found.incidents
    assert ("platform", "network", "warning") == (incident.fault_class, incident.origin, incident.severity)
    assert {"node01", "node02", "node03"} == set(incident.hosts)
    assert "check_network" == incident.investigate[0].rung
    assert incident.sentence.startswith("The network link ibs1 of node01 went down at 10:00:00")
    assert [("root", "link down"), ("consequence", "NCCL"), ("consequence", "NCCL")] == [
        (row.role, row.name) for row in rows(incident)
    ]
    drawn = chart(found)
    assert drawn is not None
    assert "Node node01" == drawn.lanes[0].title


def test_two_jobs_stay_two(fleet: Fleet) -> None:
    """Two faults on two nodes and the time-outs of two jobs are two incidents, each with its own cause."""
    found = fleet(
        node01={"kern.log": kernel("node01", LOST)},
        node02={"train.log": waits(range(8, 16))},
        node03={"kern.log": kernel("node03", DOWN, 40.0)},
        node04={"train.log": waits(range(8, 16), 640.0, seq=99, op="ALLGATHER")},
    )
    assert [("node01", "node02"), ("node03", "node04")] == sorted(tuple(sorted(one.hosts)) for one in found.incidents)
    assert found.first_fault is found.incidents[0]


def test_faults_without_time_outs_stay_apart(fleet: Fleet) -> None:
    """The same fault on two nodes at one moment is two incidents: nothing ties them."""
    found = fleet(node01={"kern.log": kernel("node01", LOST)}, node02={"kern.log": kernel("node02", LOST)})
    assert [("node01",), ("node02",)] == sorted(one.hosts for one in found.incidents)


def test_a_fault_long_before_is_another(fleet: Fleet) -> None:
    """A fault an hour before the ranks began to wait, or after they gave up, did not begin it."""
    for number, after_s in enumerate((-3600.0, 700.0)):
        found = fleet(
            **{
                f"a{number}": {"kern.log": kernel(f"a{number}", LOST, after_s)},
                f"b{number}": {"train.log": waits(range(8))},
            }
        )
        assert [["nccl_timeout"], ["xid"]] == sorted(kinds(one) for one in found.incidents)


def test_an_application_fault_of_another_job(fleet: Fleet) -> None:
    """An application's fault minutes before, as some program always has somewhere, is not taken for the cause; at the moment it is."""
    found = fleet(node01={"kern.log": kernel("node01", MODEL_BUG, -300.0)}, node02={"train.log": waits(range(8))})
    assert 2 == len(found.incidents)
    found = fleet(node03={"kern.log": kernel("node03", MODEL_BUG, -3.0)}, node04={"train.log": waits(range(8))})
    assert [["nccl_timeout", "xid"]] == [kinds(one) for one in found.incidents]


def test_same_collective_on_nodes_without_a_cause(fleet: Fleet) -> None:
    """Ranks of three nodes that waited for the same collective are one incident; the same rank twice is another job's."""
    found = fleet(
        node01={"train.log": waits(range(8))}, node02={"train.log": waits(range(8, 16))}, node03={"train.log": waits(range(8))}
    )
    assert [2, 1] == sorted((len(one.hosts) for one in found.incidents), reverse=True)


def test_clock_that_runs_behind(fleet: Fleet) -> None:
    """The cause is found although its node's clock is ahead by less than what is allowed for, and the spread is told."""
    found = fleet(
        node01={"kern.log": kernel("node01", LOST, 25.0)},
        node02={"train.log": waits(range(8, 16), 20.0, limit_s=20)},
        node03={"train.log": waits(range(16, 24), 28.0, limit_s=20)},
    )
    (incident,) = found.incidents
    assert 79 == incident.members[incident.root].finding.event.code
    assert any("8 s apart" in text for text in incident.unknowns)


def test_logs_without_a_common_clock(fleet: Fleet) -> None:
    """Without times the only fault that stopped a program is taken for the cause; of two none is."""
    dmesg = f"[ 1234.5] {LOST}\n"
    found = fleet(node01={"dmesg": dmesg}, node02={"train.log": waits(range(8, 16))})
    assert [("node01", "node02")] == [one.hosts for one in found.incidents]
    found = fleet(node03={"dmesg": dmesg}, node04={"train.log": waits(range(8, 16))}, node05={"dmesg": dmesg})
    assert [1, 1, 1] == [len(one.hosts) for one in found.incidents]


def test_program_in_local_time(fleet: Fleet) -> None:
    """Whole hours between a node's only fault and its ranks' waiting are a zone that the program does not write; other times not."""
    found = fleet(node01={"kern.log": kernel("node01", LOST), "train.log": waits(range(8), 600.0 + 9 * 3600)})
    assert [["nccl_timeout", "xid"]] == [kinds(one) for one in found.incidents]
    found = fleet(node02={"kern.log": kernel("node02", LOST), "train.log": waits(range(8), 600.0 + 8.5 * 3600)})
    assert 2 == len(found.incidents)


def test_memory_of_one_rank(fleet: Fleet) -> None:
    """A rank that ran out of memory is why the others waited; a job without that rank has nothing to do with it."""
    line = "[rank3]: " + OOM + "\n"
    stamped = f"{T0.isoformat()} {line}"
    found = fleet(node01={"train.log": stamped}, node02={"train.log": waits(range(8, 16))})
    assert [["nccl_timeout", "torch_oom"]] == [kinds(one) for one in found.incidents]
    found = fleet(node03={"train.log": stamped.replace("rank3", "rank9")}, node04={"train.log": waits(range(8, 16))})
    assert 2 == len(found.incidents)


def test_host_of_the_lines_else_of_the_folder(fleet: Fleet) -> None:
    """Within a node's folder a log without hosts belongs to the host that the others name."""
    found = fleet(
        rack7={"kern.log": kernel("gpu-a07", LOST), "train.log": f"{T0.isoformat()} CUDA error: unspecified launch failure\n"},
        rack8={"train.log": waits(range(8, 16))},
    )
    (incident,) = found.incidents
    assert ("gpu-a07", "rack8") == incident.hosts
    assert ["cuda_error", "nccl_timeout", "xid"] == kinds(incident)


def test_files_of_nodes(tmp_path: Path, rules: RuleTable) -> None:
    """Files of one name in several folders are of the nodes that the folders are named after."""
    for node, text in (("node01", waits(range(8))), ("node02", waits(range(8, 16)))):
        (tmp_path / node).mkdir()
        (tmp_path / node / "train.log").write_text(text)
    found = explain([str(tmp_path / node / "train.log") for node in ("node01", "node02")], SAME_EVERYWHERE, rules)
    assert [("node01", "node02")] == [one.hosts for one in found.incidents]


def test_a_machine_is_no_fleet(tmp_path: Path, rules: RuleTable) -> None:
    """The folders of one machine are not taken for nodes."""
    for inner in ("var", "run"):
        (tmp_path / "host" / inner).mkdir(parents=True)
        (tmp_path / "host" / inner / "dmesg").write_text(f"[  10.0] {LOST}\n")
    found = explain([str(tmp_path / "host")], SAME_EVERYWHERE, rules)
    assert [()] == [one.hosts for one in found.incidents]


def test_kernel_fault_and_its_echo_across_files(tmp_path: Path, rules: RuleTable) -> None:
    """The program's log, without host or time, tells of the kernel's fault: one incident, the kernel's as root."""
    (tmp_path / "kern.log").write_text(
        kernel("gpu01", MODEL_BUG.replace("pid=900", "pid=901"), -9000.0) + kernel("gpu01", MODEL_BUG)
    )
    (tmp_path / "app.log").write_text("RuntimeError: CUDA error: an illegal memory access was encountered\n")
    found = explain([str(tmp_path / "app.log"), str(tmp_path / "kern.log")], SAME_EVERYWHERE, rules)
    joined = [one for one in found.incidents if "cuda_error" in kinds(one)]
    assert [(31, 900)] == [
        (one.members[one.root].finding.event.code, one.members[one.root].finding.event.pid) for one in joined
    ]
    assert 2 == len(found.incidents)


def test_echo_in_another_time_zone(tmp_path: Path, rules: RuleTable) -> None:
    """A program that writes local time without a zone is known by its pid."""
    (tmp_path / "kern.log").write_text(kernel("gpu01", MODEL_BUG))
    local = (T0 + timedelta(hours=9, seconds=1)).replace(tzinfo=None).isoformat()
    (tmp_path / "app.log").write_text(
        f"{local} (Worker pid=900) RuntimeError: CUDA error: an illegal memory access was encountered\n"
    )
    found = explain([str(tmp_path / "app.log"), str(tmp_path / "kern.log")], SAME_EVERYWHERE, rules)
    assert [["cuda_error", "xid"]] == [kinds(one) for one in found.incidents]


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: CUDA error: device-side assert triggered",
        "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
    ],
)
def test_no_echo_of_a_lost_gpu(line: str, tmp_path: Path, rules: RuleTable) -> None:
    """What a lost GPU does not cause is not joined to it, however near."""
    (tmp_path / "app.log").write_text(f"{T0.isoformat()} {line}\n")
    fault = MODEL_BUG if "NVLink" in line else LOST
    (tmp_path / "kern.log").write_text(kernel("gpu01", fault))
    found = explain([str(tmp_path / "app.log"), str(tmp_path / "kern.log")], SAME_EVERYWHERE, rules)
    assert 2 == len(found.incidents)


def test_two_hundred_nodes(tmp_path: Path, rules: RuleTable) -> None:
    """Ten times the nodes take about ten times as long, not a hundred."""
    took = []
    for count in (20, 200):
        paths = []
        for number in range(count):
            node = tmp_path / f"{count}" / f"node{number:03d}"
            node.mkdir(parents=True)
            (node / "train.log").write_text(waits(range(number * 8, number * 8 + 8)))
            (node / "kern.log").write_text(kernel(node.name, LOST if number == 0 else DOWN, number * 2.0))
            paths.append(str(node))
        began = time.process_time()
        found = explain(paths, SAME_EVERYWHERE, rules)
        took.append(time.process_time() - began)
        assert [count] == [len(one.hosts) for one in found.incidents if one.severity == "critical"]
        (whole,) = (one for one in found.incidents if one.severity == "critical")
        assert any(row.text.startswith(f"{count} nodes: ") for row in rows(whole))
    assert took[1] < 40 * took[0]


MANAGEMENT = "igb 0000:02:00.0 eno1: igb: eno1 NIC Link is Down"
FABRIC = "mlx5_core 0000:17:00.0 ib0: Link down"
BOTH = waits(range(16, 24)), waits(range(24, 32), 601.0)


@pytest.mark.parametrize(("link", "link_s", "gpu_s"), [(MANAGEMENT, 2.0, 0.0), (FABRIC, 0.5, -20.0), (MANAGEMENT, 0.0, 25.0)])
def test_a_lost_gpu_before_a_link_elsewhere(link: str, link_s: float, gpu_s: float, fleet: Fleet) -> None:
    """A lost GPU is the root although a link on a node without ranks dropped nearer to the moment at which they began to wait."""
    found = fleet(
        node01={"kern.log": kernel("node01", LOST, gpu_s), "train.log": waits(range(8))},
        node02={"train.log": BOTH[0]},
        node03={"train.log": BOTH[1]},
        node04={"kern.log": kernel("node04", link, link_s)},
    )
    incident = found.incidents[0]
    assert (None, 79) == (incident.cause, incident.members[incident.root].finding.event.code)
    assert "node04" not in incident.hosts
    assert "made 24 NCCL ranks" in incident.sentence
    assert () == incident.rivals


def test_a_lost_gpu_beside_a_link_of_the_job(fleet: Fleet) -> None:
    """A lost GPU and a fabric link of a node with ranks within what clocks differ by: the GPU first, both named, nothing claimed."""
    found = fleet(
        node01={"kern.log": kernel("node01", LOST)},
        node02={"train.log": BOTH[0], "kern.log": kernel("node02", FABRIC, 1.0)},
        node03={"train.log": BOTH[1]},
    )
    (incident,) = found.incidents
    assert (None, 79) == (incident.cause, incident.members[incident.root].finding.event.code)
    assert "made" not in incident.sentence
    assert "because of this or the network link ib0 of node02 that went down" in incident.sentence
    assert any("ib0 of node02" in text for text in incident.unknowns)
    assert ["link down"] == [row.name for row in rows(incident) if row.role == "context"]


def test_two_lost_gpus(fleet: Fleet) -> None:
    """Of two GPUs lost on two nodes within what clocks differ by either may have begun it, and the sentence says so."""
    found = fleet(
        node01={"kern.log": kernel("node01", LOST)},
        node02={"train.log": BOTH[0]},
        node03={"train.log": BOTH[1]},
        node04={"kern.log": kernel("node04", LOST, 3.0)},
    )
    assert 1 == sum(
        "timed out, because of this or Xid 79 on GPU 0000:9b:00.0 of node0" in one.sentence for one in found.incidents
    )
    assert not any("made" in one.sentence for one in found.incidents)


def test_a_management_port_alone(fleet: Fleet) -> None:
    """An ordinary Ethernet port that went down is named, and not said to have done it; far off it is nothing."""
    found = fleet(
        node02={"train.log": BOTH[0]}, node03={"train.log": BOTH[1]}, node04={"kern.log": kernel("node04", MANAGEMENT, 2.0)}
    )
    (incident,) = found.incidents
    assert incident.cause is not None
    assert "; 16 NCCL ranks on node02 and node03 timed out, because of this or not" in incident.sentence
    found = fleet(
        node12={"train.log": BOTH[0]}, node13={"train.log": BOTH[1]}, node14={"kern.log": kernel("node14", MANAGEMENT, -200.0)}
    )
    assert [None] == [one.cause for one in found.incidents]


def test_a_fabric_link_goes_before_a_management_port(fleet: Fleet) -> None:
    """Of two links that dropped the one that collectives go over is the cause, be it named like the other kind."""
    fabric = "mlx5_core 0000:17:00.0 eth2: Link down"
    found = fleet(
        node02={"train.log": BOTH[0]},
        node03={"train.log": BOTH[1]},
        node04={"kern.log": kernel("node04", MANAGEMENT, 1.0) + kernel("node04", fabric, 5.0)},
    )
    (incident,) = found.incidents
    assert incident.sentence.startswith("The network link eth2 of node04 went down")
    assert "made 16 NCCL ranks" in incident.sentence


def test_a_link_that_blinked(fleet: Fleet) -> None:
    """A link that was down for two seconds is not the cause, but it is told, and why it is not."""
    found = fleet(
        node02={"train.log": BOTH[0]},
        node03={"train.log": BOTH[1]},
        node04={"kern.log": kernel("node04", FABRIC, 1.0) + kernel("node04", FABRIC.replace("down", "up"), 2.5)},
    )
    (incident,) = found.incidents
    assert incident.cause is None
    assert ["the network link ib0 of node04: it was up again after 1.5 s, which NCCL outlasts"] == list(incident.excluded)
    assert ["link down"] == [row.name for row in rows(incident) if row.role == "context"]


@pytest.mark.parametrize("late", [0, 150, 400, 511])
def test_one_of_many_ranks_differs(late: int, tmp_path: Path, rules: RuleTable) -> None:
    """Of 512 ranks in one log all are counted, and the one that differs is named, told apart and not among those that waited."""
    lines = [waits(range(rank, rank + 1)) for rank in range(512)]
    lines[late] = waits(range(late, late + 1), seq=1579, op="ALLGATHER")
    (tmp_path / "train.log").write_text("".join(lines))
    (incident,) = explain([str(tmp_path / "train.log")], SAME_EVERYWHERE, rules).incidents
    first = 1 if late == 0 else 0
    assert incident.sentence.startswith(f"Ranks {first}, {first + 1}, {first + 2}, {first + 3} and 507 more waited in vain")
    assert f"rank {late} was furthest behind, at ALLGATHER number 1,579" in incident.sentence
    assert "ALLREDUCE number 1,580" in incident.sentence
    assert 512 == sum(member.count for member in incident.members)
    own = [row for row in rows(incident) if f"ALLGATHER seq 1579 rank {late} " in row.text]
    assert [1] == [len(row.members) for row in own]
    assert (for_the_job(incident) or "").startswith(f"Look at rank {late} first")


def test_ten_thousand_ranks(tmp_path: Path, rules: RuleTable) -> None:
    """The ranks of a very large job are counted, not those that are kept to be shown."""
    (tmp_path / "train.log").write_text(waits(range(10_000)))
    (tmp_path / "kern.log").write_text(kernel("node01", LOST))
    paths = [str(tmp_path / name) for name in ("train.log", "kern.log")]
    (incident,) = explain(paths, SAME_EVERYWHERE, rules).incidents
    assert "made 10,000 NCCL ranks" in incident.sentence
    assert len(incident.members) < 500


@pytest.mark.parametrize("given", [("a/node01", "b/node01"), ("a/node01/train.log", "b/node01/train.log")])
def test_two_folders_of_one_name(given: tuple[str, ...], tmp_path: Path, rules: RuleTable) -> None:
    """Folders of one name with the same logs in them are two nodes, named by what tells them apart."""
    for parent, ranks in (("a", range(8)), ("b", range(8, 16))):
        (tmp_path / parent / "node01").mkdir(parents=True)
        (tmp_path / parent / "node01" / "train.log").write_text(waits(ranks))
    found = explain([str(tmp_path / name) for name in given], SAME_EVERYWHERE, rules)
    assert [("a/node01", "b/node01")] == [one.hosts for one in found.incidents]


def test_one_node_in_two_folders(tmp_path: Path, rules: RuleTable) -> None:
    """Logs of different kinds, each in a folder of the node's name, are one node's."""
    for parent, name, text in (("kernel", "kern.log", kernel("node01", LOST)), ("app", "train.log", waits(range(8)))):
        (tmp_path / parent / "node01").mkdir(parents=True)
        (tmp_path / parent / "node01" / name).write_text(text)
    found = explain([str(tmp_path / parent / "node01") for parent in ("kernel", "app")], SAME_EVERYWHERE, rules)
    assert [("node01",)] == [one.hosts for one in found.incidents]


def test_a_log_without_a_zone(fleet: Fleet) -> None:
    """Where only whole hours keep ranks that waited from a fault, the report says which option settles it; else nothing."""
    found = fleet(node01={"kern.log": kernel("node01", LOST)}, node02={"train.log": waits(range(8), 600.0 - 5 * 3600)})
    hints = [text for one in found.incidents for text in one.unknowns if "`--tz`" in text]
    assert ["5 hours later they would stand beside Xid 79 of node01: `--tz` says it"] == [
        text.split(", and ")[1] for text in hints
    ]
    found = fleet(node03={"kern.log": kernel("node03", LOST)}, node04={"train.log": waits(range(8), 600.0 - 5.4 * 3600)})
    assert not any("`--tz`" in text for one in found.incidents for text in one.unknowns)
    other = f"{T0 - timedelta(hours=5):%Y-%m-%d %H:%M:%S} {BUS}\n"
    found = fleet(node05={"kern.log": kernel("node05", LOST)}, node06={"train.log": other})
    assert not any("`--tz`" in text for one in found.incidents for text in one.unknowns)


def test_an_echo_without_a_zone(tmp_path: Path, rules: RuleTable) -> None:
    """A program's error hours from the fault that it tells of is hinted at, too."""
    (tmp_path / "kern.log").write_text(kernel("gpu01", MODEL_BUG))
    local = f"{T0 - timedelta(hours=5):%Y-%m-%d %H:%M:%S}"
    (tmp_path / "app.log").write_text(f"{local} RuntimeError: CUDA error: an illegal memory access was encountered\n")
    found = explain([str(tmp_path / "app.log"), str(tmp_path / "kern.log")], SAME_EVERYWHERE, rules)
    assert 1 == sum("5 hours later" in text and "Xid 31" in text for one in found.incidents for text in one.unknowns)


def test_a_storm_of_a_program(tmp_path: Path, rules: RuleTable) -> None:
    """The same errors of programs again and again are counted truly, wrapped lines between them are read, and few are parsed."""
    whole = f"{OOM}. GPU 0 has a total capacity of 79.15 GiB of which 1.20 GiB is free.\n"
    broken = f"{OOM}. GPU 1 has a total capacity of 79.15 GiB\n  of which 1.50 GiB is free.\n"
    (tmp_path / "app.log").write_text(whole * 20_000 + broken * 3 + whole * 20_000)
    began = time.process_time()
    found = explain([str(tmp_path / "app.log")], SAME_EVERYWHERE, rules)
    took = time.process_time() - began
    assert 40_003 == sum(member.count for one in found.incidents for member in one.members)
    details = [member.finding.event.detail for one in found.incidents for member in one.members]
    assert {1.2, 1.5} >= {round((getattr(detail, "free", None) or 0) / 2**30, 2) for detail in details}
    assert took < 1  # one by one they take three seconds
