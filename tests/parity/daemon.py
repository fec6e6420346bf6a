"""Replays cases of admit, static and podlevel through the daemon's own path, from CreateContainer to the reply.

    python -m tests.parity.daemon DIR [EVERY]

A scripted runtime speaks NRI with the plugin, one CreateContainer after the other; another source knows the pods whole,
so each is decided when its first container comes. Only steps that give an affinity of their own cannot come this way.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pinfold.core.admission import NO_HINT, Admitter, Scope
from pinfold.core.allocators.order import Fidelity
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.state import State
from pinfold.core.topologymanager.manager import Merged, TopologyManager
from pinfold.core.topologymanager.options import TopologyPolicy
from pinfold.core.trace import Defect
from pinfold.errors import ConfigError, StateError
from pinfold.manager.manager import Manager, Rules
from pinfold.manager.node import Node as PinfoldNode
from pinfold.manager.sources.nri import NRISource
from pinfold.manager.telling.bus import Bus
from pinfold.manager.telling.telling import Telling
from pinfold.node.podgroups.groups import PodGroups
from pinfold.node.podgroups.simulated import Simulated
from pinfold.runtimes.nri import plugin as nriplugin
from pinfold.runtimes.nri.answers import Answers
from pinfold.runtimes.podplaces import PodPlaces
from pinfold.runtimes.pods import PodApplier
from pinfold.runtimes.roster import Roster
from pinfold.runtimes.simulated.nri.peer import PluginError
from pinfold.runtimes.simulated.runtime import ScriptedRuntime
from pinfold.runtimes.simulated.settings import RuntimeSettings
from tests.parity import admit, static
from tests.parity.cases import pod_from_vector
from tests.parity.node import Case, Machines, Node, Outcome, differences, read_cases, state_data
from tests.parity.replay import Tally, files_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pinfold.core.pods.pod import Pod
    from pinfold.core.topologymanager.merge import Providers
    from pinfold.core.topologymanager.others import OtherHints

FAMILIES = ("admit", "static", "podlevel")


def can_come(case: Case) -> bool:
    """Return whether all steps of a case can come from a runtime: a runtime gives no affinity."""
    return case.get("policy", "static") == "static" and not any(step.get("affinity") for step in case["steps"])


class NoAffinity(TopologyManager):
    """A Topology Manager that lets everything in and asks for no NUMA node, as steps without an affinity do."""

    def merge(self, providers: Providers) -> Merged:  # noqa: ARG002 - as its own
        """Return no NUMA node."""
        return Merged(admit=True, hint=NO_HINT)


def replay(case: Case, machines: Machines, fidelity: Fidelity, *, laws_only: bool = False) -> Outcome:
    """Return the first step at which the daemon differs from the reference."""
    exact = admit.replay if "tm" in case else static.replay
    defects = exact(case, machines, fidelity, laws_only=laws_only).defects
    try:
        node = Node(case, machines.prepared(case["topology"], fidelity))
        admitter = _admitter(case, node, fidelity)
        node.policy.start(State.new())
    except (ConfigError, StateError):
        return Outcome(None, defects)  # it does not start: the other replays compare the errors
    # differs: the daemon keeps no CPUs for a pod that it has refused, in either fidelity.
    laws_only |= Defect.REFUSED_POD_KEEPS_CPUS in defects
    return Outcome(asyncio.run(_play(case, node, admitter, laws_only=laws_only)), defects)


def _admitter(case: Case, node: Node, fidelity: Fidelity) -> Admitter:
    if "tm" in case:
        return Admitter(node.policy, admit.manager_of(case["tm"]), Scope(case["tm"]["scope"]), fidelity)
    return Admitter(node.policy, NoAffinity(TopologyPolicy.BEST_EFFORT, 0), Scope.CONTAINER, fidelity)


async def _play(case: Case, node: Node, admitter: Admitter, *, laws_only: bool) -> str | None:
    daemon = Daemon(node, admitter)
    try:
        for number, step in enumerate(case["steps"]):
            async with asyncio.timeout(60):
                unlike = await daemon.take(step, laws_only=laws_only)
            if unlike:
                return f"step {number} ({step['op']}): {unlike}"
    finally:
        await daemon.close()
    return None


class _Memory:
    """A State that is kept in memory."""

    async def save(self, state: State) -> None:
        """Keep nothing: a restart gets the State from the Manager."""


class Daemon:
    """The daemon half of pinfold over NRI, and the runtime that asks it."""

    def __init__(self, node: Node, admitter: Admitter) -> None:
        self._node = node
        self._admitter = admitter
        settings = RuntimeSettings(request_timeout=60.0)  # the machine may be busy
        self._runtime = ScriptedRuntime(Simulated(node.topology.online), settings=settings)
        self._known: dict[str, Pod] = {}
        self._devices: dict[str, OtherHints] = {}
        self._sandboxes: dict[str, str] = {}
        self._plugin: asyncio.Task[None] | None = None
        self._state = node.policy.start(State.new())
        self._is_spoilt = False
        """Whether the reference has shared CPUs that a pod still has, or that are reserved."""

    async def _open(self) -> None:
        """Start the daemon with the State of before."""
        bus = self._bus = Bus(lambda: 0.0)
        roster = Roster(lambda pod: self._known.get(pod.uid))
        roster.held = dict(self._devices)
        self._roster = roster
        places = PodPlaces(PodGroups(self._runtime.groups), roster, asked_first=True)
        rules = Rules(self._admitter, self._node.topology, _Memory())
        self._manager = Manager(rules, self._state, PodApplier("nri", places), roster, Telling(bus))
        node = PinfoldNode(self._manager, roster, bus)
        node.sight = places
        source = NRISource(node, bus)
        plugin = nriplugin.Plugin(Answers(source), changed=source.linked)
        streams = await asyncio.open_unix_connection(sock=await self._runtime.nri.attach())
        self._plugin = asyncio.create_task(plugin.run(*streams))
        await self._runtime.nri.until(1)

    async def close(self) -> None:
        """End the daemon."""
        if self._plugin is not None:
            self._state = self._manager.state.restarted()
            self._plugin.cancel()
            await asyncio.gather(self._plugin, return_exceptions=True)
            self._plugin = None
            await self._runtime.nri.until(0)

    async def take(self, step: Case, *, laws_only: bool) -> str | None:
        """Take one step, and return how what follows differs from the reference."""
        if self._plugin is None:
            await self._open()
        refusal: Case | None = None
        match step["op"]:
            case "admit" | "admit_pod":
                refusal = await self._admit(step)
            case "remove":
                await self._remove(PodUID(step["pod_uid"]), step["container"])
            case "remove_pod":
                await self._remove_pod(PodUID(step["pod_uid"]))
            case "restart" if not (step.get("expect") or {}).get("error"):
                await self.close()
                await self._open()
        if broken := self._node.broken(self._manager.state):
            return "; ".join(broken) if self._admitter.fidelity == "pinfold" else None
        return None if laws_only or self._is_spoilt or "expect" not in step else self._compare(step, refusal)

    async def _admit(self, step: Case) -> Case | None:
        """Let the runtime create a pod's containers; return the refusal that one got."""
        pod = pod_from_vector(step["pod"])
        self._devices[pod.uid] = self._roster.held[pod.uid] = admit.devices_of(step)
        if isinstance(self._admitter.manager, NoAffinity):  # what a step was recorded of: a container, or a pod
            scope = Scope.POD if step["op"] == "admit_pod" else Scope.CONTAINER
            self._manager.rules = self._manager.rules._replace(admitter=self._admitter._replace(scope=scope))
        refusal = await self._create(pod)
        left = (step.get("expect") or {}).get("assignments", {}).get(pod.uid) if refusal is not None else None
        if left and step["op"] == "admit" and "admit" not in step["expect"]:
            # The reference keeps what earlier containers of a refused pod have got, until they are removed. The
            # daemon does not, so for what follows they come as a pod of their own.
            await self._create(pod.only(left))
        return refusal

    async def _create(self, pod: Pod) -> Case | None:
        self._known[pod.uid] = pod
        is_new = pod.uid not in self._sandboxes
        if is_new:
            self._sandboxes[pod.uid] = (await self._runtime.run_pod(pod)).id
        sandbox = self._runtime.record.sandbox(self._sandboxes[pod.uid])
        self._runtime.record.sandboxes[sandbox.id] = replace(sandbox, pod=pod)
        for container in pod.all_containers:
            try:
                await self._runtime.create_container(self._sandboxes[pod.uid], container.name)
            except PluginError:
                if is_new:  # otherwise its earlier containers run on
                    await self._remove_pod(pod.uid)
                told = next(entry for entry in reversed(self._bus.after(0)) if entry.what == "refused")
                return {"reason": told.fields["reason"], "message": told.fields["message"]}
        return None

    async def _remove(self, uid: PodUID, name: str) -> None:
        """Take back the CPUs of one container; the daemon itself does that for whole pods only."""
        if uid in self._sandboxes:
            for container in self._runtime.record.containers_of(self._sandboxes[uid]):
                if container.name == name:
                    await self._runtime.remove_container(container.id)
        await self._manager.release([ContainerRef(uid, name)])
        if uid not in self._manager.state.assignments:
            await self._remove_pod(uid)

    async def _remove_pod(self, uid: PodUID) -> None:
        if uid in self._sandboxes:
            await self._runtime.remove_pod(self._sandboxes.pop(uid))

    def _compare(self, step: Case, refusal: Case | None) -> str | None:
        expected = step["expect"]
        error = expected.get("error")
        if "admit" in expected:
            error = None if expected["admit"] else expected
        if (error is None) != (refusal is None):
            return f"expected {error}, found {refusal}"
        if error and refusal and not _same_refusal(error, refusal):
            return f"refused with {refusal} instead of {error}"
        held, want = state_data(self._manager.state), dict(expected["assignments"])
        if refusal is not None and "admit" in expected:
            stale = want.pop(step["pod"]["uid"], {})  # which the reference collects before its next decision
            # differs: it shares CPUs then that were another pod's or reserved; the daemon never gave them to this pod.
            shared = CPUSet.parse(held["default"])
            self._is_spoilt |= any(not CPUSet.parse(cpus) <= shared for cpus in stale.values())
            return differences({"assignments": held["assignments"]}, {"assignments": want})
        return differences(held, {"assignments": want, "default": expected["default"]})


