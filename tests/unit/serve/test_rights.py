"""What members of the socket's group may ask for: every other change is refused, also one that comes later."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pinfold.serve import control, rights
from pinfold.serve.http.messages import HTTPError, Peer, Request

MEMBER = Peer(1, 1000, 1000)
ROUTES = [
    ("POST", "v1/pods"),
    ("POST", "v1/pods/default/x/resize"),
    ("POST", "v1/run/run-x/attach"),
    ("POST", "v1/repack"),
    ("POST", "v1/reconfigure"),
    ("POST", "v1/shield"),
    ("POST", "v1/leave"),
    ("POST", "v1/run/run-x/attach/more"),
    ("POST", "v1"),
    ("DELETE", "v1/pods/default/x"),
    ("DELETE", "v1/run/run-x"),
    ("PUT", "v1/run"),
    ("PATCH", "v1/adopt"),
    ("post", "v1/run"),
]


def asked(method: str, path: str) -> Request:
    return Request(method, f"/{path}", {}, b"", MEMBER, {}, tuple(path.split("/")))


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=[f"{method} {path}" for method, path in ROUTES])
def test_a_member_may_change_nothing_but_processes_of_their_own(method: str, path: str) -> None:
    with pytest.raises(HTTPError, match="members of the socket's group may read") as refused:
        rights.check_member(asked(method, path), None)
    assert refused.value.status == 403


@pytest.mark.parametrize("path", ["v1/run", "v1/adopt"])
def test_a_member_may_run_and_adopt(path: str) -> None:
    rights.check_member(asked("POST", path), None)


def test_every_change_of_the_control_socket_is_in_this_list() -> None:
    source = Path(control.__file__).read_text()
    start = source.index("async def _change(")
    cases = re.findall(r"case \[(.*)\]", source[start : source.index("def node(")])
    words = {word for case in cases for word in re.findall(r'"(\w+)"', case)} | {"leave"}
    named = {part for _, path in ROUTES for part in path.split("/")} | {"adopt"}
    assert words <= named
