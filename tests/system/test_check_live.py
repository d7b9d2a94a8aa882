"""`xidwatch check` beside a real daemon on the real kernel log: what that writes is what this reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.system.live import Gpu, daemon, until, write_line

pytestmark = [pytest.mark.system, pytest.mark.root]


def test_check_takes_the_daemons_word(tmp_path: Path) -> None:
    """A critical incident is a reason while it lasts; the daemon's own test switch is a remark."""
    gpu = Gpu()
    with daemon(tmp_path, "--accept-injected") as one:

        def told() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(one.command("check", "--format", "json"))
            return found

        def against() -> list[str]:
            return [reason["short"] for reason in told()["reasons"] if gpu.label in reason["gpus"]]

        remarks = {remark["id"] for remark in until(lambda: told() if told()["daemon_age_s"] is not None else None)["remarks"]}
        assert {"injection_accepted"} <= remarks
        assert not remarks & {"daemon", "source", "history", "rules_reload"}
        assert [] == against()
        # Neither lost nor of a pid that other tests name: their lines are in the buffer too, and would join it.
        write_line(gpu.xid(95, gpu.domain, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"))
        (said,) = until(against, what="the incident is a reason")
        assert said.startswith(f"{gpu.label} ")
        assert 1 == told()["exit"]
        (incident,) = [line.split()[0] for line in one.command("incident", "list").splitlines() if gpu.label in line]
        one.command("incident", "close", incident, "--reason", "test")
        until(lambda: not against(), what="the incident is over")
