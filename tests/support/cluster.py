"""What a pod finds in a cluster: a service account with a token and a certificate; and pods as the API has them."""

from __future__ import annotations

import base64
import json
import subprocess
from typing import TYPE_CHECKING

from pinfold.formats.pods.document import pod_document
from pinfold.kubernetes.account import ServiceAccount

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.core.pods.pod import Pod
    from tests.support.apiserver import APIServer

NODE = "node1"
GOOD = "good"


def certificate(directory: Path, name: str = "cert", *, host: str = "127.0.0.1") -> Path:
    """Make a certificate that is signed by itself, with its key in the same file."""
    path, kind = directory / f"{name}.pem", "IP" if host[0].isdigit() else "DNS"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName={kind}:{host}"]
    made = subprocess.run([*command, "-keyout", "-", "-out", "-"], check=True, capture_output=True)
    path.write_bytes(made.stdout)
    return path


def account(directory: Path, server: APIServer, *, token: str = GOOD, trusted: Path | None = None) -> ServiceAccount:
    """Return a service account as the kubelet mounts it, for a server that listens."""
    directory.mkdir(exist_ok=True)
    (directory / "token").write_text(token)
    if trusted is not None:
        (directory / "ca.crt").write_bytes(trusted.read_bytes())
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port), "NODE_NAME": NODE}
    return ServiceAccount(directory, environ)


def mounted_token(node: str) -> str:
    """Return a token with the claims of one that the kubelet mounts."""
    claims = json.dumps({"kubernetes.io": {"node": {"name": node}}}).encode()
    return f"h.{base64.urlsafe_b64encode(claims).rstrip(b'=').decode()}.s"


def api_pod(pod: Pod, *, node: str = NODE, phase: str = "Pending", owner: str = "") -> dict[str, object]:
    """Return a pod as the API server has it once it is bound."""
    document = pod_document(pod)
    metadata, spec = document["metadata"], document["spec"]
    assert isinstance(metadata, dict)
    assert isinstance(spec, dict)
    if owner:
        kind, _, name = owner.partition("/")
        metadata["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": True}]
    return {"metadata": metadata, "spec": {**spec, "nodeName": node}, "status": {"phase": phase}}
