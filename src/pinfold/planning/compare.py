"""Plans the same pods under several settings or on several machines, and ranks the results.

The best has the fewest refused pods, then the fewest containers spread over more groups than necessary, then the
least fragmented free CPUs; ties go to the variant with the fewest changes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.config import check_machine
from pinfold.core.policies.options import OPTION_GATES, OPTIONS, OWN, REFERENCE, Values, parse_options
from pinfold.core.topologymanager.options import TopologyPolicy
from pinfold.errors import ConfigError, StateError
from pinfold.planning.plan import EMPTY_NODE, make_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pinfold.core.config import Config
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Pod
    from pinfold.planning.plan import Plan, Running

# Fragmentation is compared in whole percents: less is noise.
_PERCENT: Final = 100


class Variant(NamedTuple):
    """A node to try: its label, machine and settings."""

    label: str
    topology: Topology
    config: Config


class PlanScore(NamedTuple):
    """The score of a plan; less is better, and earlier fields count more."""

    refused: int
    misaligned: int
    fragmentation: int
    """In percent."""


class Compared(NamedTuple):
    """A variant and its plan; no plan but a problem, if the variant cannot start from the given State."""

    variant: Variant
    plan: Plan | None
    problem: str = ""

    @property
    def score(self) -> PlanScore:
        """The score; a variant without a plan has the worst."""
        if self.plan is None:
            return _WORST
        return PlanScore(
            len(self.plan.refused), len(self.plan.misaligned), round(self.plan.leftover.fragmentation * _PERCENT)
        )


_WORST: Final = PlanScore(1 << 30, 1 << 30, _PERCENT)


def compare(variants: Iterable[Variant], pods: Sequence[Pod], running: Running = EMPTY_NODE) -> Iterator[Compared]:
    """Yield the plan of *pods* under each variant, in order."""
    for variant in variants:
        try:
            yield Compared(variant, make_plan(pods, variant.topology, variant.config, running))
        except StateError as error:
            yield Compared(variant, None, str(error))


def combinations(config: Config, topology: Topology) -> list[Variant]:
    """Return every valid combination of options and Topology Manager policies on a machine, that of *config* first.

    The gates of alpha and beta options are opened for it. The rest of *config* stays: policy, pinfold's own options,
    reserved CPUs, scope.
    """
    gates = {**config.gates, **{gate.name: True for gate in OPTION_GATES.values()}}
    found = [Variant(name_of(config), topology, config)]
    own = {name: value for name, value in config.options.items() if name in OWN}
    for values in product((False, True), repeat=len(REFERENCE)):
        chosen = {name: "true" for name, on in zip(REFERENCE, values, strict=True) if on} | own
        options, problems = parse_options(chosen, gates)
        for policy in TopologyPolicy:
            if problems or check_machine(options, policy, topology):
                continue
            tried = replace(config, options=chosen, topology_policy=str(policy), gates=gates)
            if _differs(tried, config) and _builds(tried, topology):
                found.append(Variant(name_of(tried), topology, tried))
    return found


def _differs(tried: Config, config: Config) -> bool:
    return (_on(tried), tried.topology_policy) != (_on(config), config.topology_policy)


def _builds(config: Config, topology: Topology) -> bool:
    """Whether it works on the machine: a kubelet's Topology Manager, for one, limits the number of NUMA nodes."""
    try:
        config.build(topology)
    except ConfigError:
        return False
    return True


def _on(config: Config) -> frozenset[str]:
    """Return the names of the options in force, for all pods or for those that ask."""
    options = parse_options(config.options, _OPEN)[0]
    return frozenset(name for name in OPTIONS if options.offers(name))


_OPEN: Final = {gate.name: True for gate in OPTION_GATES.values()}


def name_of(config: Config) -> str:
    """Return the settings of a variant in short.

    >>> from pinfold.core.config import Config
    >>> name_of(Config("static", {"full-pcpus-only": "true"}, topology_policy="restricted")), name_of(Config("static"))
    ('full-pcpus-only, restricted', 'no options')
    >>> name_of(Config("static", {"min-shared-cpus": "4", "prefer-isolated-cpus": "per-pod"}))
    'min-shared-cpus=4, prefer-isolated-cpus=per-pod'
    """
    on = _on(config)
    options = ", ".join(_shown(name, config.options[name]) for name in OPTIONS if name in on) or "no options"
    return options if config.topology_policy == "none" else f"{options}, {config.topology_policy}"


def _shown(name: str, value: str) -> str:
    plain = OPTIONS[name].values is not Values.NUMBER and value != "per-pod"
    return name if plain else f"{name}={value}"


def needed_gates(config: Config) -> tuple[str, ...]:
    """Return the feature gates that the options of *config* need, and that are not open by default."""
    on = _on(config)
    gates = {
        OPTION_GATES[option.maturity]
        for option in OPTIONS.values()
        if option.name in on and option.maturity in OPTION_GATES
    }
    return tuple(sorted(gate.name for gate in gates if not gate.default))


def ranked(compared: Iterable[Compared], config: Config) -> list[Compared]:
    """Return the best first; ties go to the variant nearest to *config*, then to the first tried."""
    return sorted(compared, key=lambda row: (row.score, _distance(row.variant.config, config)))


def _distance(config: Config, other: Config) -> int:
    return len(_on(config) ^ _on(other)) + (config.topology_policy != other.topology_policy)
