"""Asks a daemon over its control socket; turns its answer into a value, and a failure into a PinfoldError."""

from __future__ import annotations

import http.client
import json
import os
import socket
import stat
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pinfold.errors import ParseError, PinfoldError
from pinfold.settings.places import socket_path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

_SLOWEST = 30.0
_PART = 64 << 10
_ROOTS = socket_path({}, 0)


class NoDaemon(PinfoldError):  # noqa: N818 - the fact
    """No daemon answers on the socket."""

    exit_code = 3

    def __init__(self, path: Path, cause: OSError) -> None:
        if isinstance(cause, PermissionError):
            super().__init__(f"{path}: permission denied; {_remedy(path)}")
            return
        super().__init__(f"no daemon answers at {path} ({cause.strerror or cause}); start one: pinfold serve")


def _remedy(path: Path) -> str:
    """Return who may use a socket that this user may not use."""
    for place, needed in ((path, stat.S_IWGRP), (path.parent, stat.S_IXGRP)):
        with suppress(OSError, KeyError):  # if the directory is closed, its own mode tells; or a name is not known
            if place.stat().st_mode & needed:
                return f"ask {place.owner()} or join group {place.group()}"
            return f"ask {place.owner()}: the daemon serves others only if it is started with --socket-group"
    return "the daemon belongs to another user: call pinfold as that user"


class RefusedByDaemon(PinfoldError):  # noqa: N818 - the fact
    """The daemon says no."""

    exit_code = 4

    def __init__(self, answer: dict[str, Any]) -> None:  # Any: JSON of the daemon
        from pinfold.render.explanation import format_refusal  # noqa: PLC0415 - most answers need no explanation

        super().__init__(format_refusal(answer))
        self.answer = answer


_TYPED: Final = {"cpu": "--cpu", "cpus": "--cpus", "milli": "--cpus", "name": "--name", "pid": "PID"}
"""The fields of requests, as users type them."""


class WrongRequest(ParseError):  # noqa: N818 - the fact
    """The daemon cannot use what it was sent: *problems* has all that is wrong with it."""

    def __init__(self, answer: dict[str, Any], status: int) -> None:  # Any: JSON of the daemon
        field, colon, problem = str(answer.get("message", f"status {status}")).partition(": ")
        super().__init__(f"{_TYPED.get(field, field)}{colon}{problem}")
        self.problems = tuple(answer.get("problems", ()))


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float | None) -> None:
        super().__init__("pinfold")
        self._path = path
        self._timeout = timeout

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._timeout)
        try:
            self.sock.connect(str(self._path))
        except OSError as error:
            raise NoDaemon(self._path, error) from error


class Client:
    """A client of one daemon, for any number of requests."""

    def __init__(self, path: Path, slowest: float = _SLOWEST) -> None:
        self.path = path
        self._slowest = slowest

    @classmethod
    def of(cls, args: argparse.Namespace) -> Client:
        """Return the client for the socket that was named, or the usual one."""
        return cls(Path(args.socket) if args.socket else usual_socket(os.environ, os.geteuid()))

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON of the daemon
        """Return the resource at *path*."""
        return self._ask("GET", path)

    def post(self, path: str, body: dict[str, object]) -> Any:  # noqa: ANN401 - JSON of the daemon
        """Ask for a change."""
        return self._ask("POST", path, json.dumps(body).encode())

    def delete(self, path: str) -> Any:  # noqa: ANN401 - JSON of the daemon
        """Ask to delete something."""
        return self._ask("DELETE", path)

    def lines(self, path: str) -> Iterator[Any]:  # Any: JSON of the daemon
        """Yield the lines of a stream as they come, until the daemon ends or is killed in the middle of a line."""
        with self._stream(path) as response, suppress(http.client.HTTPException, ConnectionError, ValueError):
            for line in response:
                yield json.loads(line)

    def parts(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of a stream as they come, until the daemon ends."""
        with self._stream(path) as response, suppress(http.client.HTTPException, ConnectionError):
            _check(response.status, None if response.status == HTTPStatus.OK else json.loads(response.read()))
            while part := response.read1(_PART):
                yield part

    @contextmanager
    def _stream(self, path: str) -> Iterator[http.client.HTTPResponse]:
        connection = _Connection(self.path, None)
        connection.request("GET", path)
        try:
            yield connection.getresponse()
        finally:
            connection.close()

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Any:  # noqa: ANN401 - JSON of the daemon
        connection = _Connection(self.path, self._slowest)
        try:
            # A daemon that refuses a large body answers before it has read all of it.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, body)
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (http.client.HTTPException, TimeoutError, ConnectionError, ValueError) as error:
            raise NoDaemon(self.path, OSError(0, f"unusable answer: {error!r}")) from error
        finally:
            connection.close()
        _check(response.status, answer)
        return answer


def usual_socket(environment: Mapping[str, str], uid: int, roots: Path = _ROOTS) -> Path:
    """Return the socket of this user's daemon; that of root's daemon if only that one is there."""
    own = socket_path(environment, uid)
    named = "PINFOLD_SOCKET" in environment
    return roots if not named and not own.exists() and roots.parent.is_dir() else own


def _check(status: int, answer: Any) -> None:  # noqa: ANN401 - JSON of the daemon
    if status == HTTPStatus.CONFLICT:
        raise RefusedByDaemon(answer)
    if status >= HTTPStatus.BAD_REQUEST:
        raise WrongRequest(answer, status)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses between text and JSON."""
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")


def add_socket(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the daemon's socket."""
    parser.add_argument("--socket", metavar="PATH", help="the daemon's control socket (also PINFOLD_SOCKET)")
