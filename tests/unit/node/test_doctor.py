from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pinfold.cli.main import main
from pinfold.node.doctor import Finding, Health, examine

if TYPE_CHECKING:
    from pathlib import Path


def found(root: Path, about: str, uid: int = 0) -> Finding:
    return next(finding for finding in examine(root, uid) if finding.what.startswith(f"{about}:"))


def put(root: Path, name: str, text: str = "") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_host_without_cpusets_fails_and_one_with_version_2_is_ok(tmp_path: Path) -> None:
    assert found(tmp_path, "cgroups").health is Health.FAIL
    (tmp_path / "sys/fs/cgroup/cpuset").mkdir(parents=True)
    assert found(tmp_path, "cgroups").health is Health.WARN
    put(tmp_path, "sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory\n")
    assert found(tmp_path, "cgroups") == Finding(Health.OK, "cgroups: version 2, with cpuset, cpu, io, memory")


@pytest.mark.parametrize(
    ("file", "text", "about"),
    [
        ("var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\ncpuManagerPolicy: static\n", "kubelet"),
        ("sys/devices/system/cpu/isolated", "2-3\n", "isolated CPUs"),
        ("sys/fs/cgroup/kubepods/cpu.stat", "usage_usec 5\nnr_throttled 7\n", "throttling"),
        ("proc/cpuinfo", "flags : fpu cat_l3 sse\n", "resctrl"),
    ],
)
def test_what_needs_attention_is_a_warning_with_a_fix(tmp_path: Path, file: str, text: str, about: str) -> None:
    assert found(tmp_path, about).health is Health.OK
    put(tmp_path, file, text)
    finding = found(tmp_path, about)
    assert finding.health is Health.WARN
    assert finding.fix


def test_a_user_who_is_not_root_is_told_what_that_means(tmp_path: Path) -> None:
    assert found(tmp_path, "permission", uid=1000).health is Health.WARN
    assert found(tmp_path, "permission").health is Health.OK


def test_sockets_of_runtimes_are_named(tmp_path: Path) -> None:
    put(tmp_path, "run/containerd/containerd.sock")
    assert found(tmp_path, "container runtime").what == "container runtime: /run/containerd/containerd.sock"


def test_doctor_ends_with_1_if_something_fails_and_fits_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["doctor", "--sysroot", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("fail  cgroups: ")
    assert max(map(len, lines)) <= 80
    put(tmp_path, "sys/fs/cgroup/cgroup.controllers", "cpuset cpu")
    assert main(["doctor", "--sysroot", str(tmp_path), "-o", "json"]) == 0
    assert {row["health"] for row in json.loads(capsys.readouterr().out)} <= {"ok", "warn"}
