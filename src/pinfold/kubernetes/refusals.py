"""Refusals: fails refused pods at the API server, as a kubelet would, with a bound on controllers that make new ones.

The API server accepts any change of a pod's status, but a kubelet writes its own status back within 10 s. It obeys if
the same request also changes an annotation: then it sees a new pod that has failed, and ends it.

The controller of a failed pod makes another one at once and without back-off (kubernetes#84869). So after each failed
pod of a controller, the next ones stay Pending for a while, twice as long each time.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.events.about import PodName
from pinfold.core.events.daemon import PodFailed, PodNotFailed
from pinfold.errors import PinfoldError
from pinfold.kubernetes.http import Body, HTTPClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.core.events import Event
    from pinfold.core.pods.pod import Pod
    from pinfold.errors import AdmissionError
    from pinfold.kubernetes.account import ServiceAccount

WITHIN: Final = 0.5
"""Seconds that a refusal waits for the API server; after that the request goes on without it."""
FIRST: Final = 10.0
MOST: Final = 300.0
"""Seconds between two failed pods of one controller: at first, and at most."""
_FORGOTTEN_AFTER: Final = 2 * MOST
_ANNOTATION: Final = "pinfold.dev/refused"
_MERGE: Final = "application/merge-patch+json"
_JSON: Final = "application/json"


class _Owner(NamedTuple):
    """A controller, and how many of its pods were failed."""

    failed: int
    since: float
    """When the last one was failed."""

    @property
    def next(self) -> float:
        """When the next one may be failed."""
        return self.since + min(FIRST * 2 ** (self.failed - 1), MOST) if self.failed else 0.0


class Refusals:
    """Fails pods, with a service account that may patch `pods/status` and create `events`."""

    def __init__(
        self, account: ServiceAccount, tell: Callable[[Event], object], clock: Callable[[], float] = time.time
    ) -> None:
        self._account = account
        self._tell = tell
        self._clock = clock
        self._owners: dict[tuple[str, str], _Owner] = {}
        """By namespace, kind and name."""
        self._reported: dict[str, float] = {}
        """When pods were failed or an event about them was made, by UID: a kubelet tries again every few seconds."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def fail(self, pod: Pod, refusal: AdmissionError) -> None:
        """Fail a pod, or let it wait; return after half a second, also if the API server has not answered."""
        task = asyncio.create_task(self._fail(pod, refusal))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait([task], timeout=WITHIN)

    async def _fail(self, pod: Pod, refusal: AdmissionError) -> None:
        self._forget()
        is_new = pod.uid not in self._reported
        self._reported[pod.uid] = now = self._clock()
        key = (pod.namespace, pod.owner or pod.uid)
        owner = self._owners.get(key, _Owner(0, 0.0))
        try:
            if now >= owner.next:
                await self._fail_now(pod, refusal, key, owner._replace(failed=owner.failed + 1, since=now))
            elif is_new:
                wait = f"pinfold has failed {owner.failed} of {pod.owner}, and waits {owner.next - now:.0f} s"
                await self._warn(pod, refusal, f"the pod stays Pending: {wait}")
        except PinfoldError as error:
            if is_new:
                self._tell(PodNotFailed(PodName.of(pod), str(error)))

    async def _fail_now(self, pod: Pod, refusal: AdmissionError, key: tuple[str, str], owner: _Owner) -> None:
        await self._patch(pod, refusal)
        self._owners[key] = owner
        self._tell(PodFailed(PodName.of(pod), refusal.reason, pod.owner))
        wait = f"the next refused pod of {pod.owner} stays Pending for {owner.next - owner.since:.0f} s"
        await self._warn(pod, refusal, wait if pod.owner else "")

    def _forget(self) -> None:
        """Forget controllers whose wait ended long ago."""
        old = self._clock() - _FORGOTTEN_AFTER
        self._owners = {key: owner for key, owner in self._owners.items() if owner.since > old}
        self._reported = {uid: since for uid, since in self._reported.items() if since > old}

    async def _patch(self, pod: Pod, refusal: AdmissionError) -> None:
        """Set the status that a kubelet sets; the UID is a precondition: there may be another pod of this name."""
        status = {"phase": "Failed", "reason": refusal.reason, "message": f"Pod was rejected: {refusal.message}"}
        metadata = {"uid": pod.uid, "annotations": {_ANNOTATION: _stamp(self._clock())}}
        target = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status?fieldManager=pinfold"
        await self._send("PATCH", target, _MERGE, {"metadata": metadata, "status": status})

    async def _warn(self, pod: Pod, refusal: AdmissionError, more: str) -> None:
        """Make a Warning event on the pod, with the kubelet's words first."""
        names = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        now = _stamp(self._clock())
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{pod.name}.", "namespace": pod.namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", **names},
            "type": "Warning",
            "reason": refusal.reason,
            "message": f"{refusal.message}; {more}" if more else refusal.message,
            "source": {"component": "pinfold", "host": self._account.node()},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self._send("POST", f"/api/v1/namespaces/{pod.namespace}/events?fieldManager=pinfold", _JSON, event)

    async def _send(self, method: str, target: str, kind: str, document: dict[str, object]) -> None:
        body = Body(kind, json.dumps(document).encode())
        await HTTPClient(self._account.api_server()).send(method, target, body)


def _stamp(now: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
