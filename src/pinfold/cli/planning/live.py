"""The node of a running daemon: its machine, State, pods and settings, as far as it reports them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from pinfold.cli.asking.client import Client
from pinfold.errors import ParseError
from pinfold.formats.fields import DocumentError
from pinfold.formats.machine.topologyjson import parse_topology_json
from pinfold.formats.pods.manifest import parse_pods

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Pod


class Live(NamedTuple):
    """A daemon's node."""

    topology: Topology
    checkpoint: str
    """Its State, as the file that it would write."""
    pods: tuple[Pod, ...]
    policy: str
    reserved: str
    """The list of reserved CPUs."""
    settings: Mapping[str, str] | None
    """Its further settings by their names in `settingstable`, as flags would say them; None if not reported."""


def read_live(args: argparse.Namespace) -> Live:
    """Return the node of the daemon that answers on the socket."""
    client = Client.of(args)
    node, topology, state = (client.get(f"/v1/{what}") for what in ("node", "topology", "state"))
    try:
        pods = [pod for document in state["pods"] for pod in parse_pods(json.dumps(document)).pods]
        return Live(
            parse_topology_json(json.dumps(topology)),
            str(state["checkpoint"]),
            tuple(pods),
            str(node["policy"]),
            str(node["pools"]["reserved"]),
            _settings(state["settings"]) if "settings" in state else None,
        )
    except (DocumentError, KeyError, TypeError, AttributeError) as error:
        raise ParseError(
            f"the daemon's answer has another form than expected ({error!r}); is the daemon of another version?"
        ) from error


def _settings(told: dict[str, Any]) -> Mapping[str, str]:  # Any: JSON of the daemon
    """Return settings as texts; a mapping becomes NAME=VALUE pairs."""
    return {
        name: ",".join(f"{key}={text}" for key, text in value.items()) if isinstance(value, dict) else str(value)
        for name, value in told.items()
        if value
    }
