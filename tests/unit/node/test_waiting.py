"""Work in threads, when no further thread can be started."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pinfold.node.waiting import OUTPUTS, DaemonThreads, in_thread


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


def test_work_without_a_thread_is_not_done_later(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    with DaemonThreads(4) as threads:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                threads.submit(done.append, "refused")
        threads.submit(done.append, "taken")
    assert done == ["taken"]


def test_what_waits_for_a_disk_is_done_in_order_and_keeps_no_other_thread() -> None:
    done: list[str] = []
    thawed = threading.Event()

    async def scenario() -> None:
        first = asyncio.ensure_future(in_thread(lambda: done.append(f"first {thawed.wait(30)}"), OUTPUTS))
        more = [asyncio.ensure_future(in_thread(lambda: done.append("more"), OUTPUTS)) for _ in range(100)]
        for _ in range(100):  # more than there are threads for questions
            assert await asyncio.to_thread(int, "1") == 1
        assert not done
        thawed.set()
        await asyncio.gather(first, *more)

    asyncio.run(scenario())
    assert done == ["first True", *["more"] * 100]
