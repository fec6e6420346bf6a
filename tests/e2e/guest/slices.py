"""A containerd whose pods are slices of systemd and whose containers are scopes: the systemd cgroup driver."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

from pinfold.node.podgroups.paths import expand_slice
from tests.e2e.containerd import CGROUPS, Containerd

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.containerd import PodOnNode

KUBEPODS: Final = "kubepods.slice"
BURSTABLE: Final = "kubepods-burstable.slice"
BESTEFFORT: Final = "kubepods-besteffort.slice"
_ABOVE: Final = {"guaranteed": "kubepods", "burstable": "kubepods-burstable", "besteffort": "kubepods-besteffort"}


def systemctl(*arguments: str) -> str:
    """Run systemctl, which must succeed; return what it prints."""
    done = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


class SliceContainerd(Containerd):
    """As Containerd; the slices that a kubelet would start are started here."""

    driver = "systemd"

    def __init__(self, suite: str) -> None:
        super().__init__(suite)
        self.root = ""  # a slice is where its name says: there is one kubepods.slice

    def parent(self, qos: str, uid: str) -> str:
        """Return the slice of a pod; systemd nests at "-", so a kubelet writes "_" for those of a UID."""
        return f"{_ABOVE[qos]}-pod{uid.replace('-', '_')}.slice"

    def make_group(self, parent: str, milli: int = 0) -> None:
        """Start the slice."""
        systemctl("start", *([parent] if parent else [BURSTABLE, BESTEFFORT]))
        if milli:
            systemctl("--runtime", "set-property", parent, f"CPUQuota={milli / 10:g}%")

    def remove_group(self, parent: str) -> None:
        """Stop the slice, and all below it."""
        systemctl("stop", parent or KUBEPODS)

    def group(self, pod: PodOnNode, container: str = "", controller: str = "cpuset") -> Path:  # noqa: ARG002 - v2
        """Return the directory of a pod's slice, or of a container's scope."""
        return CGROUPS.joinpath(*expand_slice(pod.parent), f"cri-containerd-{container}.scope" if container else "")
