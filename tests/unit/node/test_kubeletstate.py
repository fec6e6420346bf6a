"""Whether a kubelet manages CPUs itself: its file, and what it says over HTTP."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Literal

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import PodUID
from pinfold.core.state import State
from pinfold.formats.kubelet.checkpoint import format_checkpoint
from pinfold.node.kubeletstate import FILE, ask_policy, find_kubelet, other_reservation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STATE = State(CPUSet.parse("0,2-3"), {PodUID("u1"): {"app": CPUSet.of(1)}})
CLOSED = 1


@pytest.fixture
def kubelet() -> Iterator[tuple[int, list[bytes]]]:
    """Return the port of a kubelet, and what it answers."""
    said = [b'{"kubeletconfig": {"cpuManagerPolicy": "static"}}']

    class Kubelet(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(said[0])))
            self.end_headers()
            self.wfile.write(said[0])

        def log_message(self, *_arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Kubelet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port, said
        server.shutdown()
        thread.join()


def test_without_a_file_and_without_an_answer_there_is_none(tmp_path: Path) -> None:
    assert find_kubelet(tmp_path, CLOSED) is None


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_static_kubelet_is_found_by_its_file(tmp_path: Path, version: Literal[2, 3, 4]) -> None:
    (tmp_path / FILE).write_text(format_checkpoint("static", STATE, version=version))
    found = find_kubelet(tmp_path, CLOSED)
    assert found is not None
    assert (found.policy, found.state) == ("static", STATE)


@pytest.mark.parametrize(("policy", "manages"), [("static", True), ("none", False), ("nonsense", False)])
def test_a_kubelet_that_is_to_be_static_is_found_by_its_configuration(
    tmp_path: Path, policy: str, *, manages: bool
) -> None:
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    (tmp_path / "config.yaml").write_text(f"{head}cpuManagerPolicy: {policy}\n")
    assert (find_kubelet(tmp_path, CLOSED) is not None) == manages


def test_a_kubelet_with_policy_none_manages_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(format_checkpoint("none", State(CPUSet())))
    assert find_kubelet(tmp_path, CLOSED) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"data": 1}', "[" * 5000])
def test_a_file_that_cannot_be_read_counts_as_a_kubelets(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    found = find_kubelet(tmp_path, CLOSED)
    assert found is not None
    assert found.state is None
    assert found.problem


def test_a_static_kubelet_is_found_by_what_it_says(tmp_path: Path, kubelet: tuple[int, list[bytes]]) -> None:
    port, said = kubelet
    found = find_kubelet(tmp_path, port)
    assert found is not None
    assert found.state is None
    said[0] = b'{"kubeletconfig": {"cpuManagerPolicy": "none"}}'
    assert find_kubelet(tmp_path, port) is None


@pytest.mark.parametrize("answer", [b"", b"{", b"[]", b"null", b'{"kubeletconfig": []}', b"[" * 5000, b"\xff"])
def test_nonsense_is_no_answer(kubelet: tuple[int, list[bytes]], answer: bytes) -> None:
    port, said = kubelet
    said[0] = answer
    assert ask_policy(port) is None


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ("reservedSystemCPUs: 0-1\n", None),
        ("reservedSystemCPUs: 0,2\n", "CPUs 0,2"),
        ("kubeReserved: {cpu: 1500m}\n", None),
        ("kubeReserved: {cpu: 500m}\n", "1 CPUs"),
        ("", "0 CPUs"),
    ],
    ids=["the same", "others", "as many", "fewer", "none"],
)
def test_other_reserved_cpus_in_the_kubelets_configuration_are_told(
    tmp_path: Path, fields: str, told: str | None
) -> None:
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    (tmp_path / "config.yaml").write_text(head + fields)
    assert other_reservation(tmp_path, CPUSet.parse("0-1")) == told
    assert other_reservation(tmp_path / "missing", CPUSet.parse("0-1")) is None
