"""A service for the tests of the server: methods that answer, and methods that do not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from grpclib.client import UnaryUnaryMethod

from pinfold.grpc.errors import CallError, Code
from tests.unit.grpc.ends import SECONDS, Site, Wire, calling, serving

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from grpclib.client import Channel

    from pinfold.grpc.server import CallLimits, Method

SAY, LARGE, LATER, REFUSE, FAIL = (f"/test.Service/{name}" for name in ("Say", "Large", "Later", "Refuse", "Fail"))


def say(request: bytes) -> bytes:
    return request


def large(request: bytes) -> bytes:
    return bytes(int(request or b"400000"))


async def later(request: bytes) -> bytes:
    await asyncio.sleep(0)
    return request


def refuse(request: bytes) -> bytes:
    raise CallError("Refuse", Code.NOT_FOUND, request.decode())


def fail(_: bytes) -> bytes:
    raise RuntimeError("secret")


METHODS: dict[str, Method] = {SAY: say, LARGE: large, LATER: later, REFUSE: refuse, FAIL: fail}


def served(directory: Path, limits: CallLimits | None = None) -> AbstractAsyncContextManager[Site]:
    return serving(directory, METHODS, limits=limits)


async def call(channel: Channel, name: str, request: bytes = b"") -> bytes:
    answer: bytes = await UnaryUnaryMethod(channel, name, bytes, bytes)(request, timeout=SECONDS)
    return answer


async def works(site: Site) -> bool:
    async with calling(site) as channel:
        return await call(channel, SAY, b"hello") == b"hello"


async def answers(wire: Wire) -> bool:
    """Whether a call on this connection is answered well."""
    stream = wire.ask(SAY)
    await wire.send()
    return (await wire.status(stream))["grpc-status"] == "0"
