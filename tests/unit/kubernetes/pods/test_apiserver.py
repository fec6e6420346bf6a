"""Pods from the API server, against a stand-in with the recorded rules: rights, watches, tokens, certificates."""

from __future__ import annotations

import asyncio
import tracemalloc
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pinfold.core.pods.pod import Container, Pod, PodUID
from pinfold.errors import PinfoldError
from pinfold.formats.pods.runtime import RuntimePod
from pinfold.kubernetes.pods.apiserver import APIServer as Feed
from pinfold.kubernetes.pods.watched import WatchedPods
from tests.property.strategies import guaranteed, pinned
from tests.support.apiserver import APIServer
from tests.support.cluster import account, api_pod, certificate, mounted_token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from pinfold.kubernetes.account import ServiceAccount

    Scenario = Callable[[APIServer, ServiceAccount], Coroutine[None, None, None]]

WEB = Pod(PodUID("u-web"), "web", init=(pinned(1, "setup"),), containers=(pinned(2, "app"),))
LEVEL = Pod(PodUID("u-level"), "level", containers=(Container("bare"),), resources=guaranteed(2000))


def told(pod: Pod) -> RuntimePod:
    return RuntimePod(f"s-{pod.name}", pod.uid, pod.name, pod.namespace, f"/kubepods/pod{pod.uid}")


def many(count: int) -> list[Pod]:
    return [replace(WEB, uid=PodUID(f"u-{number}"), name=f"web-{number}") for number in range(count)]


@pytest.fixture
def play(tmp_path: Path, cert: Path) -> Callable[[Scenario], None]:
    """Return a function that plays a scenario with a server and a service account."""

    def played(scenario: Scenario) -> None:
        async def run() -> None:
            async with APIServer().serving(cert) as server:
                await scenario(server, account(tmp_path / "account", server, trusted=cert))

        asyncio.run(asyncio.wait_for(run(), 120))

    return played


@asynccontextmanager
async def watching(feed: Feed, pod: Pod) -> AsyncIterator[WatchedPods]:
    """Watch, from the first pod on that was found."""
    watched, failed = WatchedPods(feed), list[str]()
    task = asyncio.create_task(watched.follow(failed.append))
    try:
        assert await watched.find([told(pod)])
        await until(lambda: watched.known(told(pod)) is not None)
        yield watched
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - it happens at the server
            await asyncio.sleep(0.005)


