"""The objects in Kubernetes YAML or JSON that make pods: opens lists, reads names, templates and replicas.

Knows which kinds make pods, and checks the object itself. `spec` reads a pod's contents; `manifest` turns objects
into single pods, and `fleet.pods` into workloads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import excerpt
from pinfold.formats.documents import ValueRoom, parse_documents
from pinfold.formats.fields import Field, Problems, bare
from pinfold.formats.pods.known import check_runnable, known_fields, near_misses, needs_a_look, other_resources
from pinfold.formats.pods.spec import read_label, read_pod, read_subdomain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pinfold.core.pods.pod import Pod

MAX_CONTAINERS: Final = 10_000
_ENDED: Final = ("Succeeded", "Failed")


class PodKind(NamedTuple):
    """A kind that makes pods: its API groups, the path to its template, and the field with the number of pods."""

    groups: tuple[str, ...]
    way: tuple[str, ...] = ("spec",)
    number: str = "replicas"


POD: Final = PodKind(("",), (), "")
_KINDS: Final = {
    "Pod": POD,
    "Deployment": PodKind(("apps", "extensions")),
    "StatefulSet": PodKind(("apps",)),
    "ReplicaSet": PodKind(("apps", "extensions")),
    "ReplicationController": PodKind(("",)),
    "DaemonSet": PodKind(("apps", "extensions"), number=""),
    "Job": PodKind(("batch",), number="parallelism"),
    "CronJob": PodKind(("batch",), ("spec", "jobTemplate", "spec"), number="parallelism"),
}
_MEANT: Final = {kind.lower(): kind for kind in _KINDS}


class PodObject(NamedTuple):
    """An object of a text, of any kind."""

    kind: str
    field: Field

    @property
    def title(self) -> str:
        """Its kind and name, for notes."""
        metadata = self.field.child("metadata")
        names = (metadata.get("namespace"), metadata.get("name"))
        shown = "/".join(bare(name) for name in names if isinstance(name, str))
        return f"{bare(self.kind)} {shown}".rstrip()

    def pod_kind(self) -> PodKind | None:
        """Return its row in the table of kinds; None if its kind makes no pods, or belongs to another API group."""
        version = self.field.text("apiVersion")
        row = _KINDS.get(self.kind)
        return None if row is None or (version and version.rpartition("/")[0] not in row.groups) else row

    def phase_at_end(self) -> str:
        """Return the phase of a pod that has ended; empty if it has not."""
        phase = self.field.mapping("status").text("phase")
        return phase if phase in _ENDED else ""


class PodTemplate(NamedTuple):
    """The pod template of a workload, and the number of its pods."""

    holder: Field
    replicas: int
    counted: Field
    """The field with the number; the object itself if there is none."""

    def read(self, name: str, namespace: str) -> Pod:
        """Return the pod of the template; record its problems."""
        return read_pod(self.holder.mapping("template"), name, namespace)


class PodObjects:
    """The objects of one text, their problems, notes on skipped objects, and what pods ask for beside CPUs."""

    def __init__(self, *, to_run: bool = False, warns: bool = True) -> None:
        """*to_run*: the pods are to be run as plain processes, which cannot do all that a pod can ask for.

        *warns*: look for fields that are probably misspelt, and for what pods ask for beside CPUs.
        """
        self.problems = Problems()
        self._to_run = to_run
        self._warns = warns
        self.ignored: list[str] = []
        self.warnings: list[str] = []
        self.others: dict[str, None] = {}
        self._seen: set[tuple[str, str, str]] = set()

    def read(self, text: str, source: str, room: ValueRoom | None = None) -> Iterator[PodObject]:
        """Yield the objects in order, those of lists one by one; *source* names the file in errors."""
        found = parse_documents(text, source=source, room=room, problems=self.problems)
        documents = [document for document in found if document.value is not None]
        if not documents and not self.problems.found:
            self.problems.add("is empty; Kubernetes YAML or JSON with pods is expected", source or "text")
        for number, value in documents:
            yield from _opened(Field(value, self.problems, ": ".join(filter(None, (source, f"document {number}")))))

    def look(self, pod: Field) -> None:
        """Record misspelt fields of a pod or a template, and the resources that it asks for beside CPU and memory."""
        self._check_room(pod.child("spec"))
        known = [*known_fields(pod)] if self._warns or self._to_run else []
        unusual = [*filter(needs_a_look, known)]
        if self._warns:
            self.warnings += near_misses(unusual)
            self.others |= dict.fromkeys(other_resources(known))
        if self._to_run:
            self.warnings += check_runnable(pod, unusual)

    def _check_room(self, spec: Field) -> None:
        """Raise if a pod has too many containers."""
        for name in ("initContainers", "containers"):
            containers = spec.child(name)
            if isinstance(containers.value, list) and len(containers.value) > MAX_CONTAINERS:
                containers.refuse(f"{len(containers.value):,} containers; {MAX_CONTAINERS:,} are allowed")
                self.problems.check()

    def ignore(self, found: PodObject, why: str) -> None:
        """Record why an object is skipped."""
        meant = "" if found.kind in _KINDS else _MEANT.get(found.kind.lower().removesuffix("s"), "")
        asked = f"; did you mean kind: {meant}?" if meant else ""
        self.ignored.append(f"{found.field.where}: skipped {found.title}: {why}{asked}")

    def read_names(self, found: PodObject) -> tuple[str, str]:
        """Return the name and namespace of an object, which must be unique."""
        metadata = found.field.mapping("metadata")
        name, namespace = read_subdomain(metadata.child("name")), "default"
        if metadata.get("namespace") is not None:
            namespace = read_label(metadata.child("namespace"))
        if name and (found.kind, namespace, name) in self._seen:
            metadata.child("name").refuse(f"{found.kind} {excerpt(f'{namespace}/{name}')} is a duplicate")
        self._seen.add((found.kind, namespace, name))
        return name, namespace


def read_template(field: Field, row: PodKind) -> PodTemplate | None:
    """Return the template of a workload, None if it has none; a Job counts the pods that run at once."""
    holder = field
    for step in row.way:
        holder = holder.mapping(step)
    if holder.get("template") is None:
        holder.child("template").expected("a pod template")
        return None
    count = holder.whole(row.number, default=1) if row.number else 1
    if row.number == "parallelism":
        count = min(count, holder.whole("completions", default=count))
    return PodTemplate(holder, count, holder.child(row.number) if row.number else field)


def _opened(document: Field) -> Iterator[PodObject]:
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
            yield PodObject(kind, field)
