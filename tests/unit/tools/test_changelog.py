"""Fragments: their form, and how they become a section of CHANGELOG.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.tools.tool import TOOLS, run

if TYPE_CHECKING:
    from pathlib import Path

OLD = "# Changelog\n\nWhat users notice.\n\n## 0.1.0\n\n- The first version.\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "README.md").write_text("The form.\n")
    (tmp_path / "CHANGELOG.md").write_text(OLD)
    return tmp_path


def write(root: Path, name: str, text: str) -> Path:
    path = root / "changes" / name
    path.write_text(text)
    return path


def test_the_fragments_of_this_repository_have_the_form() -> None:
    checked = run("changelog", "--check")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert list((TOOLS.parent / "changes").glob("*.md"))


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        pytest.param("layout.md", "- New.\n", "the name is not NAME.KIND.md", id="no kind"),
        pytest.param("layout.better.md", "- New.\n", "one of added, changed, fixed", id="unknown kind"),
        pytest.param("Layout.added.md", "- New.\n", "allowed are a-z, 0-9 and -", id="capital letter"),
        pytest.param("notes.txt", "- New.\n", "the name is not NAME.KIND.md", id="no markdown"),
        pytest.param("layout.added.md", "\n", "it is empty; say what a user notices", id="empty"),
        pytest.param("layout.added.md", "New.\n", "line 1: a list item starts with '- '", id="no list"),
        pytest.param("layout.added.md", "  New.\n", "line 1: a list item starts with '- '", id="begins inside an item"),
        pytest.param("layout.added.md", "- New.\n\n- Newer.\n", "line 2: a list item", id="empty line"),
        pytest.param("layout.added.md", "- New\n", "must end with a full stop and one newline", id="no full stop"),
        pytest.param("layout.added.md", "- New.", "must end with a full stop and one newline", id="no newline"),
    ],
)
def test_a_fragment_without_the_form_is_named_with_what_is_allowed(
    root: Path, name: str, text: str, problem: str
) -> None:
    write(root, name, text)
    checked = run("changelog", "--check", "--root", root)
    assert checked.returncode == 1
    assert checked.stderr.startswith(f"changes/{name}: ")
    assert problem in checked.stderr


def test_all_wrong_fragments_are_reported_at_once(root: Path) -> None:
    write(root, "a.md", "- New.\n")
    write(root, "b.added.md", "")
    assert [line.split(":")[0] for line in run("changelog", "--check", "--root", root).stderr.splitlines()] == [
        "changes/a.md",
        "changes/b.added.md",
    ]


def test_the_section_is_ordered_by_kind_then_name_and_links_from_the_root(root: Path) -> None:
    write(root, "z.fixed.md", "- A fix,\n  in two lines.\n")
    write(root, "b.added.md", "- B, see [events](../docs/events.md).\n")
    write(root, "a.added.md", "- A.\n")
    assert run("changelog", "--root", root).stdout == (
        "## Next version\n\n### Added\n\n- A.\n- B, see [events](docs/events.md).\n"
        "\n### Fixed\n\n- A fix,\n  in two lines.\n"
    )
    assert (root / "CHANGELOG.md").read_text() == OLD


def test_a_release_writes_its_section_first_and_removes_the_fragments(root: Path) -> None:
    write(root, "a.added.md", "- A.\n")
    assert run("changelog", "0.2.0", "--root", root).returncode == 0
    section = "## 0.2.0\n\n### Added\n\n- A.\n\n"
    assert (root / "CHANGELOG.md").read_text() == OLD.replace("## 0.1.0", f"{section}## 0.1.0")
    assert [path.name for path in (root / "changes").iterdir()] == ["README.md"]


@pytest.mark.parametrize("version", ["0.1.0", "next"], ids=["known already", "no version"])
def test_a_release_that_is_refused_changes_nothing(root: Path, version: str) -> None:
    fragment = write(root, "a.added.md", "- A.\n")
    refused = run("changelog", version, "--root", root)
    assert refused.returncode != 0
    assert version in refused.stderr
    assert fragment.exists()
    assert (root / "CHANGELOG.md").read_text() == OLD


def test_a_release_with_a_wrong_fragment_changes_nothing(root: Path) -> None:
    fragment = write(root, "a.md", "- A.\n")
    assert run("changelog", "0.2.0", "--root", root).returncode == 1
    assert fragment.exists()
    assert (root / "CHANGELOG.md").read_text() == OLD
