"""`pinfold config`: check, show and sample."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pinfold.cli.main import main
from pinfold.settings.sample import format_sample
from pinfold.settings.table import SETTINGS

if TYPE_CHECKING:
    from pathlib import Path


def test_check_reports_all_problems_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("polcy: static\nlog-sizes: 5\n")
    assert main(["config", "check", "--settings", str(file), "--journal-days", "0"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.removeprefix("pinfold: error: ").partition(";")[0] for line in lines[:2]] == [
        f"{file}: polcy: unknown",
        f"{file}: log-sizes: unknown",
    ]
    assert "--journal-days" in lines[2]


def test_check_reports_an_unknown_machine_beside_the_other_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("preset: nosuch\nruntime: simulated\nlog-format: xml\n")
    assert main(["config", "check", "--settings", str(file)]) == 2
    lines = [line.removeprefix(f"pinfold: error: {file}: ") for line in capsys.readouterr().err.splitlines()]
    assert [line.partition(":")[0] for line in lines] == ["preset", "log-format"]


def test_check_says_how_many_problems_it_does_not_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("".join(f"key{number}: 1\n" for number in range(25)))
    assert main(["config", "check", "--settings", str(file)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert (len(lines), lines[-1]) == (21, "pinfold: error: 5 more problems are not shown")


@pytest.mark.parametrize("action", ["check", "show"])
def test_a_good_file_may_be_named_without_its_flag(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("policy: none\n")
    assert main(["config", action, str(file)]) == 0
    assert str(file) in capsys.readouterr().out


def test_check_of_a_good_file_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("policy: none\n")
    assert main(["config", "check", "--settings", str(file)]) == 0
    assert f"{file}: no problem" in capsys.readouterr().out


def test_show_has_every_setting_with_its_value_and_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("notice-grace: 5s\n")
    assert main(["config", "show", "--settings", str(file), "--policy", "none", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {row.key for row in SETTINGS.values()}
    assert found["policy"] == {"value": "none", "source": "--policy"}
    assert found["notice-grace"] == {"value": "5s", "source": f"{file}: notice-grace"}
    assert found["cpu-cfs-quota-period"] == {"value": "100ms", "source": "default"}


def test_show_changed_leaves_defaults_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--changed", "--settings", "none", "--policy", "none"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows == [["policy", "none", "--policy"], ["settings", "none", "--settings"]]


def test_sample_prints_the_sample(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "sample"]) == 0
    assert capsys.readouterr().out == format_sample()


def test_a_file_can_be_named_without_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("polcy: static\n")
    assert main(["config", "check", str(file)]) == 2
    assert f"{file}: polcy: unknown; did you mean policy?" in capsys.readouterr().err
