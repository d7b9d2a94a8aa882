"""The report for a terminal: what stands where, what is folded, what never gets through."""

from __future__ import annotations

from dataclasses import replace

from tests.render.conftest import lost_gpu, postmortem_of, record, report
from xidwatch.core.classify import RuleTable
from xidwatch.core.event import Context
from xidwatch.core.incident import Demand, Postmortem
from xidwatch.render.as_text import render_text


def text_of(postmortem: Postmortem, few_rules: RuleTable, width: int = 100) -> str:
    """The report without colour."""
    return render_text(postmortem, few_rules, color=False, width=width)


def test_answer_comes_first(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """The first line is the verdict, the second what to do, the third the command to copy."""
    first, second, third, *_ = text_of(off_the_bus, few_rules).splitlines()
    assert off_the_bus.incidents[0].sentence == first
    assert "Do now:    power cycle" == second
    assert "ipmitool -H <bmc> chassis power cycle" == third.strip()


def test_memory_or_compute_is_answered(off_the_bus: Postmortem, job_end: Postmortem, few_rules: RuleTable) -> None:
    """The first question of every report has an answer of its own."""
    assert "Memory or compute?  Neither" in text_of(off_the_bus, few_rules)
    assert "Memory or compute?  Compute" in text_of(job_end, few_rules)


def test_timeline_is_in_order_of_time(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """Context, root and consequences stand in order of time, with the root marked once and the last branch closed."""
    lines = text_of(off_the_bus, few_rules).splitlines()
    shown = [line for line in lines if line[:6] in ("02:13:", "02:15:")]
    assert sorted(shown) == shown
    assert ["·", "·", "ROOT", "├─", "├─", "└─"] == [line.split()[1] for line in shown]


def test_repeats_are_folded(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """Thousands of lines of one kind are one row with their number, their time span and their processes."""
    rows = [line for line in text_of(off_the_bus, few_rules, 200).splitlines() if "Xid 45" in line]
    assert 1 == len(rows)
    assert "vllm_worker (7711, 7712, 7713), 4,000 times in 2 s" in rows[0]


def test_times_are_those_of_the_log(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """A log written at UTC+01:00 is shown at UTC+01:00, and the report says so."""
    text = text_of(off_the_bus, few_rules)
    assert "2026-11-30, UTC+01:00" in text
    assert "02:13:05.123  ROOT" in text


def test_lines_fit_the_terminal(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """No line is longer than the terminal is wide."""
    for width in (60, 80, 100):
        assert [] == [line for line in text_of(off_the_bus, few_rules, width).splitlines() if len(line) > width]


def test_colour_only_adds_escapes(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """Without its colour codes the coloured report is the plain one."""
    colored = render_text(off_the_bus, few_rules, color=True, width=100)
    plain = text_of(off_the_bus, few_rules)
    assert "\x1b[" in colored
    assert "\x1b" not in plain
    for code in ("1;31", "1;33", "1", "2", "36", "0"):
        colored = colored.replace(f"\x1b[{code}m", "")
    assert plain == colored


def test_control_characters_are_shown(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """Text that a process chose cannot act on the terminal: escapes, newlines, bidi marks and raw bytes are spelled out."""
    incident = off_the_bus.incidents[0]
    evil = "evil\x1b[2J\n\u202ename\udc80\x9b"
    members = tuple(
        replace(one, finding=replace(one.finding, event=replace(one.finding.event, process=evil, pid=1)))
        for one in incident.members
    )
    context = (replace(incident.context[0], record=record("\x07bell", 784.5, 1)),)
    shown = replace(incident, members=members, context=context, unknowns=(evil,), hosts=("node\x1b]0;",), sentence=evil)
    text = text_of(replace(off_the_bus, incidents=(shown,), malformed=(evil,), inputs=(report(evil),)), few_rules)
    assert set() == {character for character in text if character != "\n" and not character.isprintable()}
    assert "evil\\x1b[2J\\n\\u202ename\\x80\\x9b" in text


def test_hostile_names_never_reach_a_command(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """A host name that a shell or an option parser would misread is not filled in."""
    for host in ("-oProxyCommand=reboot", "a;reboot", "$(reboot)", "a b"):
        incident = replace(off_the_bus.incidents[0], hosts=(host,), investigate=(Demand(rung="check_host"),))
        text = text_of(replace(off_the_bus, incidents=(incident,)), few_rules)
        assert "ssh <node> sh -c 'dmesg | tail'" in text


def test_a_reset_is_never_aimed_at_a_switch(few_rules: RuleTable) -> None:
    """An NVSwitch's address does not become the GPU of a command."""
    incident = lost_gpu()
    root = incident.members[incident.root]
    switch = replace(root.finding.event, kind="sxid", code=20034)
    members = (replace(root, finding=replace(root.finding, event=switch)),)
    of_switch = replace(incident, members=members, root=0, recovery=Demand(rung="reset_gpu", when="now"), investigate=())
    assert "nvidia-smi --gpu-reset -i <gpu>" in text_of(postmortem_of(of_switch), few_rules)


def test_both_readers_are_served(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """Where the job's owner has another answer than the node's admin, both are given."""
    text = text_of(off_the_bus, few_rules)
    assert "Your job:  Restart the job elsewhere" in text
    assert "Your node: power cycle" in text


def test_further_incidents_are_shorter(few_rules: RuleTable) -> None:
    """The first incident is told in full, the next ones in a few lines, the rest as a tally."""
    text = text_of(postmortem_of(*[lost_gpu()] * 20), few_rules)
    assert 1 == text.count("ROOT")
    assert 13 == text.count("fell off the PCIe bus at")
    assert "And 7 more incidents:" in text


def test_nothing_found_is_no_promise(nothing: Postmortem, few_rules: RuleTable) -> None:
    """A clean log is called clean with what was read, and silence is not sold as health."""
    text = text_of(nothing, few_rules)
    assert text.startswith("No GPU fault found in 1,234 lines of /home/alice/logs/kern.log.1.gz.")
    assert "Silence is no proof of health" in text


def test_an_empty_input_is_called_empty(nothing: Postmortem, few_rules: RuleTable) -> None:
    """Nothing read is not the same as nothing found."""
    empty = replace(nothing, records=0, inputs=(report(records=0),))
    assert text_of(empty, few_rules).startswith("Nothing was read")


def test_unbelieved_lines_are_listed(nothing: Postmortem, off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """A line that user space wrote is named as such, and opens nothing."""
    forged = off_the_bus.incidents[0].members[1]
    forged_event = replace(forged.finding.event, record=replace(forged.finding.event.record, trusted="no"))
    loose = (replace(forged, finding=replace(forged.finding, event=forged_event)),)
    text = text_of(replace(nothing, loose=loose), few_rules)
    assert "Not believed" in text
    assert "Xid 79" in text


def test_what_was_lost_is_said(nothing: Postmortem, few_rules: RuleTable) -> None:
    """Notes about an input and records that it lost are shown."""
    damaged = replace(report(records=10), notes=("cut off in the middle",), lost_records=5)
    text = text_of(replace(nothing, inputs=(damaged,)), few_rules)
    assert "cut off in the middle" in text
    assert "5 records lost" in text


def test_network_errors_without_a_fault_are_told(few_rules: RuleTable) -> None:
    """A log without a fault of a GPU that tells of the network says so, the first lines of many."""
    lines = tuple(Context(kind="link_down", record=record(f"mlx5_{n}: Link down", 0.0, n)) for n in range(5))
    text = text_of(Postmortem(inputs=(), hosts=(), incidents=(), context=lines, records=5), few_rules)
    assert "line 2 tells of a network link that went down: mlx5_2: Link down" in text
    assert "and 2 more lines like these" in text
