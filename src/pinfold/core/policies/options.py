"""The options of the static policy: one table with their names, values and conflicts.

The first six are the reference's. The others are pinfold's own: a kubelet does not know them.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pinfold.core.gosyntax import go_bool, go_int, go_quote
from pinfold.core.pods.pod import ANNOTATION_PREFIX
from pinfold.errors import Problem, did_you_mean

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
    isolate_smt_siblings: bool = False
    require_align_cpus_by_uncorecache: bool = False
    min_shared_cpus: int = 0
    prefer_isolated_cpus: bool = False
    require_isolated_cpus: bool = False
    per_pod: frozenset[str] = frozenset()
    """The names of the options that are only in force for pods that ask for them."""

    def offers(self, *names: str) -> bool:
        """Whether one of these options is in force, for all pods or for those that ask."""
        return any(name in self.per_pod or getattr(self, OPTIONS[name].field) for name in names)

    def for_pod(self, annotations: Mapping[str, str]) -> Options:
        """Return the options in force for a pod: the node's, and those for which its annotations ask.

        >>> node = Options(per_pod=frozenset({"isolate-smt-siblings"}))
        >>> node.for_pod({"pinfold.dev/isolate-smt-siblings": "true"}).isolate_smt_siblings
        True
        """
        asked: dict[str, Any] = {
            OPTIONS[name].field: True for name in self.per_pod if asks_for(annotations, name)
        }  # Any: as fields
        return self._replace(**asked) if asked else self

    def not_offered(self, annotations: Mapping[str, str]) -> list[str]:
        """Return the options for which annotations ask, and that the node does not offer."""
        return [name for name in OWN if asks_for(annotations, name) and not self.offers(name)]

    @property
    def reference(self) -> Options:
        """The reference's options alone; on CPUs without siblings every CPU is a whole core."""
        whole = self.full_pcpus_only and not self.isolate_smt_siblings
        by_cache = self.prefer_align_cpus_by_uncorecache or self.require_align_cpus_by_uncorecache
        kept = {option.field: getattr(self, option.field) for option in REFERENCE.values()}
        return Options(**kept)._replace(full_pcpus_only=whole, prefer_align_cpus_by_uncorecache=by_cache)


DEFAULT: Final = Options()


def asks_for(annotations: Mapping[str, str], name: str) -> bool:
    """Whether the annotations of a pod ask for an option."""
    return annotations.get(ANNOTATION_PREFIX + name) == "true"


class Values(StrEnum):
    """The values that an option can have, in words."""

    SWITCH = "true, false"
    PER_POD = "true, false, per-pod"
    """per-pod: in force for pods that ask for it by annotation."""
    NUMBER = "a whole number"


class Option(NamedTuple):
    """A row of the table: an option as users write it, its values, and its conflicts."""

    name: str
    maturity: Maturity
    conflicts: Mapping[str, str] = MappingProxyType({})
    """The options that cannot be used with it, and why."""
    values: Values = Values.SWITCH
    own: bool = False
    """Whether it is pinfold's own, and unknown to a kubelet."""

    @property
    def field(self) -> str:
        """The field of Options that holds it."""
        return self.name.replace("-", "_")


def _own(name: str, values: Values, conflicts: Mapping[str, str] = MappingProxyType({})) -> Option:
    return Option(name, Maturity.ALPHA, conflicts, values, own=True)


_BY_NUMBER: Final = "distribute-cpus-across-cores takes CPUs by their numbers, one of each core"
_SPREADING: Final = {
    "distribute-cpus-across-cores": f"{_BY_NUMBER}, across caches",
    "distribute-cpus-across-numa": "distribute-cpus-across-numa takes equal parts of NUMA nodes and their caches",
}

# In the order in which the kubelet looks for conflicts.
OPTIONS: Final[Mapping[str, Option]] = {
    option.name: option
    for option in (
        Option("full-pcpus-only", Maturity.STABLE, {"distribute-cpus-across-cores": f"{_BY_NUMBER}, and splits cores"}),
        Option(
            "distribute-cpus-across-numa",
            Maturity.BETA,
            {"distribute-cpus-across-cores": f"{_BY_NUMBER}, socket by socket"},
        ),
        Option("align-by-socket", Maturity.ALPHA),
        Option("distribute-cpus-across-cores", Maturity.ALPHA),
        Option("strict-cpu-reservation", Maturity.STABLE),
        Option("prefer-align-cpus-by-uncorecache", Maturity.STABLE, _SPREADING),
        _own("isolate-smt-siblings", Values.PER_POD),
        _own("require-align-cpus-by-uncorecache", Values.PER_POD, _SPREADING),
        _own("min-shared-cpus", Values.NUMBER),
        _own("prefer-isolated-cpus", Values.PER_POD),
        _own("require-isolated-cpus", Values.PER_POD),
    )
}
REFERENCE: Final[Mapping[str, Option]] = {name: option for name, option in OPTIONS.items() if not option.own}
"""The options that a kubelet knows."""
OWN: Final[Mapping[str, Option]] = {name: option for name, option in OPTIONS.items() if option.own}


def parse_options(
    given: Mapping[str, str], gates: Mapping[str, bool], known: Mapping[str, Option] = OPTIONS
) -> tuple[Options, list[Problem]]:
    """Return the options in force, and all problems in the kubelet's words. Only those of the rows *known* can be used.

    >>> print(parse_options({"strict-cpu-reservation": "true", "full-pcpus-only": "yes"}, {})[1][0])
    bad value for option "full-pcpus-only": strconv.ParseBool: parsing "yes": invalid syntax; allowed: true, false
    """
    problems: list[Problem] = []
    values: dict[str, Any] = {}  # Any: switches and numbers
    per_pod = set()
    for name, text in given.items():
        option = known.get(name)
        if option is None:
            problems.append(_unknown(name, known))
            continue
        gate = OPTION_GATES.get(option.maturity)
        if gate is not None and not gate.is_on(gates):
            level = f"CPU Manager Policy {option.maturity}-level Options"
            said = f"{level} not enabled, but option {go_quote(name)} provided"
            problems.append(Problem(said, f"to use it, turn on the feature gate: --feature-gates {gate.name}=true"))
        elif text == "per-pod" and option.values is Values.PER_POD:
            per_pod.add(name)
        else:
            try:
                values[option.field] = _parse_value(option, text)
            except ValueError as error:
                said = f"bad value for option {go_quote(name)}: {error}"
                problems.append(Problem(said, f"allowed: {option.values}"))
    options = Options(**values, per_pod=frozenset(per_pod))
    return options, problems + _conflicts(options)


def _unknown(name: str, known: Mapping[str, Option]) -> Problem:
    whose = "pinfold's own, which a kubelet does not know; " if name in OPTIONS else ""
    meant = did_you_mean(name, known).removeprefix("; ") or f"known: {', '.join(known)}"
    return Problem(f"unknown CPU Manager Policy option: {go_quote(name)}", f"{whose}{meant}")


def _parse_value(option: Option, text: str) -> int:
    if option.values is not Values.NUMBER:
        return go_bool(text)
    number = go_int(text)
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number


def _conflicts(options: Options) -> list[Problem]:
    return [
        Problem(f"static policy options {option.name} and {other} can not be used at the same time", why)
        for option in OPTIONS.values()
        for other, why in option.conflicts.items()
        if options.offers(option.name) and options.offers(other)
    ]
