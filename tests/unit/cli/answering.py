"""Something that answers on a control socket as a daemon of any kind would."""

from __future__ import annotations

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import UnixStreamServer
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@contextmanager
def answering(path: Path, answers: Mapping[str, object]) -> Iterator[str]:
    """Answer what is asked for below /v1; yield the socket."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answers[self.path.removeprefix("/v1/")]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

        def address_string(self) -> str:
            return ""

    with UnixStreamServer(str(path), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield str(path)
        finally:
            server.shutdown()
            thread.join()
            path.unlink()
