"""The inputs of `pinfold plan`: machines, settings, pods and the present State, read and checked."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.cli.arguments.machine import machine_name, read_machine
from pinfold.cli.planning.arguments import BadQuestion, as_serve
from pinfold.cli.planning.pods import Filed, make_scenario
from pinfold.cli.planning.resources import with_resources
from pinfold.core.policies.options import POD_LEVEL
from pinfold.core.topologymanager.options import TopologyPolicy
from pinfold.errors import ConfigError, ParseError, Problem, StateError, excerpt
from pinfold.formats.fields import parse_each
from pinfold.formats.kubelet.checkpoint import parse_checkpoint
from pinfold.formats.kubelet.checkpointerrors import CheckpointError
from pinfold.formats.kubelet.flags import parse_key_values
from pinfold.formats.pods.manifest import parse_pods
from pinfold.planning.compare import Variant, name_of
from pinfold.planning.plan import EMPTY_NODE, Running
from pinfold.planning.whatif import Scenario
from pinfold.settings.filetext import read_text
from pinfold.settings.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pinfold.cli.planning.live import Live
    from pinfold.core.config import Config
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Pod, PodUID
    from pinfold.core.state import State
    from pinfold.formats.pods.manifest import PodDocuments

_NOT_THIS_FILE: Final = (
    "copy the file again while its kubelet runs; if the kubelet refuses it too, drain the node, stop the kubelet, "
    "remove the file and start the kubelet, which writes a new one"
)
_LOST: Final = "cannot keep its CPUs under these settings; it comes again, before all others"


class Inputs(NamedTuple):
    """All that a plan depends on."""

    variants: tuple[Variant, ...]
    """At least one; several are compared."""
    pods: tuple[Pod, ...]
    running: Running
    warnings: tuple[str, ...]
    mistakes: tuple[str, ...] = ()
    """Warnings about what is probably a mistake in the pods or in the kubelet's file."""


def read_inputs(args: argparse.Namespace) -> Inputs:
    """Return the inputs that the flags name, or raise what is wrong with them."""
    live = _live(args) if args.live else None
    warnings: list[str] = []
    given = as_serve(args)
    if live is not None:
        _fill_in(args, given, live, warnings)
    plain = _machines(args, live, given.view)
    machines = [(name, with_resources(args, machine)) for name, machine in plain]
    misspelt: dict[str, None] = {}
    configs = [_config(given, topology, warnings, misspelt) for _, topology in machines]
    configs = [replace(config, local_memory=args.local_memory) for config in configs]
    variants = _variants(args, machines, configs)
    # The pods of a live node keep their CPUs only on its own machine; elsewhere they come again, before all others.
    kept = live if live is not None and plain[0][1] is live.topology else None
    state, lost = _state(args, kept, configs[0], variants)
    there = _there(live, kept, state, lost)
    files = _files(args.pods)
    warnings += (f"ignored: {note}" for _, file in files for note in file.ignored)
    warnings += _unknown_hints((file for _, file in files), configs[0], machines[0][1])
    scenario = make_scenario(args, there, _pods(files))
    again = {pod.uid: pod for pod in there.arriving if pod.uid in lost}
    warnings += (f"pod {_shown(pod)} {_LOST}" for pod in scenario.arriving if again.get(pod.uid) == pod)
    running = Running(state, scenario.running, scenario.gone) if state is not None else EMPTY_NODE
    mistakes = (*misspelt, *(warning for _, file in files for warning in file.warnings))
    return Inputs(variants, scenario.arriving, running, tuple(dict.fromkeys(warnings)), mistakes)


def _live(args: argparse.Namespace) -> Live:
    from pinfold.cli.planning.live import read_live  # noqa: PLC0415 - most plans ask no daemon

    return read_live(args)


def _there(live: Live | None, kept: Live | None, state: State | None, lost: Collection[PodUID]) -> Scenario:
    """Return the running pods: those that keep their CPUs, and those that come again, before all others."""
    pods = live.pods if live is not None else ()
    known = {pod.uid for pod in pods}
    again = known if kept is None else lost
    others = tuple(uid for uid in (state.assignments if state else ()) if uid not in known)
    return Scenario(
        arriving=tuple(pod for pod in pods if pod.uid in again),
        running=tuple(pod for pod in pods if pod.uid not in again),
        gone=tuple(lost),
        others=others,
    )


def _machines(args: argparse.Namespace, live: Live | None, view: str | None) -> list[tuple[str, Topology]]:
    """Return the machines by name: those that are named, that of the daemon, or this one."""
    if live is not None and not (args.preset or args.file or args.sysroot):
        return [("", live.topology)]
    found = []
    for preset in args.preset or [None]:
        one = argparse.Namespace(preset=preset, file=args.file, sysroot=args.sysroot, view=view)
        found.append((machine_name(one), read_machine(one)))
    return found


