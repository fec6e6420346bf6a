"""A refused container fails its pod at the API server, from inside the call that is refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pinfold.core.config import Config
from pinfold.core.pods.pod import Pod, PodUID
from pinfold.errors import PinfoldError
from pinfold.kubernetes.pods.apiserver import APIServer as Feed
from pinfold.kubernetes.pods.watched import WatchedPods
from pinfold.kubernetes.refusals import Refusals
from tests.contract.stands import EIGHT, FIRST, PodStand
from tests.property.strategies import pinned
from tests.support.apiserver import APIServer
from tests.support.cluster import account, api_pod, certificate

if TYPE_CHECKING:
    from pathlib import Path

GREEDY = Pod(PodUID("u-greedy"), "greedy", containers=(pinned(8, "app"),), owner="ReplicaSet/greedy")
WORDS = (
    "Allocate failed due to not enough cpus available to satisfy request: requested=8, available=7, which is unexpected"
)


async def run_on(server: APIServer, stand: PodStand) -> str:
    """Run the greedy pod, which is refused; return what the kubelet hears."""
    await server.put(api_pod(GREEDY, owner=GREEDY.owner))
    await stand.open()
    try:
        with pytest.raises(PinfoldError) as caught:
            await stand.run(GREEDY)
        async with asyncio.timeout(10):
            while not server.events:  # noqa: ASYNC110 - the stand-in has no event for it
                await asyncio.sleep(0.01)
    finally:
        await stand.close()
    return str(caught.value)


def stand_of(server: APIServer, directory: Path, cert: Path, *, nri: bool) -> PodStand:
    service = account(directory / "account", server, trusted=cert)
    stand = PodStand(Config("static", reserved=FIRST), EIGHT, nri=nri, sources=[WatchedPods(Feed(service))])
    stand.on_refusal = Refusals(service, lambda _event: None).fail
    return stand


@pytest.mark.parametrize("nri", [True, False], ids=["nri", "cri"])
def test_a_refused_pod_is_failed_with_the_kubelets_reason_and_message(tmp_path: Path, *, nri: bool) -> None:
    async def run() -> None:
        cert = certificate(tmp_path)
        async with APIServer().serving(cert) as server:
            said = await run_on(server, stand_of(server, tmp_path, cert, nri=nri))
            assert "not enough cpus" in said
            status = server.pods["default", "greedy"]["status"]
            expected = {"reason": "UnexpectedAdmissionError", "message": f"Pod was rejected: {WORDS}"}
            assert status == {"phase": "Failed", **expected}

    asyncio.run(run())
