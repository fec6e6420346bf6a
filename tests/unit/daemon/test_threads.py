"""Work in threads, when no further thread can be started."""

from __future__ import annotations

import threading

import pytest

from pinfold.daemon.threads import DaemonThreads


def refuse(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_when_no_thread_can_be_started_work_waits_for_one_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    with DaemonThreads(4) as threads:
        busy = threads.submit(go_on.wait, 30)
        monkeypatch.setattr(threading.Thread, "start", refuse)
        waiting = [threads.submit(int, number) for number in "123"]
        go_on.set()
        assert busy.result(30)
        assert [one.result(30) for one in waiting] == [1, 2, 3]


def test_without_any_thread_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with DaemonThreads(4) as threads, pytest.raises(RuntimeError, match="can't start new thread"):
        threads.submit(int)
