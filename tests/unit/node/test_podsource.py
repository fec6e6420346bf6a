"""Pods from manifests: what is known, what is told when it cannot be read, and that it stays."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from pinfold.formats.pods.runtime import RuntimePod
from pinfold.node.podsource import PodDirectory

if TYPE_CHECKING:
    from pathlib import Path

POD = "{kind: Pod, metadata: {name: %s, uid: %s}, spec: {initContainers: [{name: setup}], containers: [{name: app}]}}"


def names(source: PodDirectory) -> list[str]:
    return sorted(pod.name for pod in source.read().pods.by_uid.values())


def test_manifests_in_yaml_and_json_are_read_and_other_files_are_not(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(POD % ("web", "u1") + "\n---\n" + POD % ("db", "u2"))
    document = {"kind": "Pod", "metadata": {"name": "log"}, "spec": {"containers": [{"name": "app"}]}}
    (tmp_path / "b.json").write_text(json.dumps(document))
    (tmp_path / "c.yml").write_text(POD % ("cron", "u3"))
    for other in (".hidden.yaml", "notes.txt", "d.yaml.swp"):
        (tmp_path / other).write_text("{")
    source = PodDirectory(tmp_path)
    assert names(source) == ["cron", "db", "log", "web"]
    assert source.read().problems == ()


def test_a_pod_is_found_by_uid_then_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(POD % ("web", "u1"))
    pods = PodDirectory(tmp_path).read().pods
    for known in (RuntimePod("s", "u1", "other", "x"), RuntimePod("s", "u9", "web", "default")):
        found = pods.find(known)
        assert found is not None
        assert [one.name for one in found.init] == ["setup"]
    assert pods.find(RuntimePod("s", "u9", "web", "other")) is None


def test_a_static_pod_is_found_without_the_name_of_the_node(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(POD % ("web", "u1") + "\n---\n" + POD % ("web-a", "u2"))
    pods = PodDirectory(tmp_path).read().pods
    static = RuntimePod("s", "0f3e", "web-a-node-1", "default", annotations={"kubernetes.io/config.source": "file"})
    found = pods.find(static)
    assert found is not None
    assert found.name == "web-a"
    assert pods.find(static._replace(annotations={})) is None
    assert pods.find(static._replace(annotations={"kubernetes.io/config.source": "api"})) is None


def test_a_changed_file_is_read_again_and_a_removed_one_is_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(POD % ("web", "u1"))
    source = PodDirectory(tmp_path)
    first = source.read().pods
    assert source.read().pods is first
    file.write_text(POD % ("shop", "u1"))
    os.utime(file, ns=(1, 1))
    assert names(source) == ["shop"]
    replacement = tmp_path / "new"
    replacement.write_text(POD % ("cafe", "u1"))
    os.utime(replacement, ns=(1, 1))
    replacement.rename(file)
    assert names(source) == ["cafe"]
    file.unlink()
    assert names(source) == []


def test_a_broken_file_is_a_problem_and_keeps_what_it_said_before(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(POD % ("web", "u1"))
    (tmp_path / "b.yaml").write_text(POD % ("db", "u2"))
    source = PodDirectory(tmp_path)
    assert names(source) == ["db", "web"]
    file.write_text("{kind: Pod, metadata: {name: web")
    reading = source.read()
    assert len(reading.problems) == 1
    assert reading.problems[0].startswith(f"{file}: document 1: ")
    assert source.read().problems == reading.problems
    assert names(source) == ["db", "web"]


@pytest.mark.parametrize("content", [b"\xff\xfe", b"kind: \0", b"{kind: Pod}", b"[" * 100_000])
def test_any_content_is_pods_or_a_problem_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.yaml").write_bytes(content)
    [problem] = PodDirectory(tmp_path).read().problems
    assert str(tmp_path / "a.yaml") in problem
    assert len(problem.splitlines()) == 1


def test_a_file_with_more_than_is_read_at_once_is_a_problem_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("\n---\n".join(POD % (f"p{number}", f"u{number}") for number in range(2000)))
    (tmp_path / "b.yaml").write_text(POD % ("web", "u1"))
    source = PodDirectory(tmp_path)
    [problem] = source.read().problems
    assert problem.startswith(f"{tmp_path}/a.yaml: document ")
    assert problem.endswith("more than 10,000 values, with aliases written out; split the file")
    assert names(source) == ["web"]


def test_any_file_name_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a\nb\udcff.yaml").write_text("{")
    [problem] = PodDirectory(tmp_path).read().problems
    assert "a\\nb\\udcff.yaml" in problem
    assert problem.encode()


def test_what_is_no_plain_file_is_a_problem_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "gone.yaml").symlink_to(tmp_path / "nowhere")
    problems = PodDirectory(tmp_path).read().problems
    assert len(problems) == 3


def test_a_missing_directory_is_a_problem_until_it_is_there(tmp_path: Path) -> None:
    source = PodDirectory(tmp_path / "pods")
    assert source.read().problems == (f"{tmp_path / 'pods'}: No such file or directory",)
    (tmp_path / "pods").mkdir()
    assert source.read().problems == ()


def test_the_first_of_two_pods_with_one_name_counts(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(POD % ("web", "u1"))
    (tmp_path / "b.yaml").write_text(POD % ("web", "u2"))
    found = PodDirectory(tmp_path).read().pods.find(RuntimePod("s", "u9", "web", "default"))
    assert found is not None
    assert found.uid == "u1"
