"""Turns a State that no longer fits into one that does: running containers keep their CPUs where possible.

Containers that cannot keep theirs are admitted again, like any pod.
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
    """The new State, the Assignments that could not be kept, and the answers for their containers."""

    state: State
    lost: Mapping[ContainerRef, CPUSet]
    """The CPUs that containers had and cannot keep."""
    refusals: Mapping[PodUID, AdmissionError]
    """Why pods with lost CPUs got no others; pods that are missing here got some, or are unknown."""


def carry_over(
    admitter: Admitter,
    state: State,
    pods: Mapping[PodUID, Pod],
    others: Callable[[Pod], Sequence[Resource]] = _no_hints,
) -> Recovered:
    """Return the State under new rules: unchanged if it fits, else as much of it as can be recovered."""
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
    """Return a sound State: the Assignments of *found* that can stay, and new CPUs for containers that lost theirs.

    Only known *pods* can be admitted again; containers of unknown pods that lost their CPUs use the shared pool.
    *others* returns the hints of a pod's other resources.
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
