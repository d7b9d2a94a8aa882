"""What ships: the wheel, its entry point, and how much the command imports."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import xidwatch
from tests.postmortems import ROOT

PURE = frozenset({
    "__future__", "abc", "bisect", "calendar", "collections", "collections.abc", "dataclasses", "datetime", "enum", "functools", "hashlib",
    "heapq", "html", "itertools", "json", "math", "operator", "re", "statistics", "string", "struct", "textwrap", "types",
    "typing", "uuid",
})  # fmt: skip
"""Standard library that computes and does nothing else."""
EFFECTS = frozenset({"open", "print", "input", "exec", "eval", "breakpoint"})


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from this tree, without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_wheel_contains_the_rules(wheel: zipfile.ZipFile) -> None:
    """Each rule file is in the wheel as it is in the tree."""
    shipped = {name: wheel.read(name) for name in wheel.namelist() if name.startswith("xidwatch/_rules/")}
    assert {f"xidwatch/_rules/{path.name}": path.read_bytes() for path in (ROOT / "rules").iterdir()} == shipped
    assert shipped


def test_wheel_contains_the_scenarios(wheel: zipfile.ZipFile) -> None:
    """Each scenario of the GPUs is in the wheel as it is in the tree: the demo needs them where there is no clone."""
    shipped = {name: wheel.read(name) for name in wheel.namelist() if name.startswith("xidwatch/_scenarios/")}
    assert {f"xidwatch/_scenarios/{path.name}": path.read_bytes() for path in (ROOT / "scenarios").iterdir()} == shipped
    assert shipped


@pytest.mark.parametrize("folder", ["slurm", "npd"])
def test_wheel_contains_the_wrappers(wheel: zipfile.ZipFile, folder: str) -> None:
    """What schedulers start is in the wheel as it is in the tree, and may be run there too."""
    shipped = {info.filename: info for info in wheel.infolist() if info.filename.startswith(f"xidwatch/_{folder}/")}
    assert {f"xidwatch/_{folder}/{path.name}" for path in (ROOT / folder).iterdir()} == set(shipped)
    for path in (ROOT / folder).iterdir():
        info = shipped[f"xidwatch/_{folder}/{path.name}"]
        assert (path.read_bytes(), path.stat().st_mode & 0o100) == (wheel.read(info), info.external_attr >> 16 & 0o100)


def test_wheel_contains_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    """Every module is in the wheel; no test, fixture or benchmark is."""
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "xidwatch").rglob("*.py")}
    assert modules == {name for name in wheel.namelist() if name.endswith(".py")}
    assert {"xidwatch", f"xidwatch-{xidwatch.__version__}.dist-info"} == {name.split("/")[0] for name in wheel.namelist()}


def test_wheel_installs_the_command(wheel: zipfile.ZipFile) -> None:
    """Installing gives a command named xidwatch."""
    entry_points = wheel.read(f"xidwatch-{xidwatch.__version__}.dist-info/entry_points.txt").decode()
    assert "xidwatch = xidwatch.cli:run" in entry_points


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["explain", "--help"]])
def test_help_imports_no_outside_package(arguments: list[str]) -> None:
    """Help and version come without waiting for packages that they do not need."""
    script = (
        "import sys; from xidwatch.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print('IMPORTED', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    run = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    imported = set(run.stdout.rpartition("IMPORTED")[2].split())
    assert set() == imported & {
        "pydantic",
        "rich",
        "jinja2",
        "ahocorasick_rs",
        "isal",
        "stringzilla",
        "zstandard",
        "systemd",
        "pynvml",
    }


@pytest.mark.parametrize("path", sorted((ROOT / "xidwatch" / "core").rglob("*.py")), ids=lambda path: path.stem)
def test_core_is_pure(path: Path) -> None:
    """A core module imports only itself and standard library that computes, and calls nothing that reads or writes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert set() == {name for name in imported if not name.startswith("xidwatch.core")} - PURE
    assert set() == called & EFFECTS
