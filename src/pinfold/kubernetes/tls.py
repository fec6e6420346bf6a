"""TLS over a connection of asyncio, for a client that checks the server's certificate.

The standard library's ssl is imported here and only when a first connection needs it: it takes about 6 MB, and most
daemons never speak TLS. That is why asyncio's own TLS is not used: it imports ssl at once.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from pinfold.errors import RuntimeUnavailable

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType
    from typing import TypeVar

    _T = TypeVar("_T")


class Pipe(Protocol):
    """A connection that carries bytes."""

    async def read(self) -> bytes:
        """Return what came; empty at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        ...

    def close(self) -> None:
        """End the connection at once."""
        ...


@dataclass(frozen=True, slots=True)
class Trust:
    """Whom a client trusts: certificates in files, read anew for each connection, and the name the server must have."""

    files: tuple[Path, ...]
    """Those that exist count; at least one must."""
    name: str
    """The host name or IP address in the server's certificate."""

    async def secure(self, pipe: Pipe) -> Pipe:
        """Return the same connection with TLS; or raise."""
        secured = _Secured(pipe, self._context(), self.name)
        await secured.shake_hands()
        return secured

    def _context(self) -> ssl.SSLContext:
        module = _ssl()
        context: ssl.SSLContext = module.SSLContext(module.PROTOCOL_TLS_CLIENT)
        context.minimum_version = module.TLSVersion.TLSv1_2
        # A kubelet's own certificate is trusted itself; no authority has signed it.
        context.verify_flags |= module.VERIFY_X509_PARTIAL_CHAIN
        found = [file for file in self.files if file.exists()]
        if not found:
            raise RuntimeUnavailable(f"no certificate to trust: {' and '.join(map(str, self.files))} missing")
        for file in found:
            try:
                context.load_verify_locations(file)
            except OSError as error:
                raise RuntimeUnavailable(f"{file}: {error.strerror or error}") from error
        return context


class _Secured:
    """A connection with TLS: ssl encrypts in memory, the connection below carries the result."""

    def __init__(self, pipe: Pipe, context: ssl.SSLContext, name: str) -> None:
        self._pipe = pipe
        self._ssl = _ssl()
        self._incoming, self._outgoing = self._ssl.MemoryBIO(), self._ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)

    async def shake_hands(self) -> None:
        """Agree on keys, and check the server's certificate; or raise."""
        try:
            await self._try(self._object.do_handshake)
        except self._ssl.SSLCertVerificationError as error:
            raise RuntimeUnavailable(f"certificate not trusted: {error.verify_message}") from error

    async def read(self) -> bytes:
        """Return what came; empty at the end."""
        try:
            return await self._try(lambda: self._object.read(64 << 10))
        except (self._ssl.SSLZeroReturnError, self._ssl.SSLEOFError):
            return b""

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        await self._try(lambda: self._object.write(data))

    def close(self) -> None:
        """End the connection at once."""
        self._pipe.close()

    async def _try(self, work: Callable[[], _T]) -> _T:
        """Return what *work* returns; carry bytes for as long as it needs more."""
        while True:
            try:
                result = work()
            except self._ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            else:
                await self._flush()
                return result

    async def _flush(self) -> None:
        if data := self._outgoing.read():
            await self._pipe.write(data)

    async def _fill(self) -> None:
        if data := await self._pipe.read():
            self._incoming.write(data)
        else:
            self._incoming.write_eof()


def _ssl() -> ModuleType:
    """Return the module ssl, which the daemon blocks when it starts."""
    if sys.modules.get("ssl", ...) is None:
        del sys.modules["ssl"]
    return import_module("ssl")
