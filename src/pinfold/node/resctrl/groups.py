"""The groups of resctrl: one for each class, and in it a monitoring group for each container.

The hardware has few control groups, so containers of a class share one. CPUs are assigned, not tasks: exclusive CPUs
run their owner alone, so no process needs to be followed. Groups of other programs are left alone.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from pinfold.core.caching import SHARED, CacheUsage
from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.errors import ConfigError, PinfoldError, Problem
from pinfold.node.processgroups.names import decode, encode
from pinfold.node.resctrl.files import MOUNT
from pinfold.node.resctrl.schemata import BANDWIDTH, format_schemata, parse_schemata, problems_of, whole_schemata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pinfold.core.caching import CacheClass
    from pinfold.node.resctrl.files import Files
    from pinfold.node.resctrl.schemata import Schemata

    Members = Mapping[str, Mapping[ContainerRef, CPUSet]]

_PREFIX: Final = "pinfold-"
_FIGURES: Final = ("llc_occupancy", "mbm_total_bytes")


class ResctrlError(PinfoldError):
    """The kernel refuses a change of resctrl; the text has its reason."""


class Resctrl:
    """The control groups of the classes in a *table*, and the monitoring groups of their containers."""

    def __init__(self, files: Files, table: Mapping[str, CacheClass]) -> None:
        self._files: Final = files
        self._table: Final = table
        self._whole: Final = whole_schemata(files)
        if problems := list(problems_of(files, table)):
            raise ConfigError(*(Problem(problem, "correct --cache-classes") for problem in problems))
        self._counts: Final = "L3_MON" in files.names("info")

    def apply(self, members: Members) -> None:
        """Set the groups of these containers, remove all others of ours, and read everything back; or raise."""
        if set(self._groups()) == set(members) and not self.wrong(members):
            return
        for name in self._groups():
            if name not in members:
                self._do(self._files.remove, _PREFIX + name)
        for name, containers in members.items():
            if name not in self._groups():
                self._do(self._files.make, _PREFIX + name)
            self._watch(_PREFIX + name, {})  # A monitoring group cannot have CPUs that its group does not have.
            self._write(f"{_PREFIX}{name}/cpus_list", f"{together(containers)}\n")
            self._watch(_PREFIX + name, containers)
        for path, row in self._limits(members):
            self._write(path, format_schemata(self._schemata(row)))
        if wrong := self.wrong(members):
            raise ResctrlError("; ".join(wrong.values()))

    def wrong(self, members: Members) -> dict[ContainerRef | None, str]:
        """Return the differences from the wanted groups, in words, by container; None is the rest of the machine."""
        found: dict[ContainerRef | None, str] = {}
        for path, row in self._limits(members):
            have, want = parse_schemata(self._maybe(path)), self._schemata(row)
            if have != want:
                name = path.partition("/")[0].removeprefix(_PREFIX)
                found |= dict.fromkeys(members.get(name, [None]), f"{path} is not {format_schemata(want)!r}")
        for name, containers in members.items():
            group = _PREFIX + name
            if self._cpus(group) != together(containers):
                found |= dict.fromkeys(containers, f"{group} has CPUs {self._cpus(group) or 'none'}")
            found |= self._not_watched(group, containers) if self._counts else {}
        return found

    def _not_watched(self, group: str, containers: Mapping[ContainerRef, CPUSet]) -> dict[ContainerRef | None, str]:
        """Return what is wrong with the monitoring groups; None stands for those of other containers."""
        wanted = {_name(ref) for ref in containers}
        others = [name for name in self._files.names(f"{group}/mon_groups") if name not in wanted]
        found: dict[ContainerRef | None, str] = {None: f"{group} counts {', '.join(others)}"} if others else {}
        for ref, cpus in containers.items():
            if self._cpus(f"{group}/mon_groups/{_name(ref)}") != cpus:
                found[ref] = f"its monitoring group in {group} does not have CPUs {cpus}"
        return found

    def leave(self) -> None:
        """Remove all groups of ours, and give everything else the whole cache again."""
        remove_groups(self._files)
        if SHARED in self._table:
            self._write("schemata", format_schemata(self._whole))

    def usage(self) -> list[CacheUsage]:
        """Return what each container uses, as its monitoring group counts it."""
        places = [f"{_PREFIX}{name}/mon_groups/" for name in self._groups()]
        return [
            CacheUsage(ref, *(self._count(f"{place}{owner}", figure) for figure in _FIGURES))
            for place in places
            for owner in self._files.names(place)
            if (ref := _ref(owner)) is not None
        ]

    def _groups(self) -> list[str]:
        return [name.removeprefix(_PREFIX) for name in self._files.names("") if name.startswith(_PREFIX)]

    def _limits(self, members: Iterable[str]) -> Iterator[tuple[str, CacheClass]]:
        """Yield the files that limit groups, each with its row of the table."""
        if SHARED in self._table:
            yield "schemata", self._table[SHARED]
        yield from ((f"{_PREFIX}{name}/schemata", self._table[name]) for name in members)

    def _schemata(self, row: CacheClass) -> Schemata:
        found = {}
        for kind, domains in self._whole.items():
            value = row.bandwidth if kind == BANDWIDTH else row.ways
            if value is not None and kind == BANDWIDTH:  # The kernel rounds up.
                step = int(self._read(f"info/{BANDWIDTH}/bandwidth_gran"))
                value = -(-value // step) * step
            found[kind] = domains if value is None else dict.fromkeys(domains, value)
        return found

    def _watch(self, group: str, containers: Mapping[ContainerRef, CPUSet]) -> None:
        """Give the containers monitoring groups of their own, with their CPUs, and take the CPUs from all others."""
        if not self._counts:
            return
        wanted = {_name(ref): cpus for ref, cpus in containers.items()}
        place = f"{group}/mon_groups"
        for name in self._files.names(place):
            if name not in wanted and containers:
                self._do(self._files.remove, f"{place}/{name}")
            elif name not in wanted:
                self._write(f"{place}/{name}/cpus_list", "\n")
        for name, cpus in wanted.items():
            if name not in self._files.names(place):
                self._do(self._files.make, f"{place}/{name}")
            self._write(f"{place}/{name}/cpus_list", f"{cpus}\n")

    def _count(self, group: str, figure: str) -> int | None:
        """Return the sum of a figure over all caches; None if the hardware does not count it."""
        texts = [self._maybe(f"{group}/mon_data/{cache}/{figure}") for cache in self._files.names(f"{group}/mon_data")]
        numbers = [int(text) for text in texts if text.strip().isdecimal()]  # A cache without a number is Unavailable.
        return sum(numbers) if numbers else None

    def _maybe(self, path: str) -> str:
        try:
            return self._files.read(path)
        except OSError:
            return ""

    def _cpus(self, group: str) -> CPUSet:
        text = self._maybe(f"{group}/cpus_list").strip()
        return CPUSet.parse(text) if text else EMPTY

    def _read(self, path: str) -> str:
        try:
            return self._files.read(path)
        except OSError as error:
            raise ResctrlError(f"/{MOUNT}/{path}: {error.strerror}") from error

    def _write(self, path: str, text: str) -> None:
        self._do(lambda where: self._files.write(where, text), path)

    def _do(self, change: Callable[[str], None], path: str) -> None:
        try:
            change(path)
        except OSError as error:
            said = self._maybe("info/last_cmd_status").strip()
            why = said if said and said != "ok" else error.strerror
            raise ResctrlError(f"/{MOUNT}/{path}: {why}") from error


def remove_groups(files: Files) -> None:
    """Remove all groups of ours, also those of an earlier daemon; or raise."""
    for name in files.names(""):
        if name.startswith(_PREFIX):
            try:
                files.remove(name)
            except OSError as error:
                raise ResctrlError(f"/{MOUNT}/{name}: {error.strerror}") from error


def together(containers: Mapping[ContainerRef, CPUSet]) -> CPUSet:
    """Return the CPUs of all these containers."""
    return reduce(or_, containers.values(), EMPTY)


def _name(ref: ContainerRef) -> str:
    """Return the name of a container's monitoring group."""
    return f"{encode(ref.pod)}={encode(ref.name)}"


def _ref(name: str) -> ContainerRef | None:
    first, _, second = name.partition("=")
    pod, container = decode(first), decode(second)
    return None if pod is None or container is None else ContainerRef(PodUID(pod), container)
