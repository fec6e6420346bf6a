from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.core.events.entries import Entry, Subject, entry_of
from pinfold.core.events.timeline import Moment, Tenure, owners_of, state_at
from pinfold.core.machine.cpuset import CPUSet
from pinfold.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Mapping

WEB, DB = "default/web/app", "default/db/main"


def state(number: int, time: float, shared: str, exclusive: Mapping[str, str] | None = None) -> Entry:
    return Entry(number, time, "state", {"shared": shared, "exclusive": dict(exclusive or {})})


def assigned(number: int, time: float, name: str, cpus: str, **fields: object) -> Entry:
    namespace, pod, container = name.split("/")
    return Entry(
        number, time, "assigned", {"namespace": namespace, "pod": pod, "container": container, "cpus": cpus, **fields}
    )


def released(number: int, time: float, name: str) -> Entry:
    namespace, pod, container = name.split("/")
    return Entry(number, time, "released", {"namespace": namespace, "pod": pod, "container": container})


STEPS = [{"what": "took core 2", "took": "2-3", "why": "2 CPUs were needed"}]
STORY = [
    state(1, 100.0, "0-7"),
    state(2, 200.0, "0-1,4-7", {WEB: "2-3"}),
    assigned(3, 200.1, WEB, "2-3", steps=STEPS),
    state(4, 300.0, "0-1,6-7", {WEB: "2-3", DB: "4-5"}),
    assigned(5, 300.1, DB, "4-5"),
    released(6, 399.9, WEB),
    state(7, 400.0, "0-3,6-7", {DB: "4-5"}),
]


@pytest.mark.parametrize(
    ("time", "shared"), [(100.0, "0-7"), (199.9, "0-7"), (200.0, "0-1,4-7"), (350.0, "0-1,6-7"), (9e9, "0-3,6-7")]
)
def test_a_state_lasts_until_the_next(time: float, shared: str) -> None:
    moment = state_at(STORY, time)
    assert (str(moment.shared), moment.known, moment.time) == (shared, True, time)


def test_before_the_first_state_nothing_is_known() -> None:
    assert state_at(STORY, 99.9) == Moment(99.9)
    assert state_at([], 1.0).data() == {"time": 1.0, "shared": "", "exclusive": {}, "known": False, "since": None}


def test_a_state_tells_who_had_which_cpus_and_since_when() -> None:
    assert state_at(STORY, 350.0).data() == {
        "time": 350.0,
        "shared": "0-1,6-7",
        "exclusive": {WEB: "2-3", DB: "4-5"},
        "known": True,
        "since": 300.0,
    }


@pytest.mark.parametrize(
    "fields",
    [{}, {"shared": "0-3"}, {"shared": "0-1", "exclusive": {WEB: "x"}}, {"shared": 7, "exclusive": {}}],
    ids=["empty", "no owners", "no list", "no text"],
)
def test_a_state_that_cannot_be_read_is_not_known(fields: Mapping[str, object]) -> None:
    entries = [state(1, 1.0, "0-3"), Entry(2, 2.0, "state", fields)]
    assert not state_at(entries, 3.0).known
    assert [tenure.pool for tenure in owners_of(entries, 2)] == ["shared", "unknown"]


def test_a_cpu_goes_from_hand_to_hand_each_with_its_reason() -> None:
    assert owners_of(STORY, 2) == [
        Tenure("shared", None, None, 200.0),
        Tenure("exclusive", WEB, 200.0, 400.0, "took core 2 (2 CPUs were needed)"),
        Tenure("shared", None, 400.0, None, f"released by {WEB}"),
    ]


def test_without_steps_the_assignment_itself_is_the_reason() -> None:
    assert owners_of(STORY, 4)[1].why == "assigned 4-5"


def test_only_the_owners_of_the_asked_time_are_told() -> None:
    assert [tenure.owner for tenure in owners_of(STORY, 2, 250.0, 250.0)] == [WEB]
    assert [tenure.owner for tenure in owners_of(STORY, 2, 400.0, 400.0)] == [None]
    assert [tenure.owner for tenure in owners_of(STORY, 2, 300.0, 500.0)] == [WEB, None]


def test_a_cpu_that_is_neither_shared_nor_given_has_no_owner() -> None:
    assert [tenure.pool for tenure in owners_of(STORY, 99)] == ["nobody"]


