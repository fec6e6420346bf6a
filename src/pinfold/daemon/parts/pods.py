"""The parts of a daemon on a Kubernetes node, over NRI or CRI; imported only there."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.core.events.daemon import NRIFailed, ReadOnly, TakenOver, Warned
from pinfold.daemon.parts.cluster import node_hints, on_refusal, publisher, whole_pods
from pinfold.daemon.parts.common import (
    Basis,
    Parts,
    claim,
    loaded_manager,
    notifier_of,
    repacker_of,
    scoring_of,
    set_shielding,
    with_caches,
)
from pinfold.daemon.parts.podwatch import PodWatch
from pinfold.errors import ConfigError, Problem
from pinfold.kubernetes.account import ServiceAccount
from pinfold.manager.cluster import Cluster
from pinfold.manager.node import Node
from pinfold.manager.saving.store import FILE
from pinfold.manager.watching import Watching, give_way
from pinfold.node.kubeletstate import CONFIG, ask_policy, find_kubelet, other_reservation
from pinfold.node.kubeletstate import FILE as KUBELET_FILE
from pinfold.node.podgroups import groups as podgroups
from pinfold.node.podgroups import systemd
from pinfold.node.podgroups.paths import expand_slice, parse_absolute
from pinfold.node.statefile import write_atomically
from pinfold.runtimes.inherited import Inherited
from pinfold.runtimes.podplaces import PodPlaces
from pinfold.runtimes.pods import PodApplier
from pinfold.runtimes.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from pinfold.manager.loop import Source
    from pinfold.manager.sources.cri import CRISource
    from pinfold.node.podgroups.driver import Hierarchy
    from pinfold.node.podgroups.groups import PodGroups
    from pinfold.node.shield.host import Host

_CRI_SOCKETS: Final = ("/run/containerd/containerd.sock", "/run/crio/crio.sock")


async def kube_parts(basis: Basis) -> Parts:
    """Return the parts of a daemon whose containers come from a container runtime."""
    chosen = basis.chosen
    stamp = _stamp(chosen.kubernetes.kubelet_dir)
    account = ServiceAccount(chosen.kubernetes.service_account, os.environ)
    whole = whole_pods(basis, account)
    read_only = _meet_kubelet(basis)
    told = systemd.Systemd() if systemd.runs() else None
    groups = _checked_groups(chosen.kubernetes.cgroup_root)
    nri = chosen.runtime == "nri"
    roster = Roster(whole.find, local_memory=chosen.local_memory)
    places = PodPlaces(groups, roster, asked_first=nri)
    applier = PodApplier(str(chosen.runtime), places, told, read_only=read_only)
    caching = with_caches(chosen, applier, lambda: applier.read_only)
    manager = loaded_manager(basis, caching, roster, {})
    set_shielding(basis, manager, _host, read_only=read_only)
    notifier = notifier_of(basis, manager)
    scoring = scoring_of(manager)
    applier.gives_quotas = chosen.cfs_quota
    if not read_only:
        claim(basis)
        await manager.start()
    cluster = None if read_only else Cluster(roster, whole, on_refusal(basis, account))
    if cluster is not None:
        cluster.hints = node_hints(basis)
    node = Node(manager, roster, basis.bus, cluster=cluster, read_only=read_only)
    node.sight = places
    node.inherited = Inherited(places, lambda: manager.rules.topology.online)
    node.scores = scoring.scores
    _compare_reserved(basis)
    repacker = repacker_of(basis, node, notifier)
    watch = PodWatch(node, groups.tree, applier)
    sources = [*(_over_nri(basis, node, watch) if nri else _over_cri(basis, node)), whole.follow, repacker.follow]
    sources.append(partial(watch.follow, chosen.reconcile_period))
    published = publisher(basis, account, node)
    sources.append(lambda: _watch_kubelet(basis, node, applier, stamp))
    if published is None:
        return Parts(node, sources, repacker)
    return Parts(node, [*sources, published.follow], repacker, withdraw=published.withdraw)


def _host() -> Host:
    from pinfold.node.shield.host import Host  # noqa: PLC0415 - few daemons move the rest of the host

    return Host(Path("/"))


def _compare_reserved(basis: Basis) -> None:
    """Warn if the kubelet reserves other CPUs."""
    directory, ours = basis.chosen.kubernetes.kubelet_dir, basis.admitter.policy.reserved
    theirs = other_reservation(directory, ours)
    if theirs is not None:
        said = f"the kubelet reserves {theirs} ({directory / CONFIG}), pinfold reserves CPUs {ours or 'none'}"
        basis.bus.tell(Warned(f"{said}; reserve the same in both: the scheduler counts with the kubelet's"))


def _meet_kubelet(basis: Basis) -> bool:
    """Check whether a kubelet assigns CPUs itself, and take over if requested; return whether to only watch."""
    settings = basis.chosen.kubernetes
    kubelet = find_kubelet(settings.kubelet_dir)
    if kubelet is None:
        return False
    if not settings.take_over:
        why = f"a kubelet with policy {kubelet.policy} manages CPUs here ({kubelet.path}); --take-over takes over"
        basis.bus.tell(ReadOnly(why))
        return True
    if kubelet.state is None:
        advice = "mend or remove the file, or start without --take-over"
        raise ConfigError(Problem(f"--take-over: {kubelet.path}: {kubelet.problem}", advice))
    own = basis.chosen.state_dir / FILE
    # The kubelet's State is valid until we have taken over, and again if the kubelet has changed it since.
    if not own.exists() or own.stat().st_mtime_ns < kubelet.path.stat().st_mtime_ns:
        write_atomically(own, kubelet.path.read_bytes())
        basis.bus.tell(TakenOver(str(kubelet.path), kubelet.state.exclusive))
    return False


def _checked_groups(cgroup_root: str | None) -> PodGroups:
    """Return the groups of the pods, or raise if the kubelet's cgroup root is a wrong one."""
    groups = pod_groups(cgroup_root)
    if not groups.tree.has_parent():
        said = f"--cgroup-root {cgroup_root}: there is no such cgroup below {groups.tree.root}"
        raise ConfigError(Problem(said, "give the --cgroup-root of the kubelet, or none"))
    return groups


