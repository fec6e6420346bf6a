"""Laws of PodGroups over simulated groups, under the rules of v1 and of v2, looked at after every single write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.node.podgroups.groups import PodGroups
from pinfold.node.podgroups.settings import CPUS, GroupSetting
from pinfold.node.podgroups.simulated import Simulated

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ALL = CPUSet.parse("0-5")
RESERVED = CPUSet.of(0)
CONTAINERS = (
    "burstable/podb/app",
    "burstable/podb/side",
    "besteffort/pode/app",
    "podshared/app",
    "podmixed/app",
    "podmixed/helper",
    "podmixed/pause",
    "podowner/app",
    "podowner/pause",
)
INSIDE = "burstable/podb/side/made-by-the-workload"
OWNERS = ("podmixed/app", "podmixed/helper", "podowner/app")
SETS = st.sets(st.sampled_from(list(ALL - RESERVED)), max_size=3).map(CPUSet.from_cpus)


class Watched(Simulated):
    """After every write, no container can be on CPUs that belong to another (`owned`)."""

    owned: Mapping[Path, CPUSet] = {}
    containers: tuple[Path, ...] = ()

    def set_own(self, group: Path, file: str, cpus: CPUSet, known: CPUSet | None = None) -> GroupSetting:
        setting = super().set_own(group, file, cpus, known)
        self.check()
        return setting

    def check(self) -> None:
        for owner, cpus in self.owned.items():
            for container in self.containers:
                assert container == owner or not self.effective(container, CPUS) & cpus


class Node:
    """Pods of all classes with one process in each container; containers come to own CPUs, and lose them."""

    def __init__(self, earlier: Mapping[str, CPUSet], *, nested: bool) -> None:
        self.driver = Watched(ALL, nested=nested)
        self.groups = PodGroups(self.driver)
        self.kubepods = self.driver.root / "kubepods"
        self.driver.containers = tuple(self.driver.make(self.kubepods / name) for name in CONTAINERS)
        for pid, container in enumerate(self.driver.containers):
            self.driver.put(pid, container)
        for name, cpus in earlier.items():
            self.driver.set_own(self.kubepods / name, CPUS, cpus)
        self.driver.containers += (self.driver.make(self.kubepods / INSIDE),)
        self.owned: dict[Path, CPUSet] = {}
        self.share()

    @property
    def pool(self) -> CPUSet:
        return ALL - CPUSet.from_cpus(cpu for cpus in self.owned.values() for cpu in cpus)

    def share(self) -> None:
        tree = self.groups.tree
        mixed = {owner.parent for owner in self.owned}
        singles = [group for pod in mixed for group in tree.containers(pod) if group not in self.owned]
        self.groups.set_pool(self.pool, [pod for pod in tree.guaranteed() if pod not in mixed], singles)

    def give(self, owner: Path, cpus: CPUSet) -> None:
        """Let the others leave, then give the owner its CPUs, then let the others have what it had before."""
        before = self.owned.get(owner, EMPTY)
        self.driver.owned = dict(self.owned)
        self.owned[owner] = before | cpus
        self.share()
        self.driver.owned = dict(self.owned)
        self.driver.check()
        self.owned[owner] = cpus
        self.groups.set_container(owner, cpus)
        self.driver.owned = dict(self.owned)
        self.share()

    def release(self, owner: Path) -> None:
        self.owned.pop(owner, None)
        self.driver.owned = dict(self.owned)
        self.share()

    def check(self) -> None:
        for container in self.driver.containers:
            assert self.groups.cpus(container) == self.owned.get(container, self.pool)


@given(
    st.booleans(),
    st.dictionaries(st.sampled_from(CONTAINERS), SETS.filter(bool)),
    st.lists(st.tuples(st.sampled_from(OWNERS), SETS), max_size=6),
)
def test_no_write_lets_a_container_onto_the_cpus_of_another(
    nested: bool,  # noqa: FBT001 - drawn
    earlier: dict[str, CPUSet],
    changes: list[tuple[str, CPUSet]],
) -> None:
    node = Node(earlier, nested=nested)
    node.check()
    for name, wanted in changes:
        owner = node.kubepods / name
        cpus = wanted & (node.pool | node.owned.get(owner, EMPTY))
        node.give(owner, cpus) if cpus else node.release(owner)
        node.check()
