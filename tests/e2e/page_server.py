"""A simulated node behind a real server: the live page and the read-only API on values of core.

`python -m tests.e2e.page_server epyc-7303-2s` serves one to look at, on which pods come and go.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import socket
import threading
import time
import weakref
from bisect import bisect_right
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

from pinfold.core.config import Config, Reservation
from pinfold.core.events.entries import STATE, Entry, Subject
from pinfold.core.explaining.advice import advise
from pinfold.core.explaining.alignment import Ruler
from pinfold.core.explaining.explanation import alignment_counts, explain_entry
from pinfold.core.explaining.outcome import Outcome
from pinfold.core.explaining.sharing import why_shared
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.layout import layout_data
from pinfold.core.machine.presets import preset
from pinfold.core.pods.pod import Amounts, Container, ContainerRef, Pod, PodUID, Resources
from pinfold.core.snapshot import pools
from pinfold.core.topologymanager.others import WHOLE
from pinfold.node.journal.history import answer_at, answer_history, parse_question
from pinfold.node.journal.journal import Journal
from pinfold.planning.plan import start
from pinfold.serve.http.messages import HTTPError, Request, Response, ServerSentEvent
from pinfold.serve.http.server import HTTPServer
from pinfold.serve.page import Page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from pinfold.core.explaining.explanation import Explanation
    from pinfold.core.machine.topology import Topology
    from pinfold.errors import AdmissionError

T = TypeVar("T")

MEMORY: Final = 1 << 30
FOR_THE_JOURNAL: Final = ("steps", "defects", "alignment", "need", "room", "fixes")
"""What only the journal is told of a decision."""


class Known(NamedTuple):
    """A pod that was let in, and when."""

    pod: Pod
    since: float


def pod(name: str, *cpus: float, namespace: str = "default", containers: Sequence[str] = ()) -> Pod:
    """Return a pod with a container for each amount of CPUs; without any it is BestEffort."""
    names = [*containers, *(f"c{i}" for i in range(len(containers), len(cpus)))] or ["main"]
    amounts = [Amounts(int(each * 1000), MEMORY) for each in cpus] or [Amounts()]
    parts = [Container(part, Resources(amount, amount)) for part, amount in zip(names, amounts, strict=False)]
    return Pod(PodUID(f"uid-{name[:60]}"), name, namespace, containers=tuple(parts))


class Node:
    """Pods on a machine, decided and written down as the daemon does; the clock is given."""

    def __init__(self, topology: Topology, config: Config, clock: Callable[[], float] = time.time) -> None:
        self.topology = topology
        self.config = config
        self.clock = clock
        self.admitter = config.build(topology)
        self.state = start(self.admitter, topology)
        self.cache: dict[str, dict[str, int | None]] = {}
        """What resctrl counts, by the name of the container."""
        self.ruler = Ruler(topology, topology.online)
        self.known: dict[PodUID, Known] = {}
        self.last: dict[str, Explanation] = {}
        """The last decision on each container."""
        self.number = 0
        self.told: list[Entry] = []
        """The events that clients get: all but the States."""
        self.more = asyncio.Event()
        self.journal = Journal(Path(mkdtemp(prefix="pinfold-page-")), clock=time.time, tell=print)
        weakref.finalize(self, _remove, self.journal)
        self.tell_state()

    def admit(self, pod: Pod) -> bool:
        """Let a pod in, or not."""
        outcome = Outcome(pod, self.state, self.admitter.admit(self.state, pod), self.admitter)
        if outcome.refusal is not None:
            self._refused(outcome, outcome.refusal)
            return False
        self.state = outcome.admission.state
        self.known[pod.uid] = Known(pod, self.clock())
        self.tell_state()
        traces = outcome.traces()
        for container in pod.all_containers:
            if (cpus := self.state.cpus(pod.uid, container.name)) is not None:
                more = {**traces[container.name].data(), "alignment": alignment_counts(self.ruler.measure(cpus))}
                self._decided("assigned", pod, container.name, cpus=str(cpus), **more)
        return True

    def _refused(self, outcome: Outcome, refusal: AdmissionError) -> None:
        names = {uid: known.pod.name for uid, known in self.known.items()}
        advice = advise(self.ruler, outcome, names)
        said = {"reason": refusal.reason, "message": refusal.message}
        trace = outcome.traces()[outcome.admission.container or WHOLE]
        more = {**trace.data(), "need": advice.need, "room": advice.room}
        self._decided("refused", outcome.pod, outcome.admission.container, **said, **more, fixes=list(advice.fixes))

    def release(self, name: str) -> None:
        """Take back all that a pod has."""
        known = next(known for known in self.known.values() if known.pod.name == name)
        for container in known.pod.all_containers:
            self.state = self.admitter.policy.release(self.state, ContainerRef(known.pod.uid, container.name)).state
        del self.known[known.pod.uid]
        self.tell_state()
        for container in known.pod.all_containers:
            self._decided("released", known.pod, container.name)

    def change(self, topology: Topology, reserved: str) -> None:
        """Have other CPUs online, and others reserved."""
        self.topology = topology
        self.config = replace(self.config, reserved=Reservation.of(CPUSet.parse(reserved)))
        self.admitter = self.config.build(topology)
        self.ruler = Ruler(topology, topology.online)
        shared = topology.online
        for uid in self.state.assignments:
            shared -= self.state.cpus_of_pod(uid)
        self.state = self.state._replace(shared=shared)
        self.tell("hotplug", offline=str(topology.offline))
        self.tell_state()

    def _decided(self, what: str, pod: Pod, container: str | None, **fields: object) -> None:
        subject = Subject(pod.namespace, pod.name, container)
        named = {"namespace": pod.namespace, "pod": pod.name, **({} if container is None else {"container": container})}
        self.last[str(subject)] = explain_entry(self.tell(what, **named, **fields), subject)

    def tell(self, what: str, **fields: object) -> Entry:
        """Record what happened, and send it to all clients."""
        self.number += 1
        entry = Entry(self.number, self.clock(), what, fields)
        self.journal.append(entry)
        if what != STATE:
            told = {name: value for name, value in fields.items() if name not in FOR_THE_JOURNAL}
            self.told.append(entry._replace(fields=told))
        self.more.set()
        self.more = asyncio.Event()
        return entry

    def tell_state(self) -> None:
        """Record which container has which CPUs."""
        found = self.pools()
        pools = {name: found[name] for name in ("shared", "reserved", "offline")}
        self.tell(STATE, **pools, exclusive=self._exclusive())

    def _exclusive(self) -> dict[str, str]:
        return {
            f"{known.pod.namespace}/{known.pod.name}/{name}": str(cpus)
            for uid, known in self.known.items()
            for name, cpus in self.state.assignments.get(uid, {}).items()
        }

    # -- what the API says

    def pools(self) -> dict[str, str]:
        more = {"offline": str(self.topology.offline), "isolated": str(self.topology.isolated)}
        return pools(self.admitter.policy, self.state, self.topology) | more

    def pods(self) -> list[dict[str, object]]:
        return [
            {
                "namespace": known.pod.namespace,
                "name": known.pod.name,
                "uid": uid,
                "qos": known.pod.qos,
                "kind": "pod",
                "containers": [container.name for container in known.pod.all_containers],
            }
            for uid, known in self.known.items()
        ]

    def containers(self) -> list[dict[str, object]]:
        return [self._container(known, c) for known in self.known.values() for c in known.pod.all_containers]

    def _container(self, known: Known, container: Container) -> dict[str, object]:
        cpus = self.state.cpus(known.pod.uid, container.name)
        on = str(self.state.shared if cpus is None else cpus)
        return {
            "namespace": known.pod.namespace,
            "pod": known.pod.name,
            "container": container.name,
            "kind": "pod",
            "qos": known.pod.qos,
            "exclusive": cpus is not None,
            "cpus": on,
            "allowed": on,
            "state": "running",
            "pid": 1000 + sum(map(ord, container.name)) % 30000,
            "restarts": 0,
            "code": None,
            "since": known.since,
            "alignment": self._alignment(cpus),
            "why": self._why(known, container, cpus),
            "cache": self.cache.get(container.name),
        }

    def _alignment(self, cpus: CPUSet | None) -> dict[str, object] | None:
        return None if cpus is None else alignment_counts(self.ruler.measure(cpus))

    def _why(self, known: Known, container: Container, cpus: CPUSet | None) -> str:
        if cpus is None:
            return why_shared(self.admitter.policy, known.pod, container)
        return self.last[f"{known.pod.namespace}/{known.pod.name}/{container.name}"].why

    def configuration(self) -> dict[str, object]:
        return {
            "version": "0",
            "host": "node-7",
            "policy": self.config.policy,
            "options": dict(self.config.options),
            "topology_policy": self.config.topology_policy,
            "topology_scope": self.config.topology_scope,
            "topology_options": dict(self.config.topology_options),
            "fidelity": self.config.fidelity,
            "reserved": self.pools()["reserved"],
            "runtime": "simulated",
            "groups": "nothing",
            "weaker": [],
            "machine": "",
            "link": {"state": "connected", "detail": ""},
            "read_only": True,
        }

    def explain(self, container: str) -> dict[str, object]:
        if container not in self.last:
            raise HTTPError(404, "NotFound", "there is no such container")
        return self.last[container].data()

    async def events(self, number: int) -> AsyncIterator[bytes]:
        """Yield what happens after an entry."""
        yield ServerSentEvent("{}", name="hello", retry=1000).encode()
        place = bisect_right(self.told, number, key=lambda entry: entry.number)
        while True:
            more = self.more
            for entry in self.told[place:]:
                place += 1
                yield ServerSentEvent(json.dumps(entry.data()), id=str(entry.number), name="change").encode()
            await more.wait()


def _remove(journal: Journal) -> None:
    journal.close()
    shutil.rmtree(journal.directory)


class PageServer:
    """The page and the API of one node, on a thread of its own."""

    def __init__(self, node: Node, port: int = 0) -> None:
        self.node = node
        self.port = port
        self.asked: list[str] = []
        self.hosts: set[str] = set()
        self._page = Page()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: HTTPServer | None = None
        self._listener: socket.socket | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def up(self) -> None:
        """Begin to serve; after a break, on the same port."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self._server, self._listener = HTTPServer(self._handle), listener
        asyncio.run_coroutine_threadsafe(self._server.start(listener), self._loop).result(10)

    def down(self) -> None:
        """Serve no more, and cut off who is watching."""
        if self._server is not None:
            asyncio.run_coroutine_threadsafe(self._close(self._server), self._loop).result(10)
            self._server = None

    async def _close(self, server: HTTPServer) -> None:
        # A browser may have connected just now. asyncio drops a connection that it has not quite taken in when its
        # server closes, and never closes its socket: so no new client is accepted, and waiting ones come first.
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
        await _some_rounds()
        await server.close()
        await _some_rounds()

    def do(self, change: Callable[[Node], T]) -> T:
        """Change the node where it is served."""

        async def work() -> T:
            return change(self.node)

        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(30)

    async def _handle(self, request: Request) -> Response:
        self.asked.append(request.path)
        if self._page.serves(request.segments):
            return self._page.response(request.segments)
        if request.path == "/events":
            last = int(request.headers.get("last-event-id", self.node.number))
            return Response(200, events=self.node.events(min(last, self.node.number)))
        if request.segments[:2] != ("api", "v1"):
            raise HTTPError(404, "NotFound", f"there is no {request.path}")
        return self._api("/".join(request.segments[2:]), request.query)

    def _api(self, name: str, query: Mapping[str, str]) -> Response:
        node = self.node
        if name == "history":
            return Response(200, answer_history(node.journal, parse_question(query)))
        if name == "at":
            return Response(200, answer_at(node.journal, query))
        if name == "explain":
            return Response(200, node.explain(query["container"]))
        plain: dict[str, Callable[[], object]] = {
            "layout": lambda: layout_data(node.topology),
            "pools": node.pools,
            "pods": node.pods,
            "containers": node.containers,
            "config": node.configuration,
        }
        return Response(200, plain[name]())


