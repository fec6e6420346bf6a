"""`pinfold plan`: what a node would do with these pods, on any machine, without touching one.

Exit code 1 if a pod is refused: in a comparison if every variant refuses one, with --recommend if even the best does,
with --orders if any order does; with --strict also if a pod misses exclusive CPUs by mistake.
"""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Final

from pinfold.cli.output.progress import shown
from pinfold.cli.output.terminal import look
from pinfold.cli.planning.arguments import BadQuestion, add_arguments
from pinfold.cli.planning.inputs import read_inputs, read_text
from pinfold.cli.planning.journal import JournalEvents, format_then, then_data
from pinfold.core.explaining.sharing import missed_pinning
from pinfold.formats.pods.trace import parse_trace
from pinfold.planning.compare import combinations, compare, ranked
from pinfold.planning.orders import sample, tally
from pinfold.planning.plan import make_plan
from pinfold.planning.repacked import repacked
from pinfold.planning.replay import replay
from pinfold.render.plan.compare import comparison_data, format_comparison, format_recommendation
from pinfold.render.plan.data import format_json, format_yaml, plan_data
from pinfold.render.plan.html import format_html
from pinfold.render.plan.orders import format_orders, orders_data
from pinfold.render.plan.repacked import format_repack, repack_data
from pinfold.render.plan.replay import format_replay, replay_data
from pinfold.render.plan.svg import format_plan_svg
from pinfold.render.plan.table import format_plan, unsound

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    from pinfold.cli.planning.inputs import Inputs
    from pinfold.planning.plan import Plan

__all__ = ["add_arguments", "run"]

FITS, REFUSED = 0, 1
_MOST_WARNINGS: Final = 10


def run(args: argparse.Namespace) -> int:
    """Plan what was asked, print it, and return whether all of it fits."""
    _check(args)
    inputs = read_inputs(args)
    _warn(inputs.warnings)
    strict = _warn_of_mistakes(args, inputs)
    return _answer(args, inputs) or strict


def _warn_of_mistakes(args: argparse.Namespace, inputs: Inputs) -> int:
    """Report fields that are probably misspelt, and pods that will share although they ask for whole CPUs."""
    _, topology, config = inputs.variants[0]
    policy = config.build(topology).policy
    missed = [str(missed) for pod in inputs.pods for missed in missed_pinning(policy, pod)]
    mistakes = [*inputs.mistakes, *missed]
    _warn(mistakes, "error" if args.strict else "warning")
    return REFUSED if args.strict and mistakes else FITS


def _answer(args: argparse.Namespace, inputs: Inputs) -> int:
    if args.trace is not None:
        return _replay(args, inputs)
    if args.journal is not None:
        return _replay_journal(args, inputs)
    if args.orders is not None:
        return _orders(args, inputs)
    if args.recommend:
        return _recommend(args, inputs)
    return _compare(args, inputs) if len(inputs.variants) > 1 else _plan(args, inputs)


def _check(args: argparse.Namespace) -> None:
    past = next((f"--{name}" for name in ("trace", "journal") if getattr(args, name) is not None), None)
    if not (args.pods or past or args.live or args.state):
        raise BadQuestion("no pods: name files with pods, or --trace, --journal, --live or --state")
    if past and (args.pods or args.live or args.without or args.replicas or args.resize):
        raise BadQuestion(f"{past} has its own pods: leave files, --live, --without, --replicas and --resize away")
    if (args.since or args.until) and past != "--journal":
        raise BadQuestion("--since and --until are times of a --journal")
    several = len(args.preset) > 1 or len(args.options) > 1
    question = past or next((f"--{name}" for name in ("recommend", "orders") if getattr(args, name)), None)
    if question and several:
        raise BadQuestion(f"{question} is about one node: give one --preset and one --options")
    if args.devices and (past or args.orders):
        raise BadQuestion(f"--devices is for plans of pods that come one after the other, not for {question}")
    if args.repack and several:
        raise BadQuestion("--repack is about one node: give one --preset and one --options")
    if args.output in {"svg", "html"} and (several or (question and not past)):
        raise BadQuestion(f"-o {args.output} shows one plan: it does not go with {question or 'a comparison'}")


