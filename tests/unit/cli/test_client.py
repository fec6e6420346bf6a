"""Which daemon a command asks, if it is not told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.cli.asking.client import usual_socket

if TYPE_CHECKING:
    from pathlib import Path


def test_a_user_without_a_daemon_asks_that_of_root(tmp_path: Path) -> None:
    own, roots = tmp_path / "own/pinfold/pinfold.sock", tmp_path / "run/pinfold.sock"
    environment = {"XDG_RUNTIME_DIR": str(tmp_path / "own")}
    assert usual_socket(environment, 1000, roots) == own  # there is neither
    roots.parent.mkdir()
    assert usual_socket(environment, 1000, roots) == roots
    assert usual_socket({**environment, "PINFOLD_SOCKET": "/named"}, 1000, roots).name == "named"
    own.parent.mkdir(parents=True)
    own.touch()
    assert usual_socket(environment, 1000, roots) == own
