"""A client of a real API server: objects as dictionaries, found by their kind."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

Object = dict[str, Any]  # Any: JSON of the API server
_KINDS: Final = {
    "Pod": ("/api/v1", "pods", True),
    "Event": ("/api/v1", "events", True),
    "ServiceAccount": ("/api/v1", "serviceaccounts", True),
    "ConfigMap": ("/api/v1", "configmaps", True),
    "Service": ("/api/v1", "services", True),
    "Node": ("/api/v1", "nodes", False),
    "Deployment": ("/apis/apps/v1", "deployments", True),
    "DaemonSet": ("/apis/apps/v1", "daemonsets", True),
    "Job": ("/apis/batch/v1", "jobs", True),
    "ClusterRole": ("/apis/rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "CustomResourceDefinition": ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", False),
    "NodeResourceTopology": ("/apis/topology.node.k8s.io/v1alpha2", "noderesourcetopologies", False),
}
"""Where objects of a kind are, and whether they are in a namespace."""
_PATIENCE: Final = 30.0
MERGE: Final = "application/merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"


class APIError(Exception):
    """An answer that is an error."""

    def __init__(self, code: int, body: str) -> None:
        super().__init__(f"{code}: {body}")


class NotFound(APIError):  # noqa: N818 - the fact
    """There is no such object, or no such kind."""


class API(NamedTuple):
    """An API server, and the token of a user."""

    address: str
    """The IP address and the port."""
    authority: Path
    token: str

    def send(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Object:
        """Send a request; return the answer, or raise."""
        request = urllib.request.Request(
            f"https://{self.address}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": kind},
        )
        context = ssl.create_default_context(cafile=str(self.authority))
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE, context=context) as answer:  # noqa: S310
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                family = NotFound if error.code == HTTPStatus.NOT_FOUND else APIError
                raise family(error.code, error.read().decode()) from error
        return json.loads(text) if text.startswith("{") else {"text": text}

    def create(self, item: Object) -> Object:
        """Create an object."""
        return self.send("POST", _path(item["kind"], _namespace(item)), item)

    def apply(self, item: Object) -> Object:
        """Create an object or change it, by server-side apply."""
        path = f"{_path(item['kind'], _namespace(item))}/{item['metadata']['name']}?fieldManager=tests&force=true"
        return self.send("PATCH", path, item, APPLY)

    def get(self, kind: str, name: str, namespace: str = "default") -> Object:
        """Return an object."""
        return self.send("GET", f"{_path(kind, namespace)}/{name}")

    def find(self, kind: str, name: str, namespace: str = "default") -> Object | None:
        """Return an object, or None if there is none."""
        try:
            return self.get(kind, name, namespace)
        except NotFound:
            return None

    def all(self, kind: str, namespace: str = "default", query: str = "") -> list[Object]:
        """Return all objects of a kind."""
        items: list[Object] = self.send("GET", f"{_path(kind, namespace)}{query}")["items"]
        return items

    def delete(self, kind: str, name: str, namespace: str = "default", *, grace: int | None = 0) -> None:
        """Delete an object, with what it owns; a *grace* of None is that of the object."""
        options: Object = {"propagationPolicy": "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        self.send("DELETE", f"{_path(kind, namespace)}/{name}", options)

    def as_account(self, name: str, namespace: str) -> str:
        """Return a token of a service account, by the TokenRequest API."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        }
        answer = self.send("POST", f"{_path('ServiceAccount', namespace)}/{name}/token", request)
        return str(answer["status"]["token"])


def _namespace(item: Object) -> str:
    return str(item["metadata"].get("namespace", "default"))


def _path(kind: str, namespace: str) -> str:
    root, plural, namespaced = _KINDS[kind]
    return f"{root}/namespaces/{namespace}/{plural}" if namespaced else f"{root}/{plural}"
