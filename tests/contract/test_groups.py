"""The contract of groups, on the kernel this runs on: one suite over every kind that can be had here."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.core.cpuset import EMPTY, CPUSet
from pinfold.core.pods import ContainerRef, PodUID
from pinfold.core.reconcile import Limit
from pinfold.node.grouperrors import GroupError, KindUnavailableError, NoCPUsError
from pinfold.node.processgroups.errors import GroupInUseError, NoGroupError
from pinfold.node.processgroups.groups import KINDS, Groups, choose
from tests.contract import workload
from tests.contract.workload import FORK_STORM, IDLE, ORPHAN, PARENT, ROOT, THREAD_STORM, THREADS, Workload, allowed
from tests.needs import needs

if TYPE_CHECKING:
    from collections.abc import Iterator

ALL = workload.online()
FIRST, LAST = CPUSet.of(ALL.lowest), CPUSet.of(max(ALL, default=0))
REST = ALL - LAST
APP = ContainerRef(PodUID("pod-1"), "app")
HELPER = ContainerRef(PodUID("pod-1"), "helper")
OTHER = ContainerRef(PodUID("pod-2"), "app")
NONE = Limit()
NO_SUCH_CPU = CPUSet.of(60_000)
HOSTILE = [
    "a/b",
    "a%2Fb",
    "../../x",
    ".",
    "..",
    "",
    "cpu.max",
    "cgroup.procs",
    "tasks",
    "shared",
    "\0",
    "ü \n",
    "\ud800",
]

pytestmark = needs("two CPUs", met=len(ALL) >= 2)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def name() -> str:
    return f"pinfold-test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def running() -> Iterator[Workload]:
    everything = Workload()
    yield everything
    everything.end()


@pytest.fixture
def groups(kind: str, name: str, running: Workload) -> Iterator[Groups]:
    try:
        groups = choose(kind, name=name)
    except KindUnavailableError as error:
        pytest.skip(str(error))
    before = Path("/proc/self/cgroup").read_text()
    groups.prepare(ALL)
    yield groups
    running.end()
    for ref in groups.found():
        groups.remove(ref)
    groups.remove_all()
    assert groups.found() == {}
    assert not [path for path in (ROOT, *ROOT.iterdir()) if (path / name).exists()]
    assert Path("/proc/self/cgroup").read_text() == before
    assert workload.online() == ALL


def again(groups: Groups, kind: str, name: str) -> Groups:
    """Return what a daemon that starts again would have."""
    del groups
    anew = choose(kind, name=name)
    anew.prepare(ALL)
    return anew


def cgroup_file(kind: str, name: str, path: str) -> str:
    """Return a file of the hierarchy that has the cpu controller."""
    return (ROOT / ("cpu" if kind == "cgroup-v1" else "") / name / path).read_text().strip()


def open_files() -> set[str]:
    """Return the numbers of the files that this process has open, without the one used to look."""
    return {path.name for path in Path("/proc/self/fd").iterdir() if path.exists()}


def test_prepare_can_be_repeated_and_sets_the_pool(groups: Groups) -> None:
    groups.prepare(ALL)
    groups.prepare(FIRST)
    assert groups.shared_cpus() == FIRST
    assert groups.found() == {}


def test_it_says_what_it_is_and_what_it_cannot_promise(groups: Groups, kind: str) -> None:
    assert groups.kind == kind.replace("-", " ", 1)
    assert any("has not started or adopted" in reason for reason in groups.weaker)
    assert ("CPU limits and weights are not applied" in groups.weaker) == (kind == "affinity")


def test_the_pool_moves_every_shared_process_by_one_write(
    groups: Groups, kind: str, name: str, running: Workload
) -> None:
    refs = [ContainerRef(PodUID(f"pod-{i % 3}"), f"c{i}") for i in range(10)]
    pids = []
    for ref in refs:
        groups.make(ref, None, Limit(100, 200))
        pids.append(running.start(THREADS if ref is refs[0] else IDLE, groups, ref)[0])
    for pool in (FIRST, ALL, REST):
        with workload.counted_writes() as writes:
            groups.set_shared(pool)
        assert [allowed(pid) for pid in pids] == [{str(pool)}] * len(pids)
        assert groups.shared_cpus() == pool
        assert {groups.cpus(ref) for ref in refs} == {pool}
        if kind != "affinity":
            assert list(writes.values()) == [1]
            assert next(iter(writes)).endswith(f"{name}/shared/cpuset.cpus")


def test_an_attached_process_is_confined_with_all_its_threads(groups: Groups, running: Workload) -> None:
    pid, _ = running.start(THREADS)
    bystander, _ = running.start(IDLE)
    groups.make(APP, LAST, NONE)
    groups.attach(APP, pid)
    assert groups.members(APP) == [pid]
    assert workload.threads(pid) == 6
    assert allowed(pid) == {str(LAST)}
    assert groups.cpus(APP) == LAST
    assert allowed(bystander) == {str(ALL)}
    assert groups.found() == {APP: True}


def test_attaching_takes_nothing_but_the_process(groups: Groups, running: Workload) -> None:
    parent, child = running.start(PARENT)
    groups.make(APP, LAST, NONE)
    groups.attach(APP, parent)
    groups.set_cpus(APP, FIRST)
    assert groups.members(APP) == [parent]
    assert allowed(int(child)) == {str(ALL)}


@pytest.mark.parametrize("exclusive", [True, False], ids=["exclusive", "shared"])
def test_a_joiner_confines_before_the_first_instruction(groups: Groups, running: Workload, *, exclusive: bool) -> None:
    groups.set_shared(FIRST)
    groups.make(APP, LAST if exclusive else None, NONE)
    _, line = running.start(["grep", "Cpus_allowed_list", "/proc/self/status"], groups, APP)
    assert line.split() == ["Cpus_allowed_list:", str(LAST if exclusive else FIRST)]


def test_a_joiner_can_start_several_and_leaves_nothing_open(groups: Groups) -> None:
    groups.make(APP, LAST, NONE)
    before = open_files()
    with groups.joiner(APP) as join:
        for _ in range(2):
            done = subprocess.run(["nproc"], preexec_fn=join, stdout=subprocess.PIPE, check=True)
            assert done.stdout == b"1\n"
        join.close()
    assert open_files() == before


def test_a_joiner_that_cannot_join_lets_nothing_run(groups: Groups, kind: str) -> None:
    if kind == "affinity":
        pytest.skip("an affinity cannot be taken away")
    groups.make(APP, LAST, NONE)
    with groups.joiner(APP) as join:
        groups.remove(APP)
        with pytest.raises(subprocess.SubprocessError, match="preexec_fn"):
            subprocess.run(["echo"], preexec_fn=join, check=True)


def test_children_and_orphans_are_members(groups: Groups, running: Workload) -> None:
    groups.set_shared(REST)
    groups.make(APP, LAST, NONE)
    parent, child = running.start(PARENT, groups, APP)
    _, orphan = running.start(ORPHAN, groups, APP)
    assert set(groups.members(APP)) >= {parent, int(child), int(orphan)}
    groups.set_cpus(APP, FIRST)
    assert allowed(int(child)) == allowed(int(orphan)) == {str(FIRST)}


def test_a_container_comes_and_goes_beside_the_pool(groups: Groups, running: Workload) -> None:
    groups.make(OTHER, None, NONE)
    shared, _ = running.start(THREADS, groups, OTHER)
    groups.set_shared(REST)
    assert allowed(shared) == {str(REST)}
    groups.make(APP, LAST, NONE)
    exclusive, _ = running.start(THREADS, groups, APP)
    assert allowed(exclusive) == {str(LAST)}
    running.end(exclusive)
    groups.remove(APP)
    groups.set_shared(ALL)
    assert allowed(shared) == {str(ALL)}
    assert groups.found() == {OTHER: False}


def test_cpus_grow_shrink_and_change_sides(groups: Groups, running: Workload) -> None:
    groups.make(APP, LAST, NONE)
    groups.make(HELPER, FIRST, NONE)
    pid, _ = running.start(THREADS, groups, APP)
    for cpus in (ALL, LAST, REST, FIRST, LAST):
        groups.set_cpus(APP, cpus)
        assert allowed(pid) == {str(cpus)}
        assert groups.cpus(APP) == cpus
    assert groups.cpus(HELPER) == FIRST


def test_a_process_that_wants_more_cpus_is_put_back(groups: Groups, kind: str, running: Workload) -> None:
    groups.make(APP, LAST, NONE)
    pid, _ = running.start(THREADS, groups, APP)
    os.sched_setaffinity(pid, ALL)
    assert groups.cpus(APP) == (ALL if kind == "affinity" else LAST)
    groups.set_cpus(APP, LAST)
    assert allowed(pid) == {str(LAST)}
    assert groups.cpus(APP) == LAST


def test_threads_started_meanwhile_are_confined_too(groups: Groups, running: Workload) -> None:
    groups.make(APP, LAST, NONE)
    pid, _ = running.start(THREAD_STORM)
    groups.attach(APP, pid)
    assert allowed(pid) == {str(LAST)}
    for cpus in (FIRST, LAST):
        groups.set_cpus(APP, cpus)
        assert allowed(pid) == {str(cpus)}


@pytest.mark.parametrize("exclusive", [True, False], ids=["exclusive", "shared"])
def test_children_forked_meanwhile_are_not_lost(groups: Groups, running: Workload, *, exclusive: bool) -> None:
    groups.set_shared(LAST)
    groups.make(APP, LAST if exclusive else None, NONE)
    pid, _ = running.start(FORK_STORM)
    groups.attach(APP, pid)
    for member in groups.members(APP):
        assert workload.allowed_or_gone(member) <= {str(LAST)}
    # Children that it had before end soon; from then on all of them are members.
    deadline = time.monotonic() + 60
    while not set(workload.session(pid)) <= set(groups.members(APP)):
        assert time.monotonic() < deadline


@pytest.mark.parametrize("exclusive", [True, False], ids=["exclusive", "shared"])
def test_what_is_given_back_is_where_it_was_and_may_use_what_it_might(
    groups: Groups, running: Workload, *, exclusive: bool
) -> None:
    pid, _ = running.start(THREADS)
    first, second, *_ = sorted(int(path.name) for path in Path(f"/proc/{pid}/task").iterdir())
    os.sched_setaffinity(second, FIRST)
    before, origin = Path(f"/proc/{pid}/cgroup").read_text(), groups.origin(pid)
    groups.set_shared(LAST)
    groups.make(APP, LAST if exclusive else None, NONE)
    groups.attach(APP, pid)
    assert allowed(pid) == {str(LAST)}
    assert groups.give_back(APP, origin) == [pid]
    assert Path(f"/proc/{pid}/cgroup").read_text() == before
    assert [os.sched_getaffinity(thread) for thread in (first, second)] == [set(ALL), set(FIRST)]
    assert groups.members(APP) == []
    groups.set_shared(FIRST)
    groups.remove(APP)
    assert os.sched_getaffinity(first) == set(ALL)


@pytest.mark.parametrize("exclusive", [True, False], ids=["exclusive", "shared"])
def test_children_forked_meanwhile_are_given_back_too(groups: Groups, running: Workload, *, exclusive: bool) -> None:
    pid, _ = running.start(FORK_STORM)
    before, origin = Path(f"/proc/{pid}/cgroup").read_text(), groups.origin(pid)
    groups.set_shared(LAST)
    groups.make(APP, LAST if exclusive else None, NONE)
    groups.attach(APP, pid)
    assert pid in groups.give_back(APP, origin)
    assert groups.members(APP) == []
    for member in workload.session(pid):
        with suppress(OSError):  # its children end soon
            assert Path(f"/proc/{member}/cgroup").read_text() == before
    assert allowed(pid) == {str(ALL)}


def test_what_was_in_a_group_that_is_gone_is_given_back_to_the_one_above(
    groups: Groups, running: Workload, kind: str, name: str
) -> None:
    if kind == "affinity":
        pytest.skip("affinity has no groups")
    above = [ROOT / path for path in (("cpuset", "cpu") if kind == "cgroup-v1" else ("",))]
    pid, _ = running.start(IDLE)
    for path in above:
        (path / f"{name}-own" / "below").mkdir(parents=True)
        for group in (path / f"{name}-own", path / f"{name}-own" / "below"):
            for file in ("cpuset.cpus", "cpuset.mems"):
                if kind == "cgroup-v1" and (group / file).exists():
                    (group / file).write_text((group.parent / file).read_text())
        (path / f"{name}-own" / "below" / "cgroup.procs").write_text(str(pid))
    try:
        origin = groups.origin(pid)
        groups.make(APP, LAST, NONE)
        groups.attach(APP, pid)
        for path in above:
            (path / f"{name}-own" / "below").rmdir()
        groups.give_back(APP, origin)
        assert {(path / f"{name}-own" / "cgroup.procs").read_text() for path in above} == {f"{pid}\n"}
    finally:
        running.end()
        for path in above:
            for group in (path / f"{name}-own" / "below", path / f"{name}-own"):
                if group.is_dir():
                    group.rmdir()


def test_a_process_whose_cpuset_lacks_a_cpu_does_not_get_the_rest_instead(
    groups: Groups, running: Workload, kind: str, name: str
) -> None:
    group = ROOT / "cpuset" / f"{name}-small"
    if kind != "affinity" or not os.access(group.parent / "cgroup.procs", os.W_OK):
        pytest.skip("needs affinity, and a cpuset of cgroup v1")
    group.mkdir()
    try:
        (group / "cpuset.mems").write_text((group.parent / "cpuset.mems").read_text())
        (group / "cpuset.cpus").write_text(str(FIRST))
        pid, _ = running.start(THREADS)
        (group / "cgroup.procs").write_text(str(pid))
        groups.make(APP, ALL, NONE)
        with pytest.raises(GroupError, match=f"it has only {FIRST}; the others are offline, or not in its cpuset"):
            groups.attach(APP, pid)
        assert groups.members(APP) == []
        groups.make(OTHER, None, NONE)
        groups.attach(OTHER, pid)  # who shares has what it can have
        assert allowed(pid) == {str(FIRST)}
    finally:
        running.end()
        group.rmdir()


def test_a_cpu_that_does_not_exist_is_refused_and_changes_nothing(groups: Groups, running: Workload) -> None:
    groups.make(APP, LAST, NONE)
    groups.set_shared(REST)
    pid, _ = running.start(IDLE, groups, APP)
    with pytest.raises(GroupError, match=r"60000 → .*no such CPU"):
        groups.set_cpus(APP, NO_SUCH_CPU)
    with pytest.raises(GroupError, match=r"60000 → .*no such CPU"):
        groups.set_shared(NO_SUCH_CPU)
    assert (groups.cpus(APP), groups.shared_cpus(), allowed(pid)) == (LAST, REST, {str(LAST)})


def test_no_cpus_are_refused(groups: Groups) -> None:
    groups.make(APP, LAST, NONE)
    with pytest.raises(NoCPUsError, match="no CPUs given"):
        groups.set_cpus(APP, EMPTY)
    with pytest.raises(NoCPUsError, match="no CPUs given"):
        groups.set_shared(EMPTY)
    with pytest.raises(NoCPUsError, match="no CPUs given"):
        groups.make(OTHER, EMPTY, NONE)
    assert (groups.cpus(APP), groups.shared_cpus()) == (LAST, ALL)


@pytest.mark.parametrize("pid", [0, -1, 1 << 22], ids=["self", "everyone", "nobody"])
def test_a_process_that_is_not_there_cannot_be_attached(groups: Groups, pid: int) -> None:
    groups.make(APP, LAST, NONE)
    with pytest.raises(GroupError, match=r"no (such )?process"):
        groups.attach(APP, pid)
    assert groups.members(APP) == []


def test_a_kernel_thread_cannot_be_attached(groups: Groups, kind: str) -> None:
    groups.make(APP, LAST, NONE)
    kthreadd = 2
    if Path(f"/proc/{kthreadd}/comm").read_text() != "kthreadd\n":
        pytest.skip("kernel threads are not seen here")
    if kind == "affinity":
        pytest.skip("kthreadd is moved like any other")
    with pytest.raises(GroupError, match="EINVAL: a kernel thread"):
        groups.attach(APP, kthreadd)


def test_a_container_without_a_group_is_an_error(groups: Groups) -> None:
    for ask in (groups.members, groups.cpus, groups.joiner, groups.environment):
        with pytest.raises(NoGroupError, match="pod-1/app has no group"):
            ask(APP)
    with pytest.raises(NoGroupError):
        groups.set_cpus(APP, LAST)
    with pytest.raises(NoGroupError):
        groups.attach(APP, os.getpid())
    groups.remove(APP)


def test_a_shared_container_cannot_be_given_cpus_of_its_own(groups: Groups) -> None:
    groups.make(APP, None, NONE)
    with pytest.raises(NoGroupError):
        groups.set_cpus(APP, LAST)


def test_quota_and_weight_are_set_for_shared_containers_only(groups: Groups, kind: str, name: str) -> None:
    if kind == "affinity":
        pytest.skip("affinity has neither")
    weight = "cpu.shares" if kind == "cgroup-v1" else "cpu.weight"
    quota = "cpu.cfs_quota_us" if kind == "cgroup-v1" else "cpu.max"
    one = Limit(request=500, limit=1500)
    groups.make(APP, None, one)
    groups.make(HELPER, None, Limit(request=1))
    expected = {"cpu.shares": "512", "cpu.weight": "20", "cpu.cfs_quota_us": "150000", "cpu.max": "150000 100000"}
    assert cgroup_file(kind, name, f"shared/pod-1/app/{weight}") == expected[weight]
    assert cgroup_file(kind, name, f"shared/pod-1/app/{quota}") == expected[quota]
    unlimited = {"cpu.cfs_quota_us": "-1", "cpu.max": "max 100000"}[quota]
    assert cgroup_file(kind, name, f"shared/pod-1/helper/{quota}") == unlimited
    assert cgroup_file(kind, name, f"shared/pod-1/{weight}") == {"cpu.shares": "514", "cpu.weight": "21"}[weight]
    groups.remove(HELPER)
    assert cgroup_file(kind, name, f"shared/pod-1/{weight}") == expected[weight]
    groups.make(APP, None, NONE)
    assert cgroup_file(kind, name, f"shared/pod-1/app/{quota}") == unlimited
    groups.make(OTHER, LAST, one)
    assert cgroup_file(kind, name, f"exclusive/{quota}") == unlimited
    assert not [path for path in (ROOT, *ROOT.iterdir()) if (path / name / "exclusive/pod-2/app" / quota).exists()]


def test_a_container_changes_its_pool_with_its_processes(groups: Groups, running: Workload) -> None:
    groups.set_shared(REST)
    groups.make(APP, None, Limit(limit=500))
    pid, _ = running.start(THREADS, groups, APP)
    groups.make(APP, LAST, NONE)
    assert (groups.found(), groups.members(APP), allowed(pid)) == ({APP: True}, [pid], {str(LAST)})
    groups.make(APP, None, NONE)
    assert (groups.found(), groups.members(APP), allowed(pid)) == ({APP: False}, [pid], {str(REST)})


def test_making_again_changes_nothing(groups: Groups, running: Workload) -> None:
    groups.make(APP, LAST, NONE)
    pid, _ = running.start(IDLE, groups, APP)
    groups.make(APP, LAST, NONE)
    assert (groups.members(APP), groups.cpus(APP)) == ([pid], LAST)


def test_a_group_with_processes_is_not_removed(groups: Groups, running: Workload) -> None:
    groups.make(APP, LAST, NONE)
    groups.make(OTHER, None, NONE)
    pids = {ref: running.start(IDLE, groups, ref)[0] for ref in (APP, OTHER)}
    for ref, pid in pids.items():
        with pytest.raises(GroupInUseError, match=f"{ref.pod}/{ref.name} still has processes: {pid}; end them first"):
            groups.remove(ref)
    with pytest.raises(GroupInUseError) as refusal:
        groups.remove_all()
    assert set(refusal.value.pids) & set(pids.values())
    assert groups.found() == {APP: True, OTHER: False}
    assert [groups.members(ref) for ref in pids] == [[pid] for pid in pids.values()]


def test_a_process_that_only_waits_to_be_reaped_is_in_nobodys_way(groups: Groups, running: Workload) -> None:
    groups.make(APP, LAST, NONE)
    pid, _ = running.start(["echo", "ready"], groups, APP)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert groups.members(APP) == []
    groups.remove(APP)
    assert groups.found() == {}


def test_a_daemon_that_starts_again_finds_its_containers(
    groups: Groups, kind: str, name: str, running: Workload
) -> None:
    groups.set_shared(REST)
    groups.make(APP, LAST, NONE)
    groups.make(OTHER, None, NONE)
    exclusive, shared = (running.start(THREADS, groups, ref)[0] for ref in (APP, OTHER))
    anew = again(groups, kind, name)
    assert anew.found() == {APP: True, OTHER: False}
    assert (anew.members(APP), anew.members(OTHER)) == ([exclusive], [shared])
    assert (anew.cpus(APP), anew.cpus(OTHER)) == (LAST, ALL)
    anew.set_cpus(APP, FIRST)
    anew.set_shared(REST)
    assert (allowed(exclusive), allowed(shared)) == ({str(FIRST)}, {str(REST)})
    assert running.start(IDLE, anew, APP)[0] in anew.members(APP)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text)[:12])
def test_hostile_names_stay_in_their_place_and_are_read_back(
    groups: Groups, kind: str, name: str, running: Workload, text: str
) -> None:
    refs = {ContainerRef(PodUID(text), "app"): True, ContainerRef(PodUID("pod-1"), text): False}
    for ref, exclusive in refs.items():
        groups.make(ref, LAST if exclusive else None, NONE)
        running.start(IDLE, groups, ref)
    assert again(groups, kind, name).found() == refs


def test_a_name_that_is_too_long_is_an_error(groups: Groups, kind: str) -> None:
    if kind == "affinity":
        pytest.skip("any length will do")
    with pytest.raises(GroupError, match="ENAMETOOLONG: the path is too long"):
        groups.make(ContainerRef(PodUID("pod-1"), "x" * 5000), LAST, NONE)


def test_two_of_one_name_are_told_apart(groups: Groups) -> None:
    groups.make(ContainerRef(PodUID("a/b"), "c"), LAST, NONE)
    groups.make(ContainerRef(PodUID("a%2Fb"), "c"), FIRST, NONE)
    groups.make(ContainerRef(PodUID("a"), "b/c"), ALL, NONE)
    assert len(groups.found()) == 3
    assert groups.cpus(ContainerRef(PodUID("a/b"), "c")) == LAST


def test_v1_puts_back_a_cpu_that_the_groups_above_have_lost(name: str) -> None:
    groups = _only("cgroup-v1", name)
    # What the kernel does to every group of v1 when a CPU goes offline; nothing gives it back.
    for path in ("shared", "exclusive", ""):
        (ROOT / "cpuset" / name / path / "cpuset.cpus").write_text(str(FIRST))
    groups.make(APP, LAST, NONE)
    groups.set_shared(ALL)
    assert (groups.cpus(APP), groups.shared_cpus()) == (LAST, ALL)
    groups.remove(APP)
    groups.remove_all()


@pytest.mark.parametrize("refs", [[APP], [APP, HELPER]], ids=["alone", "beside-another"])
def test_v1_brings_back_processes_whose_cpus_were_offline(
    name: str, running: Workload, refs: list[ContainerRef]
) -> None:
    groups = _only("cgroup-v1", name)
    pids = {}
    for ref in refs:
        groups.make(ref, LAST, NONE)
        pids[ref] = running.start(IDLE, groups, ref)[0]
        # What the kernel does to a group of v1 whose last CPU goes offline.
        (ROOT / "cpuset" / name / "exclusive/pod-1/cgroup.procs").write_text(str(pids[ref]))
    groups.make(OTHER, None, NONE)
    pids[OTHER] = running.start(IDLE, groups, OTHER)[0]
    (ROOT / "cpuset" / name / "cgroup.procs").write_text(str(pids[OTHER]))
    assert [groups.members(ref) for ref in pids] == [[pid] for pid in pids.values()]
    with pytest.raises(GroupInUseError):
        groups.remove(APP)
    groups.set_shared(FIRST)
    for ref in refs:
        groups.set_cpus(ref, LAST)
        assert allowed(pids[ref]) == {str(LAST)}
    assert allowed(pids[OTHER]) == {str(FIRST)}
    running.end()
    for ref in pids:
        groups.remove(ref)
    groups.remove_all()


def test_v1_lets_exclusive_processes_have_real_time_priority(name: str, running: Workload) -> None:
    groups = _only("cgroup-v1", name)
    try:
        if any("real-time" in reason for reason in groups.weaker):
            pytest.skip("another group has the real-time budget")
        groups.make(APP, LAST, NONE)
        pid, _ = running.start(IDLE, groups, APP)
        os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(1))
        running.end()
        groups.remove(APP)
    finally:
        groups.remove_all()


def _only(kind: str, name: str) -> Groups:
    try:
        groups = choose(kind, name=name)
    except KindUnavailableError as error:
        pytest.skip(str(error))
    groups.prepare(ALL)
    return groups
