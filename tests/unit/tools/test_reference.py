"""The pages of the reference are what the code says."""

from __future__ import annotations

from tests.unit.tools.tool import run


def test_every_generated_page_is_current() -> None:
    done = run("reference", "--check")
    assert not done.stderr
    # `make docs` checks the page of the command line: its form depends on the version of Python.
    assert [line for line in done.stdout.splitlines() if "/cli.md" not in line] == []
