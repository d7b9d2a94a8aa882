"""The timeline as a drawing: a lane per GPU, switch and node, positions in percent of the axis. Nothing here draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Literal

from xidwatch.core.event import HungTaskDetail, NvrmDetail
from xidwatch.core.incident import HostReport, Incident, Postmortem
from xidwatch.core.pci import PciAddress
from xidwatch.core.record import Record
from xidwatch.render.layout import visible
from xidwatch.render.timeline import Row, Times, most_telling, rows, times
from xidwatch.render.wording import seconds

LaneKind = Literal["gpu", "switch", "node"]
AxisKind = Literal["wall", "boot", "order"]
Shape = Literal["instant", "storm", "blocked"]

_MOST_INCIDENTS = 12
_MOST_ROWS, _MOST_ROWS_OF_OTHERS = 24, 6
_FIRST, _LAST = 2.0, 98.0
_SHORTEST_US = 20_000
"""Steps in time much shorter than this look alike."""
_NARROW, _WIDE = 22.0, 13.0
"""Percent of the axis that a tick's label takes: on a phone, on a desktop."""
_LANE_ORDER: dict[LaneKind, int] = {"gpu": 0, "switch": 1, "node": 2}
_NOTES: dict[AxisKind, str] = {
    "wall": "not to scale: long spans are shortened, their length is written under the ticks",
    "boot": "seconds since boot, not to scale: long spans are shortened, their length is written under the ticks",
    "order": "the log has no times that can be compared: the axis counts its lines in order, distances mean nothing",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spine:
    """A root's upright line where it crosses a track; it links the root to what followed.

    Attributes:
        at: Percent of the axis.
        above, below: It goes on to the track above, to the one below.
    """

    at: float
    above: bool
    below: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One row of the timeline with its place on the axis.

    Attributes:
        incident: Number of its incident in the report, from 1.
        shape: An instant, a storm (one bar, `count` occurrences), or tasks blocked in D state.
        start, end: Percent of the axis; equal for an instant.
        count: Occurrences folded into it.
        joined_from: Where its root stands; None for the root itself and for context.
        spines: Upright lines that cross it.
    """

    row: Row
    incident: int
    shape: Shape
    start: float
    end: float
    count: int
    joined_from: float | None
    spines: tuple[Spine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A GPU, a switch or a node with what happened to it. `facts` are UUID and serial, as far as the log gives them."""

    kind: LaneKind
    title: str
    facts: tuple[str, ...]
    tracks: tuple[Track, ...]

    @property
    def passing(self) -> tuple[Spine, ...]:
        """Upright lines that come in from the lane above."""
        return tuple(spine for spine in self.tracks[0].spines if spine.above)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A labelled place on the axis; `date` stands beside the label where days differ; `wide` ones need a wide screen."""

    at: float
    label: str
    date: str
    wide: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A step in time that is wide on the axis: where it is, how long it was; a `wide` one needs a wide screen."""

    start: float
    end: float
    label: str
    wide: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """The whole drawing.

    Attributes:
        heading: Date and zone; empty when the log has none.
        note: What the axis means, in words.
        shown: How the rows' times are written.
        left_out: Kinds of event of the drawn incidents that no track shows.
        incidents_left_out: Incidents of which no track is drawn.
    """

    axis: AxisKind
    heading: str
    note: str
    shown: Times
    ticks: tuple[Tick, ...]
    gaps: tuple[Gap, ...]
    lanes: tuple[Lane, ...]
    left_out: int
    incidents_left_out: int


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a row belongs: before it is put on the axis."""

    incident: int
    row: Row
    lane: tuple[LaneKind, str | None, PciAddress | None]


def chart(postmortem: Postmortem, zone: tzinfo | None = None) -> Chart | None:
    """Lay out the incidents' timelines as one; None without an incident.

    Args:
        zone: For times of a log that names no zone; None means UTC.
    """
    incidents = postmortem.incidents[:_MOST_INCIDENTS]
    if not incidents:
        return None
    places: list[_Place] = []
    left_out = 0
    for number, incident in enumerate(incidents, 1):
        found = rows(incident)
        chosen = most_telling(found, _MOST_ROWS if number == 1 else _MOST_ROWS_OF_OTHERS)
        left_out += len(found) - len(chosen)
        places += [_Place(number, row, _lane(row, incident, postmortem.hosts)) for row in chosen]
    axis = _Axis([record for place in places for record in _records(place.row)])
    places.sort(key=lambda place: (axis.of(place.row.record), place.row.record.stream, place.row.record.seq))
    spans = [axis.span(place.row) for place in places]
    moments = [axis.of(record) for place in places for record in _ends(place.row)]
    scale = _Scale(axis, [*moments, *(value for span in spans for value in span)])
    shown = times((place.row.record for place in places), zone)
    roots = {place.incident: scale.at(span[0]) for place, span in zip(places, spans, strict=True) if place.row.role == "root"}
    tracks = [_track(place, scale, span, roots.get(place.incident)) for place, span in zip(places, spans, strict=True)]
    return Chart(
        axis=axis.kind,
        heading=shown.heading,
        note=axis.note(),
        shown=shown,
        ticks=tuple(_ticks(places, axis, scale, shown)),
        gaps=tuple(scale.gaps()),
        lanes=_lanes(list(zip(places, tracks, strict=True)), postmortem),
        left_out=left_out,
        incidents_left_out=len(postmortem.incidents) - len(incidents),
    )


# the axis


def _records(row: Row) -> Iterator[Record]:
    yield row.record
    yield from (member.last.record for member in row.members)


class _Axis:
    """Numbers for records: microseconds where all share a clock, else their place in the order of reading."""

    def __init__(self, records: Sequence[Record]) -> None:
        timed = [record for record in records if record.wall_us is not None]
        boots = {(record.host, record.boot_id) for record in records}
        self._order = {key: place for place, key in enumerate(sorted({(record.stream, record.seq) for record in records}))}
        self._timed = sorted((record.stream, record.seq, record.wall_us or 0) for record in timed)
        self.kind: AxisKind = "order"
        if timed:
            self.kind = "wall"
        elif len(boots) == 1 and all(record.since_boot_us is not None for record in records):
            self.kind = "boot"
        self._borrowed = self.kind == "wall" and len(timed) < len(records)

    def of(self, record: Record) -> int:
        """Where a record stands; one without a time stands where the line before it does."""
        if self.kind == "order":
            return self._order.get((record.stream, record.seq), 0)
        if self.kind == "boot":
            return record.since_boot_us or 0
        if record.wall_us is not None:
            return record.wall_us
        own = [at for stream, seq, at in self._timed if stream == record.stream and seq <= record.seq]
        return own[-1] if own else self._timed[0][2]

    def span(self, row: Row) -> tuple[int, int]:
        """From a row's first moment to its last; tasks in D state were blocked before the kernel said so."""
        first = last = self.of(row.record)
        for member in row.members:
            start = self.of(member.finding.event.record)
            detail = member.finding.event.detail
            if isinstance(detail, HungTaskDetail) and detail.blocked_s and self.kind != "order":
                start -= detail.blocked_s * 1_000_000
            first, last = min(first, start), max(last, self.of(member.last.record))
        return first, last

    def note(self) -> str:
        borrowed = "; lines without a time stand where the line before them does" if self._borrowed else ""
        return _NOTES[self.kind] + borrowed


class _Scale:
    """Percent for an axis' numbers: every step in time has a width, and a long one not much more than a short one."""

    def __init__(self, axis: _Axis, values: Iterable[int]) -> None:
        self._kind = axis.kind
        self._values = sorted(set(values))
        steps = [self._weight(later - earlier) for earlier, later in zip(self._values, self._values[1:], strict=False)]
        unit = (_LAST - _FIRST) / sum(steps) if steps else 0.0
        self._at = {self._values[0]: _FIRST if steps else 50.0} if self._values else {}
        for value, earlier, step in zip(self._values[1:], self._values, steps, strict=False):
            self._at[value] = self._at[earlier] + step * unit

    def _weight(self, gap: int) -> float:
        return 1.0 if self._kind == "order" else 0.3 + math.log2(1 + gap / _SHORTEST_US)

    def at(self, value: int) -> float:
        """Percent, to a hundredth."""
        return round(self._at[value], 2)

    def gaps(self) -> Iterator[Gap]:
        """The steps that have room for a word."""
        if self._kind == "order":
            return
        for earlier, later in zip(self._values, self._values[1:], strict=False):
            width = self.at(later) - self.at(earlier)
            if width >= 7:
                yield Gap(start=self.at(earlier), end=self.at(later), label=_length(later - earlier), wide=width < 14)


def _length(gap_us: int) -> str:
    return seconds(gap_us / 1e6) if gap_us >= 1_000_000 else f"{max(gap_us // 1000, 1)} ms"


def _ticks(places: Sequence[_Place], axis: _Axis, scale: _Scale, shown: Times) -> list[Tick]:
    """Labels at moments of the log: the worst incident's root, the ends, the other roots, then whatever has room."""
    roots = sorted((place for place in places if place.row.role == "root"), key=lambda place: place.incident)
    others = sorted((record for place in places for record in _ends(place.row)), key=axis.of)
    causes = [place.row.record for place in roots]
    records = [*causes[:1], *others[:1], *others[-1:], *causes, *others]
    ticks: list[Tick] = []
    for record in records:
        at = scale.at(axis.of(record))
        date, _, label = _tick_label(record, axis, shown).rpartition(" ")
        if any(_collide(at, tick.at, _WIDE) or (date, label) == (tick.date, tick.label) for tick in ticks):
            continue
        wide = any(_collide(at, tick.at, _NARROW) for tick in ticks if not tick.wide)
        ticks.append(Tick(at=at, label=label, date=date, wide=wide))
    return sorted(ticks, key=lambda tick: tick.at)


def _collide(one: float, other: float, width: float) -> bool:
    return abs(_middle(one, width) - _middle(other, width)) < width


def _middle(at: float, width: float) -> float:
    """Where a label's middle is: over its tick, but never beyond the axis' ends."""
    return min(max(at, width / 2), 100 - width / 2)


def _ends(row: Row) -> Iterator[Record]:
    """A row's first record, and its last one where that is another."""
    yield row.record
    if row.members:
        yield max((member.last.record for member in row.members), key=lambda record: (record.wall_us or 0, record.seq))


def _tick_label(record: Record, axis: _Axis, shown: Times) -> str:
    if axis.kind == "order":
        return f"line\u00a0{record.line or record.seq}"
    label = shown.of(record)
    return label.partition(".")[0] if axis.kind == "wall" else label.strip("[]")


# the lanes


def _lane(row: Row, incident: Incident, hosts: tuple[HostReport, ...]) -> tuple[LaneKind, str | None, PciAddress | None]:
    host = row.record.host if row.record.host is not None or len(incident.hosts) != 1 else incident.hosts[0]
    event = row.members[0].finding.event if row.members else None
    if event is None:
        return _device_lane(host, row.pci, incident, hosts)
    if event.kind == "sxid" and event.pci is not None:
        return "switch", host, event.pci
    if event.kind == "xid" or (event.kind == "nvrm" and event.pci is not None):
        return "gpu", host, event.pci
    return _device_lane(host, event.pci, incident, hosts)


def _device_lane(
    host: str | None, pci: PciAddress | None, incident: Incident, hosts: tuple[HostReport, ...]
) -> tuple[LaneKind, str | None, PciAddress | None]:
    """A GPU's lane for its own PCIe errors and identity lines, else the node's."""
    known = {gpu for report in hosts if report.host == host for gpu in report.gpus} | set(incident.gpus)
    if pci is not None and str(pci) in known:
        return "gpu", host, pci
    return "node", host, None


def _track(place: _Place, scale: _Scale, span: tuple[int, int], root_at: float | None) -> Track:
    row, (_, host, pci) = place.row, place.lane
    # The lane says whose it is.
    if host is not None:
        row = replace(row, text=row.text.removeprefix(f"{visible(host)}: "))
    if pci is not None:
        row = replace(row, text=row.text.replace(f", {pci}", "", 1))
    count = sum(member.count for member in row.members) or 1
    blocked = any(member.finding.event.kind == "hung_task" for member in row.members)
    start, end = (scale.at(value) for value in span)
    shape: Shape = "blocked" if blocked and end > start else "storm" if count > 1 and end > start else "instant"
    return Track(
        row=row,
        incident=place.incident,
        shape=shape,
        start=start,
        end=end,
        count=count,
        joined_from=root_at if row.role == "consequence" else None,
    )


def _lanes(placed: Sequence[tuple[_Place, Track]], postmortem: Postmortem) -> tuple[Lane, ...]:
    """The lanes in order: the worst incident's root first, then GPUs, switches, its node, other nodes."""
    keys = list(dict.fromkeys(place.lane for place, _ in placed))
    home = next((place.lane for place, _ in placed if place.incident == 1 and place.row.role == "root"), keys[0])
    keys.sort(key=lambda key: (key != home, _LANE_ORDER[key[0]], key[1] != home[1]))
    grouped = [[track for place, track in placed if place.lane == key] for key in keys]
    several = len({host for _, host, _ in keys}) > 1
    lanes = []
    spined = iter(_with_spines([track for group in grouped for track in group]))
    for key, group in zip(keys, grouped, strict=True):
        tracks = tuple(next(spined) for _ in group)
        title, facts = _identity(key, tracks, postmortem.hosts, several_hosts=several)
        lanes.append(Lane(kind=key[0], title=title, facts=facts, tracks=tracks))
    return tuple(lanes)


def _with_spines(tracks: list[Track]) -> list[Track]:
    """The tracks, top to bottom, with the upright lines that join roots to their consequences."""
    reach: dict[int, tuple[int, int, float]] = {}
    for number in {track.incident for track in tracks}:
        own = [i for i, track in enumerate(tracks) if track.incident == number and track.row.role != "context"]
        root = next((i for i in own if tracks[i].row.role == "root"), None)
        if root is not None and len(own) > 1:
            reach[number] = (own[0], own[-1], tracks[root].start)
    done = []
    for place, track in enumerate(tracks):
        spines = tuple(
            Spine(at=at, above=place > top, below=place < bottom)
            for top, bottom, at in reach.values()
            if top <= place <= bottom
        )
        done.append(replace(track, spines=spines))
    return done


def _identity(
    key: tuple[LaneKind, str | None, PciAddress | None],
    tracks: tuple[Track, ...],
    hosts: tuple[HostReport, ...],
    *,
    several_hosts: bool,
) -> tuple[str, tuple[str, ...]]:
    kind, host, pci = key
    where = visible(host) if host is not None else ""
    if kind == "node":
        return (f"Node {where}".rstrip(), () if where else ("the log does not name it",))
    noun = "GPU" if kind == "gpu" else "NVSwitch"
    if pci is None:
        return f"{noun} not named", ("the lines do not say which one",)
    mine = [report.gpus[str(pci)] for report in hosts if str(pci) in report.gpus and (report.host == host or len(hosts) == 1)]
    uuid, serial = mine[0] if mine else (None, None)
    serial = serial or _serial(tracks)
    facts = [visible(uuid)] if uuid else []
    facts += [f"serial {visible(serial)}"] if serial else []
    return f"{noun} {pci} in {where}" if several_hosts and where else f"{noun} {pci}", tuple(facts)


def _serial(tracks: tuple[Track, ...]) -> str | None:
    """The board's serial number where a driver line gives it."""
    details = (member.finding.event.detail for track in tracks for member in track.row.members)
    return next((detail.serial for detail in details if isinstance(detail, NvrmDetail) and detail.serial), None)
