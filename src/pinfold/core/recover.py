"""A State that does not fit any more, turned into one that does: running containers keep their CPUs where they may.

Containers that cannot keep theirs are let in again, through the same admission as any pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pinfold.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pinfold.core.admission import Admitter, Resource
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef, Pod, PodUID
    from pinfold.core.state import State
    from pinfold.errors import AdmissionError

    OtherHints = Callable[[Pod], Sequence[Resource]]
    """Returns the hints of a pod's other resources."""


def _no_hints(_pod: Pod) -> Sequence[Resource]:
    return ()


class Recovered(NamedTuple):
    """The State to go on with, which Assignments could not be kept, and what became of their containers."""

    state: State
    lost: Mapping[ContainerRef, CPUSet]
    """The CPUs that containers had and cannot keep."""
    refusals: Mapping[PodUID, AdmissionError]
    """Why pods with lost CPUs got no others; those that are missing here got some, or are not known."""


def carry_over(
    admitter: Admitter,
    state: State,
    pods: Mapping[PodUID, Pod],
    others: Callable[[Pod], Sequence[Resource]] = _no_hints,
) -> Recovered:
    """Return how a State goes on under other rules: as it is if it fits, else as much of it as can be recovered."""
    try:
        return Recovered(admitter.policy.start(state), {}, {})
    except StateError:
        return recover(admitter, state, pods, others)


def recover(
    admitter: Admitter,
    found: State,
    pods: Mapping[PodUID, Pod],
    others: Callable[[Pod], Sequence[Resource]] = _no_hints,
) -> Recovered:
    """Return a sound State: what can be kept of *found*, and new CPUs for the containers that lost theirs.

    Only *pods* that are known can be let in again; of an unknown one, the containers that lost their CPUs share.
    *others* tells the hints of a pod's other resources.
    """
    state, lost = admitter.policy.keep(found)
    refusals: dict[PodUID, AdmissionError] = {}
    for uid in dict.fromkeys(ref.pod for ref in lost):
        pod = pods.get(uid)
        if pod is None:
            continue
        due = [ref.name for ref in lost if ref.pod == uid]
        admission = admitter.admit(state, pod, due=due, others=others(pod))
        if admission.refusal is None:
            state = admission.state
        else:
            refusals[uid] = admission.refusal
    return Recovered(state, lost, refusals)
