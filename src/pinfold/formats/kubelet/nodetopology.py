"""A node as a NodeResourceTopology object (topology.node.k8s.io/v1alpha2), which schedulers read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.topologymanager.options import TopologyPolicy

if TYPE_CHECKING:
    from pinfold.core.admission import Admitter
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.machine.topology import Topology
    from pinfold.core.state import State

API_VERSION: Final = "topology.node.k8s.io/v1alpha2"
_LEGACY: Final = {
    TopologyPolicy.NONE: "None",
    TopologyPolicy.BEST_EFFORT: "BestEffort",
    TopologyPolicy.RESTRICTED: "Restricted",
    TopologyPolicy.SINGLE_NUMA_NODE: "SingleNUMANode",
}
"""What older schedulers read: these names, with the scope behind all but the first."""


def node_topology(name: str, admitter: Admitter, topology: Topology, state: State) -> dict[str, object]:
    """Return the object of a node: a zone for each NUMA node, with its distances and its CPUs.

    Available are the CPUs that can still become exclusive.
    """
    policy, scope = admitter.manager.policy, admitter.scope
    legacy = _LEGACY[policy] if policy is TopologyPolicy.NONE else f"{_LEGACY[policy]}{scope.capitalize()}Level"
    reserved, free = admitter.policy.reserved, admitter.policy.pools.assignable(state)
    return {
        "apiVersion": API_VERSION,
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "attributes": _named(topologyManagerPolicy=str(policy), topologyManagerScope=str(scope)),
        "topologyPolicies": [legacy],
        "zones": [
            {
                "name": f"node-{node.id}",
                "type": "Node",
                "costs": _named(**{f"node-{to}": cost for to, cost in topology.distances.get(node.id, {}).items()}),
                "resources": [_cpus(node.cpus, node.cpus - reserved, free & node.cpus)],
            }
            for node in topology.numa_nodes
        ],
    }


def _named(**values: object) -> list[dict[str, object]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _cpus(capacity: CPUSet, allocatable: CPUSet, available: CPUSet) -> dict[str, str]:
    amounts = {"capacity": capacity, "allocatable": allocatable, "available": available}
    return {"name": "cpu"} | {name: str(len(cpus)) for name, cpus in amounts.items()}
