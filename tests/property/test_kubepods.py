"""Laws of reading pods back from a runtime: what the kubelet wrote is what we read."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from pinfold.core.pods.pod import QoS, exclusive_cpus
from pinfold.errors import ParseError
from pinfold.formats.pods.annotations import parse_annotations
from pinfold.formats.pods.runtime import (
    MAX_SHARES,
    RuntimeContainer,
    RuntimePod,
    build_pod,
    milli_of_quota,
    milli_of_shares,
    parse_parent,
)

periods = st.integers(1_000, 1_000_000)
amounts = st.integers(1, 70_000_000)
classes = st.sampled_from(list(QoS))
PARENTS = {
    QoS.GUARANTEED: "/kubepods/podu1",
    QoS.BURSTABLE: "/kubepods/burstable/podu1",
    QoS.BEST_EFFORT: "/kubepods/besteffort/podu1",
}


def written_shares(milli: int) -> int:
    """As the kubelet does."""
    return min(max(milli * 1024 // 1000, 2), MAX_SHARES)


def written_quota(milli: int, period: int) -> int:
    """As the kubelet does."""
    return max(milli * period // 1000, 1000)


@given(st.integers(3, 256_000))
def test_shares_give_the_request_back(milli: int) -> None:
    assert milli_of_shares(written_shares(milli)) == milli


@given(amounts, periods)
def test_quotas_above_the_smallest_give_the_limit_back(milli: int, period: int) -> None:
    quota = written_quota(milli, period)
    if quota > 1000:
        assert milli_of_quota(quota, period) == milli
    else:
        assert milli <= milli_of_quota(quota, period)


@given(st.integers(3, 70_000_000), periods)
@example(1000, 1000)
@example(999, 1000)
@example(999, 1001)
@example(256_000, 100_000)
@example(256_001, 1001)
def test_a_guaranteed_container_is_exclusive_exactly_when_it_asked_for_whole_cpus(milli: int, period: int) -> None:
    told = RuntimeContainer(
        "c", "s", "app", shares=written_shares(milli), quota=written_quota(milli, period), period=period
    )
    pod = build_pod(RuntimePod("s", "u1", "web", "default", "/kubepods/podu1"), [told])
    assert pod is not None
    assert exclusive_cpus(pod, pod.containers[0]) == (0 if milli % 1000 else milli // 1000)


numbers = st.none() | st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from([0, -1, 2, 1024, MAX_SHARES, 100_000])
told_containers = st.builds(
    RuntimeContainer,
    id=st.just("c"),
    pod=st.just("s"),
    name=st.sampled_from("abcd"),
    shares=numbers,
    quota=numbers,
    period=numbers,
    memory=numbers,
    attempt=st.integers(0, 3),
)


@given(classes, st.lists(told_containers, min_size=1, max_size=5))
def test_the_class_that_the_runtime_tells_counts_with_all_amounts(qos: QoS, containers: list[RuntimeContainer]) -> None:
    pod = build_pod(RuntimePod("s", "u1", "web", "default", PARENTS[qos]), containers)
    assert pod is not None
    assert pod.qos is qos
    assert {one.name for one in pod.containers} == {one.name for one in containers}
    if qos is not QoS.GUARANTEED:
        assert not any(exclusive_cpus(pod, one) for one in pod.containers)


@given(st.text(max_size=80) | st.from_regex(r"/?(a/|a-)?kubepods[-/a-z_.]*pod[a-z0-9_-]*(\.slice)?", fullmatch=True))
def test_any_parent_is_a_place_or_none(parent: str) -> None:
    place = parse_parent(parent)
    assert place is None or ("kubepods" in parent and place.uid)


keys = st.sampled_from(["cpus.", "init.", "sidecar.", "exclude", "movable", ""])


@given(st.dictionaries(st.builds("pinfold.dev/{}{}".format, keys, st.text(max_size=8)), st.text(max_size=8)))
def test_any_annotations_are_read_or_refused_in_one_line(annotations: dict[str, str]) -> None:
    try:
        parse_annotations(annotations)
    except ParseError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - either outcome is fine
