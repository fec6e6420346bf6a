"""Replays cases of options.jsonl.gz: start-up validation of options, gates and reservation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.policies.options import REFERENCE
from pinfold.core.policies.reserving import reserve
from pinfold.core.policies.static import DYNAMIC, StaticPolicy
from pinfold.core.trace import Defect, Recorder
from pinfold.errors import ConfigError
from tests.parity.node import Case, Machines, Outcome, differences

if TYPE_CHECKING:
    from pinfold.core.allocators.order import Fidelity


def replay(case: Case, machines: Machines, fidelity: Fidelity, *, laws_only: bool = False) -> Outcome:
    """Return how our verdict on a configuration differs from the reference's, which knows no policy dynamic."""
    if case["policy"] == DYNAMIC and fidelity == "pinfold":
        return Outcome(None)
    given = case["reserved"]
    config = Config(
        policy=case["policy"],
        options=case["options"],
        reserved=Reservation(given.get("milli"), CPUSet.parse(given["cpus"]) if "cpus" in given else None),
        topology_policy=case["tm_policy"],
        gates=case.get("gates", {}),
        fidelity=fidelity,
    )
    found: Case = {"error": None}
    defects: set[Defect] = set()
    try:
        policy = config.build_policy(machines.topologies[case["topology"]])
    except ConfigError as error:
        found["error"] = _as_the_manager_says(case["policy"], error.problems[0].said)
    else:
        if isinstance(policy, StaticPolicy):
            defects = _defects(policy, config)
            found["reserved"] = str(policy.reserved)
            found["reserved_physical"] = str(policy.reserved_physical)
            found["parsed"] = {name: getattr(policy.options, option.field) for name, option in REFERENCE.items()}
    return Outcome(None if laws_only else differences(found, case["expect"]), frozenset(defects))


def _defects(policy: StaticPolicy, config: Config) -> set[Defect]:
    """Return what the reference gets wrong in choosing the reserved CPUs."""
    recorder = Recorder()
    reserve(policy.machine, policy.arrangement, config.reserved.count, config.reserved.cpus, recorder)
    defects = {defect for defect, _ in recorder.trace().defects}
    if policy.options.strict_cpu_reservation and not policy.allocatable:
        defects.add(Defect.EMPTY_SHARED_POOL)
    return defects


def _as_the_manager_says(policy: str, said: str) -> str:
    """Return the text as the kubelet's manager passes it on: what the policy itself says is wrapped."""
    by_manager = ("unknown policy", "[cpumanager] the static policy", "[cpumanager] unable to determine")
    return said if said.startswith(by_manager) else f"new {policy} policy error: {said}"
