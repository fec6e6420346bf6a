"""Config → a KubeletConfiguration in YAML, ready to paste; `config` reads it back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pinfold.core.policies.options import OWN
from pinfold.formats.kubelet.config import KIND, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pinfold.core.config import Config
    from pinfold.core.machine.cpuset import CPUSet


def format_kubelet_config(config: Config, reserved: CPUSet, gates: Iterable[str] = ()) -> str:
    """Return the settings of *config* with these CPUs reserved and these feature gates enabled.

    >>> from pinfold.core.config import Config
    >>> from pinfold.core.machine.cpuset import CPUSet
    >>> print(format_kubelet_config(Config("static", {"full-pcpus-only": "true"}), CPUSet.of(0, 32)), end="")
    apiVersion: kubelet.config.k8s.io/v1beta1
    kind: KubeletConfiguration
    cpuManagerPolicy: static
    cpuManagerPolicyOptions:
      full-pcpus-only: "true"
    reservedSystemCPUs: "0,32"
    """
    return "".join(f"{line}\n" for line in _lines(config, reserved, {**config.gates, **dict.fromkeys(gates, True)}))


def _lines(config: Config, reserved: CPUSet, gates: Mapping[str, bool]) -> Iterator[str]:
    yield f"apiVersion: {VERSION}"
    yield f"kind: {KIND}"
    own = [name for name in config.options if name in OWN]
    if own or config.policy not in {"none", "static"}:
        yield f"# only for pinfold: a kubelet does not know {', '.join(own) or f'policy {config.policy}'}"
    yield f"cpuManagerPolicy: {config.policy}"
    yield from _table("cpuManagerPolicyOptions", config.options)
    if reserved:
        yield f"reservedSystemCPUs: {json.dumps(str(reserved))}"
    if config.topology_policy != "none":
        yield f"topologyManagerPolicy: {config.topology_policy}"
    if config.topology_scope != "container":
        yield f"topologyManagerScope: {config.topology_scope}"
    yield from _table("topologyManagerPolicyOptions", config.topology_options)
    yield from _table("featureGates", gates)


def _table(name: str, values: Mapping[str, object]) -> Iterator[str]:
    """Yield a mapping; text in quotes of JSON is YAML too."""
    if values:
        yield f"{name}:"
        yield from (f"  {key}: {json.dumps(value)}" for key, value in values.items())
