"""The colours of owners can be told from each other, by colour-blind readers too, and text on them can be read."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Final

import pytest

import pinfold.serve
from pinfold.render.machine.svgstyle import OWNERS

Triple = tuple[float, float, float]
Matrix = tuple[Triple, Triple, Triple]

LIGHT, DARK = (tuple(colours) for colours in zip(*OWNERS, strict=True))
INK: Final = {LIGHT: "#1f2933", DARK: "#e4e9ee"}
READABLE: Final = 4.5
"""The contrast that WCAG asks of text."""
APART: Final = 0.04
"""In OKLab: twice what can just be seen side by side."""
# How colours look without the cones for green and for red: Machado, Oliveira and Fernandes (2009), on linear RGB.
SIGHTS: Final[dict[str, Matrix]] = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no green": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "no red": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
}
TO_CONES: Final[Matrix] = ((0.4122, 0.5363, 0.0514), (0.2119, 0.6807, 0.1074), (0.0883, 0.2817, 0.6300))
TO_LAB: Final[Matrix] = ((0.2105, 0.7936, -0.0041), (1.9780, -2.4286, 0.4506), (0.0259, 0.7828, -0.8087))


def linear(colour: str) -> Triple:
    shares = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return red, green, blue


def times(matrix: Matrix, found: Triple) -> Triple:
    first, second, third = (sum(a * b for a, b in zip(row, found, strict=True)) for row in matrix)
    return first, second, third


def seen(colour: str, sight: Matrix) -> Triple:
    """Return a colour in OKLab, where distances are differences as people see them."""
    red, green, blue = (min(max(share, 0.0), 1.0) for share in times(sight, linear(colour)))
    long, middle, short = (cone ** (1 / 3) for cone in times(TO_CONES, (red, green, blue)))
    return times(TO_LAB, (long, middle, short))


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_any_two_owners_look_different(colours: tuple[str, ...], sight: str) -> None:
    for one, other in combinations(colours, 2):
        pair = zip(seen(one, SIGHTS[sight]), seen(other, SIGHTS[sight]), strict=True)
        assert sum((a - b) ** 2 for a, b in pair) ** 0.5 > APART, (one, other)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_on_an_owners_colour_can_be_read(colours: tuple[str, ...]) -> None:
    for colour in colours:
        dim, bright = sorted((luminance(colour), luminance(INK[colours])))
        assert (bright + 0.05) / (dim + 0.05) > READABLE, colour


def test_the_page_has_the_same_colours_as_the_pictures() -> None:
    style = Path(pinfold.serve.__file__).with_name("web").joinpath("map.css").read_text()
    found = re.findall(r"\.hue(\d+) \{ --fill: light-dark\((#\w+), (#\w+)\)", style)
    assert found == [(str(number), *pair) for number, pair in enumerate(OWNERS)]
