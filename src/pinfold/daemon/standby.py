"""Standing by: another daemon has the state directory, and this one takes over as soon as that one has ended.

So an update has no gap but the take-over itself: a DaemonSet with maxSurge starts the next pod, waits until it is
ready, and only then ends the old one. Until its turn this daemon answers probes, and touches nothing.
"""

from __future__ import annotations

import asyncio
import importlib
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pinfold.daemon.directory import is_held
from pinfold.daemon.views import gate_of, open_listener
from pinfold.serve.http.limits import REMOTE
from pinfold.serve.http.messages import HTTPError, Response
from pinfold.serve.http.server import HTTPServer
from pinfold.settings.addresses import Address
from pinfold.settings.table import RuntimeName

if TYPE_CHECKING:
    from pinfold.serve.http.messages import Request
    from pinfold.settings.settings import Settings

_PAUSE: Final = 0.02
_PROBES: Final = frozenset({("healthz",), ("readyz",)})
_SOON_NEEDED: Final = ("pinfold.daemon.parts.pods", "pinfold.manager.sources.nri", "pinfold.runtimes.nri.answers")
"""Modules that a daemon of a Kubernetes node imports when it starts."""


async def stand_by(chosen: Settings) -> bool:
    """Return when no daemon has the state directory any more: True, or False if this one was told to stop."""
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    server = await _answer_probes(chosen)
    if chosen.runtime in {RuntimeName.NRI, RuntimeName.CRI}:
        for name in _SOON_NEEDED:
            importlib.import_module(name)
    try:
        while is_held(chosen.state_dir) and not told.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(told.wait(), _PAUSE)
    finally:
        if server is not None:
            await server.close()
    return not told.is_set()


async def _answer_probes(chosen: Settings) -> HTTPServer | None:
    listener = open_listener(chosen.views, lambda _warning: None)
    if listener is None:
        return None
    gate = gate_of(chosen.views, Address(*listener.getsockname()[:2]))
    server = HTTPServer(_answer, limits=REMOTE, gate=gate)
    await server.start(listener)
    return server


async def _answer(request: Request) -> Response:
    """Answer probes: this daemon is ready to take over."""
    if request.segments in _PROBES:
        return Response(200, content=b"standing by\n", kind="text/plain; charset=utf-8")
    raise HTTPError(503, "StandingBy", "another daemon manages this node; this one takes over when that one ends")