def _fill_in(args: argparse.Namespace, given: argparse.Namespace, live: Live, warnings: list[str]) -> None:
    """Take the daemon's settings where no flag says otherwise; reserved CPUs mean something on its machine only."""
    told = {"policy": live.policy, **(live.settings or {})}
    if given.config_file is not None:  # which says everything but whose decisions are asked for
        told = {name: text for name, text in told.items() if name == "view"}
    elif not (args.preset or args.file or args.sysroot or given.kube_reserved or given.system_reserved):
        told["reserved_cpus"] = live.reserved
    for name, text in told.items():
        if getattr(given, name, "") is None and text:
            setattr(given, name, text)
    says_options = given.policy_options is not None or args.options or given.config_file is not None
    if live.settings is None and not says_options and live.policy != "none":
        warnings.append("the daemon does not report its options; without --policy-options, none are used")


def _config(given: argparse.Namespace, topology: Topology, warnings: list[str], misspelt: dict[str, None]) -> Config:
    settings = read_settings(given, topology, environment={}, uid=0)
    misspelt |= dict.fromkeys(settings.misspelt)
    warnings += (warning for warning in settings.warnings if warning not in misspelt)
    return settings.config


def _variants(
    args: argparse.Namespace, machines: Sequence[tuple[str, Topology]], configs: Sequence[Config]
) -> tuple[Variant, ...]:
    """Return every machine with every set of options."""
    found = []
    for (name, topology), config in zip(machines, configs, strict=True):
        for tried in _option_sets(args.options, config, topology):
            parts = [name if len(machines) > 1 or not args.options else "", name_of(tried) if args.options else ""]
            found.append(Variant(": ".join(filter(None, parts)), topology, tried))
    return tuple(found)


def _option_sets(texts: Sequence[str], config: Config, topology: Topology) -> list[Config]:
    if not texts:
        return [config]
    found = []
    for text in texts:
        pairs = ",".join(part if "=" in part or not part.strip() else f"{part}=true" for part in text.split(","))
        try:
            tried = replace(config, options=parse_key_values(pairs))
            tried.build(topology)
        except ParseError as error:
            raise error.within("--options") from None
        except ConfigError as error:
            problems = [Problem(f"--options {excerpt(text)}: {said}", advice) for said, advice in error.problems]
            raise ConfigError(*problems) from None
        found.append(tried)
    return found


def _state(
    args: argparse.Namespace, live: Live | None, config: Config, variants: Sequence[Variant]
) -> tuple[State | None, Collection[PodUID]]:
    """Return the present State, None for an empty node; and the pods whose CPUs a daemon could not keep."""
    if args.state is None and live is None:
        return None, ()
    where, text = ("the daemon", live.checkpoint) if live is not None else (args.state, read_text(args.state))
    try:
        state = parse_checkpoint(text, policy=config.policy, pod_level=POD_LEVEL.is_on(config.gates))
        return _fitted(state, variants[0], live) if len(variants) == 1 else (state, ())
    except CheckpointError as error:
        raise BadQuestion(f"{where}: {error.message}; {_NOT_THIS_FILE}") from error
    except (ParseError, StateError) as error:
        raise BadQuestion(f"{where}: {error}") from error


def _fitted(state: State, variant: Variant, live: Live | None) -> tuple[State, Collection[PodUID]]:
    """Return the State if it fits the node; with a daemon's State, pods that cannot keep their CPUs come again."""
    policy = variant.config.build(variant.topology).policy
    try:
        policy.start(state)
    except StateError:
        if live is None:
            raise
        kept = policy.keep(state)
        return kept.state, dict.fromkeys(ref.pod for ref in kept.lost)
    return state, ()


def _files(names: Sequence[str]) -> list[tuple[str, PodDocuments]]:
    return parse_each(_file, names)


def _file(name: str) -> tuple[str, PodDocuments]:
    shown = "stdin" if name == "-" else name
    return shown, parse_pods(read_text(name), source=shown)


def _unknown_hints(files: Iterable[PodDocuments], config: Config, machine: Topology) -> Iterator[str]:
    """Yield which NUMA hints a kubelet would merge that a plan does not know."""
    known = {name for row in machine.resources.values() for name in row}
    unknown = dict.fromkeys(name for file in files for name in file.others if name not in known)
    if unknown and config.topology_policy != TopologyPolicy.NONE:
        yield f"a kubelet has NUMA hints for {', '.join(unknown)}; this plan does not know them (--devices tells it)"


def _pods(files: Sequence[tuple[str, PodDocuments]]) -> list[Filed]:
    pods: list[Filed] = []
    seen: dict[PodUID, str] = {}
    for shown, documents in files:
        for pod in documents.pods:
            if pod.uid in seen:
                raise BadQuestion(f"{shown}: pod {_shown(pod)} is in {seen[pod.uid]} too")
        seen |= {pod.uid: shown for pod in documents.pods}
        pods += (Filed(shown, pod) for pod in documents.pods)
    return pods


def _shown(pod: Pod) -> str:
    return excerpt(f"{pod.namespace}/{pod.name}")
