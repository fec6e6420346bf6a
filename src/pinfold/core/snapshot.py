"""Snapshot: the one read model of a node, as plain data that every view renders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.policies.static import StaticPolicy

if TYPE_CHECKING:
    from pinfold.core.policies.base import Policy
    from pinfold.core.state import State
    from pinfold.core.topology import Topology


def pools(policy: Policy, state: State, topology: Topology) -> dict[str, str]:
    """Return the CPUs of each pool, as the KEP names them."""
    reserved = policy.reserved if isinstance(policy, StaticPolicy) else topology.online - topology.online
    return {
        "online": str(topology.online),
        "shared": str(state.shared),
        "reserved": str(reserved),
        "assignable": str(state.shared - reserved),
        "exclusive": str(state.exclusive),
    }
