"""The card of a CPU, the colours of owners, and what can be copied."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from tests.e2e.page.screen import LARGE, lit, node, text
from tests.e2e.page_server import Node, PageServer, pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.chromium import Tab

pytestmark = pytest.mark.slow
IN_VIEW = """(() => {
  const at = document.getElementById("card").getBoundingClientRect();
  return !document.getElementById("card").hidden && at.left >= 0 && at.top >= 0
    && at.right <= innerWidth && at.bottom <= innerHeight;
})()"""
BESIDE = """(cpu => {
  const [card, at] = [document.getElementById("card"), document.querySelector(`[data-cpu="${cpu}"]`)].map(
    (each) => each.getBoundingClientRect());
  const away = Math.max(at.left - card.right, card.left - at.right, at.top - card.bottom, card.top - at.bottom);
  return away;
})"""


def test_the_host_is_in_the_title_and_in_the_header(open_page: Callable[..., Tab]) -> None:
    with PageServer(node("laptop-4")) as server:
        tab = open_page(server)
        assert tab.run("document.title") == "node-7 · pinfold"
        assert text(tab, "header .brand").split() == ["pinfold", "node-7"]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("machine", ["laptop-4", "xeon-2s-64", LARGE])
def test_a_click_opens_the_card_beside_its_cpu_and_in_view(
    open_page: Callable[..., Tab], machine: str, width: int
) -> None:
    with PageServer(node(machine)) as server:
        server.do(lambda node: node.admit(pod("a", 2)))
        tab = open_page(server, width, 700)
        last = len(server.node.topology.online) - 1
        for cpu in (0, last // 2, last):
            tab.run(f"document.querySelector('[data-cpu=\"{cpu}\"]').scrollIntoView({{block: 'nearest'}})")
            tab.click(f'[data-cpu="{cpu}"]')
            assert text(tab, "#card strong") == f"CPU {cpu}"
            assert tab.run(IN_VIEW) is True
            assert tab.run(f"{BESIDE}({cpu})") <= 12
            tab.key("Escape")


def test_the_card_stays_until_it_is_closed(open_page: Callable[..., Tab]) -> None:
    hidden = "document.getElementById('card').hidden"
    with PageServer(node()) as server:
        server.do(lambda node: node.admit(pod("a", 2)))
        tab = open_page(server)
        for close in ("#card .close", "h1", '[data-cpu="1"]'):
            tab.click('[data-cpu="1"]')
            tab.point("h1")
            assert not tab.run(hidden)
            assert "pinfold explain default/a/c0" in text(tab, "#card code")
            tab.click(close)
            tab.point("h1")
            assert tab.run(hidden), close
        tab.click('[data-cpu="1"]')
        tab.key("Escape")
        assert tab.run(hidden)
        assert not lit(tab)
        tab.click('[data-cpu="9"]')
        assert "pinfold history --cpu 9" in text(tab, "#card code")


def test_the_filter_lights_up_the_map(open_page: Callable[..., Tab]) -> None:
    with PageServer(node()) as server:
        server.do(lambda node: [node.admit(pod("db", 2)), node.admit(pod("web", 4)), node.admit(pod("job"))])
        tab = open_page(server)
        tab.key("/")
        tab.write("db")
        assert str(lit(tab)) == "1,33"
        tab.run("document.getElementById('filter').value = ''")
        tab.write("shared")
        assert str(lit(tab)) == server.node.pools()["shared"]
        tab.key("Escape")
        assert not lit(tab)


def test_sixteen_owners_have_sixteen_colours_and_neighbours_never_look_alike(open_page: Callable[..., Tab]) -> None:
    looks = """[...document.querySelectorAll('.cpu.exclusive')].map((cpu) => {
      const style = getComputedStyle(cpu);
      const owner = cpu.getAttribute('aria-label').split(', ')[2];
      return [owner, `${style.backgroundColor} ${style.backgroundImage}`, style.backgroundColor];
    })"""
    with PageServer(node(LARGE)) as server:
        server.do(lambda node: [node.admit(pod(f"p{number}", 2)) for number in range(16)])
        tab = open_page(server)
        tab.until("document.querySelectorAll('.cpu.exclusive').length === 32")
        assert len({colour for _, _, colour in tab.run(looks)}) == 16
        server.do(lambda node: [node.admit(pod(f"q{number}", 2)) for number in range(100)])
        tab.until("document.querySelectorAll('.cpu.exclusive').length === 232")
        found = tab.run(looks)
        assert len({look for _, look, _ in found}) == 48
        beside = pairwise(found)
        assert not [pair for pair in beside if pair[0][0] != pair[1][0] and pair[0][1] == pair[1][1]]


def test_settings_and_commands_can_be_copied(open_page: Callable[..., Tab]) -> None:
    config = Config("static", {"full-pcpus-only": "true"}, Reservation.of(CPUSet.of(0)))
    with PageServer(Node(preset("xeon-2s-64"), config)) as server:
        server.do(lambda node: node.admit(pod("a'; reboot #", 2)))
        tab = open_page(server)
        tab.run("navigator.clipboard.writeText = async (text) => { window.taken = text; }")
        tab.click("#copy-config .copy")
        tab.until("window.taken")
        copied = str(tab.run("window.taken"))
        assert copied.startswith("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
        assert 'cpuManagerPolicy: "static"\ncpuManagerPolicyOptions:\n  full-pcpus-only: "true"\n' in copied
        assert text(tab, "#copy-config") == "Copied"
        tab.click("#pods .container")
        assert text(tab, "#pods .command code") == "pinfold explain 'default/a'\\''; reboot #/c0'"
