"""pinfold as a DaemonSet of a real cluster: image, manifests and rights as deploy/ has them, nothing else.

The cluster is Kubernetes 1.20. It has no ValidatingAdmissionPolicy, so the one of `--on-refusal fail` is left out.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from tests.e2e.cluster.cluster import BUSY, children, container, pod, show
from tests.e2e.cluster.installation import NEWER, Installation
from tests.e2e.containerd import CGROUPS, allowed
from tests.e2e.daemon import ONLINE, RESERVED, SPARE, needs_two_cpus, wait_for
from tests.e2e.image import needs_image
from tests.e2e.kubedaemon import Sampler
from tests.needs import needs_lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.cluster.api import Object
    from tests.e2e.cluster.cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.long, needs_lab, needs_two_cpus, needs_image]

OWN = ONLINE - RESERVED
ROUNDS = 3
WRITTEN = 180.0
"""Seconds in which the kubelet has written a changed ConfigMap into the pods."""


@pytest.fixture
def installation(cluster: Cluster, archive: Path) -> Iterator[Installation]:
    with Installation(cluster, archive) as found:
        try:
            yield found
        finally:
            cluster.remove_all()
            found.leave()


def group_cpus(cluster: Cluster) -> dict[str, CPUSet]:
    """Return the CPUs of the kubelet's groups, down to those of pods."""
    top = CGROUPS / "cpuset" / cluster.containerd.root / "kubepods"
    groups = [top, *(path for path in top.glob("*") if path.is_dir()), *top.glob("*/pod*")]
    return {str(path.relative_to(top)): CPUSet.parse((path / "cpuset.cpus").read_text()) for path in groups}


def narrow(cluster: Cluster) -> dict[str, CPUSet]:
    """Return the groups that do not have all CPUs."""
    return {name: cpus for name, cpus in group_cpus(cluster).items() if cpus != ONLINE}


# -- the pod


