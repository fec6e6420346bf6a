"""A real cluster of one node: control plane, containerd, kubelet, and pinfold with a service account of its own."""

from __future__ import annotations

import json
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import yaml

from tests.e2e.cluster.api import API, MERGE, NotFound, Object
from tests.e2e.cluster.controlplane import ADDRESS, PORT, ControlPlane
from tests.e2e.cluster.kubelet import NODE, Kubelet
from tests.e2e.cluster.processes import LAB
from tests.e2e.containerd import IMAGE, Containerd
from tests.e2e.daemon import wait_for
from tests.e2e.kubedaemon import KubeDaemon
from tests.lab import lab

KUSTOMIZE: Final = Path(__file__).resolve().parents[3] / "deploy/kustomize"
NAMESPACE: Final = "kube-system"
PATIENCE: Final = 120.0
SHOWS_CPUS: Final = "grep Cpus_allowed_list /proc/self/status; exec sleep 2147483647"
BUSY: Final = "for i in 1 2 3 4; do while :; do :; done & done; wait"


class Running(NamedTuple):
    """A container that runs."""

    uid: str
    pid: int
    first: str
    """What it printed first."""


def container(cpus: float = 0, *, name: str = "app", command: str = SHOWS_CPUS, limited: bool = True) -> Object:
    """Return a container that asks for so many CPUs; limited to them, it makes a pod Guaranteed."""
    made: Object = {"name": name, "image": IMAGE, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", command]}
    amounts = {"cpu": f"{cpus * 1000:.0f}m", "memory": "32Mi"}
    if cpus:
        made["resources"] = {"requests": amounts, **({"limits": amounts} if limited else {})}
    return made


def pod(name: str, *containers: Object, init: tuple[Object, ...] = ()) -> Object:
    """Return a pod that needs no network and no token."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec(*containers, init=init)}


def spec(*containers: Object, init: tuple[Object, ...] = ()) -> Object:
    """Return what a pod is made of."""
    return {
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "initContainers": list(init),
        "containers": list(containers or (container(),)),
    }


def children(pid: int) -> list[int]:
    """Return a process and the processes that it has started."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def show(figure: str) -> None:
    """Print a figure."""
    print(f"\n  {figure}")  # noqa: T201 - a figure


def rights(*components: str) -> list[Object]:
    """Return the service account of deploy/kustomize with its role; *components* add to the role."""
    found = list(yaml.safe_load_all((KUSTOMIZE / "base/rbac.yaml").read_text()))
    for one in found:
        if one["kind"] == "ServiceAccount":
            one["metadata"]["namespace"] = NAMESPACE
    (role,) = (one for one in found if one["kind"] == "ClusterRole")
    for component in components:
        patches = yaml.safe_load((KUSTOMIZE / "components" / component / "kustomization.yaml").read_text())["patches"]
        (patch,) = (one["patch"] for one in patches if one["target"]["kind"] == "ClusterRole")
        role["rules"] += [step["value"] for step in yaml.safe_load(patch)]
    return found


class Cluster:
    """All parts of it; pods are made at the API server."""

    def __init__(self) -> None:
        lab.build_kubernetes()
        self.plane = ControlPlane()
        self.containerd = Containerd("trixie")
        _give_network(self.containerd.run / "cni")

    def __enter__(self) -> Self:
        with ExitStack() as parts:
            parts.enter_context(self.plane)
            parts.enter_context(self.containerd)
            self.kubelet = parts.enter_context(Kubelet(self.plane, self.containerd))
            parts.callback(self.remove_all)
            self.give_rights()
            self._parts = parts.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.close()

    @property
    def api(self) -> API:
        """The API server, as an administrator."""
        return self.plane.api

    def give_rights(self) -> None:
        """Make the service account of the base with its role."""
        for one in rights():
            self.api.apply(one)

    def allow(self, *components: str, more: tuple[Object, ...] = ()) -> None:
        """Give pinfold the rights of the base and of these components, and *more* rules."""
        (role,) = (one for one in rights(*components) if one["kind"] == "ClusterRole")
        role["rules"] += more
        self.api.send(
            "PATCH", "/apis/rbac.authorization.k8s.io/v1/clusterroles/pinfold", {"rules": role["rules"]}, MERGE
        )

    # -- pods

    def run(self, item: Object, name: str = "app") -> Running:
        """Create a pod, and return its container when it runs."""
        self.api.create(item)
        return self.running(item["metadata"]["name"], name)

    def running(self, pod: str, name: str = "app") -> Running:
        """Return a container of a pod when it runs."""
        wait_for(lambda: self.phase(pod) == "Running", f"pod {pod} runs: {self.status(pod)}", PATIENCE)

        def found() -> Running | None:
            for one in self.containerd.running():
                if (one.pod, one.name) == (pod, name):
                    return Running(one.uid, one.pid, self.printed(one.uid, name))
            return None

        running: Running = wait_for(found, f"container {name} of {pod} runs", PATIENCE)
        return running

    def printed(self, uid: str, name: str = "app") -> str:
        """Return what a container of a pod has printed first."""
        lines = [path.read_text() for path in sorted(Path("/var/log/pods").glob(f"*_{uid}/{name}/*.log"))]
        return lines[0].partition("\n")[0].rpartition(" F ")[2] if lines and lines[0] else ""

    def phase(self, pod: str) -> str:
        """Return the phase of a pod; empty if there is none."""
        return str(self.status(pod).get("phase", ""))

    def status(self, pod: str) -> Object:
        """Return the status of a pod."""
        found = self.api.find("Pod", pod)
        status: dict[str, Any] = found["status"] if found else {}
        return status

    def warnings(self, pod: str, component: str = "pinfold") -> list[Object]:
        """Return the events about a pod that a component has made."""
        about = self.api.all("Event", query=f"?fieldSelector=involvedObject.name={pod}")
        return [one for one in about if one["source"].get("component") == component]

    def remove(self, pod: str) -> None:
        """Delete a pod, and return when it is gone."""
        with suppress(NotFound):  # it has gone by itself
            self.api.delete("Pod", pod)
        uids = {one.uid for one in self.containerd.running() if one.pod == pod}
        wait_for(lambda: self.api.find("Pod", pod) is None, f"{pod} is deleted", PATIENCE)
        wait_for(lambda: not uids & {one.uid for one in self.containerd.running()}, f"{pod} has ended", PATIENCE)

    def remove_all(self) -> None:
        """Delete what tests have made."""
        for one in self.api.all("Deployment"):
            self.api.delete("Deployment", one["metadata"]["name"])
        wait_for(lambda: not self.api.all("Deployment"), "Deployments are deleted", PATIENCE)
        for one in self.api.all("Pod"):
            self.remove(one["metadata"]["name"])


def _give_network(directory: Path) -> None:
    """Let pods without the host's network have a link to the host: probes come in, the API server is reached."""
    networks = directory / "net.d"
    networks.mkdir(parents=True)
    (directory / "bin").symlink_to(LAB / "cni/usr/lib/cni")
    addresses = {"type": "host-local", "subnet": "10.218.0.0/24", "dataDir": str(directory / "addresses")}
    link = {"type": "ptp", "ipam": {**addresses, "routes": [{"dst": "0.0.0.0/0"}]}}
    network = {"cniVersion": "0.4.0", "name": "lab", "plugins": [link]}
    (networks / "10-lab.conflist").write_text(json.dumps(network))


class ClusterDaemon(KubeDaemon):
    """pinfold on the node of a cluster, with the service account of deploy/kustomize."""

    def __init__(self, cluster: Cluster, *options: str) -> None:
        super().__init__(cluster.containerd, "nri", *options)
        account = self.place.directory / "account"
        account.mkdir()
        (account / "token").write_text(cluster.api.as_account("pinfold", NAMESPACE))
        (account / "ca.crt").write_bytes(cluster.plane.authority.certificate.read_bytes())
        self.groups[-1] = str(cluster.kubelet.directory)
        self.groups += ["--service-account", str(account)]
        server = {"KUBERNETES_SERVICE_HOST": ADDRESS, "KUBERNETES_SERVICE_PORT": str(PORT)}
        self.environment |= server | {"NODE_NAME": NODE}
