"""What is on the screen of a tab that shows the page, and nodes to show."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from tests.e2e.page_server import Node

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.core.machine.topology import Topology
    from tests.e2e.chromium import Tab

LARGE: Final = "sockets:2,numa:4,l3:4,cores:8,threads:2"
READY: Final = "!document.body.classList.contains('loading') && document.querySelector('#activity li, #no-activity')"


def node(
    machine: str | Topology = "xeon-2s-64",
    reserved: str = "0",
    clock: Callable[[], float] = time.time,
    **options: str,
) -> Node:
    topology = preset(machine) if isinstance(machine, str) else machine
    policy = options.pop("topology_policy", "none")
    reservation = Reservation.of(CPUSet.parse(reserved))
    return Node(topology, Config("static", options, reservation, topology_policy=policy), clock)


def label(tab: Tab, cpu: int) -> str:
    """Return what a screen reader says of a CPU."""
    return str(tab.run(f"document.querySelector('[data-cpu=\"{cpu}\"]').ariaLabel"))


def lit(tab: Tab) -> CPUSet:
    cpus = tab.run("[...document.querySelectorAll('.cpu.lit')].map(cpu => Number(cpu.dataset.cpu))")
    return CPUSet.from_cpus(cpus)


def rows(tab: Tab) -> list[str]:
    """Return the names of the containers that the list shows."""
    shown = "[...document.querySelectorAll('.container .name')].filter(name => name.offsetParent)"
    return list(tab.run(f"{shown}.map(name => name.textContent)"))


def slide(tab: Tab, value: int) -> None:
    """Move the slider, in one go: the page moves it on as time goes by."""
    slider = "document.getElementById('slider')"
    tab.run(f"{slider}.value = {value}; {slider}.dispatchEvent(new Event('input'))")


def text(tab: Tab, selector: str) -> str:
    return str(tab.run(f"document.querySelector({json.dumps(selector)}).innerText"))
