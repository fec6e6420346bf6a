"""Turns a State that no longer fits into one that does: running containers keep their CPUs where possible.

Containers that cannot keep theirs are admitted again, like any pod.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pinfold.core.admission import NOTHING_ASKED, Asked
from pinfold.core.moving.mending import Mended, give_back, mend
from pinfold.core.policies.base import Kept
from pinfold.core.topologymanager.others import NO_OTHERS
from pinfold.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pinfold.core.admission import Admitter
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.moving.resizing import NotResized
    from pinfold.core.pods.pod import ContainerRef, Pod, PodUID
    from pinfold.core.policies.base import Policy
    from pinfold.core.state import State
    from pinfold.core.topologymanager.others import OtherHints
    from pinfold.errors import AdmissionError

    HintsOf = Callable[[Pod], OtherHints]
    """Returns the hints of a pod's other resources."""


def _no_hints(_pod: Pod) -> OtherHints:
    return NO_OTHERS


class Recovered(NamedTuple):
    """The new State, the Assignments that could not be kept, and the answers for their containers."""

    state: State
    lost: Mapping[ContainerRef, CPUSet]
    """The CPUs that containers had and cannot keep."""
    refusals: Mapping[PodUID, AdmissionError]
    """Why pods with lost CPUs got no others; pods that are missing here got some, or are unknown."""
    changed: Mapping[ContainerRef, CPUSet] = MappingProxyType({})
    """The new CPUs of containers that kept a part of theirs, or got some back (policy `dynamic`)."""
    degraded: Mapping[ContainerRef, NotResized] = MappingProxyType({})
    """Why containers have fewer CPUs than before (policy `dynamic`)."""


class Fate(NamedTuple):
    """What other rules mean for one container with CPUs of its own."""

    container: ContainerRef
    before: CPUSet
    after: CPUSet | None
    """None: it would share."""
    why: str = ""
    """Why it would share."""

    @property
    def stays(self) -> bool:
        """Whether it keeps exactly its CPUs."""
        return self.after == self.before


def fates(before: State, recovered: Recovered) -> list[Fate]:
    """Return which containers keep their CPUs, which get others, and which have to share."""
    return [
        Fate(ref, cpus, after, "" if after is not None else str(recovered.refusals.get(ref.pod, "")))
        for ref, cpus in before.flat()
        for after in [recovered.state.cpus(*ref)]
    ]


def carry_over(
    admitter: Admitter,
    state: State,
    pods: Mapping[PodUID, Pod],
    others: HintsOf = _no_hints,
) -> Recovered:
    """Return the State under new rules: unchanged if it fits, else as much of it as can be recovered."""
    try:
        return Recovered(admitter.policy.start(state), {}, {})
    except StateError:
        return recover(admitter, state, pods, others)


def keep_surest(policy: Policy, found: State, sure: Collection[ContainerRef]) -> Kept:
    """Return what can be kept of *found*; a container that is *sure* is given up for none that is not."""
    kept = policy.keep(found)
    if kept.lost.keys().isdisjoint(sure):
        return kept
    chosen = {ref for ref, _ in found.flat() if ref in sure or ref.pod in found.pods}
    kept = policy.keep(_only(found, chosen))
    for ref, _ in found.flat():
        if ref not in chosen:
            trial = policy.keep(_only(found, {*chosen, ref}))
            if trial.lost.keys() == kept.lost.keys():
                chosen.add(ref)
                kept = trial
    return Kept(kept.state, {ref: cpus for ref, cpus in found.flat() if kept.state.cpus(*ref) is None})


def _only(found: State, chosen: Collection[ContainerRef]) -> State:
    """Return *found* without the Assignments of other containers."""
    assignments: dict[PodUID, dict[str, CPUSet]] = {}
    for ref, cpus in found.flat():
        if ref in chosen:
            assignments.setdefault(ref.pod, {})[ref.name] = cpus
    return found._replace(assignments=assignments)


def recover(
    admitter: Admitter,
    found: State,
    pods: Mapping[PodUID, Pod],
    others: HintsOf = _no_hints,
) -> Recovered:
    """Return a sound State: the Assignments of *found* that can stay, and new CPUs for containers that lost theirs.

    Only known *pods* can be admitted again; containers of unknown pods that lost their CPUs use the shared pool.
    *others* returns the hints of a pod's other resources.
    """
    state, gone = admitter.policy.keep(found)
    if admitter.policy.repacking is None:
        return _admit_again(admitter, Recovered(state, gone, {}), pods, others)
    state, back = give_back(admitter.policy, state, pods)
    mended = _mend(admitter, Recovered(state, {}, {}, back), found, gone, pods, others)
    return _admit_again(admitter, mended, pods, others)


def _mend(  # noqa: PLR0913, PLR0917 - all that a new admission depends on
    admitter: Admitter,
    start: Recovered,
    found: State,
    gone: Mapping[ContainerRef, CPUSet],
    pods: Mapping[PodUID, Pod],
    others: HintsOf,
) -> Recovered:
    """Return the State in which containers keep their remaining CPUs, and the containers for which that failed.

    A container whose missing CPUs cannot be replaced is admitted anew if that gives it all its CPUs, on other NUMA
    nodes for example; else it is degraded.
    """
    state, lost = start.state, {}
    changed, degraded = dict(start.changed), {}
    for ref, cpus in gone.items():
        pod = pods.get(ref.pod)
        asked = NOTHING_ASKED if pod is None else Asked(others(pod), pod.annotations)
        mended = mend(admitter, state, found, ref, asked)
        if mended is not None and mended.refusal is not None and pod is not None:
            anew = admitter.admit(state, pod, due=[ref.name], others=asked.others)
            mended = Mended(anew.state) if anew.refusal is None else mended
        if mended is None:
            lost[ref] = cpus
            continue
        state = mended.state
        changed[ref] = state.assignments[ref.pod][ref.name]
        if mended.refusal is not None:
            degraded[ref] = mended.refusal
    return Recovered(state, lost, {}, changed, degraded)


def _admit_again(admitter: Admitter, start: Recovered, pods: Mapping[PodUID, Pod], others: HintsOf) -> Recovered:
    """Return the State in which containers that lost all their CPUs have others, as far as they are admitted."""
    state, lost = start.state, start.lost
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
    return start._replace(state=state, refusals=refusals)
