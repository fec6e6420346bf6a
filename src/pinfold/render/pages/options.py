"""The page docs/reference/options.md, from the table of options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.moving.repacking import pinned_by
from pinfold.core.policies.options import OPTION_GATES, OPTIONS, OWN, parse_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pinfold.core.policies.options import Option

_INTRODUCTION: Final = """\
<!-- Written by: tools/reference -->

# Options of the static policy

`--policy-options NAME=VALUE,...` sets them, or `cpuManagerPolicyOptions` in the configuration file.
All are off by default. They work alike with the policies `static` and `dynamic`.

The first six are the kubelet's, with its names, its conflicts and its error messages.
The others are pinfold's own: a kubelet refuses to start with them, and so does a plan with `--fidelity kubelet`.

`per-pod`: the option is only in force for pods that ask for it with the annotation `pinfold.dev/NAME: "true"`.
Where the node does not offer the option, the annotation is ignored, and `pinfold explain` says so."""
_MATRIX: Final = """\
## Which options go together

`yes`: both promises hold, also when running containers are resized and moved. A number: pinfold refuses to start, for
the reason below the table."""
_RUNNING: Final = """\
## When running containers change

The options in force hold for the new size of a container, and after a move. What cannot hold is refused, and the
container keeps its CPUs. Under `isolate-smt-siblings` and `require-isolated-cpus` a container that has its CPUs from
before the option was turned on is not resized or moved until it is restarted."""
_WHEN_RUNNING: Final = {
    "full-pcpus-only": ("by whole cores", "to whole cores"),
    "distribute-cpus-across-numa": ("the largest part shrinks first", ""),
    "align-by-socket": ("near the sockets of its affinity", ""),
    "distribute-cpus-across-cores": ("onto cores of which it has no CPU", ""),
    "isolate-smt-siblings": ("by whole cores, siblings idle", "to whole cores of the same size, siblings idle"),
    "require-align-cpus-by-uncorecache": (
        "refused with `UncoreAlignmentError` if the new size is not in the fewest caches",
        "never to more caches than the fewest",
    ),
    "min-shared-cpus": ("grows until so many shared CPUs are left", "does not change the number of shared CPUs"),
    "prefer-isolated-cpus": (
        "onto CPUs of the kind that it has first; gives back others before isolated ones",
        "isolated to isolated CPUs, others to others; a mixture stays",
    ),
    "require-isolated-cpus": ("onto isolated CPUs alone", "to isolated CPUs alone"),
}
_OPEN: Final = {gate.name: True for gate in OPTION_GATES.values()}


def document() -> str:
    """Return the reference of all options."""
    heads = ["| option | maturity | feature gate | values |", "|---|---|---|---|"]
    rows = [_row(option) for option in OPTIONS.values()]
    return "\n".join([_INTRODUCTION, "", *heads, *rows, "", _MATRIX, "", *_matrix(), "", _RUNNING, "", *_running(), ""])


def refusals() -> dict[tuple[str, str], str]:
    """Return the reason for each pair of options, in both orders, that cannot be used together."""
    return {(one, other): why for one in OPTIONS for other in OPTIONS if (why := _refusal(one, other))}


def _refusal(one: str, other: str) -> str:
    problems = parse_options({one: "1", other: "1"}, _OPEN)[1]
    return problems[0].advice if problems else ""


def _row(option: Option) -> str:
    name = f"[`{option.name}`](options/{option.name}.md)" if option.own else f"`{option.name}`"
    gate = OPTION_GATES.get(option.maturity)
    return f"| {name} | {option.maturity} | {'-' if gate is None else f'`{gate.name}`'} | {option.values} |"


def _matrix() -> Iterator[str]:
    """Yield the table of all options against pinfold's own and each other, and the reasons."""
    found = refusals()
    numbers = {why: number for number, why in enumerate(dict.fromkeys(found.values()), 1)}
    yield "| | " + " | ".join(f"`{name}`" for name in OPTIONS) + " |"
    yield "|---" * (len(OPTIONS) + 1) + "|"
    for one in (*OWN, *(name for name in OPTIONS if name not in OWN)):
        cells = ["-" if one == other else str(numbers.get(found.get((one, other), ""), "yes")) for other in OPTIONS]
        yield f"| `{one}` | " + " | ".join(cells) + " |"
    yield ""
    yield from (f"{number}. {why}." for why, number in numbers.items())


def _running() -> Iterator[str]:
    """Yield a table of what each option means for running containers."""
    yield "| option | a resize | a repack (policy `dynamic`) |"
    yield "|---|---|---|"
    for name in OPTIONS:
        spreads = pinned_by(parse_options({name: "1"}, _OPEN)[0])
        default = "moves nothing: it would undo what the option spreads" if spreads else "moves"
        size, move = _WHEN_RUNNING.get(name, ("", ""))
        yield f"| `{name}` | {size or 'grows and shrinks'} | {move or default} |"