def test_a_cpu_that_nothing_is_known_of_has_had_no_owner() -> None:
    assert owners_of([], 0) == []
    assert owners_of([assigned(1, 1.0, WEB, "0")], 0) == []


def test_another_configuration_is_a_reason_too() -> None:
    entries = [state(1, 1.0, "0-3"), Entry(2, 2.0, "reconfigured", {}), state(3, 2.0, "0,2-3")]
    assert owners_of(entries, 1)[-1] == Tenure("nobody", None, 2.0, None, "reconfigured")


@pytest.mark.parametrize("word", ["serving", "reconfigured", "hotplug"])
def test_what_happened_before_is_not_the_reason_of_a_decision_that_has_its_own(word: str) -> None:
    before, taken = [state(1, 1.0, "0-3"), Entry(2, 2.0, word, {})], state(3, 3.0, "0-1", {WEB: "2-3"})
    admitted = [*before, taken, assigned(4, 3.1, WEB, "2-3", steps=STEPS)]
    assert owners_of(admitted, 2)[-1].why == "took core 2 (2 CPUs were needed)"
    ended = [state(0, 0.0, "0-3"), taken, Entry(4, 4.0, word, {}), state(5, 5.0, "0-3"), released(6, 5.1, WEB)]
    assert owners_of(ended, 2)[-1].why == f"released by {WEB}"


def test_a_reason_stays_when_the_former_owner_releases_other_cpus_later() -> None:
    moved = [state(1, 1.0, "0", {WEB: "1-2"}), Entry(2, 2.0, "hotplug", {}), state(3, 2.1, "0-1", {WEB: "2"})]
    later = [state(4, 9.0, "0-2"), released(5, 9.1, WEB)]
    assert owners_of([*moved, *later], 1)[-1].why == "hotplug"


def test_an_owner_that_gets_other_cpus_beside_keeps_this_one() -> None:
    entries = [state(1, 1.0, "0-1", {WEB: "2"}), state(2, 2.0, "0", {WEB: "1-2"}), state(3, 3.0, "0-1", {WEB: "2"})]
    assert owners_of(entries, 2) == [Tenure("exclusive", WEB)]
    assert [tenure.pool for tenure in owners_of(entries, 1)] == ["shared", "exclusive", "shared"]


def test_after_the_clock_was_set_back_the_later_entry_wins() -> None:
    entries = [state(1, 100.0, "0-3"), state(2, 900.0, "0-2", {WEB: "3"}), state(3, 200.0, "0-3")]
    assert str(state_at(entries, 250.0).shared) == "0-3"
    assert str(state_at(entries, 950.0).shared) == "0-3"
    assert owners_of(entries, 3) == [Tenure("shared")]


@pytest.mark.parametrize("text", ["", "/", "a/", "a/b/c/d", "/a/b"])
def test_a_name_with_missing_or_too_many_parts_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="is not a container; expected POD, POD/CONTAINER or NAMESPACE/POD, NAMESPACE"):
        Subject.parse(text)


@pytest.mark.parametrize(
    ("name", "covered"),
    [
        ("web", True),
        ("web/app", True),
        ("default/web/app", True),
        ("prod/web/app", False),
        ("web/db", False),
        ("default/web", True),
        ("prod/web", False),
    ],
)
def test_an_entry_is_about_the_pod_container_and_namespace_it_names(name: str, covered: bool) -> None:  # noqa: FBT001 - a case
    assert Subject.parse(name).covers(STORY[2]) is covered
    assert Subject.parse(name).is_owner(WEB) is covered


def test_an_entry_about_a_whole_pod_is_about_each_of_its_containers() -> None:
    assert Subject.parse("prod/web/app").covers(Entry(1, 0.0, "refused", {"pod": "web"}))


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"number": 0, "time": 1, "what": "x"},
        {"number": True, "time": 1, "what": "x"},
        {"number": 1, "time": "now", "what": "x"},
        {"number": 1, "time": float("nan"), "what": "x"},
        {"number": 1, "time": 10**400, "what": "x"},
        {"number": 1, "time": 1, "what": 7},
    ],
)
def test_data_that_is_no_entry_is_refused(data: object) -> None:
    with pytest.raises(ParseError):
        entry_of(data)


def test_cpus_of_a_moment_are_sets() -> None:
    assert state_at(STORY, 250.0).exclusive == {WEB: CPUSet.of(2, 3)}
