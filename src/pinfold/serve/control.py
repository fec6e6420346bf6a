"""The control socket: requests of the command line; the only interface through which clients can change anything."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pinfold.core.explaining.sharing import missed_pinning
from pinfold.core.pods.pod import Amounts, PodUID
from pinfold.core.snapshot import pools
from pinfold.errors import AdmissionError, PinfoldError, StateError
from pinfold.formats.fields import parse_each
from pinfold.formats.kubelet.checkpoint import format_checkpoint
from pinfold.formats.pods.document import pod_document
from pinfold.formats.pods.manifest import parse_pods
from pinfold.manager.admitting import Refusal
from pinfold.manager.nearby import far_from
from pinfold.manager.sources.workbook import PodExists, UnknownPod
from pinfold.manager.sources.workloads import WorkloadKind
from pinfold.node.procfs import PROC
from pinfold.serve.asked import (
    read_body,
    read_count,
    read_files,
    read_milli,
    read_name,
    read_pid,
    read_text,
    read_wishes,
)
from pinfold.serve.http.messages import HTTPError, Request, Response
from pinfold.serve.logs import answer_logs
from pinfold.serve.rights import check_member
from pinfold.serve.shield import answer_shield

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from pinfold.core.admission import Admission
    from pinfold.core.moving.repack import Move
    from pinfold.core.pods.pod import Pod
    from pinfold.core.policies.base import Policy
    from pinfold.formats.pods.manifest import PodDocuments
    from pinfold.manager.moving.repacker import Repacker
    from pinfold.manager.shielding import ShieldSwitch
    from pinfold.manager.sources.supervisor import Supervisor
    from pinfold.manager.sources.workbook import Workbook
    from pinfold.serve.api import Views

_SMALL: Final = 4096
"""A file of so many bytes is parsed in less time than a thread needs to take its turn."""
_TOGETHER: Final = 64
"""So many pods of a file are admitted at once."""
MOST_VALUES: Final = 100_000
"""In one file: enough for 3,000 pods, and parsed in a second."""


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
        self._there_is = supervisor
        self._is_simulated = views.look().runtime == "simulated"
        self.shield: ShieldSwitch | None = None
        """Where the rest of the host can be moved."""
        self._parsing = asyncio.Lock()
        """One client's files at a time: threads that parse take turns with the loop."""

    async def handle(self, request: Request) -> Response:  # noqa: PLR0911 - one for each kind of request
        """Return the answer to a request."""
        if request.peer.uid not in self._trusted:
            check_member(request, self._there_is)
        match request.method, list(request.segments):
            case "GET", ["v1", ("history" | "at" | "explain" | "pods" | "config") as what]:
                return Response(200, await self._views.read(what, request.query))
            case "GET", ["v1", "logs"]:
                return answer_logs(self._supervisor.workbook, request.query)
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
                return await self._delete(namespace, name)
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
                return await self._apply(request)
            case ["run"]:
                body = read_body(request)
                self._check_real()
                return await self._reserve(request, body, WorkloadKind.RUN)
            case ["run", uid, "attach"]:
                return await self._attach(request, PodUID(uid))
            case ["adopt"]:
                return await self._adopt(request)
            case ["pods", namespace, name, "resize"]:
                return await self._resize(request, namespace, name)
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

    async def _apply(self, request: Request) -> Response:
        """Start the pods of all files, or of none if there is anything wrong with any of them."""
        if len(request.body) <= _SMALL:
            documents = _documents(request)
        else:
            async with self._parsing:
                documents = await asyncio.to_thread(_documents, request)
        pods = [pod for document in documents for pod in document.pods]
        self._supervisor.check(pods)
        ignored = [str(ignored) for document in documents for ignored in document.ignored]
        submitted: list[dict[str, object]] = []
        policy = self._look().policy
        for some in _together(pods, self._supervisor.workbook):
            submitted += await asyncio.gather(*map(partial(self._submit, policy), some))
        warnings = [warning for document in documents for warning in document.warnings]
        return Response(200, {"pods": submitted, "ignored": ignored, "warnings": warnings})

    async def _submit(self, policy: Policy, pod: Pod) -> dict[str, object]:
        """Start a pod, start it anew if it has changed, or leave it as it is; return what was done."""
        before = self._supervisor.workbook.applied(pod)
        missed = [str(missed) for missed in missed_pinning(policy, pod)]
        if before is not None and before.pod == pod:
            held = {ref.name: str(cpus) for ref, cpus in self._look().state.of_pod(pod.uid)}
            return {"pod": pod.name, "done": "unchanged", "cpus": held, "missed": missed}
        try:
            if before is None:
                admission = await self._supervisor.submit(pod)
            else:
                admission = await self._supervisor.replace(before, pod)
        except Refusal as refusal:
            return {"pod": pod.name, "refused": _refused(refusal, named=len(pod.all_containers) > 1)}
        except PodExists as error:
            return {"pod": pod.name, "refused": {"reason": "AlreadyExists", "message": str(error)}}
        except PinfoldError as error:  # the pods before it run, and those after it may fit
            return {"pod": pod.name, "refused": {"reason": "NotApplied", "message": str(error)}}
        done = "started" if before is None else "configured"
        missed += [f"pod {pod.name}: {far}" for far in self._far(pod)]
        return {"pod": pod.name, "done": done, "cpus": _cpus(admission), "missed": missed}

    @property
    def _supervisor(self) -> Supervisor:
        """The host on which commands can be run; raise on a node of Kubernetes."""
        if self._there_is is None:
            raise HTTPError(
                400, "NotHere", "containers come from the container runtime here; pinfold starts none itself"
            )
        return self._there_is

    def _check_real(self) -> None:
        if self._is_simulated:
            raise HTTPError(400, "Simulated", "this daemon's machine is simulated, so no command can run on it")

    async def _delete(self, namespace: str, name: str) -> Response:
        try:
            lent = await self._supervisor.delete(name, namespace)
        except UnknownPod as error:
            raise HTTPError(404, "NotFound", str(error)) from error
        except StateError as error:
            said = f"pod {name} has ended, but that is not on the disk yet, and a restart of the daemon could start it"
            raise HTTPError(503, "NotSaved", f"{said} again; pinfold tries again by itself: {error}") from error
        return Response(200, {"deleted": name, "given_back": lent})

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

    async def _resize(self, request: Request, namespace: str, name: str) -> Response:
        body = read_body(request)
        container = read_text(body, "container") if "container" in body else None
        try:
            resized, cpus = await self._supervisor.workbook.resize(
                name, namespace, container, read_count(body), self._repacker.resize
            )
        except UnknownPod as error:
            raise HTTPError(404, "NotFound", str(error)) from error
        except AdmissionError as refusal:
            return Response(409, {"reason": refusal.reason, "message": str(refusal)})
        return Response(200, {"container": resized, "cpus": str(cpus)})

    async def _reserve(self, request: Request, body: dict[str, object], kind: WorkloadKind) -> Response:
        name, milli = read_name(body), read_milli(body)
        cpu: Amounts | int = Amounts(cpu=milli or None) if body.get("shared") is True else milli // 1000
        try:
            pod, admission = await self._supervisor.reserve(
                name, cpu, kind=kind, client=request.peer.uid, annotations=read_wishes(body)
            )
        except PodExists as error:
            raise HTTPError(409, "AlreadyExists", str(error)) from error
        except Refusal as refusal:
            return Response(409, _refused(refusal, named=False))
        ref = pod.ref(pod.containers[0])
        environment = {**self._supervisor.launcher.environment(ref), **self._supervisor.environment(ref)}
        about = {"environment": environment, "cpus": _cpus(admission), "warnings": self._far(pod)}
        return Response(201, {"uid": pod.uid, **about})

    def _far(self, pod: Pod) -> list[str]:
        """Return a warning for each device that CPUs of a pod are far from."""
        near = self._supervisor.workbook.near(pod)
        if not near:  # as for most pods; a Snapshot has all of them
            return []
        node = self._look()
        held = node.state.of_pod(pod.uid)
        return [text for ref, cpus in held for text in far_from(near, ref.name, cpus, node.topology)]

    async def _attach(self, request: Request, uid: PodUID) -> Response:
        pid = read_pid(read_body(request))
        _check_owner(pid, request)
        try:
            await self._supervisor.attach(uid, pid)
        except UnknownPod as error:
            raise HTTPError(404, "NotFound", str(error)) from error
        except PodExists as error:
            raise HTTPError(409, "AlreadyExists", str(error)) from error
        return Response(200, {"attached": pid})

    async def _adopt(self, request: Request) -> Response:
        body = read_body(request)
        pid = read_pid(body)
        _check_owner(pid, request)
        self._check_real()
        _check_free(self._supervisor, pid)
        reserved = await self._reserve(request, body, WorkloadKind.ADOPTED)
        if reserved.status == 201 and isinstance(reserved.data, dict):  # noqa: PLR2004 - created
            await self._supervisor.attach(PodUID(str(reserved.data["uid"])), pid)
        return reserved


