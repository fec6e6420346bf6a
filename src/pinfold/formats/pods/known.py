"""The fields of a pod that Kubernetes knows, and what pinfold does with each when it runs the pod as plain processes.

A plan and a daemon on a node of Kubernetes read the fields about CPUs, and ignore all others.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from pinfold.formats.fields import misspelt
from pinfold.formats.number import Number
from pinfold.formats.pods.spec import is_extra

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pinfold.formats.fields import Field

    Tabled = tuple[Field, Mapping[str, "Use"]]
    """A mapping of a pod, and the table of its fields."""


class Use(StrEnum):
    """What `pinfold apply` does with a field."""

    USED = "used"
    IGNORED = "ignored, with a warning"
    REFUSED = "refused"


def _uses(used: str, ignored: str = "", refused: str = "") -> Mapping[str, Use]:
    rows = {Use.USED: used, Use.IGNORED: ignored, Use.REFUSED: refused}
    return {name: use for use, names in rows.items() for name in names.split()}


WORKLOAD: Final = _uses("replicas parallelism completions template")
POD: Final = _uses("metadata spec kind apiVersion status")
POD_SPEC: Final = _uses(
    "containers initContainers resources overhead restartPolicy securityContext",
    "affinity automountServiceAccountToken dnsPolicy enableServiceLinks hostIPC hostNetwork hostPID hostUsers hostname "
    "imagePullSecrets nodeName nodeSelector os preemptionPolicy priority priorityClassName readinessGates "
    "schedulerName schedulingGates serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain "
    "terminationGracePeriodSeconds tolerations topologySpreadConstraints",
    "activeDeadlineSeconds dnsConfig ephemeralContainers hostAliases hostnameOverride resourceClaims runtimeClassName "
    "volumes",
)
CONTAINER: Final = _uses(
    "name resources command args env workingDir restartPolicy securityContext",
    "image imagePullPolicy ports resizePolicy stdin stdinOnce terminationMessagePath terminationMessagePolicy tty",
    "envFrom lifecycle livenessProbe readinessProbe restartPolicyRules startupProbe volumeDevices volumeMounts",
)
RESOURCES: Final = _uses("requests limits", refused="claims")
ENV: Final = _uses("name value", refused="valueFrom")
SECURITY: Final = _uses(
    "runAsUser runAsGroup runAsNonRoot supplementalGroups",
    "fsGroupChangePolicy seLinuxChangePolicy supplementalGroupsPolicy",
    "allowPrivilegeEscalation appArmorProfile capabilities fsGroup privileged procMount readOnlyRootFilesystem "
    "seLinuxOptions seccompProfile sysctls windowsOptions",
)
_AS_ALWAYS: Final = {"allowPrivilegeEscalation": True, "privileged": False, "readOnlyRootFilesystem": False}
"""Values that say what a plain process does anyway."""
_SEE: Final = "see docs/reference/pod-fields.md"

TABLES: Final = {
    "spec": POD_SPEC,
    "spec.containers[], spec.initContainers[]": CONTAINER,
    "…resources": RESOURCES,
    "…env[]": ENV,
    "…securityContext": SECURITY,
}
"""The sections of docs/reference/pod-fields.md, by path."""


def known_fields(pod: Field) -> Iterator[Tabled]:
    """Yield every mapping of a pod, or of a template, whose fields are in a table, with its table."""
    spec = pod.child("spec")
    yield pod, POD
    yield spec, POD_SPEC
    yield from _known_of_both(spec)
    for container in (*spec.elements("initContainers"), *spec.elements("containers")):
        yield container, CONTAINER
        yield from _known_of_both(container)
        yield from ((variable, ENV) for variable in container.elements("env"))


def _known_of_both(field: Field) -> Iterator[Tabled]:
    """Yield what pods and containers have both, if they have it."""
    for name, table in (("securityContext", SECURITY), ("resources", RESOURCES)):
        if field.get(name) is not None:
            yield field.child(name), table


def near_misses(known: Iterable[Tabled]) -> Iterator[str]:
    """Yield a warning for each field of a pod that is unknown but almost a known one."""
    for field, table in known:
        yield from misspelt(field, table)


def find_fields(known: Iterable[Tabled], use: Use) -> Iterator[Field]:
    """Yield the fields of a pod that have this use, and a value."""
    for mapping, table in known:
        for name in mapping.names:
            if table.get(name) is use and _says_something(field := mapping.child(name)):
                yield field


def needs_a_look(row: Tabled) -> bool:
    """Return whether a mapping has a field that is not simply used."""
    mapping, table = row
    return any(table.get(name) is not Use.USED for name in mapping.names)


def check_runnable(pod: Field, known: Sequence[Tabled]) -> Iterator[str]:
    """Refuse the fields that a plain process would silently betray; yield a warning about those that are ignored."""
    for field in find_fields(known, Use.REFUSED):
        field.refuse(f"plain processes cannot have this field; {_SEE}")
    spec = pod.child("spec")
    for container in (*spec.elements("initContainers"), *spec.elements("containers")):
        _check_not_root(container, spec)
    ignored = dict.fromkeys(str(field.key) for field in find_fields(known, Use.IGNORED))
    if ignored:
        yield f"{pod.where}: ignored for plain processes: {', '.join(ignored)}; {_SEE}"


def _check_not_root(container: Field, spec: Field) -> None:
    """Refuse `runAsNonRoot` without a user: the container would run as the daemon, which may be root."""
    contexts = [field.child("securityContext") for field in (container, spec) if field.get("securityContext")]
    asked = next((one for one in contexts if one.get("runAsNonRoot") is not None), None)
    user = next((one.get("runAsUser") for one in contexts if one.get("runAsUser") is not None), None)
    if asked is not None and asked.get("runAsNonRoot") is True and user in (None, Number("0")):
        asked.child("runAsNonRoot").refuse("needs runAsUser other than 0")


def _says_something(field: Field) -> bool:
    return field.value not in (None, "", [], {}) and _AS_ALWAYS.get(str(field.key)) != field.value


def other_resources(known: Iterable[Tabled]) -> Iterator[str]:
    """Yield what a pod asks for beside CPU, memory and disk; a kubelet may have NUMA hints for it."""
    for mapping, table in known:
        if table is RESOURCES:
            for key in ("limits", "requests"):
                amounts = mapping.get(key)
                yield from filter(is_extra, amounts if isinstance(amounts, dict) else ())
            yield from ["resource claims"] if mapping.get("claims") else []
