"""Pods from manifests in a directory, as a kubelet's static pods are.

They only refine what a container runtime reports: a file that cannot be read is a problem in words, and its pods of
before stay.
"""

from __future__ import annotations

import os
import stat
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.pods.pod import Pod, PodUID
from pinfold.errors import ParseError, excerpt
from pinfold.formats.fields import bare
from pinfold.formats.pods.manifest import PodRoom, parse_pods
from pinfold.formats.pods.runtime import is_static

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pinfold.formats.pods.runtime import RuntimePod

MAX_BYTES: Final = 16 << 20
MAX_FILES: Final = 10_000

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_Stamp = tuple[int, int, int, int]


class KnownPods:
    """Pods by UID, and by namespace and name: in a manifest a name is enough."""

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        self.by_uid: Mapping[PodUID, Pod] = MappingProxyType({pod.uid: pod for pod in pods})
        names = {(pod.namespace, pod.name): pod for pod in self.by_uid.values()}
        self.by_name: Mapping[tuple[str, str], Pod] = MappingProxyType(names)

    def find(self, pod: RuntimePod) -> Pod | None:
        """Return what is known of a pod of the runtime; the kubelet adds "-NODE" to the name of a static pod."""
        found = self.by_uid.get(PodUID(pod.uid)) or self.by_name.get((pod.namespace, pod.name))
        if found is None and is_static(pod):
            ends = [at for at, letter in enumerate(pod.name) if letter == "-"]
            shorter = (self.by_name.get((pod.namespace, pod.name[:end])) for end in reversed(ends))
            found = next(filter(None, shorter), None)
        return found


class PodsRead(NamedTuple):
    """The pods and problems of a directory now."""

    pods: KnownPods
    problems: tuple[str, ...] = ()


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

    def read(self) -> PodsRead:
        """Return the pods of all manifests."""
        try:
            names = sorted(path.name for path in self._path.iterdir() if _is_manifest(path.name))
        except (OSError, ValueError) as error:
            return PodsRead(self._pods, (f"{self._path}: {_reason(error)}",))
        problems = [f"{self._path}: {len(names):,} manifests; {MAX_FILES:,} are read"] if len(names) > MAX_FILES else []
        before = self._files
        self._files = {name: self._file(name, before.get(name)) for name in names[:MAX_FILES]}
        problems += [file.problem for file in self._files.values() if file.problem]
        if self._files != before:
            self._pods = KnownPods(pod for file in reversed(self._files.values()) for pod in file.pods)
        return PodsRead(self._pods, tuple(problems))

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
            return _File(stamp, parse_pods(_decoded(data), source=shown, room=PodRoom.small()).pods)
        except ParseError as error:
            return _File(stamp, pods, str(error) if error.where else f"{shown}: {error}")


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
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text if isinstance(error, ParseError) else excerpt(text)[1:-1]
