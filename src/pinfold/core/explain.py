"""Why a pod was refused and what would help, found by really trying: other sizes, and others out of the way.

Nothing is guessed: every "would fit" has been admitted. States are values, so trying leaves nothing behind.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.alignment import Level
from pinfold.core.cpuset import EMPTY
from pinfold.core.pods import Amounts, Container, ContainerRef, Pod, PodUID, Resources, exclusive_cpus
from pinfold.core.policies.static import EmptySharedPoolError, StaticPolicy
from pinfold.core.policies.wholecores import SMTAlignmentError
from pinfold.core.topologymanager import TopologyAffinityError
from pinfold.core.topologyoptions import TopologyPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pinfold.core.admission import Admitter
    from pinfold.core.alignment import Ruler
    from pinfold.core.cpuset import CPUSet
    from pinfold.core.planner import Outcome
    from pinfold.core.state import State

_MOST_TRIES: Final = 512
_NAMED: Final = 2
_MILLI: Final = 1000
_SOMEONE: Final = PodUID("\0moved")


class Advice(NamedTuple):
    """What a refused container needs, what there is, and what would make it fit; empty for one that was let in."""

    need: str = ""
    room: str = ""
    sizes: tuple[int, ...] = ()
    """Numbers of CPUs with which it would fit: the largest smaller one, and the next larger one if that helps."""
    then: str | None = None
    """Another container of the pod that is refused as soon as this one fits with these sizes."""
    move: str | None = None
    """A container that could go to other CPUs, and so make room."""
    end: str | None = None
    """A container whose end would make room."""

    def __str__(self) -> str:
        helps = []
        if self.move is not None:
            helps.append(f"if {self.move} moved to other CPUs")
        elif self.end is not None:
            helps.append(f"if {self.end} ended")
        if self.sizes:
            sizes = " or ".join(map(str, self.sizes))
            then = "" if self.then is None else f" (then {self.then} is refused)"
            helps.append(f"with {sizes} CPU{'' if sizes == '1' else 's'}{then}")
        would = f"would fit {', or '.join(helps)}" if helps else "neither fewer CPUs nor the end of one container helps"
        return "; ".join(filter(None, (self.need, self.room, would))) if self.need else ""


NO_ADVICE: Final = Advice()


def advise(admitter: Admitter, ruler: Ruler, outcome: Outcome, names: Mapping[PodUID, str] | None = None) -> Advice:
    """Return what would help a refused pod; *names* are what to call the pods in the State, else by their UIDs.

    A brief outcome has forgotten what it was refused on, and gets no advice.
    """
    container = _culprit(admitter, outcome)
    if outcome.refusal is None or outcome.is_brief or container is None:
        return NO_ADVICE
    count = _wanted(admitter, outcome.pod, container)
    state = outcome.admission.state
    free = state.shared - _reserved(admitter) | state.reusable.get(outcome.pod.uid, EMPTY)
    need, room = _situation(admitter, ruler, outcome, count, free)
    trial = _Trial(admitter, outcome, container, count)
    move, end = trial.others()
    named = {ref: f"{(names or {}).get(ref.pod, ref.pod)}/{ref.name}" for ref in (move, end) if ref is not None}
    return Advice(
        need,
        room,
        *trial.sizes(len(outcome.before.shared), ruler),
        None if move is None else named[move],
        None if end is None else named[end],
    )


def _culprit(admitter: Admitter, outcome: Outcome) -> Container | None:
    """Return the container that was refused; of a pod that was refused as a whole, the one that wants most."""
    name = outcome.admission.container
    wanting = [c for c in outcome.pod.all_containers if _wanted(admitter, outcome.pod, c) and name in {None, c.name}]
    return max(wanting, key=lambda container: _wanted(admitter, outcome.pod, container), default=None)


def _wanted(admitter: Admitter, pod: Pod, container: Container) -> int:
    policy = admitter.policy
    return exclusive_cpus(pod, container, pod_level=policy.pod_level) if isinstance(policy, StaticPolicy) else 0


def _reserved(admitter: Admitter) -> CPUSet:
    return admitter.policy.reserved if isinstance(admitter.policy, StaticPolicy) else EMPTY


def _situation(admitter: Admitter, ruler: Ruler, outcome: Outcome, count: int, free: CPUSet) -> tuple[str, str]:
    """Return what is needed, and what there is of it."""
    can = f"{len(free)} can be given ({free})" if free else "none can be given"
    match outcome.refusal:
        case TopologyAffinityError():
            single = admitter.manager.policy is TopologyPolicy.SINGLE_NUMA_NODE
            nodes = 1 if single else ruler.fewest(Level.NUMA, count)
            where = Level.NUMA.counted(nodes)
            return f"needs {_cpus(count)} in {where}", _most_free(ruler, Level.NUMA, free)
        case SMTAlignmentError(per_core=per_core, free=None) if count % per_core:
            return f"needs whole cores of {per_core} CPUs, and {count} is no multiple of {per_core}", ""
        case SMTAlignmentError(free=whole):
            return f"needs {_cpus(count)} as whole cores", f"{whole or 0} CPUs are on cores that are wholly free"
        case EmptySharedPoolError():
            return f"needs {_cpus(count)} and must leave one shared", can
    return f"needs {_cpus(count)}", can


def _cpus(count: int) -> str:
    return f"{count} CPU{'' if count == 1 else 's'}"


def _most_free(ruler: Ruler, level: Level, free: CPUSet) -> str:
    """Return the groups of a level that have most CPUs free, in words."""
    groups = sorted(ruler.free(level, free).items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{level} {number} has {count} free" for number, count in groups[:_NAMED])


class _Trial(NamedTuple):
    """A refused pod, tried again in other ways."""

    admitter: Admitter
    outcome: Outcome
    container: Container
    wanted: int

    def fits(self, state: State, pod: Pod) -> State | None:
        """Return the State with *pod* in it, None if it is refused."""
        admission = self.admitter.admit(state, pod)
        return admission.state if admission.refusal is None else None

    def sizes(self, most: int, ruler: Ruler) -> tuple[tuple[int, ...], str | None]:
        """Return with how many CPUs the container would fit, and which other one is refused even then."""
        if self.outcome.pod.resources is not None:
            return (), None
        smaller = range(min(self.wanted - 1, most), max(0, self.wanted - 1 - _MOST_TRIES), -1)
        larger: Sequence[int] = ()
        if isinstance(self.outcome.refusal, SMTAlignmentError):
            larger = range(self.wanted + 1, self.wanted + max(ruler.largest(Level.CORE), 1))
        return (
            self._first_of((smaller, larger), whole=True)
            or self._first_of((smaller, larger), whole=False)
            or ((), None)
        )

    def _first_of(self, ways: Sequence[Sequence[int]], *, whole: bool) -> tuple[tuple[int, ...], str | None] | None:
        """Return the first size of each way with which the pod fits as a *whole*, or at least this container."""
        found: dict[int, str | None] = {}
        for counts in ways:
            for count in counts:
                other = self._refused_with(count)
                if other is None or (not whole and other != self.container.name):
                    found[count] = other
                    break
        if not found:
            return None
        # What is said of the first size has to hold for all that are named beside it.
        then = next(iter(found.values()))
        return tuple(count for count, other in found.items() if other == then), then

    def _refused_with(self, count: int) -> str | None:
        """Return the container that is refused when this one has so many CPUs; None if all fit."""
        admission = self.admitter.admit(self.outcome.before, resized(self.outcome.pod, self.container.name, count))
        if admission.refusal is None:
            return None
        return admission.container or self.container.name

    def others(self) -> tuple[ContainerRef | None, ContainerRef | None]:
        """Return a container that could move elsewhere to make room, and one whose end would; None where none helps."""
        ended = None
        for ref, cpus in self._owners():
            without = self.admitter.policy.release(self.outcome.before, ref).state
            state = self.fits(without, self.outcome.pod)
            if state is None:
                continue
            if self.fits(state, _someone(len(cpus))) is not None:
                return ref, ended or ref
            ended = ended or ref
        return None, ended

    def _owners(self) -> Iterator[tuple[ContainerRef, CPUSet]]:
        """Yield who has exclusive CPUs, fewest first: the smallest change that helps is the best."""
        found = [
            (len(cpus), pod, name, cpus)
            for pod, containers in self.outcome.before.assignments.items()
            if pod != self.outcome.pod.uid
            for name, cpus in containers.items()
        ]
        for _, pod, name, cpus in sorted(found, key=lambda row: row[:3])[:_MOST_TRIES]:
            yield ContainerRef(pod, name), cpus


def resized(pod: Pod, name: str, cpus: int) -> Pod:
    """Return *pod* with so many whole CPUs for the container *name*, requested and as limit."""
    return replace(
        pod,
        init=tuple(_with_cpus(c, cpus) if c.name == name else c for c in pod.init),
        containers=tuple(_with_cpus(c, cpus) if c.name == name else c for c in pod.containers),
    )


def _with_cpus(container: Container, cpus: int) -> Container:
    requests, limits = container.resources.requests, container.resources.limits
    milli = cpus * _MILLI
    return replace(container, resources=Resources(requests._replace(cpu=milli), limits._replace(cpu=milli)))


def _someone(cpus: int) -> Pod:
    """Return a pod that wants as many CPUs as someone who has to move."""
    amounts = Amounts(cpus * _MILLI, 1)
    return Pod(_SOMEONE, "", containers=(Container("", Resources(amounts, amounts)),))
