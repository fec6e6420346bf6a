"""The State on disk: the kubelet's file, saved at every change, and kept aside if it cannot be used."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.policies.options import POD_LEVEL, RESIZE
from pinfold.core.recover import keep_surest
from pinfold.core.state import NOTHING, State
from pinfold.errors import StateError
from pinfold.formats.kubelet.checkpoint import format_checkpoint, parse_checkpoint
from pinfold.manager.saving.savedfile import SavedFile
from pinfold.node.statefile import keep_aside, read_state_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Executor
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef, PodUID
    from pinfold.core.policies.base import Policy

FILE: Final = "cpu_manager_state"
NO_GATES: Final[Mapping[str, bool]] = MappingProxyType({})


class Loaded(NamedTuple):
    """The State found at start, and what was done about its file."""

    state: State
    problem: str | None = None
    aside: Path | None = None
    """Where a file that could not be used is kept."""
    lost: Mapping[ContainerRef, CPUSet] = {}


class StateStore:
    """Keeps the State of one policy in one directory."""

    def __init__(
        self,
        directory: Path,
        policy: Policy,
        gates: Mapping[str, bool] = NO_GATES,
        disk: Executor | None = None,
        patience: float | None = None,
    ) -> None:
        """Keep it in *directory*, with what the feature *gates* add to it.

        *disk* writes it; None: right here. *patience* is how many seconds a write may take; None: no limit.
        """
        self.path = directory / FILE
        self._policy = policy
        self._pod_level, self._resize = POD_LEVEL.is_on(gates), RESIZE.is_on(gates)
        # Not at once: a power failure ends all that runs, and the State before it is as good a start.
        self._file = SavedFile(self.path, disk, at_once=False, patience=patience)

    async def save(self, state: State) -> None:
        """Make the State durable, or raise; the last one stays if this one cannot be saved."""
        resize = self._resize or bool(state.baselines)
        text = format_checkpoint(self._policy.name, state, pod_level=self._pod_level, resize=resize)
        await self._file.save(text)

    def load(self, running: Mapping[PodUID, Mapping[str, CPUSet]]) -> Loaded:
        """Return the State to start with; *running* are exclusive containers found running, with their CPUs.

        A file that is damaged or does not fit is kept aside. Running containers keep their CPUs wherever possible, also
        if they are not in the file: it may be old or missing. Those that are in it come first: what is only seen to
        run apart from the pool may have been put there by another program.
        """
        found = State(EMPTY, running)
        sure: set[ContainerRef] = set()
        try:
            text = read_state_file(self.path)
            saved = self._parse(text) if text is not None else State.new()
            found = saved._replace(assignments=_running_first(running, saved.assignments))
            sure = {ref for ref, _ in saved.flat() if ref.name in running.get(ref.pod, ())}
            state = self._policy.start(saved)
            if found.assignments == state.assignments or not self._policy.allocatable:
                return Loaded(state)
        except StateError as error:
            aside = keep_aside(self.path)
            kept = keep_surest(self._policy, found, sure)
            return Loaded(kept.state, str(error), aside, kept.lost)
        kept = keep_surest(self._policy, found, sure)
        return Loaded(kept.state, lost=kept.lost)

    def _parse(self, text: str) -> State:
        parse = partial(parse_checkpoint, text, policy=self._policy.name, pod_level=self._pod_level)
        if self._resize:
            return parse(resize=True)
        state = parse()
        with suppress(StateError):  # without the gate a baseline matters only after a resize
            return state._replace(baselines=_of_resized(parse(resize=True)))
        return state


def _of_resized(state: State) -> Mapping[PodUID, Mapping[str, CPUSet]]:
    """Return the baselines of the containers that have other CPUs than at their admission."""
    found = {
        pod: {name: cpus for name, cpus in containers.items() if cpus != state.cpus(pod, name)}
        for pod, containers in state.baselines.items()
    }
    return {pod: containers for pod, containers in found.items() if containers} or NOTHING


def _running_first(
    running: Mapping[PodUID, Mapping[str, CPUSet]], saved: Mapping[PodUID, Mapping[str, CPUSet]]
) -> dict[PodUID, Mapping[str, CPUSet]]:
    """Return both, running containers first; for a container in both, the saved CPUs."""
    first = {pod: {**containers, **saved.get(pod, {})} for pod, containers in running.items()}
    return first | {pod: containers for pod, containers in saved.items() if pod not in first}
