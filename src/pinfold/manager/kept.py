"""The workloads of a plain host on disk, so that the next daemon finds them again: pods, main processes, what is done.

A row that cannot be read does not concern the others; the file that has it is kept aside.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import PinfoldError
from pinfold.formats.poddoc import pod_document
from pinfold.formats.podyaml import parse_pods
from pinfold.manager.workloads import Kind
from pinfold.node.statefile import keep_aside, read_state_file, write_atomically
from pinfold.runtimes.base import Main

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pinfold.core.pods import Pod

FILE: Final = "workloads.json"
_UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, PinfoldError)


class Kept(NamedTuple):
    """A workload as it is written down."""

    kind: Kind
    pod: Pod
    mains: Mapping[str, Main] = {}
    """The main processes that run, by container."""
    done: Mapping[str, int | None] = {}
    """The exit codes of containers that will not be started again."""


class KeptWorkloads:
    """The file in one state directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE

    def save(self, workloads: Iterable[Kept]) -> None:
        """Write all of them down, durably, or raise."""
        rows = [
            {
                "kind": kept.kind,
                "pod": pod_document(kept.pod),
                "mains": {name: list(main) for name, main in kept.mains.items()},
                "done": dict(kept.done),
            }
            for kept in workloads
        ]
        write_atomically(self._path, json.dumps({"workloads": rows}).encode())

    def load(self) -> tuple[list[Kept], str | None]:
        """Return what an earlier daemon has written down, and what could not be read of it."""
        try:
            text = read_state_file(self._path)
            rows = json.loads(text)["workloads"] if text is not None else []
            read = [_row(row) for row in rows]
        except _UNREADABLE as error:
            return [], self._problem(error)
        problems = [row for row in read if not isinstance(row, Kept)]
        return [row for row in read if isinstance(row, Kept)], self._problem(problems[0]) if problems else None

    def _problem(self, error: Exception) -> str:
        aside = keep_aside(self._path)
        return f"{type(error).__name__}: {error}; the file is kept as {aside.name if aside else 'it is'}"


def _row(row: Mapping[str, object]) -> Kept | Exception:
    try:
        return _parse(row)
    except _UNREADABLE as error:
        return error


def _parse(row: Mapping[str, object]) -> Kept:
    mains, done = row["mains"], row.get("done", {})
    if not isinstance(mains, dict) or not isinstance(done, dict):
        raise TypeError("mains and done are objects")
    return Kept(
        Kind(str(row["kind"])),
        parse_pods(json.dumps(row["pod"])).pods[0],
        {name: Main(int(pid), int(started)) for name, (pid, started) in mains.items()},
        {name: None if code is None else int(code) for name, code in done.items()},
    )
