"""The State on disk: the kubelet's file, saved at every change, and kept aside if it cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.recover import recover
from pinfold.core.state import State
from pinfold.errors import StateError
from pinfold.formats.checkpoint import format_checkpoint, parse_checkpoint
from pinfold.node.statefile import read_state_file, write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pinfold.core.cpuset import CPUSet
    from pinfold.core.pods import ContainerRef, PodUID
    from pinfold.core.policies.base import Policy

FILE: Final = "cpu_manager_state"


class Loaded(NamedTuple):
    """What was found at start: the State to go on with, and what had to be done about the file."""

    state: State
    problem: str | None = None
    aside: Path | None = None
    """Where a file that could not be used is kept."""
    lost: Mapping[ContainerRef, CPUSet] = {}


class StateStore:
    """Keeps the State of one policy in one directory."""

    def __init__(self, directory: Path, policy: Policy, *, pod_level: bool = False) -> None:
        self.path = directory / FILE
        self._policy = policy
        self._pod_level = pod_level

    def save(self, state: State) -> None:
        """Make the State durable, or raise; the last one stays if this one cannot be saved."""
        text = format_checkpoint(self._policy.name, state, pod_level=self._pod_level)
        write_atomically(self.path, text.encode())

    def load(self, running: Mapping[PodUID, Mapping[str, CPUSet]]) -> Loaded:
        """Return the State to start with; *running* are exclusive containers found running, with their CPUs.

        A file that is damaged or does not fit is kept aside, and whoever runs keeps their CPUs wherever possible.
        """
        found = running
        try:
            text = read_state_file(self.path)
            if text is None:
                state = State.new()
            else:
                state = parse_checkpoint(text, policy=self._policy.name, pod_level=self._pod_level)
                found = {**state.assignments, **running}
            return Loaded(self._policy.start(state))
        except StateError as error:
            aside = self._keep_aside()
            recovered = recover(self._policy, found)
            return Loaded(recovered.state, str(error), aside, recovered.lost)

    def _keep_aside(self) -> Path | None:
        for number in range(1, 1000):
            aside = self.path.with_name(f"{FILE}.bad-{number}")
            if not aside.exists():
                try:
                    return self.path.rename(aside)
                except OSError:
                    return None
        return None
