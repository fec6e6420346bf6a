"""Why a pod was refused and what would help: tries other sizes, and other containers moved or ended.

Every "would fit" was admitted in a trial. States are values, so a trial changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import islice, takewhile
from operator import and_
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.admission import Scope
from pinfold.core.explaining.alignment import Level
from pinfold.core.machine.cpuset import EMPTY, format_list
from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.core.policies.caches import UncoreAlignmentError
from pinfold.core.policies.placing import IsolatedCPUsError, SMTIsolationError
from pinfold.core.policies.pools import EmptySharedPoolError, MinSharedCPUsError
from pinfold.core.policies.wholecores import SMTAlignmentError
from pinfold.core.topologymanager.manager import TopologyAffinityError
from pinfold.core.topologymanager.options import TopologyPolicy
from pinfold.core.topologymanager.others import WHOLE, NotEnoughLocalMemory, NotEnoughResources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pinfold.core.admission import Admission
    from pinfold.core.explaining.alignment import Ruler
    from pinfold.core.explaining.outcome import Outcome
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.state import State
    from pinfold.core.topologymanager.hint import Hints
    from pinfold.errors import AdmissionError

_FEWEST_TRIES: Final = 6
_MOST_TRIES: Final = 512
_NAMED: Final = 2
_MILLI: Final = 1000
_MOVED: Final = PodUID("\0moved")


class Advice(NamedTuple):
    """What a refused container cannot have, what is free, and what would make it fit; empty if it was admitted."""

    need: str = ""
    """The missing CPUs or resources, in words."""
    room: str = ""
    """What is."""
    sizes: tuple[int, ...] = ()
    """Sizes with which it would fit: the largest smaller one, and the next larger one if that fits."""
    then: str | None = None
    """Another container of the pod that would be refused if this one had these sizes."""
    move: str | None = None
    """A container that could move to other CPUs to make room."""
    end: str | None = None
    """A container that would make room by ending."""
    is_cut: bool = False
    """Whether time ran out before every change was tried."""

    @property
    def fixes(self) -> tuple[str, ...]:
        """What would make the container fit, each in words."""
        return tuple(f"would fit {change}" for change in self._changes())

    def _changes(self) -> Iterator[str]:
        if self.move is not None:
            yield f"if {self.move} moved to other CPUs"
        elif self.end is not None:
            yield f"if {self.end} ended"
        if self.sizes:
            sizes = " or ".join(map(str, self.sizes))
            then = "" if self.then is None else f" (then {self.then} is refused)"
            yield f"with {sizes} CPU{'' if sizes == '1' else 's'}{then}"

    def __str__(self) -> str:
        if not self.need:
            return ""
        changes = ", or ".join(self._changes())
        none = "Not every change was tried, for lack of time." if self.is_cut else "No single change is enough."
        situation = ": ".join(filter(None, (self.need, self.room)))
        return f"{situation}. {f'Would fit {changes}.' if changes else none}"


NO_ADVICE: Final = Advice()


def advise(
    ruler: Ruler,
    outcome: Outcome,
    names: Mapping[PodUID, str] | None = None,
    has_time: Callable[[], bool] = lambda: True,
) -> Advice:
    """Return what would help a refused pod; *names* maps pod UIDs in the State to names for the text.

    *has_time* is called before every trial but the first few; when it returns False, the advice is cut. A brief
    outcome no longer has the State before the refusal, and gets no advice.
    """
    container = _culprit(outcome)
    if outcome.refusal is None or outcome.is_brief or container is None:
        return NO_ADVICE
    if isinstance(outcome.refusal, NotEnoughResources):
        resource, wanted, left = outcome.refusal.resource, outcome.refusal.wanted, outcome.refusal.left
        return Advice(f"{wanted} {resource} {_are(wanted)} not available", f"the node has {left} left")
    if isinstance(outcome.refusal, NotEnoughLocalMemory):
        return Advice(f"{outcome.refusal.need} is not available", outcome.refusal.room)
    policy, state = outcome.admitter.policy, outcome.admission.state
    count = policy.request(outcome.pod, container)
    free = policy.pools.assignable(state) | state.reusable.get(outcome.pod.uid, EMPTY)
    need, room = _situation(ruler, outcome, container, free)
    budget = _Budget(has_time)
    trial = _Trial(outcome, container, count, budget)
    sizes, then = trial.sizes(len(outcome.before.shared), ruler)
    move, end = (_named(ref, names or {}) for ref in trial.others())
    return Advice(need, room, sizes, then, move, end, budget.is_cut)


def _named(ref: ContainerRef | None, names: Mapping[PodUID, str]) -> str | None:
    return None if ref is None else f"{names.get(ref.pod, ref.pod)}/{ref.name}"


def _culprit(outcome: Outcome) -> Container | None:
    """Return the refused container; if the pod was refused as a whole, its largest."""
    name, pod, request = outcome.admission.container, outcome.pod, outcome.admitter.policy.request
    wanting = [c for c in pod.all_containers if request(pod, c) and name in {None, c.name}]
    return max(wanting, key=lambda container: request(pod, container), default=None)


def _situation(ruler: Ruler, outcome: Outcome, container: Container, free: CPUSet) -> tuple[str, str]:
    """Return what the container cannot have, and what is free."""
    count = outcome.admitter.policy.request(outcome.pod, container)
    match outcome.refusal:
        case TopologyAffinityError():
            return _not_aligned(ruler, outcome, container, free)
        case SMTAlignmentError(per_core=per_core, free=None) if count % per_core:
            return f"{_cpus(count)} cannot be whole cores", f"a core has {per_core} CPUs"
        case SMTAlignmentError(free=whole):
            return f"{_cpus(count)} on whole cores are not available", f"cores that are wholly free have {whole or 0}"
        case UncoreAlignmentError(fewest=fewest):
            where = Level.UNCORE.counted(fewest)
            return f"{_cpus(count)} in {where} are not available", _most_free(ruler, Level.UNCORE, free)
    return _number_missing(outcome.refusal, count), _free(outcome, free)


def _not_aligned(ruler: Ruler, outcome: Outcome, container: Container, free: CPUSet) -> tuple[str, str]:
    """Return what keeps a container's resources apart, and what is free."""
    count, manager = outcome.admitter.policy.request(outcome.pod, container), outcome.admitter.manager
    name = WHOLE if outcome.admitter.scope is Scope.POD else container.name
    beside = outcome.others.of(name, manager.everything) if outcome.others else {}
    missing = [resource for resource, hints in beside.items() if hints is not None and not hints]
    if missing:
        return f"{' and '.join(missing)} {_are(len(missing))} not available", ""
    places = {resource: _only_nodes(hints) for resource, hints in beside.items() if hints}
    fixed = {resource: mask for resource, mask in places.items() if mask}
    if fixed and not reduce(and_, fixed.values()):
        return " and ".join(f"{resource} is at NUMA {format_list(mask)}" for resource, mask in fixed.items()), ""
    single = manager.policy is TopologyPolicy.SINGLE_NUMA_NODE
    where = f"in {Level.NUMA.counted(1 if single else ruler.fewest(Level.NUMA, count))}"
    if fixed:
        mask = reduce(and_, fixed.values())
        where = f"at NUMA {format_list(mask)}, where {' and '.join(fixed)} {_are(len(fixed))},"
    return f"{_cpus(count)} {where} {_are(count)} not available", _most_free(ruler, Level.NUMA, free)