def test_one_pod_is_asked_for_by_its_name_with_init_containers_and_pod_level_resources(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(server: APIServer, service: ServiceAccount) -> None:
        await server.put(api_pod(WEB))
        await server.put(api_pod(LEVEL))
        found = await Feed(service).find([told(WEB)])
        assert found["s-web"].init == WEB.init
        assert server.calls[-1].query["fieldSelector"] == "spec.nodeName=node1,metadata.name=web"
        both = await Feed(service).find([told(WEB), told(LEVEL)])
        assert both["s-level"].resources == LEVEL.resources

    play(scenario)


def test_a_pod_with_another_uid_and_one_that_has_ended_are_not_found(play: Callable[[Scenario], None]) -> None:
    async def scenario(server: APIServer, service: ServiceAccount) -> None:
        await server.put(api_pod(WEB))
        await server.put(api_pod(LEVEL, phase="Failed"))
        assert await Feed(service).find([told(WEB)._replace(uid="u-other")]) == {}
        assert await Feed(service).find([told(LEVEL)]) == {}

    play(scenario)


def test_a_static_pod_is_found_by_its_name_for_the_api_server_has_another_uid(play: Callable[[Scenario], None]) -> None:
    async def scenario(server: APIServer, service: ServiceAccount) -> None:
        await server.put(api_pod(WEB))
        static = told(WEB)._replace(uid="0f3e", annotations={"kubernetes.io/config.source": "file"})
        assert "s-web" in await Feed(service).find([static])

    play(scenario)


def test_a_watch_begins_when_it_is_needed_and_follows_pods_that_come_change_and_go(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(server: APIServer, service: ServiceAccount) -> None:
        await server.put(api_pod(WEB))
        async with watching(Feed(service), WEB) as watched:
            await server.put(api_pod(LEVEL))
            await until(lambda: "u-level" in watched.pods)
            await server.put(api_pod(replace(LEVEL, resources=guaranteed(3000))))
            await until(lambda: watched.pods["u-level"].resources == guaranteed(3000))
            await server.remove("default", "level")
            await until(lambda: "u-level" not in watched.pods)
        assert [call.query.get("watch") for call in server.calls] == [None, "1"]

    play(scenario)


def test_a_lost_watch_goes_on_where_it_was(play: Callable[[Scenario], None]) -> None:
    async def scenario(server: APIServer, service: ServiceAccount) -> None:
        await server.put(api_pod(WEB))
        async with watching(Feed(service), WEB) as watched:
            server.disconnect()
            await server.put(api_pod(LEVEL))
            await until(lambda: "u-level" in watched.pods)
        assert [call.query["resourceVersion"] for call in server.calls[1:]] == ["0", "101"]

    play(scenario)


def test_a_version_that_is_gone_makes_the_watch_begin_again_without_pods_of_before(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(server: APIServer, service: ServiceAccount) -> None:
        await server.put(api_pod(WEB))
        await server.put(api_pod(LEVEL))
        async with watching(Feed(service), WEB) as watched:
            await until(lambda: "u-level" in watched.pods)
            del server.pods["default", "level"]  # and no watch is told
            server.oldest = 1000
            server.disconnect()
            await until(lambda: "u-level" not in watched.pods and "u-web" in watched.pods)
        assert [call.query["resourceVersion"] for call in server.calls[1:]] == ["0", "102", "0"]

    play(scenario)


def test_bookmarks_move_the_version_from_which_a_watch_goes_on(play: Callable[[Scenario], None]) -> None:
    async def scenario(server: APIServer, service: ServiceAccount) -> None:
        server.bookmark_every = 0.02
        await server.put(api_pod(WEB))
        async with watching(Feed(service), WEB):
            await server.put(api_pod(LEVEL, node="node2"))  # which this watch does not see
            await asyncio.sleep(0.1)
            server.disconnect()
            await until(lambda: len(server.calls) == 3)
        assert server.calls[2].query["resourceVersion"] == "102"

    play(scenario)


def test_a_watch_in_which_nothing_came_begins_again_for_the_server_may_be_older_than_the_version(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(server: APIServer, service: ServiceAccount) -> None:
        feed = Feed(service)
        feed._version = "99999"  # noqa: SLF001 - as after a restored backup
        watched = WatchedPods(feed)
        silent = asyncio.create_task(watched._watch())  # noqa: SLF001 - one connection
        await until(lambda: len(server.calls) == 1)
        server.disconnect()
        with pytest.raises(PinfoldError, match="incomplete"):
            await silent
        await server.put(api_pod(WEB))
        assert await anext(feed.changes()) is None

    play(scenario)


@pytest.mark.parametrize(
    ("token", "rights", "said"),
    [
        ("wrong", {}, "HTTP status 401: Unauthorized"),
        ("good", {"good": frozenset({"watch pods"})}, "HTTP status 403: .*cannot list resource"),
    ],
    ids=["wrong-token", "no-right"],
)
def test_a_missing_right_is_an_error_with_the_servers_words(
    tmp_path: Path, cert: Path, token: str, rights: dict[str, frozenset[str]], said: str
) -> None:
    async def run() -> None:
        server = APIServer()
        server.rights |= rights
        async with server.serving(cert):
            feed = Feed(account(tmp_path, server, token=token, trusted=cert))
            with pytest.raises(PinfoldError, match=said):
                await feed.find([told(WEB)])

    asyncio.run(run())


def test_a_replaced_token_is_used_for_the_next_request(play: Callable[[Scenario], None]) -> None:
    async def scenario(server: APIServer, service: ServiceAccount) -> None:
        feed = Feed(service)
        await feed.find([told(WEB)])
        (service.directory / "token").write_text("newer\n")
        server.rights = {"newer": server.rights["good"]}
        await feed.find([told(WEB)])
        assert [call.token for call in server.calls] == ["good", "newer"]

    play(scenario)


def test_a_server_with_another_certificate_gets_no_token(tmp_path: Path, cert: Path) -> None:
    async def run() -> None:
        async with APIServer().serving(certificate(tmp_path, "other")) as server:
            feed = Feed(account(tmp_path / "account", server, trusted=cert))
            with pytest.raises(PinfoldError, match="certificate not trusted: self-signed certificate"):
                await feed.find([told(WEB)])
            assert server.calls == []

    asyncio.run(run())


def test_the_node_is_the_one_in_the_token_unless_the_environment_names_it(tmp_path: Path) -> None:
    service = account(tmp_path, APIServer(), token=mounted_token("node7"))
    assert service.node() == "node1"
    assert service._replace(environ={}).node() == "node7"
    (tmp_path / "token").write_text("opaque")
    assert service._replace(environ={}).node()


def test_a_thousand_pods_take_little_memory(play: Callable[[Scenario], None]) -> None:
    async def scenario(server: APIServer, service: ServiceAccount) -> None:
        pods = many(1000)
        for pod in pods:
            await server.put(api_pod(pod) | {"padding": "x" * 4000})
        tracemalloc.start()
        async with watching(Feed(service), pods[-1]) as watched:
            assert len(watched.pods) == 1000
            _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        found = await Feed(service).find([told(pod) for pod in pods])
        assert len(found) == 1000
        assert peak < 20 << 20

    play(scenario)
