"""The live page: its files, read when a browser asks, and what a browser may do with them.

There is no build step, and nothing is fetched from another host: the files are served as they lie in `web/`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.serve.http.messages import HTTPError, Response

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the browser allows the page: our scripts, styles and API, and nothing else."""

_HEADERS: Final = (
    ("content-security-policy", POLICY),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
)
_KINDS: Final[Mapping[str, str]] = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_INDEX: Final = "index.html"
_STATIC: Final = "static"


class Page:
    """The files of the page.

    >>> page = Page()
    >>> page.response(()).kind, page.response(("static", "page.js")).status
    ('text/html; charset=utf-8', 200)
    >>> page.response(("static", "..", "page.py"))
    Traceback (most recent call last):
    pinfold.serve.http.messages.HTTPError: there is no /static/../page.py
    """

    def __init__(self) -> None:
        files = Path(__file__).with_name("web").iterdir()
        self._files: Final = {file.name: file for file in files if file.suffix.removeprefix(".") in _KINDS}

    @property
    def names(self) -> frozenset[str]:
        """The files that there are."""
        return frozenset(self._files)

    def serves(self, segments: Sequence[str]) -> bool:
        """Whether a path, in its segments, is one of the page's."""
        return self._found(segments) is not None

    def response(self, segments: Sequence[str]) -> Response:
        """Return the file at a path: the page itself at the root, everything else under `static`."""
        found = self._found(segments)
        if found is None:
            raise HTTPError(404, "NotFound", f"there is no /{'/'.join(segments)[:200]}")
        kind = _KINDS[found.suffix.removeprefix(".")]
        return Response(200, content=found.read_bytes(), kind=kind, headers=_HEADERS)

    def _found(self, segments: Sequence[str]) -> Path | None:
        match [part for part in segments if part] or [_STATIC, _INDEX]:
            case [folder, name] if folder == _STATIC:
                return self._files.get(name)
        return None
