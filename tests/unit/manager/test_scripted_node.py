"""A node without kernel and containerd: the sources of pinfold against a scripted runtime, on real sockets."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.state import State
from pinfold.manager.manager import Manager, Rules
from pinfold.manager.node import Node as PinfoldNode
from pinfold.manager.sources.cri import CRISource
from pinfold.manager.sources.nri import NRISource
from pinfold.manager.telling.bus import Bus
from pinfold.manager.telling.telling import Telling
from pinfold.node.podgroups.groups import PodGroups
from pinfold.node.podgroups.settings import CPUS
from pinfold.runtimes.cri.client import CRIClient
from pinfold.runtimes.nri.answers import Answers
from pinfold.runtimes.podplaces import PodPlaces
from pinfold.runtimes.pods import PodApplier
from pinfold.runtimes.roster import Roster
from pinfold.runtimes.simulated.nri.peer import PluginError
from tests.unit.runtimes.simulated.scripts import Node, burstable, guaranteed, play

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.core.events.entries import Entry
    from pinfold.runtimes.simulated.record import ContainerRecord


class NoDisk:
    """A State that is kept nowhere."""

    async def save(self, state: State) -> None:
        """Forget it."""


class Pinfold:
    """What pinfold has on a node with 8 CPUs, of which CPU 0 is reserved."""

    def __init__(self, node: Node, source: str, *, read_only: bool = False) -> None:
        self.scripted = node
        self.bus = Bus(time.time)
        machine = from_shape("cores:8")
        admitter = Config("static", reserved=Reservation.of(CPUSet.of(0))).build(machine)
        roster = Roster()
        places = PodPlaces(PodGroups(node.groups), roster, asked_first=source == "nri")
        self.applier = PodApplier(source, places, read_only=read_only)
        rules, state = Rules(admitter, machine, NoDisk()), admitter.policy.start(State.new())
        self.manager = Manager(rules, state, self.applier, roster, Telling(self.bus))
        self.node = PinfoldNode(self.manager, roster, self.bus, read_only=read_only)
        self.node.sight = places

    def cpus(self, container: ContainerRecord) -> str:
        """Return the CPUs that the container can use."""
        return str(self.scripted.groups.effective(self.scripted.group(container), CPUS))

    def told(self, what: str) -> list[Entry]:
        """Return the events of one kind."""
        return [entry for entry in self.bus.after(0) if entry.what == what]


def test_owner_gets_its_cpus_over_nri_and_all_others_leave_them() -> None:
    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "nri")
        await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        await node.runtime.pods.run(burstable())
        sandbox = await node.runtime.pods.run(guaranteed())
        web, db = (node.runtime.record.find(name, "app") for name in ("web", "db"))
        assert (pinfold.cpus(db), pinfold.cpus(web)) == ("1-2", "0,3-7")
        assert node.quota(node.group(db)) is None
        await node.runtime.remove_pod(sandbox.id)
        assert pinfold.cpus(web) == "0-7"

    play(script)


def test_container_without_room_is_refused_with_the_reason() -> None:
    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "nri")
        await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        with pytest.raises(PluginError, match="not enough cpus available to satisfy request: requested=8, available=7"):
            await node.runtime.pods.run(guaranteed(milli=8000))
        assert not pinfold.manager.state.exclusive

    play(script)


def test_container_that_came_while_pinfold_was_away_is_pinned_when_it_is_back() -> None:
    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "nri")
        plugin = await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        await node.unplug(plugin)
        await node.runtime.pods.run(guaranteed())
        db = node.runtime.record.find("db", "app")
        assert pinfold.cpus(db) == "0-7"
        await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        assert pinfold.cpus(db) == "1-2"
        assert node.runtime.record.find("db", "app").spec.cpus == "1-2"

    play(script)


def test_owner_gets_its_cpus_over_cri_soon_after_its_start_and_the_runtime_is_told(tmp_path: Path) -> None:
    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "cri")
        await node.runtime.cri.listen(str(tmp_path / "cri.sock"))
        async with CRIClient(str(tmp_path / "cri.sock")) as client:
            following = asyncio.create_task(CRISource(pinfold.node, client, pinfold.bus).follow())
            await node.runtime.cri.until("GetContainerEvents")
            await node.runtime.pods.run(burstable())
            await node.runtime.pods.run(guaranteed())
            await node.runtime.cri.until("UpdateContainerResources")
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        web, db = (node.runtime.record.find(name, "app") for name in ("web", "db"))
        assert (pinfold.cpus(db), pinfold.cpus(web)) == ("1-2", "0,3-7")
        assert (db.spec.cpus, db.spec.quota) == ("1-2", -1)

    play(script)
