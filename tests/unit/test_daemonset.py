"""The DaemonSet of deploy/: what it may do, what it is started with, and that both ways to install it are the same."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import pinfold
from pinfold.cli import leave
from pinfold.core.machine.presets import preset
from pinfold.settings.settings import Settings, add_arguments, read_settings
from tests.support.rendering import CHART, KUSTOMIZE, by_helm, by_kustomize, from_pypi, helm, output

if TYPE_CHECKING:
    from pathlib import Path

SCHEMAS = "kubernetes-validate==1.37.0\n"
VERSIONS = ("1.30", "1.37")
COMPONENTS = ("fail-refused-pods", "publish-topology", "leave-on-stop")
SETTINGS = ("onRefusal=fail", "publishTopology=true", "leaveOnStop=true")

Objects = dict[tuple[str, str], dict[str, Any]]


def objects(text: str) -> Objects:
    """Return the objects in *text* by kind and name; the configuration file in a ConfigMap as a value."""
    found = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text) if one}
    for one in found.values():
        if one["kind"] == "ConfigMap":
            one["data"] = {name: yaml.safe_load(value) for name, value in one["data"].items()}
    return found


def base() -> Objects:
    return objects("\n---\n".join((KUSTOMIZE / "base" / name).read_text() for name in _listed()))


def _listed() -> list[str]:
    resources: list[str] = yaml.safe_load((KUSTOMIZE / "base/kustomization.yaml").read_text())["resources"]
    return resources


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = base()["DaemonSet", "pinfold"]["spec"]["template"]["spec"]
    return spec


def container() -> dict[str, Any]:
    (only,) = pod()["containers"]
    assert isinstance(only, dict)
    return only


def job() -> dict[str, Any]:
    """Return the Job that gives a node's CPUs back where pinfold ended without its hook."""
    found: dict[str, Any] = yaml.safe_load((KUSTOMIZE / "leave/job.yaml").read_text())
    return found


def settings(arguments: list[str], file: Path) -> Settings:
    """Return the settings that the flags of a container mean, with the base's configuration in *file*."""
    file.write_text(yaml.safe_dump(base()["ConfigMap", "pinfold"]["data"]["kubelet.yaml"]))
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = parser.parse_args([flag.replace("/etc/pinfold/kubelet.yaml", str(file)) for flag in arguments])
    return read_settings(given, preset("epyc-7303-2s"), environment={}, uid=0)


def test_the_daemon_understands_its_flags_and_its_configuration(tmp_path: Path) -> None:
    verb, *flags = container()["args"]
    assert verb == "serve"
    chosen = settings(flags, tmp_path / "config.yaml")
    assert (chosen.runtime, chosen.config.policy, chosen.watch_config) == ("nri", "static", True)
    assert chosen.views.listen is not None
    assert chosen.views.listen.port == container()["ports"][0]["containerPort"]


def test_the_kubelets_configuration_is_not_where_the_daemon_looks_for_settings_of_its_own() -> None:
    (place,) = (mount["mountPath"] for mount in container()["volumeMounts"] if mount["name"] == "config")
    files = {f"{place}/{name}" for name in base()["ConfigMap", "pinfold"]["data"]}
    assert files == {flag.partition("=")[2] for flag in container()["args"] if flag.startswith("--config=")}
    assert "/etc/pinfold/config.yaml" not in files


