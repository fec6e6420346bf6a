"""Workloads from Kubernetes YAML or JSON: pods with a count, not one by one, so that a fleet's are read in no time.

Reads the same documents as `podyaml`, and says the same of what is wrong in them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pinfold.core.shard import Workload
from pinfold.errors import excerpt
from pinfold.formats.documents import parse_documents
from pinfold.formats.fields import Field, Problems, bare
from pinfold.formats.podspec import read_label, read_pod, read_subdomain

MAX_WORKLOADS: Final = 10_000
MAX_REPLICAS: Final = 2_000_000

_POD: Final = "Pod"
_COUNTED_BY: Final = {
    "Deployment": "replicas",
    "StatefulSet": "replicas",
    "ReplicaSet": "replicas",
    "ReplicationController": "replicas",
    "Job": "parallelism",
}
_GROUPS: Final = {_POD: {""}, "ReplicationController": {""}, "Job": {"batch"}}
_APPS: Final = {"apps", "extensions"}
_ENDED: Final = ("Succeeded", "Failed")


class WorkloadDocuments(NamedTuple):
    """The workloads of a text, in order, and a note on each object that was left out."""

    workloads: tuple[Workload, ...]
    ignored: tuple[str, ...]


def parse_workloads(text: str, *, source: str = "", times: int = 1) -> WorkloadDocuments:
    """Return the workloads written in *text*, each *times* as large; *source* names the file in errors.

    A Pod is a workload of one replica; a Job's are those that run at once.

    >>> web = "{kind: Job, metadata: {name: web}, spec: {parallelism: %s, template: {spec: {containers: [{name: a}]}}}}"
    >>> [(found.name, found.replicas) for found in parse_workloads(web % 90_000).workloads]
    [('web', 90000)]
    >>> parse_workloads(web % -1, source="pods.yaml")
    Traceback (most recent call last):
    pinfold.formats.fields.DocumentError: pods.yaml: document 1: spec.parallelism: -1 where a whole number is expected
    """
    reader = _Reader(times)
    for number, value in parse_documents(text, source=source):
        if value is not None:
            reader.read(Field(value, reader.problems, ": ".join(filter(None, (source, f"document {number}")))))
    reader.problems.check()
    return WorkloadDocuments(tuple(reader.workloads), tuple(reader.ignored))


class _Reader:
    """Collects workloads, notes and problems over the documents of one text."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.workloads: list[Workload] = []
        self.ignored: list[str] = []
        self.problems = Problems()
        self.objects: set[tuple[str, str, str]] = set()

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
            elif note := _why_ignored(field, kind):
                self.ignored.append(f"{_title(field, kind)} {note}")
            else:
                self.read_object(field, kind)

    def read_object(self, field: Field, kind: str) -> None:
        name, namespace = self.read_names(field, kind)
        template, replicas = field, 1
        if kind != _POD:
            spec = field.mapping("spec")
            template = spec.child("template")
            if not isinstance(template.value, dict):
                template.expected("a pod template")
                return
            replicas = _read_replicas(spec, _COUNTED_BY[kind])
        self.check_room(field)
        shown = name if namespace == "default" else f"{namespace}/{name}"
        self.workloads.append(Workload(shown, read_pod(template, name, namespace), replicas * self.times))

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

    def check_room(self, field: Field) -> None:
        """Stop at once when there are too many workloads."""
        if len(self.workloads) == MAX_WORKLOADS:
            field.refuse(f"more than {MAX_WORKLOADS:,} workloads; pods that are alike can be one Deployment")
            self.problems.check()


def _read_replicas(spec: Field, key: str) -> int:
    count = spec.whole(key, default=1)
    if key == "parallelism":
        count = min(count, spec.whole("completions", default=count))
    if count > MAX_REPLICAS:
        spec.child(key).refuse(f"{count} is more than {MAX_REPLICAS:,} pods")
    return count


def _why_ignored(field: Field, kind: str) -> str:
    """Return why an object adds no pods; nothing if it does."""
    if kind == "DaemonSet":
        return "is not placed by a scheduler's score; count it with the node's systemReserved"
    group = field.text("apiVersion").rpartition("/")[0]
    known = kind == _POD or kind in _COUNTED_BY
    if not known or (field.text("apiVersion") and group not in _GROUPS.get(kind, _APPS)):
        return "is no kind with pods to be placed"
    phase = field.mapping("status").text("phase") if kind == _POD else ""
    return f"has ended ({phase})" if phase in _ENDED else ""


def _title(field: Field, kind: str) -> str:
    metadata = field.child("metadata")
    names = (metadata.child("namespace").value, metadata.child("name").value)
    return f"{field.where}: {bare(kind)} {'/'.join(bare(name) for name in names if isinstance(name, str))}".rstrip()
