"""The further questions to `pinfold plan`: comparisons, advice, orders of arrival, and replays of the past.

Imported only when one of them is asked.
"""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING

from pinfold.cli.output.progress import shown
from pinfold.cli.output.terminal import look
from pinfold.cli.planning.arguments import BadQuestion
from pinfold.cli.planning.journal import JournalEvents, format_then, then_data
from pinfold.cli.planning.printing import FITS, REFUSED, print_either, print_plan, warn
from pinfold.formats.pods.trace import parse_trace
from pinfold.planning.compare import combinations, compare, ranked
from pinfold.planning.orders import sample, tally
from pinfold.planning.plan import make_plan
from pinfold.planning.replay import replay
from pinfold.render.plan.compare import comparison_data, format_comparison, format_recommendation
from pinfold.render.plan.orders import format_orders, orders_data
from pinfold.render.plan.replay import format_replay, replay_data
from pinfold.settings.filetext import read_text

if TYPE_CHECKING:
    import argparse

    from pinfold.cli.planning.inputs import Inputs


def answer(args: argparse.Namespace, inputs: Inputs) -> int:
    """Answer the question in the flags; return the exit code."""
    if args.trace is not None:
        return _replay(args, inputs)
    if args.journal is not None:
        return _replay_journal(args, inputs)
    if args.orders is not None:
        return _orders(args, inputs)
    return _recommend(args, inputs) if args.recommend else _compare(args, inputs)


def _compare(args: argparse.Namespace, inputs: Inputs) -> int:
    total = len(inputs.variants)
    rows = list(shown(compare(inputs.variants, inputs.pods, inputs.running), total, "planning"))
    print_either(args, lambda: format_comparison(rows, look(sys.stdout)), lambda: comparison_data(rows))
    return FITS if any(row.plan is not None and not row.plan.refused for row in rows) else REFUSED


def _recommend(args: argparse.Namespace, inputs: Inputs) -> int:
    _, topology, config = inputs.variants[0]
    if config.policy == "none":
        raise BadQuestion("--recommend compares options of policy static; add --policy static")
    variants = combinations(config, topology)
    rows = list(shown(compare(variants, inputs.pods, inputs.running), len(variants), "trying"))
    best = ranked(rows, config)
    print_either(args, lambda: format_recommendation(best, rows[0], look(sys.stdout)), lambda: comparison_data(best))
    return FITS if best[0].plan is not None and not best[0].plan.refused else REFUSED


def _orders(args: argparse.Namespace, inputs: Inputs) -> int:
    _, topology, config = inputs.variants[0]
    empty = make_plan((), topology, config, inputs.running)
    endless = sample(empty.admitter, empty.ruler, empty.before, inputs.pods, args.seed)
    found = tally(list(shown(islice(endless, args.orders), args.orders, "trying orders")), len(inputs.pods))
    print_either(
        args,
        lambda: format_orders(found, inputs.pods, args.seed, look(sys.stdout)),
        lambda: orders_data(found, inputs.pods, args.seed),
    )
    return REFUSED if any(found.refused) else FITS


def _replay(args: argparse.Namespace, inputs: Inputs) -> int:
    label, topology, config = inputs.variants[0]
    events = parse_trace(read_text(args.trace), source="stdin" if args.trace == "-" else args.trace)
    found = replay(shown(events, len(events), "replaying"), topology, config, inputs.running)
    print_plan(
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
    warn(journal.remarks)
    print_plan(
        args,
        found.plan,
        label,
        lambda: f"{format_replay(found, look(sys.stdout), label)}\n\n{format_then(found, look(sys.stdout))}",
        lambda: replay_data(found, label) | {"then": then_data(found), "remarks": journal.remarks},
    )
    return REFUSED if found.plan.refused else FITS
