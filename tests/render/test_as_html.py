"""The HTML report: one file that needs nothing, shows the answer first, and lets no log text act."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.postmortems import FIXTURES, ROOT, case_names, explained
from tests.render.conftest import XID_45, lost_gpu, member, postmortem_of, record, report, torn_down
from xidwatch.core.classify import RuleTable
from xidwatch.core.incident import Postmortem
from xidwatch.render.as_html import render_html

EVIL = "</style></title></svg>\"'><script>alert(1)</script><img src=http://e.example/x onerror=alert(2)>\x1b[2J\u202e`x`{{7*7}}"
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
VOID = frozenset({"meta", "br", "hr", "img", "input", "link"})


class Page(HTMLParser):
    """A page taken apart: its elements with their attributes, its text, and whether every element is closed."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Note one that does not close the last one opened."""
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        """Note a text and the element it stands in."""
        if self.open and data.strip():
            self.texts.append((self.open[-1], data.strip()))

    def of(self, tag: str) -> list[str]:
        """The texts of one kind of element."""
        return [text for where, text in self.texts if where == tag]

    def attribute(self, name: str) -> list[str]:
        """Every value of one attribute."""
        return [value or "" for _, attributes in self.elements for key, value in attributes.items() if key == name]


def page_of(postmortem: Postmortem, few_rules: RuleTable) -> Page:
    """The page, taken apart."""
    return Page(render_html(postmortem, few_rules))


def hostile() -> Postmortem:
    """A postmortem whose every free text tries to act."""
    incident = lost_gpu()
    members = tuple(
        replace(
            one,
            finding=replace(
                one.finding,
                event=replace(one.finding.event, process=EVIL, pid=1, record=replace(one.finding.event.record, text=EVIL)),
            ),
        )
        for one in incident.members
    )
    context = (replace(incident.context[0], record=record(EVIL, 784.5, 1), kind=EVIL),)
    shown = replace(
        incident,
        members=members,
        context=context,
        hosts=(EVIL,),
        sentence=EVIL,
        unknowns=(EVIL,),
        excluded=(EVIL,),
        patterns=(EVIL,),
    )
    loose = (replace(members[0], role="context"),)
    return replace(postmortem_of(shown, shown), malformed=(EVIL,), inputs=(replace(report(EVIL), notes=(EVIL,)),), loose=loose)


