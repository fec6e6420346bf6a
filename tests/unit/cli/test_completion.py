"""Completion scripts are run by the shells that are installed here."""

from __future__ import annotations

import argparse
import shutil
import subprocess

import pytest

from pinfold.cli.main import VERBS, _parsers, main
from pinfold.cli.optionwords import OPTIONS


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def completed(text: str, *words: str) -> list[str]:
    line = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _pinfold; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    bash = shutil.which("bash") or "bash"
    return subprocess.run([bash, "-c", f"{text}\n{ask}"], capture_output=True, text=True, check=True).stdout.split()


def test_bash_completes_verbs_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    text = script("bash", capsys)
    assert completed(text, "pinfold", "pres") == ["presets"]
    assert completed(text, "pinfold", "") == list(VERBS)
    assert completed(text, "pinfold", "plan", "--stri") == ["--strict"]
    assert completed(text, "pinfold", "logs", "--fol") == ["--follow"]
    assert completed(text, "pinfold", "state", "repair", "--wr") == ["--write"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["plan", "--preset", "epyc-77"], ["epyc-7702p", "epyc-7702p-nosmt"]),
        (["serve", "--policy", "s"], ["static"]),
        (["get", "-o", "w"], ["wide"]),
        (["get", "--output", "w"], ["wide"]),
        (["get", "po"], ["pods", "pools"]),
        (["config", "ch"], ["check"]),
        (["shield", "o"], ["on", "off"]),
        (["completion", "z"], ["zsh"]),
        (["plan", "x"], []),
    ],
    ids=" ".join,
)
def test_values_and_words_from_a_fixed_set_are_completed(
    words: list[str], found: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed(script("bash", capsys), "pinfold", *words) == found


def test_names_of_pods_are_asked_of_the_daemon(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "pinfold() { printf 'POD  QOS\\nweb  Guaranteed\\nkafka  Burstable\\n'; }\n"
    for verb in ("delete", "explain", "logs", "wait"):
        assert completed(asked + script("bash", capsys), "pinfold", verb, "k") == ["kafka"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_verb_is_in_the_script_of_every_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    assert all(verb in text for verb in VERBS)
    if found := shutil.which(shell):
        subprocess.run([found, "-n", "/dev/stdin"], input=text, text=True, check=True)


def test_no_option_is_broken_at_its_hyphens(capsys: pytest.CaptureFixture[str]) -> None:
    text = script("bash", capsys)
    assert not [word for word in completed(text, "pinfold", "serve", "--") if word.endswith("-")]


def test_the_words_are_those_of_the_verbs_today() -> None:
    for verb, parser in _parsers([*VERBS])[1].items():
        shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]  # noqa: SLF001 - no other way
        said = {option for action in shown for option in action.option_strings if option.startswith("--")}
        assert said <= set(OPTIONS[verb].split()), "run tools/reference"
