"""WorkloadSaves: keeps the disk up to date with the workloads, for the next daemon."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pinfold.core.events.daemon import NotSaved
from pinfold.errors import PinfoldError
from pinfold.manager.sources.kept import KeptWorkload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pinfold.core.pods.pod import ContainerRef, PodUID
    from pinfold.manager.sources.kept import KeptWorkloads
    from pinfold.manager.sources.workloads import Workload
    from pinfold.manager.telling.bus import Bus
    from pinfold.node.processgroups.origin import Origin
    from pinfold.runtimes.base import Launcher, Main

_PAUSE: Final = 1.0
_TOGETHER: Final = 0.02
"""Seconds that a change waits for which no client waits: others come, or a write for a client has it too."""


class WorkloadSaves:
    """The writes of one file, which has all *workloads* that were accepted."""

    def __init__(self, workloads: Mapping[PodUID, Workload], launcher: Launcher, kept: KeptWorkloads, bus: Bus) -> None:
        self.unsaved = ""
        """Why the disk does not have the workloads as they are; empty if it has."""
        self._workloads = workloads
        self._launcher = launcher
        self._kept = kept
        self._bus = bus
        self._accepted: list[Workload] = []
        """The workloads that were found to fit since the last write began."""
        self._rows: dict[PodUID, tuple[object, KeptWorkload]] = {}
        """What the last write has of each workload, after what it follows from: most have not changed at the next."""
        self._waiters: dict[asyncio.Future[None], list[asyncio.Future[None]]] = {}
        """Those that wait for a write; `asyncio.shield` needs three rounds of the event loop for each."""
        self._changed = False
        self._saving: asyncio.Future[None] | None = None
        self._again: asyncio.TimerHandle | None = None

    def accept(self, workload: Workload) -> None:
        """Record that a workload fits; `write_accepted` saves it."""
        workload.is_accepted = True
        self._accepted.append(workload)

    def write_accepted(self) -> None:
        """Begin to save the workloads that fit, while others wait for the State."""
        if self._accepted:
            writing = self._begin()
            for workload in self._accepted:
                workload.writing = writing
            self._accepted.clear()

    async def written(self, workload: Workload) -> None:
        """Return when the disk has a workload that was accepted, or raise why it has not."""
        self.write_accepted()
        writing = workload.writing
        if writing is None:
            return
        if not writing.done():
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.setdefault(writing, []).append(waiter)
            await waiter
        writing.result()

    async def write(self) -> None:
        """Save all workloads, durably, or raise; what could not be saved is tried again until it is."""
        await asyncio.shield(self._begin())

    def _begin(self) -> asyncio.Future[None]:
        self._changed = False  # what is written has everything that was changed before
        writing = self._kept.begin(self._kept_rows())
        writing.add_done_callback(self._has_written)
        return writing

    def _has_written(self, writing: asyncio.Future[None]) -> None:
        for waiter in self._waiters.pop(writing, ()):
            if not waiter.done():  # it has gone away
                waiter.set_result(None)
        error = writing.exception()
        if error is None:
            self.unsaved = ""
        else:
            self._try_later(str(error))

    def _kept_rows(self) -> Iterator[KeptWorkload]:
        """Yield all workloads that were accepted, when they are written; those that have not changed as they were."""
        mains, lent = self._launcher.mains, self._launcher.lent
        before, self._rows = self._rows, {}
        for uid, workload in self._workloads.items():
            if not workload.is_accepted:
                continue
            basis = _basis(workload, mains, lent)
            row = before.get(uid)
            if row is None or row[0] != basis:
                row = basis, _as_kept(workload, mains, lent)
            self._rows[uid] = row
            yield row[1]

    async def persist(self) -> None:
        """Save all workloads; return when the disk has them, however long that takes."""
        while True:
            try:
                return await self.write()
            except PinfoldError:  # it is reported
                await asyncio.sleep(_PAUSE)

    def save(self) -> None:
        """Save all workloads soon, and try again until the disk has them."""
        self._changed = True
        if self._saving is None or self._saving.done():
            self._saving = asyncio.ensure_future(self._save())

    async def _save(self) -> None:
        while True:
            await asyncio.sleep(_TOGETHER)
            if not self._changed:
                return
            with suppress(PinfoldError):  # it is reported, and tried again
                await self.write()

    def _try_later(self, why: str) -> None:
        if self.unsaved != why:
            self.unsaved = why
            self._bus.tell(NotSaved(why))
        if self._again is not None:
            self._again.cancel()
        self._again = asyncio.get_running_loop().call_later(_PAUSE, self.save)


def _basis(workload: Workload, mains: Mapping[ContainerRef, Main], lent: Mapping[ContainerRef, Origin]) -> object:
    """Return what a workload's row follows from, as values."""
    refs = workload.refs
    running, origins = tuple(map(mains.get, refs)), tuple(map(lent.get, refs)) if lent else ()
    return workload.pod, running, origins, tuple(workload.begun.items()), tuple(workload.done.items())


def _as_kept(
    workload: Workload, mains: Mapping[ContainerRef, Main], lent: Mapping[ContainerRef, Origin]
) -> KeptWorkload:
    running = workload.begun | {ref.name: mains[ref] for ref in workload.refs if ref in mains}
    origins = {ref.name: lent[ref] for ref in workload.refs if ref in lent}
    return KeptWorkload(workload.kind, workload.pod, running, dict(workload.done), origins)
