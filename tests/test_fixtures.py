"""Every case in fixtures/: what `explain` reports is what a careful reader finds in the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.expected import differences
from tests.postmortems import FIXTURES, case_names, reported
from xidwatch.core.classify import RuleTable

KNOWN_DIFFERENCES: dict[str, str] = {
    "gpud_oom_xid13_iso_decode": "the whole `oom-kill:constraint=…,task=node,pid=863987` line names a victim; it is a kill too",
    "hung_nvme_timeout_kworker_arm64": "no stack was printed, so whether the GPU is involved is not known, only likely not",
    "syz447_p9_mount": "the second task's stack is cut away, so whether the GPU is involved is not known",
}
"""Case -> why its report differs from expected.json; an entry whose case agrees fails, so that the table stays true."""


def cases() -> list[object]:
    """Every case; the known differences are expected to fail."""
    marks = {name: pytest.mark.xfail(reason=reason) for name, reason in KNOWN_DIFFERENCES.items()}
    return [pytest.param(name, marks=marks.get(name, ())) for name in case_names()]


@pytest.mark.parametrize("name", cases())
def test_reports_what_the_log_says(name: str, rules: RuleTable) -> None:
    """Each event of the case is found with its number, address, owner and count, and nothing else is."""
    case = FIXTURES / name
    expected = json.loads((case / "expected.json").read_text(encoding="utf-8"))["expected_events"]
    assert [] == differences(expected, reported(case / "input.log", rules)["events"])


def test_known_differences_name_cases() -> None:
    """The table of known differences speaks of cases that exist."""
    assert set() == set(KNOWN_DIFFERENCES) - set(case_names())


@pytest.mark.parametrize("case", sorted(path for path in FIXTURES.iterdir() if path.is_dir()), ids=lambda path: path.name)
def test_each_case_is_whole(case: Path) -> None:
    """A case has its log, its expected events, and a word on where it comes from and under which licence."""
    assert {"input.log", "expected.json", "ORIGIN.md"} <= {path.name for path in case.iterdir()}
    origin = (case / "ORIGIN.md").read_text(encoding="utf-8")
    assert [] == [word for word in ("Source:", "Masked:", "Licence:") if word not in origin]
