from __future__ import annotations

import pytest

from pinfold.core.config import Config, Reservation
from pinfold.core.explaining.sharing import missed_pinning
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources

STATIC = Config("static", reserved=Reservation.of(CPUSet.of(0))).build(preset("cores:16")).policy
NONE = Config("none").build(preset("cores:16")).policy
GIB = 1 << 30
EIGHT = Resources(Amounts(8000, GIB), Amounts(8000, GIB))
BURSTABLE = "so the pod is Burstable, not Guaranteed"


def missed(app: Resources, *init: Container, pod: Resources | None = None) -> list[str]:
    containers = (Container("kafka", app),)
    return list(map(str, missed_pinning(STATIC, Pod(PodUID("u"), "kafka", "default", init, containers, pod))))


def test_an_init_container_without_limits_is_named_as_the_cause() -> None:
    why = f"init container volume-permissions has no limits, {BURSTABLE}"
    assert missed(EIGHT, Container("volume-permissions")) == [
        f"kafka/kafka asks for 8 whole CPUs but will share: {why}"
    ]


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        pytest.param(Resources(Amounts(8000), Amounts(8000)), f"it has no memory limit, {BURSTABLE}", id="memory"),
        pytest.param(Resources(Amounts(8000, GIB)), f"it has no limits, {BURSTABLE}", id="limits"),
        pytest.param(
            Resources(Amounts(8000, GIB), Amounts(None, GIB)), f"it has no CPU limit, {BURSTABLE}", id="CPU limit"
        ),
        pytest.param(
            Resources(Amounts(8000, GIB), Amounts(9000, GIB)),
            f"it has a CPU request below its limit, {BURSTABLE}",
            id="CPU",
        ),
        pytest.param(
            Resources(Amounts(8000, GIB), Amounts(8000, 2 * GIB)),
            f"it has a memory request below its limit, {BURSTABLE}",
            id="memory request",
        ),
    ],
)
def test_what_keeps_a_pod_from_being_guaranteed_is_said(resources: Resources, why: str) -> None:
    assert missed(resources) == [f"kafka/kafka asks for 8 whole CPUs but will share: {why}"]


def test_one_and_a_half_cpus_of_a_guaranteed_pod_are_a_missed_pinning() -> None:
    half = Resources(Amounts(1500, GIB), Amounts(1500, GIB))
    assert missed(half) == ["kafka/kafka asks for 1.5 CPUs but will share: 1.5 CPUs is not a whole number"]


def test_pod_level_resources_are_named_as_the_cause() -> None:
    whole = Resources(Amounts(8000), Amounts(8000))
    assert missed(EIGHT, pod=EIGHT) == [
        "kafka/kafka asks for 8 whole CPUs but will share: its pod has pod-level resources, which it shares"
    ]
    assert missed(EIGHT, pod=whole)[0].endswith(f"the pod as a whole has no memory limit, {BURSTABLE}")


def test_the_memory_request_that_a_runtime_does_not_report_is_no_cause() -> None:
    unknown = Resources(Amounts(8000, 1), Amounts(8000, GIB))
    assert missed(unknown)[0].endswith("but will share: the pod is Burstable, not Guaranteed")


@pytest.mark.parametrize(
    "resources",
    [
        pytest.param(EIGHT, id="pinned"),
        pytest.param(Resources(Amounts(500, GIB), Amounts(500, GIB)), id="half a CPU"),
        pytest.param(Resources(Amounts(1500, GIB), Amounts(2000, GIB)), id="meant to share"),
        pytest.param(Resources(), id="nothing"),
    ],
)
def test_who_gets_cpus_or_asks_for_none_misses_nothing(resources: Resources) -> None:
    assert missed(resources) == []


def test_a_policy_that_pins_nothing_misses_nothing() -> None:
    pod = Pod(PodUID("u"), "kafka", containers=(Container("kafka", EIGHT),))
    assert list(missed_pinning(NONE, pod)) == []
