"""The pod that an event is about, and which audience gets which of its fields."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from pinfold.core.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pinfold.core.pods.pod import Pod, PodUID

    Data = Mapping[str, object]
    """A JSON-ready object."""
    Rows = Sequence[Data]


class Audience(IntEnum):
    """The readers of events; each gets all fields that the one before it gets, and more."""

    LOG = 1
    STREAM = 2
    """The event stream: `pinfold events`, and `/events` for the page."""
    JOURNAL = 3


FROM: Final = "from"
"""The key in a field's metadata for the first Audience that gets the field; LOG if it is missing."""
EMPTY_AS: Final = "empty as"
"""The key in a field's metadata for the word that means no CPUs; empty text if it is missing."""
STREAM: Final = {FROM: Audience.STREAM}
JOURNAL: Final = {FROM: Audience.JOURNAL}
FOUND: Final = {EMPTY_AS: "none"}


@value()
class PodName:
    """A pod: the log has its name, the event stream also its namespace, the journal also its UID."""

    namespace: str
    """Empty if it is not known."""
    name: str
    uid: str
    """Empty if it is not known."""

    @classmethod
    def of(cls, pod: Pod) -> PodName:
        """Return the names of *pod*."""
        return cls(pod.namespace, pod.name, pod.uid)

    @classmethod
    def of_uid(cls, uid: PodUID) -> PodName:
        """Return a pod of which only the UID is known; the UID is also its name."""
        return cls("", uid, uid)
