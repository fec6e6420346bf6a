"""What pods may say of their CPUs in annotations, and what is said back when it cannot be read."""

from __future__ import annotations

import pytest

from pinfold.errors import ParseError
from pinfold.formats.fields import DocumentError
from pinfold.formats.pods.annotations import NO_OVERRIDES, SHARED, Overrides, parse_annotations


def test_annotations_of_others_say_nothing() -> None:
    assert parse_annotations({"team": "a", "pinfold.dev": "x", "x.pinfold.dev/cpus.app": "9"}) is NO_OVERRIDES


def test_every_annotation_together() -> None:
    found = parse_annotations(
        {
            "pinfold.dev/cpus.app": "12",
            "pinfold.dev/cpus.log-shipper": "shared",
            "pinfold.dev/exclude": "false",
            "pinfold.dev/movable": "false",
            "pinfold.dev/local-memory": "true",
            "pinfold.dev/init.setup": "true",
            "pinfold.dev/init.app": "false",
            "pinfold.dev/sidecar.proxy": "true",
        }
    )
    assert found == Overrides(
        cpus={"app": 12, "log-shipper": SHARED},
        movable=False,
        local_memory=True,
        init=frozenset({"setup"}),
        sidecars=frozenset({"proxy"}),
    )


def test_a_pod_can_be_left_alone() -> None:
    assert parse_annotations({"pinfold.dev/exclude": "true"}).exclude


@pytest.mark.parametrize(
    "value", ["0", "-1", "+1", "1.5", "1500m", "01", "", " 2", "2\n", "two", "Shared", "٣", "65537", "9" * 5000]
)
def test_cpus_are_a_whole_number_or_shared(value: str) -> None:
    with pytest.raises(ParseError, match="neither a whole number from 1 to 65536 nor shared") as error:
        parse_annotations({"pinfold.dev/cpus.app": value})
    assert 'annotation "pinfold.dev/cpus.app": ' in str(error.value)
    assert len(str(error.value)) < 250


@pytest.mark.parametrize("key", ["exclude", "local-memory", "movable", "init.app", "sidecar.app"])
@pytest.mark.parametrize("value", ["True", "yes", "1", "", "true "])
def test_switches_are_true_or_false(key: str, value: str) -> None:
    with pytest.raises(ParseError, match="neither true nor false"):
        parse_annotations({f"pinfold.dev/{key}": value})


@pytest.mark.parametrize("key", ["", "cpu.app", "cpus", "exclude.app", "CPUS.app", "sidecars.app"])
def test_unknown_keys_are_refused_with_those_that_are_known(key: str) -> None:
    with pytest.raises(
        ParseError, match=r"exclude, local-memory, movable, cpus\.CONTAINER, init\.CONTAINER, sidecar\.CONTAINER"
    ):
        parse_annotations({f"pinfold.dev/{key}": "true"})


@pytest.mark.parametrize("name", ["", "App", "a.b", "-a", "a" * 64, "a\nb"])
def test_a_container_has_a_name_of_kubernetes(name: str) -> None:
    with pytest.raises(ParseError, match="is not a container name") as error:
        parse_annotations({f"pinfold.dev/cpus.{name}": "1"})
    assert "\n" not in str(error.value)


def test_all_problems_are_found_at_once_and_the_pod_is_named() -> None:
    with pytest.raises(DocumentError) as error:
        parse_annotations({"pinfold.dev/movable": "x", "pinfold.dev/cpus.a": "y"}, source="pod default/web")
    assert len(error.value.problems) == 2
    first = 'pod default/web: annotation "pinfold.dev/cpus.a": "y" is neither'
    assert str(error.value).startswith(first)
