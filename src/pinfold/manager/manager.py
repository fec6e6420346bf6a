"""Manager: event → decide → save → apply → verify. No thread, no clock; it alone changes the kernel.

A change is saved before it is applied, so that a crash at any instant leaves a State from which the next start finishes
or undoes it. If a change cannot be applied, it is undone and the caller gets the error; reconcile repairs drift.
Changes that wait together are decided one after the other, then saved and applied as one. Only they wait for the disk:
until a State is durable and applied, `state` is the one before it, which the kernel has.
"""

from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, NamedTuple, ParamSpec, TypeVar

from pinfold.core.events.daemon import Reconfigured
from pinfold.core.events.decisions import Undone
from pinfold.core.events.measures import Applied, Configured, Left
from pinfold.core.events.repairs import NotRepaired
from pinfold.core.events.running import GivenBack
from pinfold.core.reconcile import drift
from pinfold.core.recover import carry_over, fates
from pinfold.errors import PinfoldError
from pinfold.manager.admitting import Admitting, Refusal
from pinfold.manager.commits import Commits
from pinfold.manager.localmemory import LocalMemory
from pinfold.manager.repairing.repairs import Repairs
from pinfold.manager.saving.saves import Saves
from pinfold.manager.shielding import Shielding, room_of
from pinfold.manager.wanting import Wanting
from pinfold.runtimes.base import ApplyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence

    from pinfold.core.admission import Admission, Admitter
    from pinfold.core.events.about import PodName
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import ContainerRef, Pod, PodUID
    from pinfold.core.reconcile import Drift, Wanted
    from pinfold.core.recover import Fate
    from pinfold.core.state import State
    from pinfold.manager.commits import NextState
    from pinfold.manager.saving.saves import Store
    from pinfold.manager.telling.telling import Telling
    from pinfold.runtimes.base import Applier
    from pinfold.runtimes.roster import Roster

    Agree = Callable[[Sequence[Fate]], None]
    """Sees what becomes of each container, and raises to prevent it."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def _at_once() -> None:
    """Return."""


class Rules(NamedTuple):
    """The policy, the machine and the store of the State: all that a reload can change."""

    admitter: Admitter
    topology: Topology
    store: Store
    memory: CPUSet | None = None
    """The NUMA nodes that have memory; None: not known, so all are assumed to have some."""


def _in_turn(
    change: Callable[Concatenate[Manager, _P], Awaitable[_T]],
) -> Callable[Concatenate[Manager, _P], Coroutine[None, None, _T]]:
    """Return the change, which waits until the changes before it are done."""

    @wraps(change)
    async def in_turn(manager: Manager, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        async with manager.turn:
            return await change(manager, *args, **kwargs)

    return in_turn


def agree_to_all(_fates: Sequence[Fate]) -> None:
    """Accept everything."""


class Manager:
    """Holds the State of one node, and changes it in one way only."""

    def __init__(self, rules: Rules, state: State, applier: Applier, roster: Roster, telling: Telling) -> None:
        self.rules = rules
        self.state = state
        self.applier = applier
        self._roster = roster
        self.telling = telling
        self.saves = Saves(telling)
        self.show: Callable[[Wanted], None] = lambda _want: None
        """Called with what is wanted when it was applied."""
        self.shown: Callable[[], Awaitable[None]] = _at_once
        """Returns when those who are to see it before a change is answered have."""
        self.saving: Callable[[], None] = lambda: None
        """Called when changes were decided: files that belong to them are saved while the State is."""
        self._applied: Wanted | None = None
        self._wanting = Wanting(roster)
        self.turn = asyncio.Lock()
        """Held by the changes that are under way."""
        self._commits = Commits(self.turn, lambda: self.state, self._change)
        self._repairs = Repairs(applier, telling)
        self.memory = LocalMemory(roster)
        """Knows what is left for containers that ask for local memory."""
        self.shielding = Shielding(telling)
        """Keeps the rest of the host off exclusive CPUs."""

    @property
    def wanted(self) -> Wanted:
        """The CPUs that everything should run on."""
        return self._wanting.of(self.state, self.rules)

    async def start(self) -> None:
        """Make the running containers agree with the State, however the earlier daemon ended.

        A full or read-only disk does not prevent that: what is on it leads to the same State at every start.
        """
        await self.keep()
        self.enforce()
        await self.reshield()

    @_in_turn
    async def keep(self) -> None:
        """Save the State if the disk may not have it; a failure is only reported."""
        await self.saves.try_to_save(self.state, self.rules.store)

    # -- pods come and go

    async def admit(
        self,
        pod: Pod,
        due: Collection[str] | None = None,
        *,
        silently: bool = False,
        accepted: Callable[[], None] = lambda: None,
    ) -> Admission:
        """Admit a pod, or those of its containers that are due; or raise a Refusal.

        When this returns, all others have left the pod's CPUs, and that was read back. *silently*: a refusal is not
        reported, because the caller makes room and tries again. *accepted* is called when the pod fits, which is not
        saved or applied yet, and may be called again.
        """
        admitting = Admitting(self, self._roster, pod, due, accepted)
        try:
            await self.decide(admitting.decide)
        except Refusal:
            if silently:
                raise
            raise admitting.refused() from None
        except PinfoldError:
            admitting.failed()
            raise
        return admitting.admitted()

    def would_fit(self, pod: Pod, due: Collection[str] | None = None) -> bool:
        """Return whether a pod, or those of its containers that are due, would be admitted now."""
        return self.memory.decide(pod, due, self.state, self.rules)[0].refusal is None

    def name(self, pod: PodUID) -> PodName:
        """Return a pod's name."""
        return self.telling.name(pod)

    def know(self, pods: Collection[Pod]) -> None:
        """Remember the names of pods; if one of them has CPUs, report the State with its name."""
        if any(uid in self.state.assignments for uid in self.telling.names.know(pods)):
            self.tell_state()

    async def release(self, containers: Collection[ContainerRef]) -> dict[ContainerRef, PinfoldError]:
        """Release the CPUs of containers that are gone: their processes end first, then the shared pool grows.

        Return the containers whose processes could not be ended, and why: they keep their CPUs.
        """
        stuck: dict[ContainerRef, PinfoldError] = {}

        def without(state: State) -> State:
            stuck.clear()
            stuck.update(self._vacate(containers))
            for ref in containers:
                if ref not in stuck:
                    state = self.rules.admitter.policy.release(state, ref).state
            return state

        before, after = await self.decide(without)
        gone = [ref for ref in containers if ref not in stuck]
        if gone:
            self.telling.tell(Left(tuple(gone)))
        self.telling.released(gone, before, after)
        return stuck

    def _vacate(self, containers: Collection[ContainerRef]) -> dict[ContainerRef, PinfoldError]:
        stuck: dict[ContainerRef, PinfoldError] = {}
        for ref in containers:
            try:
                given = self.applier.vacate(ref)
            except PinfoldError as error:
                stuck[ref] = error
                continue
            if given:
                self.telling.tell(GivenBack(self.telling.name(ref.pod), ref.name, tuple(given)))
        return stuck

    # -- the rules change

    @_in_turn
    async def reconfigure(
        self, rules: Rules, pods: Callable[[], Mapping[PodUID, Pod]], agree: Agree = agree_to_all
    ) -> None:
        """Go on under other rules without draining the node; or raise, and leave all as it was.

        Containers keep their CPUs wherever the new rules allow it. The others are admitted again, like any pod; those
        that are refused share. *pods* returns the pods that are here; *agree* sees what becomes of each container, and
        raises to prevent it.
        """
        recovered = carry_over(rules.admitter, self.state, pods(), self._roster.others)
        agree(fates(self.state, recovered))
        self.telling.not_kept(recovered)
        before, self.rules = self.rules, rules
        self._applied = None
        try:
            await self._change(recovered.state)
        except PinfoldError:
            self.rules = before
            await self.saves.try_to_save(self.state, self.rules.store)
            raise
        self.telling.reassigned(recovered)
        self.telling.tell(Configured(rules.admitter))
        self.telling.tell(Reconfigured(rules.admitter.policy.name, self.wanted.shared))

    # -- what is, against what should be

    def reconcile(self, *, spaced: bool = False, quick: bool = False) -> list[Drift]:
        """Check every container, repair what has drifted, and return it; *spaced*: less often in a fight.

        *quick*: something was heard of; it is not the periodic check.
        """
        want = self.wanted
        found = self._repairs.reconcile(want, spaced=spaced, quick=quick)
        if not quick:
            self.show(want)
        return found

    @_in_turn
    async def reshield(self) -> None:
        """Move what is left of the host, or has come back, off exclusive CPUs."""
        await self.shielding.look(room_of(self.state, self.rules))

    def verify(self, ref: ContainerRef) -> None:
        """Check that a container about to run has its CPUs, and no other container has; repair it, or raise."""
        self._repairs.verify(ref, self.wanted)

    def enforce(self) -> None:
        """Apply what is wanted, regardless of what was applied before; or raise."""
        want = self.wanted
        self._applied = None
        self.applier.apply(want)
        self._applied = want
        self.show(want)

    async def decide(self, next_state: NextState) -> tuple[State, State]:
        """Change to the State that *next_state* returns for the one that is, and return both; or raise.

        If it returns the same State, what follows from the Roster is applied. *next_state* may be called again.
        """
        return await self._commits.make(next_state)

    async def _change(self, state: State) -> None:
        """Save, apply and read back the next State; go back to the last one on failure."""
        if state == self.state and self._wanting.of(state, self.rules) == self._applied:
            return
        self.saving()
        if state != self.state or self._applied is None:
            await self.saves.save(state, self.rules.store)
        await self.shielding.clear(room_of(state, self.rules))
        try:
            # Not before: the Roster may have changed while the disk took the State and the host left.
            want = self._wanting.of(state, self.rules)
            applied = self._apply(want)
        except PinfoldError as error:
            self.telling.tell(Undone(str(error)))
            await self._go_back()
            raise
        changed, self.state = state != self.state, state
        self.show(want)
        await self.shielding.settle(room_of(state, self.rules))
        if changed:
            self.tell_state(applied)
        await self.shown()

    async def _go_back(self) -> None:
        """Restore the last State on disk and in the kernel as far as possible; the next change tries again."""
        await self.saves.try_to_save(self.state, self.rules.store)
        try:
            self.enforce()
        except PinfoldError as error:
            self.telling.tell(NotRepaired(why=str(error)))
        await self.shielding.settle(room_of(self.state, self.rules))

    def tell_state(self, applied: tuple[int, float] | None = None) -> None:
        """Report the whole State, and how it was *applied*, for the journal."""
        self.telling.state(self.state, self.rules.admitter.policy, self.rules.topology, applied)

    def _apply(self, want: Wanted) -> tuple[int, float]:
        """Apply and read back, or raise; return how many groups were read back, and how many milliseconds it took."""
        start, clock = self.telling.clock(), self.telling.clock
        self._applied = None
        try:
            self.applier.apply(want)
            found = self.applier.observe()
            wrong = list(drift(want, found))
            if wrong:
                raise ApplyError(self.telling.describe(wrong))
        except PinfoldError:
            self.telling.tell(Applied(clock() - start, ok=False))
            raise
        self._applied = want
        seconds = clock() - start
        self.telling.tell(Applied(seconds))
        return len(found.containers) + (found.shared is not None), round(seconds * 1e3, 3)
