"""A stand-in for the API server: pods, events and their rules as they were recorded from a real one.

Rights, preconditions, watches with bookmarks and 410, pages of lists, chunked answers, and a kubelet that undoes a
status patch unless it also changes an annotation. One request for each connection; with TLS if a certificate is given.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

Document = dict[str, object]
USER = "system:serviceaccount:kube-system:pinfold"
TOPOLOGIES = "noderesourcetopologies"
RIGHTS = frozenset(
    {"list pods", "watch pods", "patch pods/status", "create events"}
    | {f"{verb} {TOPOLOGIES}" for verb in ("patch", "create", "delete")}
)


class Call(NamedTuple):
    """A request that came."""

    method: str
    path: str
    query: dict[str, str]
    token: str
    kind: str
    body: bytes


class Refuse(Exception):  # noqa: N818 - an order
    """An answer with an error."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status: Document = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
        }
        self.status |= {"reason": reason, "code": code}


class APIServer:
    """Pods by namespace and name, and all that has changed since version *oldest*."""

    def __init__(self) -> None:
        self.rights = {"good": RIGHTS}
        """What the bearer of each token may do."""
        self.pods: dict[tuple[str, str], Document] = {}
        self.events: list[Document] = []
        self.topologies: dict[str, Document] | None = {}
        """By node; None: the cluster does not have this kind."""
        self.managers: dict[str, str] = {}
        """Who owns the fields of each topology."""
        self.calls: list[Call] = []
        self.bookmark_every = 60.0
        self.oldest = 0
        self.hangs = False
        self.port = 0
        self._version = 100
        self._history: list[tuple[int, str, Document]] = []
        self._changed = asyncio.Condition()
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self, certificate: Path | None = None) -> AsyncIterator[APIServer]:
        """Serve on a port of loopback; *certificate* has the key too."""
        context = None
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
        server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.disconnect()
            for task in self._serving:
                task.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)

    def disconnect(self) -> None:
        """End all connections, in the middle of what they send."""
        for writer in self._writers:
            writer.transport.abort()

    # -- what a cluster does

    async def put(self, pod: Document) -> None:
        """Create or change a pod."""
        metadata = pod["metadata"]
        assert isinstance(metadata, dict)
        key = (metadata["namespace"], metadata["name"])
        await self._record("MODIFIED" if key in self.pods else "ADDED", key, pod)

    async def remove(self, namespace: str, name: str) -> None:
        """Delete a pod."""
        await self._record("DELETED", (namespace, name), self.pods[namespace, name])

    async def _record(self, kind: str, key: tuple[str, str], pod: Document) -> None:
        self._version += 1
        metadata = pod["metadata"]
        assert isinstance(metadata, dict)
        pod = {**pod, "metadata": {**metadata, "resourceVersion": str(self._version)}}
        if kind == "DELETED":
            del self.pods[key]
        else:
            self.pods[key] = pod
        self._history.append((self._version, kind, {"kind": "Pod", "apiVersion": "v1", **pod}))
        async with self._changed:
            self._changed.notify_all()

    # -- requests

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            call = await _read(reader)
            self.calls.append(call)
            if self.hangs:
                await asyncio.sleep(3600)
            try:
                await self._answer(call, writer)
            except Refuse as refuse:
                await _send(writer, refuse.code, refuse.status)
        self._writers.discard(writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def _answer(self, call: Call, writer: asyncio.StreamWriter) -> None:
        parts = call.path.strip("/").split("/")
        match call.method, parts:
            case "GET", ["api", "v1", "pods"] if "watch" in call.query:
                self._check(call, "watch", "pods")
                await self._watch(call, writer)
            case "GET", ["api", "v1", "pods"]:
                self._check(call, "list", "pods")
                await _send(writer, 200, self._list(call))
            case "PATCH", ["api", "v1", "namespaces", namespace, "pods", name, "status"]:
                self._check(call, "patch", "pods/status")
                await _send(writer, 200, await self._patch(call, namespace, name))
            case "POST", ["api", "v1", "namespaces", namespace, "events"]:
                self._check(call, "create", "events")
                await _send(writer, 201, self._event(call, namespace))
            case "PATCH", ["apis", "topology.node.k8s.io", "v1alpha2", "noderesourcetopologies", name]:
                self._check(call, "patch", TOPOLOGIES)
                await _send(writer, *self._apply(call, name))
            case "DELETE", ["apis", "topology.node.k8s.io", "v1alpha2", "noderesourcetopologies", name]:
                self._check(call, "delete", TOPOLOGIES)
                await _send(writer, 200, self._known(name).pop(name))
            case _:
                raise Refuse(404, "NotFound", "the server could not find the requested resource")

    def _check(self, call: Call, verb: str, what: str) -> None:
        if call.token and call.token not in self.rights:
            raise Refuse(401, "Unauthorized", "Unauthorized")
        if f"{verb} {what}" not in self.rights.get(call.token, ()):
            user = USER if call.token else "system:anonymous"
            said = f'{what} is forbidden: User "{user}" cannot {verb} resource "{what}" in API group ""'
            raise Refuse(403, "Forbidden", f"{said} at the cluster scope")

    def _list(self, call: Call) -> Document:
        found = self._selected(call)
        limit = int(call.query.get("limit", len(found) + 1))
        start = int(call.query.get("continue") or 0)
        metadata = {"resourceVersion": str(self._version)}
        if start + limit < len(found):
            metadata["continue"] = str(start + limit)
        return {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": found[start : start + limit]}

    def _selected(self, call: Call) -> list[Document]:
        return [pod for pod in self.pods.values() if _is_selected(call, pod)]

    async def _watch(self, call: Call, writer: asyncio.StreamWriter) -> None:
        version = int(call.query.get("resourceVersion", "0"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        if 0 < version < self.oldest:
            said = f"too old resource version: {version} ({self.oldest})"
            await _chunk(writer, {"type": "ERROR", "object": Refuse(410, "Expired", said).status})
            await _chunk(writer, None)
            return
        if version == 0:
            for pod in self._selected(call):
                await _chunk(writer, {"type": "ADDED", "object": {"kind": "Pod", "apiVersion": "v1", **pod}})
            version = self._version
            await _chunk(writer, _bookmark(version, annotations={"k8s.io/initial-events-end": "true"}))
        with suppress(TimeoutError):
            async with asyncio.timeout(float(call.query.get("timeoutSeconds", "1800"))):
                await self._changes(call, writer, version)
        await _chunk(writer, None)

    async def _changes(self, call: Call, writer: asyncio.StreamWriter, version: int) -> None:
        while True:
            for number, kind, pod in [row for row in self._history if row[0] > version]:
                version = number
                if _is_selected(call, pod):
                    await _chunk(writer, {"type": kind, "object": pod})
            try:
                async with asyncio.timeout(self.bookmark_every), self._changed:
                    await self._changed.wait()
            except TimeoutError:
                if version <= self._version:  # nothing at all comes for a version of the future
                    await _chunk(writer, _bookmark(version))

    async def _patch(self, call: Call, namespace: str, name: str) -> Document:
        before = self.pods.get((namespace, name))
        if before is None:
            raise Refuse(404, "NotFound", f'pods "{name}" not found')
        if call.kind != "application/merge-patch+json":
            raise Refuse(415, "UnsupportedMediaType", "the stand-in takes merge patches")
        patch = json.loads(call.body)
        metadata = before["metadata"]
        assert isinstance(metadata, dict)
        asked = patch.get("metadata", {})
        if asked.get("uid", metadata["uid"]) != metadata["uid"]:
            said = f'Pod "{name}" is invalid: metadata.uid: Invalid value: "{asked["uid"]}": field is immutable'
            raise Refuse(422, "Invalid", said)
        status = {**_part(before, "status"), **patch.get("status", {})}
        annotations = {**_part(metadata, "annotations"), **asked.get("annotations", {})}
        after = {**before, "metadata": {**metadata, "annotations": annotations}, "status": status}
        await self.put(after)
        if annotations == _part(metadata, "annotations"):
            await self.put({**after, "status": before.get("status", {})})  # the kubelet undoes it
        return after

    def _event(self, call: Call, namespace: str) -> Document:
        event: Document = json.loads(call.body)
        if _part(event, "involvedObject").get("namespace") != namespace:
            said = "involvedObject.namespace: Invalid value: does not match event.namespace"
            raise Refuse(422, "Invalid", said)
        self.events.append(event)
        return event

    def _known(self, name: str) -> dict[str, Document]:
        if self.topologies is None:
            raise Refuse(404, "NotFound", "the server could not find the requested resource")
        if name not in self.topologies:
            raise Refuse(404, "NotFound", f'{TOPOLOGIES}.topology.node.k8s.io "{name}" not found')
        return self.topologies

    def _apply(self, call: Call, name: str) -> tuple[int, Document]:
        """Apply an object as the server does: one manager owns all its fields."""
        if self.topologies is None:
            raise Refuse(404, "NotFound", "the server could not find the requested resource")
        manager = call.query.get("fieldManager")
        if manager is None or call.kind != "application/apply-patch+yaml":
            raise Refuse(422, "Invalid", "fieldManager: Required value: is required for apply patch")
        wanted: Document = json.loads(call.body)
        if extra := _undeclared(wanted):
            raise Refuse(500, "", f"failed to create typed patch object: .{extra}: field not declared in schema")
        is_new = name not in self.topologies
        if is_new:
            self._check(call, "create", TOPOLOGIES)
        elif self.managers[name] != manager and "force" not in call.query:
            said = f'Apply failed with 2 conflicts: conflicts with "{self.managers[name]}":\n- .attributes\n- .zones'
            raise Refuse(409, "Conflict", said)
        self.topologies[name], self.managers[name] = wanted, manager
        return 201 if is_new else 200, wanted


_SCHEMA = {
    "": {"apiVersion", "kind", "metadata", "attributes", "topologyPolicies", "zones"},
    "zones": {"name", "type", "parent", "costs", "attributes", "resources"},
    "resources": {"name", "capacity", "allocatable", "available"},
    "costs": {"name", "value"},
    "attributes": {"name", "value"},
}


def _undeclared(document: Document, kind: str = "") -> str:
    """Return the first field that the schema does not have."""
    for name, value in document.items():
        if name not in _SCHEMA[kind]:
            return name
        parts = value if isinstance(value, list) and name in _SCHEMA else []
        for part in parts:
            if found := _undeclared(part, name):
                return f"{name}.{found}"
    return ""


async def _read(reader: asyncio.StreamReader) -> Call:
    head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, target, _ = head.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    url = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
    token = headers.get("authorization", "").removeprefix("Bearer ")
    return Call(method, url.path, query, token, headers.get("content-type", ""), body)


async def _send(writer: asyncio.StreamWriter, code: int, document: Document) -> None:
    writer.write(f"HTTP/1.1 {code} Said\r\nContent-Type: application/json\r\n".encode())
    writer.write(b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
    await _chunk(writer, document)
    await _chunk(writer, None)


async def _chunk(writer: asyncio.StreamWriter, document: Document | None) -> None:
    """Send a line of JSON as a chunk; None is the last one."""
    data = b"" if document is None else json.dumps(document).encode() + b"\n"
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await writer.drain()


def _bookmark(version: int, **metadata: object) -> Document:
    return {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": str(version), **metadata}}}


def _is_selected(call: Call, pod: Document) -> bool:
    wanted = dict(part.split("=") for part in call.query.get("fieldSelector", "").split(",") if part)
    found = {"spec.nodeName": _part(pod, "spec").get("nodeName"), "metadata.name": _part(pod, "metadata").get("name")}
    return all(found[field] == value for field, value in wanted.items())


def _part(document: Document, name: str) -> Document:
    part = document.get(name, {})
    assert isinstance(part, dict)
    return part
