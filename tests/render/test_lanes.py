"""The layout of the timeline: which lane, where on the axis, joined to what."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tests.postmortems import FIXTURES, case_names, explained
from tests.render.conftest import GPU, HOST, SERIAL, UUID, lost_gpu, postmortem_of, torn_down
from xidwatch.core.classify import RuleTable
from xidwatch.core.event import Event
from xidwatch.core.incident import Finding, Incident, Member, Postmortem
from xidwatch.core.record import Record
from xidwatch.render.lanes import Chart, Track, chart


def drawn(postmortem: Postmortem) -> Chart:
    """The layout of a postmortem that has one."""
    found = chart(postmortem)
    assert found is not None
    return found


def tracks(of: Chart) -> list[Track]:
    """Every track, top to bottom."""
    return [track for lane in of.lanes for track in lane.tracks]


def moved(incident: Incident, change: dict[str, object]) -> Incident:
    """The incident with every record changed."""

    def record(old: Record) -> Record:
        return replace(old, **change)  # type: ignore[arg-type]  # test values

    def event(old: Event) -> Event:
        return replace(old, record=record(old.record), last_record=record(old.last_record))

    def member(old: Member) -> Member:
        return replace(old, finding=Finding(event=event(old.finding.event), rule=old.finding.rule), last=event(old.last))

    context = tuple(replace(one, record=record(one.record)) for one in incident.context)
    return replace(incident, members=tuple(member(one) for one in incident.members), context=context)


def test_a_gpu_has_a_lane_with_its_names(off_the_bus: Postmortem) -> None:
    """A lane is a slot with its UUID and serial; the node has one of its own, below."""
    lanes = drawn(off_the_bus).lanes
    assert [(f"GPU {GPU}", (UUID, f"serial {SERIAL}")), (f"Node {HOST}", ())] == [(lane.title, lane.facts) for lane in lanes]


def test_other_nodes_have_lanes_of_their_own(off_the_bus: Postmortem) -> None:
    """What another host's log says stands in that host's lane, below the root's host."""
    there = replace(moved(lost_gpu(), {"host": "node-b"}), hosts=("node-b",))
    titles = [lane.title for lane in drawn(replace(off_the_bus, incidents=(*off_the_bus.incidents, there))).lanes]
    assert [f"GPU {GPU} in {HOST}", f"GPU {GPU} in node-b", f"Node {HOST}", "Node node-b"] == titles


def test_an_unnamed_gpu_is_not_guessed(off_the_bus: Postmortem) -> None:
    """An Xid that names no GPU stands in a lane that says so."""
    event = replace(torn_down(7711, 790, 4100), pci=None)
    incident = lost_gpu()
    nameless = replace(incident.members[-2], finding=replace(incident.members[-2].finding, event=event), last=event)
    found = drawn(replace(off_the_bus, incidents=(replace(incident, members=(*incident.members, nameless)),)))
    assert ("GPU not named", ("the lines do not say which one",)) in [(lane.title, lane.facts) for lane in found.lanes]


def test_a_task_was_blocked_before_the_kernel_said_so(off_the_bus: Postmortem) -> None:
    """A D state's bar begins its blocked seconds before the report and ends at the last report."""
    blocked = next(track for track in tracks(drawn(off_the_bus)) if track.row.name == "D state")
    root = next(track for track in tracks(drawn(off_the_bus)) if track.row.role == "root")
    assert "blocked" == blocked.shape
    assert root.start < blocked.start < blocked.end


def test_a_storm_is_one_bar_with_a_number(off_the_bus: Postmortem) -> None:
    """4,000 repeats are one track that says how many."""
    storms = [track for track in tracks(drawn(off_the_bus)) if track.shape == "storm"]
    assert [("Xid 45", 4000)] == [(track.row.name, track.count) for track in storms]
    assert storms[0].start < storms[0].end


def test_consequences_are_joined_to_their_root(off_the_bus: Postmortem) -> None:
    """Each consequence starts from the root's place, context from nowhere, and the root's line reaches the last of them."""
    found = tracks(drawn(off_the_bus))
    root = next(track for track in found if track.row.role == "root")
    assert {root.start} == {track.joined_from for track in found if track.row.role == "consequence"}
    assert {None} == {track.joined_from for track in found if track.row.role != "consequence"}
    reach = [track for track in found if track.spines]
    assert [True, *[False] * (len(reach) - 1)] == [not track.spines[0].above for track in reach]
    assert "consequence" == reach[-1].row.role
    assert not reach[-1].spines[0].below


def test_a_log_without_times_is_counted_in_order(off_the_bus: Postmortem) -> None:
    """Without times the axis counts lines, says so, and draws no durations."""
    timeless = moved(lost_gpu(), {"wall_us": None, "since_boot_us": None})
    found = drawn(replace(off_the_bus, incidents=(timeless,)))
    assert "order" == found.axis
    assert "no times" in found.note
    assert () == found.gaps
    assert {"line\u00a0"} == {tick.label[:5] for tick in found.ticks}


def test_the_ticks_of_a_boot_clock_are_seconds(off_the_bus: Postmortem) -> None:
    """A log that counts from boot has an axis in seconds since boot."""
    since_boot = moved(lost_gpu(), {"wall_us": None, "since_boot_us": 12_345_678_901, "boot_id": "boot-1"})
    found = drawn(replace(off_the_bus, incidents=(since_boot,)))
    assert "boot" == found.axis
    assert ["12345.679"] == [tick.label for tick in found.ticks]


def test_two_boots_share_no_clock(off_the_bus: Postmortem) -> None:
    """Seconds since two different boots are never put on one axis."""
    first = moved(lost_gpu(), {"wall_us": None, "since_boot_us": 5_000_000, "boot_id": "boot-1"})
    second = moved(lost_gpu(), {"wall_us": None, "since_boot_us": 4_000_000, "boot_id": "boot-2"})
    assert "order" == drawn(replace(off_the_bus, incidents=(first, second))).axis


def test_nothing_found_draws_nothing(nothing: Postmortem) -> None:
    """A log without an incident has no chart."""
    assert chart(nothing) is None


@pytest.mark.parametrize("width", [22.0, 13.0])
def test_labels_do_not_meet(off_the_bus: Postmortem, width: float) -> None:
    """Tick labels have room on a phone, where only some are shown, and on a desktop."""
    ticks = [tick for tick in drawn(off_the_bus).ticks if width < 20 or not tick.wide]
    middles = [min(max(tick.at, width / 2), 100 - width / 2) for tick in ticks]
    assert [] == [later - earlier for earlier, later in itertools.pairwise(middles) if later - earlier < width]


def test_many_incidents_are_bounded() -> None:
    """A thousand incidents draw no more tracks than a dozen, and the chart says what it leaves out."""
    found = drawn(postmortem_of(*[lost_gpu()] * 1000))
    assert len(tracks(found)) <= 24 + 11 * 6
    assert 988 == found.incidents_left_out


@pytest.mark.parametrize("name", case_names())
def test_every_case_stays_on_the_axis(name: str, rules: RuleTable) -> None:
    """Whatever the log, each place is within the axis, time runs to the right, and every row of the first incident is drawn."""
    found = chart(explained(FIXTURES / name / "input.log", rules))
    if found is None:
        return
    assert [] == [track for track in tracks(found) if not 0 <= track.start <= track.end <= 100]
    for lane in found.lanes:
        whens = [track.row.record.wall_us for track in lane.tracks if track.row.record.wall_us is not None]
        assert sorted(whens) == whens
