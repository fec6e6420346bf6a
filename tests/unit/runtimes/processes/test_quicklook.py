"""QuickLook: which containers each look lists, and when a closer look is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import Observed
from pinfold.runtimes.brevity import Brevity
from pinfold.runtimes.processes.quicklook import QuickLook

if TYPE_CHECKING:
    from collections.abc import Collection

POOL = CPUSet.of(0, 1)


class Scene:
    """Containers, and the clock of the looks at them."""

    def __init__(self, count: int) -> None:
        self.containers = [ContainerRef(PodUID(f"uid-{number}"), "main") for number in range(count)]
        self.found: Observed | None = Observed(POOL, dict.fromkeys(self.containers, POOL))
        self.now = 0.0
        self.part: Collection[ContainerRef] = ()
        """The containers that were listed last."""
        self.anew = False
        """Whether the last look listed the processes of the host."""
        self._quick = QuickLook(self._look, Brevity(lambda: self.now))

    def _look(self, part: Collection[ContainerRef], *, anew: bool) -> Observed | None:
        self.part, self.anew = part, anew
        return self.found

    def later(self) -> Observed | None:
        """Look ten seconds later."""
        self.now += 10
        return self._quick.at(self.containers)


def test_of_few_containers_all_are_listed_each_time() -> None:
    scene = Scene(100)
    for _ in range(3):
        assert scene.later() == scene.found
        assert set(scene.part) == set(scene.containers)
        assert scene.anew


def test_many_containers_are_listed_one_after_the_other_within_their_time() -> None:
    scene = Scene(600)
    assert scene.later() == scene.found
    assert len(scene.part) == 600
    listed = list[ContainerRef]()
    for _ in range(12):
        assert scene.later() == scene.found
        assert len(scene.part) <= 121
        listed += scene.part
    assert set(listed) == set(scene.containers)


def test_of_many_containers_every_other_look_lists_the_processes_of_the_host_and_no_threads() -> None:
    scene = Scene(600)
    anew = list[bool]()
    for _ in range(7):
        assert scene.later() == scene.found
        anew.append(scene.anew)
        assert len(scene.part) == 600 or bool(scene.part) != scene.anew
    assert anew == [True, False, True, False, True, False, True]


def test_a_look_that_lists_the_processes_of_the_host_can_find_that_a_closer_one_is_needed() -> None:
    scene = Scene(600)
    found = scene.found
    assert [scene.later(), scene.later()] == [found, found]
    scene.found = None
    assert scene.later() is None
    scene.found = found
    assert scene.later() == found
    assert scene.anew
    assert len(scene.part) == 600


def test_after_a_closer_look_was_needed_all_are_listed() -> None:
    scene = Scene(600)
    found = scene.found
    assert scene.later() == found
    scene.found = None
    assert scene.later() is None
    scene.found = found
    assert scene.later() == found
    assert len(scene.part) == 600


def test_a_container_that_a_glance_does_not_know_needs_a_closer_look() -> None:
    scene = Scene(2)
    scene.containers.append(ContainerRef(PodUID("new"), "main"))
    assert scene.later() is None
