"""Replays cases of discover.jsonl.gz: a machine description to the topology that the kubelet sees."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pinfold.errors import PinfoldError
from pinfold.formats.machine.cadvisor import parse_cadvisor_as_kubelet
from tests.parity.node import Case, Machines, Outcome, differences

if TYPE_CHECKING:
    from pinfold.core.allocators.order import Fidelity


def replay(case: Case, _machines: Machines, _fidelity: Fidelity, *, laws_only: bool = False) -> Outcome:  # noqa: ARG001 - as all replays
    """Return how our rows differ from the kubelet's."""
    expect = case["expect"]
    try:
        topology = parse_cadvisor_as_kubelet(json.dumps(case["machine_info"]))
    except PinfoldError as error:
        return Outcome(None if expect.get("error", "\0") in str(error) else f"expected {expect}, found {error}")
    cpus, cores, sockets = topology.counts
    found: Case = {"cpus": [list(row) for row in topology.cpus], "num_cpus": cpus, "num_sockets": sockets}
    found |= {"num_cores": cores, "num_numa": len(topology.numa_nodes), "num_uncore": len(topology.uncore_caches)}
    found["cpus_per_core"] = cpus // cores if cores else 0
    return Outcome(differences(found, expect))
