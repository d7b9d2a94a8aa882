"""A fake NVML for every test here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nvml.fake import Fake, library


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    """The fake with eight healthy GPUs, until told otherwise."""
    library(old=False)
    return Fake(monkeypatch, tmp_path)
