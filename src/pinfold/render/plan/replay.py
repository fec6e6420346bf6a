"""A replay as text and data: the result, when the node was fullest, which pods were refused and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.machine.summary import summary
from pinfold.render.columns import (
    BOLD,
    DIM,
    GREEN,
    RED,
    YELLOW,
    Cell,
    Column,
    Line,
    format_columns,
    join_parts,
    printable,
)
from pinfold.render.machine.canvas import Canvas, flow, wrap
from pinfold.render.plan.data import placements_data, plan_facts
from pinfold.render.plan.table import describe, plural, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pinfold.planning.replay import Replay
    from pinfold.render.machine.canvas import Look

_MOST_ROWS: Final = 40
_BARS: Final = 12
_LONGEST_BAR: Final = 40


def format_replay(replay: Replay, look: Look, title: str = "") -> str:
    """Return the replay for the terminal."""
    parts = [_head(replay, look, title), _refused(replay, look), _course(replay, look), _sum(replay, look)]
    return join_parts(parts, look)


def _head(replay: Replay, look: Look, title: str) -> Canvas:
    canvas = Canvas()
    line = look.signs.plain(summary(replay.plan.topology))
    canvas.append(flow(f"{printable(title)}: {line}" if title else line, look.signs.dot, look.width), BOLD)
    canvas.append(flow(look.signs.plain(describe(replay.plan)), look.signs.dot, look.width), DIM)
    return canvas


def _refused(replay: Replay, look: Look) -> Canvas:
    canvas = Canvas()
    rows: list[Sequence[Cell] | Line] = []
    refused = [
        (time, outcome)
        for time, outcome in zip(replay.times, replay.plan.outcomes, strict=True)
        if outcome.refusal is not None
    ]
    for time, outcome in refused[:_MOST_ROWS]:
        reason = "" if outcome.refusal is None else outcome.refusal.reason
        rows.append((Cell(_after(replay, time)), Cell(outcome.pod.name), Cell(reason, RED)))
    if not rows:
        return canvas
    if len(refused) > _MOST_ROWS:
        rows.append(Line(f"and {len(refused) - _MOST_ROWS} more; see -o json", DIM))
    return format_columns((Column("AFTER"), Column("REFUSED POD", 12, cut=True), Column("REASON", 12)), rows, look)


def _course(replay: Replay, look: Look) -> Canvas:
    """Return bars for the exclusive CPUs over the time of the trace: the maximum in each part of it."""
    moments = replay.moments
    if not moments:
        return Canvas()
    start, end = moments[0].time, moments[-1].time
    step = (end - start) / _BARS
    if not step:
        return Canvas()
    most = [0] * _BARS
    part = held = 0
    for moment in moments:
        now = min(int((moment.time - start) / step), _BARS - 1)
        for i in range(part + 1, now + 1):  # CPUs that were exclusive when a part began count in it
            most[i] = held
        part, held = now, moment.exclusive
        most[now] = max(most[now], held)
    width = min(_LONGEST_BAR, max(look.width - 30, 8))
    total = max(len(replay.plan.topology.online), 1)
    sign = "#" if look.ascii_only else "█"
    rows = [
        (Cell(format_seconds(i * step)), Cell(str(cpus)), Cell(sign * round(width * cpus / total)))
        for i, cpus in enumerate(most)
    ]
    return format_columns((Column("AFTER"), Column("EXCLUSIVE CPUS", right=True), Column("", 8)), rows, look)


def _sum(replay: Replay, look: Look) -> Canvas:
    canvas = Canvas()
    for text, style in _lines(replay):
        canvas.append(wrap(text, look.width, indent=2), style)
    return canvas


def _lines(replay: Replay) -> Iterator[tuple[str, str]]:
    plan = replay.plan
    yield f"{plural(len(plan.outcomes), 'pod')} came: {verdict(plan)}", RED if plan.refused else GREEN
    if plan.misaligned:
        yield f"{plural(len(plan.misaligned), 'container')} spread over more groups than necessary", YELLOW
    if peak := replay.peak:
        when = _after(replay, peak.time)
        yield f"fullest after {when}: {plural(peak.exclusive, 'exclusive CPU')}, {plural(peak.pods, 'pod')}", DIM


def _after(replay: Replay, time: float) -> str:
    return format_seconds(time - replay.moments[0].time)


def format_seconds(seconds: float) -> str:
    """Return a duration in short.

    >>> format_seconds(5), format_seconds(3700), format_seconds(200_000)
    ('5s', '1h01m', '2d07h')
    """
    whole = int(seconds)
    if whole < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.3g}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if not hours:
        return f"{minutes}m{whole % 60:02}s"
    return f"{hours}h{minutes % 60:02}m" if not days else f"{days}d{hours % 24:02}h"


def replay_data(replay: Replay, title: str = "") -> dict[str, object]:
    """Return the replay, ready for JSON: the plan of all pods that came, with the time of each, and the course."""
    pairs = zip(replay.times, replay.plan.outcomes, strict=True)
    times = [{"time": time} for time, outcome in pairs for _ in outcome.pod.all_containers]
    placements = [time | row for time, row in zip(times, placements_data(replay.plan), strict=True)]
    course = [moment._asdict() for moment in replay.moments]
    return {"placements": placements, **plan_facts(replay.plan, title), "course": course}
