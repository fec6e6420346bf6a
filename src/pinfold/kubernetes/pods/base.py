"""What a source of whole pods is, and what a feed of changes is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from pinfold.core.pods.pod import Pod
    from pinfold.formats.pods.runtime import RuntimePod

    Found = Mapping[str, Pod]
    """Whole pods by the runtime's own ids."""


class PodSource(Protocol):
    """A program or a directory that knows pods whole."""

    name: str
    """Its name in events."""

    def is_there(self) -> bool:
        """Return whether it makes sense to ask it now."""
        ...

    async def find(self, pods: Sequence[RuntimePod]) -> Found:
        """Return those of *pods* that it knows; or raise why it does not answer."""
        ...

    def known(self, pod: RuntimePod) -> Pod | None:
        """Return the pod if it is known without asking."""
        ...

    async def follow(self, failed: Callable[[str], object]) -> None:
        """Keep what is known up to date, for ever; or return if there is nothing to follow.

        *failed* is called with the reason each time a connection cannot be made or is lost.
        """
        ...


class PodChange(NamedTuple):
    """A pod that is new, or has changed; or that is gone, then *pod* is None."""

    uid: str
    pod: Pod | None


class PodFeed(Protocol):
    """A source that also reports changes."""

    name: str

    def is_there(self) -> bool:
        """Return whether it makes sense to ask it now."""
        ...

    async def find(self, pods: Sequence[RuntimePod]) -> Found:
        """Return those of *pods* that it knows; or raise why it does not answer."""
        ...

    def changes(self) -> AsyncIterator[PodChange | None]:
        """Yield the changes of one connection; None: forget all pods, the feed starts from the beginning."""
        ...
