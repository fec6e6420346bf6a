"""PodNames: events name pods, also those that only an earlier daemon knew."""

from __future__ import annotations

import time

from pinfold.core.events.about import PodName
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.state import State
from pinfold.manager.telling.bus import Bus
from pinfold.manager.telling.names import PodNames, recalled
from pinfold.manager.telling.telling import Telling
from tests.property.strategies import pinned, pod_of

OLD = ContainerRef(PodUID("u-old"), "app")
TOLD = {"default/db/app": CPUSet.of(1), "test/db/app": CPUSet.of(2), "u-unnamed/app": CPUSet.of(3)}


def test_a_pod_of_the_state_has_the_name_that_an_earlier_daemon_told_with_its_cpus() -> None:
    unnamed, other = ContainerRef(PodUID("u3"), "app"), ContainerRef(PodUID("u4"), "side")
    found = recalled(TOLD, {OLD: CPUSet.of(2), unnamed: CPUSet.of(3), other: CPUSet.of(1)})
    assert found == {OLD.pod: PodName("test", "db", OLD.pod)}


def test_earlier_names_are_read_once_and_only_if_one_is_needed() -> None:
    asked = []

    def recall() -> dict[PodUID, PodName]:
        asked.append(1)
        return {OLD.pod: PodName("default", "db", OLD.pod)}

    names, pod = PodNames(recall), pod_of(pinned(1), uid="u-new")
    assert names.know([pod]) == [pod.uid]
    assert (names[pod.uid].name, asked) == (pod.name, [])
    assert [names[uid].name for uid in (OLD.pod, PodUID("u-never"), OLD.pod)] == ["db", "u-never", "db"]
    assert asked == [1]


def test_a_pod_that_left_while_the_daemon_was_away_is_named_in_events() -> None:
    bus = Bus(time.time)
    names = PodNames(lambda: {OLD.pod: PodName("default", "db", OLD.pod)})
    telling = Telling(bus, names=names)
    before = State(CPUSet.parse("0,2-3"), {OLD.pod: {OLD.name: CPUSet.of(1)}})
    telling.released([OLD], before, State(CPUSet.parse("0-3")))
    told = [(entry.what, entry.fields["pod"]) for entry in bus.after(0)]
    assert told == [("released", "db"), ("gone", "db")]
