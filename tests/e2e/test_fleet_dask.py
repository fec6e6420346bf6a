"""`pinfold fleet --dask` on a real Dask cluster of two worker processes on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import distributed
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = pytest.mark.slow

FLEET = """
nodes:
  - name: small
    count: 300
    machine: xeon-2s-64
    kubelet: {cpuManagerPolicy: static, topologyManagerPolicy: single-numa-node, reservedSystemCPUs: 0-1}
  - name: large
    count: 100
    machine: epyc-9654-2s-nps4
    kubelet: {cpuManagerPolicy: static, topologyManagerPolicy: restricted, reservedSystemCPUs: 0-1}
"""
PODS = """
{kind: Deployment, metadata: {name: web}, spec: {replicas: 3500, template: {spec: {containers:
  [{name: app, resources: {limits: {cpu: 6, memory: 1Gi}}}]}}}}
---
{kind: Deployment, metadata: {name: db}, spec: {replicas: 2300, template: {spec: {containers:
  [{name: app, resources: {limits: {cpu: 14, memory: 1Gi}}}, {name: log, resources: {limits: {cpu: 1, memory: 1}}}]}}}}
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    directory = tmp_path
    (directory / "fleet.yaml").write_text(FLEET)
    (directory / "pods.yaml").write_text(PODS)
    return [str(directory / "fleet.yaml"), str(directory / "pods.yaml")]


class Cluster:
    """A Dask scheduler of its own, and workers, each a process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "scheduler.json"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.start("dask_scheduler", "--host", "127.0.0.1", "--port", "0")

    def start(self, what: str, *arguments: str) -> None:
        command = [sys.executable, "-m", f"distributed.cli.{what}", "--scheduler-file", str(self.file)]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.processes.append(
            subprocess.Popen([*command, "--no-dashboard", *arguments], cwd=self.directory, **silent)  # type: ignore[call-overload] # two ints
        )

    def add_worker(self, *arguments: str) -> None:
        self.start("dask_worker", "--nthreads", "1", "--no-nanny", *arguments)

    def address(self, workers: int) -> str:
        """Return the address once so many workers are there."""
        client = distributed.Client(scheduler_file=str(self.file), timeout=60, set_as_default=False)  # type: ignore[no-untyped-call]  # it has no types
        with client:
            if workers:
                client.wait_for_workers(workers, timeout=60)
            return str(json.loads(self.file.read_text())["address"])

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
            process.wait(30)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    try:
        yield cluster
    finally:
        cluster.stop()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pinfold", "fleet", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_dask_cluster_gives_the_same_outcome_as_this_machine(cluster: Cluster, files: list[str]) -> None:
    for _ in range(2):
        cluster.add_worker()
    there = run(*files, "-o", "json", "--seed", "5", "--dask", cluster.address(workers=2))
    here = run(*files, "-o", "json", "--seed", "5", "--jobs", "1")
    assert there.stderr == here.stderr == ""
    assert there.stdout == here.stdout
    assert there.returncode == here.returncode == 1
    assert json.loads(there.stdout)["schedulers"][0]["shards"] == 2


def test_a_worker_without_pinfold_is_one_line(cluster: Cluster, files: list[str]) -> None:
    without = cluster.directory / "without.py"
    without.write_text("import sys\nsys.modules['pinfold'] = None\n")
    cluster.add_worker("--preload", str(without))
    address = cluster.address(workers=1)
    failed = run(*files, "--dask", address)
    assert failed.returncode == 2
    assert failed.stderr.startswith(f"pinfold: error: --dask {address}: pinfold is not installed on worker tcp://")
    assert failed.stderr.count("\n") == 1


def test_a_cluster_without_workers_is_one_line(cluster: Cluster, files: list[str]) -> None:
    address = cluster.address(workers=0)
    failed = run(*files, "--dask", address)
    assert failed.returncode == 2
    assert failed.stderr == f"pinfold: error: --dask {address}: the cluster has no workers\n"


def test_a_cluster_that_is_not_there_is_one_line_with_its_address(files: list[str]) -> None:
    gone = run(*files, "--dask", "tcp://127.0.0.1:1")
    assert gone.returncode == 2
    assert gone.stderr.startswith("pinfold: error: --dask tcp://127.0.0.1:1: ")
    assert gone.stderr.count("\n") == 1


@pytest.mark.parametrize("address", ["nonsense", "tcp://", "http://x:y", ""])
def test_an_address_that_is_none_is_one_line(files: list[str], address: str) -> None:
    wrong = run(*files, "--dask", address)
    assert wrong.returncode == 2
    expected = "an address such as tcp://HOST:8786 is expected"
    assert wrong.stderr == f'pinfold: error: --dask "{address}": {expected}\n'
