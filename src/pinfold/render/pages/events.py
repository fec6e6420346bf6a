"""The page docs/reference/events.md, from the classes of `core.events`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

from pinfold.core.events import GROUPS
from pinfold.core.events.about import Audience
from pinfold.core.events.fields import fields_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_INTRODUCTION: Final = """\
<!-- Written by: tools/reference -->

# Events

Everything that happens on a node is an event.
Each is a line in the log and an entry in the journal (`pinfold history`) and in the event stream (`pinfold events`).

- Every entry has a `number`, a `time`, its word (`what`), and the fields of its row.
  In a log line of key=value pairs the word is called `event`, and there is no number.
- Of a pod the log has the name (`pod`), the event stream also the `namespace`, and the journal also the `uid`.
- Fields marked *stream* are in the event stream and the journal; fields marked *journal* are in the journal only.
- An empty field is left out, for example `container` in an event about a whole pod.
- CPUs are written as a list such as `2-3,10`.

The [metrics](metrics.md) count how often things happen and how long they take."""
_MARKS: Final = {Audience.LOG: "", Audience.STREAM: "stream: ", Audience.JOURNAL: "journal: "}


def document() -> str:
    """Return the reference of all events."""
    parts = [_INTRODUCTION]
    for title, group in GROUPS.items():
        parts += ["", f"## {title}", "", "| what | meaning | fields |", "|---|---|---|"]
        parts += [f"| `{cls.what}` | {cls.__doc__} | {'; '.join(_fields(cls))} |" for cls in get_args(group)]
    return "\n".join([*parts, ""])


def _fields(cls: Any) -> Iterator[str]:  # noqa: ANN401 - a class of the union; mypy has no name for it
    for audience, mark in _MARKS.items():
        names = [f"`{field.name}`" for field in fields_of(cls) if field.first is audience]
        if names:
            yield mark + ", ".join(names)
