"""Readiness: says once that the daemon is ready, when it serves and its runtime has reported what runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.events.daemon import RuntimeLinked

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pinfold.core.events import Event


class Readiness:
    """Waits for both; hears the events of a bus."""

    def __init__(
        self, links: Collection[str], say: Callable[[], None], waits_for: Callable[[str], None] = lambda _: None
    ) -> None:
        """*links* are the states of the connection in which the runtime has reported what runs.

        *waits_for* is told once why there is no connection yet.
        """
        self._links = links
        self._say = say
        self._waits_for: Callable[[str], None] | None = waits_for
        self._waits = False

    def serve(self, link: str) -> None:
        """Record that the daemon serves, and the state of the connection to its runtime."""
        self._waits = True
        self._look(link)

    def hear(self, event: Event) -> None:
        """Record a change of that connection."""
        if isinstance(event, RuntimeLinked):
            self._look(event.link)
            if self._waits and event.detail and self._waits_for is not None:
                self._waits_for(event.detail)
                self._waits_for = None

    def _look(self, link: str) -> None:
        if self._waits and link in self._links:
            self._waits = False
            self._say()
