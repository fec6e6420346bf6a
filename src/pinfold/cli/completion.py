"""`pinfold completion`: a script that completes verbs, options, their values and names of pods in bash, zsh or fish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.cli.optionwords import OPTIONS, OTHERS, PODS, VALUES

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

_NAMES: Final = "$(pinfold get pods 2>/dev/null | awk 'NR > 1 {print $1}')"
_BASH: Final = """\
_pinfold() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{verbs}"
  else
    case "${{COMP_WORDS[1]}} $before $word" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _pinfold pinfold
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold completion`."""
    parser.add_argument("shell", choices=_SCRIPTS, help='e.g. in ~/.bashrc: eval "$(pinfold completion bash)"')


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    print(_SCRIPTS[args.shell](), end="")
    return 0


def _bash() -> str:
    return _BASH.format(cases="\n".join(_cases()), verbs=" ".join(OPTIONS))


def _cases() -> Iterator[str]:
    """Yield the cases: after an option with fixed values, at an option, at another word."""
    for option, words in VALUES.items():
        yield f'      "{option} "*) words="{words}" ;;'
    for verb, words in OPTIONS.items():
        yield f'      "{verb} "*" -"*) words="{words}" ;;'
    for verb, words in OTHERS.items():
        yield f'      "{verb} "*) words="{words}" ;;'
    for verb in PODS:
        yield f'      "{verb} "*) words="{_NAMES}" ;;'


def _zsh() -> str:
    return f"autoload -Uz bashcompinit && bashcompinit\n{_bash()}"


def _fish() -> str:
    lines = [f"complete -c pinfold -n __fish_use_subcommand -f -a '{' '.join(OPTIONS)}'"]
    seen = "complete -c pinfold -n '__fish_seen_subcommand_from {}'"
    for verb, words in OPTIONS.items():
        with_values = {option.split()[1] for option in VALUES if option.startswith(f"{verb} ")}
        plain = (word for word in words.split() if word not in with_values)
        lines += (f"{seen.format(verb)} -l {word.removeprefix('--')}" for word in plain)
    for name, words in VALUES.items():
        verb, option = name.split()
        kind = "-l" if option.startswith("--") else "-s"
        lines.append(f"{seen.format(verb)} {kind} {option.lstrip('-')} -x -a '{words}'")
    lines += (f"{seen.format(verb)} -f -a '{words}'" for verb, words in OTHERS.items())
    names = "(pinfold get pods 2>/dev/null | tail -n +2 | string split -f 1 ' ')"
    lines += (f'{seen.format(verb)} -f -a "{names}"' for verb in PODS)
    return "\n".join(lines) + "\n"


_SCRIPTS: Final = {"bash": _bash, "zsh": _zsh, "fish": _fish}
