"""The list of pods: found by any word, and no name of a pod can break the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.e2e.page.screen import node, rows, text
from tests.e2e.page_server import PageServer, pod

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.e2e.chromium import Tab

pytestmark = pytest.mark.slow

HOSTILE: Final[Mapping[str, str]] = {
    "markup": "<img src=x onerror=document.title='owned'>",
    "script": "</bdi><script>document.title='owned'</script>",
    "long": "long-" + "x" * 10_000,
    "right-to-left": "evil\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe\N{RIGHT-TO-LEFT MARK}",
    "slashes": "a/b/c?d#e%2F",
    "control": "bell\a\N{LINE SEPARATOR}zero\0",
    "prototype": "__proto__",
}


def test_filter_finds_names_classes_and_cpus(open_page: Callable[..., Tab]) -> None:
    with PageServer(node()) as server:
        pods = [pod("db", 2, containers=("postgres",)), pod("web", 1, containers=("envoy",)), pod("job")]
        server.do(lambda node: [node.admit(each) for each in pods])
        tab = open_page(server)
        for words, found in (
            ("POST", ["postgres"]),
            ("shared", ["main"]),
            ("besteffort", ["main"]),
            ("33", ["postgres"]),
            ("default exclusive", ["postgres", "envoy"]),
            ("nothing-like-it", []),
        ):
            tab.run("document.getElementById('filter').value = ''; document.getElementById('filter').focus()")
            tab.write(words)
            assert rows(tab) == found, words
            assert tab.run("document.getElementById('count').textContent") == f"{len(found)} of 3 containers"
            assert tab.run("document.getElementById('no-pods').hidden") is bool(found)


def test_node_without_pods_says_so(open_page: Callable[..., Tab]) -> None:
    with PageServer(node("laptop-4")) as server:
        tab = open_page(server)
        assert text(tab, "#no-pods").startswith("No containers yet")
        assert text(tab, "#no-activity") == "Nothing yet."


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_hostile_name_is_shown_as_text(open_page: Callable[..., Tab], name: str) -> None:
    with PageServer(node()) as server:
        server.do(lambda node: node.admit(pod(name, 2, namespace=name, containers=(name,))))
        server.do(lambda node: node.admit(pod(f"{name}2", 100, containers=(name,))))
        tab = open_page(server, 390)
        tab.until("document.querySelectorAll('.cpu.exclusive').length === 2")
        tab.point('[data-cpu="1"]')
        tab.click("#pods .container")
        assert tab.run("document.title") == "node-7 · pinfold"
        assert tab.run("document.querySelectorAll('main img, main script, #card img, #card script').length") == 0
        assert tab.run("document.documentElement.scrollWidth") <= 390
        shown = str(tab.run("document.querySelector('.podname bdi').textContent"))
        seen = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in name)
        assert shown == seen or (len(shown) <= 80 and "…" in shown)
        title = str(tab.run("document.querySelector('.podname bdi').title"))
        assert title == ("" if shown == name else seen[:2000])
        assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in str(tab.run("document.body.outerHTML"))
