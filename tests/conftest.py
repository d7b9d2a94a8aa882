"""What every test shares: the shipped rules, and the option that rewrites golden files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from xidwatch.core.classify import RuleTable
from xidwatch.rulefiles import load_rules

# How long an example takes says more about what else the machine is doing than about the code.
settings.register_profile("xidwatch", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("xidwatch")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --update-expected."""
    parser.addoption("--update-expected", action="store_true", help="write the golden files anew; review the diff")


@pytest.fixture(scope="session")
def rules(tmp_path_factory: pytest.TempPathFactory) -> RuleTable:
    """The rules that ship, without those of the machine the tests run on."""
    no_site: Path = tmp_path_factory.mktemp("no-site-rules")
    return load_rules(site=no_site)