async def _some_rounds() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


# -- nodes to look at

NAMES: Final = (
    ("trading", "order-matcher", ("engine", "journal")),
    ("trading", "risk-gateway", ("risk",)),
    ("telco", "upf-0", ("dataplane", "control")),
    ("telco", "upf-1", ("dataplane", "control")),
    ("db", "postgres-0", ("postgres",)),
    ("db", "redis-cache", ("redis",)),
    ("ml", "inference-llm", ("server",)),
    ("video", "transcoder-7", ("ffmpeg",)),
    ("web", "envoy-edge", ("envoy",)),
    ("ops", "packet-probe", ("probe",)),
)


def demo(machine: str | Topology, *, reserved: str, sizes: Sequence[int], shared: int = 6, **config: str) -> Node:
    """Return a node on which pods of these sizes came and went during the last two hours; size 0 leaves a name out."""
    topology = preset(machine) if isinstance(machine, str) else machine
    moment = time.time() - 7200

    def clock() -> float:
        return moment

    options = {name.replace("_", "-"): "true" for name in config if name != "topology_policy"}
    policy = config.get("topology_policy", "none")
    reservation = Reservation.of(CPUSet.parse(reserved))
    node = Node(topology, Config("static", options, reservation, topology_policy=policy), clock)
    chance = random.Random(7)  # noqa: S311 - the same picture every time
    for i in range(shared):
        moment += chance.uniform(5, 60)
        node.admit(
            pod(f"web-{chance.randrange(16**5):05x}", namespace="web", containers=("nginx",)) if i % 2 else _half(i)
        )
    for i, size in enumerate(sizes):
        if not size:
            continue
        moment += chance.uniform(120, 500) * min(1.0, 14 / len(sizes))
        namespace, name, containers = NAMES[i % len(NAMES)]
        name = name if i < len(NAMES) else f"{name}-{i // len(NAMES) + 1}"
        whole = (size, 1) if len(containers) > 1 else (size,)
        node.admit(pod(name, *whole, namespace=namespace, containers=containers))
        if i % 5 == 3:
            moment += 60
            gone = chance.choice([known.pod.name for known in node.known.values()])
            node.release(gone)
    node.clock = time.time
    return node


def _half(number: int) -> Pod:
    return pod(f"batch-{number}", 0.5, namespace="jobs", containers=("worker",))


def main() -> None:
    """Serve a node to look at, on which something happens every few seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("machine", help="a preset or a shape")
    parser.add_argument("--port", type=int, default=9440)
    arguments = parser.parse_args()
    node = demo(arguments.machine, reserved="0", sizes=[2, 1, 2, 1])
    with PageServer(node, arguments.port) as server:
        print(server.url)  # noqa: T201 - what a reader wants to know
        for number in range(1_000_000):
            server.do(lambda node, number=number: node.admit(pod(f"guest-{number}", 1)))  # type: ignore[misc]  # a default for each turn
            time.sleep(3)
            names = server.do(lambda node: [known.pod.name for known in node.known.values()])
            if f"guest-{number - 2}" in names:
                server.do(lambda node, number=number: node.release(f"guest-{number - 2}"))  # type: ignore[misc]  # the same


if __name__ == "__main__":
    main()
