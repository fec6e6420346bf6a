"""ttrpc messages ↔ bytes: a small header, then a body that this module does not read.

    u32 length of the body · u32 stream · u8 kind · u8 flags · body          all big endian, a body has at most 4 MiB

A stream is one call: its request and its response have the same number. Knows neither sockets nor protobuf.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from pinfold.errors import ParseError

MOST_BODY: Final = 4 << 20
_HEADER: Final = struct.Struct(">IIBB")
MOST_MESSAGE: Final = _HEADER.size + MOST_BODY


class TTRPCError(ParseError):
    """Bytes that are not a ttrpc message, or a message that ttrpc cannot carry."""


class MessageKind(IntEnum):
    """The type of a message."""

    REQUEST = 1
    RESPONSE = 2
    DATA = 3


class Message(NamedTuple):
    """One message of a stream."""

    stream: int
    kind: MessageKind
    body: bytes
    flags: int = 0


def format_message(message: Message) -> bytes:
    """Return the bytes of *message*.

    >>> format_message(Message(1, MessageKind.REQUEST, b"hello")).hex(" ")
    '00 00 00 05 00 00 00 01 01 00 68 65 6c 6c 6f'
    """
    _check_length(len(message.body))
    return _HEADER.pack(len(message.body), message.stream, message.kind, message.flags) + message.body


class TTRPCDecoder:
    """Finds the messages in bytes that come in pieces of any size; keeps at most one unfinished message.

    >>> data = format_message(Message(1, MessageKind.REQUEST, b"hello"))
    >>> decoder = TTRPCDecoder()
    >>> decoder.feed(data[:12])
    []
    >>> decoder.feed(data[12:])
    [Message(stream=1, kind=<MessageKind.REQUEST: 1>, body=b'hello', flags=0)]

    After an error every later call raises it again.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._broken: TTRPCError | None = None

    @property
    def buffered(self) -> int:
        """The number of bytes of an incomplete message."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that *data* completes; raise TTRPCError at the first invalid header."""
        if self._broken is None:
            self._buffer += data
            try:
                return self._take()
            except TTRPCError as error:
                self._buffer.clear()
                self._broken = error
        raise self._broken

    def _take(self) -> list[Message]:
        found = []
        at = 0
        while len(self._buffer) - at >= _HEADER.size:
            length, stream, kind, flags = _HEADER.unpack_from(self._buffer, at)
            _check_length(length)
            begin, end = at + _HEADER.size, at + _HEADER.size + length
            known = _kind(kind)
            if end > len(self._buffer):
                break
            found.append(Message(stream, known, bytes(self._buffer[begin:end]), flags))
            at = end
        del self._buffer[:at]
        return found


def _check_length(length: int) -> None:
    if length > MOST_BODY:
        raise TTRPCError(f"a ttrpc message of {length:,} bytes; at most {MOST_BODY:,} are allowed")


def _kind(number: int) -> MessageKind:
    try:
        return MessageKind(number)
    except ValueError:
        raise TTRPCError(f"a ttrpc message of type {number}; known are 1 (request), 2 (response), 3 (data)") from None