def pod_groups(cgroup_root: str | None) -> PodGroups:
    """Return the groups of the pods below the kubelet's cgroup root; None: of the only kubelet on this host."""
    driver = podgroups.find_driver()
    return podgroups.PodGroups(driver, _kubepods(cgroup_root, driver.hierarchy))


def _stamp(kubelet_dir: Path) -> tuple[int, str | None]:
    """Return what changes when a kubelet starts with a policy of its own: its state file, and what it answers."""
    try:
        changed = (kubelet_dir / KUBELET_FILE).stat().st_mtime_ns
    except OSError:
        changed = 0
    return changed, ask_policy()


async def _watch_kubelet(basis: Basis, node: Node, applier: PodApplier, stamp: tuple[int, str | None]) -> None:
    """Give way to a kubelet that starts to assign CPUs, then show what it assigns, for ever."""
    await _give_way(basis, node, applier, stamp)
    await Watching(node, basis.chosen.kubernetes.kubelet_dir, basis.bus).follow()


async def _give_way(basis: Basis, node: Node, applier: PodApplier, stamp: tuple[int, str | None]) -> None:
    """Return when a kubelet assigns CPUs too, and only watch from then on: the two would undo each other's changes."""
    directory = basis.chosen.kubernetes.kubelet_dir
    while not node.read_only:
        await asyncio.sleep(basis.chosen.reconcile_period)
        if await asyncio.to_thread(_stamp, directory) == stamp:
            continue
        kubelet = await asyncio.to_thread(find_kubelet, directory)
        if kubelet is not None:
            await give_way(node, applier, basis.bus)
            why = f"a kubelet with policy {kubelet.policy} has started beside pinfold ({kubelet.path})"
            basis.bus.tell(ReadOnly(f"{why}; set its policy to none and restart pinfold, or stop pinfold"))


def _kubepods(cgroup_root: str | None, hierarchy: Hierarchy) -> str | None:
    """Return the group of all pods below the kubelet's cgroup root, as the cgroup driver names it that made it.

    If there is no such group yet, the name depends on whether systemd manages this machine.
    """
    if cgroup_root is None:
        return None
    parts = list(filter(None, cgroup_root.split("/")))
    path = "/".join(["", *parts, "kubepods"])
    slices = "-".join([*(part.replace("-", "_") for part in parts), "kubepods.slice"])
    if hierarchy.exists(hierarchy.root.joinpath(*parse_absolute(path))):
        return path
    found = hierarchy.exists(hierarchy.root.joinpath(*expand_slice(slices)))
    return slices if found or systemd.runs() else path


def _over_nri(basis: Basis, node: Node, watch: PodWatch) -> list[Source]:
    from pinfold.manager.sources.nri import NRISource  # noqa: PLC0415 - only NRI needs protobuf
    from pinfold.runtimes.nri import plugin as nriplugin  # noqa: PLC0415
    from pinfold.runtimes.nri.answers import Answers  # noqa: PLC0415

    bus, settings = basis.bus, basis.chosen.kubernetes

    def failed(method: str, error: Exception) -> None:
        bus.tell(NRIFailed(method, f"{type(error).__name__}: {error}"))

    launch = nriplugin.launched(os.environ)
    identity = launch.identity if launch is not None else nriplugin.PluginIdentity(index=settings.nri_index)
    # containerd 1.7 does not report running containers to a plugin that it starts itself.
    is_told_all = launch is None
    source = NRISource(node, bus, is_told_all=is_told_all)
    source.is_watched = watch.is_heard
    plugin = nriplugin.Plugin(Answers(source), identity, source.linked, failed)
    sockets = _CRI_SOCKETS if settings.cri_socket is None else (settings.cri_socket,)
    audits = [_cri(basis, node, path, is_told_all=is_told_all).audit for path in sockets]
    sources: list[Source] = [partial(audit, found=settings.cri_socket is None) for audit in audits]
    sources.append(source.look_for_ends)
    if launch is not None:
        return [lambda: _until_it_ends(nriplugin.serve_launched(launch, plugin)), *sources]
    return [lambda: nriplugin.serve(settings.nri_socket, plugin), *sources]


async def _until_it_ends(connection: Awaitable[None]) -> None:
    """Serve the runtime that has started us, and end with it: it starts another one."""
    try:
        await connection
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def _over_cri(basis: Basis, node: Node) -> list[Source]:
    path = basis.chosen.kubernetes.cri_socket or next((name for name in _CRI_SOCKETS if Path(name).exists()), None)
    if path is None:
        said = f"--runtime cri: there is no {' and no '.join(_CRI_SOCKETS)}"
        raise ConfigError(Problem(said, "name the runtime's socket with --cri-socket"))
    return [_cri(basis, node, path).follow]


def _cri(basis: Basis, node: Node, path: str, *, is_told_all: bool = True) -> CRISource:
    from pinfold.manager.sources.cri import CRISource  # noqa: PLC0415 - only gRPC needs h2 and protobuf
    from pinfold.runtimes.cri.client import CRIClient  # noqa: PLC0415

    return CRISource(node, CRIClient(path), basis.bus, is_told_all=is_told_all)
