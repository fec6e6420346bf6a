"""Who has which CPU, since when and why; who got none, and what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.page.screen import label, lit, node, text
from tests.e2e.page_server import PageServer, pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.chromium import Tab

pytestmark = pytest.mark.slow


def test_owner_since_and_why_are_shown_for_the_cpu_under_the_pointer(open_page: Callable[..., Tab]) -> None:
    with PageServer(node()) as server:
        server.do(lambda node: node.admit(pod("matcher", 4, namespace="trading", containers=("engine",))))
        tab = open_page(server)
        assert label(tab, 1) == "CPU 1, exclusive, trading/matcher/engine"
        assert label(tab, 0) == "CPU 0, reserved"
        assert label(tab, 9) == "CPU 9, shared pool"
        tab.point('[data-cpu="1"]')
        card = text(tab, "#card")
        for said in ("CPU 1", "trading / matcher / engine", "Since", "1-2, 33-34", "Why", "Socket 0"):
            assert said in card, card
        assert str(lit(tab)) == "1-2,33-34"
        assert text(tab, ".container.lit").startswith("engine")


def test_the_use_of_the_cache_and_of_the_memory_bandwidth_is_shown_where_it_is_counted(
    open_page: Callable[..., Tab],
) -> None:
    with PageServer(node()) as server:
        server.do(lambda node: [node.admit(pod("a", 2, containers=("engine",))), node.admit(pod("b", 2))])
        server.do(lambda node: node.cache.update(engine={"occupancy": 12 << 20, "traffic": 5 << 30}))
        tab = open_page(server)
        tab.point('[data-cpu="1"]')
        assert "12 MiB of L3 · memory 5.0 GiB so far" in text(tab, "#card")
        tab.point('[data-cpu="2"]')
        assert "of L3" not in text(tab, "#card")
        tab.click('[data-cpu="1"]')
        server.do(lambda node: node.cache.update(engine={"occupancy": 3 << 20, "traffic": 50 << 30}))
        tab.until('document.querySelector("#pods .more").textContent.includes("3.0 MiB of L3 · memory")')
        server.do(lambda node: node.cache.update(engine={"occupancy": 3 << 20, "traffic": 60 << 30}))
        tab.until('/[GM]iB\\/s/.test(document.querySelector("#pods .more").textContent)')


def test_cpus_of_the_container_under_the_pointer_light_up(open_page: Callable[..., Tab]) -> None:
    with PageServer(node()) as server:
        server.do(lambda node: [node.admit(pod("a", 2)), node.admit(pod("b", 2)), node.admit(pod("c"))])
        tab = open_page(server)
        tab.point("#pods .pod:nth-child(2) .container")
        assert str(lit(tab)) == "2,34"
        tab.point("#pods .pod:nth-child(3) .container")
        assert str(lit(tab)) == server.node.pools()["shared"]
        tab.point("h1")
        assert not lit(tab)


def test_picked_container_stays_lit_and_tells_how_its_cpus_were_chosen(open_page: Callable[..., Tab]) -> None:
    with PageServer(node()) as server:
        server.do(lambda node: node.admit(pod("a", 2)))
        tab = open_page(server)
        tab.click('[data-cpu="1"]')
        tab.point("h1")
        assert str(lit(tab)) == "1,33"
        assert "took whole cores" in text(tab, "#pods .more")
        tab.key("Escape")
        assert not lit(tab)


def test_pools_count_their_cpus(open_page: Callable[..., Tab]) -> None:
    with PageServer(node("laptop-4")) as server:
        server.do(lambda node: node.admit(pod("a", 1)))
        tab = open_page(server)
        said = text(tab, ".pools").replace("\t", " ").split("\n")
        assert [line.strip() for line in said] == ["Exclusive 1 2", "Assignable 2 1, 3", "Reserved 1 0"]


def test_refusal_is_shown_with_reason_message_and_nearest_fix(open_page: Callable[..., Tab]) -> None:
    with PageServer(node("laptop-4")) as server:
        tab = open_page(server)
        assert tab.run("document.getElementById('refusals').hidden")
        server.do(lambda node: node.admit(pod("greedy", 8)))
        tab.until("document.querySelector('#refusals .fixes')")
        said = text(tab, "#refusals")
        for part in (
            "default/greedy/c0",
            "UnexpectedAdmissionError",
            "requested=8, available=3",
            "8 CPUs are not available: 3 of 4 can be exclusive (CPUs 1-3; CPU 0 is reserved)",
            "would fit with 3 CPUs",
        ):
            assert part in said, said


def test_refusal_that_nothing_helps_is_explained_too(open_page: Callable[..., Tab]) -> None:
    with PageServer(node("cores:2")) as server:
        tab = open_page(server)
        server.do(lambda node: [node.admit(pod("a", 1)), node.admit(pod("greedy", 2))])
        tab.until("document.querySelector('#refusals .fixes')")
        said = text(tab, "#refusals")
        assert "2 CPUs are not available: none of 2 can be exclusive" in said
        assert "no single change is enough" in said
        assert "What would help" not in said
