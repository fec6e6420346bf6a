"""Law: the rows of the workloads on disk follow from the workloads as they are, however many were kept from before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.pods.pod import Container, Pod, PodUID
from pinfold.manager.sources.kept import format_workloads
from pinfold.manager.sources.workloads import BEGUN, Workload, WorkloadKind
from pinfold.manager.sources.workloadsaves import WorkloadSaves
from pinfold.manager.telling.bus import Bus
from pinfold.node.outputs.outputs import Outputs
from pinfold.node.processgroups.origin import Origin
from pinfold.runtimes.base import Main
from pinfold.runtimes.simulated.launcher import SimulatedApplier, SimulatedLauncher

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from pinfold.manager.sources.kept import KeptWorkload

_CHANGES = ["goes", "runs", "ends", "is lent", "has begun", "is done", "is resized", "does not fit yet"]


class _Change(NamedTuple):
    what: str
    pod: int
    container: int
    number: int


class _Written(BaseException):
    """What is about to be written; nothing is."""


class _Disk:
    """Formats rows as the file does, and keeps the text."""

    def __init__(self) -> None:
        self.text = ""

    def begin(self, rows: Iterable[KeptWorkload]) -> asyncio.Future[None]:
        self.text = format_workloads("boot", rows)
        raise _Written


def _written(saves: WorkloadSaves, disk: _Disk) -> str:
    try:
        saves._begin()  # noqa: SLF001 - without an event loop
    except _Written:
        return disk.text
    raise AssertionError


def _pod(number: int) -> Pod:
    return Pod(PodUID(f"u{number}"), f"p{number}", containers=(Container("a"), Container("b")))


class _Host:
    def __init__(self) -> None:
        self.applier = SimulatedApplier()
        self.launcher = SimulatedLauncher(self.applier)
        self.workloads: dict[PodUID, Workload] = {}

    def saves(self, disk: _Disk) -> WorkloadSaves:
        return WorkloadSaves(self.workloads, self.launcher, disk, Bus(float))  # type: ignore[arg-type]  # as its file

    def change(self, change: _Change) -> None:
        pod = _pod(change.pod)
        kind = [*WorkloadKind][change.number]
        new = Workload(pod, kind, self.launcher, Outputs(Path("/nonexistent")))
        workload = self.workloads.setdefault(pod.uid, new)
        ref = workload.refs[change.container]
        match change.what:
            case "goes":
                del self.workloads[pod.uid]
            case "runs":
                self.applier.mains[ref] = Main(change.number, 1)
            case "ends":
                self.applier.mains.pop(ref, None)
            case "is lent":
                self.applier.lent[ref] = Origin((f"/{change.number}",))
            case "has begun":
                workload.begun[ref.name] = Main(change.number, 1) if change.number else BEGUN
            case "is done":
                workload.done[ref.name] = change.number or None
            case "is resized":
                workload.pod = replace(workload.pod, annotations={"n": str(change.number)})
            case "does not fit yet":
                workload.is_accepted = not workload.is_accepted


@given(
    st.lists(
        st.builds(_Change, st.sampled_from(_CHANGES), st.integers(0, 2), st.integers(0, 1), st.integers(0, 3)),
        max_size=30,
    )
)
def test_what_is_written_follows_from_the_workloads_as_they_are(changes: list[_Change]) -> None:
    host, disk = _Host(), _Disk()
    saves = host.saves(disk)
    for change in changes:
        host.change(change)
        assert _written(saves, disk) == _written(host.saves(fresh := _Disk()), fresh)
