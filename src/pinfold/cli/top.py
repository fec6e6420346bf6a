"""`pinfold top`: the machine map with a sign and a colour for each owner, as things change."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pinfold.cli.asking.client import Client, NoDaemon, add_output, add_socket
from pinfold.cli.output.keyboard import Screen
from pinfold.cli.output.terminal import look
from pinfold.errors import excerpt
from pinfold.formats.machine.topologyjson import parse_topology_json
from pinfold.node.machine.cpuload import loads, read_cpu_times
from pinfold.render.columns import printable
from pinfold.render.machine.canvas import wrap
from pinfold.render.top import Choices, Glance, format_once, format_screen, give_signs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.node.machine.cpuload import CPUTimes

_SHORTEST, _LONGEST = 0.1, 86_400.0
_RESIZED: Final = 0.5
"""Seconds until a window of another size is drawn anew."""
_SAMPLE: Final = 0.2
"""Seconds over which the load is measured for a single look."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold top`."""
    add_socket(parser)
    parser.add_argument("--interval", type=_interval, default=1.0, metavar="SECONDS", help="how often (default 1)")
    parser.add_argument("--once", action="store_true", help="print it once and end")
    add_output(parser)


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = float("nan")
    if not _SHORTEST <= seconds <= _LONGEST:  # nor is nan
        problem = f"{excerpt(text)} is not a number of seconds from {_SHORTEST} to {_LONGEST:.0f}"
        raise argparse.ArgumentTypeError(problem)
    return seconds


def run(args: argparse.Namespace) -> int:
    """Draw until `q` or Ctrl-C; once if stdout is not a terminal."""
    watcher = Watcher(Client.of(args))
    if args.output == "json" or args.once or not sys.stdout.isatty():
        watcher.look()
        time.sleep(_SAMPLE)
        glance = watcher.look()
        print(_json(glance) if args.output == "json" else format_once(glance, look(sys.stdout)))
        return 0
    with Screen() as screen:
        _watch(watcher, screen, args.interval)
    return 0


def _json(glance: Glance) -> str:
    loads_ = {str(cpu): round(load, 3) for cpu, load in glance.loads.items()}
    return json.dumps({"node": glance.node, "containers": list(glance.rows), "loads": loads_}, indent=2)


def _watch(watcher: Watcher, screen: Screen, interval: float) -> None:
    """Draw at each interval, key and change of the window's size, until `q`."""
    choices: Choices | None = Choices()
    size, due, glance = (0, 0), 0.0, None
    problem = ""
    while choices is not None:
        now, window = time.monotonic(), shutil.get_terminal_size()
        if now >= due:
            glance, problem, due = *watcher.glance(), now + interval
        size = (window.columns, window.lines)
        lines = problem.splitlines()
        if glance is not None:
            lines, choices = format_screen(glance, choices, look(sys.stdout), size[1])
        screen.show(lines[: size[1]])
        for key in _pressed(screen, due, size):
            choices = choices and choices.press(key, max(size[1] // 2, 1))


def _pressed(screen: Screen, due: float, size: tuple[int, int]) -> list[str]:
    """Return the next keys; none if it is time to draw anyhow."""
    while (left := due - time.monotonic()) > 0:
        if keys := screen.keys(min(left, _RESIZED)):
            return keys
        if tuple(shutil.get_terminal_size()) != size:
            break
    return []


class Watcher:
    """Looks at a daemon's node again and again; an owner keeps its sign."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._signs: Mapping[str, str] = {}
        self._times: Mapping[int, CPUTimes] = {}

    def glance(self) -> tuple[Glance | None, str]:
        """Return the node, or that there is no daemon; a restarted daemon is found again."""
        try:
            return self.look(), ""
        except NoDaemon as error:
            said = "\n".join(wrap(printable(str(error)), look(sys.stdout).width))
            return None, f"no daemon; waiting\n\n{said}\n\nq quit"

    def look(self) -> Glance:
        """Return the node, or raise."""
        # The machine too is read every time: CPUs go offline and come back.
        topology = parse_topology_json(json.dumps(self._client.get("/v1/topology")))
        node, rows = self._client.get("/v1/node"), self._client.get("/v1/containers")
        before, self._times = self._times, read_cpu_times()
        self._signs = give_signs(self._signs, rows)
        glance = Glance(topology, node, rows, {}, self._signs)
        # A machine that is simulated has no load, and is not this one.
        return glance if node.get("runtime") == "simulated" else replace(glance, loads=loads(before, self._times))
