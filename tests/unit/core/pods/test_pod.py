"""Pods: QoS class, exclusive CPUs, effective requests."""

from __future__ import annotations

import pytest

from pinfold.core.pods.pod import (
    Amounts,
    Container,
    ContainerRef,
    Pod,
    PodUID,
    QoS,
    Resources,
    effective_requests,
    exclusive_cpus,
    exclusive_pod_cpus,
)

GIB = 1 << 30
NONE = Resources()


def amounts(cpu: float | None = None, memory: int | None = GIB) -> Amounts:
    return Amounts(None if cpu is None else round(cpu * 1000), memory)


def fixed(cpu: float, memory: int = GIB) -> Resources:
    """Requests equal to limits."""
    return Resources(amounts(cpu, memory), amounts(cpu, memory))


def pod_of(*apps: Resources, init: tuple[Container, ...] = (), whole: Resources | None = None) -> Pod:
    containers = tuple(Container(f"c{index}", resources) for index, resources in enumerate(apps))
    return Pod(PodUID("u1"), "p", init=init, containers=containers, resources=whole)


def shares(pod: Pod, *, pod_level: bool = False) -> list[int]:
    return [exclusive_cpus(pod, container, pod_level=pod_level) for container in pod.all_containers]


# KEP-3570, "Example pod specs and interpretation": the table, row by row.
@pytest.mark.parametrize(
    ("pod", "qos", "exclusive"),
    [
        pytest.param(pod_of(fixed(0.5)), QoS.GUARANTEED, [0], id="A 0.5: shared"),
        pytest.param(pod_of(fixed(2.0)), QoS.GUARANTEED, [2], id="A 2.0: two of its own"),
        pytest.param(pod_of(fixed(1.0), fixed(0.5)), QoS.GUARANTEED, [1, 0], id="A 1.0, B 0.5: A one of its own"),
        pytest.param(pod_of(fixed(1.5), fixed(0.5)), QoS.GUARANTEED, [0, 0], id="A 1.5, B 0.5: both shared"),
        pytest.param(pod_of(Resources(amounts(2.0), amounts(4.0))), QoS.BURSTABLE, [0], id="Burstable: shared"),
        pytest.param(pod_of(NONE), QoS.BEST_EFFORT, [0], id="BestEffort: shared"),
    ],
)
def test_the_keps_example_pods_are_read_as_the_kep_says(pod: Pod, qos: QoS, exclusive: list[int]) -> None:
    assert (pod.qos, shares(pod)) == (qos, exclusive)


@pytest.mark.parametrize(
    ("resources", "qos"),
    [
        pytest.param(NONE, QoS.BEST_EFFORT, id="nothing"),
        pytest.param(fixed(1), QoS.GUARANTEED, id="requests equal limits"),
        pytest.param(fixed(0.001), QoS.GUARANTEED, id="however little"),
        pytest.param(Resources(amounts(1), amounts(2)), QoS.BURSTABLE, id="cpu limit above request"),
        pytest.param(Resources(amounts(1, 1), amounts(1, 2)), QoS.BURSTABLE, id="memory limit above request"),
        pytest.param(Resources(amounts(2), amounts(1)), QoS.BURSTABLE, id="request above limit"),
        pytest.param(Resources(requests=amounts(1)), QoS.BURSTABLE, id="requests only"),
        pytest.param(Resources(limits=amounts(1)), QoS.BURSTABLE, id="limits only: nothing is defaulted here"),
        pytest.param(Resources(Amounts(1000), Amounts(1000)), QoS.BURSTABLE, id="cpu only"),
        pytest.param(Resources(amounts(), amounts()), QoS.BURSTABLE, id="memory only"),
        pytest.param(Resources(amounts(1), Amounts(1000)), QoS.BURSTABLE, id="no memory limit"),
        pytest.param(Resources(Amounts(0, 0), Amounts(0, 0)), QoS.BEST_EFFORT, id="zero counts as not set"),
        pytest.param(fixed(0), QoS.BURSTABLE, id="zero cpu, some memory"),
    ],
)
def test_qos_class_of_one_container(resources: Resources, qos: QoS) -> None:
    assert pod_of(resources).qos is qos
    assert pod_of(NONE, whole=resources).qos is qos


@pytest.mark.parametrize(
    ("apps", "qos"),
    [
        pytest.param([fixed(1), fixed(2)], QoS.GUARANTEED, id="all guaranteed"),
        pytest.param([fixed(1), NONE], QoS.BURSTABLE, id="one without any"),
        pytest.param([NONE, NONE], QoS.BEST_EFFORT, id="none at all"),
        pytest.param([fixed(1), Resources(amounts(1), amounts(2))], QoS.BURSTABLE, id="one burstable"),
        pytest.param(
            [Resources(amounts(2), amounts(1)), Resources(amounts(1), amounts(2))],
            QoS.BURSTABLE,
            id="equal in sum only",
        ),
        pytest.param([], QoS.BEST_EFFORT, id="no container"),
    ],
)
def test_qos_class_of_several_containers(apps: list[Resources], qos: QoS) -> None:
    assert pod_of(*apps).qos is qos


