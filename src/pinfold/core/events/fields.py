"""The fields of an event, as its entry has them in the log, the event stream or the journal.

- A field for all audiences is one word or number: CPUs are written as a list, numbers side by side.
- A field for the journal alone can have structure, and is JSON-ready.
- A field with its default value is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.events.about import EMPTY_AS, FROM, Audience, PodName
from pinfold.core.events.decisions import StateChanged
from pinfold.core.machine.cpuset import CPUSet

if TYPE_CHECKING:
    from pinfold.core.events import Told

_DIGITS: Final = 3


class EntryField(NamedTuple):
    """A field of a class of events."""

    attribute: str
    name: str
    """Its name in an entry: without the underscore that a keyword of Python needs."""
    first: Audience
    """The first audience that gets it; all later ones get it too."""
    default: object
    """Its default as an entry would write it; such a field is left out."""
    empty: str
    """The word for no CPUs."""


@cache
def fields_of(cls: type) -> tuple[EntryField, ...]:
    """Return the fields of a class of events, in order."""
    found = (
        EntryField(
            field.name,
            field.name.removesuffix("_"),
            field.metadata.get(FROM, Audience.LOG),
            field.default,
            field.metadata.get(EMPTY_AS, ""),
        )
        for field in fields(cls)
    )
    return tuple(field._replace(default=_plain(field.default, field)) for field in found)


def is_for(event: Told, audience: Audience) -> bool:
    """Whether *audience* gets *event* at all: only the journal gets whole States."""
    return audience is Audience.JOURNAL or not isinstance(event, StateChanged)


def entry_fields(event: Told, audience: Audience) -> dict[str, object]:
    """Return the fields of *event* for *audience*, JSON-ready and in order.

    >>> from pinfold.core.events.decisions import Released
    >>> event = Released(PodName("default", "web", "1a2b"), "app")
    >>> entry_fields(event, Audience.LOG)
    {'pod': 'web', 'container': 'app'}
    >>> entry_fields(event, Audience.JOURNAL)
    {'namespace': 'default', 'pod': 'web', 'uid': '1a2b', 'container': 'app'}
    """
    told: dict[str, object] = {}
    cls: type = type(event)  # without this type mypy takes the class for one that cannot be hashed
    for field in fields_of(cls):
        if field.first > audience:
            continue
        value = _plain(getattr(event, field.attribute), field)
        if isinstance(value, PodName):
            told.update(_pod(value, audience))
        elif value != field.default:
            told[field.name] = value
    return told


def _pod(pod: PodName, audience: Audience) -> dict[str, str]:
    told = {"pod": pod.name}
    if audience >= Audience.STREAM and pod.namespace:
        told = {"namespace": pod.namespace, **told}
    if audience >= Audience.JOURNAL and pod.uid:
        told["uid"] = pod.uid
    return told


def _plain(value: object, field: EntryField) -> object:
    match value:
        case CPUSet():
            return str(value) or field.empty
        case float():
            return round(value, _DIGITS)
        case tuple():
            return list(value) if field.first is Audience.JOURNAL else " ".join(map(str, value))
        case Mapping():
            return {name: str(item) if isinstance(item, CPUSet) else item for name, item in value.items()}
        case _:
            return value
