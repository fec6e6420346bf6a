"""A simulated machine that only remembers: to try out other machines, and to test the code above it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import IO, TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.reconcile import Observed
from pinfold.node.processgroups.origin import Origin
from pinfold.node.waiting import OUTPUTS, in_thread
from pinfold.runtimes.base import ApplyError, Main, Members, ProcessEnded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping
    from signal import Signals

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Drift, Wanted
    from pinfold.runtimes.base import Start

_REMEMBERED: Final = 100
_FIRST_PID: Final = 1_000_000_001  # no kernel has such a process


class SimulatedApplier:
    """Remembers what was applied; a test may change `containers` and `shared` directly, or make it `fail`."""

    name: Final = "simulated"
    kind: Final = "simulated"
    weaker: Final = ("Simulated: no processes are started.",)

    def __init__(self) -> None:
        self.shared: CPUSet | None = None
        self.containers: dict[ContainerRef, CPUSet] = {}
        self.applied: deque[Wanted] = deque(maxlen=_REMEMBERED)
        self.fail: str | None = None
        self.mains: dict[ContainerRef, Main] = {}
        self.lent: dict[ContainerRef, Origin] = {}

    def find(self) -> dict[ContainerRef, CPUSet]:
        """Return none: no container runs yet."""
        return {}

    def prepare(self, shared: CPUSet) -> None:
        """Remember the shared pool."""
        self.shared = shared

    def observe(self, *, closely: bool = False) -> Observed:  # noqa: ARG002 - there is nothing closer to look at
        """Return the CPUs that were applied last, or set since by a test."""
        return Observed(self.shared, dict(self.containers))

    def apply(self, want: Wanted) -> None:
        """Remember it."""
        if self.fail is not None:
            raise ApplyError(self.fail)
        self.applied.append(want)
        self.shared = want.shared
        here = {*self.containers, *want.exclusive, *want.sharing}
        self.containers = {container: want.cpus_of(container) for container in here}

    def mend(self, ref: ContainerRef, want: Wanted) -> Drift | None:  # noqa: ARG002 - the protocol
        """Find nothing wrong."""
        return None

    def is_clear(self, want: Wanted) -> bool:
        """Return whether the pool is as wanted."""
        return self.shared == want.shared

    def vacate(self, ref: ContainerRef) -> list[int]:
        """Forget the container; pretend that lent processes go on."""
        main = self.mains.pop(ref, None)
        self.containers.pop(ref, None)
        return [main.pid] if self.lent.pop(ref, None) is not None and main is not None else []

    def allowed(self, ref: ContainerRef) -> str:
        """Return the CPUs that were applied."""
        return str(self.containers.get(ref, ""))

    def members(self, ref: ContainerRef) -> Members:  # noqa: ARG002 - the protocol
        """Return nothing: nothing runs."""
        return Members()

    async def leave(self, cpus: CPUSet, kept: CPUSet = EMPTY) -> None:
        """Do nothing: only the applied CPUs exist."""


class SimulatedLauncher:
    """Pretends to start and watch processes."""

    def __init__(self, applier: SimulatedApplier) -> None:
        self._applier = applier
        self._next = _FIRST_PID
        self._events: asyncio.Queue[ProcessEnded] = asyncio.Queue()

    @property
    def mains(self) -> Mapping[ContainerRef, Main]:
        """The main processes that are pretended to run."""
        return self._applier.mains

    @property
    def lent(self) -> Mapping[ContainerRef, Origin]:
        """The containers whose processes are pretended to be lent."""
        return self._applier.lent

    @property
    def known(self) -> Collection[ContainerRef]:
        """The containers that were applied."""
        return self._applier.containers.keys()

    def find_again(self, ref: ContainerRef, main: Main | None, origin: Origin | None = None) -> bool:  # noqa: ARG002 - the protocol
        """Return no: nothing runs on after a restart."""
        return False

    async def spawn(
        self,
        ref: ContainerRef,
        start: Start,  # noqa: ARG002 - the protocol
        output: Callable[[], IO[bytes]],
    ) -> int:
        """Pretend to start a command, and return a pid that no process has."""
        await in_thread(lambda: output().close(), OUTPUTS)
        self._next += 1
        self._applier.mains[ref] = Main(self._next, 0)
        return self._next

    def environment(self, ref: ContainerRef) -> dict[str, str]:  # noqa: ARG002 - the protocol
        """Return nothing: nothing is started."""
        return {}

    def is_ours(self, pid: int) -> bool:  # noqa: ARG002 - the protocol
        """Return False: no process is real."""
        return False

    def holder(self, pid: int) -> ContainerRef | None:
        """Return the container whose main process it is pretended to be."""
        return next((ref for ref, main in self.mains.items() if main.pid == pid), None)

    def expect(self, ref: ContainerRef, pid: int, *, lent: bool = False) -> Main:
        """Pretend that there is such a process."""
        if lent:
            self._applier.lent[ref] = Origin()
        return Main(pid, 0)

    def attach(self, ref: ContainerRef, main: Main) -> None:
        """Pretend that the process is the container's."""
        if self._applier.fail is not None:
            raise ApplyError(self._applier.fail)
        self._applier.mains[ref] = main

    def signal(self, ref: ContainerRef, number: Signals) -> None:
        """Pretend that the container ends by the signal."""
        if ref in self.mains:
            self.end(ref, -number)

    async def gone(self, refs: Collection[ContainerRef], within: float) -> bool:  # noqa: ARG002 - the protocol
        """Return whether none of these is pretended to run."""
        return not any(ref in self.mains for ref in refs)

    async def clear(self, refs: Collection[ContainerRef], within: float) -> None:
        """Do nothing: no process is left behind."""

    async def events(self) -> AsyncIterator[ProcessEnded]:
        """Yield the ends that are pretended."""
        while True:
            yield await self._events.get()

    def end(self, ref: ContainerRef, code: int | None = 0) -> None:
        """Pretend that the container has ended by itself."""
        self._applier.mains.pop(ref, None)
        self._events.put_nowait(ProcessEnded(ref, code))
