"""PodNames: the names of pods by their UIDs; a State has only UIDs, and events name pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.events.about import PodName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef, Pod, PodUID


class PodNames:
    """The names of the pods on the node, and of those that an earlier daemon has left in the State."""

    def __init__(self, recall: Callable[[], Mapping[PodUID, PodName]] = dict) -> None:
        """*recall* returns the names that an earlier daemon knew; it is called when one is needed."""
        self._here: dict[PodUID, PodName] = {}
        self._recall = recall
        self._earlier: Mapping[PodUID, PodName] | None = None

    def __contains__(self, uid: object) -> bool:
        return uid in self._here or uid in (self._earlier or ())

    def __getitem__(self, uid: PodUID) -> PodName:
        """Return a pod's name, or its UID if no daemon has known its name."""
        if uid in self._here:
            return self._here[uid]
        if self._earlier is None:
            self._earlier = self._recall()
        return self._earlier.get(uid) or PodName.of_uid(uid)

    def know(self, pods: Iterable[Pod]) -> list[PodUID]:
        """Remember the names of pods; return the pods whose names are new."""
        new = []
        for pod in pods:
            name = self._here.get(pod.uid)
            if name is None or name.name != pod.name or name.namespace != pod.namespace:
                self._here[pod.uid] = PodName.of(pod)
                new.append(pod.uid)
        return new

    def forget(self, uid: PodUID) -> None:
        """Forget a pod that is gone."""
        self._here.pop(uid, None)

    def shown(self, *others: PodUID) -> dict[PodUID, str]:
        """Return NAMESPACE/NAME of the pods on the node, and of *others*."""
        return {uid: shown(self[uid]) for uid in (*self._here, *others)}


def recalled(told: Mapping[str, CPUSet], assigned: Mapping[ContainerRef, CPUSet]) -> dict[PodUID, PodName]:
    """Return the names of pods with these CPUs, from the CPUs that an earlier daemon *told* by NAMESPACE/POD/CONTAINER.

    >>> from pinfold.core.machine.cpuset import CPUSet
    >>> from pinfold.core.pods.pod import ContainerRef, PodUID
    >>> recalled({"default/db/app": CPUSet.of(1)}, {ContainerRef(PodUID("u1"), "app"): CPUSet.of(1)})["u1"].name
    'db'
    """
    owners = {(owner.rpartition("/")[2], cpus): owner for owner, cpus in told.items() if owner.count("/") > 1}
    found = {}
    for ref, cpus in assigned.items():
        if owner := owners.get((ref.name, cpus)):
            namespace, name, _ = owner.split("/", 2)
            found[ref.pod] = PodName(namespace, name, ref.pod)
    return found


def shown(name: PodName) -> str:
    """Return NAMESPACE/NAME; a pod whose name is not known has none, and its UID is shown."""
    return f"{name.namespace}/{name.name}" if name.namespace else name.name
