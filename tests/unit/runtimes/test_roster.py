"""What a runtime tells in any order comes to the same as what it tells at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.pods.pod import Amounts, Container, ContainerRef, Pod, PodUID, Resources
from pinfold.formats.pods.runtime import Phase, RuntimeContainer, RuntimePod
from pinfold.runtimes.roster import Roster

CLASSES = {"u1": "", "u2": "/burstable", "u3": ""}


def pod_of(number: int, uid: str = "u1", **annotations: str) -> RuntimePod:
    given_ = {f"pinfold.dev/{name}": value for name, value in annotations.items()}
    return RuntimePod(f"s{number}", uid, "web", "default", f"/kubepods{CLASSES[uid]}/pod{uid}", annotations=given_)


def container_of(number: int, pod: int = 1, name: str = "app", phase: Phase = Phase.RUNNING) -> RuntimeContainer:
    return RuntimeContainer(f"c{number}", f"s{pod}", name, phase, shares=1024, quota=100_000, period=100_000)


pods = st.builds(pod_of, st.integers(1, 4), st.sampled_from(sorted(CLASSES)))
containers = st.builds(
    container_of, st.integers(1, 5), st.integers(1, 4), st.sampled_from(["app", "log"]), st.sampled_from(Phase)
)
steps = st.one_of(
    st.tuples(st.just("know_pod"), pods),
    st.tuples(st.just("know"), containers),
    st.tuples(st.just("forget"), st.integers(1, 5).map("c{}".format)),
    st.tuples(st.just("forget_pod"), st.integers(1, 4).map("s{}".format)),
)


def told(roster: Roster) -> object:
    """Return all that a Roster can say."""
    refs = [ContainerRef(PodUID(uid), name) for uid in CLASSES for name in ("app", "log")]
    return (
        sorted(roster.live()),
        {pod_id: (roster.of(pod_id), roster.refs(pod_id)) for pod_id in roster.pods},
        {container_id: roster.ref(container_id) for container_id in roster.containers},
        {uid: roster.find_pods(uid) for uid in CLASSES},
        {ref: roster.find(ref) for ref in refs},
    )


@given(st.lists(steps, max_size=25))
def test_after_any_containers_come_and_go_the_rest_is_as_if_told_at_once(happened: list[tuple[str, object]]) -> None:
    roster = Roster()
    for method, about in happened:
        getattr(roster, method)(about)
        told(roster)  # so that something is remembered that must be forgotten again
    anew = Roster()
    anew.replace_all(roster.pods.values(), roster.containers.values())
    assert told(roster) == told(anew)


def test_a_container_is_found_by_its_last_start_and_only_while_it_lives() -> None:
    roster = Roster()
    roster.replace_all([pod_of(1)], [container_of(1, phase=Phase.STOPPED), container_of(2)._replace(attempt=1)])
    app = ContainerRef(PodUID("u1"), "app")
    found = roster.find(app)
    assert found is not None
    assert found.id == "c2"
    roster.know(found._replace(phase=Phase.STOPPED))
    assert roster.find(app) is None
    assert list(roster.live()) == []


def test_a_pod_whose_sandbox_is_replaced_is_known_by_both_until_one_goes() -> None:
    roster = Roster()
    roster.know_pod(pod_of(1))
    roster.know_pod(pod_of(2))
    assert roster.find_pods("u1") == ["s1", "s2"]
    roster.forget_pod("s1")
    assert roster.find_pods("u1") == ["s2"]


def test_local_memory_is_for_those_who_ask() -> None:
    roster = Roster()
    roster.replace_all([pod_of(1), pod_of(2, "u2")._replace(annotations={"pinfold.dev/local-memory": "true"})], [])
    assert [roster.of(pod_id).local_memory for pod_id in ("s1", "s2")] == [False, True]


@pytest.mark.parametrize(("setting", "expected"), [(False, [False, True, False]), (True, [True, True, False])])
@pytest.mark.parametrize("is_whole", [False, True], ids=["of a runtime", "of this host"])
def test_local_memory_for_all_can_be_refused_by_annotation(
    *,
    setting: bool,
    expected: list[bool],
    is_whole: bool,
) -> None:
    said: list[dict[str, str]] = [{}, {"pinfold.dev/local-memory": "true"}, {"pinfold.dev/local-memory": "false"}]
    roster = Roster(local_memory=setting)
    for number, annotated in enumerate(said):
        spec = Pod(PodUID("u1"), "p1", annotations=annotated, containers=(Container("app"),)) if is_whole else None
        roster.know_pod(pod_of(number)._replace(annotations=annotated, spec=spec))
    assert [roster.of(f"s{number}").local_memory for number in range(3)] == expected


def test_a_pod_of_this_host_says_its_cache_class_and_whether_it_moves_by_annotation() -> None:
    roster, annotations = Roster(), {"pinfold.dev/cache-class": "gold", "pinfold.dev/movable": "false"}
    spec = Pod(PodUID("u1"), "p1", annotations=annotations, containers=(Container("app"),))
    roster.know_pod(pod_of(1)._replace(spec=spec))
    known = roster.of("s1")
    assert (known.cache_class, known.movable, known.local_memory) == ("gold", False, False)


def test_a_pod_with_a_wrong_annotation_shares_and_says_so_when_asked() -> None:
    roster = Roster()
    roster.replace_all([pod_of(1, movable="no")], [container_of(1)])
    assert roster.of("s1").pod is not None
    assert "neither true nor false" in str(roster.of("s1").wrong)


def whole(*names: str, init: tuple[str, ...] = ()) -> Pod:
    two = Resources(Amounts(1000, 1), Amounts(1000, 1))
    return Pod(
        PodUID("u1"),
        "web",
        init=tuple(Container(name, two) for name in init),
        containers=tuple(Container(name, two) for name in names),
    )


def test_of_a_pod_that_only_the_runtime_knows_one_container_at_a_time_is_due() -> None:
    roster = Roster()
    roster.replace_all([pod_of(1)], [container_of(1)])
    assert (roster.of("s1").whole, roster.due("s1", "app")) == (False, ["app"])


def test_of_a_pod_that_is_known_whole_all_containers_are_due_when_the_first_comes() -> None:
    roster = Roster(lambda _pod: whole("app", "log", init=("setup",)))
    roster.replace_all([pod_of(1)], [container_of(1, name="setup")])
    assert (roster.of("s1").whole, roster.due("s1", "setup")) == (True, None)


def test_an_init_container_that_has_done_its_work_is_not_due_again() -> None:
    roster = Roster(lambda _pod: whole("app", init=("setup",)))
    roster.replace_all([pod_of(1)], [container_of(1, name="setup", phase=Phase.STOPPED), container_of(2)])
    assert roster.due("s1", "app") == ["app"]
    assert roster.due("s1", "setup") == ["app", "setup"]
    assert [container.name for container in roster.going_on("s1").all_containers] == ["app"]


def test_a_pod_that_lacks_a_container_that_has_come_is_not_known_whole() -> None:
    roster = Roster(lambda _pod: whole("app"))
    roster.replace_all([pod_of(1)], [container_of(1), container_of(2, name="debug")])
    assert (roster.of("s1").whole, roster.due("s1", "debug")) == (False, ["debug"])


def test_an_excluded_pod_is_none_of_ours() -> None:
    roster = Roster()
    roster.replace_all([pod_of(1, exclude="true")], [container_of(1)])
    assert (roster.of("s1").pod, roster.ref("c1"), list(roster.live())) == (None, None, [])
