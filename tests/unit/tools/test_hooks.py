"""The git hooks work in a plain checkout."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.unit.tools.tool import TOOLS

ROOT = TOOLS.parent


def test_every_hook_calls_a_tool_of_the_checkout() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    for hook in config["repos"][0]["hooks"]:
        assert hook["language"] == "system"
        tool = Path(hook["entry"].split()[0])
        assert tool.parts[:2] == (".venv", "bin") or (ROOT / tool).stat().st_mode & 0o111
