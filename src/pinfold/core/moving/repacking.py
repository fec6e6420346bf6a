"""Repacking under the policy `dynamic`: which containers may move, where to, and the State after a move."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.moving.running import RunningRules, changed_pool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pinfold.core.moving.repack import Movable, Move, RepackPlan
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.policies.options import Options
    from pinfold.core.policies.static import StaticPolicy
    from pinfold.core.state import State

_SPREADING: Final = ("distribute-cpus-across-numa", "distribute-cpus-across-cores")


class Pace(NamedTuple):
    """How fast running containers may be moved."""

    moves: int = 6
    """The most moves in a minute; 0: none."""
    dwell: float = 60.0
    """How many seconds a container stays at least where it was moved to."""
    grace: float = 2.0
    """How many seconds a container has to say that it is ready for an announced change."""


class Consent(NamedTuple):
    """What the pod of a container that may move says about it."""

    memory_follows: bool = False
    """Whether its memory follows it to other NUMA nodes."""
    annotations: Mapping[str, str] = MappingProxyType({})
    """They ask for options."""


def pinned_by(options: Options) -> str:
    """Return the option under which no container moves, because it spreads CPUs; empty if there is none."""
    return next((name for name in _SPREADING if options.offers(name)), "")


class Repacking(NamedTuple):
    """Plans and makes moves under one policy."""

    policy: StaticPolicy

    def plan(self, state: State, may_move: Mapping[ContainerRef, Consent], budget: int) -> RepackPlan:
        """Return at most *budget* moves of the containers that may move.

        A container whose memory does not follow it stays on the NUMA nodes that it is on: away from them it would be
        slower, not faster.
        """
        from pinfold.core.moving.repack import Packer  # noqa: PLC0415 - few nodes move containers

        packer = Packer(self.policy.machine.topology)
        # An option that spreads CPUs wants what a repack would undo.
        movable = [] if pinned_by(self.policy.options) else list(self._movable(state, may_move))
        plan = packer.plan(state.shared - self.policy.reserved, movable, budget)
        return plan._replace(moves=tuple(self._owned(state, move) for move in plan.moves))

    def _movable(self, state: State, may_move: Mapping[ContainerRef, Consent]) -> Iterator[Movable]:
        from pinfold.core.moving.repack import Movable  # noqa: PLC0415 - few nodes move containers

        machine = self.policy.machine
        runnings: dict[Options, RunningRules] = {}
        for container, cpus in state.flat():
            others = [own for other, own in state.of_pod(container.pod) if other != container]
            if container not in may_move or container.pod in state.pods or any(own & cpus for own in others):
                continue
            consent = may_move[container]
            placing = self.policy.placing(consent.annotations)
            running = runnings.setdefault(placing.options, RunningRules(placing))
            area = running.area(state, cpus)
            if area is None:
                continue
            nodes = machine.numa_nodes.masks
            own = machine.online if consent.memory_follows else sum(node for node in nodes if node & cpus.mask)
            occupied = placing.occupied(cpus)
            yield Movable(container, occupied, CPUSet(own & area), running.whole_cores, running.most_caches(len(cpus)))

    def _owned(self, state: State, move: Move) -> Move:
        """Return a move of whole cores as one of the CPUs that the container has of them: the siblings stay idle."""
        held = state.cpus(*move.container)
        if held is None or held == move.before:
            return move
        cores = self.policy.machine.topology.cores
        new = sum(core.mask & -core.mask for core in cores if core.mask & move.after.mask and not core.cpus & held)
        own = held & move.after | CPUSet(new)
        return move._replace(before=held, after=own, idle=move.after - own)

    def is_possible(self, state: State, move: Move) -> bool:
        """Whether a move can be made: the container is where it was, and the CPUs are free."""
        free = state.shared - self.policy.reserved
        new = (move.after | move.idle) - self.policy.pools.with_idle(state, move.before)
        return state.cpus(*move.container) == move.before and new <= free

    def moved(self, state: State, move: Move) -> State:
        """Return the State after a move; a baseline goes along, as large as it was."""
        pod, name = move.container
        mine = {**state.assignments[pod], name: move.after}
        shared = changed_pool(self.policy.pools, state, move.before, move.after | move.idle)
        after = state.taken(move.after)._replace(shared=shared, assignments={**state.assignments, pod: mine})
        base = state.baselines.get(pod, {}).get(name)
        if base is None:
            return after
        part = self.policy.resizing.part(move.after, base & move.after, len(base))
        return after._replace(baselines={**state.baselines, pod: {**state.baselines[pod], name: part}})
