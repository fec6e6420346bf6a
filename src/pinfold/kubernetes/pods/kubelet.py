"""The kubelet's list of its pods, over HTTP: with a token on its authenticated port, or on its read-only port."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.kubernetes.http import HTTPClient, Server
from pinfold.kubernetes.pods.items import find_in, items_of, parse_object

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pinfold.core.pods.pod import Pod
    from pinfold.formats.pods.runtime import RuntimePod
    from pinfold.kubernetes.pods.base import Found

READ_ONLY_PORT: Final = 10255
_LOOK_EVERY: Final = 10.0
_SLOWEST: Final = 0.5
_LISTENS: Final = "0A"
_ROOT: Final = "0"


class KubeletPods:
    """Asks the kubelet for all its pods; nothing is kept."""

    def __init__(self, name: str, server: Callable[[], Server], is_there: Callable[[], bool]) -> None:
        """*server* is worked out for each request: it depends on files that change."""
        self.name = name
        self.is_there = is_there
        self._server = server

    async def find(self, pods: Sequence[RuntimePod]) -> Found:
        """Return those of *pods* that the kubelet lists."""
        answer = await HTTPClient(self._server()).send("GET", "/pods")
        return find_in(items_of(parse_object(answer, self.name)), pods, self.name)

    def known(self, _pod: RuntimePod) -> Pod | None:
        """Return None: each pod is asked for."""
        return None

    async def follow(self, failed: Callable[[str], object]) -> None:
        """Return: there is nothing to follow."""


def root_listens(port: int, proc: Path = Path("/proc")) -> bool:
    """Return whether a program of root listens on this TCP port: that of another user is not the kubelet.

    In a pod with a network of its own these are the pod's ports, not the host's.
    """
    rows = (line.split() for name in ("tcp", "tcp6") for line in _lines(proc / "net" / name))
    return any(row[3] == _LISTENS and row[7] == _ROOT and int(row[1].rpartition(":")[2], 16) == port for row in rows)


def accepts(address: str, port: int) -> bool:
    """Return whether a program accepts connections there; it is told nothing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with closing(socket.socket(family, socket.SOCK_STREAM)) as connection:
            connection.settimeout(_SLOWEST)
            connection.connect((address, port))
    except OSError:
        return False
    return True


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()[1:]
    except OSError:
        return []


class ReadOnlyPort(KubeletPods):
    """Asks the kubelet on its read-only port, if a program of root listens there.

    The kernel takes 4 to 8 ms of CPU time to list its connections, however few they are. So after the first time they
    are listed only if a program accepts one. A thread looks, now and then, and once more before the kubelet is asked.
    """

    def __init__(
        self,
        address: str,
        port: int = READ_ONLY_PORT,
        *,
        listens: Callable[[int], bool] = root_listens,
        every: float = _LOOK_EVERY,
    ) -> None:
        self._at = Server(address, port)
        super().__init__("kubelet's read-only port", lambda: self._at, lambda: self._seen)
        self._listens = listens
        self._every = every
        self._seen = listens(port)  # without a connection: the start of the daemon must not wait for one

    async def find(self, pods: Sequence[RuntimePod]) -> Found:
        """Return those of *pods* that the kubelet lists; none if another program listens there by now."""
        await self._look()
        return await super().find(pods) if self._seen else {}

    async def follow(self, _failed: Callable[[str], object]) -> None:
        """Look again and again whether a kubelet listens, for ever."""
        while True:
            await asyncio.sleep(self._every)
            await self._look()

    async def _look(self) -> None:
        try:
            self._seen = await asyncio.to_thread(self._is_kubelet)
        except RuntimeError:  # no thread can be started now
            self._seen = False

    def _is_kubelet(self) -> bool:
        return accepts(self._at.host, self._at.port) and self._listens(self._at.port)
