from __future__ import annotations

from itertools import islice

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.planning.orders import Order, sample, tally
from pinfold.planning.plan import make_plan
from tests.property.strategies import pinned, pod_of

MACHINE = preset("sockets:1,l3:2,cores:4,threads:2")
PLAN = make_plan((), MACHINE, Config("static", reserved=Reservation.of(CPUSet.of(0, 8))))


def orders(sizes: list[int], seed: int, count: int = 200) -> list[Order]:
    pods = [pod_of(pinned(size), uid=f"p{i}") for i, size in enumerate(sizes)]
    return list(islice(sample(PLAN.admitter, PLAN.ruler, PLAN.before, pods, seed), count))


def test_the_same_seed_gives_the_same_orders_and_another_one_others() -> None:
    assert orders([4, 4, 6, 2], seed=1) == orders([4, 4, 6, 2], seed=1)
    assert orders([4, 4, 6, 2], seed=1) != orders([4, 4, 6, 2], seed=2)


def test_what_always_fits_is_never_refused() -> None:
    assert not any(order.refused for order in orders([2, 2, 2], seed=1))


def test_what_can_never_fit_is_always_refused() -> None:
    assert all(order.refused == {1} for order in orders([2, 40], seed=1))


def test_one_too_many_is_refused_now_this_one_and_now_that_one() -> None:
    found = orders([5, 5, 5], seed=1)
    assert {number for order in found for number in order.refused} == {0, 1, 2}
    assert all(len(order.refused) == 1 for order in found)


def test_no_pods_fare_well() -> None:
    assert orders([], seed=1, count=2) == [Order(frozenset(), frozenset())] * 2


def test_a_tally_counts_pods_and_orders() -> None:
    found = tally([Order(frozenset({0}), frozenset({1})), Order(frozenset({0, 2}), frozenset())], pods=3)
    assert found.refused == (2, 0, 1)
    assert found.misaligned == (0, 1, 0)
    assert found.histogram == (0, 1, 1, 0)
    assert found.orders == 2
