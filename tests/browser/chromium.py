"""Chromium without a window: a page's pictures, its document after loading, and what it says on its console."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--hide-scrollbars", "--force-device-scale-factor=1",
)  # fmt: skip
_CONSOLE = re.compile(r":CONSOLE[:(]\d+\)?\]\s*(.*)")
_DARK, _LIGHT = 0, 1
"""Blink's numbers for the reader's preference."""


def find_chromium() -> str | None:
    """The browser's path; None where there is none."""
    return next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)


def run_chromium(browser: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One run with a profile of its own, at most a minute long."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [browser, *FLAGS, f"--user-data-dir={profile}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)


def document_of(browser: str, url: str) -> tuple[str, list[str]]:
    """The document after its scripts ran, and every line on the console."""
    run = run_chromium(browser, "--enable-logging=stderr", "--virtual-time-budget=4000", "--dump-dom", url)
    return run.stdout, _CONSOLE.findall(run.stderr)


def screenshot(browser: str, url: str, to: Path, *, size: tuple[int, int], dark: bool = False) -> None:
    """A picture of the page's top as a person sees it; `size` in CSS pixels."""
    preference = f"--blink-settings=preferredColorScheme={_DARK if dark else _LIGHT}"
    run_chromium(browser, preference, f"--window-size={size[0]},{size[1]}", f"--screenshot={to}", url)
