"""The stream of events: a change is seen at once, no event is lost or sent twice, and no client delays others."""

from __future__ import annotations

import signal
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from pinfold.serve.http.limits import REMOTE
from tests.e2e.api.client import LIVE, Stream, Web, is_about
from tests.e2e.daemon import container, pod, wait_for

if TYPE_CHECKING:
    from tests.e2e.api.client import Event
    from tests.e2e.daemon import Daemon


def test_a_change_is_seen_within_a_second(daemon: Daemon, web: Web) -> None:
    with Stream(web) as stream:
        assert stream.answer.getheader("content-type") == "text/event-stream"
        asked = time.monotonic()
        daemon.apply(pod("web", container(cpus=2)))
        events = stream.until(is_about("assigned", "web"))
        assert time.monotonic() - asked < LIVE
        kept = {entry["number"]: entry for entry in web.entries()}
        for event in events:
            assert (event.name, event.id) == ("change", str(event.data["number"]))
            assert kept[event.data["number"]].items() >= event.data.items()


def test_resuming_loses_nothing_and_repeats_nothing(daemon: Daemon, web: Web) -> None:
    names = [f"p{number}" for number in range(12)]
    with Stream(web) as whole:
        told: list[Event] = []
        after: str | None = None
        for name in names:
            with Stream(web, after) as stream:
                daemon.apply(pod(name, container(cpus=1)))
                told += stream.until(is_about("assigned", name))
                after = told[-1].id
        with Stream(web, after) as stream:  # what happened while no client watched
            for name in names:
                daemon.delete(name)
            told += stream.until(is_about("released", names[-1]))
        assert told == whole.until(is_about("released", names[-1]))


def test_resuming_after_a_restart_loses_nothing_and_repeats_nothing(daemon: Daemon) -> None:
    web = Web(daemon)
    with Stream(web) as stream:
        daemon.apply(pod("first", container(cpus=1)))
        last = stream.until(is_about("assigned", "first"))[-1].id
    daemon.apply(pod("second", container(cpus=1)))
    daemon.restart()
    web = Web(daemon)
    daemon.apply(pod("third", container(cpus=1)))
    with Stream(web, last) as stream:
        told = [event.data["number"] for event in stream.until(is_about("assigned", "third"))]
    kept = [entry["number"] for entry in web.entries(what="!state", after=last) if entry["number"] <= told[-1]]
    assert told == kept


def test_a_number_of_another_life_does_not_make_a_client_deaf(daemon: Daemon, web: Web) -> None:
    with Stream(web, "999999") as stream:
        daemon.apply(pod("web", container(cpus=1)))
        assert stream.until(is_about("assigned", "web"))


@pytest.mark.parametrize("last", ["", "x", "-1", "1" * 40, "\N{SUPERSCRIPT TWO}", "1;2"])
def test_a_number_that_is_none_begins_with_what_comes(daemon: Daemon, web: Web, last: str) -> None:
    daemon.apply(pod("before"))
    with Stream(web, last.encode().decode("latin-1")) as stream:
        daemon.apply(pod("after"))
        assert stream.next().data["pod"] in {"before", "after"}
        assert stream.until(is_about("started", "after"))


@pytest.mark.slow
def test_a_quiet_stream_shows_that_it_is_alive(web: Web) -> None:
    with Stream(web) as stream:
        begun = time.monotonic()
        assert stream.block() == {}
        assert REMOTE.heartbeat - 1 < time.monotonic() - begun < REMOTE.heartbeat + LIVE


def test_watchers_do_not_keep_a_daemon_from_ending(daemon: Daemon, web: Web) -> None:
    with ExitStack() as stack:
        streams = [stack.enter_context(Stream(web)) for _ in range(8)]
        assert daemon.kill(signal.SIGTERM) == 0
        for stream in streams:
            assert b"" in iter(stream.answer.readline, None)


def test_more_watchers_than_are_served_are_told_so_and_the_others_go_on(daemon: Daemon, web: Web) -> None:
    with ExitStack() as stack:
        one, other, third = (web.of(f"127.0.0.{number}") for number in (1, 2, 3))
        streams = [stack.enter_context(Stream(one)) for _ in range(REMOTE.streams_each)]
        refused = one.ask("/events")
        assert (refused.status, refused.data["reason"]) == (503, "TooManyStreams")
        assert "retry-after" in refused.headers
        streams += [stack.enter_context(Stream(other)) for _ in range(REMOTE.streams - len(streams))]
        assert third.ask("/events").status == 503
        daemon.apply(pod("web", container(cpus=1)))
        for stream in streams:
            assert stream.until(is_about("assigned", "web"))
    wait_for(lambda: web.ask("/healthz").status == 200, "it goes on")


@pytest.mark.slow
def test_a_watcher_that_does_not_read_does_not_hold_up_decisions(daemon: Daemon, web: Web) -> None:
    with web.connect() as deaf, Stream(web) as stream:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        deaf.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for number in range(60):
            daemon.apply(*(pod(f"p{number}-{one}") for one in range(10)))
        assert stream.until(is_about("started", "p59-9"))
        assert len(daemon.containers()) == 600
