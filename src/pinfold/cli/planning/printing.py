"""How `pinfold plan` prints: as a table, as data, or as a picture; and its warnings."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from pinfold.render.plan.data import format_json, format_yaml
from pinfold.render.plan.table import unsound

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    from pinfold.planning.plan import Plan

FITS, REFUSED = 0, 1
"""The exit codes of a plan."""
_MOST_WARNINGS: Final = 10


def print_plan(
    args: argparse.Namespace,
    plan: Plan,
    label: str,
    table: Callable[[], str],
    data: Callable[[], dict[str, object]],
) -> None:
    """Print a plan in the form that the flags ask for; *table* and *data* make two of these forms."""
    if args.output == "svg":
        from pinfold.render.plan.svg import format_plan_svg  # noqa: PLC0415 - most plans are tables

        _print(format_plan_svg(plan, label))
    elif args.output == "html":
        from pinfold.render.plan.html import format_html  # noqa: PLC0415 - most plans are tables

        _print(format_html(plan, label))
    else:
        print_either(args, table, data)
    warn(unsound(plan))


def print_either(args: argparse.Namespace, table: Callable[[], str], data: Callable[[], dict[str, object]]) -> None:
    """Print a table, or the data as JSON or YAML."""
    if args.output == "table":
        _print(f"{table()}\n")
    else:
        _print((format_json if args.output == "json" else format_yaml)(data()))


def _print(text: str) -> None:
    print(text, end="", flush=True)


def warn(warnings: Iterable[str], kind: str = "warning") -> None:
    """Print warnings to stderr, the first ones whole and then how many more there are."""
    texts = list(warnings)
    for text in texts[:_MOST_WARNINGS]:
        line = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
        print(f"pinfold: {kind}: {line}", file=sys.stderr)
    if len(texts) > _MOST_WARNINGS:
        print(f"pinfold: {kind}: and {len(texts) - _MOST_WARNINGS} more; see -o json", file=sys.stderr)
