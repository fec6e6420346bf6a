"""A node that nobody has, behind a real server: the live page and the read-only API on values of core.

`python -m tests.e2e.page_server epyc-7303-2s` serves one to look at, on which pods come and go.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from pinfold.core.alignment import Ruler
from pinfold.core.config import Config, Reservation
from pinfold.core.cpuset import CPUSet
from pinfold.core.explain import advise
from pinfold.core.planner import Outcome, start
from pinfold.core.pods import Amounts, Container, ContainerRef, Pod, PodUID, QoS, Resources
from pinfold.core.policies.base import trace_of
from pinfold.core.presets import preset
from pinfold.core.snapshot import pools
from pinfold.formats.topologyjson import format_topology_json
from pinfold.serve.http import Event, HTTPError, Request, Response, Server
from pinfold.serve.page import Page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from pinfold.core.topology import Topology

T = TypeVar("T")

MEMORY: Final = 1 << 30
FIELDS: Final = ("cores", "uncore_caches", "numa_nodes", "sockets")


class Known(NamedTuple):
    """A pod that was let in, when, and how."""

    pod: Pod
    since: float
    outcome: Outcome


def pod(name: str, *cpus: float, namespace: str = "default", containers: Sequence[str] = ()) -> Pod:
    """Return a pod with a container for each amount of CPUs; without any it is BestEffort."""
    names = [*containers, *(f"c{i}" for i in range(len(containers), len(cpus)))] or ["main"]
    amounts = [Amounts(int(each * 1000), MEMORY) for each in cpus] or [Amounts()]
    parts = [Container(part, Resources(amount, amount)) for part, amount in zip(names, amounts, strict=False)]
    return Pod(PodUID(f"uid-{name[:60]}"), name, namespace, containers=tuple(parts))


class Node:
    """Pods on a machine, decided as the daemon decides, with a history; the clock is given."""

    def __init__(self, topology: Topology, config: Config, clock: Callable[[], float] = time.time) -> None:
        self.topology = topology
        self.config = config
        self.clock = clock
        self.admitter = config.build(topology)
        self.state = start(self.admitter, topology)
        self.ruler = Ruler(topology, topology.online)
        self.known: dict[PodUID, Known] = {}
        self.refused: dict[str, Outcome] = {}
        self.entries: list[dict[str, Any]] = []  # Any: JSON
        self.more = asyncio.Event()
        self._tell_state()

    def admit(self, pod: Pod) -> bool:
        """Let a pod in, or not."""
        outcome = Outcome(pod, self.state, self.admitter.admit(self.state, pod))
        if (refusal := outcome.refusal) is not None:
            culprit = outcome.admission.container or pod.containers[0].name
            self.refused[f"{pod.namespace}/{pod.name}/{culprit}"] = outcome
            fields = {"namespace": pod.namespace, "pod": pod.name, "container": culprit}
            self.tell("refused", **fields, reason=refusal.reason, message=refusal.message)
            return False
        self.state = outcome.admission.state
        self.known[pod.uid] = Known(pod, self.clock(), outcome)
        for container in pod.all_containers:
            if (cpus := self.state.cpus(pod.uid, container.name)) is not None:
                fields = {"namespace": pod.namespace, "pod": pod.name, "container": container.name}
                self.tell("assigned", **fields, cpus=str(cpus))
        self._tell_state()
        return True

    def release(self, name: str) -> None:
        """Take back all that a pod has."""
        known = next(known for known in self.known.values() if known.pod.name == name)
        for container in known.pod.all_containers:
            self.state = self.admitter.policy.release(self.state, ContainerRef(known.pod.uid, container.name)).state
            fields = {"namespace": known.pod.namespace, "pod": name, "container": container.name}
            self.tell("released", **fields)
        del self.known[known.pod.uid]
        self._tell_state()

    def tell(self, what: str, **fields: object) -> None:
        """Write down what happened."""
        self.entries.append({"number": len(self.entries) + 1, "time": self.clock(), "what": what, **fields})
        self.more.set()
        self.more = asyncio.Event()

    def _tell_state(self) -> None:
        self.tell("state", shared=str(self.state.shared), exclusive=self._exclusive())

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
        }

    def _alignment(self, cpus: CPUSet | None) -> dict[str, int] | None:
        if cpus is None:
            return None
        return {name: len(span.ids) for name, span in zip(FIELDS, self.ruler.measure(cpus), strict=True)}

    def _why(self, known: Known, container: Container, cpus: CPUSet | None) -> str:
        if cpus is not None:
            return "; ".join(map(str, known.outcome.trace(container).steps))
        if known.pod.qos is not QoS.GUARANTEED:
            return f"in the shared pool because its pod is {known.pod.qos}"
        return "in the shared pool because it asks for no whole number of CPUs"

    def configuration(self) -> dict[str, object]:
        return {
            "version": "0",
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

    def history(self, query: Mapping[str, str]) -> dict[str, object]:
        since, until = float(query.get("since", 0)), float(query.get("until", 1e18))
        limit = int(query.get("limit", 1000))
        found = [entry for entry in self.entries if since <= entry["time"] <= until]
        return {"entries": found[-limit:], "first": self.entries[0]["time"], "more": len(found) > limit}

    def at(self, moment: float) -> dict[str, object]:
        states = [entry for entry in self.entries if entry["what"] == "state" and entry["time"] <= moment]
        if not states:
            return {"time": moment, "shared": "", "exclusive": {}, "known": False}
        return {"time": moment, "shared": states[-1]["shared"], "exclusive": states[-1]["exclusive"], "known": True}

    def explain(self, container: str) -> dict[str, object]:
        if (outcome := self.refused.get(container)) is not None and (refusal := outcome.refusal) is not None:
            names = {uid: known.pod.name for uid, known in self.known.items()}
            fixes = [str(advise(self.admitter, self.ruler, outcome, names))]
            said = {"reason": refusal.reason, "message": refusal.message, "fixes": fixes}
            steps = [str(step) for step in trace_of(refusal).steps]
            return {"container": container, "cpus": None, "since": None, "steps": steps, "refusal": said}
        for known in self.known.values():
            for part in known.pod.all_containers:
                if f"{known.pod.namespace}/{known.pod.name}/{part.name}" == container:
                    steps = [str(step) for step in known.outcome.trace(part).steps]
                    cpus = self.state.cpus(known.pod.uid, part.name)
                    found = {"container": container, "cpus": None if cpus is None else str(cpus), "since": known.since}
                    return {
                        **found,
                        "steps": steps,
                        "passed_over": [],
                        "alignment": self._alignment(cpus),
                        "refusal": None,
                    }
        raise HTTPError(404, "NotFound", "there is no such container")

    async def events(self, number: int) -> AsyncIterator[Event]:
        """Yield what happens after an entry; numbers are places in the list."""
        yield Event("{}", name="hello", retry=1000)
        while True:
            more = self.more
            while number < len(self.entries):
                entry = self.entries[number]
                number += 1
                yield Event(json.dumps(entry), id=str(number), name="change")
            await more.wait()


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
        self._server: Server | None = None
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
        self._server, self._listener = Server(self._handle), listener
        asyncio.run_coroutine_threadsafe(self._server.start(listener), self._loop).result(10)

    def down(self) -> None:
        """Serve no more, and cut off who is watching."""
        if self._server is not None:
            asyncio.run_coroutine_threadsafe(self._close(self._server), self._loop).result(10)
            self._server = None

    async def _close(self, server: Server) -> None:
        # A browser may have connected just now. asyncio drops a connection that it has not quite taken in when its
        # server closes, and never closes its socket: so nobody new is let in, and who is at the door comes in first.
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
            return Response(200, events=self.node.events(int(request.headers.get("last-event-id", "0"))))
        if request.segments[:2] != ("api", "v1"):
            raise HTTPError(404, "NotFound", f"there is no {request.path}")
        return self._api("/".join(request.segments[2:]), request.query)

    def _api(self, name: str, query: Mapping[str, str]) -> Response:
        node = self.node
        if name == "topology":
            content = format_topology_json(node.topology).encode()
            return Response(200, content=content, kind="application/json")
        if name == "history":
            return Response(200, node.history(query))
        if name == "at":
            return Response(200, node.at(float(query["time"])))
        if name == "explain":
            return Response(200, node.explain(query["container"]))
        plain: dict[str, Callable[[], object]] = {
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
