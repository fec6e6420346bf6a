"""The settings file of a plugin that a container runtime starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.errors import ParseError
from pinfold.settings.pluginfile import plugin_flags

if TYPE_CHECKING:
    from pathlib import Path

LAUNCHED = {"NRI_PLUGIN_SOCKET": "3", "NRI_PLUGIN_NAME": "pinfold", "NRI_PLUGIN_IDX": "10"}


def test_a_plugin_that_the_runtime_starts_has_its_flags_in_a_file(tmp_path: Path) -> None:
    text = "# this node\n--reserved-cpus 0-1\n--policy-options=full-pcpus-only=true --state-dir '/var/lib/my pins'\n"
    (tmp_path / "pinfold.conf").write_text(text)
    flags = ["--reserved-cpus", "0-1", "--policy-options=full-pcpus-only=true", "--state-dir", "/var/lib/my pins"]
    assert plugin_flags(LAUNCHED, tmp_path) == flags
    (tmp_path / "10-pinfold.conf").write_text("--policy none")  # as in NRI, the one with the index counts
    assert plugin_flags(LAUNCHED, tmp_path) == ["--policy", "none"]


def test_a_plugin_without_a_file_has_no_flags(tmp_path: Path) -> None:
    assert plugin_flags(LAUNCHED, tmp_path) == []
    assert plugin_flags(LAUNCHED, tmp_path / "missing") == []


@pytest.mark.parametrize("data", [b"--policy 'none", b"\xff"], ids=["an open quote", "not UTF-8"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "pinfold.conf").write_bytes(data)
    with pytest.raises(ParseError, match=r"pinfold\.conf"):
        plugin_flags(LAUNCHED, tmp_path)
