"""What a new user installs: `make run` sets up little, and wheel and sdist install with pip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import pinfold

ROOT: Final = Path(__file__).resolve().parents[2]
MOST_PACKAGES: Final = 10
PATIENCE: Final = 300

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tracked files, as a clone has them."""
    copy = tmp_path_factory.mktemp("clean") / "pinfold"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    return copy


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def packages(python: Path, cwd: Path) -> set[str]:
    lines = run(python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check", cwd=cwd).splitlines()
    return {line.partition("==")[0].partition(" @ ")[0].lower() for line in lines if not line.startswith("#")}


def test_make_run_installs_only_what_the_daemon_needs(checkout: Path) -> None:
    run("make", f"PYTHON={sys.executable}", ".venv/.runs", cwd=checkout)
    found = packages(checkout / ".venv/bin/python", checkout)
    assert "pinfold" in found
    assert not {"pytest", "mypy", "ruff", "distributed"} & found
    assert len(found) <= MOST_PACKAGES, found


def test_the_tools_are_added_to_the_same_environment_and_run_needs_nothing_more_then(checkout: Path) -> None:
    (checkout / ".venv").mkdir(exist_ok=True)
    planned = run("make", "-n", "test", cwd=checkout)
    assert "tools/setup .venv dev" in planned
    for stamp in (".runs", ".installed"):
        (checkout / ".venv" / stamp).touch()
    assert "tools/setup" not in run("make", "-n", "run", cwd=checkout)


@pytest.mark.parametrize("pattern", ["pinfold-*.whl", "pinfold-*.tar.gz"], ids=["wheel", "sdist"])
def test_wheel_and_sdist_install_with_pip_in_an_empty_environment(checkout: Path, tmp_path: Path, pattern: str) -> None:
    if not list((checkout / "dist").glob(pattern)):
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", ".", cwd=checkout)
    (archive,) = (checkout / "dist").glob(pattern)
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    run(tmp_path / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", archive, cwd=tmp_path)
    assert pinfold.__version__ in run(tmp_path / "venv/bin/pinfold", "version", cwd=tmp_path)
    assert os.access(tmp_path / "venv/bin/kubectl-pinfold", os.X_OK)
