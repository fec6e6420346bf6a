"""What people do with a daemon from a terminal: read what containers print, wait for them, apply again, delete."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from pinfold.node.machine.sysfs import discover
from tests.e2e.daemon import SPARE, container, needs_two_cpus, pod, wait_for
from tests.needs import needs_root

if TYPE_CHECKING:
    from tests.e2e.daemon import Daemon

pytestmark = [needs_two_cpus]

FAILING = """
kind: Pod
metadata: {name: NAME}
spec:
  restartPolicy: Always
  containers:
  - {name: app, command: [sh, -c, "echo started; echo no database >&2; exit 3"]}
"""
TALKING = """
kind: Pod
metadata: {name: talking, namespace: prod}
spec:
  restartPolicy: Never
  containers:
  - {name: app, command: [sh, -c, "echo one; read -r line < $0; echo two", FIFO]}
"""


def failed(host: Daemon, name: str) -> dict[str, object]:
    """Start a pod that fails, and return the event of its first failure."""
    host.apply(FAILING.replace("NAME", name))
    rows = wait_for(lambda: [row for row in host.events("ended") if row["pod"] == name], f"{name} has failed")
    return dict(rows[0])


def test_logs_shows_what_a_container_has_printed(host: Daemon) -> None:
    failed(host, "failing")
    shown = host.verb("logs", "failing")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("started\nno database\n")
    assert host.verb("logs", "pod/failing", "-c", "app").stdout.startswith(shown.stdout)
    assert host.verb("logs", "default/failing").stdout.startswith(shown.stdout)
    last = host.verb("logs", "failing", "--tail", "1").stdout
    assert last in {"started\n", "no database\n"}  # it may just have been started again
    missing = host.verb("logs", "nothing")
    assert (missing.returncode, missing.stderr) == (2, 'pinfold: error: no output of "nothing" is kept\n')
    host.delete("failing")


def test_logs_follows_until_the_pod_ends(host: Daemon, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    host.apply(TALKING.replace("FIFO", str(fifo)))
    following = host.begin("logs", "-f", "-n", "prod", "talking/app")
    assert following.stdout is not None
    assert following.stdout.readline() == "one\n"
    fifo.write_text("go\n")
    assert following.stdout.read() == "two\n"
    assert following.wait() == 0
    assert host.verb("wait", "prod/talking", "--timeout", "10").returncode == 0


def test_the_last_lines_of_a_failed_container_are_in_its_event_and_explained(host: Daemon) -> None:
    ended = failed(host, "broken")
    assert (ended["code"], ended["output"]) == (3, "started | no database")
    said = host.verb("explain", "broken").stdout
    assert "with code 3; its last lines\n" in said
    assert said.endswith("  started\n  no database\n")  # it is started again, and may have failed again
    assert json.loads(host.verb("explain", "broken", "-o", "json").stdout)["failed"]["code"] == 3
    host.delete("broken")


def test_what_a_container_printed_is_not_in_the_history_that_others_can_read(host: Daemon) -> None:
    failed(host, "secret")
    host.flush()
    rows = host.client.get("/v1/history?what=ended")["entries"]
    assert rows
    assert not any("output" in row for row in rows)
    host.delete("secret")


def test_wait_returns_when_a_pod_runs_and_gives_up_in_time(host: Daemon) -> None:
    host.apply(pod("worker"))
    assert host.verb("wait", "worker", "--for", "running", "--timeout", "20").returncode == 0
    late = host.verb("wait", "worker", "--timeout", "0.2")
    assert (late.returncode, late.stderr) == (1, "pinfold: error: waited 0.2 s for worker; not ended yet\n")
    host.delete("worker")
    assert host.verb("wait", "pod/worker", "--timeout", "20").returncode == 0


def test_a_changed_pod_is_configured_and_one_that_does_not_fit_goes_on(host: Daemon) -> None:
    host.apply(pod("web"))
    first = host.running("web")
    changed = host.verb("apply", "-", "-o", "json", text=pod("web", container(cpus=1)))
    row = json.loads(changed.stdout)["pods"][0]
    assert (row["done"], changed.returncode) == ("configured", 0)
    assert host.running("web") != first
    cpus = host.state().exclusive
    refused = host.verb("apply", "-", text=pod("web", container(cpus=SPARE + 1)))
    assert refused.returncode == 4
    assert f"pod web: refused; {SPARE + 1} CPUs are not available: " in refused.stdout
    host.running("web")
    assert host.state().exclusive == cpus
    host.delete("web")


def test_names_are_taken_as_kubectl_takes_them(host: Daemon) -> None:
    elsewhere = pod("single").replace("{name: single}", "{name: single, namespace: elsewhere}")
    host.apply(elsewhere, pod("single"))
    wait_for(lambda: {row["state"] for row in host.containers()} == {"running"}, "both run")
    assert host.verb("get", "pod").stdout == host.verb("get", "pods").stdout
    deleted = host.verb("delete", "elsewhere/single", "-o", "json")
    assert json.loads(deleted.stdout) == [{"namespace": "elsewhere", "deleted": "single", "given_back": []}]
    assert host.verb("delete", "pod/single").stdout == "pod single: deleted\n"


def test_missed_pinning_is_said_by_apply_and_by_the_daemon(host: Daemon) -> None:
    burstable = pod("kafka", container(cpus=1)).replace("memory: 1Mi", "ephemeral-storage: 1Mi")
    said = host.verb("apply", "-", text=burstable)
    why = "asks for 1 whole CPU but will share: it has no memory limit, so the pod is Burstable, not Guaranteed"
    assert f"pinfold: warning: kafka/app {why}\n" in said.stderr
    assert host.events("not-pinned")[-1]["why"] == why
    explained = " ".join(host.verb("explain", "kafka").stdout.split())
    assert "in the shared pool because it has no memory limit, so the pod is Burstable, not Guaranteed" in explained
    host.delete("kafka")


def test_all_problems_of_a_file_are_listed_and_nothing_of_it_starts(host: Daemon) -> None:
    probed = pod("probed", container(more="livenessProbe: {exec: {command: [true]}}"))
    refused = host.verb("apply", "-", text=f"{pod('good')}\n---\na: b: c\nd: e\n---\n{probed}\n---\nf: *g\n")
    assert refused.returncode == 2
    syntax, alias, field = refused.stderr.splitlines()
    assert syntax.startswith("pinfold: error: stdin: document 2: line 9: ")
    assert syntax.endswith("needs quotes); the rest of this document (to line 10) was not read"), refused.stderr
    assert alias.endswith('alias "*g" has no anchor before it')
    assert "livenessProbe: plain processes cannot have this field" in field
    assert host.containers() == []


def test_a_field_that_a_plain_process_would_betray_is_refused_and_nothing_starts(host: Daemon) -> None:
    probed = pod("probed", container(more="livenessProbe: {exec: {command: [true]}}"))
    refused = host.verb("apply", "-", text=probed)
    assert refused.returncode == 2
    assert "spec.containers[0].livenessProbe: plain processes cannot have this field" in refused.stderr
    assert host.containers() == []


@needs_root
def test_a_container_runs_as_its_user_and_group(host: Daemon) -> None:
    said = "securityContext: {runAsUser: 65534, runAsGroup: 65533}"
    host.apply(pod("other", container("id -u; id -g; exec sleep 1000", cpus=1, more=said)))
    wait_for(lambda: host.written("other") == ["65534", "65533"], "it has said who it is")
    host.check()
    host.delete("other")


def test_relative_paths_mean_the_directory_of_the_client(host: Daemon, tmp_path: Path) -> None:
    (tmp_path / "app.sh").write_text("pwd; exec sleep 1000\n")
    file = tmp_path / "pod.yaml"
    file.write_text(pod("here").replace("exec sleep 1000", ". ./app.sh"))
    applied = host.begin("apply", "pod.yaml", cwd=tmp_path)
    assert applied.wait() == 0
    wait_for(lambda: host.written("here") == [str(tmp_path)], "it runs where it was applied")
    host.delete("here")


def test_run_near_a_device_that_there_is_not_names_the_machines_devices(host: Daemon) -> None:
    unknown = host.verb("run", "--near", "no-such-device", "--", "true")
    assert unknown.returncode == 125
    assert 'there is no device "no-such-device"; ' in unknown.stderr
    shared = host.verb("run", "--qos", "burstable", "--near", "eth0", "--", "true")
    assert shared.returncode == 125
    assert "--near and --local-memory are for CPUs of its own" in shared.stderr


@needs_root
def test_run_with_local_memory_uses_the_nodes_of_its_cpus_only(host: Daemon) -> None:
    command = ["grep", "Mems_allowed_list", "/proc/self/status"]
    ran = host.verb("run", "--cpus", str(SPARE), "--local-memory", "--", *command)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split()[1] in {str(node.id) for node in discover(Path("/")).numa_nodes}
