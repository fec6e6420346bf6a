"""Pods from Kubernetes YAML or JSON: Pods, Lists, and workloads with a pod template.

Knows which objects make pods and how many; what is in a pod is read by `podspec`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID, uuid5

from pinfold.core.pods import Pod, PodUID
from pinfold.errors import excerpt
from pinfold.formats.documents import parse_documents
from pinfold.formats.fields import Field, Problems, bare
from pinfold.formats.podspec import read_label, read_pod, read_subdomain

MAX_PODS: Final = 10_000

_UID_FORM: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
_UID_SPACE: Final = UUID("5f0a5f3c-3b8e-5d43-9a52-70696e666f6c")
_ENDED: Final = ("Succeeded", "Failed")
_Object = tuple[str, str, str]  # kind, namespace, name


class PodDocuments(NamedTuple):
    """The pods of a text, in order, and a note on each object that was left out."""

    pods: tuple[Pod, ...]
    ignored: tuple[str, ...]


class _Kind(NamedTuple):
    """A kind that makes pods: its API groups, the way to its template, the field beside it that says how many."""

    groups: tuple[str, ...]
    way: tuple[str, ...] = ("spec",)
    number: str = "replicas"


_POD: Final = _Kind(("",), (), "")
_KINDS: Final = {
    "Pod": _POD,
    "Deployment": _Kind(("apps", "extensions")),
    "StatefulSet": _Kind(("apps",)),
    "ReplicaSet": _Kind(("apps", "extensions")),
    "ReplicationController": _Kind(("",)),
    "DaemonSet": _Kind(("apps", "extensions"), number=""),
    "Job": _Kind(("batch",), number="parallelism"),
    "CronJob": _Kind(("batch",), ("spec", "jobTemplate", "spec"), number="parallelism"),
}


def parse_pods(text: str, *, source: str = "") -> PodDocuments:
    """Return the pods written in *text*; *source* names the file in errors.

    A workload gives as many pods as it has replicas, named NAME-0, NAME-1 and so on.

    >>> web = "{kind: Pod, metadata: {name: web}, spec: {containers: [{name: app, resources: {limits: {cpu: %s}}}]}}"
    >>> parse_pods(web % "500m").pods[0].containers[0].resources.requests.cpu
    500
    >>> parse_pods(web % "-1", source="pods.yaml")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    pinfold.formats.fields.DocumentError: pods.yaml: document 1: spec.containers[0].resources.limits.cpu: "-1" is neg...
    """
    reader = _Reader()
    for number, value in parse_documents(text, source=source):
        if value is not None:
            reader.read(Field(value, reader.problems, ": ".join(filter(None, (source, f"document {number}")))))
    reader.problems.check()
    return PodDocuments(tuple(reader.pods), tuple(reader.ignored))


class _Reader:
    """Collects pods, notes and problems over the documents of one text."""

    def __init__(self) -> None:
        self.pods: list[Pod] = []
        self.ignored: list[str] = []
        self.problems = Problems()
        self.objects: set[_Object] = set()
        self.owners: dict[PodUID, _Object] = {}

    def read(self, document: Field) -> None:
        waiting = [(document, "")]
        while waiting:
            field, kind = waiting.pop()
            if not isinstance(field.value, dict):
                field.expected("a Kubernetes object with kind, metadata and spec")
                continue
            kind = field.text("kind", kind)
            if not kind:
                field.child("kind").refuse("missing; a kind such as Pod or Deployment is expected")
            elif kind == "List" or (kind.endswith("List") and "items" in field.value):
                waiting += [(item, kind.removesuffix("List")) for item in reversed(field.items("items"))]
            else:
                self.read_object(field, kind)

    def read_object(self, field: Field, kind: str) -> None:
        version = field.text("apiVersion")
        row = _KINDS.get(kind)
        if row is None or (version and version.rpartition("/")[0] not in row.groups):
            self.ignored.append(f"{_title(field, kind)} is no kind with pods")
        elif row is not _POD:
            self.read_workload(field, kind, row)
        elif (phase := field.mapping("status").text("phase")) in _ENDED:
            self.ignored.append(f"{_title(field, kind)} has ended ({phase})")
        else:
            self.read_pod(field)

    def read_pod(self, field: Field) -> None:
        name, namespace = self.read_names(field, "Pod")
        self.check_room(1, field)
        uid = field.mapping("metadata").child("uid")
        if uid.value is None:
            uid.value = str(uuid5(_UID_SPACE, f"{namespace}/{name}"))
        elif not _UID_FORM.fullmatch(uid.as_text("a UID")) and isinstance(uid.value, str):
            uid.refuse(f'{excerpt(uid.value)} is no UID; at most 128 letters, digits, "-", "." and "_"')
        self.add(read_pod(field, name, namespace), uid, ("Pod", namespace, name))

    def read_workload(self, field: Field, kind: str, row: _Kind) -> None:
        name, namespace = self.read_names(field, kind)
        holder = field
        for step in row.way:
            holder = holder.mapping(step)
        if holder.child("template").value is None:
            holder.child("template").expected("a pod template")
            return
        count = holder.whole(row.number, default=1) if row.number else 1
        if row.number == "parallelism":
            count = min(count, holder.whole("completions", default=count))
        self.check_room(count, holder.child(row.number) if row.number else field)
        pod = read_pod(holder.mapping("template"), name, namespace)
        for index in range(count):
            uid = Field(str(uuid5(_UID_SPACE, f"{kind}/{namespace}/{name}-{index}")), self.problems, "uid", field)
            self.add(replace(pod, name=f"{name}-{index}"), uid, (kind, namespace, name))

    def read_names(self, field: Field, kind: str) -> tuple[str, str]:
        """Return the name and namespace of the object *field*, which may come once only."""
        metadata = field.mapping("metadata")
        name, namespace = read_subdomain(metadata.child("name")), "default"
        if metadata.child("namespace").value is not None:
            namespace = read_label(metadata.child("namespace"))
        if name and (kind, namespace, name) in self.objects:
            metadata.child("name").refuse(f"{kind} {excerpt(f'{namespace}/{name}')} was there before")
        self.objects.add((kind, namespace, name))
        return name, namespace

    def add(self, pod: Pod, field: Field, owner: _Object) -> None:
        """Add *pod* of the object *owner* with the UID at *field*, which no other object may have."""
        uid = PodUID(str(field.value))
        if self.owners.setdefault(uid, owner) != owner:
            field.refuse(f"{excerpt(uid)} is the UID of two pods")
        self.pods.append(replace(pod, uid=uid))

    def check_room(self, count: int, field: Field) -> None:
        """Stop at once when *count* more pods are too many."""
        if len(self.pods) + count > MAX_PODS:
            field.refuse(f"more than {MAX_PODS:,} pods in all; split the text or ask for fewer")
            self.problems.check()


def _title(field: Field, kind: str) -> str:
    metadata = field.child("metadata")
    names = (metadata.child("namespace").value, metadata.child("name").value)
    return f"{field.where}: {bare(kind)} {'/'.join(bare(name) for name in names if isinstance(name, str))}".rstrip()
