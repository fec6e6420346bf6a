"""Pods from the kubelet's Pods API: whole, found at once, and watched."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.errors import PinfoldError
from pinfold.formats.pods.runtime import RuntimePod
from pinfold.kubernetes.pods.podsapi import PodsAPI as Feed
from pinfold.kubernetes.pods.watched import WatchedPods
from tests.property.strategies import guaranteed, pinned
from tests.support.podsapi import PodsAPI
from tests.unit.kubernetes.pods.test_apiserver import told, until

if TYPE_CHECKING:
    from pathlib import Path

HALF = Resources(Amounts(500, 1 << 20), Amounts(500, 1 << 20))
POD = Pod(
    PodUID("u-web"),
    "web",
    init=(pinned(1, "setup"), replace(pinned(1, "proxy"), sidecar=True)),
    containers=(pinned(2, "app"), Container("log", HALF)),
    owner="ReplicaSet/web",
)
LEVEL = Pod(PodUID("u-level"), "level", containers=(Container("bare"),), resources=guaranteed(2000))


def test_a_pod_is_found_whole_with_sidecars_and_pod_level_resources(tmp_path: Path) -> None:
    async def run() -> None:
        async with PodsAPI().serving(tmp_path / "api.sock") as kubelet:
            kubelet.put(POD)
            kubelet.put(LEVEL)
            feed = Feed(tmp_path / "api.sock")
            found = await feed.find([told(POD), told(LEVEL), RuntimePod("s-other", "u-other")])
            assert {**found} == {"s-web": POD, "s-level": LEVEL}
            assert (found["s-web"].owner, found["s-level"].owner) == ("ReplicaSet/web", "")
            feed._channel.close()  # noqa: SLF001 - a daemon keeps it open until it ends

    asyncio.run(run())


def test_a_watch_follows_pods_that_come_change_and_go_and_starts_again_with_the_kubelet(tmp_path: Path) -> None:
    async def run() -> None:
        kubelet, path = PodsAPI(), tmp_path / "api.sock"
        watched = WatchedPods(Feed(path))
        following = asyncio.create_task(watched.follow(lambda _why: None))
        async with kubelet.serving(path):
            kubelet.put(POD)
            assert "s-web" in await watched.find([told(POD)])
            await until(lambda: watched.known(told(POD)) == POD)
            kubelet.put(LEVEL)
            await until(lambda: "u-level" in watched.pods)
            kubelet.put(replace(LEVEL, resources=guaranteed(3000)))
            await until(lambda: watched.pods["u-level"].resources == guaranteed(3000))
            kubelet.remove("u-level")
            await until(lambda: "u-level" not in watched.pods)
        kubelet.pods = {LEVEL.uid: LEVEL}
        async with kubelet.serving(path):
            await until(lambda: [*watched.pods] == ["u-level"])
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(run())


def test_a_socket_without_a_server_is_an_error_with_its_path(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "api.sock")
    assert not feed.is_there()
    with pytest.raises(PinfoldError, match=r"api\.sock: No such file"):
        asyncio.run(feed.find([told(POD)]))
