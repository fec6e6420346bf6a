"""The kernel's messages about CPUs."""

from __future__ import annotations

from pinfold.node.machine.hotplug import Hotplug


def test_without_a_change_nothing_has_happened_and_the_call_returns() -> None:
    hotplug = Hotplug()
    assert not hotplug.has_happened()
    hotplug.close()


def test_one_that_does_not_listen_any_more_has_nothing_to_wait_for() -> None:
    hotplug = Hotplug()
    hotplug.close()
    assert hotplug.fileno() is None
    assert not hotplug.has_happened()
