"""Entry: an event with its number and time; Subject: the pod or container that an entry is about.

Numbers go up and are unique. Times come from the clock, which can be set back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import ParseError, excerpt

if TYPE_CHECKING:
    from collections.abc import Mapping

STATE: Final = "state"
"""The word of an entry with a whole State: `shared`, and `exclusive` by NAMESPACE/POD/CONTAINER, as CPU lists."""
_PRIVATE: Final = frozenset({"output"})
"""What containers print: it may hold secrets, and other users can read the API."""
_FAR: Final = 1e15
_DEFAULT: Final = "default"
_NAMED: Final = ("POD", "POD/CONTAINER or NAMESPACE/POD", "NAMESPACE/POD/CONTAINER")


class Entry(NamedTuple):
    """An event with its number and time."""

    number: int
    time: float
    what: str
    fields: Mapping[str, object]

    def data(self) -> dict[str, object]:
        """Return it as JSON-ready data."""
        return {"number": self.number, "time": round(self.time, 3), "what": self.what, **self.fields}

    def public(self) -> dict[str, object]:
        """Return it without what only the daemon's user may read."""
        return {name: value for name, value in self.data().items() if name not in _PRIVATE}

    def text(self, name: str) -> str:
        """Return the text of a field; empty if there is no such field, or no text in it.

        >>> Entry(1, 0.0, "assigned", {"cpus": "2-3"}).text("cpus")
        '2-3'
        """
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""


def entry_of(data: object) -> Entry:
    """Return the entry in JSON data, or raise a ParseError.

    >>> entry_of({"number": 7, "time": 1.5, "what": "released", "pod": "web"})
    Entry(number=7, time=1.5, what='released', fields={'pod': 'web'})
    """
    if not isinstance(data, dict):
        raise ParseError("an entry is an object")
    fields = data.copy()
    number, time, what = fields.pop("number", None), fields.pop("time", None), fields.pop("what", None)
    if type(number) is not int or number < 1:
        raise ParseError("number: expected 1 or more")
    if isinstance(time, bool) or not isinstance(time, int | float) or not abs(time) < _FAR:  # not: NaN is not either
        raise ParseError("time: expected seconds since the epoch")
    if not isinstance(what, str):
        raise ParseError("what: expected text")
    return Entry(number, float(time), what, fields)


class Subject(NamedTuple):
    """A container, or all containers of a pod; without a namespace, in any.

    Of two parts, it is POD/CONTAINER and NAMESPACE/POD: people write both.
    """

    namespace: str | None
    pod: str
    container: str | None

    @classmethod
    def parse(cls, text: str) -> Subject:
        """Return the Subject named by POD, POD/CONTAINER, NAMESPACE/POD or NAMESPACE/POD/CONTAINER.

        >>> Subject.parse("web/app")
        Subject(namespace=None, pod='web', container='app')
        """
        parts = text.split("/", len(_NAMED))
        if len(parts) > len(_NAMED) or not all(parts):
            raise ParseError(f"{excerpt(text)} is not a container; expected {', '.join(_NAMED)}")
        namespace = parts.pop(0) if len(parts) == len(_NAMED) else None
        return cls(namespace, parts[0], parts[1] if parts[1:] else None)

    def covers(self, entry: Entry) -> bool:
        """Whether an entry is about this Subject; an entry about a pod is about each of its containers."""
        pod = entry.fields.get("pod")
        if pod != self.pod:
            return pod is not None and self._is_pod(str(entry.fields.get("namespace", _DEFAULT)), str(pod))
        return (self.namespace is None or entry.fields.get("namespace", self.namespace) == self.namespace) and (
            self.container is None or entry.fields.get("container", self.container) == self.container
        )

    def is_owner(self, name: str) -> bool:
        """Whether the container NAMESPACE/POD/CONTAINER, which owns CPUs, belongs to this Subject.

        >>> Subject.parse("web").is_owner("default/web/app"), Subject.parse("web/db").is_owner("default/web/app")
        (True, False)
        """
        namespace, pod, container = (*name.split("/"), "", "")[:3]
        if self.pod != pod:
            return self._is_pod(namespace, pod)
        return self.namespace in {None, namespace} and self.container in {None, container}

    def _is_pod(self, namespace: str, pod: str) -> bool:
        """Whether this is NAMESPACE/POD and means that pod."""
        return self.namespace is None and (self.pod, self.container) == (namespace, pod)

    def __str__(self) -> str:
        return "/".join(filter(None, self))
