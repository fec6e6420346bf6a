"""Upkeep: what the files of a state directory hold, whether they are sound, and what a repair makes of them.

Writes nothing; a daemon must not run meanwhile if the caller does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.config import POLICIES
from pinfold.errors import PinfoldError, StateError
from pinfold.formats.kubelet.checkpoint import parse_checkpoint
from pinfold.formats.kubelet.checkpointerrors import OtherPolicy
from pinfold.manager.saving.store import FILE as STATE
from pinfold.manager.sources.kept import FILE as WORKLOADS
from pinfold.manager.sources.kept import format_workloads, parse_workloads
from pinfold.node.statefile import leftover_of, read_state_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pinfold.core.state import State
    from pinfold.manager.sources.kept import KeptWorkload


class FoundFile(NamedTuple):
    """What one file holds."""

    lines: tuple[str, ...] = ()
    """Its content, for people to read; no lines if it is missing or cannot be read."""
    problem: str = ""
    """The problem with the file, empty if it is sound."""
    repaired: str | None = None
    """The text after a repair; None: there is nothing left to use, and the file goes."""


def look_at(directory: Path) -> dict[str, FoundFile]:
    """Return what the files of a state directory hold, by name."""
    found = {name: _read(directory / name, examine) for name, examine in _FILES.items()}
    return {name: one for name, one in found.items() if one is not None}


def examine(files: Mapping[str, str]) -> dict[str, FoundFile]:
    """Return what these texts hold, by the names of their files; raise if a name is none of the State's."""
    unknown = sorted(files.keys() - _FILES.keys())
    if unknown:
        raise StateError(f"{unknown[0]} is not a file of the State; expected {' or '.join(_FILES)}")
    return {name: _FILES[name](text) for name, text in files.items()}


def kept_aside(directory: Path) -> list[str]:
    """Return the names of damaged files that were kept, and of what an interrupted write has left."""
    names = [path.name for name in _FILES for path in sorted(directory.glob(f"{name}.bad-*"))]
    return names + [leftover_of(directory / name).name for name in _FILES if leftover_of(directory / name).exists()]


def _read(path: Path, look: Callable[[str], FoundFile]) -> FoundFile | None:
    try:
        text = read_state_file(path)
    except PinfoldError as error:
        return FoundFile(problem=str(error))
    return None if text is None else look(text)


def _examine_state(text: str) -> FoundFile:
    """Look at a checkpoint, of whichever policy it is."""
    error: PinfoldError | None = None
    for policy in POLICIES:
        try:
            state = parse_checkpoint(text, policy=policy, pod_level=True, resize=True)
        except OtherPolicy:
            continue
        except StateError as found:
            error = error or found
            continue
        broken = state.check(state.shared | state.exclusive)
        return FoundFile(tuple(_state_lines(policy, state)), "; ".join(broken), None if broken else text)
    return FoundFile(problem=str(error or "it is of no known policy"))


def _state_lines(policy: str, state: State) -> Iterator[str]:
    yield f"policy {policy}, shared CPUs {state.shared or 'all'}"
    for ref, cpus in sorted(state.flat()):
        yield f"pod {ref.pod} container {ref.name}: CPUs {cpus}"


def _examine_workloads(text: str) -> FoundFile:
    boot, rows, problems = parse_workloads(text)
    repaired = text if not problems else format_workloads(boot, rows) if rows else None
    return FoundFile(tuple(map(_workload_line, rows)), "; ".join(map(str, problems)), repaired)


def _workload_line(kept: KeptWorkload) -> str:
    pod = kept.pod
    mains = [f"{name} is process {main.pid}" for name, main in kept.mains.items() if main.pid]
    ended = [f"{name} has ended with {'an unknown code' if code is None else code}" for name, code in kept.done.items()]
    said = ", ".join([f"restart {pod.restart_policy}", *mains, *ended])
    return f"{kept.kind} {pod.namespace}/{pod.name} (uid {pod.uid}): {said}"


_FILES: Final[Mapping[str, Callable[[str], FoundFile]]] = {STATE: _examine_state, WORKLOADS: _examine_workloads}
