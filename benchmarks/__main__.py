"""Usage: python -m benchmarks [NAME] [options].

Runs the benchmark NAME, or all of them one after another; options are passed on. --list names them.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

import benchmarks


def main(arguments: list[str]) -> int:
    """Run what the arguments ask for; return the exit code."""
    names = [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.name.startswith("_")]
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    if arguments[:1] == ["--list"]:
        width = max(map(len, names), default=0)
        for name in names:
            print(f"{name:{width}}  {_subject(name)}")
        return 0
    one = bool(arguments) and not arguments[0].startswith("-")
    chosen, options = (arguments[:1], arguments[1:]) if one else (names, arguments)
    if unknown := [name for name in chosen if name not in names]:
        print(f"unknown benchmark {unknown[0]!r}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    codes = []
    for number, name in enumerate(chosen, start=1):
        if len(chosen) > 1 and sys.stderr.isatty():
            print(f"benchmark {number} of {len(chosen)}: {name}", file=sys.stderr)
        codes.append(_run(name, options))
    return max(codes, default=0)


def _subject(name: str) -> str:
    """Return the first line of a benchmark's docstring: what it measures."""
    return (importlib.import_module(f"benchmarks.{name}").__doc__ or "").partition("\n")[0]


def _run(name: str, options: list[str]) -> int:
    code: int = importlib.import_module(f"benchmarks.{name}").main(options)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
