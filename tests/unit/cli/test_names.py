"""Names and files as people who know kubectl write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.cli.arguments.names import container_name, pod_names
from pinfold.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("words", "namespace", "named"),
    [
        (["web"], None, ["web"]),
        (["pod", "web"], None, ["web"]),
        (["pods", "web", "db"], "prod", ["prod/web", "prod/db"]),
        (["pod"], None, ["pod"]),
    ],
)
def test_the_word_pod_may_stand_before_the_names_of_pods(
    words: list[str], namespace: str | None, named: list[str]
) -> None:
    assert [str(pod) for pod in pod_names(words, namespace)] == named


@pytest.mark.parametrize(
    ("text", "namespace", "name"),
    [
        ("web", "prod", "prod/web"),
        ("prod/web", "prod", "prod/web"),
        ("web/app", "prod", "prod/web/app"),
        ("prod/web/app", "prod", "prod/web/app"),
        ("prod/web", None, "prod/web"),
    ],
)
def test_a_namespace_is_said_once_or_twice(text: str, namespace: str | None, name: str) -> None:
    assert container_name(text, namespace, None) == name


def test_apply_takes_its_files_as_kubectl_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apply", "-f", str(tmp_path / "pods.yaml"), "--socket", str(tmp_path / "s")]) == 2
    assert f"{tmp_path}/pods.yaml: No such file or directory" in capsys.readouterr().err


def test_apply_without_a_file_says_how_to_name_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apply", "--socket", str(tmp_path / "s")]) == 2
    assert "no file; name one, as in: pinfold apply pods.yaml" in capsys.readouterr().err


def test_a_misspelt_machine_is_answered_with_the_nearest_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "epcy"]) == 2
    assert "no built-in machine has epcy; did you mean epyc?" in capsys.readouterr().err
