"""state.json read back."""

from __future__ import annotations

from xidwatch.core.daemonstate import read_daemon

NOW_US = 1_796_000_000_000_000


def test_a_silence_grows_while_nothing_is_written() -> None:
    """The seconds are those at reading time; where nothing was silent, age makes no silence."""

    def silent_s(stuck_s: float) -> float:
        state = {"time_us": NOW_US - 12_000_000, "nvml": {"stuck_s": stuck_s}}
        return read_daemon(state, NOW_US).nvml_stuck_s

    assert (12.5, 0.0, 42) == (silent_s(0.5), silent_s(0.0), silent_s(30))
