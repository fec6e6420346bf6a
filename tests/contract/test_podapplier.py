"""A node of Kubernetes, on this kernel and simulated: what it does about what a runtime tells, or does not tell."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from typing import TYPE_CHECKING, cast

import pytest

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import Cause
from pinfold.core.state import State
from pinfold.daemon.parts.pods import pod_groups
from pinfold.errors import PinfoldError
from pinfold.formats.pods.runtime import Phase, RuntimeContainer, RuntimePod
from pinfold.manager.manager import Manager, Rules
from pinfold.manager.node import Node as PinfoldNode
from pinfold.manager.node import age
from pinfold.manager.sources.cri import CRISource
from pinfold.manager.telling.bus import Bus
from pinfold.manager.telling.telling import Telling
from pinfold.node.grouperrors import GroupError
from pinfold.node.podgroups.settings import Quota
from pinfold.node.podgroups.systemd import Systemd
from pinfold.node.procfs import Procfs
from pinfold.runtimes.base import ApplyError
from pinfold.runtimes.podplaces import PodPlaces
from pinfold.runtimes.pods import PodApplier
from pinfold.runtimes.roster import Roster
from tests.contract.kubenode import ALL, BURSTABLE, GUARANTEED, KINDS, Node, host
from tests.now import now

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pinfold.node.podgroups.settings import GroupSetting
    from pinfold.runtimes.cri.client import CRIClient

FIRST = CPUSet.of(ALL.lowest)


class NoDisk:
    """A State that is kept nowhere."""

    async def save(self, state: State) -> None:
        """Forget it."""


class Tried:
    """A Node over the groups of pods, told by the test."""

    def __init__(self, groups: Node, systemd: Systemd | None = None) -> None:
        self.groups = groups
        self.bus = Bus(time.time)
        machine = from_shape(f"cores:{max(ALL) + 1}")
        admitter = Config("static", reserved=Reservation.of(FIRST)).build(machine)
        self.roster = Roster()
        places = PodPlaces(groups.groups, self.roster, asked_first=True)
        self.applier = PodApplier("nri", places, systemd)
        rules, state = Rules(admitter, machine, NoDisk()), admitter.policy.start(State.new())
        self.manager = Manager(rules, state, self.applier, self.roster, Telling(self.bus))
        self.node = PinfoldNode(self.manager, self.roster, self.bus)
        self.node.sight = places

    def whats(self) -> list[str]:
        return [entry.what for entry in self.bus.after(0)]

    def pod(self, qos: str, uid: str, *, sandbox: bool = True) -> RuntimePod:
        """Make a pod's group with its sandbox, and return what a runtime says of it."""
        group = self.groups.pod(qos, uid)
        if sandbox:
            self.groups.container(group, "sandbox")
        return RuntimePod(f"s-{uid}", uid, uid, "default", self._path(group))

    def container(self, pod: RuntimePod, milli: int, phase: Phase = Phase.RUNNING) -> RuntimeContainer:
        """Return what a runtime says of a container, whether or not it is there."""
        path = f"{pod.cgroup_parent}/app"
        shares, quota = milli * 1024 // 1000, milli * 100
        return RuntimeContainer(f"c-{pod.uid}", pod.id, "app", phase, cgroups_path=path, shares=shares, quota=quota)

    def run(self, pod: RuntimePod) -> int:
        """Start a process in its container's group."""
        return self.groups.container(self.groups.groups.tree.paths.pod(pod.cgroup_parent), "app")[1]

    def _path(self, group: Path) -> str:
        return "/" + "/".join(self.groups.groups.tree.paths.parts(group))


@pytest.fixture(params=KINDS)
def groups(request: pytest.FixtureRequest) -> Iterator[Node]:
    node = Node(f"pinfold-test-{uuid.uuid4().hex[:12]}", "cgroupfs", host(request.param))
    yield node
    node.end()


@pytest.fixture
def tried(groups: Node) -> Tried:
    return Tried(groups)


