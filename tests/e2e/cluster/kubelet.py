"""A real kubelet on loopback, with directories and cgroups of its own, beside a real containerd."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from tests.e2e.cluster.processes import Program, free_port, kubeconfig
from tests.e2e.daemon import wait_for

if TYPE_CHECKING:
    from tests.e2e.cluster.controlplane import ControlPlane
    from tests.e2e.containerd import Containerd

NODE: Final = "node1"
PATIENCE: Final = 120.0
_TUNED: Final = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/ip_forward",
)
"""What a kubelet and its network plugin set in the kernel; the values of before come back."""
_TTLS: Final = ("cacheAuthorizedTTL", "cacheUnauthorizedTTL")
_FIXED: Final = tuple(map(Path, ("/var/lib/kubelet", "/var/log/pods", "/var/log/containers")))
"""Directories that a kubelet makes with all flags."""


class Kubelet:
    """The node of a cluster."""

    def __init__(self, plane: ControlPlane, containerd: Containerd) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="pf-kl-"))
        self.settings = self._settings(plane, containerd)
        certificate, key = plane.authority.issue("node", f"/O=system:nodes/CN=system:node:{NODE}")
        user = {"client_certificate": str(certificate), "client_key": str(key)}
        config = kubeconfig(self.directory / "kubeconfig", plane.address, plane.authority.certificate, **user)
        flags = [f"--config={self.directory}/config.yaml", f"--root-dir={self.directory}", f"--kubeconfig={config}"]
        flags += [f"--hostname-override={NODE}", f"--cert-dir={self.directory}/pki", "--container-runtime=remote"]
        flags += [f"--container-runtime-endpoint=unix://{containerd.cri_socket}", "--v=2"]
        self.program = Program("kubelet", self.directory, flags)
        self._api = plane.api
        self._tuned = {name: Path("/proc/sys", name).read_text() for name in _TUNED}
        self._made = [path for path in _FIXED if not path.exists()]

    def _settings(self, plane: ControlPlane, containerd: Containerd) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "readOnlyPort": 10255,
            "healthzPort": free_port(),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(plane.authority.certificate)},
            },
            "authorization": {"mode": "Webhook", "webhook": dict.fromkeys(_TTLS, "1s")},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{containerd.root}",
            "cpuManagerPolicy": "none",
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "evictionHard": {"memory.available": "1Mi"},
            "imageGCHighThresholdPercent": 100,
            "volumePluginDir": f"{self.directory}/volumes",
        }

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            print(self.program.said())  # noqa: T201 - why it does not start
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.program.stop()
        for name, value in self._tuned.items():
            Path("/proc/sys", name).write_text(value)
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in reversed(mounts):  # the kubelet mounts its directory on itself, and volumes in it
            if f"{mount}/".startswith(f"{self.directory}/"):
                subprocess.run(["umount", "-l", mount], check=False)
        for path in (self.directory, *self._made):
            shutil.rmtree(path, ignore_errors=True)

    def start(self, **settings: object) -> None:
        """Start it with changed settings, and return when its node is ready."""
        (self.directory / "config.yaml").write_text(json.dumps(self.settings | settings))
        self.program.start()
        wait_for(self._is_ready, "the node is ready", PATIENCE)

    def _is_ready(self) -> bool:
        assert not self.program.ended, self.program.said()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.settings['healthzPort']}/healthz", timeout=5):
                pass
        except OSError:
            return False
        node = self._api.find("Node", NODE)
        found = {one["type"]: one["status"] for one in node["status"].get("conditions", [])} if node else {}
        return found.get("Ready") == "True" and not node["spec"].get("taints") if node else False