def test_answer_comes_first(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """The verdict is the heading, and the first thing to copy is the next command."""
    page = page_of(off_the_bus, few_rules)
    assert [off_the_bus.incidents[0].sentence] == page.of("h1")
    assert "ipmitool -H <bmc> chassis power cycle" == page.of("code")[0]


def test_the_root_is_named_in_words(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """Roles are written out, not only coloured: one root, its consequences, its context."""
    words = page_of(off_the_bus, few_rules).of("b")
    assert 1 == words.count("ROOT")
    assert 3 == words.count("follows")
    assert 2 == words.count("context")


def test_a_storm_is_one_row(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """4,000 repeats are one bar with their number on it."""
    page = page_of(off_the_bus, few_rules)
    assert 1 == page.of("span").count("4,000×")
    assert 1 == page.of("b").count("Xid 45")


def test_evidence_is_folded(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """The lines themselves are there, behind a row that is closed at first."""
    page = page_of(off_the_bus, few_rules)
    assert "NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus." in page.of("code")
    assert [] == page.attribute("open")


def test_the_page_allows_nothing(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """The policy forbids every request and every script, and the page asks for none."""
    page = page_of(off_the_bus, few_rules)
    assert POLICY in page.attribute("content")
    assert [] == [
        tag for tag, _ in page.elements if tag in ("script", "img", "link", "iframe", "object", "form", "base", "svg")
    ]
    assert [] == page.attribute("src") + page.attribute("href") + page.attribute("srcset")
    assert not re.search(r"@import|url\(", render_html(off_the_bus, few_rules))


def test_log_text_stays_text(few_rules: RuleTable) -> None:
    """Hostile text makes no element and no attribute that a harmless page does not have, and none of its characters acts."""
    harmless, evil = page_of(postmortem_of(lost_gpu(), lost_gpu()), few_rules), page_of(hostile(), few_rules)
    assert {tag for tag, _ in harmless.elements} | {"h2"} >= {tag for tag, _ in evil.elements}
    assert [] == [name for _, attributes in evil.elements for name in attributes if name.startswith("on")]
    assert [] == evil.attribute("src") + evil.attribute("href")
    assert [] == evil.wrong + evil.open
    source = render_html(hostile(), few_rules)
    assert set() == {character for character in source if character != "\n" and not character.isprintable()} - {"\u00a0"}
    assert "{{7*7}}" in source
    assert any("\\x1b[2J\\u202e" in text for text in evil.of("h1"))


def test_styles_hold_only_numbers(few_rules: RuleTable) -> None:
    """No style attribute carries text of the log."""
    allowed = re.compile(r"(?:(?:left|width):\d+(?:\.\d+)?%;?)+|--grid: [-\w(),. %/]*")
    assert [] == [style for style in page_of(hostile(), few_rules).attribute("style") if not allowed.fullmatch(style)]


def test_thousands_of_events_stay_small(few_rules: RuleTable) -> None:
    """20,000 members with long lines, in many incidents, make a page of less than a megabyte."""
    line = replace(torn_down(7711, 785.2, 5), record=record("x" * 100_000, 785.2, 5))
    crowd = replace(lost_gpu(), members=(*lost_gpu().members, *[member(line, XID_45)] * 20_000))
    many = replace(postmortem_of(*[crowd] * 50), malformed=("y" * 100_000,) * 1000, loose=(member(line, XID_45),) * 5000)
    assert len(render_html(many, few_rules)) < 1_000_000


def test_nothing_found_is_no_promise(nothing: Postmortem, few_rules: RuleTable) -> None:
    """A clean log is called clean with what was read, and silence is not sold as health."""
    page = page_of(nothing, few_rules)
    assert "No GPU fault found" in page.of("h1")[0]
    assert "Silence is no proof of health" in page.of("dt")


@pytest.mark.parametrize("name", case_names())
def test_every_case_is_well_formed(name: str, rules: RuleTable) -> None:
    """Whatever the log, every element is closed in order and nothing on the page acts."""
    page = Page(render_html(explained(FIXTURES / name / "input.log", rules), rules))
    assert [] == page.wrong + page.open
    assert [] == [tag for tag, _ in page.elements if tag in ("script", "img", "link", "iframe")]


def test_a_missing_jinja_is_told_before_anything_is_read(few_rules: RuleTable) -> None:
    """Without Jinja2 the answer is one sentence with the command that installs it, and exit status 2."""
    script = "import sys; sys.modules['jinja2'] = None; from xidwatch.cli import main; sys.exit(main(sys.argv[1:]))"
    run = subprocess.run(
        [sys.executable, "-c", script, "explain", "/no/such/file", "--format", "html"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert 2 == run.returncode
    assert "pip install" in run.stderr
    assert 1 == len(run.stderr.splitlines())


def test_a_report_goes_to_a_file(tmp_path: Path) -> None:
    """`--output` writes the page, nothing goes to the terminal, and the exit status is the report's."""
    log, page = FIXTURES / "fob_same_card_two_boots_short" / "input.log", tmp_path / "report.html"
    command = [sys.executable, "-m", "xidwatch", "explain", str(log), "--format", "html", "--output", str(page)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (1, "") == (run.returncode, run.stdout)
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """An `--output` in a folder that is not there ends with a sentence and exit status 2."""
    log = FIXTURES / "fob_same_card_two_boots_short" / "input.log"
    command = [sys.executable, "-m", "xidwatch", "explain", str(log), "--output", str(tmp_path / "none" / "report.txt")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert 2 == run.returncode
    assert "--output" in run.stderr
