"""A runtime that only remembers: for trying out machines one does not have, and for tests of what is above it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import IO, TYPE_CHECKING, Final

from pinfold.core.reconcile import Observed
from pinfold.node.origin import Origin
from pinfold.runtimes.base import ApplyError, Ended, Main

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence
    from signal import Signals

    from pinfold.core.cpuset import CPUSet
    from pinfold.core.pods import ContainerRef
    from pinfold.core.reconcile import Wanted
    from pinfold.node.groups import Limit

_REMEMBERED: Final = 100
_FIRST_PID: Final = 1_000_000_001  # no kernel has such a process


class SimulatedRuntime:
    """Remembers what was applied; a test may move things behind its back (`containers`, `shared`) or make it `fail`."""

    name: Final = "simulated"
    kind: Final = "nothing"
    weaker: Final = ("nothing really runs",)

    def __init__(self) -> None:
        self.shared: CPUSet | None = None
        self.containers: dict[ContainerRef, CPUSet] = {}
        self.applied: deque[Wanted] = deque(maxlen=_REMEMBERED)
        self.fail: str | None = None
        self._mains: dict[ContainerRef, Main] = {}
        self._lent: dict[ContainerRef, Origin] = {}
        self._next = _FIRST_PID
        self._events: asyncio.Queue[Ended] = asyncio.Queue()

    @property
    def mains(self) -> Mapping[ContainerRef, Main]:
        """The main processes that are pretended to run."""
        return self._mains

    def observe(self, *, closely: bool = False) -> Observed:  # noqa: ARG002 - there is nothing closer to look at
        """Return what was applied last, or moved since."""
        return Observed(self.shared, dict(self.containers))

    def apply(self, want: Wanted) -> None:
        """Remember it."""
        if self.fail is not None:
            raise ApplyError(self.fail)
        self.applied.append(want)
        self.shared = want.shared
        self.containers |= want.exclusive
        self.containers = {container: want.cpus_of(container) for container in self.containers}

    async def events(self) -> AsyncIterator[Ended]:
        """Yield the ends that are pretended."""
        while True:
            yield await self._events.get()

    def hold(self) -> None:
        """Nobody else can use it."""

    def find(self) -> dict[ContainerRef, CPUSet]:
        """Nothing runs already."""
        return {}

    def prepare(self, shared: CPUSet) -> None:
        """Remember the shared pool."""
        self.shared = shared

    @property
    def known(self) -> Collection[ContainerRef]:
        """The containers that were applied."""
        return self.containers.keys()

    def make_shared(self, ref: ContainerRef, _limit: Limit) -> None:
        """Pretend that the container is in the shared pool."""
        if self.shared is not None:
            self.containers[ref] = self.shared

    def spawn(
        self,
        ref: ContainerRef,
        _command: Sequence[str],
        _environment: Mapping[str, str],
        _directory: str,
        _out: IO[bytes],
    ) -> int:
        """Pretend to start a command, and return a pid that nobody has."""
        self._next += 1
        self._mains[ref] = Main(self._next, 0)
        return self._next

    def environment(self, _ref: ContainerRef) -> dict[str, str]:
        """Nothing is started."""
        return {}

    def holder(self, pid: int) -> str | None:
        """Return whose main process it is pretended to be."""
        return next(
            (f"container {ref.name} of pod {ref.pod}" for ref, main in self._mains.items() if main.pid == pid), None
        )

    def attach(self, ref: ContainerRef, pid: int, *, lent: bool = False) -> None:
        """Pretend that the process is the container's."""
        if self.fail is not None:
            raise ApplyError(self.fail)
        self._mains[ref] = Main(pid, 0)
        if lent:
            self.lend(ref, Origin())

    @property
    def lent(self) -> Mapping[ContainerRef, Origin]:
        """The containers whose processes are pretended to be lent."""
        return self._lent

    def lend(self, ref: ContainerRef, origin: Origin) -> None:
        """Remember that a container's process is lent."""
        self._lent[ref] = origin

    def find_again(self, _ref: ContainerRef, _main: Main | None) -> bool:
        """Nothing runs on after a restart."""
        return False

    def allowed(self, ref: ContainerRef) -> str:
        """Return the CPUs that were applied."""
        return str(self.containers.get(ref, ""))

    def signal(self, ref: ContainerRef, number: Signals) -> None:
        """Pretend that the container ends by the signal."""
        if ref in self._mains:
            self.end(ref, -number)

    async def gone(self, refs: Collection[ContainerRef], _within: float) -> bool:
        """Whether none of these is pretended to run."""
        return not any(ref in self._mains for ref in refs)

    def forget(self, ref: ContainerRef) -> list[int]:
        """Forget the container; what is lent is pretended to go on."""
        main = self._mains.pop(ref, None)
        self.containers.pop(ref, None)
        return [main.pid] if self._lent.pop(ref, None) is not None and main is not None else []

    def clean_up(self) -> None:
        """Nothing is left behind."""

    def end(self, ref: ContainerRef, code: int | None = 0) -> None:
        """Pretend that the container has ended by itself."""
        self._mains.pop(ref, None)
        self._events.put_nowait(Ended(ref, code))
