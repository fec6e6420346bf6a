"""What was set, and the same for systemd."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.node.podgroups.files import Directories
from pinfold.node.podgroups.settings import CPUS, GroupChanges, Quota
from pinfold.node.podgroups.v2 import V2

if TYPE_CHECKING:
    from pathlib import Path


def test_changes_remember_the_first_value_and_the_last(tmp_path: Path) -> None:
    (tmp_path / "cpuset.cpus").write_text("0\n")
    changes = GroupChanges(V2(Directories(tmp_path, unified=True)))
    for cpus in ("0-3", "1-3"):
        (tmp_path / "cpuset.cpus").write_text("0\n" if cpus == "0-3" else "0-3\n")
        changes.set_own(tmp_path, CPUS, CPUSet.parse(cpus))
    (setting,) = changes.settings()
    assert (setting.before, setting.value, setting.properties) == ("0", "1-3", ("AllowedCPUs=1-3",))
    assert setting.changed


@pytest.mark.parametrize(
    ("quota", "properties"),
    [
        (Quota(None), ("CPUQuota=",)),
        (Quota(100_000), ("CPUQuota=100%", "CPUQuotaPeriodSec=100000us")),
        (Quota(150_001), ("CPUQuota=151%", "CPUQuotaPeriodSec=100000us")),
        (Quota(1_000), ("CPUQuota=1%", "CPUQuotaPeriodSec=100000us")),
        (Quota(25_000, 50_000), ("CPUQuota=50%", "CPUQuotaPeriodSec=50000us")),
    ],
)
def test_a_quota_is_told_in_whole_percent_rounded_up(quota: Quota, properties: tuple[str, ...]) -> None:
    assert quota.properties() == properties
