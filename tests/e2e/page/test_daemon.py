"""The page of a running daemon: a start is seen, its past too, and a restart is survived."""

from __future__ import annotations

import json
import re
from statistics import median
from typing import TYPE_CHECKING, Final

import pytest

from tests.e2e.daemon import Daemon
from tests.e2e.page.screen import text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.chromium import Tab

pytestmark = pytest.mark.slow

LAST_ASSIGNED: Final = (
    "fetch('/api/v1/history?what=assigned&newest=true&limit=1')"
    ".then(said => said.json()).then(said => said.entries[0].time)"
)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """Return a daemon for a simulated machine."""
    with Daemon("--runtime", "simulated", "--preset", "xeon-2s-64", kind="affinity") as started:
        started.groups = []  # nothing runs, so there is nothing to group
        yield started.start()


def page_of(daemon: Daemon) -> str:
    found = re.search(r"page (http://\S+/)", daemon.ready)
    assert found is not None, daemon.ready
    return found[1]


def manifest(name: str, cpus: int) -> str:
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    container = {"name": "main", "command": ["sleep", "9"], "resources": {"requests": amounts, "limits": amounts}}
    return json.dumps({"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}})


def test_daemon_shows_a_start_within_a_second_and_its_past(open_page: Callable[..., Tab], daemon: Daemon) -> None:
    tab = open_page(page_of(daemon))
    taken = []
    for name in ("first", "second", "third", "fresh"):
        tab.watch('[data-cpu="1"]', "aria-label")
        daemon.apply(manifest(name, 4))
        seen = tab.seen(f"CPU 1, exclusive, default/{name}/main")
        taken.append(seen - tab.run(LAST_ASSIGNED))
        if name != "fresh":
            daemon.delete(name)
            tab.until("document.querySelector('[data-cpu=\"1\"]').ariaLabel === 'CPU 1, shared pool'")
    assert median(taken) < 1, taken
    tab.point('[data-cpu="1"]')
    for said in ("default / fresh / main", "Since", "2 cores · 1 L3", "took whole cores"):
        assert said in text(tab, "#card")
    daemon.apply(manifest("greedy", 80))
    tab.until("document.querySelector('#refusals .fixes')")
    said = text(tab, "#refusals")
    assert "80 CPUs are not available: 59 of 64 can be exclusive" in said
    assert "would fit with" in said
    daemon.delete("fresh")
    tab.until("document.querySelector('[data-cpu=\"1\"]').ariaLabel === 'CPU 1, shared pool'")
    tab.click("#back")
    tab.click("#back")
    tab.until("document.querySelector('[data-cpu=\"1\"]').ariaLabel === 'CPU 1, exclusive, default/fresh/main'")
    assert tab.run("document.body.classList.contains('past')")


def test_page_survives_a_restart_of_the_daemon(open_page: Callable[..., Tab], daemon: Daemon) -> None:
    address = page_of(daemon)
    tab = open_page(address)
    daemon.apply(manifest("before", 2))
    tab.until("document.querySelectorAll('.cpu.exclusive').length === 2")
    daemon.kill()
    tab.until("document.getElementById('status').dataset.state === 'lost'")
    daemon.start("--listen", address.removeprefix("http://").removesuffix("/"))
    tab.until("document.getElementById('status').dataset.state === 'live'")
    daemon.apply(manifest("after", 4))
    tab.until("[...document.querySelectorAll('.cpu')].some(cpu => cpu.ariaLabel.includes('default/after/main'))")


def test_a_move_is_shown_as_a_move_with_what_it_brought(open_page: Callable[..., Tab]) -> None:
    shape = ("--runtime", "simulated", "--preset", "l3:3,cores:4", "--reserved-cpus", "0")
    with Daemon(*shape, "--policy", "dynamic", "--notice-grace", "0s", kind="affinity") as daemon:
        daemon.groups = []
        daemon.start()
        tab = open_page(page_of(daemon))
        daemon.apply(manifest("other", 2))
        daemon.apply(manifest("wide", 3))
        tab.until("document.querySelector('[data-cpu=\"5\"]').ariaLabel.includes('default/wide/main')")
        daemon.delete("other")
        tab.until("[...document.querySelectorAll('#activity .what')].some((each) => each.textContent === 'moved')")
        said = text(tab, "#activity")
        assert "CPUs 3-5 → 4-6" in said
        assert "cost 1 NUMA node, 2 L3 → 1 NUMA node, 1 L3" in said
        tab.until("document.querySelector('[data-cpu=\"6\"]').ariaLabel.includes('default/wide/main')")
