"""Accessible: by keyboard, for screen readers, in light and dark, and nothing runs that is not ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.page.screen import READY, node, text
from tests.e2e.page_server import PageServer, demo, pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.chromium import Tab

pytestmark = pytest.mark.slow


def test_everything_is_reached_by_keyboard(open_page: Callable[..., Tab]) -> None:
    with PageServer(node()) as server:
        server.do(lambda node: [node.admit(pod("a", 2)), node.admit(pod("b", 2))])
        tab = open_page(server)
        tab.until("document.querySelectorAll('#activity li').length === 2")
        expected = ["skip", "skip", "copy", "theme", "back", "play", "slider", "range", "live"]
        expected += ["cpu", "filter", "container", "entry", "entry"]
        reached = []
        for _ in expected:
            tab.key("Tab")
            reached.append(tab.run("(a => a.id || a.className.split(' ')[0])(document.activeElement)"))
            assert tab.run("getComputedStyle(document.activeElement).outlineStyle") != "none", reached[-1]
        assert reached == expected


def test_arrow_keys_move_over_the_machine(open_page: Callable[..., Tab]) -> None:
    with PageServer(node()) as server:
        server.do(lambda node: node.admit(pod("a", 2)))
        tab = open_page(server)
        tab.run("document.querySelector('.cpu[tabindex=\"0\"]').focus()")
        assert tab.run("document.activeElement.dataset.cpu") == "0"
        seen = []
        for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "End", "Home"):
            tab.key(key)
            seen.append(tab.run("document.activeElement.dataset.cpu"))
        assert seen == ["1", "33", "32", "0", "63", "0"]
        assert tab.run("document.querySelectorAll('.cpu[tabindex=\"0\"]').length") == 1
        tab.key("ArrowRight")
        assert "default / a / c0" in text(tab, "#card")
        assert tab.run("document.activeElement.getAttribute('aria-describedby')") == "card"
        tab.key("Enter")
        assert "took whole cores" in text(tab, "#pods .more")


@pytest.mark.parametrize("where", ["#theme", "#slider", "#range", ".cpu", ".container", "#live"])
def test_slash_leads_to_the_filter_from_everywhere(open_page: Callable[..., Tab], where: str) -> None:
    with PageServer(node()) as server:
        server.do(lambda node: node.admit(pod("a", 2)))
        tab = open_page(server)
        tab.until("document.querySelector('.container')")
        tab.run(f"document.querySelector({where!r}).focus()")
        tab.key("/")
        assert tab.run("document.activeElement.id") == "filter"
        assert tab.run("document.getElementById('filter').value") == ""


def test_every_control_has_a_name(open_page: Callable[..., Tab]) -> None:
    with PageServer(demo("xeon-2s-64", reserved="0", sizes=[4, 2, 80], shared=4)) as server:
        tab = open_page(server)
        found = tab.call("Accessibility.getFullAXTree")["nodes"]
        roles = {"button", "slider", "combobox", "searchbox", "link", "group"}
        named = [each for each in found if each.get("role", {}).get("value") in roles and not each.get("ignored")]
        assert len(named) > 64
        assert [each["role"]["value"] for each in named if not each.get("name", {}).get("value")] == []


def test_light_and_dark_follow_the_system_and_the_switch(open_page: Callable[..., Tab]) -> None:
    with PageServer(node("laptop-4")) as server:
        tab = open_page(server, dark=True)
        script = "getComputedStyle(document.body).backgroundColor"
        dark = tab.run(script)
        tab.click("#theme")
        light = tab.run(script)
        assert (dark, light) == ("rgb(11, 16, 21)", "rgb(246, 248, 250)")
        tab.go(server.url)
        tab.until(READY)
        assert tab.run(script) == light


def test_browser_runs_nothing_that_is_not_ours(open_page: Callable[..., Tab]) -> None:
    with PageServer(node("laptop-4")) as server:
        tab = open_page(server)
        headers = next(got["response"]["headers"] for got in tab.events("Network.responseReceived"))
        policy = {name.lower(): value for name, value in headers.items()}["content-security-policy"]
        assert "unsafe" not in policy
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