def test_init_containers_and_sidecars_count_for_the_qos_class() -> None:
    assert pod_of(fixed(1), init=(Container("i", fixed(1)),)).qos is QoS.GUARANTEED
    assert pod_of(fixed(1), init=(Container("i"),)).qos is QoS.BURSTABLE
    assert pod_of(fixed(1), init=(Container("s", sidecar=True),)).qos is QoS.BURSTABLE


def test_pod_level_resources_decide_the_qos_class() -> None:
    assert pod_of(NONE, whole=fixed(4)).qos is QoS.GUARANTEED
    assert pod_of(fixed(1), whole=Resources(amounts(1), amounts(4))).qos is QoS.BURSTABLE


def test_pod_level_resources_without_an_amount_count_as_none() -> None:
    pod = pod_of(fixed(1), whole=NONE)
    assert pod.resources is None
    assert pod.qos is QoS.GUARANTEED


def test_a_pod_with_pod_level_resources_gets_no_exclusive_cpus_while_the_gate_is_off() -> None:
    pod = pod_of(fixed(1), NONE, whole=fixed(4))
    assert shares(pod) == [0, 0]
    assert exclusive_pod_cpus(pod) == 0


def test_with_the_gate_on_the_pod_gets_its_own_and_only_guaranteed_containers_theirs() -> None:
    pod = pod_of(fixed(1), fixed(0.5), NONE, Resources(amounts(1), amounts(2)), whole=fixed(4))
    assert shares(pod, pod_level=True) == [1, 0, 0, 0]
    assert exclusive_pod_cpus(pod, pod_level=True) == 4


@pytest.mark.parametrize("whole", [fixed(2.5), Resources(amounts(2), amounts(4)), Resources(amounts(), amounts())])
def test_with_the_gate_on_only_a_guaranteed_pod_with_whole_cpus_gets_them(whole: Resources) -> None:
    assert exclusive_pod_cpus(pod_of(fixed(1), whole=whole), pod_level=True) == 0


def sidecar(name: str, cpu: float) -> Container:
    return Container(name, fixed(cpu), sidecar=True)


@pytest.mark.parametrize(
    ("init", "apps", "cpus"),
    [
        pytest.param((), [2, 3], 5, id="apps add up"),
        pytest.param((), [2, 0.5], 2, id="fractions are shared"),
        pytest.param((Container("i", fixed(4)),), [2, 3], 5, id="an init container runs before the apps"),
        pytest.param((Container("i", fixed(7)), Container("j", fixed(6))), [2, 3], 7, id="init containers run in turn"),
        pytest.param((sidecar("s", 1), Container("i", fixed(5))), [2, 3], 6, id="a sidecar runs on beside both"),
        pytest.param((Container("i", fixed(6)), sidecar("s", 1)), [2, 3], 6, id="a later sidecar is not there yet"),
        pytest.param((sidecar("s", 1), sidecar("t", 2)), [3], 6, id="sidecars and apps add up"),
    ],
)
def test_a_pod_needs_the_most_that_runs_at_once(init: tuple[Container, ...], apps: list[float], cpus: int) -> None:
    assert exclusive_pod_cpus(pod_of(*map(fixed, apps), init=init)) == cpus


def test_effective_requests_follow_the_same_rule_on_amounts() -> None:
    pod = pod_of(fixed(0.5, GIB), fixed(1, GIB), init=(sidecar("s", 0.25), Container("i", fixed(2, GIB))))
    assert effective_requests(pod) == Amounts(2250, 3 * GIB)


def test_effective_requests_are_the_pods_own_where_set() -> None:
    whole = Resources(Amounts(cpu=4000), Amounts(cpu=4000))
    assert effective_requests(pod_of(fixed(1), fixed(1), whole=whole)) == Amounts(4000, 2 * GIB)


def test_effective_requests_include_overhead() -> None:
    pod = Pod(PodUID("u1"), "p", containers=(Container("c", fixed(1)),), overhead=Amounts(250, 1 << 20))
    assert effective_requests(pod) == Amounts(1250, GIB + (1 << 20))


def test_containers_start_in_order_and_are_known_by_pod_and_name() -> None:
    pod = pod_of(NONE, init=(Container("i"),))
    assert [container.name for container in pod.all_containers] == ["i", "c0"]
    assert pod.ref(pod.containers[0]) == ContainerRef(PodUID("u1"), "c0")


def test_pods_are_values() -> None:
    assert pod_of(fixed(1)) == pod_of(fixed(1))
    assert len({pod_of(fixed(1)), pod_of(fixed(1)), pod_of(fixed(2))}) == 2
