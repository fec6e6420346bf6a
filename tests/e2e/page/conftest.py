"""A browser, and what opens the page in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.e2e.chromium import Chromium, Tab
from tests.e2e.page.screen import READY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.page_server import PageServer

CUT_OFF: Final = "net::ERR_"
"""What the console says when a server goes away."""


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    with Chromium() as browser:
        yield browser


@pytest.fixture
def open_page(chromium: Chromium) -> Iterator[Callable[..., Tab]]:
    """Return what opens the page of a server; at the end it has logged no error, and has asked no other host."""
    tabs: list[tuple[Tab, str]] = []

    def opened(server: PageServer | str, width: int = 1280, height: int = 900, *, dark: bool = False) -> Tab:
        tab = chromium.open(width, height, dark=dark)
        address = server if isinstance(server, str) else server.url
        tabs.append((tab, address))
        tab.go(address)
        tab.until(READY)
        return tab

    yield opened
    for tab, address in tabs:
        assert [said for said in tab.complaints() if CUT_OFF not in said] == []
        assert {url for url in tab.requested() if not url.startswith(address)} <= {"about:blank"}
        tab.close()
