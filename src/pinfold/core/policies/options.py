"""The options of the static policy: one table with their names and conflicts."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.gosyntax import go_bool, go_quote
from pinfold.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping


class Maturity(StrEnum):
    """The maturity of an option; alpha and beta options need a feature gate."""

    STABLE = "Stable"
    BETA = "Beta"
    ALPHA = "Alpha"


class Gate(NamedTuple):
    """A feature gate and its default."""

    name: str
    default: bool

    def is_on(self, gates: Mapping[str, bool]) -> bool:
        """Whether the gate is open under these settings."""
        return gates.get(self.name, self.default)


OPTION_GATES: Final[Mapping[Maturity, Gate]] = {
    Maturity.BETA: Gate("CPUManagerPolicyBetaOptions", default=True),
    Maturity.ALPHA: Gate("CPUManagerPolicyAlphaOptions", default=False),
}
POD_LEVEL: Final = Gate("PodLevelResourceManagers", default=False)
RESIZE: Final = Gate("InPlacePodVerticalScalingExclusiveCPUs", default=False)


class Options(NamedTuple):
    """The options in force."""

    full_pcpus_only: bool = False
    distribute_cpus_across_numa: bool = False
    align_by_socket: bool = False
    distribute_cpus_across_cores: bool = False
    strict_cpu_reservation: bool = False
    prefer_align_cpus_by_uncorecache: bool = False


DEFAULT: Final = Options()


class Option(NamedTuple):
    """A row of the table: an option as users write it, and its conflicts."""

    name: str
    maturity: Maturity
    conflicts: tuple[str, ...] = ()

    @property
    def field(self) -> str:
        """The field of Options that holds it."""
        return self.name.replace("-", "_")


# In the order in which the kubelet looks for conflicts.
OPTIONS: Final[Mapping[str, Option]] = {
    option.name: option
    for option in (
        Option("full-pcpus-only", Maturity.STABLE, ("distribute-cpus-across-cores",)),
        Option("distribute-cpus-across-numa", Maturity.BETA, ("distribute-cpus-across-cores",)),
        Option("align-by-socket", Maturity.ALPHA),
        Option("distribute-cpus-across-cores", Maturity.ALPHA),
        Option("strict-cpu-reservation", Maturity.STABLE),
        Option(
            "prefer-align-cpus-by-uncorecache",
            Maturity.STABLE,
            ("distribute-cpus-across-cores", "distribute-cpus-across-numa"),
        ),
    )
}


def parse_options(given: Mapping[str, str], gates: Mapping[str, bool]) -> tuple[Options, list[Problem]]:
    """Return the options in force, and all problems in the kubelet's words.

    >>> print(parse_options({"strict-cpu-reservation": "true", "full-pcpus-only": "yes"}, {})[1][0])
    bad value for option "full-pcpus-only": strconv.ParseBool: parsing "yes": invalid syntax; allowed: true, false
    """
    problems: list[Problem] = []
    values: dict[str, bool] = {}
    for name, text in given.items():
        option = OPTIONS.get(name)
        if option is None:
            problems.append(
                Problem(f"unknown CPU Manager Policy option: {go_quote(name)}", f"known: {', '.join(OPTIONS)}")
            )
            continue
        gate = OPTION_GATES.get(option.maturity)
        if gate is not None and not gate.is_on(gates):
            level = f"CPU Manager Policy {option.maturity}-level Options"
            said = f"{level} not enabled, but option {go_quote(name)} provided"
            problems.append(Problem(said, f"open the feature gate {gate.name} to use it"))
        else:
            try:
                values[option.field] = go_bool(text)
            except ValueError as error:
                problems.append(Problem(f"bad value for option {go_quote(name)}: {error}", "allowed: true, false"))
    options = Options(**values)
    return options, problems + _conflicts(options)


def _conflicts(options: Options) -> list[Problem]:
    return [
        Problem(f"static policy options {option.name} and {other} can not be used at the same time")
        for option in OPTIONS.values()
        for other in option.conflicts
        if getattr(options, option.field) and getattr(options, OPTIONS[other].field)
    ]
