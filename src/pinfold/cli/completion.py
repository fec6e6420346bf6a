"""`pinfold completion`: a script that completes verbs and options in bash, zsh or fish."""

from __future__ import annotations

import argparse
import re
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_OPTION: Final = re.compile(r"--[a-z][-a-z]*")
_BASH: Final = """\
_pinfold() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}"
  case "${{COMP_WORDS[1]}}" in
{cases}
    *) COMPREPLY=($(compgen -W "{verbs}" -- "$word")) ;;
  esac
}}
complete -o default -F _pinfold pinfold
"""
_CASE: Final = """\
    {verb})
      if [ "$COMP_CWORD" -gt 1 ] && [ "${{word#-}}" != "$word" ]; then
        COMPREPLY=($(compgen -W "{options}" -- "$word"))
      fi ;;"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold completion`."""
    parser.add_argument("shell", choices=_SCRIPTS, help='e.g. in ~/.bashrc: eval "$(pinfold completion bash)"')


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    print(_SCRIPTS[args.shell](_options()), end="")
    return 0


class _Unbroken(argparse.HelpFormatter):
    """Help in long lines: in short ones, options are broken at their hyphens."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=10_000)


def _options() -> Mapping[str, Sequence[str]]:
    """Return the options of every verb, from their own help."""
    from pinfold.cli.main import VERBS  # noqa: PLC0415 - that module imports this one when it is called

    found = {}
    for name, verb in VERBS.items():
        parser = argparse.ArgumentParser(name, formatter_class=_Unbroken)
        import_module(verb.module).add_arguments(parser)
        found[name] = sorted(set(_OPTION.findall(parser.format_help())))
    return found


def _bash(options: Mapping[str, Sequence[str]]) -> str:
    cases = "\n".join(_CASE.format(verb=verb, options=" ".join(words)) for verb, words in options.items())
    return _BASH.format(cases=cases, verbs=" ".join(options))


def _zsh(options: Mapping[str, Sequence[str]]) -> str:
    return f"autoload -Uz bashcompinit && bashcompinit\n{_bash(options)}"


def _fish(options: Mapping[str, Sequence[str]]) -> str:
    lines = [f"complete -c pinfold -n __fish_use_subcommand -f -a '{' '.join(options)}'"]
    for verb, words in options.items():
        seen = f"complete -c pinfold -n '__fish_seen_subcommand_from {verb}' -l"
        lines += (f"{seen} {word.removeprefix('--')}" for word in words)
    return "\n".join(lines) + "\n"


_SCRIPTS: Final = {"bash": _bash, "zsh": _zsh, "fish": _fish}
