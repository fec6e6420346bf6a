"""Pods from outside the runtime: manifests in a directory, or the list of a kubelet.

A container runtime does not report which containers are init containers, nor pod-level resources; these sources do.
They only refine: if a source cannot be read, it returns a problem in words and keeps the pods read before.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import time
from http.client import HTTPException, HTTPResponse
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast
from urllib.parse import urlsplit

from pinfold.core.pods.pod import Pod, PodUID
from pinfold.errors import ConfigError, ParseError, Problem, excerpt
from pinfold.formats.fields import bare
from pinfold.formats.pods.manifest import parse_pods

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pinfold.formats.pods.runtime import RuntimePod

MAX_BYTES: Final = 16 << 20
MAX_FILES: Final = 10_000
TIMEOUT: Final = 5.0

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_STATIC: Final = "kubernetes.io/config.source"
_PIECE: Final = 64 << 10
_OK: Final = 200
_MOST_TOLD: Final = 3
_Stamp = tuple[int, int, int, int]


class KnownPods:
    """Pods by UID, and by namespace and name where a name is enough."""

    def __init__(self, pods: Iterable[Pod] = (), *, by_name: bool = True) -> None:
        self.by_uid: Mapping[PodUID, Pod] = MappingProxyType({pod.uid: pod for pod in pods})
        names = {(pod.namespace, pod.name): pod for pod in self.by_uid.values()} if by_name else {}
        self.by_name: Mapping[tuple[str, str], Pod] = MappingProxyType(names)

    def find(self, pod: RuntimePod) -> Pod | None:
        """Return what is known of a pod of the runtime; the kubelet adds "-NODE" to the name of a static pod."""
        found = self.by_uid.get(PodUID(pod.uid)) or self.by_name.get((pod.namespace, pod.name))
        if found is None and pod.annotations.get(_STATIC, "api") != "api":
            ends = [at for at, letter in enumerate(pod.name) if letter == "-"]
            shorter = (self.by_name.get((pod.namespace, pod.name[:end])) for end in reversed(ends))
            found = next(filter(None, shorter), None)
        return found


class Reading(NamedTuple):
    """A source's pods and problems now."""

    pods: KnownPods
    problems: tuple[str, ...] = ()


class PodSource(Protocol):
    """A source of pods outside the runtime."""

    def read(self) -> Reading:
        """Return all known pods and the problems, in words; may take seconds, raises nothing."""
        ...


def pod_source(text: str) -> PodSource:
    """Return the source that a user names: a directory, or a URL such as http://127.0.0.1:10255/pods."""
    if "://" not in text:
        return PodDirectory(Path(text))
    try:
        url = urlsplit(text)
        usable = url.scheme == "http" and url.hostname and url.port != 0 and text.isascii() and text.isprintable()
    except ValueError:
        usable = False
    if not usable or " " in text:
        advice = "a directory of manifests, or a URL such as http://127.0.0.1:10255/pods"
        raise ConfigError(Problem(f"pods cannot be read from {excerpt(text)}", f"allowed is {advice}"))
    return PodEndpoint(text)


class _File(NamedTuple):
    """A manifest as it was read last; after an error, with the pods of before."""

    stamp: _Stamp
    pods: tuple[Pod, ...] = ()
    problem: str = ""


