"""Programs of a cluster as processes with logs of their own, and the files that they trust each other by."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LAB: Final = Path(os.environ.get("LAB", Path.home() / ".cache/pinfold-lab"))
BIN: Final = LAB / "kubernetes/bin"
_PATIENCE: Final = 30.0


class Program:
    """One program; it can be killed in any way and started again."""

    def __init__(self, name: str, directory: Path, flags: Sequence[str], environment: Mapping[str, str] = {}) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self.flags = list(flags)
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return at once."""
        with self.log.open("ab") as log:
            command = ["setpriv", "--pdeathsig", "KILL", str(BIN / self.name), *self.flags]  # it ends with the tests
            self._process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal; by SIGKILL if it does not end."""
        if self._process is None:
            return
        process, self._process = self._process, None
        with suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def said(self) -> str:
        """Return the last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:]) if self.log.exists() else ""


def free_port() -> int:
    """Return a port of loopback on which nothing listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Authority:
    """A certificate authority in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.certificate, self._key = directory / "ca.crt", directory / "ca.key"
        _openssl(
            "req", "-x509", *_NEW_KEY, "-days", "2", "-subj", "/CN=ca", "-keyout", self._key, "-out", self.certificate
        )

    def issue(self, name: str, subject: str, hosts: str = "") -> tuple[Path, Path]:
        """Return a certificate and its key, for a client, or for a server with these *hosts*."""
        paths = {kind: self._directory / f"{name}.{kind}" for kind in ("crt", "key", "csr", "ext")}
        _openssl("req", *_NEW_KEY, "-subj", subject, "-keyout", paths["key"], "-out", paths["csr"])
        usage = f"extendedKeyUsage=serverAuth\nsubjectAltName={hosts}\n" if hosts else "extendedKeyUsage=clientAuth\n"
        paths["ext"].write_text(usage)
        signed = ("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial", "-extfile", paths["ext"])
        _openssl("x509", "-req", "-in", paths["csr"], *signed, "-days", "2", "-out", paths["crt"])
        return paths["crt"], paths["key"]

    def account_key(self) -> Path:
        """Return a new key for the tokens of service accounts."""
        path = self._directory / "account.key"
        _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", path)
        return path


_NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def kubeconfig(path: Path, address: str, authority: Path, **user: str) -> Path:
    """Write a kubeconfig file; *user* has a token, or a certificate and a key, under the names of the format."""
    server = {"server": f"https://{address}", "certificate-authority": str(authority)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": server}],
        "users": [{"name": "me", "user": {name.replace("_", "-"): value for name, value in user.items()}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me"}}],
        "current-context": "lab",
    }
    path.write_text(json.dumps(document))
    return path
