"""Which rule judges an event, and what its registers and words make of it."""

from __future__ import annotations

import pytest

from xidwatch.core.classify import RuleTable
from xidwatch.core.event import Context, Event, SxidDetail, XidDetail
from xidwatch.core.incident import Finding
from xidwatch.core.nvlink import set_bits, unit_of
from xidwatch.core.parse import Parser
from xidwatch.core.record import Record

NVLINK5 = "NVRM: Xid (PCI:0018:01:00): "


def finding(rules: RuleTable, line: str, driver_version: str | None = None) -> Finding:
    """The judgement on the last event that a line makes."""
    events = [found for found in Parser().feed(Record(text=line)) if not isinstance(found, Context)]
    return rules.classify(events[-1], driver_version=driver_version)


def xid(code: int, **detail: object) -> Event:
    """An Xid event without its line."""
    record = Record(text="")
    made = XidDetail(**detail)  # type: ignore[arg-type]  # each test names fields of XidDetail
    return Event(uid=(0, 0, 0), kind="xid", code=code, record=record, last_record=record, detail=made)


def sxid(code: int, word: str | None) -> Event:
    """An SXid event with a severity word."""
    record = Record(text="")
    detail = SxidDetail(severity_word=word)
    return Event(uid=(0, 0, 0), kind="sxid", code=code, record=record, last_record=record, detail=detail)


def test_contained_error_asks_for_a_restart_of_the_application(rules: RuleTable) -> None:
    """A 94 with both flags at No needs no reset."""
    line = "NVRM: Xid (PCI:0000:0f:00): 94, pid=4711, name=python3, Contained: SM (0x1). RST: No, D-RST: No"
    assert ("xid-94", "restart_app") == (finding(rules, line).rule.id, finding(rules, line).rule.recovery)


def test_contained_error_with_the_reset_flag_asks_for_a_reset(rules: RuleTable) -> None:
    """`RST: Yes` in a 94 decides, not the number."""
    line = "NVRM: Xid (PCI:0000:0f:00): 94, pid=4711, name=python3, Contained: PMU (0x1). RST: Yes, D-RST: No"
    judged = finding(rules, line).rule
    assert ("reset_gpu", "now") == (judged.recovery, judged.when)


@pytest.mark.parametrize("version", [None, "570.86.15", "575.51.03"])
def test_link_down_reason_38_is_read_in_the_old_layout(rules: RuleTable, version: str | None) -> None:
    """Reason 38 asks for nothing although the line says Fatal; the printed name tells the layout."""
    line = NVLINK5 + "149, NETIR_LINK_EVT Fatal   XC0 i0 Link 08 (0x026001c6 0x00000000 0x0 0x0 0x0 0x0)"
    judged = finding(rules, line, version)
    assert ("none", "info") == (judged.rule.recovery, judged.rule.severity)
    assert (judged.decoded or "").startswith("link-down reason 38: ")


@pytest.mark.parametrize("version", [None, "580.95.05"])
def test_link_down_reason_38_is_read_in_the_new_layout(rules: RuleTable, version: str | None) -> None:
    """From R575 the unit is in bits 6:0, and the reason still in 25:20."""
    line = NVLINK5 + "149, NETIR_LINK_DOWN Fatal   XC0 i0 Link 08 (0x02600011 0x00000000 0x0 0x0 0x0 0x0)"
    judged = finding(rules, line, version)
    assert ("none", "info", True) == (judged.rule.recovery, judged.rule.severity, "reason 38" in (judged.decoded or ""))


def test_link_down_reason_of_the_peer(rules: RuleTable) -> None:
    """Reason 37 resets the GPU and points to the other end."""
    line = NVLINK5 + "149, NETIR_LINK_EVT Fatal   XC0 i0 Link 00 (0x025001c6 0x0 0x0 0x0 0x0 0x0)"
    judged = finding(rules, line).rule
    assert ("reset_gpu", ("check_peer",)) == (judged.recovery, judged.investigate)


def test_unknown_link_down_reason_leaves_the_base_rule(rules: RuleTable) -> None:
    """A reason that the table lacks is not read as another one."""
    line = NVLINK5 + "149, NETIR_LINK_EVT Fatal   XC0 i0 Link 00 (0x03f001c6 0x0 0x0 0x0 0x0 0x0)"
    judged = finding(rules, line)
    assert (rules.rule(judged.rule.id), None) == (judged.rule, judged.decoded)


@pytest.mark.parametrize(
    ("intr_info", "version", "recovery"),
    [(0x0C1, None, "none"), (0x4C1, None, "reset_gpu"), (0x006, "580.95.05", "none"), (0x086, "580.95.05", "reset_gpu")],
)
def test_second_bit_of_rxpipe_asks_for_a_reset(rules: RuleTable, intr_info: int, version: str | None, recovery: str) -> None:
    """Bit 10, from R575 bit 7, turns ignore into reset."""
    event = xid(145, subcode="RLW_RXPIPE", severity_word="Nonfatal", registers=(intr_info, 1, 0, 0, 0, 0))
    assert recovery == rules.classify(event, driver_version=version).rule.recovery


def test_severity_word_of_an_nvlink_xid_decides_nothing(rules: RuleTable) -> None:
    """The same registers give the same answer under both words."""
    fatal, nonfatal = (
        rules.classify(xid(144, subcode="SAW_MVB", severity_word=word, registers=(1, 2, 0, 0, 0, 0))).rule
        for word in ("Fatal", "Nonfatal")
    )
    assert ("reset_gpu", "critical") == (fatal.recovery, fatal.severity)
    assert (fatal.recovery, fatal.severity, fatal.investigate) == (nonfatal.recovery, nonfatal.severity, nonfatal.investigate)