def test_an_owner_whose_group_cannot_be_found_does_not_start(tried: Tried) -> None:
    pod = tried.pod(GUARANTEED, "db")
    now(tried.node.resync([pod], []))
    container = tried.container(pod, 1000, Phase.CREATED)
    assert now(tried.node.arrive(container))
    with pytest.raises(ApplyError, match="its cgroup cannot be found"):
        tried.node.verify(container, has_group=True)
    tried.run(pod)
    tried.node.verify(container, has_group=True)


def test_a_guaranteed_pod_that_no_source_has_reported_leaves_an_owners_cpus_too(tried: Tried) -> None:
    stranger = tried.run(tried.pod(GUARANTEED, "stranger"))
    pod = tried.pod(GUARANTEED, "db")
    tried.roster.know_pod(pod)  # as a runtime does that never tells of what runs already
    cpus = now(tried.node.arrive(tried.container(pod, 1000, Phase.CREATED)))
    assert cpus is not None
    assert tried.groups.host.allowed(stranger) == {str(ALL - cpus)}


def test_what_cannot_be_applied_does_not_keep_a_runtime_from_connecting(tried: Tried) -> None:
    def refuse(*_: object, **__: object) -> tuple[GroupSetting, ...]:
        raise GroupError("no")

    tried.groups.groups.set_pool = refuse  # type: ignore[method-assign]  # a kernel that refuses
    assert now(tried.node.resync([tried.pod(BURSTABLE, "web")], [])) == []
    assert "reconcile-failed" in tried.whats()


def test_what_could_not_be_released_is_released_later(tried: Tried) -> None:
    pod = tried.pod(GUARANTEED, "db")
    now(tried.node.resync([pod], []))
    cpus = now(tried.node.arrive(tried.container(pod, 1000, Phase.CREATED)))
    assert cpus is not None
    real = tried.groups.groups.set_pool

    def refuse(*_: object, **__: object) -> tuple[GroupSetting, ...]:
        raise GroupError("no")

    tried.groups.groups.set_pool = refuse  # type: ignore[method-assign]  # a kernel that refuses
    now(tried.node.gone(pod.id))
    assert "not-released" in tried.whats()
    assert tried.manager.state.exclusive == cpus
    tried.groups.groups.set_pool = real  # type: ignore[method-assign]
    now(tried.node.settle())
    assert not tried.manager.state.exclusive


def test_a_quota_that_another_program_gives_an_exclusive_container_is_lifted(tried: Tried) -> None:
    pod = tried.pod(GUARANTEED, "db")
    now(tried.node.resync([pod], []))
    now(tried.node.arrive(tried.container(pod, 1000, Phase.CREATED)))
    tried.run(pod)
    tried.node.verify(tried.container(pod, 1000, Phase.RUNNING))
    parent = tried.groups.groups.tree.paths.pod(pod.cgroup_parent)
    for limited in (parent / "app", parent):
        tried.groups.limit(limited, 50_000)
        (found,) = tried.manager.reconcile()
        assert (found.container, found.cause) == (ContainerRef(PodUID(pod.uid), "app"), Cause.LIMIT)
        assert tried.groups.groups.quota(limited) == Quota(None)
        assert tried.manager.reconcile() == []


class Listing:
    """A CRI runtime that lists what it is given."""

    def __init__(self) -> None:
        self.known: tuple[list[RuntimePod], list[RuntimeContainer]] = ([], [])

    async def pods(self) -> list[RuntimePod]:
        return self.known[0]

    async def containers(self) -> list[RuntimeContainer]:
        return self.known[1]


def test_a_pod_that_a_listing_has_missed_once_keeps_its_cpus(tried: Tried) -> None:
    pod = tried.pod(GUARANTEED, "db")
    now(tried.node.resync([pod], []))
    cpus = now(tried.node.arrive(tried.container(pod, 1000, Phase.CREATED)))

    async def look(times: int) -> CPUSet:
        follower = CRISource(tried.node, cast("CRIClient", Listing()), tried.bus)
        follower._first = False  # noqa: SLF001 - as beside NRI
        for _ in range(times):
            await follower.look(patiently=True)
        return tried.manager.state.exclusive

    assert asyncio.run(look(1)) == cpus
    assert not asyncio.run(look(2))


