"""The spec of a pod to a Pod: containers and resources, with the API's defaults and the API server's checks.

Reads the fields for CPUs and for running a container as a plain process; ignores every other field.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pinfold.core.pods.pod import AS_THE_DAEMON, Amounts, Container, Identity, Pod, PodUID, Resources, peak_requests
from pinfold.core.pods.quantity import Quantity
from pinfold.errors import ParseError, excerpt
from pinfold.formats.number import Number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pinfold.formats.fields import Field

_NOTHING: Final = Resources()
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_LABEL_FORM: Final = re.compile(_LABEL)
_SUBDOMAIN_FORM: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_RESOURCE_FORM: Final = re.compile(r"cpu|memory|ephemeral-storage|hugepages-.+|.+/.+", re.DOTALL)
_RESOURCES: Final = "cpu, memory, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME"
_DECIMAL_FORM: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)?(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
_RULES: Final = {
    "cpu": "a CPU amount is 0 or more, e.g. 500m or 2",
    "memory": "a memory amount is 0 or more, e.g. 64Mi or 1Gi",
}


def read_pod(field: Field, name: str, namespace: str) -> Pod:
    """Return the pod of *field*, a Pod or a template, under this name; its UID is still empty."""
    metadata = field.mapping("metadata")
    spec = field.mapping("spec")
    init, apps = spec.items("initContainers"), spec.items("containers")
    if not apps and spec.get("containers") in (None, []):
        spec.child("containers").refuse("missing; a pod has at least one container")
    pod = Pod(
        uid=PodUID(""),
        name=name,
        namespace=namespace,
        init=tuple(_read_container(item, spec, init=True) for item in init),
        containers=tuple(_read_container(item, spec, init=False) for item in apps),
        overhead=_read_amounts(spec, "overhead"),
        restart_policy=_read_restart_policy(spec, "Always"),
        annotations=metadata.pairs("annotations"),
        labels=metadata.pairs("labels"),
        owner=_read_owner(metadata),
    )
    _check_unique(init + apps)
    return pod if spec.get("resources") is None else _with_pod_level_resources(pod, spec)


def read_label(field: Field) -> str:
    """Return the name of a namespace or container: a DNS label."""
    return _read_name(field, _LABEL_FORM, 63, '"-"')


def read_subdomain(field: Field) -> str:
    """Return the name of an object: a DNS subdomain."""
    return _read_name(field, _SUBDOMAIN_FORM, 253, '"-" or "."')


def is_subdomain(name: str) -> bool:
    """Whether an object can have this name."""
    return _SUBDOMAIN_FORM.fullmatch(name) is not None


def _read_owner(metadata: Field) -> str:
    owners = [owner for owner in metadata.items("ownerReferences") if owner.get("controller") is True]
    return "/".join((owners[0].text("kind"), owners[0].text("name"))) if owners else ""


def _read_name(field: Field, form: re.Pattern[str], longest: int, between: str) -> str:
    name = field.as_text("a name")
    if isinstance(field.value, str) and (len(name) > longest or not form.fullmatch(name)):
        allowed = f"at most {longest} lower-case letters and digits, with {between} between them"
        field.refuse(f"{excerpt(name)} is not a valid name; {allowed}")
    return name


def _check_unique(containers: Sequence[Field]) -> None:
    seen: dict[str, Field] = {}
    for container in containers:
        name = container.get("name")
        if isinstance(name, str) and seen.setdefault(name, container) is not container:
            container.child("name").refuse(f"{excerpt(name)} is already the name of {seen[name].path}")


def _read_container(field: Field, spec: Field, *, init: bool) -> Container:
    if not isinstance(field.value, dict):
        field.expected("a container")
        return Container("")
    restart_policy = _read_restart_policy(field, "")
    return Container(
        name=read_label(field.child("name")),
        resources=_read_resources(field),
        sidecar=init and restart_policy == "Always",
        command=field.texts("command"),
        args=field.texts("args"),
        env=tuple(_read_variable(item) for item in field.items("env") if item.get("valueFrom") is None),
        working_dir=field.text("workingDir"),
        identity=read_identity(field, spec),
        extras=_read_extras(field.child("resources")),
    )


def read_identity(container: Field, spec: Field) -> Identity:
    """Return whom a container runs as: what it says itself comes before what its pod says."""
    if container.get("securityContext") is None and spec.get("securityContext") is None:
        return AS_THE_DAEMON
    own, whole = (field.mapping("securityContext") for field in (container, spec))
    user, group = (_read_id(own, name, _read_id(whole, name)) for name in ("runAsUser", "runAsGroup"))
    texts = [field.value.text for field in whole.items("supplementalGroups") if isinstance(field.value, Number)]
    return Identity(user, group, tuple(int(text) for text in texts if text.isdecimal()))


def _read_id(field: Field, name: str, default: int | None = None) -> int | None:
    return default if field.get(name) is None else field.whole(name, default=0)


def _read_variable(field: Field) -> tuple[str, str]:
    name = field.text("name")
    if not name or "=" in name:
        field.child("name").expected('a name without "="')
    return name, field.text("value")


def _read_restart_policy(field: Field, default: str) -> str:
    policy = field.text("restartPolicy", default)
    if policy != default and policy not in _RESTART_POLICIES:
        field.child("restartPolicy").refuse(f"{excerpt(policy)} is not one of {', '.join(_RESTART_POLICIES)}")
    return policy


def _read_resources(container: Field) -> Resources:
    """Return the resources of a container; a request that is not set defaults to the limit, as in the API."""
    if container.get("resources") is None:
        return _NOTHING
    field = container.mapping("resources")
    limits = _read_amounts(field, "limits")
    requests = _or_else(_read_amounts(field, "requests"), limits)
    _check_requests(field, requests, limits)
    return Resources(requests, limits)


def _read_extras(field: Field) -> tuple[tuple[str, int], ...]:
    """Return the amounts of devices and hugepages; wrong ones are reported where all amounts are read."""
    found: dict[str, int] = {}
    for key in ("limits", "requests"):
        amounts = field.get(key)
        for name, value in amounts.items() if isinstance(amounts, dict) else ():
            text = value.text if isinstance(value, Number) else value
            if is_extra(name) and isinstance(text, str):
                with suppress(ParseError):
                    found[name] = Quantity.parse(text).value
    return tuple(sorted(found.items())) if found else ()


def is_extra(name: str) -> bool:
    """Whether a resource is a device or hugepages."""
    return "/" in name or name.startswith("hugepages-")


def _with_pod_level_resources(pod: Pod, spec: Field) -> Pod:
    """Return *pod* with its pod-level resources (KEP-2837)."""
    field = spec.mapping("resources")
    limits, requests = _read_amounts(field, "limits"), _read_amounts(field, "requests")
    if limits != Amounts():
        requests = _or_else(requests, _or_else(_container_requests(pod), limits))
    _check_requests(field, requests, limits)
    _check_containers_fit(pod, spec, requests, limits)
    return replace(pod, resources=Resources(requests, limits))


def _container_requests(pod: Pod) -> Amounts:
    """Return the peak request of the containers, not set if no container has one."""
    requests = [container.resources.requests for container in pod.all_containers]
    peak = peak_requests(pod)
    cpu = peak.cpu if any(amounts.cpu is not None for amounts in requests) else None
    memory = peak.memory if any(amounts.memory is not None for amounts in requests) else None
    return Amounts(cpu, memory)


def _check_requests(field: Field, requests: Amounts, limits: Amounts) -> None:
    for name, request, limit in zip(Amounts._fields, requests, limits, strict=True):
        if request is not None and limit is not None and request > limit:
            problem = f"must be less than or equal to {name} limit of {_format(name, limit)}"
            field.mapping("requests").child(name).refuse(f"{_format(name, request)} {problem}")


def _check_containers_fit(pod: Pod, spec: Field, requests: Amounts, limits: Amounts) -> None:
    for name, request, peak in zip(Amounts._fields, requests, peak_requests(pod), strict=True):
        if request is not None and peak is not None and request < peak:
            problem = f"must be greater than or equal to aggregate container requests of {_format(name, peak)}"
            spec.mapping("resources").mapping("requests").child(name).refuse(f"{_format(name, request)} {problem}")
    for container, field in zip(pod.containers, spec.items("containers"), strict=True):
        for name, own, limit in zip(Amounts._fields, container.resources.limits, limits, strict=True):
            if own is not None and limit is not None and own > limit:
                problem = f"must be less than or equal to pod limits of {_format(name, limit)}"
                field.mapping("resources").mapping("limits").child(name).refuse(f"{_format(name, own)} {problem}")


def _or_else(amounts: Amounts, default: Amounts) -> Amounts:
    return Amounts(*(other if own is None else own for own, other in zip(amounts, default, strict=True)))


def _read_amounts(parent: Field, key: str) -> Amounts:
    if parent.get(key) is None:
        return _NOTHING.limits
    field = parent.mapping(key)
    found = {name: _read_quantity(field.child(name), name) for name in field.names}
    cpu, memory = found.get("cpu"), found.get("memory")
    return Amounts(None if cpu is None else cpu.milli, None if memory is None else memory.value)


def _read_quantity(field: Field, name: str) -> Quantity | None:
    text = field.value.text if isinstance(field.value, Number) else field.value
    rule = _RULES.get(name, "an amount is 0 or more, e.g. 1 or 2Gi")
    if not _RESOURCE_FORM.fullmatch(name):
        field.refuse(f"{excerpt(name)} is not a resource; resources are {_RESOURCES}")
    elif not isinstance(text, str):
        field.expected("an amount")
    elif isinstance(field.value, Number) and not _DECIMAL_FORM.fullmatch(text):
        field.refuse(f"{excerpt(text)} is not a plain decimal number; {rule}")
    else:
        try:
            return Quantity.parse(text)
        except ParseError as error:
            field.refuse(f"{excerpt(text, error.at)} {error.problem}; {rule}")
    return None


def _format(name: str, amount: int) -> str:
    quantity = Quantity.from_milli(amount if name == "cpu" else amount * 1000)
    return f'"{quantity.format(binary=name == "memory")}"'
