"""Make docs/screenshots/dashboard.png from scraped data: a demo's daemon, a real Prometheus, the dashboard's own queries.

Needs prometheus and chromium. Grafana itself is not used: `scripts.panels` draws the panels as the dashboard describes them.
Run: .venv/bin/python -m scripts.dashboard_picture
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from scripts.panels import COLUMN, GAP, ROW, Span, draw
from tests.browser.chromium import find_chromium, screenshot
from tests.monitoring import ask, running_prometheus
from tests.postmortems import ROOT

TO = ROOT / "docs" / "screenshots" / "dashboard.png"
DASHBOARD = ROOT / "grafana" / "dashboards" / "xidwatch-node.json"
ROWS = 40
SHOWN = {"$instance": "node01", "$gpu": ".*", "$__rate_interval": "10s"}
BEFORE_S, AFTER_S, DEADLINE_S = 4.0, 16.0, 120.0
"""What is shown on either side of the incident's beginning; how long anything may take."""


def main() -> int:
    """Play the story, scrape it, draw it; 2 where a program is missing."""
    browser = find_chromium()
    if browser is None or shutil.which("prometheus") is None:
        sys.stderr.write(f"no {'chromium' if browser is None else 'prometheus'} on this machine: apt-get install it\n")
        return 2
    command = [sys.executable, "-m", "xidwatch", "demo", "--speed", "0.2", "--color", "never"]
    story = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert story.stdout is not None
    try:
        with tempfile.TemporaryDirectory() as folder:
            config = (
                "scrape_configs:\n  - job_name: xidwatch\n    scrape_interval: 1s\n    static_configs:\n"
                f"      - {{targets: ['{_address(story.stdout)}'], labels: {{instance: node01}}}}\n"
            )
            with running_prometheus(Path(folder), config) as prometheus:
                began_s = _incident_began(prometheus)
                time.sleep(max(0.0, began_s + AFTER_S - time.time()))
                span = Span(start_s=began_s - BEFORE_S, end_s=began_s + AFTER_S, step_s=1)
                dashboard = json.loads(DASHBOARD.read_bytes())
                page = Path(folder) / "page.html"
                page.write_text(draw(dashboard, prometheus, span, SHOWN, ROWS), encoding="utf-8")
                size = (24 * COLUMN + 2 * GAP, ROWS * ROW + 2 * GAP)
                screenshot(browser, page.as_uri(), TO, size=size)
    finally:
        story.terminate()
        story.wait(timeout=DEADLINE_S)
    return 0


def _address(said: IO[str]) -> str:
    """Where the demo's daemon answers, as it says."""
    for line in said:
        if found := re.search(r"http://(127\.0\.0\.1:\d+)/metrics", line):
            return found[1]
    raise SystemExit("the demo ended without an address")


def _incident_began(prometheus: str) -> float:
    """When the incident was scraped first, seconds since 1970."""
    end_s = time.monotonic() + DEADLINE_S
    while not ask(prometheus, 'xidwatch_incident_active{severity="critical"}'):
        if time.monotonic() > end_s:
            raise SystemExit("no incident was scraped")
        time.sleep(0.2)
    return time.time()


if __name__ == "__main__":
    sys.exit(main())
