from __future__ import annotations

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.state import State
from pinfold.planning.compare import Variant, combinations, compare, name_of, needed_gates, ranked
from pinfold.planning.plan import Running
from tests.property.strategies import pinned, pod_of

CACHES = preset("sockets:1,l3:4,cores:4,threads:2")
RESERVED = Reservation.of(CPUSet.of(0, 16))
PLAIN = Config("static", reserved=RESERVED)
SIXES = [pod_of(pinned(6), uid=name) for name in "abc"]


def test_the_same_pods_are_planned_under_every_variant() -> None:
    uncore = Config("static", {"prefer-align-cpus-by-uncorecache": "true"}, RESERVED)
    rows = list(compare([Variant("plain", CACHES, PLAIN), Variant("uncore", CACHES, uncore)], SIXES))
    assert [row.variant.label for row in rows] == ["plain", "uncore"]
    assert [row.score.misaligned for row in rows] == [1, 0]


def test_a_variant_that_cannot_start_from_the_state_says_why() -> None:
    strict = Config("static", {"strict-cpu-reservation": "true"}, RESERVED)
    rows = list(compare([Variant("strict", CACHES, strict)], SIXES, Running(State(CACHES.online))))
    assert rows[0].plan is None
    assert "strictly reserved" in rows[0].problem


def test_all_valid_combinations_are_tried_and_no_other() -> None:
    found = combinations(PLAIN, CACHES)
    labels = [variant.label for variant in found]
    assert labels[0] == "no options"
    assert "full-pcpus-only, prefer-align-cpus-by-uncorecache" in labels
    assert not any("distribute-cpus-across-cores" in label and "full-pcpus-only" in label for label in labels)
    assert not any("align-by-socket" in label and "single-numa-node" in label for label in labels)
    assert len(labels) == len(set(labels)) == 98


def test_the_reservation_and_the_scope_stay() -> None:
    config = Config("static", reserved=RESERVED, topology_scope="pod")
    for variant in combinations(config, CACHES):
        assert (variant.config.reserved, variant.config.topology_scope) == (RESERVED, "pod")


def test_the_best_refuses_least_then_spreads_least() -> None:
    rows = list(compare(combinations(PLAIN, CACHES), SIXES))
    best = ranked(rows, PLAIN)
    assert best[0].variant.label == "prefer-align-cpus-by-uncorecache"
    assert [row.score for row in best] == sorted(row.score for row in rows)


def test_among_equals_what_is_set_now_is_best() -> None:
    config = Config("static", {"strict-cpu-reservation": "true"}, RESERVED)
    best = ranked(list(compare(combinations(config, CACHES), [])), config)
    assert best[0].variant.config is config


def test_an_option_that_is_off_is_not_named() -> None:
    assert name_of(Config("static", {"full-pcpus-only": "false"})) == "no options"


def test_gates_that_are_closed_by_default_are_named() -> None:
    assert needed_gates(Config("static", {"align-by-socket": "true"})) == ("CPUManagerPolicyAlphaOptions",)
    assert needed_gates(Config("static", {"distribute-cpus-across-numa": "true"})) == ()
