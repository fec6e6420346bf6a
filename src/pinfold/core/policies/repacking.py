"""Repacking under the policy `dynamic`: which containers may move, where to, and the State after a move."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.repack import Movable, Packer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.policies.static import StaticPolicy
    from pinfold.core.repack import Move, RepackPlan
    from pinfold.core.state import State


class Repacking(NamedTuple):
    """Plans and makes moves under one policy."""

    policy: StaticPolicy

    def plan(self, state: State, may_move: Mapping[ContainerRef, bool], budget: int) -> RepackPlan:
        """Return at most *budget* moves of the containers that may move.

        The value of a container in *may_move* says whether its memory follows it. Without that it stays on the NUMA
        nodes that it is on: away from them it would be slower, not faster.
        """
        arrangement = self.policy.arrangement
        packer = Packer(self.policy.machine.topology, whole_cores=self.policy.options.full_pcpus_only)
        # An option that spreads CPUs wants what a repack would undo.
        spread = arrangement.spread or arrangement.group
        movable = [] if spread else list(self._movable(state, may_move))
        return packer.plan(state.shared - self.policy.reserved, movable, budget)

    def _movable(self, state: State, may_move: Mapping[ContainerRef, bool]) -> Iterator[Movable]:
        machine, whole_cores = self.policy.machine, self.policy.options.full_pcpus_only
        for container, cpus in state.flat():
            others = [own for other, own in state.of_pod(container.pod) if other != container]
            if container not in may_move or container.pod in state.pods or any(own & cpus for own in others):
                continue
            if whole_cores and machine.topology.siblings(cpus) != cpus:
                continue
            nodes = machine.numa_nodes.masks
            own = machine.online if may_move[container] else sum(node for node in nodes if node & cpus.mask)
            yield Movable(container, cpus, CPUSet(own) & self.policy.allocatable)

    def moved(self, state: State, move: Move) -> State:
        """Return the State after a move; a baseline goes along, as large as it was."""
        pod, name = move.container
        mine = {**state.assignments[pod], name: move.after}
        after = state._replace(
            shared=(state.shared | move.before) - move.after, assignments={**state.assignments, pod: mine}
        )
        base = state.baselines.get(pod, {}).get(name)
        if base is None:
            return after
        part = self.policy.resizing.part(move.after, base & move.after, len(base))
        return after._replace(baselines={**state.baselines, pod: {**state.baselines[pod], name: part}})
