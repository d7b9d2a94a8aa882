"""The report for a ticket: what stands where, and that log text is inert in every dialect of Markdown."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.render.conftest import lost_gpu, postmortem_of, record, report
from xidwatch.core.classify import RuleTable
from xidwatch.core.incident import Postmortem
from xidwatch.render.as_markdown import code, code_block, inert, render_markdown

RUN = re.compile(r"`+")
ACTS = re.compile(r"[\\`*_\[\]<>|~#@$^{}&\n]|:\w")
PIECES = ("`", "``", "<b>", "[x](y)", "@me", "#1", "|", "\\", "*a*", "_b_", " ", "\n", "x", "~~s~~", "http://e.x", "&lt;", ":")
HOSTILE = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join)


def outside_code(markdown: str) -> str:
    """What a CommonMark reader takes for prose: everything that is in no code span."""
    prose, place = "", 0
    while found := RUN.search(markdown, place):
        prose += markdown[place : found.start()]
        end = next((run for run in RUN.finditer(markdown, found.end()) if len(run[0]) == len(found[0])), None)
        if end is None:
            return prose + markdown[found.start() :]
        prose, place = prose + "·", end.end()
    return prose + markdown[place:]


@given(HOSTILE)
def test_no_text_acts(text: str) -> None:
    """Outside its code spans an inert text has no character that any dialect gives a meaning to."""
    assert ACTS.search(outside_code(inert(text))) is None
    assert ACTS.search(outside_code(code(text))) is None


@given(HOSTILE)
def test_no_text_ends_its_block(text: str) -> None:
    """A fenced block is closed by its last line and by no line before it."""
    first, *inner, last = code_block([text, text]).split("\n")
    assert 2 == len(inner)
    assert first == last
    assert [] == [line for line in inner if line.lstrip().startswith(first)]


def test_references_of_trackers_are_inert() -> None:
    """Issue keys, commits, mentions and links stay words; plain prose stays plain."""
    assert "`OPS-123` `deadbeef1` (`@everyone`), `www.e.x`" == inert("OPS-123 deadbeef1 (@everyone), www.e.x")
    assert "GPU has fallen off the bus, 4,000 times in 2 s" == inert("GPU has fallen off the bus, 4,000 times in 2 s")


def test_answer_comes_first(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """The verdict is the heading; what to do and the command to copy follow."""
    heading, do, block, *_ = render_markdown(off_the_bus, few_rules).split("\n\n")
    assert heading.startswith("## GPU `0000:4e:00.0` fell off the PCIe bus")
    assert "**Do now:** power cycle" == do
    assert "```sh\nipmitool -H <bmc> chassis power cycle\n```" == block


def test_the_timeline_is_a_table(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """One row for each kind of event, in order of time, the root marked, four cells in every row."""
    table = [line for line in render_markdown(off_the_bus, few_rules).splitlines() if line.startswith("|")]
    assert {4} == {len(re.split(r"(?<!\\)\|", line)) - 2 for line in table}
    assert 1 == sum("**root**" in line for line in table)
    assert sorted(table[2:]) == table[2:]


def test_the_evidence_is_folded(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """The lines stand in a folded block, the root's first."""
    _, _, folded = render_markdown(off_the_bus, few_rules).partition("<details>")
    assert folded.split("\n\n")[1].splitlines()[1].endswith("NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.")


def test_log_text_stays_text(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """A name that a process chose opens no HTML, ends no cell and no block, and hides no character."""
    evil = "|</details>\n```\n<script>@all [x](javascript:1)\x1b\u202e"
    incident = lost_gpu()
    members = tuple(
        replace(one, finding=replace(one.finding, event=replace(one.finding.event, process=evil, pid=1)))
        for one in incident.members
    )
    context = (replace(incident.context[0], record=record(evil, 784.5, 1)),)
    shown = replace(incident, members=members, context=context, unknowns=(evil,), hosts=("node<b>",), sentence=evil)
    text = render_markdown(replace(postmortem_of(shown, shown), inputs=(report(evil),)), few_rules)
    assert set() == {character for character in text if character != "\n" and not character.isprintable()}
    prose = outside_code(text)
    assert "<script>" not in prose
    assert "@all" not in prose
    assert 1 == prose.count("</details>")
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert {4} == {len(re.split(r"(?<!\\)\|", line)) - 2 for line in table}


def test_it_is_concise(few_rules: RuleTable) -> None:
    """A thousand incidents make no longer ticket than nine do, but for their number."""
    assert len(render_markdown(postmortem_of(*[lost_gpu()] * 1000), few_rules)) < 12_000


def test_nothing_found_is_no_promise(nothing: Postmortem, few_rules: RuleTable) -> None:
    """A clean log is called clean, and silence is not sold as health."""
    text = render_markdown(nothing, few_rules)
    assert text.startswith("## No GPU fault found in 1,234 lines")
    assert "Silence is no proof of health" in text
