"""What a runtime is: the Runtime protocol, and the errors that all of them have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from pinfold.errors import PinfoldError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence
    from signal import Signals
    from typing import IO

    from pinfold.core.cpuset import CPUSet
    from pinfold.core.pods import ContainerRef
    from pinfold.core.reconcile import Observed, Wanted
    from pinfold.node.groups import Limit
    from pinfold.node.origin import Origin


class ApplyError(PinfoldError):
    """CPUs could not be set as decided; nothing may start on them."""


class Ended(NamedTuple):
    """A container that no longer runs; *code* is its exit code, negative for a signal, None if nobody knows."""

    container: ContainerRef
    code: int | None


class CannotStart(PinfoldError):  # noqa: N818 - the fact
    """A command that could not be started; *code* is what a shell would exit with."""

    def __init__(self, command: str, cause: OSError) -> None:
        missing = isinstance(cause, FileNotFoundError)
        super().__init__(f"{command}: {cause.strerror}")
        self.code = 127 if missing else 126


class Main(NamedTuple):
    """The process that a container stands and falls with."""

    pid: int
    started: int
    """In clock ticks since boot: with the pid, who it is for as long as the machine is up."""


class Runtime(Protocol):
    """Runs containers, and puts them on the CPUs that were decided."""

    @property
    def name(self) -> str:
        """The runtime's name, as users write it."""
        ...

    @property
    def weaker(self) -> tuple[str, ...]:
        """What this runtime cannot promise here, in words."""
        ...

    def observe(self, *, closely: bool = False) -> Observed:
        """Return the CPUs that everything runs on now; *closely* looks at the processes themselves too."""
        ...

    def apply(self, want: Wanted) -> None:
        """Make it so: first take CPUs away from those that must not have them, then give. Raise what cannot be done."""
        ...


class Launcher(Runtime, Protocol):
    """A runtime that starts containers itself, because nobody else on the host does."""

    @property
    def kind(self) -> str:
        """How it keeps containers on their CPUs, for people to read."""
        ...

    @property
    def mains(self) -> Mapping[ContainerRef, Main]:
        """The main processes that run now."""
        ...

    def events(self) -> AsyncIterator[Ended]:
        """Yield what happens to containers by itself."""
        ...

    def hold(self) -> None:
        """Make sure that no other daemon uses the same groups, or raise."""
        ...

    def find(self) -> Mapping[ContainerRef, CPUSet]:
        """Return the exclusive containers that run already, and change nothing."""
        ...

    def prepare(self, shared: CPUSet) -> None:
        """Make everything ready; a pool that is there already is not let onto CPUs it does not have."""
        ...

    @property
    def known(self) -> Collection[ContainerRef]:
        """The containers that there is anything of, also of before a restart."""
        ...

    def make_shared(self, ref: ContainerRef, limit: Limit) -> None:
        """Make room for a container in the shared pool."""
        ...

    def spawn(
        self, ref: ContainerRef, command: Sequence[str], environment: Mapping[str, str], directory: str, out: IO[bytes]
    ) -> int:
        """Start a command as the container's main process, on its CPUs from its first instruction on."""
        ...

    def environment(self, ref: ContainerRef) -> Mapping[str, str]:
        """Return the variables that whoever starts a process to be attached adds to its environment."""
        ...

    def holder(self, pid: int) -> str | None:
        """Return what a process belongs to already, in words; None if it can be attached."""
        ...

    def attach(self, ref: ContainerRef, pid: int, *, lent: bool = False) -> None:
        """Make a running process the container's main process; if that fails it is as before.

        One that is *lent* goes on when the container is forgotten, where it was before.
        """
        ...

    @property
    def lent(self) -> Mapping[ContainerRef, Origin]:
        """The containers whose processes are only lent, and where these come from."""
        ...

    def lend(self, ref: ContainerRef, origin: Origin) -> None:
        """Take note that what runs in a container since before a restart is only lent."""
        ...

    def find_again(self, ref: ContainerRef, main: Main | None) -> bool:
        """Watch the main process of before a restart, if it still runs; whether it does.

        Where nobody knows which it was (None), it is the first of what runs in the container.
        """
        ...

    def allowed(self, ref: ContainerRef) -> str:
        """Return the CPUs that the main process may use, as the kernel says."""
        ...

    def signal(self, ref: ContainerRef, number: Signals) -> None:
        """Send a signal to the main process."""
        ...

    async def gone(self, refs: Collection[ContainerRef], within: float) -> bool:
        """Wait until no main process of these is left, for so many seconds at most; whether that is so."""
        ...

    def forget(self, ref: ContainerRef) -> list[int]:
        """End whatever is left of a container, and forget it; return the processes that were lent, and go on."""
        ...

    def clean_up(self) -> None:
        """Leave nothing behind."""
        ...
