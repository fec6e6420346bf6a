from __future__ import annotations

import copy
import pickle

from pinfold.core.machine.presets import preset


def test_topology_survives_pickling_and_copying() -> None:
    machine = preset("xeon-2s-64")
    assert pickle.loads(pickle.dumps(machine)) == machine  # noqa: S301 - our own bytes
    assert copy.deepcopy(machine) == machine
