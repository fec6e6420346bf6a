"""Why a container has its CPUs, shares CPUs or was refused, as text. The caller formats times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pinfold.render.columns import BOLD, DIM, GREEN, RED, YELLOW, join_parts, named_cpus, printable
from pinfold.render.machine.canvas import Canvas, wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pinfold.render.machine.canvas import Look

    Data = Mapping[str, Any]  # Any: JSON of the daemon
    When = Callable[[float], str]

_GROUPS: Final = {"cores": "core", "uncore_caches": "L3", "numa_nodes": "NUMA node", "sockets": "socket"}
_NO_HELP: Final = "no single change is enough"


def format_explanation(found: Data, when: When, look: Look) -> str:
    """Return an explanation in words, no line longer than the terminal is wide.

    >>> from pinfold.render.machine.canvas import Look
    >>> found = {"container": "default/web/app", "cpus": "2-3", "since": 1.0, "steps": ["took core 2: CPUs 2-3"],
    ...          "alignment": {"cores": 1, "uncore_caches": 1, "numa_nodes": 1, "sockets": 1}}
    >>> print(format_explanation(found, "{:.1f}".format, Look()))
    default/web/app has CPUs 2-3 since 1.0
      on 1 core, 1 L3, 1 NUMA node, 1 socket
    <BLANKLINE>
    How they were chosen
      1. took core 2: CPUs 2-3
    """
    parts = [_verdict(found, when, look)]
    parts.append(_listed(_heading(found), found.get("steps") or (), look, numbered=True))
    parts.append(_listed("Looked at and passed over", found.get("passed_over") or (), look))
    parts.append(_failed(found.get("failed") or {}, when, look))
    return join_parts(parts, look)


def _failed(failure: Data, when: When, look: Look) -> Canvas:
    """Return how the container failed the last time, with the last lines that it printed."""
    canvas = Canvas()
    if failure:
        _add(canvas, f"Failed at {when(failure['time'])} with code {failure.get('code')}; its last lines", look, RED)
        for line in str(failure.get("output", "")).split(" | "):
            _add(canvas, f"  {line}", look)
    return canvas


def format_refusal(refused: Data) -> str:
    """Return a refusal in one line: in plain words, then in the kubelet's.

    >>> format_refusal({"reason": "SMTAlignmentError", "message": "no", "explanation": "3 CPUs cannot be whole cores."})
    '3 CPUs cannot be whole cores. [SMTAlignmentError: no]'
    >>> format_refusal({"reason": "AlreadyExists", "message": "there is a pod web already"})
    'there is a pod web already [AlreadyExists]'
    """
    reason, message = refused.get("reason", "Refused"), refused.get("message", "no reason given")
    words = refused.get("explanation")
    return f"{words} [{reason}: {message}]" if words else f"{message} [{reason}]"


def _verdict(found: Data, when: When, look: Look) -> Canvas:
    canvas = Canvas()
    since = found.get("since")
    at = "" if since is None else when(since)
    name, refusal = found.get("container"), found.get("refusal")
    if refusal:
        _add(canvas, f"{name} was refused{f' at {at}' if at else ''}", look, RED)
        _refused(canvas, refusal, look)
    elif found.get("cpus") is not None:
        _add(canvas, f"{name} has {named_cpus(found['cpus'])}{f' since {at}' if at else ''}", look, GREEN)
        for text, style in _lies(found.get("alignment") or {}):
            _add(canvas, f"  {text}", look, style)
    else:
        _add(canvas, f"{name} has no exclusive CPUs", look, BOLD)
        _add(canvas, f"  {found.get('why')}", look)
    return canvas


def _refused(canvas: Canvas, refusal: Data, look: Look) -> None:
    situation = ": ".join(filter(None, (refusal.get("need"), refusal.get("room"))))
    if situation:
        _add(canvas, f"  {situation}", look)
    for fix in refusal.get("fixes") or ([_NO_HELP] if situation else []):
        _add(canvas, f"  {fix}", look, YELLOW)
    _add(canvas, f"  [{refusal.get('reason')}: {refusal.get('message')}]", look, DIM)


def _lies(alignment: Data) -> Iterable[tuple[str, str]]:
    """Yield how many groups the CPUs use, and which levels have more than necessary."""
    counts = {one: alignment[name] for name, one in _GROUPS.items() if isinstance(alignment.get(name), int)}
    if counts:
        yield f"on {', '.join(_counted(count, one) for one, count in counts.items())}", ""
    fewest = alignment.get("fewest") or {}
    spread = [
        f"{_counted(fewest[name], one)} could hold them"
        for name, one in _GROUPS.items()
        if isinstance(fewest.get(name), int) and fewest[name] < counts.get(one, 0)
    ]
    if spread:
        yield f"on an empty node {', '.join(spread)}", YELLOW
    elif fewest:
        yield "this is the minimum", DIM


def _heading(found: Data) -> str:
    return "What was tried" if found.get("refusal") else "How they were chosen"


def _listed(title: str, texts: Iterable[object], look: Look, *, numbered: bool = False) -> Canvas:
    canvas = Canvas()
    for number, text in enumerate(texts, 1):
        if number == 1:
            _add(canvas, title, look, BOLD)
        _add(canvas, f"  {number}. {text}" if numbered else f"  - {text}", look)
    return canvas


def _add(canvas: Canvas, text: str, look: Look, style: str = "") -> None:
    canvas.append(wrap(printable(text), look.width, indent=4), style)


def _counted(number: int, one: str) -> str:
    return f"{number} {one}{'' if number == 1 or one == 'L3' else 's'}"
