"""Workloads from Kubernetes YAML or JSON: pods with a count, not one by one, so that a fleet is read fast.

Reads the same documents as `pods.manifest`, with the same errors: `pods.objects` reads for both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.formats.pods.objects import POD, PodKind, PodObject, PodObjects, read_template
from pinfold.formats.pods.spec import read_pod
from pinfold.planning.shard import FleetWorkload

if TYPE_CHECKING:
    from pinfold.core.pods.pod import Pod
    from pinfold.formats.fields import Field

MAX_WORKLOADS: Final = 10_000
MAX_REPLICAS: Final = 5_000_000

_NOT_SCORED: Final = "the scheduler does not score its nodes; add it to the node's systemReserved"
_NOT_PLACED: Final = "it contains no pods to place"


class WorkloadDocuments(NamedTuple):
    """The workloads of a text, in order, and a note on each skipped object."""

    workloads: tuple[FleetWorkload, ...]
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
    for found in reader.objects.read(text, source):
        reader.read(found)
    reader.objects.problems.check()
    return WorkloadDocuments(tuple(reader.workloads), tuple(reader.objects.ignored))


class _Reader:
    """Collects the workloads of the objects of one text."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.objects = PodObjects()
        self.workloads: list[FleetWorkload] = []

    def read(self, found: PodObject) -> None:
        if found.kind == "DaemonSet":
            self.objects.ignore(found, _NOT_SCORED)
            return
        row = found.pod_kind()
        if row is None or found.kind == "CronJob":
            self.objects.ignore(found, _NOT_PLACED)
        elif row is not POD:
            self.read_workload(found, row)
        elif phase := found.phase_at_end():
            self.objects.ignore(found, f"it has ended ({phase})")
        else:
            self.read_pod(found)

    def read_pod(self, found: PodObject) -> None:
        name, namespace = self.objects.read_names(found)
        self.check_room(found.field)
        self.add(read_pod(found.field, name, namespace), 1)

    def read_workload(self, found: PodObject, row: PodKind) -> None:
        name, namespace = self.objects.read_names(found)
        template = read_template(found.field, row)
        if template is None:
            return
        if template.replicas > MAX_REPLICAS:
            template.counted.refuse(f"{template.replicas} is more than {MAX_REPLICAS:,} pods")
        self.check_room(found.field)
        self.add(template.read(name, namespace), template.replicas)

    def add(self, pod: Pod, replicas: int) -> None:
        """Add a workload of equal pods, under its name."""
        shown = pod.name if pod.namespace == "default" else f"{pod.namespace}/{pod.name}"
        self.workloads.append(FleetWorkload(shown, pod, replicas * self.times))

    def check_room(self, field: Field) -> None:
        """Raise if there are too many workloads."""
        if len(self.workloads) == MAX_WORKLOADS:
            field.refuse(f"more than {MAX_WORKLOADS:,} workloads; combine equal pods into one Deployment")
            self.objects.problems.check()