def test_the_pod_has_no_capability_no_namespace_of_the_host_and_a_root_that_cannot_be_written() -> None:
    assert container()["securityContext"] == {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod()["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not [name for name in pod() if name.startswith("host")]


def test_the_pod_has_those_directories_of_the_host_that_a_real_node_needed() -> None:
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod()["volumes"] if "hostPath" in volume}
    mounts = {mount["name"]: mount for mount in container()["volumeMounts"]}
    assert set(paths.values()) == {
        "/var/run/nri",
        "/sys/fs/cgroup",
        "/var/lib/pinfold",
        "/run/pinfold",
        "/var/lib/kubelet",
    }
    assert all(mounts[name]["mountPath"] == path for name, path in paths.items())
    assert [name for name, mount in mounts.items() if mount.get("readOnly")] == ["config", "kubelet"]


def test_an_update_starts_the_next_pod_first_which_stands_by() -> None:
    strategy = base()["DaemonSet", "pinfold"]["spec"]["updateStrategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 1, "maxUnavailable": 0}
    assert "--stand-by" in container()["args"]
    assert "hostNetwork" not in pod()  # both pods listen on the same port


def test_nothing_on_a_node_is_ended_to_make_room_for_pinfold_except_what_matters_less() -> None:
    assert pod()["priorityClassName"] == "system-node-critical"


def test_without_components_the_service_account_can_only_read() -> None:
    rules = base()["ClusterRole", "pinfold"]["rules"]
    assert {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]} == {
        ("pods", "list"),
        ("pods", "watch"),
        ("nodes/pods", "get"),
    }


def test_the_policy_is_about_the_account_that_the_pods_use_and_lets_it_change_only_pods_of_its_node() -> None:
    policy = objects((KUSTOMIZE / "components/fail-refused-pods/policy.yaml").read_text())
    spec = policy["ValidatingAdmissionPolicy", "pinfold-own-node"]["spec"]
    namespace = yaml.safe_load((KUSTOMIZE / "base/kustomization.yaml").read_text())["namespace"]
    account = f"system:serviceaccount:{namespace}:{pod()['serviceAccountName']}"
    assert spec["matchConditions"][0]["expression"] == f"request.userInfo.username == '{account}'"
    assert spec["validations"][0]["expression"] == "variables.node != '' && variables.node == oldObject.spec.nodeName"
    assert spec["failurePolicy"] == "Fail"
    assert policy["ValidatingAdmissionPolicyBinding", "pinfold-own-node"]["spec"]["validationActions"] == ["Deny"]


def test_the_job_that_leaves_uses_the_state_and_the_groups_of_the_daemonset_and_may_do_no_more() -> None:
    spec = job()["spec"]["template"]["spec"]
    (only,) = spec["containers"]
    parser = argparse.ArgumentParser()
    leave.add_arguments(parser)
    verb, *flags = only["args"]
    assert verb == "leave"
    assert only["securityContext"] == container()["securityContext"]
    assert spec["automountServiceAccountToken"] is False
    mounts = {mount["name"]: mount for mount in container()["volumeMounts"]}
    assert only["volumeMounts"] == [mounts["cgroup"], mounts["state"]]
    assert parser.parse_args(flags).state_dir == mounts["state"]["mountPath"]
    assert [one["hostPath"]["path"] for one in spec["volumes"]] == [one["mountPath"] for one in only["volumeMounts"]]


def test_chart_and_manifests_name_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    (leaving,) = job()["spec"]["template"]["spec"]["containers"]
    assert container()["image"] == leaving["image"] == f"pinfold:{pinfold.__version__}"
    assert chart["version"] == chart["appVersion"] == pinfold.__version__


# -- with the tools that users render them with


@pytest.mark.slow
@pytest.mark.parametrize(("components", "values"), [((), ()), (COMPONENTS, SETTINGS)], ids=["default", "everything"])
def test_chart_and_kustomize_render_the_same_objects_and_kubernetes_schemas_accept_them(
    tmp_path: Path, components: tuple[str, ...], values: tuple[str, ...]
) -> None:
    chart = by_helm(*values)
    assert objects(chart) == objects(by_kustomize(tmp_path, *components))
    (tmp_path / "chart.yaml").write_text(f"{chart}\n---\n{yaml.safe_dump(job())}")
    check = [sys.executable, "-m", "kubernetes_validate", "--strict"]
    for version in VERSIONS:
        output(*check, "-k", version, tmp_path / "chart.yaml", path=str(from_pypi(SCHEMAS)))


@pytest.mark.slow
def test_the_flags_of_every_component_are_understood(tmp_path: Path) -> None:
    found = objects(by_helm(*SETTINGS, "extraArgs={--cri-socket=/run/containerd/containerd.sock}"))
    (only,) = found["DaemonSet", "pinfold"]["spec"]["template"]["spec"]["containers"]
    assert (
        settings(only["args"][1:], tmp_path / "config.yaml").kubernetes.cri_socket == "/run/containerd/containerd.sock"
    )


@pytest.mark.slow
def test_helm_finds_no_fault_with_the_chart_and_refuses_unknown_values() -> None:
    assert "0 chart(s) failed" in helm("lint", CHART)
    with pytest.raises(AssertionError, match="leaveOnStop"):
        by_helm("leaveOnStop=never")
    with pytest.raises(AssertionError, match="colour"):
        by_helm("colour=red")
