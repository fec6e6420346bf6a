"""TAB in the real shells: what bash, zsh and fish offer with the script of `pinfold completion`.

A person's keys are typed into bash and zsh on a terminal; fish says itself what it would offer. A program in place of
`pinfold` tells the names of pods.
"""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from pinfold.cli.main import VERBS
from tests.needs import needs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.slow,
    needs(
        "bash, zsh, fish and bash-completion (tools/packages installs them)",
        met=all(map(shutil.which, ("bash", "zsh", "fish")))
        and os.path.exists("/usr/share/bash-completion/bash_completion"),  # noqa: PTH110 - one question
    ),
]

SECONDS: Final = 30
END: Final = "(end)"
PODS: Final = "#!/bin/sh\n[ \"$*\" = 'get pods' ] && printf 'POD  QOS\\nkafka  Burstable\\nweb  Guaranteed\\n'\n"
INSERT: Final = "\x14"
CLEAR: Final = "\x15"
# All that would be offered is inserted into the line, and the line is run: the arguments are what was offered.
BASH: Final = f"""
bind '"\\C-t": insert-completions'
pinfold() {{ [ "$*" = "get pods" ] && command pinfold "$@" || printf '%s\\n' "$@" '{END}' >"$ANSWERS"; }}
printf '%s\\n' ready '{END}' >"$ANSWERS"
"""
# The function that adds matches is wrapped: it tells which of them fit what was typed.
ZSH: Final = f"""
compadd() {{
  if (( ${{@[(I)-[OAD]*]}} )); then builtin compadd "$@"; return; fi
  local -a found; builtin compadd -O found "$@"; offered+=($found); builtin compadd "$@"
}}
tell() {{ local -a offered; _main_complete; print -rl -- $offered '{END}' >$ANSWERS }}
zle -C tell complete-word tell; bindkey '^T' tell
print -rl -- ready '{END}' >$ANSWERS
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a directory with some files, a program in place of pinfold, and the scripts."""
    for name in ("pods.yaml", "bin/pinfold", "zsh/_pinfold"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "bin/pinfold").write_text(PODS)
    (tmp_path / "bin/pinfold").chmod(0o755)
    completions = tmp_path / "bash-completion/completions"
    completions.mkdir(parents=True)
    (tmp_path / "fish/vendor_completions.d").mkdir(parents=True)
    for shell, place in (
        ("bash", completions / "pinfold"),
        ("zsh", tmp_path / "zsh/_pinfold"),
        ("fish", tmp_path / "fish/vendor_completions.d/pinfold.fish"),
    ):
        made = subprocess.run([sys.executable, "-m", "pinfold", "completion", shell], capture_output=True, check=True)
        place.write_bytes(made.stdout)
    os.mkfifo(tmp_path / "answers")
    return tmp_path


def environment(home: Path) -> dict[str, str]:
    return {
        "PATH": f"{home}/bin:{os.environ['PATH']}",
        "HOME": str(home),
        "TERM": "dumb",
        "XDG_DATA_HOME": str(home),
        "XDG_DATA_DIRS": str(home),
        "ANSWERS": str(home / "answers"),
    }


class Terminal:
    """A shell on a terminal, into which keys are typed."""

    def __init__(self, home: Path, set_up: str, *command: str) -> None:
        (home / "set-up").write_text(set_up)
        self._answers = os.open(home / "answers", os.O_RDWR)
        self._pid, self._keys = pty.fork()
        if self._pid == 0:  # pragma: no cover - becomes the shell
            os.chdir(home)
            os.execvpe(command[0], command, environment(home))  # noqa: S606 - a shell of the test
        assert self.ask(". ./set-up\n") == ["ready"]

    def ask(self, keys: str) -> list[str]:
        """Type keys, and return the lines that the shell then writes for the test."""
        os.write(self._keys, keys.encode())
        shown, found = "", ""
        while not found.endswith(f"{END}\n"):
            ready, _, _ = select.select([self._answers, self._keys], [], [], SECONDS)
            assert ready, shown
            if self._keys in ready:
                shown += os.read(self._keys, 65536).decode(errors="replace")
            if self._answers in ready:
                found += os.read(self._answers, 65536).decode()
        return found.splitlines()[:-1]

    def close(self) -> None:
        os.close(self._keys)  # the shell ends, as it does when a window is closed
        os.close(self._answers)
        os.waitpid(self._pid, 0)


