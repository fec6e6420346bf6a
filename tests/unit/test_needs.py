"""A test whose need is not met is skipped, except where everything is required."""

from __future__ import annotations

import pytest

from tests.conftest import pytest_runtest_setup
from tests.needs import lacking, needs


@pytest.fixture(autouse=True)
def nothing_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "PINFOLD_REQUIRE"):
        monkeypatch.delenv(name, raising=False)


def test_without_its_need_a_test_is_skipped() -> None:
    with pytest.raises(pytest.skip.Exception, match="needs a browser"):
        lacking("a browser")


@pytest.mark.parametrize(("name", "value"), [("CI", "1"), ("CI", "true"), ("PINFOLD_REQUIRE", "all")])
def test_where_everything_is_required_a_test_without_its_need_fails(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(pytest.fail.Exception, match="needs a browser"):
        lacking("a browser")


@pytest.mark.parametrize("met", [True, False])
def test_the_mark_has_a_need_looked_at_before_the_test_runs(request: pytest.FixtureRequest, *, met: bool) -> None:
    request.node.add_marker(needs("a browser", met=met))
    if met:
        pytest_runtest_setup(request.node)
    else:
        with pytest.raises(pytest.skip.Exception, match="needs a browser"):
            pytest_runtest_setup(request.node)
