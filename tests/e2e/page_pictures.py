"""Pictures of the live page for the docs: `python -m tests.e2e.page_pictures docs/images`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.e2e.chromium import Chromium
from tests.e2e.page_server import PageServer, demo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.e2e.chromium import Tab

READY: Final = "!document.body.classList.contains('loading') && document.querySelectorAll('#activity li').length"


class Scene(NamedTuple):
    """A machine and what runs on it."""

    machine: str
    reserved: str
    sizes: Sequence[int]
    shared: int


SCENES: Final = {
    "2": Scene("cores:2", "0", [0, 1, 4], 2),
    "64": Scene("xeon-2s-64", "0,32", [6, 2, 4, 4, 8, 2, 12, 4, 30, 1], 8),
    "512": Scene(
        "sockets:2,numa:4,l3:4,cores:8,threads:2",
        "0-1,256-257",
        [16, 8, 12, 12, 32, 8, 64, 16, 4, 2, 16, 8, 24, 24, 32, 8, 64, 500, 16, 4],
        20,
    ),
}


def main(directory: Path) -> None:
    """Draw every scene in light and dark, one on a phone, one with a CPU pointed at, and one in the past."""
    with Chromium() as browser:
        for name, scene in SCENES.items():
            node = demo(scene.machine, reserved=scene.reserved, sizes=scene.sizes, shared=scene.shared)
            with PageServer(node) as server:
                for look in ("light", "dark"):
                    tab = browser.open(1280, 900, dark=look == "dark")
                    draw(tab, server, directory / f"page-{name}-{look}.png")
                if name == "64":
                    draw(browser.open(390, 844), server, directory / "page-64-phone.png")
                    moments(browser.open(1280, 900), server, directory)


def draw(tab: Tab, server: PageServer, path: Path) -> None:
    """Open the page and keep its picture."""
    tab.go(server.url)
    tab.until(READY)
    tab.until("document.getElementById('status').dataset.state === 'live'")
    tab.until("!document.querySelector('.refusal') || document.querySelector('.refusal .fixes')")
    tab.picture(path)


def moments(tab: Tab, server: PageServer, directory: Path) -> None:
    """Keep pictures of a CPU that is pointed at, and of the past."""
    draw(tab, server, directory / "page-64-light.png")
    tab.click('[data-cpu="44"]')
    tab.picture(directory / "page-64-owner.png")
    tab.key("Escape")
    tab.point("h1")
    for _ in range(6):
        tab.click("#back")
    tab.until("document.body.classList.contains('past')")
    tab.until("/ [5-9] changes since then/.test(document.getElementById('past').textContent)")
    tab.picture(directory / "page-64-past.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
