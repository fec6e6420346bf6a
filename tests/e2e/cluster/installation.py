"""pinfold as a DaemonSet in a real cluster: the manifests of deploy/, its image, and what its pod has on the host."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import yaml

from pinfold.cli.asking.client import Client
from pinfold.core.machine.cpuset import CPUSet
from tests.e2e.cluster.api import NotFound
from tests.e2e.cluster.cluster import NAMESPACE, PATIENCE
from tests.e2e.cluster.kubelet import NODE
from tests.e2e.cluster.processes import LAB
from tests.e2e.daemon import wait_for
from tests.support.rendering import KUSTOMIZE, by_helm, by_kustomize

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.e2e.cluster.api import Object
    from tests.e2e.cluster.cluster import Cluster

IMAGE: Final = "localhost/pinfold"
TAGS: Final = ("1", "2")
"""Two names of the same image, for updates."""
NEWER: Final = frozenset({"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"})
"""Kinds that this API server does not have yet."""
_SOCKET: Final = "pinfold.sock"
_NEXT: Final = "pinfold-next"


class PinfoldPod(NamedTuple):
    """A pod of the DaemonSet that is ready."""

    name: str
    uid: str
    pid: int


class Installation:
    """The DaemonSet in a cluster, with directories of its own on the node."""

    def __init__(self, cluster: Cluster, archive: Path) -> None:
        self.cluster = cluster
        self.directory = Path(tempfile.mkdtemp(prefix="pf-ds-"))
        self.state_dir, self.run = self.directory / "state", self.directory / "run"
        self.left_out: list[str] = []
        self._objects: list[Object] = []
        self._paths = {
            "/var/run/nri": cluster.containerd.nri_socket.parent,
            "/var/lib/pinfold": self.state_dir,
            "/run/pinfold": self.run,
            "/var/lib/kubelet": cluster.kubelet.directory,
        }
        self._load(archive)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()
        shutil.rmtree(self.directory)

    def _load(self, archive: Path) -> None:
        """Give the image to containerd under both names."""
        containerd = self.cluster.containerd
        ctr = [str(LAB / containerd.suite / "usr/bin/ctr"), "--address", str(containerd.cri_socket)]
        names = [["tag", "--force", f"{IMAGE}:latest", f"{IMAGE}:{tag}"] for tag in TAGS]
        for words in (["import", str(archive)], *names):
            subprocess.run([*ctr, "--namespace", "k8s.io", "images", *words], check=True, capture_output=True)

    # -- objects

    def by_kustomize(self, *components: str) -> Self:
        """Apply the base with these components, and return when its pod is ready."""
        with tempfile.TemporaryDirectory() as directory:
            return self.apply(by_kustomize(Path(directory), *components))

    def by_helm(self, *values: str) -> Self:
        """Apply the chart with these values, and return when its pod is ready."""
        return self.apply(by_helm(*values))

    def apply(self, rendered: str) -> Self:
        """Apply objects to the API server, except those that it does not know; return when the pod is ready."""
        found = [one for one in yaml.safe_load_all(rendered) if one]
        self.left_out = [one["kind"] for one in found if one["kind"] in NEWER]
        self._objects = [one for one in found if one["kind"] not in NEWER]
        for one in self._objects:
            if one["kind"] == "DaemonSet":
                self._fit(one["spec"]["template"]["spec"])
                one["spec"]["updateStrategy"]["rollingUpdate"] = {"maxUnavailable": 1}  # no maxSurge before 1.22
            self.cluster.api.apply(one)
        self.pod()
        return self

    def _fit(self, spec: Object, tag: str = TAGS[0]) -> None:
        """Change what differs on this node: the image's name, directories of the host, and the kubelet's cgroup."""
        (only,) = spec["containers"]
        only["image"] = f"{IMAGE}:{tag}"
        if "serve" in only["args"]:
            only["args"].append(f"--cgroup-root=/{self.cluster.containerd.root}")
        for volume in spec["volumes"]:
            path = volume.get("hostPath", {}).get("path")
            if path in self._paths:
                volume["hostPath"]["path"] = str(self._paths[path])

    @property
    def daemonset(self) -> Object:
        """The DaemonSet as it was applied."""
        return next(one for one in self._objects if one["kind"] == "DaemonSet")

    def update(self) -> None:
        """Begin a rolling update to the other name of the image."""
        (only,) = self.daemonset["spec"]["template"]["spec"]["containers"]
        only["image"] = f"{IMAGE}:{TAGS[only['image'].endswith(TAGS[0])]}"
        self.cluster.api.apply(self.daemonset)

    def surge(self) -> None:
        """Update as a controller with maxSurge does: the next pod is ready before the old one is told to end."""
        following = deepcopy(self.daemonset)
        following["metadata"]["name"] = _NEXT
        for place in (
            following["spec"]["selector"]["matchLabels"],
            following["spec"]["template"]["metadata"]["labels"],
        ):
            place["app.kubernetes.io/name"] = _NEXT
        self._objects.append(following)
        self.cluster.api.apply(following)
        wait_for(lambda: [one for one in self.pods(_NEXT) if _is_ready(one, "")], "the next pod is ready", PATIENCE)
        self.cluster.api.delete("DaemonSet", "pinfold", NAMESPACE, grace=None)

    def configure(self, **settings: object) -> None:
        """Change settings in the ConfigMap."""
        (found,) = (one for one in self._objects if one["kind"] == "ConfigMap")
        file: dict[str, Any] = yaml.safe_load(found["data"]["kubelet.yaml"])
        found["data"]["kubelet.yaml"] = yaml.safe_dump(file | settings)
        self.cluster.api.apply(found)

    def delete_daemonset(self, *, killed: bool = False) -> None:
        """Delete the DaemonSet, and return when its pod is gone; *killed*: without its hook, as after a crash."""
        mine = self.pod()
        self.cluster.api.delete("DaemonSet", "pinfold", NAMESPACE, grace=None)
        if killed:
            os.kill(mine.pid, signal.SIGKILL)
        self._await_none()

    def leave(self) -> None:
        """Delete all objects, then give all CPUs back."""
        self.remove()
        leave = [sys.executable, "-m", "pinfold", "leave", "--state-dir", str(self.state_dir)]
        if self.state_dir.exists():
            subprocess.run([*leave, "--socket", str(self.run / _SOCKET)], check=True, capture_output=True)
        self.cluster.give_rights()  # other tests have a daemon beside the cluster

    def remove(self) -> None:
        """Delete all objects, and return when no pod is left."""
        for one in self._objects:
            try:
                self.cluster.api.delete(one["kind"], one["metadata"]["name"], NAMESPACE)
            except NotFound:
                continue
        self._objects = []
        self._await_none()

    def run_job(self) -> Object:
        """Run the Job that gives the node's CPUs back, and return its status when it has ended."""
        api = self.cluster.api
        job = yaml.safe_load((KUSTOMIZE / "leave/job.yaml").read_text())
        spec = job["spec"]["template"]["spec"]
        spec["nodeName"] = NODE
        self._fit(spec)
        api.apply(job)
        try:
            wait_for(
                lambda: {"succeeded", "failed"} & api.get("Job", "pinfold-leave", NAMESPACE)["status"].keys(),
                "the Job ends",
                PATIENCE,
            )
            status: Object = api.get("Job", "pinfold-leave", NAMESPACE)["status"]
            return status
        finally:
            api.delete("Job", "pinfold-leave", NAMESPACE)
            self._await_none("pinfold-leave")

    # -- pods

    def pods(self, label: str = "pinfold") -> list[Object]:
        """Return the pods with a label of ours."""
        return self.cluster.api.all("Pod", NAMESPACE, f"?labelSelector=app.kubernetes.io/name={label}")

    def pod(self, before: str = "") -> PinfoldPod:
        """Return the pod of the DaemonSet when it is ready; another one than that with the UID *before*."""
        (found,) = wait_for(
            lambda: [one for one in self.pods() if _is_ready(one, before)], "pinfold's pod is ready", PATIENCE
        )
        uid = found["metadata"]["uid"]
        (pid,) = {one.pid for one in self.cluster.containerd.running() if one.uid == uid}
        return PinfoldPod(found["metadata"]["name"], uid, pid)

    def _await_none(self, *labels: str) -> None:
        names = labels or ("pinfold", _NEXT)
        wait_for(lambda: not any(map(self.pods, names)), "no pod of pinfold is left", PATIENCE)

    # -- the daemon in the pod, by the socket that its pod has on the host

    @property
    def client(self) -> Client:
        """A client of it."""
        return Client(self.run / _SOCKET)

    def gaps(self) -> list[float]:
        """Return the seconds from the end of each daemon until the next one had heard from the runtime what runs."""
        gaps, stopped = [], 0.0
        for path in sorted((self.state_dir / "journal").glob("*.jsonl")):
            for line in path.read_text().splitlines():
                entry = json.loads(line.partition(" ")[2])
                if entry.get("what") == "stopped":
                    stopped = entry["time"]
                elif stopped and (entry.get("what"), entry.get("link")) == ("runtime", "synchronized"):
                    gaps.append(entry["time"] - stopped)
                    stopped = 0.0
        return gaps

    def events(self, *what: str) -> list[Object]:
        """Return what happened, of these kinds."""
        return [row for row in self.client.get("/v1/events") if row["what"] in what]

    def cpus(self, pod: str) -> CPUSet:
        """Return the exclusive CPUs of a pod's container; none if it has none."""
        rows = (row for row in self.client.get("/v1/containers") if row["pod"] == pod and row["exclusive"])
        return CPUSet.parse(next((row["cpus"] for row in rows), ""))


def _is_ready(pod: Object, before: str) -> bool:
    conditions: Iterable[Object] = pod["status"].get("conditions", ())
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and pod["metadata"]["uid"] != before and "deletionTimestamp" not in pod["metadata"]
