"""Changed texts end no parser in a way that its callers do not expect; `make fuzz` tries for longer."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from pinfold.errors import PinfoldError
from pinfold.node.podgroups.paths import parse_absolute
from pinfold.node.resctrl.schemata import parse_schemata
from tests.fuzz.parsers import PARSERS, hit, mutations


@pytest.mark.parametrize("name", PARSERS)
def test_changed_texts_are_read_or_refused(name: str) -> None:
    parser = PARSERS[name]
    assert all(hit(parser, seed) for seed in parser.seeds[:1])
    for text in islice(mutations(parser, random.Random(14)), 150):  # noqa: S311 - repeatable, not secret
        hit(parser, text)


@pytest.mark.parametrize("text", ["MB:0=1e9", "L3:", "L3:0", "=", "x"], ids=repr)
def test_a_file_of_the_kernel_that_is_damaged_is_refused(text: str) -> None:
    with pytest.raises(PinfoldError, match="schemata"):
        parse_schemata(text)


def test_a_path_that_no_kernel_takes_is_refused_before_it_is_split() -> None:
    with pytest.raises(PinfoldError, match="up to 4095 bytes"):
        parse_absolute("/" * 1_000_000)
