"""The pages for contributors name what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.unit.tools.tool import TOOLS

ROOT = TOOLS.parent
PLACES = ("", "src/pinfold", "src/pinfold/serve/metrics")
"""Where the pages' paths start."""
_PATH = re.compile(r"`([a-z_.]+(?:/[A-Za-z0-9_.-]+)*(?:/|\.(?:py|md|json)))`")
_LINK = re.compile(r"\]\(([^)#]+)\)")


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    named = {path for path in _PATH.findall(text) if "NAME" not in path}
    missing = {path for path in named if not any((ROOT / place / path).exists() for place in PLACES)}
    missing |= {link for link in _LINK.findall(text) if not ((ROOT / page).parent / link).exists()}
    assert not missing


def test_every_hook_calls_a_tool_of_the_checkout() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    for hook in config["repos"][0]["hooks"]:
        assert hook["language"] == "system"
        tool = Path(hook["entry"].split()[0])
        assert tool.parts[:2] == (".venv", "bin") or (ROOT / tool).stat().st_mode & 0o111