@pytest.mark.parametrize("way", [Installation.by_kustomize, Installation.by_helm], ids=["kustomize", "Helm"])
def test_the_pod_is_ready_with_no_capability_and_pins_others(
    cluster: Cluster, installation: Installation, way: Callable[[Installation], Installation]
) -> None:
    began = time.monotonic()
    mine = way(installation).pod()
    took = time.monotonic() - began
    lines = dict(line.split(":\t", 1) for line in Path(f"/proc/{mine.pid}/status").read_text().splitlines())
    root = next(
        line.split() for line in Path(f"/proc/{mine.pid}/mountinfo").read_text().splitlines() if " / / " in line
    )
    assert (lines["CapEff"], lines["CapBnd"], lines["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1")
    assert lines["Seccomp"] == "2"  # a filter: the runtime's default
    assert lines["NSpid"].split()[-1] == "1"
    assert root[5].split(",")[0] == "ro"
    owner, sharer = cluster.run(pod("db", container(SPARE))), cluster.run(pod("web", container()))
    assert (allowed(owner.pid), installation.cpus("db")) == (OWN, OWN)
    assert allowed(sharer.pid) == RESERVED
    assert allowed(mine.pid) == RESERVED  # pinfold's own pod shares
    show(f"ready {took:.1f} s after its objects were made, without capabilities; an owner on {OWN}")


def test_owners_beside_a_busy_pod_have_their_cpus_from_their_first_instruction(
    cluster: Cluster, installation: Installation
) -> None:
    installation.by_kustomize()
    busy = children(cluster.run(pod("busy", container(0.5, command=BUSY, limited=False))).pid)
    late, looks = 0.0, 0
    for number in range(ROUNDS):
        with Sampler(busy) as sampler:
            owner = cluster.run(pod(f"owner-{number}", container(SPARE)))
            time.sleep(0.5)
        assert owner.first.split()[-1] == str(OWN), owner
        late = max([late, *(found.late for found in sampler.overlaps(owner.pid, OWN))])
        looks += sampler.looks_after(owner.pid)
        cluster.remove(f"owner-{number}")
    show(f"{ROUNDS} owners beside a busy pod: {late:.3f} s of overlap in {looks} looks")
    assert (late, looks > 0) == (0.0, True)


# -- refusals


def test_a_refused_pod_fails_with_the_rights_of_the_manifest_alone(
    cluster: Cluster, installation: Installation
) -> None:
    # pinfold's own pod asks for CPU too: the scheduler lets in no pod with more than the CPUs that can be exclusive.
    gate, option = "CPUManagerPolicyAlphaOptions=true", f"min-shared-cpus={len(ONLINE)}"
    flags = (f"extraArgs[0]=--feature-gates={gate}", f"extraArgs[1]=--policy-options={option}")
    installation.by_helm("onRefusal=fail", *flags)
    assert set(installation.left_out) == NEWER
    began = time.monotonic()
    cluster.api.create(pod("too-many", container(SPARE)))
    wait_for(lambda: cluster.phase("too-many") == "Failed", "it fails", 60)
    took = time.monotonic() - began
    (event,) = wait_for(lambda: cluster.warnings("too-many"), "an event is made")
    assert (event["type"], event["reason"]) == ("Warning", "MinSharedCPUsError")
    assert installation.events("pod-not-failed") == []
    show(f"Failed {took:.1f} s after it was made; left out here: {', '.join(sorted(installation.left_out))}")


# -- settings


def test_a_changed_configmap_is_read_without_a_restart_and_a_wrong_one_is_refused(
    cluster: Cluster, installation: Installation
) -> None:
    mine = installation.by_kustomize().pod()
    began = time.monotonic()
    installation.configure(reservedSystemCPUs=str(OWN), systemReserved={})
    wait_for(lambda: installation.client.get("/v1/node")["pools"]["reserved"] == str(OWN), "it is read", WRITTEN)
    took = time.monotonic() - began
    owner = cluster.run(pod("db", container(len(RESERVED))))
    assert allowed(owner.pid) == RESERVED  # the CPUs that are no longer reserved
    began = time.monotonic()
    installation.configure(cpuManagerPolicy="colour")
    (told,) = wait_for(lambda: installation.events("reload-refused"), "the wrong file is refused", WRITTEN)
    again = time.monotonic() - began
    assert "colour" in told["why"]
    assert (installation.pod(), allowed(owner.pid)) == (mine, RESERVED)
    show(f"a change of the ConfigMap was read after {took:.0f} s, a wrong one was refused after {again:.0f} s")


# -- updates


def test_a_rolling_update_without_surge_loses_nothing(cluster: Cluster, installation: Installation) -> None:
    before = installation.by_kustomize().pod()
    owner, sharer = cluster.run(pod("db", container(SPARE))), cluster.run(pod("web", container()))
    with Sampler([owner.pid, sharer.pid]) as sampler:
        installation.update()
        wait_for(lambda: not Path(f"/proc/{before.pid}").exists(), "the old daemon has ended", 60)
        cluster.api.create(pod("late", container()))  # it comes in the gap
        after = installation.pod(before.uid)
        late = cluster.running("late")
        wait_for(lambda: allowed(late.pid) == RESERVED, "the pod that came in the gap is narrowed", 60)
    assert places(sampler) == {(owner.pid, str(OWN)), (sharer.pid, str(RESERVED))}
    assert after.uid != before.uid
    show_update(cluster, installation, len(sampler.samples))


def test_an_update_whose_next_pod_stands_by_loses_nothing_in_a_short_gap(
    cluster: Cluster, installation: Installation
) -> None:
    installation.by_kustomize()
    owner, sharer = cluster.run(pod("db", container(SPARE))), cluster.run(pod("web", container()))
    with Sampler([owner.pid, sharer.pid]) as sampler:
        installation.surge()
        wait_for(installation.gaps, "the next daemon has taken over", 60)
    assert places(sampler) == {(owner.pid, str(OWN)), (sharer.pid, str(RESERVED))}
    show_update(cluster, installation, len(sampler.samples))


def test_an_update_with_the_hook_of_leaving_gives_owners_the_same_cpus_again(
    cluster: Cluster, installation: Installation
) -> None:
    installation.by_kustomize("leave-on-stop")
    owner, sharer = cluster.run(pod("db", container(SPARE))), cluster.run(pod("web", container()))
    installation.surge()
    wait_for(installation.gaps, "the next daemon has taken over", 60)
    wait_for(lambda: (allowed(owner.pid), allowed(sharer.pid)) == (OWN, RESERVED), "both have their CPUs again", 60)
    assert installation.cpus("db") == OWN
    show(f"an update with the hook: {installation.gaps()[0]:.2f} s without a daemon")


def places(sampler: Sampler) -> set[tuple[int, str]]:
    """Return where threads were seen."""
    return {(thread, str(cpus)) for _, thread, cpus in sampler.samples if cpus}


def show_update(cluster: Cluster, installation: Installation, looks: int) -> None:
    """See that the next daemon manages the node, and print how long there was none."""
    assert installation.cpus("db") == OWN
    cluster.remove("db")
    following = cluster.run(pod("next", container(SPARE)))
    assert (allowed(following.pid), installation.cpus("next")) == (OWN, OWN)
    (gap,) = installation.gaps()
    unpinned = max((row["seconds"] for row in installation.events("ran-unpinned")), default=0.0)
    show(f"an update: {gap:.2f} s without a daemon, 0 moves in {looks} looks; unpinned for {unpinned:.1f} s at most")


# -- removal


def test_a_daemonset_that_is_deleted_leaves_all_groups_wide(cluster: Cluster, installation: Installation) -> None:
    installation.by_kustomize("leave-on-stop")
    owner, sharer = cluster.run(pod("db", container(SPARE))), cluster.run(pod("web", container()))
    assert (allowed(sharer.pid), narrow(cluster) != {}) == (RESERVED, True)
    installation.delete_daemonset()
    assert narrow(cluster) == {}
    new = [cluster.run(pod("best", container())), cluster.run(pod("burst", container(0.1, limited=False)))]
    assert {allowed(one.pid) for one in (owner, sharer, *new)} == {ONLINE}
    show(f"{len(group_cpus(cluster))} groups have CPUs {ONLINE} after the DaemonSet was deleted")


def test_the_job_widens_the_groups_of_a_node_on_which_pinfold_was_killed(
    cluster: Cluster, installation: Installation
) -> None:
    installation.by_kustomize()
    owner, sharer = cluster.run(pod("db", container(SPARE))), cluster.run(pod("web", container()))
    installation.delete_daemonset(killed=True)
    assert narrow(cluster) != {}
    status: Object = installation.run_job()
    assert status.get("succeeded") == 1, status
    assert narrow(cluster) == {}
    new = cluster.run(pod("best", container()))
    assert {allowed(one.pid) for one in (owner, sharer, new)} == {ONLINE}
    show(f"{len(group_cpus(cluster))} groups have CPUs {ONLINE} after the Job")
