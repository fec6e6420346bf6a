"""The page of options is what the table says, and every option of pinfold's own has a page."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from pinfold.core.policies.options import OPTION_GATES, OPTIONS, OWN, Values, parse_options
from pinfold.render.pages.options import refusals

PAGES = Path(__file__).parents[4] / "docs/reference"
OPEN = {gate.name: True for gate in OPTION_GATES.values()}


@pytest.mark.parametrize("name", OWN)
def test_an_own_option_has_a_page_with_its_values(name: str) -> None:
    text = (PAGES / f"options/{name}.md").read_text()
    assert text.startswith(f"# {name}\n")
    if OWN[name].values is Values.PER_POD:
        assert f'`pinfold.dev/{name}: "true"`' in text
        assert all(f"| `{value}` |" in text for value in ("true", "per-pod", "false"))


@pytest.mark.parametrize("pair", list(combinations(OPTIONS, 2)), ids=" and ".join)
def test_a_pair_is_refused_at_the_start_exactly_where_the_matrix_says_so(pair: tuple[str, str]) -> None:
    problems = parse_options(dict.fromkeys(pair, "1"), OPEN)[1]
    assert bool(problems) == (pair in refusals()) == (pair[::-1] in refusals())
    assert all(problem.advice for problem in problems)


@pytest.mark.parametrize("pair", [pair for pair in refusals() if pair[0] in OWN], ids=" and ".join)
def test_an_option_that_pods_may_ask_for_has_the_same_conflicts(pair: tuple[str, str]) -> None:
    assert parse_options({pair[0]: "per-pod", pair[1]: "1"}, OPEN)[1]
