from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.grpc.errors import CallError, Code
from pinfold.grpc.frames import Status, format_status, frame, parse_status, request_headers
from pinfold.grpc.link import Inbox

if TYPE_CHECKING:
    from collections.abc import Iterable

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(st.sampled_from(Code), TEXTS)
def test_a_status_is_read_as_it_was_written_and_is_plain_ascii_between(code: Code, text: str) -> None:
    headers = dict(format_status(Status(code, text)))
    assert parse_status(headers) == Status(code, text)
    assert all(" " <= character <= "~" for value in headers.values() for character in value)


@pytest.mark.parametrize(
    ("seconds", "timeout"),
    [(None, None), (5.0, "5000m"), (0.0005, "0m"), (1e9, "99999999m"), (float("inf"), "99999999m")],
)
def test_the_timeout_of_a_request_has_at_most_eight_digits(seconds: float | None, timeout: str | None) -> None:
    assert dict(request_headers("/s/M", seconds)).get("grpc-timeout") == timeout


def received(pieces: Iterable[bytes], limit: int = 100) -> list[bytes]:
    async def read() -> list[bytes]:
        inbox = Inbox("/s/M", limit)
        reading = asyncio.create_task(collect(inbox))
        for piece in pieces:
            inbox.feed(piece)
            await asyncio.sleep(0)
        inbox.close()
        return await reading

    async def collect(inbox: Inbox) -> list[bytes]:
        return [message async for message in inbox.messages()]

    return asyncio.run(read())


@given(st.lists(st.binary(max_size=20), max_size=5), st.lists(st.integers(0, 100), max_size=6))
def test_messages_are_the_same_wherever_they_are_cut(messages: list[bytes], cuts: list[int]) -> None:
    data = b"".join(map(bytes, map(frame, messages)))
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert received(data[start:end] for start, end in pairwise(edges)) == messages


@given(st.binary(max_size=100))
def test_any_bytes_are_messages_or_an_error_with_a_code(data: bytes) -> None:
    found: bytes | Code
    try:
        found = b"".join(map(bytes, map(frame, received([data]))))
    except CallError as error:
        found = error.code
    assert found in {data, Code.INTERNAL, Code.UNIMPLEMENTED, Code.RESOURCE_EXHAUSTED}


def test_a_message_beyond_the_limit_is_refused_by_its_prefix() -> None:
    assert received([bytes(frame(b"x" * 100))]) == [b"x" * 100]
    with pytest.raises(CallError, match="a message of 101 bytes; 100 are allowed"):
        received([bytes(frame(b"x" * 101))[:5]])
