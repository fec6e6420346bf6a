"""A recorded trace of pods that came and went, lived through once more on a node of any kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.allocators.order import Fidelity
from pinfold.core.planner import EMPTY_NODE, Plan, Walk, start

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pinfold.core.config import Config
    from pinfold.core.planner import Outcome, Running
    from pinfold.core.pods import Pod, PodUID
    from pinfold.core.topology import Topology


KEPT_WHOLE: Final = 500
"""So many pods of a trace keep the steps that led to their CPUs; of the later ones only the CPUs are kept."""


class Event(NamedTuple):
    """A pod comes, or the one with a UID goes."""

    time: float
    """In seconds; only the order and the distances matter."""
    pod: Pod | PodUID

    @property
    def comes(self) -> bool:
        """Whether the pod comes."""
        return not isinstance(self.pod, str)


class Moment(NamedTuple):
    """The node after an event."""

    time: float
    pods: int
    """How many are there."""
    exclusive: int
    """How many CPUs are exclusive."""
    refused: int
    """How many pods have been refused up to now."""


class Replay(NamedTuple):
    """What a node made of a trace: a plan of all that came, and the moments on the way."""

    plan: Plan
    times: tuple[float, ...]
    """When each pod of the plan came."""
    moments: tuple[Moment, ...]

    @property
    def peak(self) -> Moment | None:
        """The first moment at which most CPUs were exclusive; None of an empty trace."""
        return max(self.moments, key=lambda moment: moment.exclusive, default=None)


def replay(events: Iterable[Event], topology: Topology, config: Config, running: Running = EMPTY_NODE) -> Replay:
    """Return what the node would have made of *events*."""
    admitter = config.build(topology)
    before = start(admitter, topology, running.state)
    walk = Walk(admitter, before)
    exact = config.fidelity is Fidelity.KUBELET
    mine = before.shared.mask | before.exclusive.mask
    there: set[PodUID] = set()
    outcomes: list[Outcome] = []
    times: list[float] = []
    moments: list[Moment] = []
    refused = 0
    for time, pod in events:
        if isinstance(pod, str):
            walk.remove(pod)
            there.discard(pod)
        else:
            outcome = walk.admit(pod)
            times.append(time)
            if outcome.refusal is None:
                there.add(pod.uid)
            else:
                refused += 1
            # A trace can be long: were every State kept, a week would not fit into memory.
            outcomes.append(outcome if len(outcomes) < KEPT_WHOLE else outcome.brief(note=exact))
        exclusive = (mine & ~walk.settle().shared.mask).bit_count()
        moments.append(Moment(time, len(there), exclusive, refused))
    plan = Plan(topology, config, admitter, before, tuple(outcomes), walk.settle())
    return Replay(plan, tuple(times), tuple(moments))
