"""`pinfold completion`: a script that completes verbs, options, their values, files and names of pods.

The scripts for bash and zsh decide with the same cases what is offered: words, files, commands or nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.cli.optionwords import FILES, OPTIONS, OTHERS, PATHS, PODS, TEXTS, VALUES

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

_NAMES: Final = "$(pinfold get pods 2>/dev/null | awk 'NR > 1 {print $1}')"
_CASES: Final = """\
  case "$verb:$line" in
    "run:"*" -- "*) [ "$before" = "--" ] && kind=commands || kind=files ;;
    *) case "$verb $before $word" in
@CASES@
    esac ;;
  esac
"""
_BASH: Final = """\
_pinfold() {
  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" verb="${COMP_WORDS[1]}"
  local line=" ${COMP_WORDS[*]:2:COMP_CWORD-2} " offers="" kind=""
  # bash makes three words of --option=value
  if [ "$word" = "=" ]; then
    word=""
  elif [ "$before" = "=" ]; then
    before="${COMP_WORDS[COMP_CWORD-2]}"
  fi
  if [ "$COMP_CWORD" -eq 1 ]; then
    offers="@VERBS@"
  else
@CASES@  fi
  COMPREPLY=()
  case "$kind" in
    files) ;;
    commands) COMPREPLY=($(compgen -c -- "$word")) ;;
    *) compopt +o default 2>/dev/null
      COMPREPLY=($(compgen -W "$offers" -- "$word")) ;;
  esac
}
complete -o default -F _pinfold pinfold
"""
_ZSH: Final = """\
#compdef pinfold
_pinfold() {
  local word="${words[CURRENT]}" before="${words[CURRENT-1]}" verb="${words[2]}"
  local line=" ${words[3,CURRENT-1]} " offers="" kind=""
  if [[ "$word" == --*=* ]]; then
    before="${word%%=*}" word="${word#*=}"
    compset -P '*='
  fi
  if (( CURRENT == 2 )); then
    offers="@VERBS@"
  else
@CASES@  fi
  case "$kind" in
    files) _files ;;
    commands) _command_names ;;
    *) compadd -- ${=offers} ;;
  esac
}
if [[ "${funcstack[1]}" == _pinfold ]]; then
  _pinfold "$@"
else
  (( ${+functions[compdef]} )) || { autoload -Uz compinit && compinit; }
  compdef _pinfold pinfold
fi
"""
_FISH: Final = """\
function __pinfold_verb
    set -l given (commandline -poc)
    test (count $given) -gt 1; and contains -- "$given[2]" $argv; and not contains -- -- $given
end
function __pinfold_command
    set -l given (commandline -poc)
    test "$given[2]" = run 2>/dev/null; and contains -- -- $given; and test "$given[-1]" $argv[1] --
end
function __pinfold_word
    set -l given (commandline -poc)
    for word in $argv
        contains -- $word $given[3..]; and return
    end
    return 1
end
complete -c pinfold -f
complete -c pinfold -n __pinfold_command\\ = -a '(complete -C (commandline -ct))'
complete -c pinfold -n __pinfold_command\\ != -F
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold completion`."""
    parser.add_argument("shell", choices=_SCRIPTS, help='e.g. in ~/.bashrc: eval "$(pinfold completion bash)"')


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    print(_SCRIPTS[args.shell](), end="")
    return 0


def _bash() -> str:
    return _filled(_BASH)


def _zsh() -> str:
    return _filled(_ZSH)


def _filled(script: str) -> str:
    cases = _CASES.replace("@CASES@", "\n".join(f"      {case} ;;" for case in _cases()))
    return script.replace("@VERBS@", " ".join(OPTIONS)).replace("@CASES@", cases)


def _cases() -> Iterator[str]:
    """Yield the cases: after an option with a value, at an option, at another word."""
    for option, words in VALUES.items():
        yield f'"{option} "*) offers="{words}"'
    for verb, options in PATHS.items():
        yield f"{_after(verb, options.split())}) kind=files"
    for verb, options in TEXTS.items():
        yield f"{_after(verb, options.split())})"
    for verb, words in OPTIONS.items():
        yield f'"{verb} "*" -"*) offers="{words}"'
    for verb, words in OTHERS.items():
        said = "|".join(f'*" {word} "*' for word in words.split())
        then = "kind=files" if verb in FILES else f'offers="{_NAMES}"' if verb in _NAMED else ":"
        yield f'"{verb} "*) case "$line" in {said}) {then} ;; *) offers="{words}" ;; esac'
    yield from (f'"{verb} "*) offers="{_NAMES}"' for verb in PODS)
    yield from (f'"{verb} "*) kind=files' for verb in FILES if verb not in OTHERS)


def _after(verb: str, options: Iterable[str]) -> str:
    return "|".join(f'"{verb} {option} "*' for option in options)


def _fish() -> str:
    return "\n".join([_FISH.rstrip(), *_fish_lines()]) + "\n"


def _fish_lines() -> Iterator[str]:
    yield f"complete -c pinfold -n __fish_use_subcommand -a '{' '.join(OPTIONS)}'"
    for verb, words in OPTIONS.items():
        paths, texts = PATHS.get(verb, "").split(), TEXTS.get(verb, "").split()
        fixed = [option.split()[1] for option in VALUES if option.startswith(f"{verb} ")]
        for option in dict.fromkeys([*words.split(), *paths, *texts, *fixed]):
            takes = f" -x -a '{VALUES[f'{verb} {option}']}'" if option in fixed else ""
            takes = takes or (" -r -F" if option in paths else " -x" if option in texts else "")
            kind = "-l" if option.startswith("--") else "-s"
            yield f"{_fish_when(verb)} {kind} {option.lstrip('-')}{takes}"
    for verb, words in OTHERS.items():
        said = f"__pinfold_word {words}"
        yield f"{_fish_when(verb, f'; and not {said}')} -a '{words}'"
        if verb in FILES or verb in _NAMED:
            yield f"{_fish_when(verb, f'; and {said}')} {'-F' if verb in FILES else _FISH_NAMES}"
    yield from (f"{_fish_when(verb)} {_FISH_NAMES}" for verb in PODS)
    yield from (f"{_fish_when(verb)} -F" for verb in FILES if verb not in OTHERS)


def _fish_when(verb: str, more: str = "") -> str:
    return f"complete -c pinfold -n '__pinfold_verb {verb}{more}'"


_NAMED: Final = ("get",)
"""Verbs that take names of pods after another word."""
_FISH_NAMES: Final = "-a \"(pinfold get pods 2>/dev/null | tail -n +2 | string split -f 1 ' ')\""
_SCRIPTS: Final = {"bash": _bash, "zsh": _zsh, "fish": _fish}
