"""What changes is seen: at once, alone, and after the connection was lost."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.machine.summary import summary
from pinfold.core.machine.topology import Facts, Topology
from tests.e2e.page.screen import LARGE, label, node, rows, text
from tests.e2e.page_server import PageServer, demo, pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.chromium import Tab
    from tests.e2e.page_server import Node

pytestmark = pytest.mark.slow


def test_change_is_seen_within_a_second(open_page: Callable[..., Tab]) -> None:
    with PageServer(node()) as server:
        tab = open_page(server)
        taken = []
        for name in ("first", "second", "third"):
            tab.watch('[data-cpu="32"]', "aria-label")
            begun = time.time()
            server.do(lambda node, name=name: node.admit(pod(name, 1)))  # type: ignore[misc]  # a default for each turn
            taken.append(tab.seen(f"CPU 32, exclusive, default/{name}/c0") - begun)
            assert rows(tab) == ["c0"]
            begun = time.time()
            server.do(lambda node, name=name: node.release(name))  # type: ignore[misc]  # the same
            taken.append(tab.seen("CPU 32, shared pool") - begun)
            assert rows(tab) == []
        assert median(taken) < 1, taken


def test_long_history_is_followed_from_its_end(open_page: Callable[..., Tab]) -> None:
    with PageServer(node()) as server:
        server.do(lambda node: [node.tell("drift", pool="shared", found=str(i), wanted="0-63") for i in range(6000)])
        server.do(lambda node: node.admit(pod("before", 1)))
        tab = open_page(server)
        tab.until("document.getElementById('activity').innerText.includes('default/before/c0')")
        last = server.node.number
        asked = len(tab.requested())
        server.do(lambda node: node.admit(pod("fresh", 1)))
        tab.until("document.getElementById('activity').innerText.includes('default/fresh/c0')")
        (events,) = [r for r in tab.events("Network.requestWillBeSent") if r["request"]["url"].endswith("/events")]
        assert events["request"]["headers"]["last-event-id"] == str(last)
        news = [url for url in tab.requested()[asked:] if "/history?" in url]
        assert news
        assert all(f"after={last}&" in url or f"after={server.node.number}&" in url for url in news), news
        assert tab.run("document.querySelectorAll('#activity li').length") == 60


def test_more_news_than_one_answer_holds_are_followed_too(open_page: Callable[..., Tab]) -> None:
    with PageServer(node()) as server:
        tab = open_page(server)
        tab.until("document.getElementById('status').dataset.state === 'live'")

        def much(node: Node) -> None:
            for i in range(1500):
                node.tell("drift", pool="shared", found=f"look-{i}", wanted="0-63")
            node.admit(pod("fresh", 1))

        server.do(much)
        tab.until("document.getElementById('activity').innerText.includes('default/fresh/c0')")
        tab.until("document.getElementById('activity').innerText.includes('look-1499')")


def test_update_touches_only_what_changed(open_page: Callable[..., Tab]) -> None:
    with PageServer(demo(LARGE, reserved="0-1", sizes=[16, 8, 12, 32], shared=20)) as server:
        tab = open_page(server)
        tab.until("document.querySelectorAll('.cpu.exclusive').length")
        tab.run(
            "window.touched = new Set(), new MutationObserver(all => all.forEach(one => {"
            "  const at = (one.target.closest ?? one.target.parentElement.closest).call("
            "    one.target.closest ? one.target : one.target.parentElement, '.cpu, .pod');"
            "  touched.add(at?.dataset.cpu ?? at?.querySelector('.podname').innerText ?? one.target.id);"
            "})).observe(document.querySelector('main'), {subtree: true, childList: true, attributes: true})"
        )
        server.do(lambda node: node.admit(pod("late", 2, namespace="night")))
        cpus = server.do(lambda node: next(c["cpus"] for c in node.containers() if c["pod"] == "late"))
        tab.until("[...document.querySelectorAll('.pod')].some(pod => pod.innerText.includes('late'))")
        touched = set(tab.run("[...touched]"))
        assert {int(each) for each in touched if each.isdecimal()} == set(CPUSet.parse(str(cpus)))
        assert not {each for each in touched if "web-" in each or "batch-" in each}


def test_lost_connection_is_told_and_resumed(open_page: Callable[..., Tab]) -> None:
    with PageServer(node()) as server:
        tab = open_page(server)
        tab.until("document.getElementById('status').dataset.state === 'live'")
        server.down()
        tab.until("document.getElementById('status-text').textContent.startsWith('Connection lost, since ')")
        server.do(lambda node: node.admit(pod("meanwhile", 1)))
        server.up()
        tab.until("document.getElementById('status').dataset.state === 'live'")
        tab.until("document.querySelector('[data-cpu=\"32\"]').ariaLabel.includes('default/meanwhile/c0')")
        server.do(lambda node: node.admit(pod("after", 1)))
        tab.until("document.querySelector('[data-cpu=\"1\"]').ariaLabel.includes('default/after/c0')")


def test_page_opened_while_the_daemon_is_away_comes_to_life_with_it(open_page: Callable[..., Tab]) -> None:
    with PageServer(node()) as server:
        tab = open_page(server)
        server.down()
        tab.until("document.getElementById('status').dataset.state === 'lost'")
        server.node = node("laptop-4")  # another machine under the same address, whose entries count from 1
        server.do(lambda node: node.admit(pod("other", 1)))
        server.up()
        tab.until(f"document.getElementById('machine').textContent === '{summary(preset('laptop-4'))}'")
        tab.until("document.querySelectorAll('.cpu').length === 4")
        server.do(lambda node: node.admit(pod("more", 1)))
        tab.until("document.querySelectorAll('.cpu.exclusive').length === 2")


def test_cpu_that_goes_offline_is_drawn_so(open_page: Callable[..., Tab]) -> None:
    with PageServer(node("cores:4")) as server:
        tab = open_page(server)
        assert label(tab, 3) == "CPU 3, shared pool"
        left = Facts(online=0b0111, cores=[1, 2, 4], sockets={0: 7}, numa_nodes={0: 7}, offline=0b1000)
        server.node.topology = Topology.from_groups(left)
        server.do(lambda node: node.tell("hotplug", offline="3"))
        tab.until("document.querySelector('[data-cpu=\"3\"]').ariaLabel === 'CPU 3, offline'")
        assert text(tab, "#machine") == summary(Topology.from_groups(left))
