"""Refused pods are set to Failed as a kubelet would do it, and a controller that makes new ones is held back."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pinfold.core.allocators.packed import NotEnoughCPUs
from pinfold.core.pods.pod import Pod, PodUID
from pinfold.errors import AdmissionError
from pinfold.kubernetes.refusals import Refusals
from tests.property.strategies import pinned
from tests.support.apiserver import APIServer
from tests.support.cluster import account, api_pod

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from pinfold.core.events import Event

    Scenario = Callable[["Stage"], Coroutine[None, None, None]]
    Play = Callable[[Scenario], None]


class Refused(AdmissionError):  # noqa: N818 - the fact
    """A refusal with the words that were recorded."""

    reason = "SMTAlignmentError"


OWNER = "ReplicaSet/refused-6499744c68"
POD = Pod(PodUID("u-1"), "refused-1", containers=(pinned(1, "main"),), owner=OWNER)
WORDS = "SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2"
WHY = Refused(WORDS)


class Stage:
    """An API server, pinfold's half, and a clock that the test moves."""

    def __init__(self, server: APIServer, directory: Path, cert: Path) -> None:
        self.server = server
        self.heard: list[Event] = []
        self.now = 1_794_816_445.0
        service = account(directory / "account", server, trusted=cert)
        self.refusals = Refusals(service, self.heard.append, lambda: self.now)

    async def refuse(self, pod: Pod, why: AdmissionError = WHY) -> str:
        """Refuse a pod that the API server has; return its phase afterwards."""
        key = (pod.namespace, pod.name)
        if key not in self.server.pods:
            await self.server.put(api_pod(pod, owner=pod.owner))
        await self.refusals.fail(pod, why)
        status = self.server.pods[key]["status"]
        assert isinstance(status, dict)
        return str(status["phase"])

    @property
    def messages(self) -> list[object]:
        return [event["message"] for event in self.server.events]


@pytest.fixture
def play(tmp_path: Path, cert: Path) -> Play:
    """Return a function that plays a scenario on a stage."""

    def played(scenario: Scenario) -> None:
        async def run() -> None:
            async with APIServer().serving(cert) as server:
                await scenario(Stage(server, tmp_path, cert))

        asyncio.run(asyncio.wait_for(run(), 30))

    return played


def pods(count: int) -> list[Pod]:
    return [replace(POD, uid=PodUID(f"u-{number}"), name=f"refused-{number}") for number in range(count)]


