"""Make docs/screenshots/*.png from shipped fixtures. Needs chromium. Run: .venv/bin/python -m scripts.screenshots."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.browser.chromium import find_chromium, screenshot
from tests.postmortems import FIXTURES, ROOT, explained
from xidwatch.render.as_html import render_html
from xidwatch.rulefiles import load_rules

TO = ROOT / "docs" / "screenshots"
DESKTOP, PHONE = (1280, 1010), (390, 1300)
MOST_BYTES = 300_000
PICTURES = (
    ("report", "ubuntu2020_62_31_45_hung_rcu_lockup", DESKTOP, False),
    ("report-dark", "gddr_dbe_48_171_63_154_chain", DESKTOP, True),
    ("report-phone", "ubuntu2020_62_31_45_hung_rcu_lockup", PHONE, False),
)
"""(file, case, size in CSS pixels, dark)."""


def main() -> int:
    """Write every picture; 1 when one is too big for a repository."""
    browser = find_chromium()
    if browser is None:
        sys.stderr.write("no chromium on this machine: apt-get install chromium\n")
        return 2
    TO.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        rules = load_rules(site=Path(folder))
        page = Path(folder) / "report.html"
        for name, case, size, dark in PICTURES:
            page.write_text(render_html(explained(FIXTURES / case / "input.log", rules), rules), encoding="utf-8")
            screenshot(browser, page.as_uri(), TO / f"{name}.png", size=size, dark=dark)
    too_big = [path.name for path in TO.glob("*.png") if path.stat().st_size > MOST_BYTES]
    sys.stderr.write(f"too big: {', '.join(too_big)}\n" if too_big else "")
    return 1 if too_big else 0


if __name__ == "__main__":
    sys.exit(main())
