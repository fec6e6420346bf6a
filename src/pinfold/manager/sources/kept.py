"""The workloads of a plain host on disk, for the next daemon: pods, main processes, exit codes.

A row that cannot be read does not affect the others; its file is kept aside.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

from pinfold.core.machine.cpuset import CPUSet
from pinfold.errors import PinfoldError
from pinfold.formats.pods.document import document_pod, pod_document
from pinfold.manager.saving.savedfile import SavedFile
from pinfold.manager.sources.workloads import BEGUN, WorkloadKind
from pinfold.node.processgroups.origin import Origin
from pinfold.node.procfs import Procfs
from pinfold.node.statefile import keep_aside, read_state_file
from pinfold.runtimes.base import Main

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    from pinfold.core.pods.pod import Pod, PodUID

FILE: Final = "workloads.json"
MOST_WORKLOADS: Final = 5000
"""So many are read in 0.2 s."""
_MOST_UNCHECKED: Final = 250_000
"""Characters of rows without a checksum: version 0.1 wrote about 600 workloads in so many."""
_format: Final = json.JSONEncoder(check_circular=False).encode
_UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, PinfoldError)


class KeptWorkload(NamedTuple):
    """A workload as it is saved."""

    kind: WorkloadKind
    pod: Pod
    mains: Mapping[str, Main] = {}
    """The main processes that run, by container."""
    done: Mapping[str, int | None] = {}
    """The exit codes of containers that will not be started again."""
    origins: Mapping[str, Origin] = {}
    """Where processes that are only lent come from, by container."""


class KeptFile(NamedTuple):
    """What the file holds: the boot in which it was written, the workloads, and why the others cannot be read."""

    boot: str
    rows: list[KeptWorkload]
    problems: Sequence[Exception] = ()


def format_workloads(boot: str, workloads: Iterable[KeptWorkload]) -> str:
    """Return the text of the file."""
    return _file_text(boot, [_row_text(boot, kept) for kept in workloads])


def parse_workloads(text: str, boot: str = "") -> KeptFile:
    """Return what the text of the file holds; one of an earlier version is taken to be of *boot*."""
    try:
        found = json.loads(text)
        boot = str(found.get("boot", boot))
        reader, rows = _Reader(boot), found["workloads"]
        if len(rows) > MOST_WORKLOADS:
            raise ValueError(f"{len(rows):,} workloads; at most {MOST_WORKLOADS:,} are read")
        read = [reader.row(row) for row in rows]
    except _UNREADABLE as error:
        return KeptFile(boot, [], [error])
    problems = [row for row in read if not isinstance(row, KeptWorkload)]
    return KeptFile(boot, [row for row in read if isinstance(row, KeptWorkload)], problems)


class KeptWorkloads:
    """The file in one state directory."""

    def __init__(self, directory: Path, boot: str | None = None, disk: Executor | None = None) -> None:
        """Keep it in *directory*; *boot* is the boot ID: a PID means nothing after another boot.

        *disk* writes it; None: right here.
        """
        self._path = directory / FILE
        self._file = SavedFile(self._path, disk)
        self._boot = Procfs(Path("/proc")).boot() if boot is None else boot
        self._rows: dict[PodUID, tuple[KeptWorkload, str]] = {}
        """The workloads of the last write, with their texts: most have not changed at the next one."""

    async def save(self, workloads: Iterable[KeptWorkload]) -> None:
        """Save all of them, durably, or raise."""
        await self._file.save(lambda: self._format(workloads))

    def begin(self, workloads: Iterable[KeptWorkload]) -> asyncio.Future[None]:
        """Begin to save all of them, durably; they are asked for when they are written."""
        return self._file.begin(lambda: self._format(workloads))

    def _format(self, workloads: Iterable[KeptWorkload]) -> str:
        before, rows = self._rows, []
        for kept in workloads:
            known = before.get(kept.pod.uid)
            rows.append(known if known is not None and known[0] == kept else (kept, _row_text(self._boot, kept)))
        self._rows = {kept.pod.uid: (kept, text) for kept, text in rows}
        return _file_text(self._boot, [text for _, text in rows])

    def load(self) -> tuple[list[KeptWorkload], str | None]:
        """Return the workloads that an earlier daemon saved, and the problems in reading them."""
        try:
            text = read_state_file(self._path)
        except PinfoldError as error:
            return [], self._problem(error)
        found = parse_workloads(text, self._boot) if text is not None else KeptFile(self._boot, [])
        problem = self._problem(found.problems[0]) if found.problems else None
        if text is not None and problem is None:
            self._file.has(text)
        if found.boot == self._boot:
            return found.rows, problem
        return [row._replace(mains=dict.fromkeys(row.mains, BEGUN)) for row in found.rows], problem

    def _problem(self, error: Exception) -> str:
        aside = keep_aside(self._path)
        return f"{type(error).__name__}: {error}; the file is kept as {aside.name if aside else 'it is'}"


def _file_text(boot: str, rows: Iterable[str]) -> str:
    return f'{{"boot": {json.dumps(boot)}, "workloads": [{", ".join(rows)}]}}'


def _row_text(boot: str, kept: KeptWorkload) -> str:
    text = _format(_row_data(kept))
    return f'{text[:-1]}, "checksum": {_checksum(boot, text)}}}'


def _row_data(kept: KeptWorkload) -> dict[str, object]:
    return {
        "kind": kept.kind,
        "pod": pod_document(kept.pod),
        "mains": {name: list(main) for name, main in kept.mains.items()},
        "done": dict(kept.done),
        "origins": {name: _origin_data(origin) for name, origin in kept.origins.items()},
    }


def _checksum(boot: str, row: str) -> int:
    """Return the checksum of a row, as JSON without it, that was written in this boot."""
    return crc32(f"[{json.dumps(boot)}, {row}]".encode())


class _Reader:
    """Reads the rows of one file, written in one boot."""

    def __init__(self, boot: str) -> None:
        self._boot = boot
        self._left = _MOST_UNCHECKED

    def row(self, row: object) -> KeptWorkload | Exception:
        if not isinstance(row, dict) or "mains" not in row:
            return ValueError("a row is not a workload")
        try:
            return self._workload(row)
        except _UNREADABLE as error:
            return error

    def _workload(self, row: dict[str, Any]) -> KeptWorkload:  # Any: JSON
        checksum = row.pop("checksum", None)
        if checksum is None:  # of an earlier version; nothing says that it is as we wrote it
            self._left -= len(json.dumps(row)) if self._left > 0 else 0
            if self._left <= 0:
                raise ValueError(f"more than {_MOST_UNCHECKED:,} characters of rows without a checksum")
            return _parse(row, _checked_pod)
        if checksum != _checksum(self._boot, json.dumps(row)):
            raise ValueError("a row does not match its checksum")
        return _parse(row, document_pod)


def _parse(row: dict[str, Any], pod: Callable[[dict[str, Any]], Pod]) -> KeptWorkload:  # Any: JSON
    mains, done, origins = row["mains"], row.get("done", {}), row.get("origins", {})
    if not isinstance(mains, dict) or not isinstance(done, dict) or not isinstance(origins, dict):
        raise TypeError("mains, done and origins are objects")
    return KeptWorkload(
        WorkloadKind(str(row["kind"])),
        pod(row["pod"]),
        {name: Main(int(pid), int(started)) for name, (pid, started) in mains.items()},
        {name: None if code is None else int(code) for name, code in done.items()},
        {name: _origin(data) for name, data in origins.items()},
    )


def _checked_pod(document: object) -> Pod:
    from pinfold.formats.number import Number  # noqa: PLC0415 - the same
    from pinfold.formats.pods.manifest import read_object  # noqa: PLC0415 - a daemon without such rows reads none

    pod = read_object(json.loads(json.dumps(document), parse_int=Number))
    if pod is None:
        raise ValueError("a pod has ended")
    return pod


def _origin_data(origin: Origin) -> dict[str, object]:
    threads = {str(thread): str(cpus) for thread, cpus in origin.threads.items()}
    return {"groups": list(origin.groups), "cpus": str(origin.cpus), "threads": threads}


def _origin(data: Mapping[str, object]) -> Origin:
    groups, threads = data["groups"], data["threads"]
    if not isinstance(groups, list) or not isinstance(threads, dict):
        raise TypeError("groups is a list, threads an object")
    allowed = {int(thread): CPUSet.parse(str(cpus)) for thread, cpus in threads.items()}
    return Origin(tuple(map(str, groups)), CPUSet.parse(str(data["cpus"])), allowed)
