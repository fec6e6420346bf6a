"""A handler that notes what an NRI plugin is asked, and callbacks that note what its connection tells."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pinfold.proto import nri_pb2 as nri
from pinfold.runtimes.nri.plugin import NRILink, Plugin, PluginIdentity

if TYPE_CHECKING:
    from collections.abc import Sequence

WITHIN = 10.0


def update(container: str, cpus: str) -> nri.ContainerUpdate:
    made = nri.ContainerUpdate(container_id=container)
    made.linux.resources.cpu.cpus = cpus
    return made


def adjustment(cpus: str) -> nri.ContainerAdjustment:
    made = nri.ContainerAdjustment()
    made.linux.resources.cpu.cpus = cpus
    return made


class Recorder:
    """Gives fixed answers, and fails when it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[str] = []
        self.error = error
        self.updates = [update("other", "0")]
        self.adjustment = adjustment("2-3")

    def note(self, what: str, *about: nri.PodSandbox | nri.Container) -> None:
        self.asked.append(" ".join([what, *(thing.id for thing in about)]))
        if self.error:
            raise self.error

    def synchronize(
        self, pods: Sequence[nri.PodSandbox], containers: Sequence[nri.Container]
    ) -> list[nri.ContainerUpdate]:
        self.note("synchronize", *pods, *containers)
        return self.updates

    async def create(
        self, pod: nri.PodSandbox, container: nri.Container
    ) -> tuple[nri.ContainerAdjustment, list[nri.ContainerUpdate]]:
        self.note("create", pod, container)
        return self.adjustment, self.updates

    def start(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        self.note("start", pod, container)

    async def post_start(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        self.note("post_start", pod, container)

    def update(
        self, pod: nri.PodSandbox, container: nri.Container, wanted: nri.LinuxResources
    ) -> list[nri.ContainerUpdate]:
        self.note(f"update to {wanted.cpu.cpus}", pod, container)
        return self.updates

    def stop(self, pod: nri.PodSandbox, container: nri.Container) -> list[nri.ContainerUpdate]:
        self.note("stop", pod, container)
        return self.updates

    def remove(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        self.note("remove", pod, container)

    def run_pod(self, pod: nri.PodSandbox) -> None:
        self.note("run_pod", pod)

    async def stop_pod(self, pod: nri.PodSandbox) -> None:
        self.note("stop_pod", pod)

    def remove_pod(self, pod: nri.PodSandbox) -> None:
        self.note("remove_pod", pod)


class Quiet(Recorder):
    """A recorder that changes nothing, and notes names instead of ids."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(error)
        self.updates = []
        self.adjustment = nri.ContainerAdjustment()
        self.messages: list[nri.PodSandbox | nri.Container] = []

    def note(self, what: str, *about: nri.PodSandbox | nri.Container) -> None:
        self.messages += about
        self.asked.append(" ".join([what, *(thing.name for thing in about)]))
        if self.error:
            raise self.error


class Told:
    """What the callbacks were told."""

    def __init__(self) -> None:
        self.links: list[tuple[NRILink, str]] = []
        self.failures: list[tuple[str, str]] = []
        self.news = asyncio.Event()

    def changed(self, link: NRILink, detail: str) -> None:
        self.links.append((link, detail))
        self.news.set()

    def failed(self, method: str, error: Exception) -> None:
        self.failures.append((method, repr(error)))

    async def until(self, link: NRILink) -> str:
        """Wait until *link* is told, and return the detail."""
        while not (found := [detail for told, detail in self.links if told == link]):
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), WITHIN)
        return found[-1]

    def plugin(self, handler: Recorder, identity: PluginIdentity | None = None) -> Plugin:
        return Plugin(handler, identity, self.changed, self.failed)
