"""The recorded cases as values: what a case writes in short, built into what `pinfold.core` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources

if TYPE_CHECKING:
    from collections.abc import Sequence


class VectorAmounts(TypedDict, total=False):
    cpu: int  # milli CPUs
    mem: int  # MiB


class VectorResources(TypedDict):
    req: NotRequired[VectorAmounts]
    lim: NotRequired[VectorAmounts]


class VectorContainer(VectorResources):
    name: str
    sidecar: NotRequired[bool]


class VectorPod(TypedDict):
    uid: str
    init: NotRequired[Sequence[VectorContainer]]
    containers: Sequence[VectorContainer]
    resources: NotRequired[VectorResources]


def pod_from_vector(data: VectorPod) -> Pod:
    """Return the pod of a case, with nothing defaulted; it is named after its UID."""
    return Pod(
        uid=PodUID(data["uid"]),
        name=data["uid"],
        init=tuple(_container(container) for container in data.get("init", ())),
        containers=tuple(_container(container) for container in data["containers"]),
        resources=_resources(data["resources"]) if "resources" in data else None,
    )


def _container(data: VectorContainer) -> Container:
    return Container(data["name"], _resources(data), sidecar=data.get("sidecar", False))


def _resources(data: VectorResources) -> Resources:
    return Resources(_amounts(data.get("req", {})), _amounts(data.get("lim", {})))


def _amounts(data: VectorAmounts) -> Amounts:
    return Amounts(data.get("cpu"), data["mem"] << 20 if "mem" in data else None)
