"""The daemon does what its OpenAPI document says, and nothing else: schemathesis asks it, rightly and wrongly."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, Final

import pytest
import schemathesis
from hypothesis import settings

from pinfold.serve.openapi import document
from tests.e2e.daemon import PATIENCE, Daemon, container, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

MACHINES: Final = {
    "simulated": ("--runtime", "simulated", "--preset", "epyc-7303-2s"),
    "processes": ("--runtime", "processes"),
}
ENDLESS: Final = "/events"
"""What has no end, and so is asked by hand."""
HISTORY: Final = "/api/v1/history"
API: Final = schemathesis.openapi.from_dict(document()).exclude(path=ENDLESS)


@pytest.fixture(scope="module", params=MACHINES)
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return HOST:PORT of a daemon that has assigned, shared, refused and released."""
    simulated = request.param == "simulated"
    with Daemon(*MACHINES[request.param], kind="affinity" if simulated else None) as daemon:
        if simulated:
            daemon.groups = []  # nothing runs, so there is nothing to group
        daemon.start()
        daemon.apply(pod("gone"), pod("many", container(cpus=500)), pod("web", container(cpus=1)), pod("db"))
        daemon.delete("gone")
        yield daemon.ready.rpartition("http://")[2].strip().rstrip("/")
        assert daemon.is_alive
        assert "event=failed" not in daemon.said(), daemon.said()


@API.exclude(path=HISTORY).parametrize()
@settings(max_examples=20)
def test_every_answer_is_as_the_document_says(case: schemathesis.Case[Any], address: str) -> None:
    case.call_and_validate(base_url=f"http://{address}", timeout=PATIENCE)


@API.include(path=HISTORY).parametrize()
@settings(max_examples=20)
def test_history_is_as_the_document_says(case: schemathesis.Case[Any], address: str) -> None:
    case.call_and_validate(base_url=f"http://{address}", timeout=PATIENCE)


def test_the_document_that_is_served_is_the_one_that_is_tested(address: str) -> None:
    connection = HTTPConnection(address, timeout=PATIENCE)
    connection.request("GET", "/openapi.json")
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("content-type")) == (200, "application/json")
    assert json.load(answer) == document()
    connection.close()


def test_the_stream_of_events_is_of_the_type_that_the_document_says(address: str) -> None:
    connection = HTTPConnection(address, timeout=PATIENCE)
    connection.request("GET", ENDLESS)
    answer = connection.getresponse()
    said = document()["paths"][ENDLESS]["get"]["responses"][str(answer.status)]["content"]
    assert list(said) == [answer.getheader("content-type")]
    answer.close()
    connection.close()
