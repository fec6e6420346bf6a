"""What a runtime tells in any order comes to the same as what it tells at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.pods import ContainerRef, PodUID
from pinfold.errors import PinfoldError
from pinfold.formats.kubepods import Phase, RuntimeContainer, RuntimePod
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
        {pod_id: (roster.pod(pod_id), roster.is_guaranteed(pod_id), roster.refs(pod_id)) for pod_id in roster.pods},
        {container_id: roster.ref(container_id) for container_id in roster.containers},
        {uid: roster.find_pods(uid) for uid in CLASSES},
        {ref: roster.find(ref) for ref in refs},
    )


@given(st.lists(steps, max_size=25))
def test_whatever_comes_and_goes_the_rest_is_as_if_told_at_once(happened: list[tuple[str, object]]) -> None:
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
    assert (roster.wants_local_memory("s1"), roster.wants_local_memory("s2")) == (False, True)


def test_a_pod_with_a_wrong_annotation_shares_and_says_so_when_asked() -> None:
    roster = Roster()
    roster.replace_all([pod_of(1, movable="no")], [container_of(1)])
    assert roster.pod("s1") is not None
    with pytest.raises(PinfoldError, match="neither true nor false"):
        roster.check("s1")


def test_an_excluded_pod_is_none_of_ours() -> None:
    roster = Roster()
    roster.replace_all([pod_of(1, exclude="true")], [container_of(1)])
    assert (roster.pod("s1"), roster.ref("c1"), list(roster.live())) == (None, None, [])