def _only_nodes(hints: Hints) -> int:
    """Return the nodes of the only hint that a resource prefers; 0 if it prefers several, or none."""
    preferred = list(islice((hint.affinity or 0 for hint in hints if hint.preferred), 2))
    return preferred[0] if len(preferred) == 1 else 0


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _number_missing(refusal: AdmissionError | None, count: int) -> str:
    """Return what is not available, where it is a matter of numbers alone."""
    cannot = f"{_cpus(count)} {'is' if count == 1 else 'are'} not available"
    match refusal:
        case EmptySharedPoolError():
            return f"{cannot}, because one CPU must stay shared"
        case MinSharedCPUsError(least=least):
            return f"{cannot}, because {_cpus(least)} must stay shared"
        case IsolatedCPUsError():
            return f"{count} isolated CPUs are not available"
        case SMTIsolationError():
            return f"{count} whole cores, of which one CPU each can be given, are not available"
    return cannot


def _free(outcome: Outcome, free: CPUSet) -> str:
    """Return how many CPUs can be exclusive, which ones, and why the others cannot."""
    policy, before = outcome.admitter.policy, outcome.before
    online = policy.allocatable | policy.reserved | before.shared | before.exclusive
    can = f"{len(free) or 'none'} of {len(online)} can be exclusive"
    taken = outcome.admission.state.exclusive - free
    why = (_named_cpus(free), _with_reason(taken, "taken"), _with_reason(policy.reserved, "reserved"))
    said = "; ".join(filter(None, why))
    return f"{can} ({said})" if said else can


def _with_reason(cpus: CPUSet, reason: str) -> str:
    return f"{_named_cpus(cpus)} {_are(len(cpus))} {reason}" if cpus else ""


def _named_cpus(cpus: CPUSet) -> str:
    return f"CPU{'' if len(cpus) == 1 else 's'} {cpus}" if cpus else ""


def _cpus(count: int) -> str:
    return f"{count} CPU{'' if count == 1 else 's'}"


