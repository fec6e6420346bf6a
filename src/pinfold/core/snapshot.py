"""Snapshot: the one read model of a node, as plain data that every view renders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.cpuset import EMPTY
from pinfold.core.policies.static import StaticPolicy

if TYPE_CHECKING:
    from pinfold.core.policies.base import Policy
    from pinfold.core.state import State
    from pinfold.core.topology import Topology


def pools(policy: Policy, state: State, topology: Topology) -> dict[str, str]:
    """Return the CPUs of each pool, as the KEP names them."""
    shared = state.shared or topology.online  # policy none keeps no account
    reserved = policy.reserved if isinstance(policy, StaticPolicy) else EMPTY
    return {
        "online": str(topology.online),
        "shared": str(shared),
        "reserved": str(reserved),
        "assignable": str(state.shared - reserved),
        "exclusive": str(state.exclusive),
    }
