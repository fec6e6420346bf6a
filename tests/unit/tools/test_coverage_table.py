"""The table of coverage by package, and its floors."""

from __future__ import annotations

import json

from tests.unit.tools.tool import run


def report(**percents: int) -> str:
    """Return a report of coverage.py in which each package has one file of 60 lines and 40 branches."""
    files = {f"src/pinfold/{package}/one.py": covered(percent) for package, percent in percents.items()}
    return json.dumps({"files": files})


def covered(percent: int) -> dict[str, dict[str, int]]:
    lines = min(percent, 60)
    return {
        "summary": {
            "num_statements": 60,
            "num_branches": 40,
            "covered_lines": lines,
            "covered_branches": percent - lines,
        }
    }


def test_a_package_at_its_floor_passes_and_others_need_nothing() -> None:
    table = run("coverage-table", text=report(core=95, manager=96, runtimes=100, cli=3))
    assert (table.returncode, table.stderr) == (0, "")
    assert table.stdout.splitlines() == [
        "package       lines  branches  percent floor",
        "cli              60        40      3.0",
        "core             60        40     95.0  95.0",
        "manager          60        40     96.0  95.0",
        "runtimes         60        40    100.0  95.0",
    ]


def test_a_package_below_its_floor_fails_and_is_named() -> None:
    table = run("coverage-table", text=report(core=99, manager=94, runtimes=95))
    assert table.returncode == 1
    assert table.stderr == "coverage: manager has 94.00 %; at least 95 % is needed\n"


def test_a_package_with_a_floor_that_was_not_measured_fails() -> None:
    table = run("coverage-table", text=report(core=100, manager=100))
    assert table.returncode == 1
    assert table.stderr == "coverage: runtimes was not measured\n"


def test_all_files_of_a_package_count_together_and_modules_beside_packages_are_pinfold() -> None:
    files = {
        "src/pinfold/core/one.py": covered(100),
        "src/pinfold/core/events/two.py": covered(50),
        "src/pinfold/errors.py": covered(20),
    }
    rows = run("coverage-table", text=json.dumps({"files": files})).stdout.splitlines()[1:]
    assert [row.split() for row in rows] == [
        ["core", "120", "80", "75.0", "95.0"],
        ["pinfold", "60", "40", "20.0"],
    ]