def _most_free(ruler: Ruler, level: Level, free: CPUSet) -> str:
    """Return the groups of a level with the most free CPUs, in words."""
    groups = sorted(ruler.free(level, free).items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{level} {number} has {count} free" for number, count in groups[:_NAMED])


class _Budget:
    """Whether there is time for another trial. The first few are made in any case: they are enough on a small host."""

    def __init__(self, has_time: Callable[[], bool]) -> None:
        self._has_time = has_time
        self._free = _FEWEST_TRIES
        self.is_cut = False

    def __call__(self) -> bool:
        self._free -= 1
        if self._free >= 0 or self._has_time():
            return True
        self.is_cut = True
        return False


class _Trial(NamedTuple):
    """Tries a refused pod again with changes, while there is time."""

    outcome: Outcome
    container: Container
    wanted: int
    has_time: Callable[[], bool]

    def admit(self, state: State, pod: Pod) -> Admission:
        """Return the answer for *pod*, with the same containers due as in the refusal."""
        return self.outcome.admitter.admit(state, pod, due=self.outcome.due, others=self.outcome.others)

    def sizes(self, most: int, ruler: Ruler) -> tuple[tuple[int, ...], str | None]:
        """Return the sizes with which the container would fit, and which other container is still refused then."""
        if self.outcome.pod.resources is not None:
            return (), None
        largest = min(self.wanted - 1, most)
        smaller = range(largest, max(0, largest - _MOST_TRIES), -1)
        larger: Sequence[int] = ()
        if isinstance(self.outcome.refusal, SMTAlignmentError | UncoreAlignmentError):
            level = Level.CORE if isinstance(self.outcome.refusal, SMTAlignmentError) else Level.UNCORE
            larger = range(self.wanted + 1, self.wanted + max(ruler.largest(level), 1))
        return (
            self._first_of((smaller, larger), whole=True)
            or self._first_of((smaller, larger), whole=False)
            or ((), None)
        )

    def _first_of(self, ways: Sequence[Sequence[int]], *, whole: bool) -> tuple[tuple[int, ...], str | None] | None:
        """Return the first size in each direction with which the *whole* pod fits, or at least this container."""
        found: dict[int, str | None] = {}
        for counts in ways:
            for count in takewhile(lambda _: self.has_time(), counts):
                other = self._refused_with(count)
                if other is None or (not whole and other != self.container.name):
                    found[count] = other
                    break
        if not found:
            return None
        # The remark about the first size must be true for every size listed with it.
        then = next(iter(found.values()))
        return tuple(count for count, other in found.items() if other == then), then

    def _refused_with(self, count: int) -> str | None:
        """Return the container that is refused when this one has *count* CPUs; None if all fit."""
        admission = self.admit(self.outcome.before, resized(self.outcome.pod, self.container.name, count))
        if admission.refusal is None:
            return None
        return admission.container or self.container.name

    def others(self) -> tuple[ContainerRef | None, ContainerRef | None]:
        """Return a container that could move to make room, and one that could end; None where none helps."""
        ended = None
        admitter, before = self.outcome.admitter, self.outcome.before
        for ref, cpus in takewhile(lambda _: self.has_time(), self._owners()):
            admission = self.admit(admitter.policy.release(before, ref).state, self.outcome.pod)
            if admission.refusal is not None:
                continue
            if admitter.admit(admission.state, _moved(len(cpus))).refusal is None:
                return ref, ended or ref
            ended = ended or ref
        return None, ended

    def _owners(self) -> list[tuple[ContainerRef, CPUSet]]:
        """Return the owners of exclusive CPUs, smallest first: the smallest change that helps is the best."""
        found = [(ref, cpus) for ref, cpus in self.outcome.before.flat() if ref.pod != self.outcome.pod.uid]
        return sorted(found, key=lambda pair: (len(pair[1]), pair[0]))[:_MOST_TRIES]


def resized(pod: Pod, name: str, cpus: int) -> Pod:
    """Return *pod* with *cpus* CPUs as request and limit of the container *name*."""
    return replace(
        pod,
        init=tuple(_with_cpus(c, cpus) if c.name == name else c for c in pod.init),
        containers=tuple(_with_cpus(c, cpus) if c.name == name else c for c in pod.containers),
    )


def _with_cpus(container: Container, cpus: int) -> Container:
    requests, limits = container.resources.requests, container.resources.limits
    milli = cpus * _MILLI
    return replace(container, resources=Resources(requests._replace(cpu=milli), limits._replace(cpu=milli)))


def _moved(cpus: int) -> Pod:
    """Return a pod that asks for as many CPUs as a container that must move."""
    amounts = Amounts(cpus * _MILLI, 1)
    return Pod(_MOVED, "", containers=(Container("", Resources(amounts, amounts)),))
