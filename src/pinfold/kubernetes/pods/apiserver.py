"""The pods of this node at the API server: asked for by a list, followed by a watch.

A watch begins at resourceVersion 0: the server sends all pods, one line each, and then the changes, so that no more
than one pod is in memory as text. After a lost connection the watch goes on where it was. It begins again where the
server cannot do that (410 Gone), and after a watch in which nothing came, not even a bookmark: then the version may be
newer than the server, which was restored from a backup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.kubernetes.http import HTTPClient, HTTPStatusError
from pinfold.kubernetes.pods.items import change_of, find_in, items_of, metadata_of, parse_object

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from pinfold.core.pods.pod import Pod
    from pinfold.formats.pods.runtime import RuntimePod
    from pinfold.kubernetes.account import ServiceAccount
    from pinfold.kubernetes.pods.base import Found, PodChange

_PAGE: Final = 50
"""Pods in one answer: about 250 KB."""
_WATCH: Final = 600
"""Seconds until the server ends a watch."""
_SILENCE: Final = 180.0
"""The server sends a bookmark about once a minute; one that sends nothing for so many seconds is gone."""
_GONE: Final = 410
_BEGINNING: Final = "0"


class APIServer:
    """Asks the API server with a service account."""

    name = "API server"

    def __init__(self, account: ServiceAccount) -> None:
        self._account = account
        self._version = _BEGINNING

    def is_there(self) -> bool:
        """Return whether we have a service account."""
        return self._account.exists

    async def find(self, pods: Sequence[RuntimePod]) -> Found:
        """Return those of *pods* that the API server knows: one by its name, more by a list of the node."""
        only = f",metadata.name={pods[0].name}" if len(pods) == 1 else ""
        found: dict[str, Pod] = {}
        more = {"limit": str(_PAGE)}
        while True:
            page = parse_object(await self._client().send("GET", self._target(only, **more)), self.name)
            found |= find_in(items_of(page), pods, self.name)
            more["continue"] = str(metadata_of(page).get("continue", ""))
            if not more["continue"] or len(found) == len(pods):
                return found

    async def changes(self) -> AsyncIterator[PodChange | None]:
        """Yield all pods, and then the changes, until the watch ends."""
        if self._version == _BEGINNING:
            yield None
        options = {"resourceVersion": self._version, "allowWatchBookmarks": "true", "timeoutSeconds": str(_WATCH)}
        try:
            async with self._client().lines(self._target(watch="1", **options), silence=_SILENCE) as lines:
                self._version = _BEGINNING
                async for line in lines:
                    event = parse_object(line, self.name)
                    item = event.get("object")
                    if event.get("type") == "ERROR" or not isinstance(item, dict):
                        self._version = _BEGINNING
                        return
                    self._version = str(metadata_of(item).get("resourceVersion", _BEGINNING))
                    if event["type"] != "BOOKMARK":
                        yield change_of(item, gone=event["type"] == "DELETED")
        except HTTPStatusError as error:
            if error.status == _GONE:
                self._version = _BEGINNING
            raise

    def _client(self) -> HTTPClient:
        return HTTPClient(self._account.api_server())

    def _target(self, only: str = "", **options: str) -> str:
        from urllib.parse import quote  # noqa: PLC0415 - only where there is an API server

        selector = quote(f"spec.nodeName={self._account.node()}{only}")
        return "&".join(
            [f"/api/v1/pods?fieldSelector={selector}", *(f"{name}={quote(value)}" for name, value in options.items())]
        )
