"""The command line: a table of verbs, and the one place that turns errors into exit codes.

0 is success, 1 a plan in which not all pods get in, 2 a wrong call or an unusable input, 3 no daemon, 4 a refusal, 5 a
second daemon, 130 Ctrl-C, 141 a reader that went away (as of `| head`); `run` exits as its command does, 126 and 127 if
it cannot be started, and 125 for every failure of its own. A verb is a module with `add_arguments` and `run`; it is
imported only when it is called.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Protocol, cast

import pinfold
from pinfold.errors import ConfigError, ParseError, PinfoldError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MOST_PROBLEMS: Final = 20
_WIDTH: Final = 80
_MOST_IN_USAGE: Final = 15
OK, WRONG, RUN_FAILED, INTERRUPTED, READER_GONE = 0, 2, 125, 130, 141
EXIT_CODES: Final = {
    "0": "success",
    "1": "a pod of a plan was refused, a check has failed, or a wait has timed out",
    "2": "a wrong call or an unusable input",
    "3": "no daemon answers",
    "4": "refused, in plain words and in the kubelet's",
    "5": "another daemon has this state directory or socket",
    "125": "`run`: pinfold itself failed, for any of the reasons above",
    "126, 127": "`run`: the command cannot be executed; it is not found",
    "130": "ended by Ctrl-C",
    "141": "the reader of the output went away, as of `head`",
    "other": "`run`: the exit code of the command; 128 + N if signal N ended it",
}
"""What each exit code means; docs/reference/exit-codes.md and the manual pages come from it."""


class VerbModule(Protocol):
    """The functions in the module of a verb."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb."""

    def run(self, args: argparse.Namespace) -> int:
        """Run the verb, and return the exit code."""


class Verb(NamedTuple):
    """A verb: its module and its help text."""

    module: str
    help: str
    failed: int | None = None
    """Its exit code for every failure of its own, if other codes are those of a command that it runs."""


