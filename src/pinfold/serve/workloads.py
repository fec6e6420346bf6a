"""The requests of clients for commands of this host: apply, run, adopt, delete, resize."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from pinfold.core.explaining.sharing import missed_pinning
from pinfold.core.pods.pod import Amounts, PodUID
from pinfold.errors import AdmissionError, PinfoldError, StateError
from pinfold.formats.fields import parse_each
from pinfold.formats.pods.manifest import PodRoom, parse_pods
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pinfold.core.admission import Admission
    from pinfold.core.pods.pod import Pod
    from pinfold.core.policies.base import Policy
    from pinfold.core.snapshot import Snapshot
    from pinfold.formats.pods.manifest import PodDocuments
    from pinfold.manager.sources.supervisor import Supervisor
    from pinfold.manager.sources.workbook import Resize, Workbook

_SMALL: Final = 4096
"""A file of so many bytes is parsed in less time than a thread needs to take its turn."""
_TOGETHER: Final = 64
"""So many pods of a file are admitted at once."""


class WorkloadRequests:
    """Answers by the supervisor of a host; *look* returns its Snapshot."""

    def __init__(self, supervisor: Supervisor, look: Callable[[], Snapshot]) -> None:
        self.workbook = supervisor.workbook
        self._supervisor = supervisor
        self._look = look
        self._is_simulated = look().runtime == "simulated"
        self._parsing = asyncio.Lock()
        """One client's files at a time: threads that parse take turns with the loop."""

    async def apply(self, request: Request) -> Response:
        """Start the pods of all files, or of none if there is anything wrong with any of them; or only check them."""
        if len(request.body) <= _SMALL:
            documents = _documents(request)
        else:
            async with self._parsing:
                documents = await asyncio.to_thread(_documents, request)
        pods = [pod for document in documents for pod in document.pods]
        self._supervisor.check(pods)
        if request.query.get("dry_run") == "true":
            pods = []
        ignored = [str(ignored) for document in documents for ignored in document.ignored]
        submitted: list[dict[str, object]] = []
        policy = self._look().policy
        for some in _together(pods, self._supervisor.workbook):
            if len(some) == 1:  # the answer goes out before the pod's process is started
                submitted.append(await self._submit(policy, some[0]))
            else:
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

    async def run(self, request: Request) -> Response:
        """Admit a pod for a process that the client starts."""
        body = read_body(request)
        self._check_real()
        return await self._reserve(request, body, WorkloadKind.RUN)

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

    async def attach(self, request: Request, uid: PodUID) -> Response:
        """Put the client's process into the container that was reserved for it."""
        pid = read_pid(read_body(request))
        _check_owner(pid, request)
        try:
            await self._supervisor.attach(uid, pid)
        except UnknownPod as error:
            raise HTTPError(404, "NotFound", str(error)) from error
        except PodExists as error:
            raise HTTPError(409, "AlreadyExists", str(error)) from error
        return Response(200, {"attached": pid})

    async def adopt(self, request: Request) -> Response:
        """Admit a pod for a process that runs already, and put it into its container."""
        body = read_body(request)
        pid = read_pid(body)
        _check_owner(pid, request)
        self._check_real()
        _check_free(self._supervisor, pid)
        reserved = await self._reserve(request, body, WorkloadKind.ADOPTED)
        if reserved.status == 201 and isinstance(reserved.data, dict):  # noqa: PLR2004 - created
            await self._supervisor.attach(PodUID(str(reserved.data["uid"])), pid)
        return reserved

    async def delete(self, namespace: str, name: str) -> Response:
        """End a pod."""
        try:
            lent = await self._supervisor.delete(name, namespace)
        except UnknownPod as error:
            raise HTTPError(404, "NotFound", str(error)) from error
        except StateError as error:
            said = f"pod {name} has ended, but that is not on the disk yet, and a restart of the daemon could start it"
            raise HTTPError(503, "NotSaved", f"{said} again; pinfold tries again by itself: {error}") from error
        return Response(200, {"deleted": name, "given_back": lent})

    async def resize(self, request: Request, namespace: str, name: str, by: Resize) -> Response:
        """Give a container another number of exclusive CPUs."""
        body = read_body(request)
        container = read_text(body, "container") if "container" in body else None
        try:
            resized, cpus = await self._supervisor.workbook.resize(name, namespace, container, read_count(body), by)
        except UnknownPod as error:
            raise HTTPError(404, "NotFound", str(error)) from error
        except AdmissionError as refusal:
            return Response(409, {"reason": refusal.reason, "message": str(refusal)})
        return Response(200, {"container": resized, "cpus": str(cpus)})

    def _check_real(self) -> None:
        if self._is_simulated:
            raise HTTPError(400, "Simulated", "this daemon's machine is simulated, so no command can run on it")


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
    """Return the pods of all files of a request; called in a thread, as many files take 100 ms."""
    return parse_each(partial(_document, PodRoom.small()), read_files(read_body(request)))


def _document(room: PodRoom, file: dict[str, object]) -> PodDocuments:
    """Return the pods of a file; relative paths in it mean the directory of the client."""
    found = parse_pods(read_text(file, "text"), source=read_text(file, "source"), room=room, to_run=True)
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
