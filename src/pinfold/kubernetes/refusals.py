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


class _Pod(NamedTuple):
    """What was reported about a pod; a kubelet tries again every few seconds."""

    since: float
    """When it was last refused."""
    reasons: frozenset[type[AdmissionError]] = frozenset()
    """The kinds of refusal that have an event; the numbers in a text change when other pods come and go."""
    trouble: bool = False
    """Whether it was reported that the API server did not do what it was asked for."""
    failed: bool = False


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
        self._pods: dict[str, _Pod] = {}
        """By UID."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """The requests under way, by the UID of the pod."""

    async def fail(self, pod: Pod, refusal: AdmissionError) -> None:
        """Fail a pod, or let it wait; return after half a second, also if the API server has not answered."""
        task = self._tasks.get(pod.uid)
        if task is None:
            task = self._tasks[pod.uid] = asyncio.create_task(self._fail(pod, refusal))
            task.add_done_callback(lambda _: self._tasks.pop(pod.uid))
        await asyncio.wait([task], timeout=WITHIN)

    async def _fail(self, pod: Pod, refusal: AdmissionError) -> None:
        self._forget()
        now = self._clock()
        known = self._pods[pod.uid] = self._pods.get(pod.uid, _Pod(now))._replace(since=now)
        try:
            await self._fail_or_wait(pod, refusal, now)
        except PinfoldError as error:
            if not known.trouble:
                self._tell(PodNotFailed(PodName.of(pod), str(error)))
            self._pods[pod.uid] = self._pods[pod.uid]._replace(trouble=True)

    async def _fail_or_wait(self, pod: Pod, refusal: AdmissionError, now: float) -> None:
        key = (pod.namespace, pod.owner or pod.uid)
        owner = self._owners.get(key, _Owner(0, 0.0))
        if now < owner.next:
            if not self._pods[pod.uid].failed:  # else the kubelet has not seen that yet
                waits = f"the pod stays Pending for {owner.next - now:.0f} s, then it fails unless there is room"
                await self._warn_once(pod, refusal, f"{waits}: pinfold has failed {owner.failed} of {pod.owner}")
            return
        await self._patch(pod, refusal)
        owner = self._owners[key] = _Owner(owner.failed + 1, now)
        self._pods[pod.uid] = self._pods[pod.uid]._replace(failed=True)
        self._tell(PodFailed(PodName.of(pod), refusal.reason, pod.owner))
        wait = f"the next refused pod of {pod.owner} stays Pending for {owner.next - now:.0f} s"
        await self._warn_once(pod, refusal, wait if pod.owner else "")

    async def _warn_once(self, pod: Pod, refusal: AdmissionError, more: str) -> None:
        """Make an event on the pod, unless there is one for this kind of refusal."""
        known = self._pods[pod.uid]
        if type(refusal) not in known.reasons:
            await self._warn(pod, refusal, more)
            self._pods[pod.uid] = known._replace(reasons=known.reasons | {type(refusal)})

    def _forget(self) -> None:
        """Forget controllers whose wait ended long ago, and pods that were not refused since."""
        old = self._clock() - _FORGOTTEN_AFTER
        self._owners = {key: owner for key, owner in self._owners.items() if owner.since > old}
        self._pods = {uid: pod for uid, pod in self._pods.items() if pod.since > old}

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
