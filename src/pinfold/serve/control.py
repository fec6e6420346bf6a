"""The control socket: requests of the command line; the only interface through which clients can change anything."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pinfold.core.pods.pod import PodUID
from pinfold.core.snapshot import pools
from pinfold.errors import AdmissionError, PinfoldError
from pinfold.formats.kubelet.checkpoint import format_checkpoint
from pinfold.formats.pods.document import pod_document
from pinfold.serve.asked import read_body, read_text
from pinfold.serve.http.messages import HTTPError, Request, Response
from pinfold.serve.logs import answer_logs
from pinfold.serve.rights import check_member
from pinfold.serve.shield import answer_shield
from pinfold.serve.workloads import WorkloadRequests

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pinfold.core.moving.repack import Move
    from pinfold.manager.moving.repacker import Repacker
    from pinfold.manager.shielding import ShieldSwitch
    from pinfold.manager.sources.supervisor import Supervisor
    from pinfold.serve.api import Views


class Leave(Protocol):
    """Gives every group its CPUs back, and ends the daemon."""

    async def __call__(self, *, keep_owners: bool) -> None:
        """Leave the node, or raise why that is not possible; *keep_owners*: a kubelet goes on with the State."""
        ...


class Reconfigure(Protocol):
    """Applies a configuration file."""

    async def __call__(self, config: str | None, *, dry_run: bool, allow_moves: bool) -> dict[str, object]:
        """Return what becomes of the containers; or raise, and leave all as it was."""
        ...


class DaemonChanges(NamedTuple):
    """The changes of the whole daemon."""

    leave: Leave
    reconfigure: Reconfigure


class Control:
    """Answers requests on the control socket."""

    def __init__(
        self,
        supervisor: Supervisor | None,
        views: Views,
        repacker: Repacker,
        changes: DaemonChanges,
        trusted: frozenset[int] = frozenset({0}),
    ) -> None:
        """Answer also by *changes* of the whole daemon; users who are not *trusted* are members of its group."""
        self._views = views
        self._repacker = repacker
        self._changes = changes
        self._trusted = trusted
        self._is_leaving = False
        self._look = views.look
        self._supervisor = supervisor
        self._here = None if supervisor is None else WorkloadRequests(supervisor, views.look)
        self.shield: ShieldSwitch | None = None
        """Where the rest of the host can be moved."""

    async def handle(self, request: Request) -> Response:  # noqa: PLR0911 - one for each kind of request
        """Return the answer to a request."""
        if request.peer.uid not in self._trusted:
            check_member(request, self._supervisor)
        match request.method, list(request.segments):
            case "GET", ["v1", ("history" | "at" | "explain" | "pods" | "config") as what]:
                return Response(200, await self._views.read(what, request.query))
            case "GET", ["v1", "logs"]:
                return answer_logs(self._workloads.workbook, request.query)
            case "GET", ["v1", "shield"]:
                return await answer_shield(self.shield)
            case "GET", ["v1", what]:
                return self._show(what, request)
            case "POST", _ if self._is_leaving:
                raise HTTPError(503, "Leaving", "the daemon gives all CPUs back and ends")
            case "POST", ["v1", "leave"]:
                self._is_leaving = True
                await self._changes.leave(keep_owners=read_body(request).get("keep_owners") is True)
                return Response(200, {"cpus": str(self._look().topology.online)})
            case "POST", ["v1", *what]:
                return await self._change(what, request)
            case "DELETE", ["v1", "pods", namespace, name]:
                return await self._workloads.delete(namespace, name)
        raise _unknown(request)

    def _show(self, what: str, request: Request) -> Response:
        match what:
            case "node":
                return Response(200, self.node())
            case "topology":
                return Response(200, self._views.topology())
            case "containers":
                return Response(200, self._views.containers())
            case "events":
                return self._events(request)
            case "state":
                return Response(200, self.state())
        raise _unknown(request)

    async def _change(self, what: list[str], request: Request) -> Response:  # noqa: PLR0911 - one for each verb
        match what:
            case ["pods"]:
                return await self._workloads.apply(request)
            case ["run"]:
                return await self._workloads.run(request)
            case ["run", uid, "attach"]:
                return await self._workloads.attach(request, PodUID(uid))
            case ["adopt"]:
                return await self._workloads.adopt(request)
            case ["pods", namespace, name, "resize"]:
                return await self._workloads.resize(request, namespace, name, self._repacker.resize)
            case [("repack" | "reconfigure") as one]:
                return await (self._repack if one == "repack" else self._reconfigure)(request)
            case ["shield"]:
                return await answer_shield(self.shield, read_body(request))
        raise _unknown(request)

    def node(self) -> dict[str, object]:
        """Return the node: its policy, its pools, and the guarantees that do not hold here."""
        node = self._look()
        return {
            **node.about,
            "policy": node.policy.name,
            "pools": pools(node.policy, node.state, node.topology),
            "drifts_repaired": node.figures.drifts_repaired,
        }

    def state(self) -> dict[str, object]:
        """Return the State as in its file, and its pods: the start of a plan."""
        node, policy = self._look(), self._look().policy
        told = {"policy_options": "options", "view": "fidelity"}
        told |= {name: name for name in ("topology_policy", "topology_scope", "topology_options", "feature_gates")}
        return {
            "checkpoint": format_checkpoint(policy.name, node.state, pod_level=policy.pod_level),
            "pods": [pod_document(pod) for pod in node.pods],
            "settings": {setting: node.about[name] for setting, name in told.items()},
        }

    def _events(self, request: Request) -> Response:
        after = request.number("after", 0)
        if request.query.get("follow") != "true":
            return Response(200, [entry.data() for entry in self._views.bus.after(after)])

        async def lines() -> AsyncIterator[bytes]:
            async with aclosing(self._views.bus.follow(after)) as entries:
                async for entry in entries:
                    yield json.dumps(entry.data()).encode() + b"\n"

        return Response(200, lines=lines())

    @property
    def _workloads(self) -> WorkloadRequests:
        """Answers the requests for commands of this host; raise on a node of Kubernetes, which has none."""
        if self._here is None:
            raise HTTPError(
                400, "NotHere", "containers come from the container runtime here; pinfold starts none itself"
            )
        return self._here

    async def _repack(self, request: Request) -> Response:
        """Move containers, or only say which ones would move."""
        dry_run = read_body(request).get("dry_run", False)
        if not isinstance(dry_run, bool):
            raise HTTPError(400, "BadRequest", "dry_run: expected true or false")
        try:
            moves = self._repacker.plan().moves if dry_run else await self._repacker.repack()
        except AdmissionError as refusal:
            raise HTTPError(400, refusal.reason, str(refusal)) from refusal
        return Response(200, {"moves": [self._move(move) for move in moves]})

    async def _reconfigure(self, request: Request) -> Response:
        """Apply the configuration file, or another one; or only say what it would do."""
        body = read_body(request)
        flags = {name: body.get(name, False) for name in ("dry_run", "allow_moves")}
        if wrong := [name for name, value in flags.items() if not isinstance(value, bool)]:
            raise HTTPError(400, "BadRequest", f"{wrong[0]}: expected true or false")
        config = read_text(body, "config") if "config" in body else None
        try:
            found = await self._changes.reconfigure(
                config, dry_run=flags["dry_run"] is True, allow_moves=flags["allow_moves"] is True
            )
        except (PinfoldError, OSError) as error:
            raise HTTPError(409, "NotReconfigured", str(error)) from error
        return Response(200, found)

    def _move(self, move: Move) -> dict[str, str]:
        pods = {pod.uid: f"{pod.namespace}/{pod.name}" for pod in self._look().pods}
        container = f"{pods.get(move.container.pod, move.container.pod)}/{move.container.name}"
        return {"container": container, "before": str(move.before), "cpus": str(move.after), "why": move.why}


def _unknown(request: Request) -> HTTPError:
    return HTTPError(404, "NotFound", f"there is no {request.method} {request.path}")
