"""What-if changes: pods left out, with more or fewer replicas, or with other sizes. Lists of pods in and out."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pinfold.core.explaining.advice import resized
from pinfold.core.pods.pod import PodUID
from pinfold.errors import PinfoldError, excerpt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pinfold.core.pods.pod import Pod

_NUMBERED: Final = re.compile(r"(.+)-([0-9]{1,9})")
_SHOWN: Final = 5


class UnknownPodName(PinfoldError):  # noqa: N818 - the fact
    """A what-if change names a pod or container that does not exist."""

    def __init__(self, what: str, name: str, there: Sequence[str]) -> None:
        known = ", ".join(there[:_SHOWN]) + (", …" if len(there) > _SHOWN else "")
        super().__init__(f"no {what} {excerpt(name)}; there {'are ' + known if there else 'is none'}")


@dataclass(frozen=True, slots=True)
class Scenario:
    """The pods that run, leave and arrive, in order."""

    arriving: tuple[Pod, ...]
    running: tuple[Pod, ...] = ()
    gone: tuple[PodUID, ...] = ()
    others: tuple[PodUID, ...] = ()
    """Pods in the State of which only the UID is known."""

    def without(self, name: str) -> Scenario:
        """Return the scenario without a pod: it leaves, or never arrives. A workload's name means all of its pods."""
        if name in self.others:
            return replace(self, gone=(*self.gone, PodUID(name)))
        leaving = {pod.uid for pod in self._called(name)}
        return self._changed(lambda pod: () if pod.uid in leaving else (pod,))

    def resize(self, name: str, container: str, cpus: int) -> Scenario:
        """Return the scenario with *cpus* CPUs for a container; a running one leaves, and arrives again first."""
        pods = {pod.uid: pod for pod in self._called(name)}
        names = [own.name for pod in pods.values() for own in pod.all_containers]
        if container not in names:
            raise UnknownPodName(f"container of pod {excerpt(name)} called", container, sorted(set(names)))
        return self._changed(lambda pod: (resized(pod, container, cpus),) if pod.uid in pods else (pod,))

    def replicas(self, name: str, count: int) -> Scenario:
        """Return the scenario with *count* pods like *name*: further ones arrive last, the last ones leave first."""
        pods = self._called(name)
        kept = {pod.uid for pod in pods[:count]}
        fewer = self._changed(lambda pod: (pod,) if pod.uid in kept or pod not in pods else ())
        taken = {(pod.namespace, pod.name) for pod in (*self.running, *self.arriving)}
        base = _base(pods[0], name)
        added: list[Pod] = []
        number = 0
        while len(pods) + len(added) < count:
            copy = f"{base}-{number}"
            number += 1
            if (pods[0].namespace, copy) not in taken:
                added.append(replace(pods[0], name=copy, uid=PodUID(f"{pods[0].uid}+{copy}")))
        return replace(fewer, arriving=(*fewer.arriving, *added))

    def _called(self, name: str) -> list[Pod]:
        """Return the pods of that name, NAMESPACE/NAME or UID, or those numbered NAME-0, NAME-1 and so on."""
        pods = (*self.running, *self.arriving)
        namespace, _, bare = name.rpartition("/")
        mine = [pod for pod in pods if not namespace or pod.namespace == namespace]
        found = [pod for pod in mine if pod.name == bare] or [pod for pod in mine if _base(pod, bare) == bare]
        found = found or [pod for pod in pods if pod.uid == name]
        if not found:
            raise UnknownPodName("pod", name, sorted({pod.name for pod in pods} | set(self.others)))
        return found

    def _changed(self, change: Callable[[Pod], tuple[Pod, ...]]) -> Scenario:
        """Return the scenario with every pod changed; a running pod that changes leaves and arrives again."""
        running: list[Pod] = []
        again: list[Pod] = []
        gone = list(self.gone)
        for pod in self.running:
            new = change(pod)
            if new == (pod,):
                running.append(pod)
            else:
                gone.append(pod.uid)
                again += new
        arriving = [new for pod in self.arriving for new in change(pod)]
        return replace(self, arriving=(*again, *arriving), running=tuple(running), gone=tuple(gone))


def _base(pod: Pod, name: str) -> str:
    """Return the workload's name if the pod is a numbered replica; else the pod's own name."""
    match = _NUMBERED.fullmatch(pod.name)
    return match[1] if match is not None and pod.name != name.rpartition("/")[2] else pod.name