class SlowSystemd:
    """A systemd that takes its time."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    async def keep(self, settings: Iterable[GroupSetting]) -> tuple[str, ...]:
        found = list(settings)
        await asyncio.sleep(0.02 / (1 + len(self.kept)))  # the first one longest
        self.kept.update({f"{setting.group}/{setting.file}": setting.value for setting in found})
        return ()


def test_systemd_is_told_the_newest_last(groups: Node) -> None:
    systemd = SlowSystemd()
    tried = Tried(groups, cast("Systemd", systemd))

    async def change() -> None:
        pod = tried.pod(GUARANTEED, "db", sandbox=False)
        tried.roster.know_pod(pod)
        for _ in range(3):
            await tried.node.arrive(tried.container(pod, 1000, Phase.CREATED))
            await asyncio.sleep(0)
            await tried.node.gone(pod.id)
            tried.roster.know_pod(pod)
        record = tried.applier._systemd  # noqa: SLF001 - the last one tells all that there is
        if record is not None and record._telling is not None:  # noqa: SLF001
            await record._telling  # noqa: SLF001

    asyncio.run(change())
    for name, value in systemd.kept.items():
        if name.endswith("cpuset.cpus"):
            assert value == str(tried.manager.state.shared)


def test_a_read_only_node_refuses_no_container(groups: Node) -> None:
    tried = Tried(groups)
    tried.node.read_only = True
    pod = tried.pod(GUARANTEED, "db")._replace(annotations={"pinfold.dev/movable": "perhaps"})
    tried.roster.know_pod(pod)
    assert now(tried.node.arrive(tried.container(pod, 1000))) is None
    tried.node.read_only = False
    with pytest.raises(PinfoldError, match="neither true nor false"):
        now(tried.node.arrive(tried.container(pod, 1000)))


# -- in a pod: a PID namespace of pinfold's own, and a systemd that is not reached


def test_a_pid_of_the_host_that_another_process_has_here_does_not_lead_to_that_processs_group(tried: Tried) -> None:
    other, pod = tried.pod(GUARANTEED, "other"), tried.pod(GUARANTEED, "db")
    told = tried.container(pod, 1000)._replace(cgroups_path="", pid=tried.run(other))
    now(tried.node.resync([pod, other], [told]))
    places = PodPlaces(tried.groups.groups, tried.roster, asked_first=True)
    assert places.group(told) is None
    assert places.group(told._replace(id="app")) is not None


def test_the_age_of_a_container_is_not_that_of_another_process_with_the_same_pid(tmp_path: Path) -> None:
    told = RuntimeContainer("c0ffee", "pod", "app", Phase.RUNNING, pid=os.getpid())
    assert age(told) == 0.0
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cgroup").write_text("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-c0ffee.scope/inner\n")
    assert Procfs(tmp_path).is_in_group(7, "c0ffee")
    assert not Procfs(tmp_path).is_in_group(8, "c0ffee")


@pytest.mark.parametrize(("naming", "is_told"), [("systemd", True), ("cgroupfs", False)])
def test_units_of_a_systemd_that_is_not_reached_are_told_as_a_weaker_guarantee(naming: str, *, is_told: bool) -> None:
    groups = Node("test", naming, host("simulated-v2"))
    assert any("systemd" in reason for reason in Tried(groups).applier.weaker) is is_told
    assert not any("systemd" in reason for reason in Tried(groups, Systemd("true")).applier.weaker)
    groups.end()


@pytest.mark.parametrize("naming", ["systemd", "cgroupfs"])
def test_the_group_below_a_cgroup_root_is_found_as_its_driver_has_named_it(naming: str) -> None:
    groups = Node(f"pinfold-test-{uuid.uuid4().hex[:12]}", naming, host("kernel"))
    try:
        assert pod_groups(f"/{groups.name}").tree.kubepods() == groups.kubepods
    finally:
        groups.end()