class PodDirectory:
    """Manifests in a directory, as a kubelet's static pods are; a file is read again only when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[str, _File] = {}
        self._pods = KnownPods()

    def read(self) -> Reading:
        """Return the pods of all manifests."""
        try:
            names = sorted(path.name for path in self._path.iterdir() if _is_manifest(path.name))
        except (OSError, ValueError) as error:
            return Reading(self._pods, (f"{self._path}: {_reason(error)}",))
        problems = [f"{self._path}: {len(names):,} manifests; {MAX_FILES:,} are read"] if len(names) > MAX_FILES else []
        before = self._files
        self._files = {name: self._file(name, before.get(name)) for name in names[:MAX_FILES]}
        problems += [file.problem for file in self._files.values() if file.problem]
        if self._files != before:
            self._pods = KnownPods(pod for file in reversed(self._files.values()) for pod in file.pods)
        return Reading(self._pods, tuple(problems))

    def _file(self, name: str, before: _File | None) -> _File:
        path, shown = self._path / name, f"{self._path}/{bare(name)}"
        pods = before.pods if before else ()
        try:
            # A pipe must not block us.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
                status = os.fstat(descriptor)
                stamp = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
                if before is not None and before.stamp == stamp:
                    return before
                if not stat.S_ISREG(status.st_mode):
                    return _File(stamp, (), f"{shown}: not a regular file")
                data = file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            return _File((0, 0, 0, 0), pods, f"{shown}: {_reason(error)}")
        try:
            return _File(stamp, parse_pods(_decoded(data), source=shown).pods)
        except ParseError as error:
            return _File(stamp, pods, str(error) if error.where else f"{shown}: {error}")


class PodEndpoint:
    """A kubelet's read-only list of its pods; they have their real UIDs, so names do not matter."""

    def __init__(self, url: str, *, timeout: float = TIMEOUT, limit: int = MAX_BYTES) -> None:
        self._url = url
        self._timeout = timeout
        self._limit = limit
        self._body = b""
        self._last = Reading(KnownPods(by_name=False))

    def read(self) -> Reading:
        """Ask the kubelet; keep its last answer if it does not reply."""
        try:
            body = self._ask()
            if body != self._body:
                pods, problems = _parse_list(_decoded(body))
                self._last = Reading(KnownPods(pods, by_name=False), tuple(f"{self._url}: {one}" for one in problems))
                self._body = body
        except (OSError, HTTPException, ValueError) as error:
            return Reading(self._last.pods, (f"{self._url}: {_reason(error)}",))
        return self._last

    def _ask(self) -> bytes:
        """Return the body of the answer, which must arrive in time and be complete."""
        url = urlsplit(self._url)
        path = f"{url.path or '/'}{f'?{url.query}' if url.query else ''}"
        # HTTP/1.0: the answer ends with the connection, so time and size can be bounded for all of it.
        request = f"GET {path} HTTP/1.0\r\nHost: {url.netloc.rpartition('@')[2]}\r\nAccept: application/json\r\n\r\n"
        until = time.monotonic() + self._timeout
        with socket.create_connection((url.hostname or "", url.port or 80), self._timeout) as connection:
            connection.sendall(request.encode())
            answer = self._receive(connection, until)
        response = HTTPResponse(cast("socket.socket", _Received(answer)))  # it only asks for a file to read
        response.begin()
        body = response.read()
        if response.status != _OK:
            raise HTTPException(f"HTTP status {response.status}")
        return body

    def _receive(self, connection: socket.socket, until: float) -> bytes:
        answer = bytearray()
        while True:
            connection.settimeout(max(until - time.monotonic(), 0.001))
            piece = connection.recv(_PIECE)
            if not piece:
                return bytes(answer)
            answer += piece
            if len(answer) > self._limit:
                raise HTTPException(f"more than {self._limit:,} bytes")
            if time.monotonic() >= until:
                raise TimeoutError


class _Received:
    """An answer already received, in place of a socket."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def makefile(self, _mode: str) -> BytesIO:
        return BytesIO(self._answer)


def _parse_list(text: str) -> tuple[tuple[Pod, ...], list[str]]:
    """Return the pods of a list; one that cannot be read does not spoil the others."""
    try:
        return parse_pods(text).pods, []
    except ParseError as whole:
        try:
            listed: object = json.loads(text)
        except (ValueError, RecursionError):
            raise whole from None
        items = listed.get("items") if isinstance(listed, dict) else None
        if not isinstance(items, list):
            raise
    pods: list[Pod] = []
    problems: list[str] = []
    for number, item in enumerate(items):
        try:
            pods += parse_pods(json.dumps({"kind": "PodList", "items": [item]})).pods
        except ParseError as error:
            problems.append(f"items[{number}]: {error.problem}")
    more = [f"and {len(problems) - _MOST_TOLD} more"] if len(problems) > _MOST_TOLD else []
    return tuple(pods), problems[:_MOST_TOLD] + more


def _is_manifest(name: str) -> bool:
    return name.endswith(_SUFFIXES) and not name.startswith(".")


def _decoded(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise ParseError(f"more than {MAX_BYTES:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ParseError(f"invalid UTF-8 at byte {error.start}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text if isinstance(error, ParseError) else excerpt(text)[1:-1]