def test_a_pod_is_failed_with_the_kubelets_words_in_one_request_that_also_changes_an_annotation(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        assert await stage.refuse(POD) == "Failed"
        patch, _ = stage.server.calls
        assert (patch.method, patch.path) == ("PATCH", "/api/v1/namespaces/default/pods/refused-1/status")
        assert (patch.kind, patch.query) == ("application/merge-patch+json", {"fieldManager": "pinfold"})
        status = {"phase": "Failed", "reason": "SMTAlignmentError", "message": f"Pod was rejected: {WORDS}"}
        metadata = {"uid": "u-1", "annotations": {"pinfold.dev/refused": "2026-11-16T08:07:25Z"}}
        assert json.loads(patch.body) == {"metadata": metadata, "status": status}
        assert [type(event).__name__ for event in stage.heard] == ["PodFailed"]

    play(scenario)


def test_a_warning_event_on_the_pod_has_the_kubelets_words_and_what_comes_next(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.refuse(POD)
        (event,) = stage.server.events
        assert (event["type"], event["reason"]) == ("Warning", "SMTAlignmentError")
        assert event["source"] == {"component": "pinfold", "host": "node1"}
        named = {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "refused-1", "uid": "u-1"}
        assert event["involvedObject"] == named
        assert event["message"] == f"{WORDS}; the next refused pod of {OWNER} stays Pending for 10 s"

    play(scenario)


def test_another_pod_of_the_same_name_is_not_touched(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.server.put(api_pod(replace(POD, uid=PodUID("u-new"))))
        assert await stage.refuse(POD) == "Pending"
        (event,) = stage.heard
        assert type(event).__name__ == "PodNotFailed"
        assert "field is immutable" in str(event)

    play(scenario)


def test_a_missing_right_is_reported_once_for_each_pod_and_does_not_count_for_its_controller(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        rights, stage.server.rights = stage.server.rights, {"good": frozenset({"create events"})}
        assert [await stage.refuse(POD), await stage.refuse(POD)] == ["Pending", "Pending"]
        (event,) = stage.heard
        assert 'cannot patch resource "pods/status"' in str(event)
        stage.server.rights = rights
        assert await stage.refuse(POD) == "Failed"

    play(scenario)


def test_a_controller_that_makes_a_pod_a_second_gets_few_failed_and_the_events_say_why(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        phases = []
        for pod in pods(60):
            phases.append(await stage.refuse(pod))
            stage.now += 1
        assert [number for number, phase in enumerate(phases) if phase == "Failed"] == [0, 10, 30]
        waits = f"the pod stays Pending for 9 s, then it fails unless there is room: pinfold has failed 1 of {OWNER}"
        assert stage.messages[1] == f"{WORDS}; {waits}"

    play(scenario)


def test_a_pod_that_waited_is_failed_when_the_kubelet_tries_again_later(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        first, second = pods(2)
        await stage.refuse(first)
        assert await stage.refuse(second) == "Pending"
        assert await stage.refuse(second) == "Pending"
        assert len(stage.messages) == 2  # once for each pod
        stage.now += 12
        assert await stage.refuse(second) == "Failed"
        assert len(stage.messages) == 2  # the event has said that it will fail
        assert [type(event).__name__ for event in stage.heard] == ["PodFailed", "PodFailed"]

    play(scenario)


def test_a_pod_that_waits_has_one_event_for_each_reason_whatever_numbers_the_texts_have(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        first, second = pods(2)
        await stage.refuse(first)
        for free in range(3):
            await stage.refuse(second, NotEnoughCPUs(4, free))
            await stage.refuse(second, WHY)
        about = [event["reason"] for event in stage.server.events[1:]]
        assert about == ["UnexpectedAdmissionError", "SMTAlignmentError"]

    play(scenario)


def test_a_failed_pod_that_the_kubelet_tries_once_more_has_no_second_event(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.refuse(POD)
        await stage.refuse(POD, NotEnoughCPUs(1, 0))
        assert len(stage.messages) == 1

    play(scenario)


def test_an_event_that_could_not_be_made_is_made_at_the_next_attempt(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        first, second = pods(2)
        await stage.refuse(first)
        rights, stage.server.rights = stage.server.rights, {"good": frozenset({"patch pods/status"})}
        await stage.refuse(second)
        stage.server.rights = rights
        assert len(stage.messages) == 1
        await stage.refuse(second)
        assert len(stage.messages) == 2

    play(scenario)


def test_the_wait_is_five_minutes_at_most_and_forgotten_after_ten(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        for pod in pods(8):
            assert await stage.refuse(pod) == "Failed"
            stage.now += 300
        stage.now += 301
        assert await stage.refuse(replace(POD, uid=PodUID("u-late"), name="late")) == "Failed"
        assert str(stage.messages[-1]).endswith("for 10 s")
        assert str(stage.messages[-2]).endswith("for 300 s")

    play(scenario)


def test_other_controllers_and_pods_without_one_do_not_wait(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        first, second, third = pods(3)
        await stage.refuse(first)
        assert await stage.refuse(replace(second, owner="ReplicaSet/other")) == "Failed"
        assert await stage.refuse(replace(third, owner="")) == "Failed"
        assert stage.messages[-1] == WORDS

    play(scenario)


def test_an_api_server_that_hangs_holds_a_refusal_up_for_half_a_second(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.server.hangs = True
        clock = asyncio.get_running_loop().time
        begun = clock()
        await stage.refuse(POD)
        assert clock() - begun < 2

    play(scenario)
