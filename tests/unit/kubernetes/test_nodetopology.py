"""The node's topology at the API server: written when it changes, removed at the end, never fought over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pinfold.core.config import Config, Reservation
from pinfold.core.events.daemon import TopologyNotPublished
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.pods.pod import Pod, PodUID
from pinfold.core.state import State
from pinfold.formats.kubelet.nodetopology import node_topology
from pinfold.kubernetes.nodetopology import NodeTopology
from tests.property.strategies import pinned
from tests.support.apiserver import RIGHTS, APIServer
from tests.support.cluster import NODE, account

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from pinfold.core.events import Event

    Scenario = Callable[["Stage"], Coroutine[None, None, None]]
    Play = Callable[[Scenario], None]

MACHINE = from_shape("sockets:2,cores:4")
ADMITTER = Config(
    "static", reserved=Reservation.of(CPUSet.of(0)), topology_policy="single-numa-node", topology_scope="pod"
).build(MACHINE)
EMPTY_NODE = ADMITTER.policy.start(State.new())
OWNED = ADMITTER.admit(EMPTY_NODE, Pod(PodUID("u"), "db", containers=(pinned(3, "app"),))).state


class Stage:
    """An API server, and pinfold's half of it."""

    def __init__(self, server: APIServer, directory: Path, cert: Path) -> None:
        self.server = server
        self.state = EMPTY_NODE
        self.heard: list[Event] = []
        self._service = account(directory / "account", server, trusted=cert)
        self.topology = self.publisher(every=0.01)

    def publisher(self, *, every: float) -> NodeTopology:
        """Return what publishes the topology, with so many seconds between two looks."""

        def describe(name: str) -> dict[str, object]:
            return node_topology(name, ADMITTER, MACHINE, self.state)

        return NodeTopology(self._service, describe, self.heard.append, every=every)

    def why(self) -> str:
        """Return the one reason that was reported."""
        (event,) = self.heard
        assert isinstance(event, TopologyNotPublished)
        return event.why


@pytest.fixture
def play(tmp_path: Path, cert: Path) -> Play:
    """Return a function that plays a scenario on a stage."""

    def played(scenario: Scenario) -> None:
        async def run() -> None:
            async with APIServer().serving(cert) as server:
                await scenario(Stage(server, tmp_path, cert))

        asyncio.run(asyncio.wait_for(run(), 30))

    return played


def test_a_zone_for_each_numa_node_has_distances_and_cpus_and_attributes_say_the_policy() -> None:
    found = node_topology(NODE, ADMITTER, MACHINE, OWNED)
    assert found["attributes"] == [
        {"name": "topologyManagerPolicy", "value": "single-numa-node"},
        {"name": "topologyManagerScope", "value": "pod"},
    ]
    assert found["topologyPolicies"] == ["SingleNUMANodePodLevel"]
    zones = found["zones"]
    assert isinstance(zones, list)
    costs = [{"name": f"node-{to}", "value": cost} for to, cost in MACHINE.distances.get(0, {}).items()]
    assert (zones[0]["name"], zones[0]["type"], zones[0]["costs"]) == ("node-0", "Node", costs)
    assert [zone["resources"] for zone in zones] == [
        [{"name": "cpu", "capacity": "4", "allocatable": "3", "available": "0"}],
        [{"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"}],
    ]


def test_the_topology_is_applied_with_our_field_manager_and_only_when_it_has_changed(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        assert await stage.topology.publish()
        assert await stage.topology.publish()
        stage.state = OWNED
        assert await stage.topology.publish()
        assert [(call.method, call.query) for call in stage.server.calls] == [
            ("PATCH", {"fieldManager": "pinfold"})
        ] * 2
        assert stage.server.topologies == {NODE: node_topology(NODE, ADMITTER, MACHINE, OWNED)}

    play(scenario)


def test_the_topology_of_another_program_is_not_overwritten_and_that_is_reported_once(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        theirs: dict[str, dict[str, object]] = {NODE: {"zones": []}}
        stage.server.topologies, stage.server.managers = theirs, {NODE: "nfd"}
        assert not await stage.topology.publish()
        assert not await stage.topology.publish()
        assert 'HTTP status 409: Apply failed with 2 conflicts: conflicts with "nfd"' in stage.why()
        await stage.topology.withdraw()
        assert stage.server.topologies == {NODE: {"zones": []}}

    play(scenario)


@pytest.mark.parametrize("verb", ["patch", "create"])
def test_a_missing_right_is_reported_with_its_name(play: Play, verb: str) -> None:
    async def scenario(stage: Stage) -> None:
        stage.server.rights = {"good": RIGHTS - {f"{verb} noderesourcetopologies"}}
        assert not await stage.topology.publish()
        assert "HTTP status 403: noderesourcetopologies is forbidden: User" in stage.why()
        assert f"cannot {verb} resource" in stage.why()

    play(scenario)


def test_a_cluster_without_this_kind_of_object_is_reported(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.server.topologies = None
        assert not await stage.topology.publish()
        assert "HTTP status 404: the server could not find the requested resource" in stage.why()
        assert stage.why().endswith("install the NodeResourceTopology CRD")

    play(scenario)


def test_a_field_that_the_schema_lacks_is_reported(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(stage: Stage) -> None:
        monkeypatch.setattr(stage.topology, "_describe", lambda name: {"metadata": {"name": name}, "extra": 1})
        assert not await stage.topology.publish()
        assert "HTTP status 500: failed to create typed patch object: .extra: field not declared" in stage.why()

    play(scenario)


def test_the_object_is_removed_on_leaving_also_if_it_is_gone_already(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topology.publish()
        await stage.topology.withdraw()
        assert stage.server.topologies == {}
        await stage.topology.publish()
        stage.server.topologies = {}
        await stage.topology.withdraw()
        assert stage.heard == []

    play(scenario)


def test_nothing_is_published_while_a_kubelet_manages_the_cpus(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topology.publish()
        monkeypatch.setattr(stage.topology, "_describe", lambda _name: None)
        assert await stage.topology.publish()
        assert stage.server.topologies == {}

    play(scenario)


def test_changes_between_two_looks_are_no_request_of_their_own(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        following = asyncio.create_task(stage.publisher(every=3600.0).follow())
        async with asyncio.timeout(60):
            while not stage.server.topologies:  # noqa: ASYNC110 - the stand-in has no event for it
                await asyncio.sleep(0.005)
        for state in (OWNED, EMPTY_NODE, OWNED):
            stage.state = state
            await asyncio.sleep(0)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        assert len(stage.server.calls) == 1

    play(scenario)


def test_changes_are_published_by_themselves(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        following = asyncio.create_task(stage.topology.follow())
        stage.state = OWNED
        async with asyncio.timeout(60):
            while not stage.server.topologies:  # noqa: ASYNC110 - the stand-in has no event for it
                await asyncio.sleep(0.005)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    play(scenario)
