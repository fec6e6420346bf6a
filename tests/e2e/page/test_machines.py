"""Any machine, drawn as it is: nested as core says, told apart without colour, within its width and time."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import pytest

from pinfold.core.machine.layout import layout
from pinfold.core.machine.presets import preset, preset_names
from pinfold.core.machine.topology import Facts, Topology
from tests.e2e.page.screen import LARGE, READY, label, node, text
from tests.e2e.page_server import PageServer, demo, pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.chromium import Chromium, Tab

pytestmark = pytest.mark.slow

SIZES: Final = {"2": "cores:2", "64": "xeon-2s-64", "512": LARGE}


@pytest.mark.parametrize("machine", [*preset_names(), LARGE, "l3:0,cores:4", "l3:1,numa:2,cores:2"])
def test_boxes_nest_as_core_says(open_page: Callable[..., Tab], machine: str) -> None:
    with PageServer(node(machine)) as server:
        tab = open_page(server)
        labels = tab.run("[...document.querySelectorAll('.grid > .box')].map(box => box.getAttribute('aria-label'))")
        drawn = layout(preset(machine))
        expected = sorted(box.label for depth in range(len(drawn.levels)) for box in drawn.at(depth))
        assert sorted(labels) == expected
        cores = tab.run(
            "[...document.querySelectorAll('.cores > *')].map(core => (core.matches('.cpu') ? [core] :"
            " [...core.children]).map(cpu => Number(cpu.dataset.cpu)))"
        )
        assert sorted(map(tuple, cores)) == sorted(itertools.chain.from_iterable(box.cores for box in drawn.boxes))


def odd() -> Topology:
    """Return a machine without L3, with memory-only nodes, offline and isolated CPUs."""
    return Topology.from_groups(
        Facts(
            online=0xFF7F,
            cores=[3 << cpu for cpu in range(0, 16, 2)],
            sockets={0: 0xFFFF},
            numa_nodes={0: 0xFF, 1: 0xFF00, 2: 0, 3: 0},
            offline=0x30080,
            isolated=0xF00,
        )
    )


def test_offline_isolated_and_memory_only_are_shown(open_page: Callable[..., Tab]) -> None:
    with PageServer(node(odd())) as server:
        tab = open_page(server)
        assert label(tab, 7) == "CPU 7, offline"
        assert label(tab, 8) == "CPU 8, shared pool, isolated"
        assert "2 NUMA nodes without CPUs: 2-3" in text(tab, "#map")
        assert "Isolated" in text(tab, ".legend")
        assert "Offline" in text(tab, ".legend")


def test_pools_differ_without_colour(open_page: Callable[..., Tab]) -> None:
    with PageServer(node(odd())) as server:
        server.do(lambda node: node.admit(pod("a", 2)))
        tab = open_page(server)
        looks = tab.run(
            "[0, 2, 4, 7, 8].map(cpu => (s => [s.borderStyle, s.backgroundImage.split('(')[0], s.fontWeight,"
            " s.borderColor === 'rgba(0, 0, 0, 0)'].join(' '))"
            "(getComputedStyle(document.querySelector(`[data-cpu='${cpu}']`))))"
        )
        assert len(set(looks)) == 5, looks


def test_owners_have_different_looks_that_stay(open_page: Callable[..., Tab]) -> None:
    with PageServer(node()) as server:
        server.do(lambda node: [node.admit(pod(f"pod-{i}", 2)) for i in range(20)])
        tab = open_page(server)
        tab.until("document.querySelectorAll('.cpu.exclusive').length === 40")
        pairs = "[...document.querySelectorAll('.cpu.exclusive')].map(c => [c.ariaLabel.split(', ')[2], c.className])"
        script = f"Object.fromEntries({pairs})"
        before = tab.run(script)
        assert len(set(before.values())) == 20
        server.do(lambda node: node.release("pod-3"))
        server.do(lambda node: node.release("pod-11"))
        server.do(lambda node: node.admit(pod("newcomer", 4)))
        tab.until("document.getElementById('pods').innerText.includes('newcomer')")
        after = tab.run(script)
        assert {name: look for name, look in after.items() if name in before} == {
            name: look for name, look in before.items() if name in after
        }
        assert len(set(after.values())) == 19


@pytest.mark.parametrize("cpus", SIZES)
@pytest.mark.parametrize("width", [390, 1280])
def test_page_fits_its_width_and_numbers_their_boxes(open_page: Callable[..., Tab], cpus: str, width: int) -> None:
    with PageServer(demo(SIZES[cpus], reserved="0", sizes=[1, 2, 4, 8], shared=4)) as server:
        tab = open_page(server, width, 844)
        assert tab.run("document.querySelectorAll('.cpu').length") == int(cpus)
        assert tab.run("document.documentElement.scrollWidth") <= width
        assert (
            tab.run("[...document.querySelectorAll('.cpu')].filter(c => c.scrollWidth > c.clientWidth + 1).length") == 0
        )
        lowest = tab.run("Math.min(...[...document.querySelectorAll('.cpu')].map(cpu => cpu.clientHeight))")
        assert lowest >= (22 if width == 390 else 12)


def test_512_cpus_take_less_than_300_ms_of_scripting(chromium: Chromium) -> None:
    taken = []
    with PageServer(demo(LARGE, reserved="0-1", sizes=[16, 8, 12, 32, 8, 64, 16, 4], shared=40)) as server:
        for _ in range(3):
            tab = chromium.open()
            tab.go(server.url)
            tab.until(READY)
            tab.until("document.querySelectorAll('.cpu.exclusive').length")
            taken.append(tab.metric("ScriptDuration"))
            tab.close()
    assert max(taken) < 0.3, taken
