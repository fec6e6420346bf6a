"""`pinfold plan`: what a node would do with these pods, on any machine, without touching one.

Exit code 1 if a pod is refused: in a comparison if every variant refuses one, with --recommend if even the best does,
with --orders if any order does; with --strict also if a pod misses exclusive CPUs by mistake.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pinfold.cli.output.terminal import look
from pinfold.cli.planning.arguments import BadQuestion, add_arguments
from pinfold.cli.planning.inputs import read_inputs
from pinfold.cli.planning.printing import FITS, REFUSED, print_plan, warn
from pinfold.core.explaining.sharing import asks_for_whole_cpus, missed_pinning
from pinfold.planning.plan import make_plan
from pinfold.render.plan.data import plan_data
from pinfold.render.plan.table import format_plan

if TYPE_CHECKING:
    import argparse

    from pinfold.cli.planning.inputs import Inputs
    from pinfold.planning.plan import Plan

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Plan what was asked, print it, and return whether all of it fits."""
    _check(args)
    inputs = read_inputs(args)
    warn(inputs.warnings)
    strict = _warn_of_mistakes(args, inputs)
    return _answer(args, inputs) or strict


def _warn_of_mistakes(args: argparse.Namespace, inputs: Inputs) -> int:
    """Report fields that are probably misspelt, and pods that will share although they ask for whole CPUs."""
    _, topology, config = inputs.variants[0]
    policy = config.build(topology).policy
    missed = [str(missed) for pod in inputs.pods for missed in missed_pinning(policy, pod)]
    if args.strict and config.policy == "none" and any(map(asks_for_whole_cpus, inputs.pods)):
        missed.append("policy none gives no container exclusive CPUs, but pods ask for them; use policy static")
    mistakes = [*inputs.mistakes, *missed]
    warn(mistakes, "error" if args.strict else "warning")
    return REFUSED if args.strict and mistakes else FITS


def _answer(args: argparse.Namespace, inputs: Inputs) -> int:
    asked = (args.trace, args.journal, args.orders)
    if asked == (None, None, None) and not args.recommend and len(inputs.variants) == 1:
        return _plan(args, inputs)
    from pinfold.cli.planning.questions import answer  # noqa: PLC0415 - a plain plan needs nothing of it

    return answer(args, inputs)


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
    if args.local_memory and not args.devices:
        raise BadQuestion("--local-memory needs the memory of each NUMA node: name it with --devices")
    if args.repack and several:
        raise BadQuestion("--repack is about one node: give one --preset and one --options")
    if args.output in {"svg", "html"} and (several or (question and not past)):
        raise BadQuestion(f"-o {args.output} shows one plan: it does not go with {question or 'a comparison'}")


def _plan(args: argparse.Namespace, inputs: Inputs) -> int:
    label, topology, config = inputs.variants[0]
    plan = make_plan(inputs.pods, topology, config, inputs.running)
    text, data = _repack(plan) if args.repack else ("", {})
    print_plan(
        args,
        plan,
        label,
        lambda: "\n\n".join(filter(None, [format_plan(plan, look(sys.stdout), label), text])),
        lambda: plan_data(plan, label) | data,
    )
    return REFUSED if plan.refused else FITS


def _repack(plan: Plan) -> tuple[str, dict[str, object]]:
    """Return the moves that would follow, as text and as data."""
    from pinfold.planning.repacked import repacked  # noqa: PLC0415 - only with --repack
    from pinfold.render.plan.repacked import format_repack, repack_data  # noqa: PLC0415 - only with --repack

    found = repacked(plan)
    return format_repack(found, plan.names), {"repack": repack_data(found, plan.names)}
