"""Readiness: when the daemon says that it is ready, and to whom."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from pinfold.core.events.daemon import RuntimeLinked, Warned
from pinfold.daemon.readiness import Readiness
from pinfold.node.sdnotify import notify

if TYPE_CHECKING:
    from pathlib import Path


def test_the_daemon_is_ready_only_after_its_runtime_has_reported_what_runs() -> None:
    said: list[str] = []
    readiness = Readiness({"synchronized"}, lambda: said.append("ready"))
    readiness.serve("closed")
    for event in (RuntimeLinked("connected", ""), Warned("of something"), RuntimeLinked("registered", "")):
        readiness.hear(event)
    assert said == []
    for link in ("synchronized", "closed", "synchronized"):
        readiness.hear(RuntimeLinked(link, ""))
    assert said == ["ready"]


def test_the_reason_why_it_waits_for_its_runtime_is_told_once() -> None:
    said: list[str] = []
    readiness = Readiness({"synchronized"}, lambda: said.append("ready"), said.append)
    readiness.serve("closed")
    for link, detail in (("closed", "no such file"), ("closed", "refused"), ("synchronized", ""), ("closed", "gone")):
        readiness.hear(RuntimeLinked(link, detail))
    assert said == ["no such file", "ready"]


def test_the_daemon_is_not_ready_before_it_serves() -> None:
    said: list[str] = []
    readiness = Readiness({"synchronized"}, lambda: said.append("ready"))
    readiness.hear(RuntimeLinked("synchronized", ""))
    assert said == []
    readiness.serve("synchronized")
    assert said == ["ready"]


@pytest.mark.parametrize("abstract", [False, True], ids=["a file", "an abstract name"])
def test_the_service_manager_is_told(tmp_path: Path, *, abstract: bool) -> None:
    name = f"{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}" if abstract else name)
        notify("READY=1", {"NOTIFY_SOCKET": f"@{name}" if abstract else name})
        assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": "/nowhere/at/all"}], ids=["none", "one that is gone"])
def test_a_service_manager_that_does_not_listen_changes_nothing(environment: dict[str, str]) -> None:
    notify("READY=1", environment)
