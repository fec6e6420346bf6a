"""Pods from Kubernetes YAML or JSON, each with a UID, including the pods of a workload with a pod template.

`objects` knows which objects make pods and how many; `spec` reads a pod's contents.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, NamedTuple

from pinfold.core.pods.pod import Pod, PodUID
from pinfold.errors import excerpt
from pinfold.formats.documents import MAX_VALUES, ValueRoom
from pinfold.formats.fields import Field, misspelt
from pinfold.formats.pods.known import WORKLOAD
from pinfold.formats.pods.madeuid import made_uid
from pinfold.formats.pods.objects import POD, PodKind, PodObject, PodObjects, read_template
from pinfold.formats.pods.spec import read_pod

MAX_PODS: Final = 10_000
SMALL: Final = 10_000
"""Values that a daemon reads at once."""
_SMALL_PODS: Final = 5000

_UID_FORM: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
_UID_SPACE: Final = "5f0a5f3c-3b8e-5d43-9a52-70696e666f6c"
_Owner = tuple[str, str, str]  # kind, namespace, name


class PodRoom(ValueRoom):
    """How many values and pods may be read: of one text, or of several together."""

    def __init__(self, most: int = MAX_VALUES, pods: int = MAX_PODS, advice: str = "") -> None:
        """Allow *most* values and so many *pods*; *advice* says what to do about more values."""
        super().__init__(most, advice)
        self.most_pods = pods
        self.pods = 0
        """Those that were read so far."""

    @classmethod
    def small(cls) -> PodRoom:
        """Return the room for what a daemon reads at once: about 400 pods, in less than 100 ms of CPU time."""
        return cls(SMALL, _SMALL_PODS, "; split the file")


class PodDocuments(NamedTuple):
    """The pods of a text, in order, and a note on each skipped object."""

    pods: tuple[Pod, ...]
    ignored: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    """Fields that are probably misspelt, or that plain processes ignore."""
    others: tuple[str, ...] = ()
    """What pods ask for beside CPU, memory and disk."""


def parse_pods(text: str, *, source: str = "", room: PodRoom | None = None, to_run: bool = False) -> PodDocuments:
    """Return the pods written in *text*, if there is *room* for them; *source* names the file in errors.

    *to_run*: they are to be run as plain processes; fields that these would silently betray are problems.

    A workload gives as many pods as it has replicas, named NAME-0, NAME-1 and so on.

    >>> web = "{kind: Pod, metadata: {name: web}, spec: {containers: [{name: app, resources: {limits: {cpu: %s}}}]}}"
    >>> parse_pods(web % "500m").pods[0].containers[0].resources.requests.cpu
    500
    >>> parse_pods(web % "-1", source="pods.yaml")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    pinfold.formats.fields.DocumentError: pods.yaml: document 1: spec.containers[0].resources.limits.cpu: "-1" is neg...
    """
    reader = _Reader(PodObjects(to_run=to_run), room or PodRoom())
    for found in reader.objects.read(text, source, reader.room):
        reader.read(found)
    reader.objects.problems.check()
    objects = reader.objects
    return PodDocuments(tuple(reader.pods), tuple(objects.ignored), tuple(objects.warnings), tuple(objects.others))


def read_object(value: object, *, source: str = "") -> Pod | None:
    """Return the pod in an object of the API, decoded from JSON; None if it has ended. *source* names it in errors."""
    reader = _Reader(PodObjects(warns=False), PodRoom())
    reader.read(PodObject("Pod", Field(value, reader.objects.problems, source)))
    reader.objects.problems.check()
    return next(iter(reader.pods), None)


class _Reader:
    """Collects the pods of the objects of one text."""

    def __init__(self, objects: PodObjects, room: PodRoom) -> None:
        self.objects = objects
        self.room = room
        self.pods: list[Pod] = []
        self.owners: dict[PodUID, _Owner] = {}

    def read(self, found: PodObject) -> None:
        row = found.pod_kind()
        if row is None:
            self.objects.ignore(found, "it contains no pods")
        elif row is not POD:
            self.read_workload(found, row)
        elif phase := found.phase_at_end():
            self.objects.ignore(found, f"it has ended ({phase})")
        else:
            self.read_pod(found)

    def read_pod(self, found: PodObject) -> None:
        name, namespace = self.objects.read_names(found)
        self.check_room(1, found.field)
        self.objects.look(found.field)
        uid = found.field.mapping("metadata").child("uid")
        if uid.value is None:
            uid.value = made_uid(_UID_SPACE, f"{namespace}/{name}")
        elif not _UID_FORM.fullmatch(uid.as_text("a UID")) and isinstance(uid.value, str):
            uid.refuse(f'{excerpt(uid.value)} is not a valid UID; at most 128 letters, digits, "-", "." and "_"')
        self.add(read_pod(found.field, name, namespace), name, uid, (found.kind, namespace, name))

    def read_workload(self, found: PodObject, row: PodKind) -> None:
        name, namespace = self.objects.read_names(found)
        template = read_template(found.field, row)
        if template is None:
            return
        self.check_room(template.replicas, template.counted)
        self.objects.warnings += misspelt(template.holder, WORKLOAD)
        self.objects.look(template.holder.child("template"))
        pod = template.read(name, namespace)
        for index in range(template.replicas):
            made = made_uid(_UID_SPACE, f"{found.kind}/{namespace}/{name}-{index}")
            uid = Field(made, self.objects.problems, "uid", found.field)
            self.add(pod, f"{name}-{index}", uid, (found.kind, namespace, name))

    def add(self, pod: Pod, name: str, field: Field, owner: _Owner) -> None:
        """Add *pod* of the object *owner* under this name, with the UID at *field*, which must be unique."""
        uid = PodUID(str(field.value))
        if self.owners.setdefault(uid, owner) != owner:
            field.refuse(f"{excerpt(uid)} is already the UID of another pod")
        self.pods.append(replace(pod, uid=uid, name=name))

    def check_room(self, count: int, field: Field) -> None:
        """Raise if *count* more pods are too many."""
        self.room.pods += count
        if self.room.pods > self.room.most_pods:
            field.refuse(f"more than {self.room.most_pods:,} pods in all; split the text or ask for fewer")
            self.objects.problems.check()
