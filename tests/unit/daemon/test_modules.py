"""What an idle daemon has imported: memory that it never uses is modules that it does not need."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

MOST = 410
"""400 are imported today, 100 of them before the first line of pinfold's."""
NEVER = {
    "_hashlib", "ast", "difflib", "dis", "email", "inspect", "ipaddress", "urllib.parse",
    "google", "google.protobuf", "h11", "h2", "http.client", "importlib.resources",
    "shutil", "tempfile", "uuid", "xml", "yaml", "zipfile", "pinfold.core.allocators.distributed",
    "pinfold.core.machine.layout", "pinfold.core.moving.repack", "pinfold.formats.machine.machinefile",
    "pinfold.formats.machine.topologyjson", "pinfold.formats.pods.manifest", "pinfold.formats.yamldocuments",
    "pinfold.grpc", "pinfold.node.journal.history", "pinfold.node.podgroups.groups", "pinfold.node.podgroups.systemd",
    "pinfold.node.resctrl.groups", "pinfold.node.shield.host", "pinfold.planning.plan", "pinfold.render",
    "pinfold.serve.control", "pinfold.serve.metrics.metrics", "pinfold.serve.openapi",
}  # fmt: skip


NEVER_ON_A_NODE = {
    "_hashlib", "ast", "calendar", "datetime", "dis", "ipaddress",
    "difflib", "email", "google.protobuf.internal.decoder", "google.protobuf.text_format", "http.client",
    "random", "xml", "yaml", "pinfold.daemon.parts.host", "pinfold.kubernetes.nodetopology",
    "pinfold.kubernetes.refusals", "pinfold.manager.sources.workloads", "pinfold.node.processgroups.v1",
    "pinfold.node.shield.host", "pinfold.planning.plan", "pinfold.render", "pinfold.runtimes.processes.launcher",
    "pinfold.serve.control",
}  # fmt: skip


def imported(directory: Path, runtime: str) -> set[str]:
    """Return the modules that a daemon imports until it is ready."""
    command = [sys.executable, "-X", "importtime", "-m", "pinfold", "serve", "--runtime", runtime]
    command += ["--state-dir", str(directory / "state"), "--socket", str(directory / "s.sock")]
    command += ["--other-daemons", "warn", "--group-name", f"pinfold-{directory.name}", "--listen", "127.0.0.1:0"]
    with (directory / "log").open("w") as log:
        daemon = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert daemon.stdout is not None
        assert "ready" in daemon.stdout.readline()
    finally:
        daemon.terminate()
        daemon.communicate(timeout=30)
    lines = (directory / "log").read_text().splitlines()
    # In a coverage run or with an editable install more is imported before the program starts.
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


@pytest.mark.parametrize("runtime", ["simulated", "processes"])
def test_an_idle_daemon_imports_only_what_it_needs(tmp_path: Path, runtime: str) -> None:
    found = imported(tmp_path, runtime)
    assert not found & NEVER
    assert len(found) <= MOST


def test_a_daemon_over_nri_imports_no_part_of_a_plain_hosts() -> None:
    code = (
        "import sys; from pinfold.cli.leftout import leave_out; leave_out()\n"
        "import pinfold.daemon.serve; from pinfold.daemon.protobuf import leave_out_python; leave_out_python()\n"
        "import pinfold.daemon.parts.pods, pinfold.manager.sources.nri, pinfold.runtimes.nri.answers\n"
        "from pinfold.proto import nri_pb2 as nri; from pinfold.node.kubeletstate import ask_policy; ask_policy(1)\n"
        "one = nri.Container(id='c'); one.labels['a'] = 'b'; one.linux.resources.cpu.shares.value = 2\n"
        "assert nri.Container.FromString(one.SerializeToString()) == one\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert "pinfold.runtimes.nri.answers" in found
    assert not found & NEVER_ON_A_NODE
