"""NRI's frames ↔ bytes: several connections share one socket.

    u32 connection · u32 length · bytes          big endian

On connection 1 the runtime calls the plugin, on connection 2 the plugin calls the runtime; each carries ttrpc messages,
which may span frames. Opens no sockets and does not interpret messages.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import ParseError
from pinfold.formats.wire import ttrpc
from pinfold.formats.wire.ttrpc import MOST_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_TO_RUNTIME: Final = 4096
"""The size of a runtime's buffer for the data of a frame; it drops a plugin that sends more."""
_HEADER: Final = struct.Struct(">II")
# The runtime does not count the header; counting it here is harmless.
_MOST_SENT: Final = LONGEST_TO_RUNTIME - _HEADER.size


class MuxError(ParseError):
    """Bytes that are not NRI frames."""


class Connection(IntEnum):
    """The connection of a frame, named after the side that serves."""

    PLUGIN = 1
    RUNTIME = 2


class MuxFrame(NamedTuple):
    """Some bytes of one connection."""

    connection: Connection
    data: bytes


def format_frames(connection: Connection, data: bytes, most: int = _MOST_SENT) -> bytes:
    """Return *data* in frames of at most *most* bytes; by default short enough for a runtime.

    >>> format_frames(Connection.RUNTIME, b"hello").hex(" ")
    '00 00 00 02 00 00 00 05 68 65 6c 6c 6f'
    >>> len(format_frames(Connection.PLUGIN, bytes(10_000)))
    10024
    """
    pieces = [data[at : at + most] for at in range(0, len(data), most)]
    return b"".join(_HEADER.pack(connection, len(piece)) + piece for piece in pieces)


class MuxDecoder:
    """Finds the frames in bytes that come in pieces of any size; keeps at most one unfinished frame.

    A received frame can be as long as a ttrpc message. After an error every later call raises it again.

    >>> decoder = MuxDecoder()
    >>> decoder.feed(bytes.fromhex("00000001 00000005 68656c"))
    []
    >>> decoder.feed(b"lo")
    [MuxFrame(connection=<Connection.PLUGIN: 1>, data=b'hello')]
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._broken: MuxError | None = None

    @property
    def buffered(self) -> int:
        """The number of bytes of an incomplete frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[MuxFrame]:
        """Return the frames that *data* completes; raise MuxError at the first invalid header."""
        if self._broken is None:
            self._buffer += data
            try:
                return self._take()
            except MuxError as error:
                self._buffer.clear()
                self._broken = error
        raise self._broken

    def _take(self) -> list[MuxFrame]:
        found = []
        at = 0
        while len(self._buffer) - at >= _HEADER.size:
            number, length = _HEADER.unpack_from(self._buffer, at)
            connection = _connection(number)
            _check_length(length)
            begin, end = at + _HEADER.size, at + _HEADER.size + length
            if end > len(self._buffer):
                break
            found.append(MuxFrame(connection, bytes(self._buffer[begin:end])))
            at = end
        del self._buffer[:at]
        return found


class Messages:
    """Finds the ttrpc messages in the bytes of one direction; *longest* is the size of the longest frame so far.

    >>> message = ttrpc.Message(1, ttrpc.MessageKind.REQUEST, b"hello")
    >>> data = format_frames(Connection.PLUGIN, ttrpc.format_message(message))
    >>> [message.body for _, message in Messages().feed(data)]
    [b'hello']
    """

    def __init__(self) -> None:
        self._frames = MuxDecoder()
        self._decoders = {connection: ttrpc.TTRPCDecoder() for connection in Connection}
        self.longest = 0

    @property
    def buffered(self) -> int:
        """The number of bytes of an incomplete frame or message."""
        return self._frames.buffered + sum(decoder.buffered for decoder in self._decoders.values())

    def feed(self, data: bytes) -> Iterator[tuple[Connection, ttrpc.Message]]:
        """Yield the messages that *data* completes; raise a ParseError at the first invalid bytes."""
        for frame in self._frames.feed(data):
            self.longest = max(self.longest, len(frame.data))
            for message in self._decoders[frame.connection].feed(frame.data):
                yield frame.connection, message


def _connection(number: int) -> Connection:
    try:
        return Connection(number)
    except ValueError:
        raise MuxError(f"an NRI frame of connection {number}; known are 1 (plugin) and 2 (runtime)") from None


def _check_length(length: int) -> None:
    if length > MOST_MESSAGE:
        raise MuxError(f"an NRI frame of {length:,} bytes; at most {MOST_MESSAGE:,} are allowed")
