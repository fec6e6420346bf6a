"""The files of resctrl, on a directory: it has the kernel's layout, but not its rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.node.resctrl.files import MOUNT, RealFiles

if TYPE_CHECKING:
    from pathlib import Path


def test_groups_are_made_listed_and_removed(tmp_path: Path) -> None:
    (tmp_path / MOUNT / "info").mkdir(parents=True)
    files = RealFiles(tmp_path)
    files.make("pinfold-gold")
    assert files.names("") == ["info", "pinfold-gold"]
    files.write("pinfold-gold/schemata", "L3:0=f\n")
    assert files.read("pinfold-gold/schemata") == "L3:0=f\n"
    (tmp_path / MOUNT / "pinfold-gold/schemata").unlink()
    files.remove("pinfold-gold")
    assert files.names("") == ["info"]


def test_without_a_mount_there_are_no_names(tmp_path: Path) -> None:
    assert RealFiles(tmp_path).names("") == []
