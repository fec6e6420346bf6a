"""The hierarchy of cgroup v2: where it is mounted, if it can have the cpuset controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.node import cgroupfiles
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.grouperrors import KindUnavailableError

if TYPE_CHECKING:
    from pathlib import Path

KIND: Final = "cgroup v2"
AVAILABLE: Final = "cgroup.controllers"
_CPUSET: Final = "cpuset"


def find_unified(cgroup_root: Path) -> Path:
    """Return *cgroup_root*, or its directory "unified", if it is of cgroup v2 and the controller is there or above."""
    root = next((path for path in (cgroup_root, cgroup_root / "unified") if (path / AVAILABLE).is_file()), None)
    if root is None:
        raise KindUnavailableError(KIND, f"it is not mounted at {cgroup_root}")
    groups = [group for group in (root, *root.parents) if (group / AVAILABLE).is_file()]
    try:
        has_cpuset = any(_CPUSET in cgroupfiles.read(group / AVAILABLE).split() for group in groups)
    except CgroupError as error:
        raise KindUnavailableError(KIND, str(error)) from error
    if not has_cpuset:
        raise no_cpuset(root)
    return root


def no_cpuset(root: Path) -> KindUnavailableError:
    """Return the error for a hierarchy without the controller."""
    return KindUnavailableError(KIND, f"{root} has no cpuset controller; is it in use by cgroup v1?")
