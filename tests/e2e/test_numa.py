"""The daemon on a machine with several NUMA nodes and SMT: what it pins is aligned, as the options say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.node.machine.memory import read_memory
from pinfold.node.machine.sysfs import discover
from tests.e2e.containerd import allowed as allowed_of
from tests.e2e.daemon import allowed, container, pod
from tests.needs import needs

if TYPE_CHECKING:
    from tests.e2e.daemon import Daemon


MACHINE = discover(Path("/"))
SMT = len(MACHINE.online) // len(MACHINE.cores)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.guest,
    needs("two NUMA nodes and SMT", met=len(MACHINE.numa_nodes) >= 2 and SMT >= 2),
]


def groups_of(cpus: CPUSet, kind: str) -> int:
    """Return how many groups of a kind the CPUs are on."""
    return sum(bool(group.cpus & cpus) for group in getattr(MACHINE, kind))


def test_on_numa_nodes_a_container_has_whole_cores_of_one_node_and_one_cache(daemon: Daemon) -> None:
    daemon.start(
        *("--policy-options", "full-pcpus-only=true"),
        *("--topology-manager-policy", "single-numa-node"),
    )
    node = min(len(node.cpus) for node in MACHINE.numa_nodes)
    daemon.apply(*(pod(f"p{number}", container(cpus=node // 2)) for number in range(3)))
    for number in range(3):
        (text,) = allowed(daemon.running(f"p{number}"))
        cpus = CPUSet.parse(text)
        assert len(cpus) == node // 2
        assert groups_of(cpus, "numa_nodes") == groups_of(cpus, "uncore_caches") == 1
        assert groups_of(cpus, "cores") == len(cpus) // SMT
    daemon.check()
    refused = daemon.verb("run", "--cpus", str(node + SMT), "--", "true")
    assert refused.returncode == 125
    assert "TopologyAffinityError" in refused.stderr
    odd = daemon.verb("run", "--cpus", "1", "--", "true")
    assert odd.returncode == 125
    assert "SMTAlignmentError" in odd.stderr
    daemon.check()


def test_on_numa_nodes_what_is_distributed_has_as_much_on_each(daemon: Daemon) -> None:
    daemon.start("--policy-options", "distribute-cpus-across-numa=true")
    most = max(len(node.cpus) for node in MACHINE.numa_nodes)
    daemon.apply(pod("wide", container(cpus=most + 2)))
    (text,) = allowed(daemon.running("wide"))
    counts = {len(node.cpus & CPUSet.parse(text)) for node in MACHINE.numa_nodes} - {0}
    assert counts == {(most + 2) // 2}
    daemon.check()


def local(name: str, mebibytes: int) -> str:
    """Return a pod with one CPU core of its own and so much memory that is to be local."""
    amounts = f'{{cpu: "{SMT}", memory: {mebibytes}Mi}}'
    both = container(resources=f"{{requests: {amounts}, limits: {amounts}}}")
    annotated = f'{{name: {name}, annotations: {{pinfold.dev/local-memory: "true"}}}}'
    return pod(name, both).replace(f"metadata: {{name: {name}}}", f"metadata: {annotated}")


def test_on_numa_nodes_local_memory_is_where_it_is_left_and_refused_where_it_is_not(daemon: Daemon) -> None:
    daemon.start()
    most = max(memory.available for memory in read_memory(Path("/")).values()) >> 20
    for number in range(2):  # two of them do not fit at one node
        (row,) = daemon.apply(local(f"p{number}", most * 6 // 10))
        assert "refused" not in row, row
    nodes = [allowed_of(daemon.running(f"p{number}"), "Mems") for number in range(2)]
    assert (len(nodes[0]), len(nodes[1])) == (1, 1)
    assert nodes[0] != nodes[1]
    (row,) = daemon.apply(local("big", most * 12 // 10))
    assert "MiB is left there" in str(row["refused"]), row
    daemon.check()
