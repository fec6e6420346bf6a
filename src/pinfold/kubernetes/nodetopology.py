"""NodeTopology: keeps the node's NodeResourceTopology object at the API server current, and removes it at the end.

Server-side apply without force: where another program publishes the node's topology, the API server refuses, pinfold
reports it and does not fight.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

from pinfold.core.events.daemon import TopologyNotPublished
from pinfold.errors import PinfoldError
from pinfold.formats.kubelet.nodetopology import API_VERSION
from pinfold.kubernetes.http import Body, HTTPClient, HTTPStatusError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.core.events import Event
    from pinfold.kubernetes.account import ServiceAccount

EVERY: Final = 5.0
"""Seconds between two requests, at least."""
_AFTER_FAILURE: Final = 60.0
_AGAIN: Final = 600.0
"""Seconds after which it is sent again unchanged, in case another program has removed it."""
_APPLY: Final = "application/apply-patch+yaml"
_NOT_FOUND: Final = 404


class NodeTopology:
    """Publishes what *describe* returns for the node's name, when it has changed; None: nothing is to be published."""

    def __init__(
        self,
        account: ServiceAccount,
        describe: Callable[[str], dict[str, object] | None],
        tell: Callable[[Event], object],
        *,
        every: float = EVERY,
    ) -> None:
        self._account = account
        self._describe = describe
        self._tell = tell
        self._every = every
        self._clock = asyncio.get_running_loop().time
        self._published: dict[str, object] = {}
        self._again = 0.0
        self._problem = ""

    async def follow(self) -> None:
        """Look at intervals whether the topology has changed, and publish it then; for ever."""
        while True:
            done = await self.publish()
            await asyncio.sleep(self._every if done else max(self._every, _AFTER_FAILURE))

    async def publish(self) -> bool:
        """Publish the topology if it has changed; return whether the API server has it, and report once why not."""
        try:
            wanted = self._describe(self._account.node())
            if wanted is None:
                await self.withdraw()
            elif wanted != self._published or self._clock() > self._again:
                await self._send("PATCH", "?fieldManager=pinfold", Body(_APPLY, json.dumps(wanted).encode()))
                self._published, self._problem, self._again = wanted, "", self._clock() + _AGAIN
        except HTTPStatusError as error:
            advice = "; install the NodeResourceTopology CRD" if error.status == _NOT_FOUND else ""
            self._report(f"{error}{advice}")
            return False
        except PinfoldError as error:
            self._report(str(error))
            return False
        return True

    async def withdraw(self) -> None:
        """Remove the object, if it is ours; report a failure."""
        if not self._published:
            return
        try:
            await self._send("DELETE")
        except HTTPStatusError as error:
            if error.status != _NOT_FOUND:
                self._report(str(error))
        except PinfoldError as error:
            self._report(str(error))
        self._published = {}

    def _report(self, why: str) -> None:
        if why != self._problem:
            self._problem = why
            self._tell(TopologyNotPublished(why))

    async def _send(self, method: str, query: str = "", body: Body | None = None) -> None:
        target = f"/apis/{API_VERSION}/noderesourcetopologies/{self._account.node()}{query}"
        await HTTPClient(self._account.api_server()).send(method, target, body)