def _together(pods: Sequence[Pod], workbook: Workbook) -> Iterator[list[Pod]]:
    """Yield pods that can be admitted at once, and so share a write to the disk, in their order.

    A pod that replaces an earlier one comes alone: the next ones may need the CPUs that it gives back.
    """
    some: dict[tuple[str, str], Pod] = {}
    for pod in pods:
        name, alone = (pod.namespace, pod.name), workbook.applied(pod) is not None
        if some and (alone or name in some or len(some) == _TOGETHER):
            yield [*some.values()]
            some.clear()
        some[name] = pod
        if alone:
            yield [pod]
            some.clear()
    if some:
        yield [*some.values()]


def _documents(request: Request) -> list[PodDocuments]:
    """Return the pods of all files of a request; called in a thread, as a large file takes a second."""
    return parse_each(_document, read_files(read_body(request)))


def _document(file: dict[str, object]) -> PodDocuments:
    """Return the pods of a file; relative paths in it mean the directory of the client."""
    found = parse_pods(read_text(file, "text"), source=read_text(file, "source"), most=MOST_VALUES, to_run=True)
    if "directory" not in file:
        return found
    directory = read_text(file, "directory")
    return found._replace(pods=tuple(pod.within(directory) for pod in found.pods))


def _cpus(admission: Admission) -> dict[str, str]:
    return {name: str(decision.cpus) for name, decision in admission.decisions.items() if decision.cpus is not None}


