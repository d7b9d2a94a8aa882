"""The table of waits that go on."""

from __future__ import annotations

from xidwatch.core.blocked import MOST_SPELLS, Moment, Sighting, Spells, TaskKey


def waiting(count: int) -> list[Sighting]:
    """So many tasks in D state."""
    keys = [TaskKey(pid, pid, 1) for pid in range(1, count + 1)]
    return [Sighting(key=key, comm="cp", kernel_thread=False, switches=7, killed=False) for key in keys]


def test_tasks_beyond_the_most_are_counted_once_however_often_they_are_seen() -> None:
    """The count is of the last pass: it does not grow with each, and is 0 when there is room again."""
    spells, told = Spells(), []
    for second, count in enumerate((MOST_SPELLS + 3, MOST_SPELLS + 3, 5)):
        spells.saw(waiting(count), Moment(wall_us=0, steady_s=second))
        told.append((len(spells), spells.beyond))
    assert [(MOST_SPELLS, 3), (MOST_SPELLS, 3), (5, 0)] == told
