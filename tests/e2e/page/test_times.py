"""Other times: the slider, the replay, and the way back to now."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

import pytest

from pinfold.core.machine.topology import Facts, Topology
from tests.e2e.page.screen import label, node, slide, text
from tests.e2e.page_server import PageServer, demo, pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.chromium import Tab

pytestmark = pytest.mark.slow

LABELS: Final = "JSON.stringify([0, 1, 2, 3].map(cpu => document.querySelector(`[data-cpu='${cpu}']`).ariaLabel))"


def test_a_clock_that_was_set_back_draws_no_change_outside_of_the_slider(open_page: Callable[..., Tab]) -> None:
    history = node("laptop-4", clock=lambda: time.time() + 3600)
    history.admit(pod("early", 1))
    history.clock = time.time
    with PageServer(history) as server:
        tab = open_page(server)
        tab.until("document.querySelector('#ticks path').getAttribute('d')")
        assert tab.run("document.querySelector('#ticks path').getAttribute('d')") == "M1000 0V10"


def test_slider_replays_history_and_the_live_button_returns(open_page: Callable[..., Tab]) -> None:
    now = time.time()
    history = node("laptop-4", clock=lambda: now - 600)
    for moment, change in (
        (now - 600, lambda: history.admit(pod("first", 1))),
        (now - 400, lambda: history.admit(pod("second", 1))),
        (now - 200, lambda: history.release("first")),
    ):
        history.clock = lambda moment=moment: moment  # type: ignore[misc]  # a default for each turn
        change()
    history.clock = time.time
    with PageServer(history) as server:
        tab = open_page(server)
        assert label(tab, 2) == "CPU 2, shared pool"
        for past, expected in ((500, "CPU 2, exclusive, default/first/c0"), (100, "CPU 2, shared pool")):
            value = round((600 - past) / 600 * 10_000)
            slide(tab, value)
            tab.until("document.body.classList.contains('past')")
            tab.until(f"document.querySelector('[data-cpu=\"2\"]').ariaLabel === {json.dumps(expected)}")
        # Each step back goes to a change; what comes meanwhile does not disturb the past.
        tab.run("document.getElementById('slider').focus()")
        tab.key("ArrowLeft")
        tab.key("ArrowLeft")
        tab.until("document.querySelector('[data-cpu=\"2\"]').ariaLabel === 'CPU 2, exclusive, default/first/c0'")
        assert label(tab, 1) == "CPU 1, exclusive, default/second/c0"
        assert "ago" in str(tab.run("document.getElementById('slider').getAttribute('aria-valuetext')"))
        tab.point('[data-cpu="2"]')
        assert "3 min 20 s" in text(tab, "#card")
        server.do(lambda node: node.admit(pod("third", 1)))
        tab.until("[...document.querySelectorAll('#activity .later')].some(row => row.innerText.includes('third'))")
        assert label(tab, 2) == "CPU 2, exclusive, default/first/c0"
        tab.click("#live")
        tab.until("document.querySelector('[data-cpu=\"2\"]').ariaLabel === 'CPU 2, exclusive, default/third/c0'")
        assert not tab.run("document.body.classList.contains('past')")


def without(offline: int) -> Topology:
    """Return a machine of four cores, one of which is offline."""
    rest = [cpu for cpu in range(4) if cpu != offline]
    online = sum(1 << cpu for cpu in rest)
    cores = [1 << cpu for cpu in rest]
    return Topology.from_groups(
        Facts(online=online, cores=cores, sockets={0: online}, numa_nodes={0: online}, offline=1 << offline)
    )


def test_past_has_the_cpus_that_were_reserved_and_offline_then(open_page: Callable[..., Tab]) -> None:
    now = time.time()
    history = node("cores:4", clock=lambda: now - 600)
    history.admit(pod("early", 1))
    for moment, offline, reserved in ((now - 400, 3, "0"), (now - 200, 2, "0,3")):
        history.clock = lambda moment=moment: moment  # type: ignore[misc]  # a default for each turn
        history.change(without(offline), reserved)
    history.clock = time.time
    with PageServer(history) as server:
        tab = open_page(server)
        tab.click("#back")
        tab.until("document.body.classList.contains('past')")
        for second, third in (("offline", "reserved"), ("shared pool", "offline"), ("shared pool", "shared pool")):
            labels = ["reserved", "exclusive, default/early/c0", second, third]
            expected = [f"CPU {cpu}, {words}" for cpu, words in enumerate(labels)]
            tab.until(f"{LABELS} === {json.dumps(json.dumps(expected, separators=(',', ':')))}")
            tab.click("#back")
        tab.click("#live")
        tab.until("!document.body.classList.contains('past')")
        assert (label(tab, 2), label(tab, 3)) == ("CPU 2, offline", "CPU 3, reserved")


def test_replay_goes_through_all_changes_and_ends_live(open_page: Callable[..., Tab]) -> None:
    with PageServer(demo("laptop-4", reserved="0", sizes=[1], shared=0)) as server:
        tab = open_page(server)
        tab.click("#play")
        tab.until("document.body.classList.contains('past')")
        tab.until("!document.body.classList.contains('past')")
        assert tab.run("document.getElementById('live').getAttribute('aria-pressed')") == "true"


def test_time_before_the_history_is_said_to_be_unknown(open_page: Callable[..., Tab]) -> None:
    with PageServer(node("laptop-4")) as server:
        tab = open_page(server)
        slide(tab, 0)
        tab.until("document.getElementById('past').textContent.startsWith('No history for this time')")
