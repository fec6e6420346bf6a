"""Completion scripts are run by the shells that are installed here."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from pinfold.cli.main import VERBS, main


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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_verb_is_in_the_script_of_every_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    assert all(verb in text for verb in VERBS)
    if found := shutil.which(shell):
        subprocess.run([found, "-n", "/dev/stdin"], input=text, text=True, check=True)


def test_no_option_is_broken_at_its_hyphens(capsys: pytest.CaptureFixture[str]) -> None:
    text = script("bash", capsys)
    assert not [word for word in completed(text, "pinfold", "serve", "--") if word.endswith("-")]
