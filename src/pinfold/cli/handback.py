"""`pinfold hand-back`: write the State for a kubelet, whose own static policy goes on with it, and end the daemon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pinfold.cli.asking.client import Client, add_output, add_socket
from pinfold.core.machine.cpuset import CPUSet
from pinfold.errors import PinfoldError
from pinfold.formats.kubelet.checkpoint import format_checkpoint, parse_checkpoint
from pinfold.node.kubeletstate import FILE
from pinfold.node.statefile import write_atomically

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold hand-back`."""
    add_socket(parser)
    add_output(parser)
    parser.add_argument(
        "--kubelet-dir",
        metavar="DIR",
        type=Path,
        default=Path("/var/lib/kubelet"),
        help="the kubelet's directory (default: /var/lib/kubelet)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the file and end the daemon; the kubelet must not run, and be started with the same configuration."""
    client = Client.of(args)
    node, text = client.get("/v1/node"), client.get("/v1/state")["checkpoint"]
    if node["policy"] != "static":
        raise PinfoldError(f"the daemon's policy is {node['policy']}; a kubelet can only go on with static")
    if node["runtime"] not in {"nri", "cri"}:
        raise PinfoldError(f"the daemon's runtime is {node['runtime']}; a kubelet can only go on with nri or cri")
    if node["read_only"]:
        raise PinfoldError("the daemon only watches: the kubelet's own state file is already valid")
    text = without_idle(text, CPUSet.parse(node["pools"]["idle"]))
    state = parse_checkpoint(text, policy="static")
    path = args.kubelet_dir / FILE
    write_atomically(path, text.encode())
    client.post("/v1/leave", {"keep_owners": True})
    pods = len(state.assignments)
    if args.output == "json":
        cpus = {"exclusive": str(state.exclusive), "shared": str(state.shared)}
        print(json.dumps({"file": str(path), "pods": pods, **cpus}, indent=2))
        return 0
    print(f"{path}: {pods} pods with CPUs {state.exclusive or 'none'} of their own, shared pool {state.shared}")
    print("pinfold has ended: pods with CPUs of their own keep them, all other groups have all CPUs again")
    print("next: start the kubelet with cpuManagerPolicy static and the same options and reserved CPUs")
    return 0


def without_idle(checkpoint: str, idle: CPUSet) -> str:
    """Return a checkpoint in which idle siblings are shared: a kubelet does not know any."""
    if not idle:
        return checkpoint
    state = parse_checkpoint(checkpoint, policy="static", pod_level=True)
    return format_checkpoint("static", state._replace(shared=state.shared | idle), pod_level=bool(state.pods))
