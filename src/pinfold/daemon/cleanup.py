"""`pinfold leave` where no daemon runs: gives back what the last one has changed, by its claim and its files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.pods.pod import ContainerRef
from pinfold.core.reconcile import Limit
from pinfold.daemon.claim import drop_claim, read_claim
from pinfold.daemon.parts.pods import pod_groups
from pinfold.errors import PinfoldError
from pinfold.formats.kubelet.checkpoint import parse_checkpoint
from pinfold.formats.pods.runtime import RuntimePod
from pinfold.manager.leaving import leave
from pinfold.manager.saving.store import FILE
from pinfold.manager.sources.kept import KeptWorkloads
from pinfold.manager.sources.workloads import WorkloadKind
from pinfold.node.podgroups import systemd
from pinfold.node.processgroups.groups import choose
from pinfold.node.processgroups.origin import Origin
from pinfold.node.register import Register, directory_of
from pinfold.node.resctrl.files import RealFiles
from pinfold.node.resctrl.groups import remove_groups
from pinfold.node.shield.host import Host
from pinfold.node.shield.shield import Shield
from pinfold.node.starting.unfinished import settle
from pinfold.node.statefile import read_state_file
from pinfold.runtimes.podplaces import PodPlaces
from pinfold.runtimes.pods import PodApplier
from pinfold.runtimes.processes.applier import ProcessApplier
from pinfold.runtimes.processes.launcher import ProcessLauncher
from pinfold.runtimes.roster import Roster
from pinfold.settings.table import RuntimeName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pinfold.core.pods.pod import Container
    from pinfold.daemon.claim import Claim
    from pinfold.manager.sources.kept import KeptWorkload
    from pinfold.node.shield.shield import ShieldReport

_ONLINE: Final = Path("/sys/devices/system/cpu/online")


async def clean_up(directory: Path, *, keep_owners: bool = False) -> CPUSet:
    """Give back what a daemon with this state directory has changed; return the CPUs, none if it changed nothing.

    *keep_owners*: a kubelet goes on with the owners that run.
    """
    claim = read_claim(directory)
    cpus = EMPTY
    undo_shield(directory)
    if claim is not None:
        remove_groups(RealFiles(Path("/")))
    if claim is not None and claim.runtime in {RuntimeName.NRI, RuntimeName.CRI}:
        cpus = await _leave_pods(claim, _exclusive(directory) if keep_owners else EMPTY)
    elif claim is not None and claim.runtime == RuntimeName.PROCESSES:
        cpus = await _leave_processes(claim, directory)
    drop_claim(directory)
    return cpus


def undo_shield(directory: Path) -> ShieldReport:
    """Give the rest of the host back what the shield of a daemon that has ended took; return what was moved."""
    return Shield(lambda: Host(Path("/")), directory).undo(CPUSet.parse(_ONLINE.read_text(encoding="ascii")))


def _exclusive(directory: Path) -> CPUSet:
    """Return the CPUs of all owners in the State."""
    text = read_state_file(directory / FILE)
    if text is None:
        raise PinfoldError(f"{directory / FILE} is missing, so the owners are not known; leave without --keep-owners")
    return parse_checkpoint(text, policy="static").exclusive


async def _leave_pods(claim: Claim, kept: CPUSet) -> CPUSet:
    """Widen the groups of all pods, whichever runtime they have; return their CPUs, none if there are no groups."""
    groups, roster = pod_groups(claim.cgroup_root or None), Roster()
    top = groups.tree.kubepods()
    if top is None:
        return EMPTY
    told = systemd.Systemd() if systemd.runs() else None
    applier = PodApplier(claim.runtime, PodPlaces(groups, roster, asked_first=False), told)
    cpus = groups.cpus(top.parent)
    await leave(applier, roster, cpus, kept)
    return cpus


async def _leave_processes(claim: Claim, directory: Path) -> CPUSet:
    """Give adopted processes back and widen the groups of the others; return their CPUs."""
    groups = choose(None if claim.groups == "auto" else claim.groups, name=claim.group_name)
    Register(directory_of(os.environ, os.geteuid())).enter(claim.group_name)
    groups.hold()
    await settle(groups.name)
    applier, online = ProcessApplier(groups, directory), CPUSet.parse(_ONLINE.read_text(encoding="ascii"))
    applier.find()
    groups.prepare(online)
    kept = KeptWorkloads(directory)
    rows, _ = kept.load()
    _give_back(applier, rows)
    others = [row for row in rows if row.kind is not WorkloadKind.ADOPTED]
    await leave(applier, _roster(others), online)
    await kept.save(others)
    return online


def _give_back(applier: ProcessApplier, rows: Iterable[KeptWorkload]) -> None:
    """Let adopted processes go on where they were before; also those that no file mentions."""
    launcher = ProcessLauncher(applier)
    for row in rows:
        for name, origin in row.origins.items():
            ref = ContainerRef(row.pod.uid, name)
            applier.groups.make_shared(ref, Limit())  # affinity knows an adopted process only by its file
            launcher.find_again(ref, row.mains.get(name), origin)
    strangers = (ref for ref in applier.known if ref.pod.startswith(f"{WorkloadKind.ADOPTED}-"))
    for ref in {*strangers, *applier.lent}:
        applier.lent.setdefault(ref, Origin())
        applier.vacate(ref)


def _roster(rows: Iterable[KeptWorkload]) -> Roster:
    """Return a Roster with these workloads, and with their limits as kubelets set them by default."""
    roster = Roster()
    roster.limit_by(_limit_of)
    for row in rows:
        roster.know_pod(RuntimePod(row.pod.uid, row.pod.uid, row.pod.name, row.pod.namespace, spec=row.pod))
    return roster


def _limit_of(container: Container) -> Limit:
    return Limit(container.resources.requests.cpu or 0, container.resources.limits.cpu)