class Bash(Terminal):
    """bash, with the script as set-up, or found by the package bash-completion."""

    def __init__(self, home: Path, load: str) -> None:
        super().__init__(home, load + BASH, "bash", "--norc", "-i")

    def offered(self, line: str) -> list[str]:
        before, _, word = line.rpartition(" ")
        answer = self.ask(f"{line}{INSERT}\n")[len(before.split()) - 1 :]
        return [] if answer == [word] else answer


class Zsh(Terminal):
    """zsh, with the script as set-up, or found by its completion system."""

    def __init__(self, home: Path, load: str) -> None:
        super().__init__(home, load + ZSH, "zsh", "-f", "-i")

    def offered(self, line: str) -> list[str]:
        return self.ask(f"{CLEAR}{line}{INSERT}")


class Fish:
    """fish, which finds the script where packages install it, or reads it."""

    def __init__(self, home: Path, load: str) -> None:
        self.home = home
        self.load = load

    def offered(self, line: str) -> list[str]:
        ask = ["fish", "-c", f"{self.load}\ncomplete -C '{line}'"]
        done = subprocess.run(
            ask, capture_output=True, text=True, check=True, cwd=self.home, env=environment(self.home)
        )
        assert done.stderr == ""
        return [text.partition("\t")[0] for text in done.stdout.splitlines()]

    def close(self) -> None:
        """Nothing is left running."""


Shell = Bash | Zsh | Fish
Kinds = dict[str, tuple[type[Bash] | type[Zsh] | type[Fish], str]]
EVAL: Final[Kinds] = {
    "bash": (Bash, ". ./bash-completion/completions/pinfold"),
    "zsh": (Zsh, ". ./zsh/_pinfold"),
    "fish": (Fish, "source ./fish/vendor_completions.d/pinfold.fish"),
}
INSTALLED: Final[Kinds] = {
    "bash": (Bash, ". /usr/share/bash-completion/bash_completion"),
    "zsh": (Zsh, "fpath=($PWD/zsh $fpath); autoload -Uz compinit && compinit -u"),
    "fish": (Fish, ""),
}


@pytest.fixture(params=EVAL)
def shell(request: pytest.FixtureRequest, home: Path) -> Iterator[Shell]:
    """Return a shell that has read the script."""
    kind, load = EVAL[request.param]
    found = kind(home, load)
    yield found
    found.close()


OFFERED: Final = {
    "pinfold pres": ["presets"],
    "pinfold plan --stri": ["--strict"],
    "pinfold plan --preset epyc-77": ["epyc-7702p", "epyc-7702p-nosmt"],
    "pinfold serve --policy s": ["static"],
    "pinfold get -o w": ["wide"],
    "pinfold get po": ["pods", "pools"],
    "pinfold get -o json po": ["pods", "pools"],
    "pinfold config ch": ["check"],
    "pinfold shield o": ["on", "off"],
    "pinfold delete ": ["kafka", "web"],
    "pinfold get pods k": ["kafka"],
    "pinfold logs -f w": ["web"],
    "pinfold plan po": ["pods.yaml"],
    "pinfold apply -f po": ["pods.yaml"],
    "pinfold plan --config po": ["pods.yaml"],
    "pinfold delete --socket po": ["pods.yaml"],
    "pinfold state export po": ["pods.yaml"],
    "pinfold run -- pinfol": ["pinfold"],
    "pinfold run -- cat po": ["pods.yaml"],
    "pinfold run --cpus ": [],
    "pinfold doctor po": [],
    "pinfold top po": [],
}


def test_what_tab_offers(shell: Shell) -> None:
    assert {line: sorted(shell.offered(line)) for line in OFFERED} == {
        line: sorted(words) for line, words in OFFERED.items()
    }


def test_tab_after_the_name_offers_every_verb(shell: Shell) -> None:
    assert sorted(shell.offered("pinfold ")) == sorted(VERBS)


def test_a_value_is_offered_after_an_equals_sign(shell: Shell) -> None:
    (found,) = shell.offered("pinfold plan --policy=st")
    assert found.removeprefix("--policy=") == "static"


@pytest.mark.parametrize("name", INSTALLED)
def test_a_script_that_a_package_installs_works_at_the_first_tab(name: str, home: Path) -> None:
    kind, load = INSTALLED[name]
    shell = kind(home, load)
    try:
        assert shell.offered("pinfold pres") == ["presets"]
        assert sorted(shell.offered("pinfold delete ")) == ["kafka", "web"]
    finally:
        shell.close()
