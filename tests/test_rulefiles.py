"""Reading rule files: shipped and a site's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from xidwatch.errors import XidwatchError
from xidwatch.rulefiles import RuleFileError, check_dir, load_rules

GOOD = """
[[rule]]
id = "xid-79"
xid = 79
title = "lost GPU"
phrase = "is gone"
class = "platform"
origin = "hardware"
severity = "critical"
scope = "gpu"
recovery = "power_cycle"
investigate = ["check_seating"]
rank = 99
explain = "Our racks need a power cycle."
sources = [{ url = "https://wiki.example.org/gpu", checked = 2026-11-30 }]
examples = ['NVRM: Xid (PCI:0000:9b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.']
"""


def folder(tmp_path: Path, text: str) -> Path:
    """A folder with one rule file."""
    (tmp_path / "site.toml").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_site_rule_takes_the_place_of_the_shipped_one(tmp_path: Path) -> None:
    """Later files override by id, and the rule tells the file it came from."""
    table = load_rules(site=folder(tmp_path, GOOD))
    assert ("power_cycle", str(tmp_path / "site.toml")) == (table.rule("xid-79").recovery, table.rule("xid-79").file)
    assert ["xid-79"] == [rule.id for rule in table.rules_about("xid", 79)]


def test_a_rules_folder_overrides_the_site(tmp_path: Path) -> None:
    """`--rules DIR` comes after /etc/xidwatch/rules.d."""
    for name, rung in (("site", "power_cycle"), ("mine", "restart_vm")):
        (tmp_path / name).mkdir()
        folder(tmp_path / name, GOOD.replace("power_cycle", rung))
    assert "restart_vm" == load_rules([tmp_path / "mine"], site=tmp_path / "site").rule("xid-79").recovery


def test_a_site_may_add_rules(tmp_path: Path) -> None:
    """A new id is a new rule, and the shipped ones stay."""
    table = load_rules(site=folder(tmp_path, GOOD.replace('"xid-79"', '"xid-79-rack-b"')))
    assert {"xid-79", "xid-79-rack-b"} <= {rule.id for rule in table.rules_about("xid", 79)}


def test_all_mistakes_are_told_at_once_with_their_places(tmp_path: Path) -> None:
    """One run names every wrong key, value, rung and class, each with file and line."""
    bad = GOOD.replace('"platform"', '"plattform"').replace("rank = 99", 'rank = "99"\ncolour = "red"')
    second = (
        GOOD.replace('"xid-79"', '"xid-80"').replace('"power_cycle"', '"pray"').replace("rank = 99", "rank = 9\nmatch = '('")
    )
    with pytest.raises(RuleFileError) as raised:
        load_rules(site=folder(tmp_path, bad + second))
    told = "\n".join(raised.value.mistakes)
    for word in (": class:", ": rank:", "colour", "'pray' is no rung", "match:"):
        assert word in told
    assert f"{tmp_path / 'site.toml'}:2: [[rule]] xid-79" in told
    assert f"{tmp_path / 'site.toml'}:19: [[rule]] xid-80" in told
    assert isinstance(raised.value, XidwatchError)


def test_broken_toml_is_told_with_its_line(tmp_path: Path) -> None:
    """A file that is no TOML is named, with the parser's line."""
    with pytest.raises(RuleFileError, match=r"site\.toml: .*line 3"):
        load_rules(site=folder(tmp_path, "[[rule]]\nid = 'x'\nxid == 3\n"))


def test_a_missing_folder_is_a_mistake(tmp_path: Path) -> None:
    """`--rules DIR` of a folder that is not there is told, not ignored."""
    with pytest.raises(RuleFileError, match="no such folder"):
        load_rules([tmp_path / "nowhere"], site=tmp_path)


def test_check_dir_is_silent_about_a_good_folder(tmp_path: Path) -> None:
    """A right folder has no mistakes."""
    assert [] == check_dir(folder(tmp_path, GOOD))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            ("79, pid=1234, name=python3, GPU has fallen off the bus.", "43, pid=1, name=a, Ch 00000010"),
            "its example hits xid-43",
        ),
        (("NVRM: Xid (PCI:0000:9b:00): 79, pid=1234, name=python3, GPU has", "The GPU has"), "no rule at all"),
        (('"check_seating"', '"look_hard"'), "'look_hard' is not known"),
        (("xid = 79", 'xid = 79\nwhere = { colour = "red" }'), "no event has a field 'colour'"),
        (("checked = 2026-11-30", 'checked = "lately"'), "is not a day"),
        (("xid = 79\n", ""), "say what it is about"),
    ],
)
def test_check_dir_finds(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    """Mistakes that only show when a rule is tried are found by `rules check`."""
    mistakes = check_dir(folder(tmp_path, GOOD.replace(*change)))
    assert any(told in mistake for mistake in mistakes), mistakes


def test_check_dir_finds_double_ids_and_empty_selectors(tmp_path: Path) -> None:
    """An id twice in one folder, and a selector that selects no rule, are mistakes."""
    combination = """
[[combination]]
id = "lonely"
member = "xid-4711"
together = ["xid-79"]
recovery = "reset_gpu"
explain = "Never."
sources = [{ url = "https://wiki.example.org/gpu", checked = 2026-11-30 }]
"""
    told = "\n".join(check_dir(folder(tmp_path, GOOD + GOOD + combination)))
    assert "xid-79 is there 2 times" in told
    assert "member: 'xid-4711' selects no rule" in told


def test_loading_the_shipped_rules_imports_no_pydantic() -> None:
    """The start of `explain` does not pay for the checks of site rules."""
    code = (
        "import sys; from pathlib import Path; from xidwatch.rulefiles import load_rules; "
        "load_rules(site=Path('/nonexistent')).rules_about('xid', 94); print('pydantic' in sys.modules)"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert "False" == done.stdout.strip()


def test_shipped_rules_that_this_user_may_not_read_are_told(tmp_path: Path) -> None:
    """A sentence and exit status 2, no traceback: the folder is closed, or a file in it."""
    import shutil

    import xidwatch

    package = tmp_path / "lib" / "xidwatch"
    shutil.copytree(Path(xidwatch.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "_rules").write_text("not a folder", encoding="utf-8")
    log = tmp_path / "kern.log"
    log.write_text("[1.0] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n", encoding="utf-8")
    for rules in (None, "dangling"):
        if rules is not None:
            (package / "_rules").unlink()
            (package / "_rules").mkdir()
            (package / "_rules" / "xid.toml").symlink_to(tmp_path / "nowhere")
        done = subprocess.run(
            [sys.executable, "-m", "xidwatch", "explain", str(log)],
            capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "lib")}, check=False,
        )  # fmt: skip
        assert (2, "") == (done.returncode, done.stdout)
        assert "the rules that come with xidwatch cannot be read" in done.stderr and "Traceback" not in done.stderr
