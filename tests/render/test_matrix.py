"""Rules as tables and as TOML."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.render.conftest import RULES, XID_79, rule
from xidwatch.core.classify import RuleTable
from xidwatch.core.rule import Rule
from xidwatch.render.matrix import chosen, render_list, render_matrix_markdown, render_matrix_text, render_rule
from xidwatch.rulefiles import load_rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_matrix_sets_memory_against_compute(few_rules: RuleTable) -> None:
    """In Markdown each title stands in its class's column, beside its code and first command."""
    lines = render_matrix_markdown(chosen(RULES), few_rules).splitlines()
    assert "| Code | Memory (space) | Compute (time) | Other | First command |" == lines[0]
    cells = {line.split(" | ")[0].removeprefix("| "): [cell.strip() for cell in line.split("|")[2:6]] for line in lines[2:]}
    assert ["", "", "GPU has fallen off the bus", "`ipmitool -H <bmc> chassis power cycle`"] == cells["Xid 79"]
    assert ["", "waits for the GPU driver", "", "nothing to do"] == cells["D state"]


def test_matrix_as_text(few_rules: RuleTable) -> None:
    """In a terminal the classes follow each other: memory, compute, other."""
    text = render_matrix_text(chosen(RULES), few_rules, 100)
    assert text.index("Memory (space)") < text.index("Compute (time)") < text.index("Other (")


def test_choice() -> None:
    """Filters combine, and the worst comes first."""
    assert ["xid-94-reset", "xid-94"] == [one.id for one in chosen(RULES, fault_class="memory")]
    assert ["xid-94-reset"] == [one.id for one in chosen(RULES, fault_class="memory", severity="critical")]
    assert ["hung-task-gpu"] == [one.id for one in chosen(RULES, family="hung_task")]


def test_list_has_one_line_for_each_rule() -> None:
    """Every rule is listed under its id."""
    lines = render_list(RULES, 200).splitlines()
    assert [one.id for one in RULES] == [line.split()[0] for line in lines[1:]]


def test_shown_rule_can_be_loaded_again(tmp_path: Path) -> None:
    """What `rules show` prints is a rule file: loaded again it is the same rule."""
    hard = rule(
        "site-1", "a 'title' with \"quotes\"", kind="nvrm", match=r"\bGPU\d+ 'x'", hint="GPU", where=(("what", ("a", "b")),),
        explain="One.\nTwo's.\n", examples=("NVRM: GPU0\nsecond 'line'", "a\ttab"),
    )  # fmt: skip
    for one in (hard, XID_79):
        assert f"# from {one.file}" == render_rule(one).splitlines()[0]
        (tmp_path / one.file).write_text(render_rule(one), encoding="utf-8")
        assert one == load_rules([tmp_path], site=tmp_path / "none").rule(one.id) or _same(one, tmp_path / one.file)


def _same(one: Rule, file: Path) -> bool:
    """Field by field, as the file spells them."""
    (table,) = tomllib.loads(file.read_text(encoding="utf-8"))["rule"]
    return (one.id, one.title, one.match, one.explain, list(one.examples)) == (
        table["id"], table["title"], table.get("match"), table["explain"], table["examples"],
    )  # fmt: skip


def test_every_shipped_rule_survives_being_shown(rules: RuleTable, tmp_path: Path) -> None:
    """No shipped rule loses anything on the way through `rules show`."""
    every = list(rules.rules())
    for one in every[:: max(1, len(every) // 40)]:
        assert _same(one, _written(one, tmp_path))


def _written(one: Rule, folder: Path) -> Path:
    file = folder / "one.toml"
    file.write_text(render_rule(one), encoding="utf-8")
    return file


@pytest.mark.parametrize("width", [80, 100])
def test_shipped_matrix_has_the_article_codes(rules: RuleTable, width: int) -> None:
    """The article's own codes are in the matrix of the shipped rules."""
    text = render_matrix_text([one for one in chosen(rules.rules()) if one.sxid is None], rules, width)
    for code in (13, 31, 43, 45, 48, 62, 63, 94, 119):
        assert f"\nXid {code} " in text
