"""Viewer: a Snapshot shows containers as decided and as the kernel has them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.snapshot import Figures
from pinfold.formats.pods.runtime import Phase
from pinfold.manager.sources.nri import NRISource
from pinfold.manager.views import Viewer
from pinfold.runtimes.nri.answers import Answers
from pinfold.runtimes.simulated.nri.peer import PluginError
from tests.unit.manager.sources.test_supervisor import APP, REF, Clock, Host, on_a_clock
from tests.unit.manager.test_scripted_node import Pinfold
from tests.unit.runtimes.simulated.scripts import Node, burstable, exactly, guaranteed, play

if TYPE_CHECKING:
    from pathlib import Path

ABOUT = {"pid": 1}


def test_of_plain_processes_every_container_is_shown(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        look = Viewer(host.here, ABOUT, {"connected"}, lambda: Figures(journal_drops=3))
        host.here.linked("connected", "nothing")
        await host.loop.submit(APP)
        await clock.leap(0)
        host.node.applier.containers[REF] = CPUSet.of(7)
        seen = look(closely=True)
        assert (seen.connected, seen.figures.journal_drops, seen.runtime) == (True, 3, "simulated")
        assert seen.about == {**ABOUT, "read_only": False}
        (view,) = seen.containers
        assert (view.pod, view.container, view.kind, view.state) == ("one", "app", "pod", Phase.RUNNING)
        assert (view.exclusive, view.cpus, view.allowed) == (True, host.node.manager.state.exclusive, "7")
        host.launcher.end(REF, 3)
        await clock.leap(0)
        (view,) = look(closely=True).containers
        assert (view.state, view.code, view.pid) == (Phase.BACKING_OFF, 3, None)
        await host.loop.delete(APP.name)

    on_a_clock(tmp_path, scenario)


def test_a_quick_look_shows_pods_but_no_containers(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        await host.loop.submit(APP)
        seen = Viewer(host.here, ABOUT, {"connected"}, Figures)()
        assert [pod.name for pod in seen.pods] == ["one"]
        assert (list(seen.containers), seen.connected) == ([], False)
        await host.loop.delete(APP.name)

    on_a_clock(tmp_path, scenario)


def test_of_a_container_runtime_only_containers_that_run_are_shown() -> None:
    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "nri")
        await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        for pod in (burstable(), guaranteed()):
            await node.runtime.pods.run(pod)
        look = Viewer(pinfold.node, ABOUT, (), Figures)
        shown = {view.pod: (view.kind, view.exclusive, view.allowed) for view in look(closely=True).containers}
        assert shown == {"web": ("nri", False, "0,3-7"), "db": ("nri", True, "1-2")}
        await node.runtime.stop_container(node.runtime.record.find("web", "app").id)
        assert [view.pod for view in look(closely=True).containers] == ["db"]

    play(script)


def test_a_refused_pod_is_shown_also_when_another_container_of_it_runs() -> None:
    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "nri")
        await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        look = Viewer(pinfold.node, ABOUT, (), Figures)
        first = await node.runtime.pods.run(guaranteed("first", milli=7000))
        pod = replace(guaranteed("second"), containers=(exactly("app", 2000), exactly("side", 500)))
        sandbox = await node.runtime.run_pod(pod)
        with pytest.raises(PluginError):
            await node.runtime.create_container(sandbox.id, "app")
        await node.runtime.pods.run_container(sandbox.id, "side")
        assert [pod.name for pod, _ in look().refused.values()] == ["second"]
        await node.runtime.remove_pod(first.id)
        await node.runtime.create_container(sandbox.id, "app")
        assert not look().refused

    play(script)


def test_a_refused_pod_is_shown_until_it_gets_in_or_leaves() -> None:
    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "nri")
        await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        look = Viewer(pinfold.node, ABOUT, (), Figures)
        first = await node.runtime.pods.run(guaranteed("first", milli=7000))
        waiting = [await node.runtime.run_pod(guaranteed(name)) for name in ("second", "third")]
        for sandbox in waiting:
            with pytest.raises(PluginError):
                await node.runtime.create_container(sandbox.id, "app")
        shown = [(pod.name, pod.qos, reason) for pod, reason in look().refused.values()]
        assert shown == [(name, "Guaranteed", "UnexpectedAdmissionError") for name in ("second", "third")]
        await node.runtime.remove_pod(first.id)
        await node.runtime.create_container(waiting[0].id, "app")
        assert [pod.name for pod, _ in look().refused.values()] == ["third"]
        await node.runtime.remove_pod(waiting[1].id)
        assert not look().refused

    play(script)
