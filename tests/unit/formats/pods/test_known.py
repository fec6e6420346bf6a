"""What `apply` would silently betray on a plain host is refused by name; what is harmless is ignored with a warning."""

from __future__ import annotations

import pytest

from pinfold.core.pods.pod import Identity
from pinfold.formats.fields import DocumentError
from pinfold.formats.pods.document import pod_document
from pinfold.formats.pods.manifest import PodDocuments, parse_pods

NAMES = "kind: Pod\nmetadata: {name: web}\n"


def parsed(container: str = "", spec: str = "", *, to_run: bool = True) -> PodDocuments:
    more = f", {container}" if container else ""
    text = f"{NAMES}spec: {{containers: [{{name: app, command: [run]{more}}}]{f', {spec}' if spec else ''}}}"
    return parse_pods(text, source="web.yaml", to_run=to_run)


@pytest.mark.parametrize(
    ("container", "spec", "path"),
    [
        ("env: [{name: A, valueFrom: {fieldRef: {fieldPath: x}}}]", "", "spec.containers[0].env[0].valueFrom"),
        ("envFrom: [{configMapRef: {name: a}}]", "", "spec.containers[0].envFrom"),
        ("volumeMounts: [{name: a, mountPath: /a}]", "", "spec.containers[0].volumeMounts"),
        ("livenessProbe: {exec: {command: [true]}}", "", "spec.containers[0].livenessProbe"),
        ("lifecycle: {preStop: {exec: {command: [a]}}}", "", "spec.containers[0].lifecycle"),
        ("securityContext: {capabilities: {drop: [ALL]}}", "", "spec.containers[0].securityContext.capabilities"),
        (
            "securityContext: {readOnlyRootFilesystem: true}",
            "",
            "spec.containers[0].securityContext.readOnlyRootFilesystem",
        ),
        ("", "volumes: [{name: a, emptyDir: {}}]", "spec.volumes"),
        ("", "securityContext: {fsGroup: 5}", "spec.securityContext.fsGroup"),
    ],
)
def test_a_field_that_would_be_silently_betrayed_is_refused_by_name(container: str, spec: str, path: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parsed(container, spec)
    assert str(caught.value) == (
        f"web.yaml: document 1: {path}: plain processes cannot have this field; see docs/reference/pod-fields.md"
    )
    assert parsed(container, spec, to_run=False).pods


def test_fields_that_are_harmless_are_ignored_with_one_warning() -> None:
    found = parsed("image: nginx, ports: [{containerPort: 80}], volumeMounts: []", "tolerations: [{key: a}]")
    (warning,) = found.warnings
    assert "ignored for plain processes: tolerations, image, ports; " in warning
    assert parsed("securityContext: {privileged: false, allowPrivilegeEscalation: true}").warnings == ()


def test_a_container_runs_as_the_user_that_it_names_or_its_pod() -> None:
    whole = "securityContext: {runAsUser: 1000, runAsGroup: 1001, supplementalGroups: [7, 8]}"
    (pod,) = parsed("securityContext: {runAsUser: 2000}", whole).pods
    assert pod.containers[0].identity == Identity(2000, 1001, (7, 8))
    assert parsed().pods[0].containers[0].identity == Identity()
    assert parse_pods(str(pod_document(pod))).pods == (pod,)


@pytest.mark.parametrize("user", ["", ", runAsUser: 0"])
def test_run_as_non_root_needs_a_user(user: str) -> None:
    with pytest.raises(DocumentError, match="runAsNonRoot: needs runAsUser other than 0"):
        parsed(spec=f"securityContext: {{runAsNonRoot: true{user}}}")
    assert parsed("securityContext: {runAsUser: 5}", "securityContext: {runAsNonRoot: true}").pods


def test_a_list_in_place_of_a_user_is_a_problem() -> None:
    with pytest.raises(DocumentError, match="runAsUser: a list where a whole number is expected"):
        parsed(spec="securityContext: {runAsNonRoot: true, runAsUser: []}")


def test_relative_paths_mean_the_directory_of_the_client() -> None:
    for given, meant in (("", "/home/me"), ("sub/dir", "/home/me/sub/dir"), ("/srv", "/srv")):
        (pod,) = parsed(f"workingDir: {given}" if given else "").pods
        assert pod.within("/home/me").containers[0].working_dir == meant
