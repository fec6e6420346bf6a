"""The annotations of a pod under `pinfold.dev/`.

| annotation | value | meaning |
|---|---|---|
| `pinfold.dev/cache-class` | a name | the cache class of its exclusive containers (`--cache-classes`) |
| `pinfold.dev/cpus.CONTAINER` | a whole number, or `shared` | number of exclusive CPUs, or none |
| `pinfold.dev/exclude` | `true`, `false` | pinfold ignores the pod |
| `pinfold.dev/local-memory` | `true`, `false` | memory of its CPUs' NUMA nodes only (default: `serve --local-memory`) |
| `pinfold.dev/movable` | `true`, `false` | whether its exclusive CPUs may change while it runs (default true) |
| `pinfold.dev/near` | names of devices, with commas | exclusive CPUs are at the NUMA nodes of these devices |
| `pinfold.dev/OPTION` | `true`, `false` | the policy option is in force for the pod, if its value is `per-pod` |
| `pinfold.dev/init.CONTAINER` | `true`, `false` | the container is an init container |
| `pinfold.dev/sidecar.CONTAINER` | `true`, `false` | the container is an init container that keeps running |

`pods.runtime` checks whether the pod may have what it asks for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import MAX_CPU
from pinfold.core.pods.pod import ANNOTATION_PREFIX
from pinfold.core.policies.options import OPTIONS, Values
from pinfold.errors import excerpt
from pinfold.formats.fields import Problems

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PREFIX: Final = ANNOTATION_PREFIX
SHARED: Final = 0
"""Stands for a container that never gets exclusive CPUs."""

_CONTAINER_FORM: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_DEVICE_FORM: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@!-]{0,127}")
_NUMBER_FORM: Final = re.compile(r"[1-9][0-9]{0,6}")
_LONGEST_LIST: Final = 4096
_SWITCHES: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the annotations of a pod change."""

    cpus: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Exclusive CPUs by container; SHARED: never any."""
    exclude: bool = False
    movable: bool = True
    local_memory: bool | None = None
    """None: as the daemon is set."""
    cache_class: str = ""
    near: tuple[str, ...] = ()
    """The names of devices."""
    init: frozenset[str] = frozenset()
    sidecars: frozenset[str] = frozenset()


NO_OVERRIDES: Final = Overrides()


def parse_annotations(annotations: Mapping[str, str], *, source: str = "") -> Overrides:
    """Return what the annotations of a pod ask for; *source* names the pod in errors. Other prefixes are ignored.

    >>> asked = parse_annotations({"pinfold.dev/cpus.app": "2", "pinfold.dev/cpus.log": "shared", "team": "a"})
    >>> asked.cpus["app"], asked.cpus["log"] == SHARED, asked.movable
    (2, True, True)
    >>> parse_annotations({"pinfold.dev/movable": "no"}, source="pod web")
    Traceback (most recent call last):
    pinfold.formats.fields.DocumentError: pod web: annotation "pinfold.dev/movable": "no" is neither true nor false
    """
    ours = {key.removeprefix(PREFIX): key for key in sorted(annotations) if key.startswith(PREFIX)}
    if not ours:
        return NO_OVERRIDES
    reader = _Reader(source)
    for name, key in ours.items():
        reader.read(name, key, annotations[key])
    reader.problems.check()
    chosen = {kind: frozenset(names) for kind, names in reader.marked.items()}
    return Overrides(
        reader.cpus,
        **reader.switches,
        cache_class=reader.cache_class,
        near=reader.near,
        init=chosen["init"],
        sidecars=chosen["sidecar"],
    )


class _Reader:
    """Collects the annotations of one pod and their problems."""

    def __init__(self, source: str) -> None:
        self.problems = Problems()
        self.cpus: dict[str, int] = {}
        self.switches: dict[str, bool] = {}
        self.cache_class = ""
        self.near: tuple[str, ...] = ()
        self.marked: dict[str, set[str]] = {"init": set(), "sidecar": set()}
        self._source = source

    def read(self, name: str, key: str, value: str) -> None:
        kind, dot, container = name.partition(".")
        if not dot and kind in _ALONE:
            self.switches[kind.replace("-", "_")] = self.switch(key, value)
        elif name in _TEXTS:
            _TEXTS[name](self, key, value)
        elif name in _FOR_OTHERS:
            self.switch(key, value)
        elif dot and kind in _BY_CONTAINER:
            if _CONTAINER_FORM.fullmatch(container):
                _BY_CONTAINER[kind](self, container, key, value)
            else:
                self.refuse(key, f"{excerpt(container)} is not a container name")
        else:
            every = [*_ALONE, *(f"{kind}.CONTAINER" for kind in _BY_CONTAINER), *_TEXTS, *_OPTIONS]
            self.refuse(key, f"unknown; these are known under {PREFIX}: {', '.join(every)}")

    def read_cpus(self, container: str, key: str, value: str) -> None:
        if value == "shared":
            self.cpus[container] = SHARED
        elif _NUMBER_FORM.fullmatch(value) and int(value) <= MAX_CPU + 1:
            self.cpus[container] = int(value)
        else:
            self.refuse(key, f"{excerpt(value)} is neither a whole number from 1 to {MAX_CPU + 1} nor shared")

    def read_class(self, key: str, value: str) -> None:
        if _CONTAINER_FORM.fullmatch(value):
            self.cache_class = value
        else:
            self.refuse(key, f"{excerpt(value)} is not the name of a cache class")

    def read_near(self, key: str, value: str) -> None:
        if len(value) > _LONGEST_LIST:
            self.refuse(key, f"a list of {len(value):,} characters; {_LONGEST_LIST:,} are allowed")
            return
        self.near = tuple(name.strip() for name in value.split(","))
        wrong = next((name for name in self.near if not _DEVICE_FORM.fullmatch(name)), None)
        if wrong is not None:
            self.refuse(key, f"{excerpt(wrong)} is not the name of a device, such as eth0, nvme0n1, gpu0, 0000:3b:00.0")

    def read_init(self, container: str, key: str, value: str) -> None:
        self.mark("init", container, key, value)

    def read_sidecar(self, container: str, key: str, value: str) -> None:
        self.mark("sidecar", container, key, value)

    def mark(self, kind: str, container: str, key: str, value: str) -> None:
        if self.switch(key, value):
            self.marked[kind].add(container)

    def switch(self, key: str, value: str) -> bool:
        if value not in _SWITCHES:
            self.refuse(key, f"{excerpt(value)} is neither true nor false")
        return _SWITCHES.get(value, False)

    def refuse(self, key: str, problem: str) -> None:
        where = f"annotation {excerpt(key)}"
        self.problems.add(problem, f"{self._source}: {where}" if self._source else where)


_ALONE: Final = ("exclude", "local-memory", "movable")
_OPTIONS: Final = tuple(name for name, option in OPTIONS.items() if option.values is Values.PER_POD)
_FOR_OTHERS: Final = ("tolerate-missing", *_OPTIONS)
"""Only checked here: one is for a container runtime that requires this plugin, the policy reads the options itself."""
_BY_CONTAINER: Final[Mapping[str, Callable[[_Reader, str, str, str], None]]] = {
    "cpus": _Reader.read_cpus,
    "init": _Reader.read_init,
    "sidecar": _Reader.read_sidecar,
}
_TEXTS: Final[Mapping[str, Callable[[_Reader, str, str], None]]] = {
    "cache-class": _Reader.read_class,
    "near": _Reader.read_near,
}