VERBS: Final[Mapping[str, Verb]] = {
    "topology": Verb("pinfold.cli.topology", "show sockets, NUMA nodes, caches, cores and CPUs of a machine"),
    "presets": Verb("pinfold.cli.presets", "list or search the built-in machines"),
    "plan": Verb("pinfold.cli.plan", "what a node would do with pods, on any machine, without touching one"),
    "serve": Verb("pinfold.cli.serve", "the daemon: give processes of this host CPUs of their own"),
    "run": Verb("pinfold.cli.run", "run a command on CPUs of its own", failed=RUN_FAILED),
    "adopt": Verb("pinfold.cli.adopt", "give a running process CPUs of its own"),
    "apply": Verb("pinfold.cli.apply", "run pods as processes, each on its CPUs"),
    "resize": Verb("pinfold.cli.resize", "give a running container more or fewer CPUs of its own"),
    "repack": Verb("pinfold.cli.repack", "move running containers to better CPUs (policy dynamic)"),
    "reconfigure": Verb("pinfold.cli.reconfigure", "apply another configuration while everything runs, or foresee it"),
    "delete": Verb("pinfold.cli.delete", "end pods and give their CPUs back"),
    "get": Verb("pinfold.cli.get", "show pods, containers, CPUs and pools"),
    "logs": Verb("pinfold.cli.logs", "show what a container has printed"),
    "wait": Verb("pinfold.cli.wait", "wait until pods run, or have ended"),
    "top": Verb("pinfold.cli.top", "watch the machine map, coloured by owner"),
    "events": Verb("pinfold.cli.events", "show what happened"),
    "history": Verb("pinfold.cli.history", "which container had which CPUs when, and what happened; kept for weeks"),
    "explain": Verb("pinfold.cli.explain", "why a container has these CPUs, or was refused, and what would help"),
    "shield": Verb("pinfold.cli.shield", "keep the rest of the host off exclusive CPUs, or see what would move"),
    "hand-back": Verb(
        "pinfold.cli.handback", "write the State for a kubelet that is to go on with it, and end the daemon"
    ),
    "leave": Verb("pinfold.cli.leave", "give every group its CPUs back, and end the daemon; before an uninstall"),
    "state": Verb("pinfold.cli.state", "show, verify, repair, export and import the files of the daemon's State"),
    "config": Verb("pinfold.cli.config", "check and show the daemon's settings, or print a sample file of them"),
    "fleet": Verb("pinfold.cli.fleet", "what thousands of nodes would do with thousands of pods"),
    "demo": Verb("pinfold.cli.demo", "measure on this host what a CPU of its own is worth"),
    "doctor": Verb("pinfold.cli.doctor", "what this host offers and lacks, with fixes"),
    "completion": Verb("pinfold.cli.completion", "print a script that completes verbs and options in a shell"),
    "version": Verb("pinfold.cli.version", "show this version, and the Kubernetes whose decisions it equals"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line *argv*, or that of the process, and return the exit code."""
    if sys.stdout is None:  # closed by the caller, as with >&-
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - stays open, and needs no Path
    given = _arguments() if argv is None else argv
    failed = next((VERBS[word].failed for word in given if word in VERBS), None)
    try:
        code = _run(given, failed)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return READER_GONE
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        _drop_output()
        problem = error.strerror or str(error)
        return _fail([problem if error.filename is None else f"{error.filename}: {problem}"], failed or WRONG)
    except PinfoldError as error:
        return _fail(_all_of(error), failed or int(getattr(error, "exit_code", WRONG)))
    return code


def _arguments() -> list[str]:
    """Return those of the process; a container runtime that starts us as its NRI plugin has them in a file."""
    given = sys.argv[1:] or (_plugin() if "NRI_PLUGIN_SOCKET" in os.environ else [])
    if given[:1] == ["serve"]:
        from pinfold.cli.leftout import leave_out  # noqa: PLC0415 - only for the daemon

        leave_out()
        # Hardly anything that a start makes is garbage: the daemon collects it once it is ready.
        gc.disable()
    return given


def _plugin() -> list[str]:
    from pinfold.settings.pluginfile import plugin_flags  # noqa: PLC0415 - most commands start without it

    return ["serve", *plugin_flags(os.environ)]


def _run(argv: Sequence[str], failed: int | None) -> int:
    if argv[:1] == ["help"]:
        argv = [*argv[1:2], "--help"]
    # A parser takes a millisecond: the verb's own will do if it is named first.
    known = {argv[0]: VERBS[argv[0]]} if argv and argv[0] in VERBS else VERBS
    parser, verbs = _parsers(argv, known)
    try:
        args, unknown = parser.parse_known_args(argv)
        if unknown:
            from pinfold.cli.wrongcalls import innermost, say_unknown  # noqa: PLC0415 - most calls leave no words

            called = innermost(verbs.get(args.verb, parser), args)
            if not _took(called, args, unknown):
                called.error(say_unknown(unknown, called))
    except SystemExit as stop:  # argparse has printed the message
        return (failed or WRONG) if stop.code else OK
    if args.verb is None:
        parser.print_help()
        return OK
    del parser, verbs  # a daemon runs for months
    return _module(args.verb).run(args)


def _took(parser: argparse.ArgumentParser, args: argparse.Namespace, words: Sequence[str]) -> bool:
    """Add words that argparse left to a list that ended at an option, as in `plan a.yaml --live b.yaml`."""
    lists = [one.dest for one in parser._actions if not one.option_strings and one.nargs in {"*", "+"}]  # noqa: SLF001
    if not lists or any(word.startswith("-") for word in words):
        return False
    setattr(args, lists[-1], [*getattr(args, lists[-1]), *words])
    return True


class _Help(argparse.HelpFormatter):
    """As wide as the terminal; argparse asks `shutil` for that at every option, which imports archives and more."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None = None,
    ) -> None:
        """Add the usage; many options are listed below it only."""
        actions = list(actions)
        if usage is None and sum(bool(action.option_strings) for action in actions) > _MOST_IN_USAGE:
            names = [f"[{action.metavar} ...]" for action in actions if not action.option_strings]
            usage = " ".join(["%(prog)s", "[OPTION ...]", *names])
        super().add_usage(usage, actions, groups, prefix)


def _columns() -> int:
    with contextlib.suppress(KeyError, ValueError):
        if (asked := int(os.environ["COLUMNS"])) > 0:
            return asked
    with contextlib.suppress(AttributeError, ValueError, OSError):  # not a terminal
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or _WIDTH  # type: ignore[union-attr]  # see above
    return _WIDTH


class _Parser(argparse.ArgumentParser):
    """Says in plain words what is wrong with a call."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - those of its base
        super().__init__(*args, **{"formatter_class": _Help, **kwargs})

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, and exit."""
        from pinfold.cli.wrongcalls import say_wrong  # noqa: PLC0415 - only after a mistake

        self.exit(WRONG, say_wrong(message, self))


def _parsers(
    argv: Sequence[str], known: Mapping[str, Verb] = VERBS
) -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """Return the parser of the command line, and that of each of the known verbs; named ones have their options."""
    parser = _Parser(prog="pinfold", description="CPUs of their own for containers and processes.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"pinfold {pinfold.__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", prog="pinfold")
    for name, verb in known.items():
        added = verbs.add_parser(name, help=verb.help, description=verb.help, allow_abbrev=False)
        if name in argv:
            _module(name).add_arguments(added)
    return parser, verbs.choices


def _module(verb: str) -> VerbModule:
    return cast("VerbModule", import_module(VERBS[verb].module))  # a module is not a class, but has these functions


def _all_of(error: PinfoldError) -> list[str]:
    """Return every problem of wrong documents or settings, up to a limit; the text of any other error."""
    problems = getattr(error, "problems", ()) if isinstance(error, ParseError | ConfigError) else ()
    shown = [str(problem) for problem in problems[:_MOST_PROBLEMS]] or [str(error)]
    more = len(problems) - _MOST_PROBLEMS
    return [*shown, f"{more} more problems are not shown"] if more > 0 else shown


def _fail(problems: list[str], code: int = WRONG) -> int:
    for problem in problems:
        line = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in problem)
        print(f"pinfold: error: {line}", file=sys.stderr)
    return code


def _drop_output() -> None:
    """Discard the rest of stdout, so that Python does not try to write it again when it exits."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
