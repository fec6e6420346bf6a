"""Simulated groups do what the groups of this kernel do: the same writes, moves and removals, with the same outcome."""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.podgroups.settings import CPUS
from tests.contract.kubenode import ALL, Host, Memory, host
from tests.contract.workload import IDLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FEW = list(ALL)[:3]  # so that sets are often empty, disjoint or equal
LEAVES = ("a/x", "a/y", "b")
GROUPS = ("", "a", *LEAVES)
STEPS = 100


class Tried:
    """Five groups on one host, with a process in one of them."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.top = host.driver.hierarchy.root / f"pinfold-test-{uuid.uuid4().hex[:12]}"
        for name in GROUPS:
            host.make(self.top / name)
        self.pid = host.start(IDLE)
        host.put(self.pid, self.top / "b")

    def outcome(self, action: Callable[[Tried], object]) -> tuple[str, str]:
        """Return the errno's name and the meaning of the refusal, or nothing."""
        try:
            action(self)
        except CgroupError as error:
            return error.name, error.meaning
        return "", ""

    def look(self) -> dict[str, tuple[str, str, int]]:
        """Return of each group its own CPUs, those it can use, and how many processes are in it."""
        driver = self.host.driver
        return {
            name: (
                str(driver.own(group, CPUS)),
                str(driver.effective(group, CPUS)),
                len(driver.hierarchy.members(group)),
            )
            for name in GROUPS
            for group in [self.top / name]
        }

    def end(self) -> None:
        """Leave nothing behind."""
        self.host.end()
        for name in reversed(GROUPS):
            self.host.remove(self.top / name)


@pytest.fixture
def kernel() -> Iterator[Tried]:
    tried = Tried(host("kernel"))
    yield tried
    tried.end()


def action(chance: random.Random) -> Callable[[Tried], object]:
    """Return a write of CPUs, more often than not; else a move of the process, or a removal that is refused."""
    name = chance.choice(GROUPS)
    cpus = CPUSet.from_cpus(cpu for cpu in FEW if chance.random() < 0.6)
    leaf = chance.choice(LEAVES)
    what = chance.random()
    if what < 0.8:
        return lambda tried: tried.host.driver.set_own(tried.top / name, CPUS, cpus)
    if what < 0.9:
        return lambda tried: tried.host.put(tried.pid, tried.top / leaf)
    if what < 0.95:
        return lambda tried: tried.host.remove(tried.top / "a")
    return lambda tried: tried.host.driver.set_own(tried.top / name, CPUS, CPUSet.of(60_000))


@pytest.mark.parametrize("seed", range(3))
def test_simulated_groups_do_what_those_of_the_kernel_do(kernel: Tried, seed: int) -> None:
    simulated = Tried(Memory(ALL, nested=kernel.host.driver.nested))
    chance = random.Random(seed)  # noqa: S311 - a test that can be repeated
    assert kernel.look() == simulated.look()
    for _ in range(STEPS):
        step = action(chance)
        assert kernel.outcome(step) == simulated.outcome(step)
        assert kernel.look() == simulated.look()
