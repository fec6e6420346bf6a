"""The order in which sources of whole pods are asked, for how long, and what is reported and kept."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pinfold.core.events.daemon import PodInParts, PodsNotRead
from pinfold.core.pods.pod import Pod, PodUID
from pinfold.errors import ConfigError, RuntimeUnavailable
from pinfold.kubernetes.account import ServiceAccount
from pinfold.kubernetes.pods.discovery import pod_sources
from pinfold.kubernetes.pods.manifests import Manifests
from pinfold.kubernetes.pods.wholepods import WholePods
from tests.unit.kubernetes.pods.test_apiserver import LEVEL, WEB, told

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pinfold.core.events import Event
    from pinfold.formats.pods.runtime import RuntimePod
    from pinfold.kubernetes.pods.base import Found


class Source:
    """A source that knows some pods, hangs, fails, or is not there."""

    def __init__(self, name: str, *pods: Pod, hangs: bool = False, fails: str = "", there: bool = True) -> None:
        self.name = name
        self.pods = {pod.uid: pod for pod in pods}
        self.asked = 0
        self.watched: dict[str, Pod] = {}
        self._hangs = hangs
        self._fails = fails
        self._there = there

    def is_there(self) -> bool:
        return self._there

    async def find(self, pods: Sequence[RuntimePod]) -> Found:
        self.asked += 1
        if self._hangs:
            await asyncio.sleep(3600)
        if self._fails:
            raise RuntimeUnavailable(self._fails)
        return {pod.id: self.pods[PodUID(pod.uid)] for pod in pods if pod.uid in self.pods}

    def known(self, pod: RuntimePod) -> Pod | None:
        return self.watched.get(pod.uid)

    async def follow(self, failed: Callable[[str], object]) -> None:
        """Fail as a watch does, and return."""
        if self._fails:
            failed(self._fails)


def ask(sources: Sequence[Source], *pods: Pod, within: float = 1.0) -> tuple[WholePods, list[Event]]:
    heard: list[Event] = []
    whole = WholePods(sources, heard.append, within=within)
    asyncio.run(whole.ask([told(pod) for pod in pods], {pod.uid for pod in pods}))
    return whole, heard


def test_the_next_source_is_asked_only_for_what_those_before_it_do_not_know() -> None:
    first, second, third = Source("first", WEB), Source("second", LEVEL), Source("third", WEB, LEVEL)
    whole, heard = ask([first, second, third], WEB, LEVEL)
    assert (whole.find(told(WEB)), whole.find(told(LEVEL)), heard) == (WEB, LEVEL, [])
    assert (first.asked, second.asked, third.asked) == (1, 1, 0)


def test_a_source_that_hangs_leaves_time_for_the_next_and_all_end_in_time() -> None:
    sources = [Source("deaf", hangs=True), Source("dumb", hangs=True), Source("quick", WEB)]
    whole, heard = ask(sources, WEB, within=0.1)
    assert whole.find(told(WEB)) == WEB
    assert [*map(type, heard)] == [PodsNotRead, PodsNotRead]
    assert str(heard[0]) == "PodsNotRead(why='deaf: no answer in 0.05 s')"


def test_a_pod_that_no_source_knows_is_reported_with_the_sources_that_were_asked() -> None:
    whole, heard = ask([Source("one"), Source("two", there=False), Source("three", fails="three: no")], WEB)
    assert whole.find(told(WEB)) is None
    failed, parts = heard
    assert failed == PodsNotRead("three: no")
    assert isinstance(parts, PodInParts)
    assert (parts.pod.name, parts.why) == ("web", "unknown to one, three")


def test_the_same_problem_of_a_source_is_reported_once_until_it_answers() -> None:
    source = Source("one", fails="no")
    heard: list[Event] = []
    whole = WholePods([source], heard.append)

    async def run() -> None:
        for fails in ("no", "no", "", "no"):
            source._fails = fails  # noqa: SLF001 - our own stand-in
            await whole.ask([told(WEB)], {WEB.uid})

    asyncio.run(run())
    assert len([one for one in heard if isinstance(one, PodsNotRead)]) == 2


def test_a_source_that_the_user_names_is_asked_also_if_it_is_not_there(tmp_path: Path) -> None:
    heard: list[Event] = []
    whole = WholePods([Manifests(tmp_path / "gone")], heard.append, named=True)
    asyncio.run(whole.ask([told(WEB)], {WEB.uid}))
    assert heard[0] == PodsNotRead(f"{tmp_path}/gone: No such file or directory")


def test_pods_that_have_left_the_node_are_forgotten() -> None:
    whole, _ = ask([Source("one", WEB, LEVEL)], WEB)
    asyncio.run(whole.ask([told(LEVEL)], {LEVEL.uid}))
    assert whole.find(told(WEB)) is None
    assert whole.find(told(LEVEL)) == LEVEL


def test_a_pod_that_a_watch_forgets_when_it_ends_stays_whole_while_it_is_here() -> None:
    source = Source("one")
    whole = WholePods([source], lambda _event: None)
    source.watched = {WEB.uid: WEB}
    assert whole.find(told(WEB)) == WEB
    source.watched = {}
    assert whole.find(told(WEB)) == WEB


def test_a_pod_that_no_source_knows_is_reported_once_however_often_it_is_tried() -> None:
    heard: list[Event] = []
    whole = WholePods([Source("one")], heard.append)

    async def run() -> None:
        for here in ({WEB.uid}, {WEB.uid}, {LEVEL.uid}, {WEB.uid}):
            await whole.ask([told(WEB)] if WEB.uid in here else [], here)

    asyncio.run(run())
    assert len(heard) == 2


def test_a_watch_that_fails_is_reported_once() -> None:
    heard: list[Event] = []
    whole = WholePods([Source("one", fails="no right to watch")], heard.append)

    async def run() -> None:
        await whole.follow()
        await whole.follow()

    asyncio.run(run())
    assert heard == [PodsNotRead("one: no right to watch")]


def test_all_sources_are_found_by_themselves_in_the_documented_order(tmp_path: Path) -> None:
    sources = pod_sources("auto", ServiceAccount(tmp_path, {}), tmp_path)
    names = [f"{tmp_path}/pods-api/pods-api.sock", "API server", "kubelet", "kubelet's read-only port"]
    assert [source.name for source in sources] == [*names, "/etc/kubernetes/manifests"]
    assert pod_sources("none", ServiceAccount(tmp_path, {}), tmp_path) == []


@pytest.mark.parametrize("where", ["api-server", "/pods", "/run/pods.sock", "http://a:10255/pods", "https://a/pods"])
def test_a_user_can_name_one_source(tmp_path: Path, where: str) -> None:
    (source,) = pod_sources(where, ServiceAccount(tmp_path, {}), tmp_path)
    assert source.name in {where, "API server"}


@pytest.mark.parametrize(
    "text", ["http://", "http://a:b/pods", "http://a:99999/pods", "ftp://a/pods", "http://a/\r\nx", "http://a/ b"]
)
def test_other_urls_are_refused_with_what_is_allowed(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"allowed is auto, none, api-server, a directory of manifests"):
        pod_sources(text, ServiceAccount(tmp_path, {}), tmp_path)


def test_without_an_https_source_ssl_is_not_imported() -> None:
    """The daemon blocks it when it starts; TLS unblocks it."""
    code = (
        "import sys; sys.modules['ssl'] = None\n"
        "import pinfold.daemon.parts.pods, pinfold.kubernetes.tls as tls\n"
        "assert sys.modules['ssl'] is None and '_ssl' not in sys.modules\n"
        "assert tls._ssl().MemoryBIO\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
