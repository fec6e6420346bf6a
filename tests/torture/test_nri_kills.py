"""A daemon over NRI killed at random instants, and at each of its calls, while a scripted runtime makes containers.

The runtime goes on without its plugin, as containerd does: containers come and go while there is no daemon.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from typing import TYPE_CHECKING, Final

import pytest

from pinfold.core.machine.cpuset import CPUSet
from tests.e2e.daemon import RESERVED, SPARE, best_kind, needs_cgroups, needs_two_cpus
from tests.e2e.kubedaemon import KubeDaemon, real
from tests.e2e.nursery import fast_starts
from tests.e2e.test_torture import Figures
from tests.needs import IN_GUEST
from tests.torture.killing import MOST, killed_at
from tests.torture.scriptednode import ScriptedNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pinfold.core.state import State

pytestmark = [pytest.mark.slow, needs_two_cpus, needs_cgroups]

ROUNDS: Final = int(os.environ.get("TORTURE_ROUNDS", "5"))
NAMES: Final = [f"p{number}" for number in range(min(SPARE, 4) + 2)]
LONGEST: Final = 1.0 if not IN_GUEST else 2.0
"""Seconds after which a daemon under churn is killed at the latest."""
AWAY: Final = 3
"""At most so many changes are made while there is no daemon."""


@pytest.fixture
def node() -> Iterator[ScriptedNode]:
    with ScriptedNode() as node:
        yield node


@pytest.fixture
def daemon(node: ScriptedNode) -> Iterator[KubeDaemon]:
    with KubeDaemon(node, "nri", "--journal-size", "1") as daemon, fast_starts(daemon):
        yield daemon


class Churn:
    """Pods that come and go until there was no daemon for a few of these changes."""

    def __init__(self, node: ScriptedNode, dice: random.Random) -> None:
        self._node = node
        self._dice = dice
        self.changes = 0
        self.killed = False

    async def run(self) -> None:
        left = self._dice.randint(0, AWAY)
        while left or not self.killed:
            await self._change(self._dice.choice(NAMES))
            self.changes += 1
            left -= self.killed and left > 0
            await asyncio.sleep(0)

    async def _change(self, name: str) -> None:
        if name in self._node.sandboxes:
            await self._node.remove_pod(name)
        else:
            await self._node.run_pod(name, self._dice.choice([0, 1]))


def answered(node: ScriptedNode, before: State) -> dict[str, CPUSet]:
    """Return the CPUs that running owners were given by a daemon, by pod; each of them is on the disk."""
    given = {}
    for one in node.running():
        container = node.runtime.record.container(one.id)
        owned = before.cpus(one.uid, one.name)  # type: ignore[arg-type]  # a UID is text
        if container.spec.shares >= 1024 and container.spec.cpus:
            assert owned == CPUSet.parse(container.spec.cpus), f"{one.pod} was given {container.spec.cpus}"
        if owned is not None:
            given[one.pod] = owned
    return given


def see_that_nothing_is_lost(daemon: KubeDaemon, node: ScriptedNode, given: dict[str, CPUSet]) -> None:
    """Check that State, kernel and runtime agree, and that owners have what they were given."""
    daemon.settled()
    for one in node.running():
        if one.pod in given:
            assert real(one.pid) == {given[one.pod]}, one
    owners = [one for one in node.running() if node.runtime.record.container(one.id).spec.shares >= 1024]
    assert len(daemon.state().exclusive) == min(SPARE, len(owners))
    here = {one.uid for one in node.running()}
    assert set(daemon.state().assignments) <= here


def test_a_daemon_over_nri_that_is_killed_at_any_instant_loses_nothing(daemon: KubeDaemon, node: ScriptedNode) -> None:
    dice = random.Random(14)  # noqa: S311 - no secret
    given, changes, ready = dict[str, CPUSet](), 0, list[float]()
    for number in range(ROUNDS):
        start = time.monotonic()
        daemon.start()
        ready.append(time.monotonic() - start)
        Figures(number, changes, ready).show_some(f"NRI, {best_kind()}")
        see_that_nothing_is_lost(daemon, node, given)
        churn = Churn(node, dice)
        churning = node.begin(churn.run())
        time.sleep(dice.uniform(0, LONGEST))
        daemon.kill()
        churn.killed = True
        churning.result(60)
        changes += churn.changes
        given = answered(node, daemon.saved())
    daemon.start()
    see_that_nothing_is_lost(daemon, node, given)
    sys.stdout.write(f"\nNRI, {best_kind()}: {Figures(ROUNDS, changes, ready)}\n")


@pytest.mark.long
@pytest.mark.parametrize("cpus", [0, 1], ids=["shares", "owns"])
def test_a_daemon_over_nri_that_is_killed_at_any_call_of_a_pods_life_loses_nothing(
    daemon: KubeDaemon, node: ScriptedNode, cpus: int
) -> None:
    """The runtime waits for no one: a pod is there after each kill, and the next daemon finds it."""

    def come_and_go() -> None:
        node.wait(node.run_pod("a", cpus))
        node.wait(node.remove_pod("a"))
        node.wait(node.run_pod("b", cpus))

    node.wait(node.run_pod("other", 0))
    for number in range(1, MOST):
        killed = killed_at(daemon, number, come_and_go)
        given = answered(node, daemon.saved())
        daemon.start()
        see_that_nothing_is_lost(daemon, node, given)
        node.wait(node.remove_pod("b"))
        daemon.settled()
        assert daemon.state().shared >= RESERVED
        daemon.kill()
        if killed.survived:
            sys.stdout.write(f"\nNRI, {best_kind()}: killed at each of {number - 1} calls\n")
            return
    pytest.fail(f"the change has made more than {MOST} calls")
