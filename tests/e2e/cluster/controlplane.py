"""A real control plane on this machine: etcd, the API server, the controller manager and the scheduler.

There is no kube-proxy: the API server itself listens where pods look for it, on the address of the Service
`kubernetes`, which loopback has meanwhile.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final, Self

from tests.e2e.cluster.api import API, APIError
from tests.e2e.cluster.processes import Authority, Program, free_port, kubeconfig
from tests.e2e.daemon import wait_for

_USERS: Final = {
    "admin": "system:masters",
    "system:kube-controller-manager": "system:masters",
    "system:kube-scheduler": "",
}
"""Users with a token of the same name, and their groups."""
ADDRESS: Final = "10.217.0.1"
"""The first address of the Services, which Kubernetes gives to the one called `kubernetes`."""
PORT: Final = 443
_SERVICES: Final = "10.217.0.0/24"
_HOSTS: Final = f"IP:{ADDRESS},DNS:localhost,DNS:kubernetes.default.svc"
PATIENCE: Final = 180.0


class ControlPlane:
    """Everything of a cluster but its node, in a directory of its own."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="pf-cp-"))
        self.authority = Authority(self.directory)
        self.address = f"{ADDRESS}:{PORT}"
        self.api = API(self.address, self.authority.certificate, "admin")
        self._account_key = self.authority.account_key()
        (self.directory / "tokens").write_text("".join(f'{name},{name},{name},"{_USERS[name]}"\n' for name in _USERS))
        self.server = self._server(free_port())
        common = ["--leader-elect=false", "--bind-address=127.0.0.1", "--port=0"]
        manager = [f"--service-account-private-key-file={self._account_key}"]
        manager += [f"--root-ca-file={self.authority.certificate}", f"--secure-port={free_port()}"]
        self._programs = [
            self._program("kube-controller-manager", *common, *manager, *self._as("system:kube-controller-manager")),
            self._program(
                "kube-scheduler", *common, f"--secure-port={free_port()}", *self._as("system:kube-scheduler")
            ),
        ]

    def __enter__(self) -> Self:
        _loopback("replace")
        try:
            self._etcd.start()
            self.server.start()
            wait_for(self._is_ready, "the API server is ready", PATIENCE)
            for program in self._programs:
                program.start()
            wait_for(lambda: self.api.find("ServiceAccount", "default"), "the controllers run", PATIENCE)
        except BaseException:
            for program in (self._etcd, self.server, *self._programs):
                print(f"-- {program.name}\n{program.said()}")  # noqa: T201 - why it does not start
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for program in (*self._programs, self.server, self._etcd):
            program.stop()
        _loopback("delete")
        shutil.rmtree(self.directory)

    def _program(self, name: str, *flags: str) -> Program:
        return Program(name, self.directory, flags)

    def _server(self, etcd: int) -> Program:
        urls, peers = f"http://127.0.0.1:{etcd}", f"http://127.0.0.1:{free_port()}"
        flags = [f"--listen-client-urls={urls}", f"--advertise-client-urls={urls}", f"--listen-peer-urls={peers}"]
        flags += [f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}"]
        self._etcd = self._program("etcd", *flags, f"--data-dir={self.directory}/etcd", "--unsafe-no-fsync")
        certificate, key = self.authority.issue("server", "/CN=kube-apiserver", _HOSTS)
        return self._program(
            "kube-apiserver",
            f"--etcd-servers={urls}",
            *(f"--bind-address={ADDRESS}", f"--secure-port={PORT}", "--insecure-port=0"),
            *(f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}"),
            *(f"--client-ca-file={self.authority.certificate}", f"--token-auth-file={self.directory}/tokens"),
            *("--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction"),
            *(
                f"--service-account-key-file={self._account_key}",
                "--service-account-issuer=https://kubernetes.default.svc",
            ),
            f"--service-account-signing-key-file={self._account_key}",
            *(f"--service-cluster-ip-range={_SERVICES}", "--endpoint-reconciler-type=none"),
            "--feature-gates=BoundServiceAccountTokenVolume=true",  # as all newer versions do,
            f"--cert-dir={self.directory}",
        )

    def _as(self, user: str) -> list[str]:
        """Return the flags of a program that is this user of the API server."""
        path = self.directory / f"{user.rpartition(':')[2]}.conf"
        return [f"--kubeconfig={kubeconfig(path, self.address, self.authority.certificate, token=user)}"]

    def _is_ready(self) -> bool:
        assert not self._etcd.ended, self._etcd.said()
        assert not self.server.ended, self.server.said()
        try:
            return "ok" in self.api.send("GET", "/readyz").get("text", "")
        except (OSError, APIError):
            return False


def _loopback(verb: str) -> None:
    """Give loopback the address of the API server, or take it away."""
    subprocess.run(["ip", "address", verb, f"{ADDRESS}/32", "dev", "lo"], check=True, capture_output=True)
