"""A Pod as the Kubernetes document that `manifest` reads back, for files and the control socket.

`document_pod` reads only documents of `pod_document`, and checks nothing: for files with a checksum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pinfold.core.pods.pod import Amounts, Container, Identity, Pod, PodUID, Resources

if TYPE_CHECKING:
    from collections.abc import Mapping

    Made = Mapping[str, Any]
    """Any: JSON that we have written ourselves."""

_UNSET: Final = Resources()


def pod_document(pod: Pod) -> dict[str, object]:
    """Return the pod as a JSON-ready Kubernetes document.

    >>> from pinfold.core.pods.pod import Container, Pod, PodUID
    >>> pod_document(Pod(PodUID("1"), "web", containers=(Container("app", command=("sleep", "1")),)))["spec"]
    {'restartPolicy': 'Always', 'containers': [{'name': 'app', 'command': ['sleep', '1']}]}
    """
    metadata: dict[str, object] = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    if pod.annotations:
        metadata["annotations"] = dict(pod.annotations)
    if pod.labels:
        metadata["labels"] = dict(pod.labels)
    spec: dict[str, object] = {"restartPolicy": pod.restart_policy}
    if pod.init:
        spec["initContainers"] = [_container(container) for container in pod.init]
    groups = {group: None for container in pod.all_containers for group in container.identity.groups}
    if groups:
        spec["securityContext"] = {"supplementalGroups": list(groups)}
    spec["containers"] = [_container(container) for container in pod.containers]
    if overhead := _amounts(pod.overhead):
        spec["overhead"] = overhead
    if pod.resources is not None:
        spec["resources"] = _resources(pod.resources)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(container: Container) -> dict[str, object]:
    document: dict[str, object] = {"name": container.name}
    resources = _resources(container.resources)
    if container.extras:
        extras = {name: str(amount) for name, amount in container.extras}
        resources["limits"] = {**_amounts(container.resources.limits), **extras}
    if resources:
        document["resources"] = resources
    if container.sidecar:
        document["restartPolicy"] = "Always"
    if container.command:
        document["command"] = list(container.command)
    if container.args:
        document["args"] = list(container.args)
    if container.env:
        document["env"] = [{"name": name, "value": value} for name, value in container.env]
    if container.working_dir:
        document["workingDir"] = container.working_dir
    if identity := _identity(container.identity):
        document["securityContext"] = identity
    return document


def _identity(identity: Identity) -> dict[str, object]:
    ids = {"runAsUser": identity.user, "runAsGroup": identity.group}
    return {name: number for name, number in ids.items() if number is not None}


def _resources(resources: Resources) -> dict[str, object]:
    both = {"requests": _amounts(resources.requests), "limits": _amounts(resources.limits)}
    return {name: amounts for name, amounts in both.items() if amounts}


def _amounts(amounts: Amounts) -> dict[str, str]:
    document = {}
    if amounts.cpu is not None:
        document["cpu"] = f"{amounts.cpu}m"
    if amounts.memory is not None:
        document["memory"] = str(amounts.memory)
    return document


def document_pod(document: Made) -> Pod:
    """Return the pod of which `pod_document` has made this document, in a tenth of the time that `manifest` needs.

    >>> pod = Pod(PodUID("1"), "web", containers=(Container("app", Resources(limits=Amounts(cpu=500))),))
    >>> document_pod(pod_document(pod)) == pod
    True
    """
    metadata, spec = document["metadata"], document["spec"]
    groups = tuple(spec.get("securityContext", {}).get("supplementalGroups", ()))
    resources = spec.get("resources")
    return Pod(
        uid=PodUID(metadata["uid"]),
        name=metadata["name"],
        namespace=metadata["namespace"],
        init=tuple(_made_container(container, groups) for container in spec.get("initContainers", ())),
        containers=tuple(_made_container(container, groups) for container in spec["containers"]),
        resources=None if resources is None else _made_resources(resources),
        overhead=_made_amounts(spec.get("overhead")),
        restart_policy=spec["restartPolicy"],
        annotations=metadata.get("annotations", {}),
        labels=metadata.get("labels", {}),
    )


def _made_container(document: Made, groups: tuple[int, ...]) -> Container:
    resources, identity = document.get("resources"), document.get("securityContext", {})
    limits = {} if resources is None else resources.get("limits", {})
    return Container(
        name=document["name"],
        resources=_UNSET if resources is None else _made_resources(resources),
        sidecar="restartPolicy" in document,
        command=tuple(document.get("command", ())),
        args=tuple(document.get("args", ())),
        env=tuple((variable["name"], variable["value"]) for variable in document.get("env", ())),
        working_dir=document.get("workingDir", ""),
        identity=Identity(identity.get("runAsUser"), identity.get("runAsGroup"), groups),
        extras=tuple((name, int(amount)) for name, amount in limits.items() if name not in {"cpu", "memory"}),
    )


def _made_resources(document: Made) -> Resources:
    return Resources(_made_amounts(document.get("requests")), _made_amounts(document.get("limits")))


def _made_amounts(document: Made | None) -> Amounts:
    if not document:
        return _UNSET.limits
    cpu, memory = document.get("cpu"), document.get("memory")
    return Amounts(None if cpu is None else int(cpu.removesuffix("m")), None if memory is None else int(memory))
