"""The parts of a daemon on a Kubernetes node: what it refuses to start with, and what it warns of."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.presets import from_shape
from pinfold.daemon.parts.common import Basis
from pinfold.daemon.parts.pods import kube_parts
from pinfold.errors import ConfigError
from pinfold.manager.telling.bus import Bus
from pinfold.node.grouperrors import KindUnavailableError
from pinfold.node.podgroups.groups import find_driver
from pinfold.settings.settings import add_arguments, read_settings
from tests.needs import lacking

if TYPE_CHECKING:
    from pathlib import Path

MACHINE = from_shape("cores:4")


def basis(directory: Path, *flags: str) -> Basis:
    """Return what a daemon would start with under these flags."""
    try:
        find_driver()
    except KindUnavailableError as error:
        lacking(str(error))
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    places = ["--state-dir", str(directory / "state"), "--kubelet-dir", str(directory)]
    arguments = parser.parse_args(["--runtime", "nri", "--reserved-cpus", "0", *places, *flags])
    chosen = read_settings(arguments, MACHINE, environment={}, uid=0)
    chosen.state_dir.mkdir(mode=0o700)
    return Basis(chosen, MACHINE, chosen.config.build(MACHINE), Bus(time.time))


def test_a_cgroup_root_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--cgroup-root /no/such/group: there is no such cgroup below /sys/fs"):
        asyncio.run(kube_parts(basis(tmp_path, "--cgroup-root", "/no/such/group")))


def test_a_kubelet_that_reserves_other_cpus_is_told(tmp_path: Path) -> None:
    text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nreservedSystemCPUs: '1'\n"
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "cpu_manager_state").write_text("it only watches, so nothing of this host is changed")
    found = basis(tmp_path)
    asyncio.run(kube_parts(found))
    warnings = [str(entry.fields["text"]) for entry in found.bus.after(0) if entry.what == "warning"]
    (told,) = [text for text in warnings if "reserves" in text]
    assert told.startswith(f"the kubelet reserves CPUs 1 ({tmp_path}/config.yaml), pinfold reserves CPUs 0; ")
