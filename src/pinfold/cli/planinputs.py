"""What `pinfold plan` is about: machines, settings, pods and what is there already, read and checked."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.cli.machine import machine_name, read_machine
from pinfold.cli.planarguments import as_serve
from pinfold.cli.planlive import Live, read_live
from pinfold.cli.settings import read_settings
from pinfold.core.compare import Variant, name_of
from pinfold.core.planner import EMPTY_NODE, Running
from pinfold.core.policies.options import POD_LEVEL
from pinfold.core.whatif import Scenario, UnknownPod
from pinfold.errors import ConfigError, ParseError, PinfoldError, Problem, StateError, excerpt
from pinfold.formats.checkpoint import parse_checkpoint
from pinfold.formats.kubeletflags import parse_key_values
from pinfold.formats.podyaml import MAX_PODS, parse_pods

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pinfold.core.config import Config
    from pinfold.core.pods import Pod, PodUID
    from pinfold.core.state import State
    from pinfold.core.topology import Topology

_MAX_FILE: Final = 64 << 20
_MOST_REPLICAS: Final = MAX_PODS
_MOST_CPUS: Final = 65_536


class Inputs(NamedTuple):
    """All that a plan depends on."""

    variants: tuple[Variant, ...]
    """At least one; several are compared."""
    pods: tuple[Pod, ...]
    running: Running
    warnings: tuple[str, ...]


class BadQuestion(PinfoldError):  # noqa: N818 - the fact, as the others in this family
    """Flags that do not go together, or say nothing that can be planned."""


def read_inputs(args: argparse.Namespace) -> Inputs:
    """Return what the flags ask for, or raise what is wrong with them."""
    live = read_live(args) if args.live else None
    machines = _machines(args, live)
    warnings: list[str] = []
    given = as_serve(args)
    if live is not None:
        _fill_in(args, given, live, warnings)
    configs = [_config(given, topology, warnings) for _, topology in machines]
    variants = _variants(args, machines, configs)
    # Of a live node, what it has is kept only on its own machine; elsewhere its pods come anew, before all others.
    kept = live if live is not None and machines[0][1] is live.topology else None
    state = _state(args, kept, configs[0], variants)
    moved = live.pods if live is not None and kept is None else ()
    pods = (*moved, *_pods(args.pods, warnings))
    known = {pod.uid for pod in kept.pods} if kept is not None else set()
    others = tuple(uid for uid in (state.assignments if state else ()) if uid not in known)
    scenario = Scenario(pods, kept.pods if kept is not None else (), others=others)
    scenario = _changed(args, scenario)
    running = Running(state, scenario.running, scenario.gone) if state is not None else EMPTY_NODE
    return Inputs(variants, scenario.arriving, running, tuple(dict.fromkeys(warnings)))


def _machines(args: argparse.Namespace, live: Live | None) -> list[tuple[str, Topology]]:
    """Return the machines by name: those that are named, that of the daemon, or this one."""
    if live is not None and not (args.preset or args.file or args.sysroot):
        return [("", live.topology)]
    found = []
    for preset in args.preset or [None]:
        one = argparse.Namespace(preset=preset, file=args.file, sysroot=args.sysroot, view=args.view)
        found.append((machine_name(one), read_machine(one)))
    return found


def _fill_in(args: argparse.Namespace, given: argparse.Namespace, live: Live, warnings: list[str]) -> None:
    """Take the daemon's settings where no flag says otherwise; reserved CPUs mean something on its machine only."""
    if given.config_file is not None:
        return
    elsewhere = args.preset or args.file or args.sysroot
    told = {"policy": live.policy, **(live.settings or {})} | ({} if elsewhere else {"reserved_cpus": live.reserved})
    for name, text in told.items():
        if getattr(given, name, "") is None and text:
            setattr(given, name, text)
    if live.settings is None and given.policy_options is None and not args.options and live.policy != "none":
        warnings.append("the daemon does not tell its options; none are taken, unless --policy-options says so")


def _config(given: argparse.Namespace, topology: Topology, warnings: list[str]) -> Config:
    settings = read_settings(given, topology, environment={}, uid=0)
    warnings += settings.warnings
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


def _state(args: argparse.Namespace, live: Live | None, config: Config, variants: Sequence[Variant]) -> State | None:
    """Return the State that is there already, if it fits the machine; None of an empty node."""
    if args.state is None and live is None:
        return None
    where, text = ("the daemon", live.checkpoint) if live is not None else (args.state, read_text(args.state))
    try:
        state = parse_checkpoint(text, policy=config.policy, pod_level=POD_LEVEL.is_on(config.gates))
        if len(variants) == 1:
            variants[0].config.build(variants[0].topology).policy.start(state)
    except (ParseError, StateError) as error:
        raise BadQuestion(f"{where}: {error}") from error
    return state


def _pods(names: Sequence[str], warnings: list[str]) -> tuple[Pod, ...]:
    pods: list[Pod] = []
    seen: dict[PodUID, str] = {}
    for name in names:
        shown = "stdin" if name == "-" else name
        documents = parse_pods(read_text(name), source=shown)
        warnings += (f"ignored: {note}" for note in documents.ignored)
        for pod in documents.pods:
            if pod.uid in seen:
                raise BadQuestion(f"{shown}: pod {excerpt(f'{pod.namespace}/{pod.name}')} is in {seen[pod.uid]} too")
        seen |= {pod.uid: shown for pod in documents.pods}
        pods += documents.pods
    return tuple(pods)


def read_text(name: str) -> str:
    """Return the text of a file, or of stdin for "-"."""
    shown = "stdin" if name == "-" else name
    if name == "-":
        data = sys.stdin.buffer.read(_MAX_FILE + 1)
    else:
        with Path(name).open("rb") as file:
            data = file.read(_MAX_FILE + 1)
    if len(data) > _MAX_FILE:
        raise ParseError(f"is larger than {_MAX_FILE >> 20} MiB", where=shown)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ParseError(f"is not text (byte {error.start + 1} is not UTF-8)", where=shown) from None


def _changed(args: argparse.Namespace, scenario: Scenario) -> Scenario:
    """Return the scenario with all what-ifs in it."""
    for flag, texts, change in (
        ("--without", args.without, Scenario.without),
        ("--resize", args.resize, _resize),
        ("--replicas", args.replicas, _replicate),
    ):
        for text in texts:
            try:
                scenario = change(scenario, text)
            except ParseError as error:
                raise error.within(flag) from None
            except UnknownPod as error:
                raise BadQuestion(f"{flag}: {error}") from None
    return scenario


def _resize(scenario: Scenario, text: str) -> Scenario:
    who, cpus = _split(text, "POD/CONTAINER", 1, _MOST_CPUS)
    pod, slash, container = who.rpartition("/")
    if not slash:
        raise ParseError(f"expected POD/CONTAINER=N, found {excerpt(text)}")
    return scenario.resize(pod, container, cpus)


def _replicate(scenario: Scenario, text: str) -> Scenario:
    return scenario.replicas(*_split(text, "POD", 0, _MOST_REPLICAS))


def _split(text: str, what: str, least: int, most: int) -> tuple[str, int]:
    """Return the name and the number of NAME=N."""
    name, equals, number = text.rpartition("=")
    digits = number.strip()
    if not (name and equals and digits.isdecimal() and len(digits) <= len(str(most)) and least <= int(digits) <= most):
        raise ParseError(f"expected {what}=N with N from {least} to {most:,}, found {excerpt(text)}")
    return name.strip(), int(digits)
