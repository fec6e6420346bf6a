"""The manual pages: one for every verb, and correct roff."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from pinfold.cli.main import VERBS
from tests.needs import needs
from tests.unit.tools.tool import run

if TYPE_CHECKING:
    from pathlib import Path


def test_there_is_a_page_for_every_verb_with_its_options(tmp_path: Path) -> None:
    done = run("manpages", tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.stem for path in tmp_path.iterdir()} == {"pinfold", *(f"pinfold-{verb}" for verb in VERBS)}
    page = (tmp_path / "pinfold-serve.1").read_text()
    assert r"\-\-reserved\-cpus CPUS" in page
    assert page.isascii()


@needs("groff", met=bool(shutil.which("groff")))
def test_groff_has_no_complaint(tmp_path: Path) -> None:
    assert run("manpages", tmp_path).returncode == 0
    command: list[str | Path] = ["groff", "-ww", "-man", "-Tutf8", *sorted(tmp_path.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
