"""The protocols around a Manager: the Applier sets and reads back CPUs, the Launcher starts plain processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.pods.pod import AS_THE_DAEMON
from pinfold.errors import PinfoldError
from pinfold.node.processgroups.errors import listed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
    from pathlib import Path
    from signal import Signals
    from typing import IO

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef, Identity, PodUID
    from pinfold.core.reconcile import Drift, Observed, Wanted
    from pinfold.node.processgroups.origin import Origin


class ApplyError(PinfoldError):
    """CPUs could not be set as decided; no container may start on them."""


class StillRunning(ApplyError):  # noqa: N818 - the fact
    """Processes were killed and have not ended yet: it takes a moment, or until a frozen process goes on."""

    def __init__(self, pids: Sequence[int]) -> None:
        super().__init__(f"killed, but not ended yet: {listed(pids)}; is it frozen, or does it wait for a disk?")
        self.pids = tuple(pids)


class ProcessEnded(NamedTuple):
    """A container that no longer runs; *code* is its exit code, negative for a signal, None if it is not known."""

    container: ContainerRef | None
    """None: a process ended that a container had left behind."""
    code: int | None = None


class LaunchError(PinfoldError):
    """A command that could not be started; *code* is what a shell would exit with."""

    def __init__(self, command: str, cause: OSError) -> None:
        missing = isinstance(cause, FileNotFoundError)
        super().__init__(f"{command}: {cause.strerror}")
        self.code = 127 if missing else 126


class Main(NamedTuple):
    """The main process of a container: when it ends, the container has ended."""

    pid: int
    started: int
    """In clock ticks since boot: the pid and this identify the process as long as the machine is up."""


class Members(NamedTuple):
    """Where a container runs."""

    groups: Sequence[Path] = ()
    """Its cgroups, its own first; none if it has none."""
    pids: Sequence[int] = ()


class Applier(Protocol):
    """Keeps containers on the CPUs that were decided. Only a Manager calls what changes anything."""

    @property
    def name(self) -> str:
        """The runtime's name, as users write it."""
        ...

    @property
    def kind(self) -> str:
        """How containers are kept on their CPUs, for people to read."""
        ...

    @property
    def weaker(self) -> tuple[str, ...]:
        """The guarantees that do not hold here, in words; the first is told at the start."""
        ...

    def observe(self, *, closely: bool = False) -> Observed:
        """Return the CPUs that each container runs on now; *closely* checks every container and its processes."""
        ...

    def apply(self, want: Wanted) -> None:
        """Set these CPUs: first take CPUs away from containers that must not have them, then give. Raise on failure."""
        ...

    def mend(self, ref: ContainerRef, want: Wanted) -> Drift | None:
        """Correct the CPUs of one container that is about to run, or raise; return what was wrong."""
        ...

    def is_clear(self, want: Wanted) -> bool:
        """Return whether exclusive CPUs are certainly free of other containers; a quick check."""
        ...

    def vacate(self, ref: ContainerRef) -> list[int]:
        """End a container's remaining processes and remove its group; return the lent processes, which go on."""
        ...

    def allowed(self, ref: ContainerRef) -> str:
        """Return the CPUs that the kernel lets a container use now, as text; empty if it has none."""
        ...

    def members(self, ref: ContainerRef) -> Members:
        """Return the cgroups and the processes of a container, as far as they are known."""
        ...

    async def leave(self, cpus: CPUSet, kept: CPUSet = EMPTY) -> None:
        """Give every group *cpus* again, except owners on *kept* CPUs, and remove empty groups of our own; or raise.

        Call it when nothing else changes groups any more, and after owners that do not stay were made to share.
        """
        ...


class Sight(Protocol):
    """Sees the pods of a node that have ended without a report from their source."""

    def is_gone(self, pod_id: str, *, listed: bool = False) -> bool:
        """Return whether a pod has vanished without a report from its source.

        *listed*: its source has just listed it among all pods; some list dead ones too.
        """
        ...

    def has_left(self, pod: PodUID) -> bool:
        """Return whether a pod is certainly not on the node, though no source has said so since the daemon started."""
        ...


class Start(NamedTuple):
    """A command to start, with its environment, files and user."""

    command: Sequence[str]
    environment: Mapping[str, str]
    directory: str = ""
    """The daemon's if it is empty."""
    identity: Identity = AS_THE_DAEMON


class Launcher(Protocol):
    """Starts and watches the processes of containers where no container runtime does."""

    @property
    def mains(self) -> Mapping[ContainerRef, Main]:
        """The main processes that run now."""
        ...

    @property
    def lent(self) -> Mapping[ContainerRef, Origin]:
        """The containers whose processes are only lent, and where these come from."""
        ...

    @property
    def known(self) -> Collection[ContainerRef]:
        """The containers that have a group, also those of an earlier daemon."""
        ...

    def find_again(self, ref: ContainerRef, main: Main | None, origin: Origin | None = None) -> bool:
        """Watch a main process from before the restart; return whether it still runs.

        Without *main* it is the first of the container's processes; with *origin* it is only lent.
        """
        ...

    async def spawn(self, ref: ContainerRef, start: Start, output: Callable[[], IO[bytes]]) -> int:
        """Start a command as the container's main process, on its CPUs from its first instruction on.

        *output* opens what it prints to, when it is its turn.
        """
        ...

    def environment(self, ref: ContainerRef) -> Mapping[str, str]:
        """Return the environment variables that mark an attached process as the container's."""
        ...

    def is_ours(self, pid: int) -> bool:
        """Return whether a process is this daemon, or a program of its own, which no container may take."""

    def holder(self, pid: int) -> ContainerRef | None:
        """Return the container that a process belongs to already."""
        ...

    def expect(self, ref: ContainerRef, pid: int, *, lent: bool = False) -> Main:
        """Return a running process that is to be attached; raise if it is not there.

        A process that is *lent* goes back to where it is now when the container is gone.
        """
        ...

    def attach(self, ref: ContainerRef, main: Main) -> None:
        """Make a running process the container's main process; if that fails it stays where it was."""
        ...

    def signal(self, ref: ContainerRef, number: Signals) -> None:
        """Send a signal to the main process."""
        ...

    async def gone(self, refs: Collection[ContainerRef], within: float) -> bool:
        """Wait for the main processes of these containers to end, *within* seconds; return whether all have."""
        ...

    async def clear(self, refs: Collection[ContainerRef], within: float) -> None:
        """Kill all processes of these containers, and wait *within* seconds for their end; or raise."""
        ...

    def events(self) -> AsyncIterator[ProcessEnded]:
        """Yield the containers whose main process has ended, and None for a process that was left behind."""
        ...
