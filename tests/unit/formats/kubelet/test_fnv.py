"""FNV-1a: known hashes, and every way of hashing agrees with the plain loop."""

from __future__ import annotations

import pytest

from pinfold.formats.kubelet import fnv
from pinfold.formats.kubelet.fnv import OFFSET, PRIME, fnv1a

ENTRY = b'"3f1c9e0a-5b7d-4e2f-9a1b-0c2d4e6f8a1b":{"app":"12,268"},'


def plain(data: bytes) -> int:
    state = OFFSET
    for byte in data:
        state = (state ^ byte) * PRIME % 2**32
    return state


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968), (b"\xff\x00\x00\x01", 0xC48FB86D)],
)
def test_published_hashes_are_met(data: bytes, expected: int) -> None:
    assert fnv1a(data) == expected


@pytest.mark.parametrize("size", [1, 63, 64, 511, 512, 513, 575, 576, 577, 2047, 2048, 2049, 5000])
@pytest.mark.parametrize("cut", [b"", b"}", b"-", b"},"])
def test_every_size_and_cut_agrees_with_the_plain_loop(size: int, cut: bytes) -> None:
    data = (ENTRY * 100)[:size]
    assert fnv1a(data, cut) == plain(data)


def test_bytes_beyond_ascii_agree_with_the_plain_loop() -> None:
    data = bytes(range(256)) * 10
    assert fnv1a(data, b"}") == plain(data)


def test_a_piece_is_remembered_apart_for_each_cut() -> None:
    data = b"x" + b"}same" * 500
    assert fnv1a(data, b"}") == plain(data)
    assert fnv1a(data.replace(b"}", b"]"), b"]") == plain(data.replace(b"}", b"]"))


def test_more_pieces_than_can_be_remembered_are_hashed_all_the_same() -> None:
    data = b"a}" * 9000
    assert fnv1a(data, b"}") == plain(data)


def test_pieces_of_earlier_texts_are_forgotten() -> None:
    cut = b"}"
    for number in range(1000):
        text = b"".join(b"}pod-%d-%d:%s" % (number, part, ENTRY) for part in range(40))
        assert fnv1a(text, cut=cut) == plain(text)
    assert len(fnv._known[cut]) < 200  # noqa: SLF001 - no answer shows it
