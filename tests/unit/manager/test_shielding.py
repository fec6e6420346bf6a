"""The Manager and the shield: the host leaves before an owner gets its CPUs, and comes back after it has gone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.shield import KeptCPUs
from pinfold.manager.shielding import Shielding
from pinfold.runtimes.base import ApplyError
from tests.unit.manager.test_manager import MACHINE, ONE, TWO, Stand
from tests.unit.node.shield.fake import FakeHost

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.core.pods.pod import Pod
    from pinfold.core.reconcile import Wanted

ALL = "0-7"


class Shielded:
    """A Manager on the simulated machine, with a host of files."""

    def __init__(self, root: Path, *, on: bool = True) -> None:
        self.stand = Stand()
        self.manager = self.stand.manager
        self.host = FakeHost(root)
        self.host.members = [1]
        for number in (24, 25):
            self.host.write(f"proc/irq/{number}/smp_affinity_list", ALL)
        self.restart(on=on)

    def restart(self, *, on: bool) -> None:
        """Go on with another daemon's shield."""
        self.manager.shielding = Shielding(self.manager.telling, self.host.shield(), on=on)

    @property
    def irq(self) -> str:
        return self.host.read("proc/irq/24/smp_affinity_list")

    def exclusive(self, pod: Pod) -> CPUSet:
        return CPUSet(sum(cpus.mask for _, cpus in self.manager.state.of_pod(pod.uid)))

    def rest(self) -> str:
        return str(MACHINE.online - self.manager.state.exclusive)

    def told(self, what: str) -> list[dict[str, object]]:
        return [entry.data() for entry in self.stand.bus.after(0) if entry.what == what]


@pytest.fixture
def node(tmp_path: Path) -> Shielded:
    return Shielded(tmp_path)


def test_the_host_has_left_before_the_cpus_are_applied(node: Shielded) -> None:
    seen: list[str] = []
    apply = node.stand.applier.apply

    def applied(want: Wanted) -> None:
        seen.append(node.irq)
        apply(want)

    node.stand.applier.apply = applied  # type: ignore[method-assign]  # watched
    asyncio.run(node.manager.admit(ONE))
    assert seen == [node.rest()] == [node.irq]


def test_the_host_comes_back_after_the_pool_has_grown(node: Shielded) -> None:
    async def play() -> None:
        await node.manager.admit(ONE)
        await node.manager.admit(TWO)
        assert node.irq == node.rest()
        await node.manager.release([ref for ref, _ in node.manager.state.of_pod(ONE.uid)])
        assert node.irq == node.rest()
        await node.manager.release([ref for ref, _ in node.manager.state.of_pod(TWO.uid)])

    asyncio.run(play())
    assert node.irq == ALL
    assert [entry["cpus"] for entry in node.told("shielded")][-1] == "none"


def test_a_change_that_fails_gives_the_cpus_back(node: Shielded) -> None:
    node.stand.applier.late = True
    with pytest.raises(ApplyError):
        asyncio.run(node.manager.admit(ONE))
    assert node.irq == ALL


def test_without_the_setting_nothing_moves(tmp_path: Path) -> None:
    node = Shielded(tmp_path, on=False)
    asyncio.run(node.manager.admit(ONE))
    assert node.irq == ALL
    assert not (node.host.state_dir / "shield.json").exists()


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
def test_a_restart_finishes_or_undoes_what_a_killed_daemon_has_moved(node: Shielded, *, on: bool) -> None:
    async def play() -> None:
        await node.manager.admit(ONE)
        node.host.write("proc/irq/25/smp_affinity_list", ALL)
        node.restart(on=on)
        await node.manager.start()

    asyncio.run(play())
    assert node.irq == (node.rest() if on else ALL)
    assert node.host.read("proc/irq/25/smp_affinity_list") == node.irq


def test_the_end_gives_everything_back(node: Shielded) -> None:
    async def play() -> None:
        await node.manager.admit(ONE)
        await node.manager.shielding.end(MACHINE.online)

    asyncio.run(play())
    assert node.irq == ALL
    assert node.manager.shielding.kept == EMPTY


def test_an_irq_that_another_program_moves_back_is_repaired_told_and_then_fought_less(node: Shielded) -> None:
    async def play() -> list[str]:
        await node.manager.admit(ONE)
        found = []
        for _ in range(8):
            node.host.write("proc/irq/24/smp_affinity_list", ALL)
            await node.manager.reshield()
            found.append(node.irq)
        return found

    found = asyncio.run(play())
    assert found == [node.rest()] * 5 + [ALL, node.rest(), ALL]
    assert [entry["pool"] for entry in node.told("drift")] == ["host"] * 6
    assert [(entry["cause"], entry["times"]) for entry in node.told("fight")] == [("shield", 5)]


def test_a_newcomer_is_moved_without_a_word_of_drift(node: Shielded) -> None:
    async def play() -> None:
        await node.manager.admit(ONE)
        node.host.write("proc/irq/99/smp_affinity_list", ALL)
        await node.manager.reshield()

    asyncio.run(play())
    assert node.host.read("proc/irq/99/smp_affinity_list") == node.rest()
    assert not node.told("drift")


def test_a_full_disk_leaves_the_host_alone_and_the_pod_runs(node: Shielded) -> None:
    (node.host.state_dir / "shield.json").mkdir()
    asyncio.run(node.manager.admit(ONE))
    assert node.irq == ALL
    assert "is a directory" in str(node.told("not-shielded")[0]["why"])
    assert node.exclusive(ONE)


def test_a_check_that_cannot_be_made_is_reported_and_leaves_the_rest_alone(
    node: Shielded, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    async def play() -> None:
        await node.manager.admit(ONE)
        monkeypatch.setattr(asyncio, "to_thread", no_thread)
        await node.manager.reshield()
        await node.manager.reshield()

    asyncio.run(play())
    assert [entry["why"] for entry in node.told("not-shielded")] == ["can't start new thread"]


def test_without_a_host_nothing_can_be_moved() -> None:
    stand = Stand()
    assert not stand.manager.shielding.is_possible
    assert stand.manager.shielding.refused() == []
    asyncio.run(stand.manager.shielding.settle(KeptCPUs(CPUSet.of(1), MACHINE.online)))