def test_of_several_status_bits_the_strongest_demand_counts(rules: RuleTable) -> None:
    """A status with a harmless and a fatal bit asks for the reset."""
    assert "reset_gpu" == rules.classify(xid(144, subcode="SAW_MVB", registers=(1, 0x6, 0, 0, 0, 0))).rule.recovery


def test_cut_line_uses_the_name_where_all_its_rows_agree(rules: RuleTable) -> None:
    """Without registers NETIR_INT still has one answer, RLW_REMAP has none."""
    assert "reset_gpu" == rules.classify(xid(149, subcode="NETIR_INT")).rule.recovery
    assert rules.classify(xid(149, subcode="NETIR_INT")).decoded is not None
    assert rules.classify(xid(145, subcode="RLW_REMAP")).decoded is None


def test_unit_zero_is_told_by_the_printed_name(rules: RuleTable) -> None:
    """MSE reports have no unit number of their own; older names come with blanks."""
    event = xid(150, subcode="MSE degraded", severity_word="Fatal", registers=(0, 0xFFFFFFFF, 0, 0, 0, 0))
    assert "reset_gpu" == rules.classify(event).rule.recovery


def test_cross_contained_error_points_to_the_remote_end(rules: RuleTable) -> None:
    """XC1 adds the peer to what is to be looked at."""
    event = xid(145, subcode="RLW_REMAP", cross_contained=1, registers=(0x80, 4, 0, 0, 0, 0))
    assert "check_peer" in rules.classify(event).rule.investigate


def test_unit_bits() -> None:
    """The unit moved from bits 9:5 to bits 6:0 with R575."""
    assert (14, 17) == (unit_of(0x026001C6, "before_r575"), unit_of(0x02600011, "from_r575"))


def test_registers_of_an_xid_74_count_from_one() -> None:
    """The first word is register 1; the second, sixth and seventh say nothing."""
    assert [(1, 16), (3, 0)] == list(set_bits((0x10000, 0x1, 0x1, 0, 0, 0x4, 0x8)))


def test_xid_74_is_read_bit_by_bit(rules: RuleTable) -> None:
    """Bit 16 of register 1 asks to check the link and its seating."""
    line = "NVRM: Xid (PCI:0000:b9:00): 74, pid=<unknown>, name=<unknown>, NVLink: fatal error detected on link 6"
    judged = finding(rules, line + "(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)")
    assert {"check_link", "check_seating"} <= set(judged.rule.investigate)
    assert (judged.decoded or "").startswith("register 1 bit 16: ")


def test_harmless_bits_of_an_xid_74_ask_for_nothing(rules: RuleTable) -> None:
    """Bits 0, 23 and 30 of register 1 alone are info."""
    judged = rules.classify(xid(74, registers=(0x40800001, 0, 0, 0, 0, 0, 0))).rule
    assert ("none", "info", ()) == (judged.recovery, judged.severity, judged.investigate)


def test_unlisted_bit_of_an_xid_74_is_reported(rules: RuleTable) -> None:
    """A bit that the workflow does not name goes to the vendor."""
    assert "contact_support" in rules.classify(xid(74, registers=(0x4, 0, 0, 0, 0, 0, 0))).rule.investigate


@pytest.mark.parametrize(
    ("code", "word", "severity", "recovery"),
    [
        (20009, "Non-fatal", "warning", "none"),
        (20009, "Fatal", "critical", "reset_fabric"),
        (20009, None, "critical", "reset_fabric"),
        (22013, "Fatal", "critical", "reset_fabric"),
        (12021, "Correctable", "info", "none"),
    ],
)
def test_severity_word_of_an_sxid_wins_over_the_table(
    rules: RuleTable, code: int, word: str | None, severity: str, recovery: str
) -> None:
    """The driver's own word is newer than any table; without one the table counts."""
    judged = rules.classify(sxid(code, word)).rule
    assert (f"sxid-{code}", severity, recovery) == (judged.id, judged.severity, judged.recovery)


def test_unknown_numbers_are_shown_as_unknown(rules: RuleTable) -> None:
    """A code that no rule knows is a warning for the vendor, never dropped."""
    for judged in (rules.classify(xid(4711)).rule, rules.classify(sxid(39999, None)).rule):
        assert judged.id.endswith("-unknown")
        assert ("warning", ("contact_support",)) == (judged.severity, judged.investigate)


def test_unknown_fatal_sxid_is_critical(rules: RuleTable) -> None:
    """The word counts for numbers without a rule too."""
    assert "critical" == rules.classify(sxid(39999, "Fatal")).rule.severity


def test_unknown_wording_of_the_driver_is_other(rules: RuleTable) -> None:
    """A `what` without a rule of its own falls to the rule for other lines."""
    record = Record(text="NVRM: something new")
    event = Event(uid=(0, 0, 0), kind="nvrm", what="something_new", record=record, last_record=record)
    assert "nvrm-other" == rules.classify(event).rule.id


def test_most_special_rule_wins(rules: RuleTable) -> None:
    """A stuck task that can be killed is told from one that cannot, and from one in the GPU driver."""
    assert rules.rule("hung-task-gpu-killable").where == (("attribution", ("gpu",)), ("killable", (True,)))
    assert "oom-kill-memcg" == finding(rules, rules.rule("oom-kill-memcg").examples[0]).rule.id
