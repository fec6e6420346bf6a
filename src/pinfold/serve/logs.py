"""What the containers of a host have printed, as a stream of bytes; for the control socket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from pinfold.core.events.entries import Subject
from pinfold.errors import ParseError, did_you_mean, excerpt
from pinfold.manager.sources.workloads import WorkloadKind, output_name
from pinfold.node.outputs.outputs import PART, earlier_half
from pinfold.serve.http.messages import HTTPError, Response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from pinfold.manager.sources.workbook import Workbook
    from pinfold.node.outputs.outputs import Outputs

_EVERY: Final = 0.2
"""Seconds between two looks for more output."""
_SUFFIX: Final = ".log"
MOST_LINES: Final = 100_000
"""The most lines that can be asked for; without a number, all that are kept come."""


def answer_logs(workbook: Workbook, query: Mapping[str, str]) -> Response:
    """Return what a container has printed, and if *query* says `follow`, what it prints until its pod ends.

    With `tail` only the last lines of what it has printed.
    """
    tail = _tail(query)
    try:
        name = _find(workbook, Subject.parse(query.get("container", "")))
    except ParseError as error:
        raise HTTPError(400, "BadRequest", str(error)) from error
    return Response(200, lines=_parts(workbook, name, tail, follow=query.get("follow") == "true"))


def _tail(query: Mapping[str, str]) -> int | None:
    text = query.get("tail")
    if text is None:
        return None
    if not text.isdecimal() or not text.isascii() or len(text) > len(str(MOST_LINES)) or int(text) > MOST_LINES:
        raise HTTPError(400, "BadRequest", f"tail: expected a number from 0 to {MOST_LINES}, got {excerpt(text)}")
    return int(text)


def _find(workbook: Workbook, subject: Subject) -> str:
    """Return the file of the one container that *subject* names, or raise."""
    found = {who: name for who, name in _files(workbook).items() if subject.is_owner(str(who))}
    if not found:
        if any(subject.is_owner(f"{one.pod.namespace}/{one.pod.name}/") for one in workbook.workloads.values()):
            raise HTTPError(
                404, "NotFound", f"{excerpt(str(subject))} was not started by apply, so its output is not kept"
            )
        known = {name for who in _files(workbook) for name in (who.pod, f"{who.pod}/{who.container}")}
        meant = did_you_mean(str(subject), known)
        raise HTTPError(404, "NotFound", f"no output of {excerpt(str(subject))} is kept{meant}")
    if len(found) > 1:
        names = ", ".join(sorted(map(str, found)))
        raise HTTPError(400, "BadRequest", f"{excerpt(str(subject))} is not one container; name one of: {names}")
    return next(iter(found.values()))


def _files(workbook: Workbook) -> dict[Subject, str]:
    """Return the files by container: those of pods that have ended, then those of pods that run."""
    found = {}
    for name in workbook.printed.names():
        parts = name.removesuffix(_SUFFIX).split("_")  # names of Kubernetes have no "_"
        if len(parts) == len(Subject._fields):
            found[Subject(*parts)] = name
    for workload in workbook.workloads.values():
        pod = workload.pod
        if workload.kind is WorkloadKind.POD:
            found |= {Subject(pod.namespace, pod.name, c.name): output_name(pod, c) for c in pod.all_containers}
    return found


def last_lines(files: Outputs, name: str, lines: int) -> list[tuple[str, int]]:
    """Return the files that have the last *lines*, in order, and where these begin in each."""
    if not lines:
        return [(name, files.size(name))]
    found: list[tuple[str, int]] = []
    is_last = True
    for half in (name, earlier_half(name)):
        end = files.size(half)
        while end:
            start = max(end - PART, 0)
            part = files.read(half, start)[: end - start]
            at = len(part) - (is_last and part.endswith(b"\n"))  # the end of the last line is not before a line
            is_last = False
            while (at := part.rfind(b"\n", 0, at)) >= 0:
                lines -= 1
                if not lines:
                    return [(half, start + at + 1), *found]
            end = start
        found.insert(0, (half, 0))
    return found


async def _parts(workbook: Workbook, name: str, tail: int | None, *, follow: bool) -> AsyncIterator[bytes]:
    files, at = workbook.printed, 0
    await files.written(name)
    halves = [(earlier_half(name), 0), (name, 0)]
    if tail is not None:
        halves = await asyncio.to_thread(last_lines, files, name, tail)
    for half, begin in halves:
        at = begin
        while part := await asyncio.to_thread(files.read, half, at):
            yield part
            at += len(part)
    while follow:
        runs = name in workbook.outputs()
        if files.size(name) < at:  # its start was cut off
            at = 0
        part = await asyncio.to_thread(files.read, name, at)
        if part:
            yield part
            at += len(part)
        elif not runs:
            return
        else:
            await asyncio.sleep(_EVERY)
