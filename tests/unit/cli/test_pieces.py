"""Large files of pods in pieces: every pod, in order, in pieces that a daemon reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pinfold.cli.asking.client import Client
from pinfold.cli.asking.pieces import apply_in_pieces, pieces
from pinfold.formats.fields import DocumentError
from pinfold.formats.pods.manifest import PodDocuments, PodRoom, parse_pods

POD = """kind: Pod
metadata: {name: %s, labels: {app: "%s"}}
spec:
  containers:
  - name: app
    command: [sleep, "1"]
    resources: {limits: {cpu: "2", memory: 1Gi, nvidia.com/gpu: 1}}
"""


def pods_of(*names: str, label: str = "x") -> str:
    return "---\n".join(POD % (name, label) for name in names)


def file_of(text: str, source: str = "pods.yaml") -> dict[str, str]:
    return {"source": source, "text": text, "directory": "/home"}


class Asked(Client):
    """A client that keeps what it is asked to send."""

    def __init__(self) -> None:
        super().__init__(Path("/none"))
        self.sent: list[tuple[str, dict[str, Any]]] = []  # Any: JSON

    def post(self, path: str, body: dict[str, object]) -> Any:  # noqa: ANN401 - JSON
        self.sent.append((path, body))
        room = PodRoom.small()
        texts = [file["text"] for file in self.sent[-1][1]["files"]]
        found = [pod for text in texts for pod in parse_pods(text, room=room, to_run=True).pods]
        return {"pods": [{"pod": pod.name} for pod in found], "ignored": ["x"], "warnings": ["y"]}


def test_a_thousand_pods_come_in_order_and_are_checked_before_the_first_is_started() -> None:
    names = [f"p{number}" for number in range(1000)]
    client = Asked()
    answer = apply_in_pieces(client, [file_of(pods_of(*names))])
    assert [row["pod"] for row in answer["pods"]] == names
    assert (answer["ignored"], answer["warnings"]) == ([], [])
    paths = [path for path, _ in client.sent]
    assert paths == ["/v1/pods?dry_run=true"] * (len(paths) // 2) + ["/v1/pods"] * (len(paths) // 2)
    assert len(paths) > 2


def test_pods_are_the_same_after_they_were_sent() -> None:
    text = pods_of("a", "b", label="é")
    [body] = pieces([(file_of(text), parse_pods(text))])
    [file] = json.loads(json.dumps(body))["files"]
    assert parse_pods(file["text"]).pods == parse_pods(text).pods
    assert (file["source"], file["directory"]) == ("pods.yaml", "/home")


def test_pods_of_one_name_in_two_files_stay_apart() -> None:
    texts = pods_of("a"), pods_of("a", label="other")
    [body] = pieces([(file_of(text), parse_pods(text)) for text in texts])
    assert isinstance(body["files"], list)
    assert len(body["files"]) == 2


def test_pods_with_many_values_come_in_more_pieces() -> None:
    items = ", ".join('"x"' for _ in range(4000))
    text = "---\n".join((POD % (name, "x")).replace('"1"', items) for name in "abc")
    bodies = [*pieces([(file_of(text), parse_pods(text))])]
    assert len(bodies) == 2


def test_without_pods_nothing_is_sent() -> None:
    assert [*pieces([(file_of(""), PodDocuments((), ()))])] == []


def test_problems_of_all_files_are_told_with_file_and_line_and_nothing_is_sent() -> None:
    client = Asked()
    with pytest.raises(DocumentError) as caught:
        apply_in_pieces(client, [file_of(pods_of("a"), "a.yaml"), file_of("b: c: d", "b.yaml"), file_of("", "c.yaml")])
    assert [str(problem).partition(" mapping")[0] for problem in caught.value.problems] == [
        "b.yaml: document 1: line 1:",
        "c.yaml: is empty; Kubernetes YAML or JSON with pods is expected",
    ]
    assert client.sent == []
