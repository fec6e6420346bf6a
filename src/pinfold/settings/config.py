"""Reads the CPU Manager's own settings: policy, options, reserved CPUs, gates; checked against the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.admission import Scope
from pinfold.core.allocators.order import Fidelity
from pinfold.core.config import NOT_SAID, POLICIES, Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.policies.options import OPTION_GATES, POD_LEVEL, RESIZE
from pinfold.core.topologymanager.options import TopologyPolicy
from pinfold.errors import ConfigError, Problem
from pinfold.formats.kubelet.flags import (
    check_option,
    check_topology_option,
    parse_cpus,
    parse_gates,
    parse_reserved,
    reservation,
    spell_out_gates,
)
from pinfold.settings.reader import one_of
from pinfold.settings.table import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pinfold.core.machine.topology import Topology
    from pinfold.settings.reader import SettingsReader

_LAPTOP: Final = Config("static")
_OURS: Final = frozenset(gate.name for gate in (*OPTION_GATES.values(), POD_LEVEL, RESIZE))
_OTHERS: Final = frozenset(
    {"AllAlpha", "AllBeta", "CPUManager", "CPUManagerPolicyOptions", "InPlacePodVerticalScaling", "PodLevelResources"}
)
"""Gates of kubelets with names like ours."""
_ALIKE: Final = 0.9
_MOST_GUESSES: Final = 20


def read_config(reader: SettingsReader, topology: Topology | None) -> Config:
    """Return the configuration of the policies; without a machine, it is not checked against one."""
    file = reader.file
    base = file.config if reader.has_file else _LAPTOP
    policy = reader.take("policy", one_of(POLICIES), base.policy)
    config = Config(
        policy=policy,
        options=reader.options("policy_options", check_option, base.options),
        reserved=_read_reserved(reader, policy, topology),
        topology_policy=reader.take("topology_policy", one_of(TopologyPolicy), base.topology_policy),
        topology_options=reader.options("topology_options", check_topology_option, base.topology_options),
        topology_scope=reader.take("topology_scope", one_of(Scope), base.topology_scope),
        gates=spell_out_gates(_read_gates(reader)),
        fidelity=reader.choose("view", Fidelity.PINFOLD),
    )
    if policy == "none" and not reader.is_given("policy"):
        source = reader.sources["policy"]
        reader.warnings.append(f"policy none ({source}) gives no container exclusive CPUs; --policy static does")
    if reader.readable and topology is not None:
        reader.problems += _problems_on(topology, config)
    return config


def _read_reserved(reader: SettingsReader, policy: str, topology: Topology | None) -> Reservation:
    file = reader.file
    before = len(reader.problems)
    cpus = reader.take("reserved_cpus", parse_cpus, file.config.reserved.cpus)
    amounts = {
        "kube_reserved": reader.take("kube_reserved", parse_reserved, file.kube_reserved),
        "system_reserved": reader.take("system_reserved", parse_reserved, file.system_reserved),
    }
    if cpus is None:
        said = [reader.sources[name] for name, amount in amounts.items() if amount is not None]
        reader.sources["reserved_cpus"] = ", ".join(said) or reader.sources["reserved_cpus"]
    else:
        source = reader.sources["reserved_cpus"]
        reader.warnings += [
            f"{reader.flag(name)} is not used: {source} names the CPUs" for name in amounts if reader.is_given(name)
        ]
        reader.problems += _problems_of_reserved(cpus, source, policy, topology) if topology is not None else ()
    found = reservation(cpus, *amounts.values())
    if topology is None:
        return found
    is_wrong = len(reader.problems) > before
    is_open = found == NOT_SAID and policy != "none" and not reader.has_file
    chosen = default_reservation(topology) if is_wrong or is_open else found
    reader.values["reserved_cpus"] = chosen.cpus
    return chosen


def _problems_of_reserved(cpus: CPUSet, source: str, policy: str, topology: Topology) -> Iterator[Problem]:
    if policy != "none" and cpus == topology.online:
        yield Problem(f"{source}: all CPUs of the machine are reserved, so none can be exclusive", "leave some out")
    if outside := cpus - topology.online:
        yield Problem(f"{source}: {_not_online(outside)}", f"the machine has CPUs {topology.online}")


def _not_online(cpus: CPUSet) -> str:
    return f"CPU {cpus} is not online" if len(cpus) == 1 else f"CPUs {cpus} are not online"


def _read_gates(reader: SettingsReader) -> dict[str, bool]:
    before = reader.file.gates
    gates = {**before, **reader.take("feature_gates", parse_gates, {})}
    if before and reader.is_given("feature_gates"):
        reader.sources["feature_gates"] += f", {reader.arguments.config_file}: {SETTINGS['feature_gates'].field}"
    reader.warnings += _near_gates(gates, reader.sources["feature_gates"])
    return gates


def _near_gates(gates: Collection[str], source: str) -> Iterator[str]:
    """Yield a warning for each gate that is nearly one of ours: a kubelet has many others, which change no CPUs."""
    for name in sorted(frozenset(gates) - _OURS - _OTHERS)[:_MOST_GUESSES]:
        from difflib import get_close_matches  # noqa: PLC0415 - only for gates of others and mistakes

        if close := get_close_matches(name, _OURS, n=1, cutoff=_ALIKE):
            yield f"{source}: {name} changes nothing about CPUs; was {close[0]} meant?"


def _problems_on(topology: Topology, config: Config) -> tuple[Problem, ...]:
    """Return conflicts between settings of *config*, and with the machine."""
    try:
        config.build(topology)
    except ConfigError as error:
        return error.problems
    return ()


def default_reservation(topology: Topology) -> Reservation:
    """Return the core of the lowest CPU that is not isolated; only that CPU if the machine has no other core.

    >>> from pinfold.core.machine.presets import preset
    >>> print(default_reservation(preset("laptop-4")).cpus, default_reservation(preset("threads:2")).cpus)
    0,2 0
    """
    usable = (topology.online - topology.isolated or topology.online).mask
    lowest = CPUSet(usable & -usable)
    core = topology.siblings(lowest)
    return Reservation.of(core if core < topology.online else lowest)