def _same_refusal(expected: Case, found: Case) -> bool:
    texts = [f"Allocate failed due to {text}, which is unexpected" for text in expected.get("error_any_of", ())]
    return found["reason"] == expected["reason"] and found["message"] in {expected["message"], *texts}


def replay_some(family: str, cases: Iterable[Case], machines: Machines, every: int = 1) -> list[Tally]:
    """Return the tallies of the cases that can come from a runtime: all of them, or each of so many."""
    failures: dict[Fidelity, list[tuple[Case, str]]] = {Fidelity.KUBELET: [], Fidelity.PINFOLD: []}
    count = defects = 0
    for case in islice(filter(can_come, cases), 0, None, every):
        count += 1
        exact = replay(case, machines, Fidelity.KUBELET)
        sound = replay(case, machines, Fidelity.PINFOLD, laws_only=bool(exact.defects))
        defects += bool(exact.defects)
        for fidelity, outcome in zip(failures, (exact, sound), strict=True):
            if outcome.difference is not None:
                failures[fidelity].append((case, outcome.difference))
    name = f"{family} through the daemon"
    return [Tally(name, fidelity, count - len(failed), failed, defects) for fidelity, failed in failures.items()]


def main(arguments: list[str]) -> int:
    """Replay a vectors directory through the daemon: every case, or every so many; print what came of it."""
    directory, every = Path(arguments[0]), int(arguments[1]) if arguments[1:] else 1
    machines = Machines(json.loads((directory / "topologies.json").read_text()))
    failed = 0
    for family in FAMILIES:
        for tally in replay_some(family, read_cases(files_in(directory)[family]), machines, every):
            failed += len(tally.failures)
            print(tally, flush=True)  # noqa: T201 - a command
            for case, difference in tally.failures[:3]:
                print(f"  {case['id']}: {difference}")  # noqa: T201 - a command
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