def _plan(args: argparse.Namespace, inputs: Inputs) -> int:
    label, topology, config = inputs.variants[0]
    plan = make_plan(inputs.pods, topology, config, inputs.running)
    repack = repacked(plan) if args.repack else None
    _print_plan(
        args,
        plan,
        label,
        lambda: "\n\n".join(
            [format_plan(plan, look(sys.stdout), label), *([format_repack(repack, plan.names)] if repack else [])]
        ),
        lambda: plan_data(plan, label) | ({"repack": repack_data(repack, plan.names)} if repack else {}),
    )
    return REFUSED if plan.refused else FITS


def _print_plan(
    args: argparse.Namespace,
    plan: Plan,
    label: str,
    table: Callable[[], str],
    data: Callable[[], dict[str, object]],
) -> None:
    if args.output == "svg":
        _print(format_plan_svg(plan, label))
    elif args.output == "html":
        _print(format_html(plan, label))
    else:
        _print_either(args, table, data)
    _warn(unsound(plan))


def _print_either(args: argparse.Namespace, table: Callable[[], str], data: Callable[[], dict[str, object]]) -> None:
    if args.output == "table":
        _print(f"{table()}\n")
    else:
        _print((format_json if args.output == "json" else format_yaml)(data()))


def _compare(args: argparse.Namespace, inputs: Inputs) -> int:
    total = len(inputs.variants)
    rows = list(shown(compare(inputs.variants, inputs.pods, inputs.running), total, "planning"))
    _print_either(args, lambda: format_comparison(rows, look(sys.stdout)), lambda: comparison_data(rows))
    return FITS if any(row.plan is not None and not row.plan.refused for row in rows) else REFUSED


def _recommend(args: argparse.Namespace, inputs: Inputs) -> int:
    _, topology, config = inputs.variants[0]
    if config.policy == "none":
        raise BadQuestion("--recommend compares options of policy static; add --policy static")
    variants = combinations(config, topology)
    rows = list(shown(compare(variants, inputs.pods, inputs.running), len(variants), "trying"))
    best = ranked(rows, config)
    _print_either(args, lambda: format_recommendation(best, rows[0], look(sys.stdout)), lambda: comparison_data(best))
    return FITS if best[0].plan is not None and not best[0].plan.refused else REFUSED


def _orders(args: argparse.Namespace, inputs: Inputs) -> int:
    _, topology, config = inputs.variants[0]
    empty = make_plan((), topology, config, inputs.running)
    endless = sample(empty.admitter, empty.ruler, empty.before, inputs.pods, args.seed)
    found = tally(list(shown(islice(endless, args.orders), args.orders, "trying orders")), len(inputs.pods))
    _print_either(
        args,
        lambda: format_orders(found, inputs.pods, args.seed, look(sys.stdout)),
        lambda: orders_data(found, inputs.pods, args.seed),
    )
    return REFUSED if any(found.refused) else FITS


def _replay(args: argparse.Namespace, inputs: Inputs) -> int:
    label, topology, config = inputs.variants[0]
    events = parse_trace(read_text(args.trace), source="stdin" if args.trace == "-" else args.trace)
    found = replay(shown(events, len(events), "replaying"), topology, config, inputs.running)
    _print_plan(
        args,
        found.plan,
        label,
        lambda: format_replay(found, look(sys.stdout), label),
        lambda: replay_data(found, label),
    )
    return REFUSED if found.plan.refused else FITS


def _replay_journal(args: argparse.Namespace, inputs: Inputs) -> int:
    label, topology, config = inputs.variants[0]
    journal = JournalEvents(args)
    found = replay(shown(journal, None, "replaying"), topology, config, inputs.running, journal.since)
    _warn(journal.remarks)
    _print_plan(
        args,
        found.plan,
        label,
        lambda: f"{format_replay(found, look(sys.stdout), label)}\n\n{format_then(found, look(sys.stdout))}",
        lambda: replay_data(found, label) | {"then": then_data(found), "remarks": journal.remarks},
    )
    return REFUSED if found.plan.refused else FITS


def _print(text: str) -> None:
    print(text, end="", flush=True)


def _warn(warnings: Iterable[str], kind: str = "warning") -> None:
    texts = list(warnings)
    for text in texts[:_MOST_WARNINGS]:
        line = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
        print(f"pinfold: {kind}: {line}", file=sys.stderr)
    if len(texts) > _MOST_WARNINGS:
        print(f"pinfold: {kind}: and {len(texts) - _MOST_WARNINGS} more; see -o json", file=sys.stderr)
