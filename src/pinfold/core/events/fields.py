"""The fields of an event, as its entry has them in the log, the event stream or the journal.

- A field that all audiences are told is one word or number: CPUs are written as a list, numbers side by side.
- A field of the journal alone can have structure: it becomes JSON-ready data.
- A field that has its default is left out: there is nothing to say of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from pinfold.core.cpuset import CPUSet
from pinfold.core.events.about import EMPTY_AS, FROM, Audience, PodName
from pinfold.core.events.decisions import StateChanged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from dataclasses import Field

    from pinfold.core.events import Told

_DIGITS: Final = 3


def is_for(event: Told, audience: Audience) -> bool:
    """Whether *audience* is told of *event* at all: only the journal has to remember whole States."""
    return audience is Audience.JOURNAL or not isinstance(event, StateChanged)


def entry_fields(event: Told, audience: Audience) -> dict[str, object]:
    """Return what *audience* is told of *event*, JSON-ready, in the order of its fields.

    >>> from pinfold.core.events.decisions import Released
    >>> event = Released(PodName("default", "web", "1a2b"), "app")
    >>> entry_fields(event, Audience.LOG)
    {'pod': 'web', 'container': 'app'}
    >>> entry_fields(event, Audience.JOURNAL)
    {'namespace': 'default', 'pod': 'web', 'uid': '1a2b', 'container': 'app'}
    """
    told: dict[str, object] = {}
    for field in fields(event):
        value = getattr(event, field.name)
        if first_told(field) <= audience and value != field.default:
            told.update(_told(field, value, audience))
    return told


def first_told(field: Field[object]) -> Audience:
    """Return the first audience that is told a field."""
    first = field.metadata.get(FROM, Audience.LOG)
    assert isinstance(first, Audience)  # noqa: S101 - for mypy: metadata has no types
    return first


def field_name(field: Field[object]) -> str:
    """Return what a field is called in an entry: a keyword of Python has no underscore there."""
    return field.name.removesuffix("_")


def _told(field: Field[object], value: object, audience: Audience) -> Iterator[tuple[str, object]]:
    match value:
        case PodName():
            yield from _pod(value, audience)
        case CPUSet():
            yield field_name(field), str(value) or field.metadata.get(EMPTY_AS, "")
        case tuple() if first_told(field) is not Audience.JOURNAL:
            yield field_name(field), " ".join(map(str, value))
        case float():
            yield field_name(field), round(value, _DIGITS)
        case _:
            yield field_name(field), _data(value)


def _pod(pod: PodName, audience: Audience) -> Iterator[tuple[str, object]]:
    if audience >= Audience.STREAM and pod.namespace:
        yield "namespace", pod.namespace
    yield "pod", pod.name
    if audience >= Audience.JOURNAL and pod.uid:
        yield "uid", pod.uid


def _data(value: object) -> object:
    match value:
        case CPUSet():
            return str(value)
        case Mapping():
            return {name: _data(item) for name, item in value.items()}
        case tuple() | list():
            return [_data(item) for item in value]
        case _:
            return value
