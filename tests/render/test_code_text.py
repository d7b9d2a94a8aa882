"""What `xidwatch explain CODE` answers."""

from __future__ import annotations

import json

import pytest

from xidwatch.core.classify import RuleTable
from xidwatch.render.code_text import explain_code, explain_code_json, look_up

CONTAINED = "NVRM: Xid (PCI:0000:4e:00): 94, pid=4711, name=python3, Contained: SM (0x1). RST: Yes, D-RST: No"


@pytest.mark.parametrize("argument", ["94", "xid94", "Xid 94", "XID-94", "NVRM: Xid 94", " 94 "])
def test_spellings_of_a_code(argument: str, few_rules: RuleTable) -> None:
    """A code is understood however it is typed; its general rule comes first, its special cases after it."""
    answer = look_up(argument, few_rules)
    assert answer
    assert ("Xid 94", ["xid-94", "xid-94-reset"]) == (answer.title, [rule.id for rule in answer.rules])


@pytest.mark.parametrize("argument", ["hung_task", "hung-task", "D state", "hung-task-gpu"])
def test_spellings_of_a_name(argument: str, few_rules: RuleTable) -> None:
    """A kind, a common name for it and a rule's id are understood."""
    answer = look_up(argument, few_rules)
    assert answer
    assert ["hung-task-gpu"] == [rule.id for rule in answer.rules]


def test_five_digits_are_an_sxid(rules: RuleTable) -> None:
    """SXid numbers have five digits, Xids have not."""
    answer = look_up("20034", rules)
    assert answer
    assert "SXid 20034" == answer.title


@pytest.mark.parametrize("argument", ["foo", "kern.log", "", "no such thing at all", "Xid", "94 95"])
def test_other_words_are_no_codes(argument: str, few_rules: RuleTable) -> None:
    """What names nothing gets no answer, so that the caller can speak of a missing file."""
    assert explain_code(argument, few_rules) is None


def test_unknown_code_says_so(few_rules: RuleTable) -> None:
    """A number that no rule knows is answered, as unknown."""
    text = explain_code("999", few_rules)
    assert text
    assert text.startswith("Xid 999  no rule knows this code")


def test_pasted_line_is_read(few_rules: RuleTable) -> None:
    """A pasted line is judged as it stands: its flags choose the rule, its GPU and process fill the commands."""
    for line in (CONTAINED, f"Nov 30 02:13:05 node01 kernel: [12345.678901] {CONTAINED}"):
        text = explain_code(line, few_rules)
        assert text
        assert "needs a reset" in text.splitlines()[0]
        assert "GPU 0000:4e:00.0" in text
        assert "python3 (4711)" in text
        assert "RST: Yes" in text
        assert "nvidia-smi --gpu-reset -i 0000:4e:00.0" in text


def test_pasted_fault_is_taken_apart(rules: RuleTable) -> None:
    """Engine, access and address of an MMU fault are named."""
    text = explain_code(
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=2201, name=python3, Ch 0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 "
        "GPCCLIENT_T1_0 faulted @ 0x7f12_3a000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
        rules,
    )
    assert text
    assert "GRAPHICS" in text
    assert "VIRT_READ" in text
    assert "0x7f123a000000" in text


def test_pasted_control_characters_do_not_act(few_rules: RuleTable) -> None:
    """A pasted line's escapes are shown."""
    text = explain_code(
        "NVRM: Xid (PCI:0000:4e:00): 94, pid=1, name=a\x1b]0;b, Contained: SM (0x1). RST: No, D-RST: No", few_rules
    )
    assert text
    assert "\x1b" not in text


def test_what_an_action_takes(few_rules: RuleTable) -> None:
    """A rung is explained under its own name."""
    text = explain_code("reset_gpu", few_rules)
    assert text
    assert "nvidia-smi --gpu-reset -i <gpu>" in text


def test_as_json(few_rules: RuleTable) -> None:
    """The same answer for programs."""
    known, unknown, line = (json.loads(explain_code_json(argument, few_rules) or "") for argument in ("94", "999", CONTAINED))
    assert (True, False) == (known["known"], unknown["known"])
    assert ("memory", "xid-94") == (known["rules"][0]["class"], known["rules"][0]["id"])
    assert ("xid", 94, "0000:4e:00.0", 4711, "xid-94-reset") == tuple(
        line["line"][name] for name in ("kind", "code", "pci", "pid", "rule")
    )


def test_article_facts_are_right(rules: RuleTable) -> None:
    """Each number of the article's table has its class: 31, 48, 63, 94 memory; 13, 43, 45, 62, 119 compute."""
    classes = {}
    for number in (31, 48, 63, 94, 13, 43, 45, 62, 119):
        answer = look_up(str(number), rules)
        assert answer
        classes[number] = answer.rules[0].fault_class
    assert {"memory": [31, 48, 63, 94], "compute": [13, 43, 45, 62, 119]} == {
        name: [number for number in classes if classes[number] == name] for name in ("memory", "compute")
    }
