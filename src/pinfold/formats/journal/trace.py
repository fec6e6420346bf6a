"""The entries of a journal to events: pods that arrive and leave, as a daemon recorded them.

A journal has pods in three ways: as documents, when they are admitted or refused; by name, when they are gone; and by
their CPUs, in every State. States add what the others lack: pods from before the journal begins, pods that left while
no daemon ran, and pods that were admitted without a document. Such a pod is known by its CPUs alone, and arrives as a
pod that asks for as many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.events.entries import STATE
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.core.pods.quantity import Quantity
from pinfold.errors import ParseError, excerpt
from pinfold.formats.fields import Field, Problems
from pinfold.planning.replay import Event

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from pinfold.core.events.entries import Entry

_MEMORY: Final = 1 << 20  # a Guaranteed pod has a memory limit; its size does not matter here
_REMARKS: Final = {
    "missing": ("entry of the journal is missing or damaged", "entries of the journal are missing or damaged"),
    "unreadable": ("pod of the journal cannot be read", "pods of the journal cannot be read"),
    "without_document": ("pod is in the journal by name only", "pods are in the journal by name only"),
    "by_cpus": ("pod is known by its exclusive CPUs alone", "pods are known by their exclusive CPUs alone"),
    "reconfigured": (
        "time the daemon was reconfigured; the replay uses one configuration",
        "times the daemon was reconfigured; the replay uses one configuration",
    ),
}


class _Life:
    """A pod from its arrival until it leaves; the same UID can arrive again, as another pod."""

    __slots__ = ("asked", "name", "owned", "recorded", "uid", "was_let_in")

    def __init__(self, uid: PodUID, name: str, recorded: PodUID | None) -> None:
        self.uid = uid
        """Its UID in events."""
        self.name = name
        """NAMESPACE/POD."""
        self.recorded = recorded
        """Its UID in the journal; None if it is known by its CPUs alone."""
        self.owned: set[str] = set()
        """Its containers that have CPUs, as the last State names them."""
        self.was_let_in = recorded is None
        self.asked: Pod | None = None
        """The last refused pod."""


class JournalReader:
    """Turns entries into events, one after the other, and counts those with gaps or damage."""

    def __init__(self, since: float | None = None) -> None:
        """Leave out pods that were refused before *since*: the journal does not say when they would have left."""
        self.missing = 0
        """Missing entries, counted by number: damaged, or never written."""
        self.unreadable = 0
        """Pods with a document that cannot be read."""
        self.without_document = 0
        """Pods of which only the name is recorded, as by older daemons."""
        self.by_cpus = 0
        """Pods that are known by their CPUs alone."""
        self.reconfigured = 0
        """How often the daemon was reconfigured."""
        self._since = since
        self._time = float("-inf")
        self._number = 0
        self._after_base = False
        self._state: Entry | None = None
        """A State that waits here for the entry with its reason, which comes after it."""
        self._owners: Mapping[str, object] = {}
        self._lives = 0
        self._by_uid: dict[PodUID, _Life] = {}
        self._by_name: dict[str, _Life] = {}

    def events(self, entries: Iterable[Entry]) -> Iterator[Event]:
        """Yield the events of *entries*, in their order; times never go back."""
        for entry in entries:
            self._count_missing(entry)
            yield from self._settle(entry)
            self._time = max(self._time, entry.time)
            yield from self._see(entry)
        yield from self._settle(None)

    @property
    def remarks(self) -> list[str]:
        """Notes on gaps and damage."""
        counted = ((getattr(self, name), words) for name, words in _REMARKS.items())
        return [f"{number:,} {words[number != 1]}" for number, words in counted if number]

    def _count_missing(self, entry: Entry) -> None:
        # The State that a journal begins with can be much older than its first entry.
        if self._number and not self._after_base:
            self.missing += max(entry.number - self._number - 1, 0)
        self._after_base = not self._number and entry.what == STATE
        self._number = entry.number

    # -- entries about pods

    def _see(self, entry: Entry) -> Iterator[Event]:
        match entry.what:
            case "state":
                self._state = entry
            case "admitted":
                yield from self._let_in(entry)
            case "refused" if self._since is None or self._time >= self._since:
                yield from self._refuse(entry)
            case "gone":
                yield from self._end(self._by_uid.get(PodUID(entry.text("uid"))))
            case "not-kept":
                # A new configuration has taken its CPUs away; the pod still runs.
                if life := self._by_uid.get(PodUID(entry.text("uid") or entry.text("pod"))):
                    life.owned.clear()
            case "reconfigured":
                self.reconfigured += 1

    def _let_in(self, entry: Entry) -> Iterator[Event]:
        pod = self._read(entry)
        if pod is None:
            yield from self._stand_in(owner for owner in self._owners if _pod_of(owner) == _name_of(entry))
            return
        life = self._by_uid.get(pod.uid) or self._known_by_cpus(pod)
        yield from self._replaced(pod, life)
        life = life or self._begin(_full_name(pod), pod.uid)
        yield from self._made_anew(life, pod)
        life.was_let_in, life.asked = True, None
        names = {f"{life.name}/{container.name}" for container in pod.all_containers}
        life.owned |= names & self._owners.keys()
        yield Event(self._time, _renamed(pod, life.uid), "")

    def _refuse(self, entry: Entry) -> Iterator[Event]:
        pod = self._read(entry)
        if pod is None:
            return
        life = self._by_uid.get(pod.uid) or self._known_by_cpus(pod)
        yield from self._replaced(pod, life)
        life = life or self._begin(_full_name(pod), pod.uid)
        yield from self._made_anew(life, pod)
        life.asked = None if life.was_let_in else pod
        yield Event(self._time, _renamed(pod, life.uid), entry.text("reason") or "refused")

    def _read(self, entry: Entry) -> Pod | None:
        """Return the pod of an entry; None, and counted, if it cannot be read."""
        document = entry.fields.get("document")
        if document is None:
            self.without_document += 1
            return None
        try:
            return read_document(document)
        except ParseError:
            self.unreadable += 1
            return None

    # -- beginning and ending

    def _begin(self, name: str, recorded: PodUID | None) -> _Life:
        self._lives += 1
        life = _Life(PodUID(f"{recorded or name}~{self._lives}"), name, recorded)
        self._by_name[name] = life
        if recorded is not None:
            self._by_uid[recorded] = life
        return life

    def _end(self, life: _Life | None) -> Iterator[Event]:
        if life is None:
            return
        if self._by_name.get(life.name) is life:
            del self._by_name[life.name]
        if life.recorded is not None and self._by_uid.get(life.recorded) is life:
            del self._by_uid[life.recorded]
        yield Event(self._time, life.uid)

    def _known_by_cpus(self, pod: Pod) -> _Life | None:
        """Return the life of a pod that was known by its CPUs alone until now."""
        life = self._by_name.get(_full_name(pod)) or self._by_name.get(pod.uid)
        if life is None or life.recorded is not None:
            return None
        del self._by_name[life.name]
        life.name, life.recorded = _full_name(pod), pod.uid
        self._by_name[life.name] = self._by_uid[pod.uid] = life
        return life

    def _replaced(self, pod: Pod, life: _Life | None) -> Iterator[Event]:
        """Remove another pod of this name unless it still has CPUs: the journal has no entry for its end."""
        other = self._by_name.get(_full_name(pod))
        if other is not None and other is not life and not other.owned:
            yield from self._end(other)

    def _made_anew(self, life: _Life, pod: Pod) -> Iterator[Event]:
        """Remove a refused pod if it asks for something else now, so that the replay frees its CPUs."""
        before = {} if life.asked is None else {one.name: one.resources for one in life.asked.all_containers}
        if any(before.get(one.name, one.resources) != one.resources for one in pod.all_containers):
            yield Event(self._time, life.uid)

    # -- pods in States

    def _settle(self, following: Entry | None) -> Iterator[Event]:
        """Use the waiting State, now that the entry after it is known."""
        state, self._state = self._state, None
        owners = None if state is None else state.fields.get("exclusive")
        if not isinstance(owners, dict):
            return
        came, left = owners.keys() - self._owners.keys(), self._owners.keys() - owners.keys()
        self._owners = owners
        strangers = [owner for owner in owners if owner in came and not self._take_note(owner)]
        what = None if following is None else following.what
        yield from self._without(left, still_there=what == "reconfigured")
        name = _name_of(following) if following is not None and what == "admitted" else None
        yield from self._stand_in(owner for owner in strangers if _pod_of(owner) != name)

    def _take_note(self, owner: str) -> bool:
        """Record that a pod has CPUs, and return whether it is a known pod."""
        life = self._life_of(owner)
        if life is None or life.recorded is None:
            return False
        life.owned.add(owner)
        return True

    def _without(self, left: Collection[str], *, still_there: bool) -> Iterator[Event]:
        """Remove the pods that have no CPUs any more, unless a new configuration took them."""
        for owner in sorted(left):
            life = self._life_of(owner)
            if life is not None and owner in life.owned:
                life.owned.discard(owner)
                if not life.owned and not still_there:
                    yield from self._end(life)

    def _stand_in(self, strangers: Iterable[str]) -> Iterator[Event]:
        """Add pods that are known by their CPUs alone."""
        found: dict[str, list[Container]] = {}
        for owner in strangers:
            count = _count(self._owners[owner])
            if count and _pod_of(owner):
                found.setdefault(_pod_of(owner), []).append(_asking_for(owner.rpartition("/")[2], count))
        for key, containers in found.items():
            life = self._life_of(f"{key}/")
            if life is None:
                life = self._begin(key, None)
                self.by_cpus += 1
            life.owned |= {f"{key}/{container.name}" for container in containers}
            namespace, _, name = key.rpartition("/")
            yield Event(self._time, Pod(life.uid, name, namespace or "default", containers=tuple(containers)), "")

    def _life_of(self, owner: str) -> _Life | None:
        """Return the life that owns CPUs, by NAMESPACE/POD/CONTAINER or UID/CONTAINER."""
        key = _pod_of(owner)
        return self._by_name.get(key) or self._by_uid.get(PodUID(key))


def read_document(document: object) -> Pod:
    """Return the pod of a document as a daemon writes it; the daemon has applied the defaults already.

    A container runtime reports one container after the other, so a pod may have only init containers so far.

    >>> read_document({"metadata": {"name": "web", "uid": "1"}, "spec": {"containers": [{"name": "app"}]}}).name
    'web'
    """
    problems = Problems()
    field = Field(document, problems, "document")
    metadata, spec = field.mapping("metadata"), field.mapping("spec")
    pod = Pod(
        PodUID(metadata.text("uid")),
        metadata.text("name"),
        metadata.text("namespace", "default"),
        init=tuple(_read_container(item) for item in spec.items("initContainers")),
        containers=tuple(_read_container(item) for item in spec.items("containers")),
        resources=_read_resources(spec),
        overhead=_read_amounts(spec, "overhead"),
    )
    problems.check()
    names = [container.name for container in pod.all_containers]
    if not (pod.uid and pod.name and names and all(names)) or len(set(names)) != len(names):
        raise ParseError(f"pod {excerpt(pod.name)} has no UID, no containers, or two of one name", where="document")
    return pod


def _read_container(field: Field) -> Container:
    return Container(field.text("name"), _read_resources(field), sidecar=field.text("restartPolicy") == "Always")


def _read_resources(field: Field) -> Resources:
    resources = field.mapping("resources")
    return Resources(_read_amounts(resources, "requests"), _read_amounts(resources, "limits"))


def _read_amounts(field: Field, key: str) -> Amounts:
    amounts = field.mapping(key)
    cpu, memory = amounts.text("cpu"), amounts.text("memory")
    return Amounts(Quantity.parse(cpu).milli if cpu else None, Quantity.parse(memory).value if memory else None)


def _asking_for(name: str, cpus: int) -> Container:
    amounts = Amounts(cpus * 1000, _MEMORY)
    return Container(name, Resources(amounts, amounts))


def _count(cpus: object) -> int:
    """Return how many CPUs a list has; 0 if it is not a list."""
    try:
        return len(CPUSet.parse(cpus)) if isinstance(cpus, str) else 0
    except ParseError:
        return 0


def _full_name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _name_of(entry: Entry) -> str:
    return f"{entry.text('namespace')}/{entry.text('pod')}"


def _pod_of(owner: str) -> str:
    """Return the pod in the name of an owner.

    >>> _pod_of("default/web/app"), _pod_of("1a2b-3c/app")
    ('default/web', '1a2b-3c')
    """
    return owner.rpartition("/")[0]


def _renamed(pod: Pod, uid: PodUID) -> Pod:
    return Pod(uid, pod.name, pod.namespace, pod.init, pod.containers, pod.resources, pod.overhead)
