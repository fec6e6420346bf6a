"""Watch-only mode beside a kubelet with the static policy, with a scripted NRI runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import PodUID
from pinfold.core.snapshot import Figures
from pinfold.core.state import State
from pinfold.formats.kubelet.checkpoint import format_checkpoint
from pinfold.manager.sources.cri import CRISource
from pinfold.manager.sources.nri import NRISource
from pinfold.manager.views import Viewer
from pinfold.manager.watching import Watching, give_way
from pinfold.node.kubeletstate import FILE
from pinfold.runtimes.cri.client import CRIClient
from pinfold.runtimes.nri.answers import Answers
from pinfold.runtimes.simulated.record import Spec
from tests.unit.manager.test_scripted_node import Pinfold
from tests.unit.runtimes.simulated.scripts import Node, burstable, guaranteed, play

if TYPE_CHECKING:
    from pathlib import Path

ONLINE = CPUSet.parse("0-7")


class Kubelet:
    """A kubelet with the static policy: it writes its state file, and sets CPUs through the runtime."""

    def __init__(self, node: Node, directory: Path) -> None:
        self._node = node
        self.file = directory / FILE

    async def assign(self, **cpus: str) -> None:
        """Give the pods with these names these CPUs, and all others the rest."""
        own = {PodUID(f"u-{name}"): {"app": CPUSet.parse(text)} for name, text in cpus.items()}
        state = State(ONLINE - State(ONLINE, own).exclusive, own)
        new = self.file.with_suffix(".new")
        new.write_text(format_checkpoint("static", state))
        new.replace(self.file)
        for container in self._node.runtime.record.containers.values():
            uid = self._node.runtime.record.sandboxes[container.sandbox].pod.uid
            given = own.get(uid, {}).get("app", state.shared)
            await self._node.runtime.update_container(container.id, Spec(cpus=str(given)))


def shown(pinfold: Pinfold) -> dict[str, tuple[bool, str, str]]:
    """Return of each container what API, page and CLI show: exclusive or not, its CPUs, and those of its cgroup."""
    views = Viewer(pinfold.node, {}, {"connected"}, Figures)(closely=True).containers
    return {view.pod: (view.exclusive, str(view.cpus), view.allowed) for view in views}


def test_watch_only_shows_the_kubelets_assignments_and_what_the_cgroups_have(tmp_path: Path) -> None:
    async def script(node: Node) -> None:
        pinfold, kubelet = Pinfold(node, "nri", read_only=True), Kubelet(node, tmp_path)
        watching = Watching(pinfold.node, tmp_path, pinfold.bus)
        await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        for pod in (burstable(), guaranteed()):
            await node.runtime.pods.run(pod)
        await kubelet.assign(db="5-6")
        await watching.look()
        assert shown(pinfold) == {"web": (False, "0-4,7", "0-4,7"), "db": (True, "5-6", "5-6")}
        seen = Viewer(pinfold.node, {}, {"connected"}, Figures)()
        assert seen.about["read_only"] is True
        assert (seen.pools()["exclusive"], seen.pools()["shared"]) == ("5-6", "0-4,7")
        assert pinfold.manager.name(PodUID("u-db")).name == "db"

        other = guaranteed("cache")
        await node.runtime.pods.run(other)
        await kubelet.assign(db="5-6", cache="1-2")
        await watching.look()
        assert shown(pinfold)["cache"] == (True, "1-2", "1-2")
        # Another program moves the container: the assignment and the cgroup differ, and both are shown.
        await node.runtime.update_container(node.runtime.record.find("db", "app").id, Spec(cpus="3"))
        assert shown(pinfold)["db"] == (True, "5-6", "3")

    play(script)


def test_watch_only_shows_no_assignments_and_says_why_once_when_the_kubelets_file_cannot_be_read(
    tmp_path: Path,
) -> None:
    async def script(node: Node) -> None:
        pinfold, kubelet = Pinfold(node, "nri", read_only=True), Kubelet(node, tmp_path)
        watching = Watching(pinfold.node, tmp_path, pinfold.bus)
        await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        await node.runtime.pods.run(guaranteed())
        await kubelet.assign(db="5-6")
        await watching.look()
        kubelet.file.write_text("{}")
        for _ in range(2):
            await watching.look()
        assert shown(pinfold) == {"db": (False, "0-7", "5-6")}
        (told,) = pinfold.told("warning")
        assert str(told.fields["text"]).startswith(f"{kubelet.file}: ")
        kubelet.file.unlink()
        await watching.look()
        assert not pinfold.manager.state.exclusive

    play(script)


@pytest.mark.parametrize("nested", [True, False], ids=["cgroup v1", "cgroup v2"])
@pytest.mark.parametrize("source", ["nri", "cri"])
def test_a_daemon_that_gives_way_lets_the_kubelet_assign_and_shows_it(
    tmp_path: Path, source: str, *, nested: bool
) -> None:
    async def script(node: Node) -> None:
        pinfold, kubelet = Pinfold(node, source), Kubelet(node, tmp_path)
        watching = Watching(pinfold.node, tmp_path, pinfold.bus)
        await node.runtime.cri.listen(str(tmp_path / "cri.sock"))
        async with CRIClient(str(tmp_path / "cri.sock")) as client:
            cri = CRISource(pinfold.node, client, pinfold.bus)
            if source == "nri":
                await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
            for pod in (burstable(), guaranteed()):
                await node.runtime.pods.run(pod)
            await cri.look()
            await watching.look()
            assert shown(pinfold) == {"web": (False, "0,3-7", "0,3-7"), "db": (True, "1-2", "1-2")}
            await give_way(pinfold.node, pinfold.applier, pinfold.bus)
            assert pinfold.told("not-widened") == []
            # An owner stays where it is until the kubelet moves it.
            assert pinfold.cpus(node.runtime.record.find("db", "app")) == "1-2"
            await kubelet.assign(web="1-3", db="4-6")
            await watching.look()
            await cri.look()
            await pinfold.node.settle()
            pinfold.manager.reconcile()
        assert shown(pinfold) == {"web": (True, "1-3", "1-3"), "db": (True, "4-6", "4-6")}

    play(script, nested=nested)
