"""Which clients may read what: none can change anything, and only this host can read, unless a flag allows more."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest

from tests.e2e.api.client import Web, simulated
from tests.e2e.daemon import container, pod, wait_for

if TYPE_CHECKING:
    from tests.e2e.daemon import Daemon


# -- read-only, and only for this host


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
@pytest.mark.parametrize("path", ["/", "/api/v1/pools", "/v1/pods", "/v1/pods/default/web", "/events", "/nothing"])
def test_nothing_can_be_changed(seen: Web, node: Daemon, method: str, path: str) -> None:
    before = node.containers()
    answer = seen.ask(path, method, body=b"{}")
    assert (answer.status, answer.data["reason"]) == (405, "MethodNotAllowed")
    assert answer.headers["allow"] == "GET, HEAD"
    assert node.containers() == before


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.7:9440", "a b", "[::2]"]
)
def test_requests_under_another_name_are_not_for_us(seen: Web, host: str) -> None:
    for path in ("/", "/api/v1/containers", "/events", "/metrics"):
        assert seen.ask(path, Host=host).status == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:9440"])
def test_this_host_has_several_names(seen: Web, host: str) -> None:
    assert seen.ask("/api/v1/pools", Host=host).status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://localhost", "http://localhost:1", ""])
def test_pages_of_others_may_not_ask(seen: Web, origin: str) -> None:
    for path in ("/api/v1/containers", "/events"):
        answer = seen.ask(path, Host="localhost", Origin=origin)
        assert (answer.status, answer.data["reason"]) == (403, "Forbidden")
    assert seen.ask("/api/v1/pools", Host="localhost", Origin="http://localhost").status == 200


# -- where it listens


def test_an_address_that_others_can_reach_is_refused_in_one_line() -> None:
    with simulated() as daemon:
        for address in ("0.0.0.0:0", ":0", "[::]:0"):
            ended = daemon.try_to_start("--listen", address)
            assert (ended.returncode, ended.stdout) == (2, "")
            assert "--allow-remote-read" in ended.stderr
            assert "--listen" in ended.stderr
            assert ended.stderr.count("\n") == 1


def test_others_may_read_if_that_is_said_but_only_under_an_address_or_our_name() -> None:
    with simulated() as daemon:
        web = Web(daemon.start("--listen", "0.0.0.0:0", "--allow-remote-read"))
        web.host = "127.0.0.1"
        assert web.ask("/api/v1/pools", Host=f"10.1.2.3:{web.port}").status == 200
        assert web.ask("/api/v1/pools", Host=socket.gethostname()).status == 200
        assert web.ask("/api/v1/pools", Host="evil.example").status == 421
        assert web.ask("/v1/pods", "POST", body=b"{}", Host="10.1.2.3").status == 405


def test_the_page_of_any_loopback_address_can_be_opened_as_it_is_printed() -> None:
    with simulated() as daemon:
        web = Web(daemon.start("--listen", "127.0.0.2:0"))
        assert web.ask("/", Host=f"127.0.0.2:{web.port}").status == 200
        assert web.ask("/api/v1/pools", Host="127.0.0.3").status == 421


def test_names_that_are_allowed_are_served_and_no_others() -> None:
    with simulated() as daemon:
        names = ("--allow-host", "Node-7.example", "--allow-host", "pinfold.monitoring.svc")
        web = Web(daemon.start("--listen", "0.0.0.0:0", "--allow-remote-read", *names))
        web.host = "127.0.0.1"
        for host in ("node-7.example", "NODE-7.example:9440", "pinfold.monitoring.svc"):
            assert web.ask("/api/v1/pools", Host=host).status == 200
        refused = web.ask("/api/v1/pools", Host="evil.example")
        assert refused.status == 421
        assert "--allow-host" in refused.data["message"]


def test_a_name_that_is_none_ends_the_start_in_one_line() -> None:
    with simulated() as daemon:
        ended = daemon.try_to_start("--allow-host", "node-7:9440")
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "--allow-host" in ended.stderr
        assert ended.stderr.count("\n") == 1


# -- whether it is ready


def free_port() -> int:
    """Return a port that no program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def is_healthy(web: Web) -> bool:
    """Return whether a daemon listens, and says that it is alive."""
    with suppress(ConnectionRefusedError):
        return web.ask("/healthz").status == 200
    return False


@pytest.mark.parametrize("runtime", ["nri", "cri"])
def test_a_daemon_that_cannot_reach_its_runtime_is_alive_but_not_ready(runtime: str) -> None:
    with simulated() as daemon:
        daemon.options = ["--reserved-cpus", "0", "--runtime", runtime, "--kubelet-dir", str(daemon.place.directory)]
        address = f"127.0.0.1:{free_port()}"
        daemon.launch(f"--{runtime}-socket", str(daemon.place.directory / "missing.sock"), "--listen", address)
        daemon.ready = f"page http://{address}/"  # it prints no line before it is ready
        web = Web(daemon)
        wait_for(lambda: is_healthy(web), "it is alive")
        unready = web.ask("/readyz")
        assert (unready.status, unready.data["reason"]) == (503, "NotReady")
        assert "closed" in unready.data["message"]
        assert f'pinfold_runtime_connected{{runtime="{runtime}"}} 0' in web.ask("/metrics").body.decode()


def test_a_daemon_without_a_page_serves_the_control_socket_alone() -> None:
    with simulated() as daemon:
        daemon.start("--listen", "none")
        assert "page" not in daemon.ready
        assert daemon.containers() == []


def test_the_port_that_was_picked_is_printed(daemon: Daemon, web: Web) -> None:
    assert web.port not in {0, 9440}
    assert f"127.0.0.1:{web.port}" in daemon.ready
    assert web.ask("/healthz").status == 200


def test_a_given_port_that_is_taken_ends_the_start_in_one_line() -> None:
    with simulated() as daemon, socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = daemon.try_to_start("--listen", address)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert address in ended.stderr
        assert "in use" in ended.stderr
        assert ended.stderr.strip().count("\n") == 0
        assert not daemon.socket.exists()
        assert daemon.start().containers() == []


def test_the_usual_port_being_taken_is_a_warning_and_the_daemon_runs_on() -> None:
    with simulated() as daemon, ExitStack() as stack:
        with suppress(OSError):  # another program has it already: just as well
            stack.enter_context(socket.create_server(("127.0.0.1", 9440)))
        daemon.where = daemon.where[: daemon.where.index("--listen")]
        daemon.start()
        assert "page" not in daemon.ready
        wait_for(lambda: re.search(r"event=warning .*9440.*in use", daemon.said()), "the log says so")
        assert daemon.apply(pod("web", container(cpus=1)))[0]["cpus"]