def _refused(refused: Refusal, *, named: bool) -> dict[str, object]:
    """Return why a pod was refused; the words say which container it was if it is *named*."""
    admission, advice = refused.admission, refused.advice
    refusal, container = admission.refusal, admission.container
    return {
        "reason": refusal.reason if refusal is not None else "",
        "message": refusal.message if refusal is not None else "",
        "container": container,
        "explanation": f"container {container}: {advice}" if named and container is not None and advice else advice,
    }


def _check_free(supervisor: Supervisor, pid: int) -> None:
    """Raise if a process cannot be adopted because it is ours or a container's."""
    launcher, workloads = supervisor.launcher, supervisor.workbook.workloads
    if launcher.is_ours(pid):
        raise HTTPError(409, "AlreadyExists", f"process {pid} belongs to pinfold itself")
    held = launcher.holder(pid)
    if held is not None:
        pod = workloads[held.pod].pod.name if held.pod in workloads else held.pod
        raise HTTPError(409, "AlreadyExists", f"process {pid} belongs to container {held.name} of pod {pod}")


def _check_owner(pid: int, request: Request) -> None:
    """Raise unless the caller owns the process."""
    owner = PROC.owner(pid)
    if owner is None:
        raise HTTPError(404, "NotFound", f"there is no process {pid}")
    if request.peer.uid not in {0, owner}:
        raise HTTPError(403, "Forbidden", f"process {pid} belongs to user {owner}")


def _unknown(request: Request) -> HTTPError:
    return HTTPError(404, "NotFound", f"there is no {request.method} {request.path}")
