"""What holds for every rule file that ships."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path

import pytest

from xidwatch.core.classify import RuleTable
from xidwatch.core.rule import INVESTIGATIONS, RUNGS
from xidwatch.rulecheck import example_hits
from xidwatch.rulefiles import load_rules, shipped_rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NVRM_WHATS = {
    "rm_init_adapter_failed", "fallen_off_bus", "probe_failed", "api_mismatch", "reset_required", "gpu_lost", "gpu_missing", "gsp_timeout",
    "gsp_crash_report", "pmu_halted", "fsp_boot_failed", "gfw_boot_timeout", "firmware_missing", "no_gpu_found",
    "unsupported_gpu", "nvassert", "uvm_fatal", "modeset_error", "nvlink_error", "peermem_error", "kernel_oops",
}  # fmt: skip
KINDS = {
    "hung_task", "soft_lockup", "hard_lockup", "rcu_stall", "oom_kill", "aer", "mce",
    "torch_oom", "vllm_preemption", "nccl_timeout", "cuda_error",
}  # fmt: skip


def tables(name: str) -> list[dict[str, object]]:
    """All tables of one name in the shipped files, by a full parse."""
    found: list[dict[str, object]] = []
    for path in sorted(shipped_rules().glob("*.toml")):
        found += tomllib.loads(path.read_text(encoding="utf-8")).get(name, [])
    return found


def test_shipped_files_pass_the_check_of_site_files(tmp_path: Path) -> None:
    """Every shipped file is as strictly right as a site's must be."""
    assert len(tables("rule")) == len(list(load_rules(check=True, site=tmp_path).rules()))


@pytest.mark.parametrize("name", ["rule", "combination", "pattern", "guidance", "action"])
def test_reading_entry_by_entry_equals_a_full_parse(name: str, rules: RuleTable) -> None:
    """Cutting the files into entries loses none and invents none."""
    read: dict[str, list[str]] = {
        "rule": [rule.id for rule in rules.rules()],
        "combination": [combination.id for combination in rules.combinations],
        "pattern": [pattern.id for pattern in rules.patterns],
        "action": [action.id for action in rules.actions],
        "guidance": [found.id for row in tables("guidance") if (found := rules.guidance(str(row["id"])))],
    }
    assert [row["id"] for row in tables(name)] == read[name]


def test_checked_and_unchecked_loading_agree(rules: RuleTable, tmp_path: Path) -> None:
    """The fast path gives the very values that the checked path gives."""
    checked = load_rules(check=True, site=tmp_path)
    plain = {rule.id: rule for rule in rules.rules()}
    assert plain.keys() == {rule.id for rule in checked.rules()}
    different = [
        rule.id
        for rule in checked.rules()
        for name in rule.__dataclass_fields__
        if name != "file" and getattr(rule, name) != getattr(plain[rule.id], name)
    ]
    assert [] == different


def test_ids_are_unique() -> None:
    """No shipped entry hides another."""
    for name in ("rule", "combination", "pattern", "guidance", "action"):
        ids = [row["id"] for row in tables(name)]
        assert len(ids) == len(set(map(str, ids)))


def test_every_rule_has_an_example_and_a_dated_source(rules: RuleTable) -> None:
    """No rule without a real line and a source that says when it was read."""
    for rule in rules.rules():
        assert rule.examples, rule.id
        assert rule.sources, rule.id
        assert all(date.fromisoformat(source.checked) for source in rule.sources), rule.id


def test_every_example_hits_exactly_its_own_rule(rules: RuleTable) -> None:
    """What a rule shows as its line is judged by that rule and makes no second event."""
    wrong = {
        (rule.id, tuple(hits))
        for rule in rules.rules()
        for example in rule.examples
        if (hits := example_hits(rules, example)) != [rule.id]
    }
    assert set() == wrong


def test_every_rung_and_investigation_is_described(rules: RuleTable) -> None:
    """A demand can always be answered with how it is done."""
    assert {*RUNGS, *INVESTIGATIONS} == {action.id for action in rules.actions if action.only is None}


def test_commands_are_marked(rules: RuleTable) -> None:
    """Whatever resets, reboots, unloads or kills is marked as destructive."""
    for action in rules.actions:
        for command in action.commands:
            words = " ".join(command.argv)
            if any(
                word in words for word in ("--gpu-reset", "reboot", "power cycle", "poweroff", "modprobe -r", "kill ", "echo b")
            ):
                assert command.destructive, words
            if "sysrq-trigger" in words or "--gpu-reset" in words:
                assert command.needs_root, words


def test_sysrq_comes_after_the_gentler_reboots_and_warns(rules: RuleTable) -> None:
    """The reboot that loses data is the last one before the BMC and says so."""
    words = [" ".join(command.argv) for command in rules.action("reboot_node").commands]
    sysrq = words.index("sh -c echo b > /proc/sysrq-trigger")
    assert words.index("systemctl reboot") < words.index("systemctl reboot --force") < sysrq
    assert "lost" in (rules.action("reboot_node").commands[sysrq].note or "")


def test_every_wording_of_the_driver_has_a_rule(rules: RuleTable) -> None:
    """Each `what` of the contract is judged by a rule of its own."""
    assert NVRM_WHATS == {rule.what for rule in rules.rules_about("kind", "nvrm")} - {None, "other"}


@pytest.mark.parametrize("kind", sorted(KINDS | {"xid", "sxid", "nvrm"}))
def test_every_kind_has_a_last_resort(kind: str, rules: RuleTable) -> None:
    """An event of a known kind finds a rule whatever it says."""
    bare = [rule for rule in rules.rules_about("kind", kind) if not rule.where and rule.match is None and rule.what is None]
    unknown = kind.replace("_", "-") + "-unknown"
    assert bare or unknown in rules.rule_ids()


def test_all_nvswitch_numbers_have_a_rule(rules: RuleTable) -> None:
    """The 400 numbers that the driver header or a public table knows are each judged."""
    assert 400 == len([rule for rule in rules.rules() if rule.sxid is not None])


def test_an_application_fault_alone_is_never_critical(rules: RuleTable) -> None:
    """Nobody is woken for a program's own mistake."""
    assert [] == [rule.id for rule in rules.rules() if rule.origin == "application" and rule.severity == "critical"]
