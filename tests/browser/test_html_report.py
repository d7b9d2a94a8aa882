"""The HTML report in a real browser: it renders, fits, asks for nothing, and log text stays text."""

from __future__ import annotations

import html
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import document_of, find_chromium, screenshot
from tests.postmortems import FIXTURES, explained
from xidwatch.core.classify import RuleTable
from xidwatch.render.as_html import render_html

pytestmark = pytest.mark.browser

CASES = (
    "ubuntu2020_62_31_45_hung_rcu_lockup",
    "gddr_dbe_48_171_63_154_chain",
    "gpud_sxid20034_after_xid79",
    "fob_same_card_two_boots_short",
    "mail_xid6_indented_no_time",
    "none_r8169_xid_641",
)
"""A storm with hung tasks, a chain, switches since boot, two incidents days apart, no times at all, nothing found."""
MEASURE = """
<!DOCTYPE html><meta charset="utf-8"><iframe id="report" src="/report" style="border:0;width:WIDTHpx;height:600px"></iframe>
<pre id="measured"></pre>
<script>
document.getElementById("report").onload = () => {
  const inner = document.getElementById("report").contentDocument, all = what => [...inner.querySelectorAll(what)];
  const boxes = all(".tick").map(one => one.getBoundingClientRect()).filter(box => box.width);
  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const first = inner.querySelector(".row > summary"), row = first && first.parentElement, before = row && row.offsetHeight;
  if (first) { first.focus(); first.click(); }
  document.getElementById("measured").textContent = JSON.stringify({
    title: inner.title,
    heading: inner.querySelector("h1").textContent,
    width: inner.documentElement.scrollWidth,
    ticks: boxes.length,
    meeting: boxes.filter((box, i) => boxes.some((other, j) => i < j && meet(box, other))).length,
    roots: all(".track .mark.root").length,
    scripts: all("script, img, iframe, object, link").length,
    focused: first ? inner.activeElement === first : null,
    opened: row ? row.offsetHeight > before : null,
  });
};
</script>
"""


class Site:
    """A web server on this machine that serves a report and remembers what it was asked for."""

    def __init__(self) -> None:
        self.report, self.width = "", 1280
        self.asked: list[str] = []
        site = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                body = site.page(self.path).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # the standard library's name
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def page(self, path: str) -> str:
        """What stands at a path."""
        return self.report if path == "/report" else MEASURE.replace("WIDTH", str(self.width)) if path == "/measure" else ""


@pytest.fixture
def site() -> Iterator[Site]:
    """The server, for one test."""
    served = Site()
    thread = threading.Thread(target=served.server.serve_forever)
    thread.start()
    yield served
    served.server.shutdown()
    thread.join()
    served.server.server_close()


@pytest.fixture(scope="session")
def browser() -> str:
    """The browser's path."""
    found = find_chromium()
    if found is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    return found


def measured(site: Site, browser: str, width: int) -> dict[str, Any]:
    """What the browser makes of the report in a window of that width."""
    site.width = width
    document, console = document_of(browser, f"{site.url}/measure")
    assert [] == console
    found = re.search(r'<pre id="measured">(.+?)</pre>', document, re.DOTALL)
    assert found is not None, document
    values: dict[str, Any] = json.loads(html.unescape(found[1]))
    return values


def hostile_log(folder: Path, url: str) -> Path:
    """A log in which a process chose its name to reach the network and to run."""
    name = f"</title></style><script>document.title='owned'</script><img src={url}/leak onerror=alert(1)>\x1b]0;x\u202e"
    text = f"Nov 30 02:13:05 node01 kernel: NVRM: Xid (PCI:0000:3b:00): 31, pid=2201, name={name}, Ch 0000000a\n"
    path = folder / "hostile.log"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", CASES)
def test_it_fits_and_opens(name: str, width: int, site: Site, browser: str, rules: RuleTable) -> None:
    """On a phone and on a desktop nothing runs over, no labels meet, a row takes the focus and opens, the console is silent."""
    site.report = render_html(explained(FIXTURES / name / "input.log", rules), rules)
    seen = measured(site, browser, width)
    assert width == seen["width"]
    assert 0 == seen["meeting"]
    if seen["ticks"]:
        assert seen["roots"]
        assert seen["focused"]
        assert seen["opened"]


def test_log_text_reaches_nothing(tmp_path: Path, site: Site, browser: str, rules: RuleTable) -> None:
    """A script and an image in a log line stay text: nothing runs, nothing is fetched, the title is the report's."""
    site.report = render_html(explained(hostile_log(tmp_path, site.url), rules), rules)
    seen = measured(site, browser, 1280)
    assert 0 == seen["scripts"]
    assert seen["heading"] == seen["title"]
    assert "<script>" in seen["heading"]
    assert {"/measure", "/report"} == set(site.asked) - {"/favicon.ico"}


def test_a_report_alone_asks_for_nothing(site: Site, browser: str, rules: RuleTable) -> None:
    """Opened by itself, the page makes no further request and says nothing on the console."""
    site.report = render_html(explained(FIXTURES / CASES[0] / "input.log", rules), rules)
    document, console = document_of(browser, f"{site.url}/report")
    assert [] == console
    assert "<h1>" in document
    assert {"/report"} == set(site.asked) - {"/favicon.ico"}


def test_it_has_a_dark_side(tmp_path: Path, browser: str, rules: RuleTable) -> None:
    """The reader's preference for dark changes the picture."""
    page = tmp_path / "report.html"
    page.write_text(render_html(explained(FIXTURES / CASES[1] / "input.log", rules), rules), encoding="utf-8")
    for name, dark in (("light.png", False), ("dark.png", True)):
        screenshot(browser, page.as_uri(), tmp_path / name, size=(390, 844), dark=dark)
    light, dark_side = ((tmp_path / name).read_bytes() for name in ("light.png", "dark.png"))
    assert light != dark_side
