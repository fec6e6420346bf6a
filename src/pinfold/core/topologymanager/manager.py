"""TopologyManager: merges the hints of all resources, and decides whether the policy admits the result.

Knows nothing of the source of hints, nor of scopes: callers ask once for a container, or once for a pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from pinfold.core.machine.cpuset import cpus_of, format_list
from pinfold.core.topologymanager.closeness import Closeness
from pinfold.core.topologymanager.hint import Hint
from pinfold.core.topologymanager.merge import gather, merge_hints, merge_single
from pinfold.core.topologymanager.options import TopologyOption, TopologyPolicy, read_options
from pinfold.core.topologymanager.report import MergeQuestion, MergeReason, MergeReport, report
from pinfold.core.trace import Defect
from pinfold.errors import AdmissionError, ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pinfold.core.machine.topology import Topology
    from pinfold.core.topologymanager.merge import Providers


# Looked up once: as attributes of the enum they would be a fifth of a merge's time.
_NONE, _BEST_EFFORT = TopologyPolicy.NONE, TopologyPolicy.BEST_EFFORT
_SINGLE_NUMA_NODE = TopologyPolicy.SINGLE_NUMA_NODE


class TopologyAffinityError(AdmissionError):
    """The resources are not as close together as the policy demands."""

    reason = "TopologyAffinityError"

    def __init__(self, hint: Hint) -> None:
        super().__init__("Resources cannot be allocated with Topology locality")
        self.hint = hint


class Merged(NamedTuple):
    """The result of merging: whether the policy admits it, and the hint for all allocators."""

    admit: bool
    hint: Hint


@dataclass(frozen=True, slots=True)
class TopologyManager:
    """One policy on one machine.

    >>> from pinfold.core.topologymanager.cpu import cpu_hints
    >>> from pinfold.core.topologymanager.hint import HintList
    >>> from pinfold.core.machine.presets import preset
    >>> machine = preset("sockets:2,numa:2,cores:4,threads:2")
    >>> manager = TopologyManager.for_machine("restricted", {}, machine)
    >>> cpus = cpu_hints(machine, available=0xFFFF_FFFE, reusable=0, need=8)
    >>> manager.merge([{"cpu": cpus}, {"gpu": HintList([Hint.of(2), Hint.of(3)])}])
    Merged(admit=True, hint=Hint(affinity=4, preferred=True))
    """

    policy: TopologyPolicy
    everything: int
    """The mask of all NUMA nodes."""
    closeness: Closeness | None = None
    """What decides between equally many nodes, with prefer-closest-numa-nodes."""

    @classmethod
    def create(
        cls,
        policy: str,
        options: Mapping[str, str],
        nodes: Iterable[int],
        distances: Mapping[int, Mapping[int, int]],
        *,
        any_machine: bool = False,
    ) -> Self:
        """Return the manager with these settings, or raise a ConfigError that has all problems.

        With *any_machine* there may be any number of NUMA nodes, and unknown distances count as far.
        """
        nodes = tuple(nodes)
        everything = sum(1 << node for node in nodes)
        if policy == TopologyPolicy.NONE:  # this policy reads no option, so none is wrong
            return cls(TopologyPolicy.NONE, everything)
        values, problems = read_options(options)
        if values.prefer_closest and not all(distances.get(node) for node in nodes) and not any_machine:
            said = "cannot discover NUMA topology: error getting NUMA distances from cadvisor"
            problems.append(Problem(said, f"without distances, leave {TopologyOption.PREFER_CLOSEST} off"))
        if len(nodes) > values.max_nodes and not any_machine:
            said = f"unsupported on machines with more than {values.max_nodes} NUMA Nodes"
            problems.append(Problem(said, f"this one has {len(nodes)}; raise {TopologyOption.MAX_NODES}"))
        if policy not in set(TopologyPolicy):
            problems.append(Problem(f'unknown policy: "{policy}"', f"known: {', '.join(TopologyPolicy)}"))
        if problems:
            raise ConfigError(*problems)
        return cls(TopologyPolicy(policy), everything, Closeness(distances) if values.prefer_closest else None)

    @classmethod
    def for_machine(
        cls, policy: str, options: Mapping[str, str], machine: Topology, *, any_machine: bool = False
    ) -> Self:
        """Return the manager with these settings for *machine*; as `create`."""
        nodes = sorted([*(node.id for node in machine.numa_nodes), *machine.memory_only])
        return cls.create(policy, options, nodes, machine.distances, any_machine=any_machine)

    @property
    def defects(self) -> tuple[tuple[Defect, str], ...]:
        """The kubelet's defects with these settings on this machine; this manager does not have them."""
        nodes = cpus_of(self.everything)
        beyond = self.everything >> len(nodes) << len(nodes)
        if self.closeness is None or self.policy == TopologyPolicy.SINGLE_NUMA_NODE or not beyond:
            return ()
        what = f"distances are looked up at node ids {format_list(beyond)}, on a machine of {len(nodes)} NUMA nodes"
        return ((Defect.SPARSE_NODE_IDS, what),)

    def merge(self, providers: Providers) -> Merged:
        """Return the merged hint of all providers, each a map from resource to hints, and whether it is admitted."""
        policy = self.policy
        if policy is _NONE:
            return Merged(admit=True, hint=Hint(None, preferred=False))
        if policy is _SINGLE_NUMA_NODE:
            hint = merge_single(providers, self.everything)
        else:
            hint = merge_hints(gather(providers), self.everything, self.closeness)
        return Merged(hint.preferred or policy is _BEST_EFFORT, hint)

    def explain(self, providers: Providers) -> MergeReport:
        """Return what `merge` decides, and why."""
        providers = list(providers)
        admit, hint = self.merge(providers)
        if self.policy is _NONE:
            return MergeReport(admit, hint, MergeReason.NOT_ASKED)
        single = self.policy is _SINGLE_NUMA_NODE
        return report(providers, MergeQuestion(self.everything, self.closeness, single=single), hint, admit=admit)
