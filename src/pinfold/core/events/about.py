"""Whom an event is about, and who is told which of its fields."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pinfold.core.pods.pod import Pod, PodUID

    Data = Mapping[str, object]
    """A JSON-ready object."""
    Rows = Sequence[Data]


class Audience(IntEnum):
    """Who is told: each one is told all that those before it are told, and more."""

    LOG = 1
    STREAM = 2
    """The event stream: `pinfold events`, and `/events` for the page."""
    JOURNAL = 3


FROM: Final = "from"
"""The key in a field's metadata under which the first Audience stands that is told the field; LOG if there is none."""
EMPTY_AS: Final = "empty as"
"""The key in a field's metadata under which the word for no CPUs stands; an empty text if there is none."""
STREAM: Final = {FROM: Audience.STREAM}
JOURNAL: Final = {FROM: Audience.JOURNAL}
FOUND: Final = {EMPTY_AS: "none"}


@dataclass(frozen=True, slots=True)
class PodName:
    """A pod: the log has its name, the event stream also its namespace, the journal also its UID."""

    namespace: str
    """Empty if it is not known."""
    name: str
    uid: str
    """Empty if it is not known."""

    @classmethod
    def of(cls, pod: Pod) -> PodName:
        """Return what *pod* is called."""
        return cls(pod.namespace, pod.name, pod.uid)

    @classmethod
    def of_uid(cls, uid: PodUID) -> PodName:
        """Return a pod of which only the UID is known: it is called by that."""
        return cls("", uid, uid)
