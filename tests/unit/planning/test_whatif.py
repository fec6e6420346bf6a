from __future__ import annotations

from dataclasses import replace

import pytest

from pinfold.core.pods.pod import PodUID
from pinfold.planning.whatif import Scenario, UnknownPodName
from tests.property.strategies import pinned, pod_of

DB = pod_of(pinned(4), uid="db")
WEB = tuple(pod_of(pinned(2), uid=f"web-{i}") for i in range(3))


def names(scenario: Scenario) -> list[str]:
    return [pod.name for pod in scenario.arriving]


def test_a_pod_that_is_left_out_never_comes() -> None:
    assert names(Scenario((DB, *WEB)).without("db")) == ["web-0", "web-1", "web-2"]


def test_a_workload_is_left_out_with_all_its_pods() -> None:
    assert names(Scenario((DB, *WEB)).without("web")) == ["db"]


def test_one_replica_can_be_left_out() -> None:
    assert names(Scenario((DB, *WEB)).without("web-1")) == ["db", "web-0", "web-2"]


def test_a_pod_that_runs_leaves() -> None:
    scenario = Scenario((), running=(DB, *WEB)).without("db")
    assert scenario.gone == ("db",)
    assert scenario.running == WEB
    assert not scenario.arriving


def test_a_pod_of_which_only_the_uid_is_known_leaves() -> None:
    assert Scenario((), others=(PodUID("u-1"),)).without("u-1").gone == ("u-1",)


def test_pods_are_told_apart_by_namespace() -> None:
    other = replace(DB, namespace="other", uid=PodUID("db2"))
    assert [pod.uid for pod in Scenario((DB, other)).without("other/db").arriving] == ["db"]
    assert not Scenario((DB, other)).without("db").arriving


def test_a_pod_can_be_named_by_its_uid() -> None:
    pod = replace(DB, uid=PodUID("1b9d-42"))
    assert not Scenario((pod,)).without("1b9d-42").arriving


def test_further_replicas_come_last_under_names_of_their_own() -> None:
    scenario = Scenario((*WEB, DB)).replicas("web", 5)
    assert names(scenario) == ["web-0", "web-1", "web-2", "db", "web-3", "web-4"]
    assert len({pod.uid for pod in scenario.arriving}) == 6
    assert scenario.arriving[-1].containers == WEB[0].containers


def test_fewer_replicas_leave_the_last_ones_out() -> None:
    assert names(Scenario((*WEB, DB)).replicas("web", 1)) == ["web-0", "db"]
    assert names(Scenario((*WEB, DB)).replicas("web", 0)) == ["db"]


def test_a_single_pod_is_replicated_beside_itself() -> None:
    assert names(Scenario((DB,)).replicas("db", 3)) == ["db", "db-0", "db-1"]


def test_replicas_of_what_runs_are_added_and_taken_away() -> None:
    scenario = Scenario((), running=WEB)
    assert names(scenario.replicas("web", 4)) == ["web-3"]
    assert scenario.replicas("web", 1).gone == ("web-1", "web-2")


def test_a_container_is_resized() -> None:
    scenario = Scenario((DB, *WEB)).resize("web", "app", 6)
    assert [pod.containers[0].resources.limits.cpu for pod in scenario.arriving] == [4000, 6000, 6000, 6000]


def test_a_container_that_runs_leaves_to_be_resized_and_comes_first() -> None:
    scenario = Scenario((DB,), running=WEB).resize("web-1", "app", 6)
    assert scenario.gone == ("web-1",)
    assert names(scenario) == ["web-1", "db"]
    assert [pod.name for pod in scenario.running] == ["web-0", "web-2"]


@pytest.mark.parametrize("name", ["", "nope", "other/db", "we"])
def test_a_pod_that_is_not_there_is_refused_with_those_that_are(name: str) -> None:
    with pytest.raises(UnknownPodName, match=r"no pod .*; there are db, web-0"):
        Scenario((DB, *WEB)).without(name)


def test_a_container_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(UnknownPodName, match='no container of pod "db" called "x"; there are app'):
        Scenario((DB,)).resize("db", "x", 2)


def test_without_any_pod_none_is_listed() -> None:
    with pytest.raises(UnknownPodName, match="there is none"):
        Scenario(()).without("db")
