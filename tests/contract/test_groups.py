"""The contract of groups, on the kernel this runs on: one suite over every kind that works here."""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import Limit
from pinfold.node.grouperrors import GroupError, KindUnavailableError, NoCPUsError
from pinfold.node.processgroups.errors import GroupInUseError, NoGroupError
from pinfold.node.processgroups.groups import KINDS, ProcessGroups, choose
from pinfold.node.procfs import PROC
from pinfold.node.starting.starter import NewProcess, Starter, StartError
from tests.contract import workload
from tests.contract.workload import (
    FORK_STORM,
    IDLE,
    ORPHAN,
    PARENT,
    ROOT,
    THREAD_STORM,
    THREADS,
    Workload,
    allowed,
    started,
    when_running,
)
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
def groups(kind: str, name: str, running: Workload) -> Iterator[ProcessGroups]:
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
    groups.remove_empty()
    assert groups.found() == {}
    assert not [path for path in (ROOT, *ROOT.iterdir()) if (path / name).exists()]
    assert Path("/proc/self/cgroup").read_text() == before
    assert workload.online() == ALL


def make(groups: ProcessGroups, ref: ContainerRef, *, exclusive: bool) -> None:
    """Make the container's group, on the last CPU or in the pool."""
    if exclusive:
        groups.make_exclusive(ref, LAST)
    else:
        groups.make_shared(ref, NONE)


def again(groups: ProcessGroups, kind: str, name: str) -> ProcessGroups:
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


def test_prepare_can_be_repeated_and_sets_the_pool(groups: ProcessGroups) -> None:
    groups.prepare(ALL)
    groups.prepare(FIRST)
    assert groups.shared_cpus() == FIRST
    assert groups.found() == {}


def test_it_says_what_it_is_and_what_it_cannot_promise(groups: ProcessGroups, kind: str) -> None:
    assert groups.kind == kind.replace("-", " ", 1)
    assert any("has not started or adopted" in reason for reason in groups.weaker)
    assert ("CPU limits and weights are not applied" in groups.weaker) == (kind == "affinity")


def test_the_pool_moves_every_shared_process_by_one_write(
    groups: ProcessGroups, kind: str, name: str, running: Workload
) -> None:
    refs = [ContainerRef(PodUID(f"pod-{i % 3}"), f"c{i}") for i in range(10)]
    pids = []
    for ref in refs:
        groups.make_shared(ref, Limit(100, 200))
        pids.append(running.start(THREADS if ref is refs[0] else IDLE, groups, ref)[0])
    for pool in (FIRST, ALL, REST):
        with workload.counted_writes() as writes:
            groups.set_shared(pool)
        assert [allowed(pid) for pid in pids] == [{str(pool)}] * len(pids)
        assert groups.shared_cpus() == pool
        assert {groups.group(ref).cpus() for ref in refs} == {pool}
        if kind != "affinity":
            assert list(writes.values()) == [1]
            assert next(iter(writes)).endswith(f"{name}/shared/cpuset.cpus")


def test_an_attached_process_is_confined_with_all_its_threads(groups: ProcessGroups, running: Workload) -> None:
    pid, _ = running.start(THREADS)
    bystander, _ = running.start(IDLE)
    groups.make_exclusive(APP, LAST)
    groups.group(APP).attach(pid)
    assert groups.group(APP).members() == [pid]
    assert workload.threads(pid) == 6
    assert allowed(pid) == {str(LAST)}
    assert groups.group(APP).cpus() == LAST
    assert allowed(bystander) == {str(ALL)}
    assert groups.found() == {APP: True}


def test_attaching_takes_nothing_but_the_process(groups: ProcessGroups, running: Workload) -> None:
    parent, child = running.start(PARENT)
    groups.make_exclusive(APP, LAST)
    groups.group(APP).attach(parent)
    groups.make_exclusive(APP, FIRST)
    assert groups.group(APP).members() == [parent]
    assert allowed(int(child)) == {str(ALL)}


@pytest.mark.parametrize("exclusive", [True, False], ids=["exclusive", "shared"])
def test_a_joiner_confines_before_the_first_instruction(
    groups: ProcessGroups, running: Workload, *, exclusive: bool
) -> None:
    groups.set_shared(FIRST)
    make(groups, APP, exclusive=exclusive)
    _, line = running.start(["grep", "Cpus_allowed_list", "/proc/self/status"], groups, APP)
    assert line.split() == ["Cpus_allowed_list:", str(LAST if exclusive else FIRST)]


def test_a_process_runs_on_the_cpus_that_its_container_has_when_it_begins(
    groups: ProcessGroups, tmp_path: Path
) -> None:
    """They may change while the forker is waited for."""
    groups.make_exclusive(APP, LAST)
    with groups.group(APP).joiner() as joiner, (tmp_path / "said").open("w") as out:
        groups.make_exclusive(APP, FIRST)
        request = NewProcess(["grep", "Cpus_allowed_list", "/proc/self/status"], dict(os.environ))
        pid = when_running(Starter().begin(request, (0, out.fileno(), 2), joiner))
    os.waitpid(pid, 0)
    assert (tmp_path / "said").read_text().split() == ["Cpus_allowed_list:", str(FIRST)]


def test_starting_several_leaves_nothing_open(groups: ProcessGroups) -> None:
    groups.make_exclusive(APP, LAST)
    starter = Starter()
    started(starter, ["true"], groups, APP).wait()  # the forker runs from now on
    before = open_files()
    for _ in range(2):
        process = started(starter, ["nproc"], groups, APP)
        assert process.stdout.read() == "1\n"
        assert process.wait() == 0
    assert open_files() == before


def test_a_process_that_cannot_join_does_not_run(groups: ProcessGroups, kind: str) -> None:
    if kind == "affinity":
        pytest.skip("an affinity cannot be taken away")
    groups.make_exclusive(APP, LAST)
    with groups.group(APP).joiner() as joiner:
        groups.remove(APP)
        with pytest.raises(StartError, match="join: No such device"):
            when_running(Starter().begin(NewProcess(["echo"], {}), (0, 1, 2), joiner))


def test_children_and_orphans_are_members(groups: ProcessGroups, running: Workload) -> None:
    groups.set_shared(REST)
    groups.make_exclusive(APP, LAST)
    parent, child = running.start(PARENT, groups, APP)
    _, orphan = running.start(ORPHAN, groups, APP)
    assert set(groups.group(APP).members()) >= {parent, int(child), int(orphan)}
    groups.make_exclusive(APP, FIRST)
    assert allowed(int(child)) == allowed(int(orphan)) == {str(FIRST)}


def test_a_container_comes_and_goes_beside_the_pool(groups: ProcessGroups, running: Workload) -> None:
    groups.make_shared(OTHER, NONE)
    shared, _ = running.start(THREADS, groups, OTHER)
    groups.set_shared(REST)
    assert allowed(shared) == {str(REST)}
    groups.make_exclusive(APP, LAST)
    exclusive, _ = running.start(THREADS, groups, APP)
    assert allowed(exclusive) == {str(LAST)}
    running.end(exclusive)
    groups.remove(APP)
    groups.set_shared(ALL)
    assert allowed(shared) == {str(ALL)}
    assert groups.found() == {OTHER: False}


def test_cpus_grow_shrink_and_change_sides(groups: ProcessGroups, running: Workload) -> None:
    groups.make_exclusive(APP, LAST)
    groups.make_exclusive(HELPER, FIRST)
    pid, _ = running.start(THREADS, groups, APP)
    for cpus in (ALL, LAST, REST, FIRST, LAST):
        groups.make_exclusive(APP, cpus)
        assert allowed(pid) == {str(cpus)}
        assert groups.group(APP).cpus() == cpus
    assert groups.group(HELPER).cpus() == FIRST


def test_a_process_that_wants_more_cpus_is_put_back(groups: ProcessGroups, kind: str, running: Workload) -> None:
    groups.make_exclusive(APP, LAST)
    pid, _ = running.start(THREADS, groups, APP)
    os.sched_setaffinity(pid, ALL)
    assert groups.group(APP).cpus() == (ALL if kind == "affinity" else LAST)
    groups.make_exclusive(APP, LAST)
    assert allowed(pid) == {str(LAST)}
    assert groups.group(APP).cpus() == LAST


@pytest.mark.parametrize("exclusive", [True, False], ids=["exclusive", "shared"])
def test_what_is_started_has_all_cpus_of_its_group_also_if_its_parent_has_fewer(
    groups: ProcessGroups, running: Workload, *, exclusive: bool
) -> None:
    """A child inherits the affinity of its parent, and the kernel does not widen that when a cpuset gets more CPUs."""
    if exclusive:
        groups.make_exclusive(APP, ALL)
    else:
        groups.make_shared(APP, NONE)
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, FIRST)
    try:
        pid, _ = running.start(IDLE, groups, APP)
    finally:
        os.sched_setaffinity(0, before)
    for cpus in (ALL, FIRST, LAST, ALL):
        if exclusive:
            groups.make_exclusive(APP, cpus)
        else:
            groups.set_shared(cpus)
        assert allowed(pid) == {str(cpus)}


def test_threads_started_meanwhile_are_confined_too(groups: ProcessGroups, running: Workload) -> None:
    groups.make_exclusive(APP, LAST)
    pid, _ = running.start(THREAD_STORM)
    groups.group(APP).attach(pid)
    assert allowed(pid) == {str(LAST)}
    for cpus in (FIRST, LAST):
        groups.make_exclusive(APP, cpus)
        assert allowed(pid) == {str(cpus)}


@pytest.mark.parametrize("exclusive", [True, False], ids=["exclusive", "shared"])
def test_children_forked_meanwhile_are_not_lost(groups: ProcessGroups, running: Workload, *, exclusive: bool) -> None:
    groups.set_shared(LAST)
    make(groups, APP, exclusive=exclusive)
    pid, _ = running.start(FORK_STORM)
    groups.group(APP).attach(pid)
    for member in groups.group(APP).members():
        assert workload.allowed_or_gone(member) <= {str(LAST)}
    # Children that it had before end soon; from then on all of them are members.
    deadline = time.monotonic() + 60
    while not set(workload.session(pid)) <= set(groups.group(APP).members()):
        assert time.monotonic() < deadline


@pytest.mark.parametrize("exclusive", [True, False], ids=["exclusive", "shared"])
def test_what_is_given_back_is_where_it_was_and_may_use_what_it_might(
    groups: ProcessGroups, running: Workload, *, exclusive: bool
) -> None:
    pid, _ = running.start(THREADS)
    first, second, *_ = sorted(int(path.name) for path in Path(f"/proc/{pid}/task").iterdir())
    os.sched_setaffinity(second, FIRST)
    before, origin = Path(f"/proc/{pid}/cgroup").read_text(), groups.origin(pid)
    groups.set_shared(LAST)
    make(groups, APP, exclusive=exclusive)
    groups.group(APP).attach(pid)
    assert allowed(pid) == {str(LAST)}
    assert groups.group(APP).give_back(origin) == [pid]
    assert Path(f"/proc/{pid}/cgroup").read_text() == before
    assert [os.sched_getaffinity(thread) for thread in (first, second)] == [set(ALL), set(FIRST)]
    assert groups.group(APP).members() == []
    groups.set_shared(FIRST)
    groups.remove(APP)
    assert os.sched_getaffinity(first) == set(ALL)


def _cgroup(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cgroup").read_text()
    return ""


@pytest.mark.parametrize("exclusive", [True, False], ids=["exclusive", "shared"])
def test_children_forked_meanwhile_are_given_back_too(
    groups: ProcessGroups, running: Workload, *, exclusive: bool
) -> None:
    pid, _ = running.start(FORK_STORM)
    before, origin = Path(f"/proc/{pid}/cgroup").read_text(), groups.origin(pid)
    groups.set_shared(LAST)
    make(groups, APP, exclusive=exclusive)
    groups.group(APP).attach(pid)
    assert pid in groups.group(APP).give_back(origin)
    assert groups.group(APP).members() == []
    for member in workload.session(pid):
        until = time.monotonic() + 10
        while PROC.process(member) is not None and _cgroup(member) != before:  # its children end soon, in the top group
            assert time.monotonic() < until
            time.sleep(0.01)
    assert allowed(pid) == {str(ALL)}


def test_what_was_in_a_group_that_is_gone_is_given_back_to_the_one_above(
    groups: ProcessGroups, running: Workload, kind: str, name: str
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
        groups.make_exclusive(APP, LAST)
        groups.group(APP).attach(pid)
        for path in above:
            (path / f"{name}-own" / "below").rmdir()
        groups.group(APP).give_back(origin)
        assert {(path / f"{name}-own" / "cgroup.procs").read_text() for path in above} == {f"{pid}\n"}
    finally:
        running.end()
        for path in above:
            for group in (path / f"{name}-own" / "below", path / f"{name}-own"):
                if group.is_dir():
                    group.rmdir()


def test_a_process_whose_cpuset_lacks_a_cpu_does_not_get_the_rest_instead(
    groups: ProcessGroups, running: Workload, kind: str, name: str
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
        groups.make_exclusive(APP, ALL)
        with pytest.raises(GroupError, match=f"it has only {FIRST}; the others are offline, or not in its cpuset"):
            groups.group(APP).attach(pid)
        assert groups.group(APP).members() == []
        groups.make_shared(OTHER, NONE)
        groups.group(OTHER).attach(pid)  # who shares has what it can have
        assert allowed(pid) == {str(FIRST)}
    finally:
        running.end()
        group.rmdir()


def test_a_cpu_that_does_not_exist_is_refused_and_changes_nothing(groups: ProcessGroups, running: Workload) -> None:
    groups.make_exclusive(APP, LAST)
    groups.set_shared(REST)
    pid, _ = running.start(IDLE, groups, APP)
    with pytest.raises(GroupError, match=r"60000 → .*no such CPU"):
        groups.make_exclusive(APP, NO_SUCH_CPU)
    with pytest.raises(GroupError, match=r"60000 → .*no such CPU"):
        groups.set_shared(NO_SUCH_CPU)
    assert (groups.group(APP).cpus(), groups.shared_cpus(), allowed(pid)) == (LAST, REST, {str(LAST)})


def test_no_cpus_are_refused(groups: ProcessGroups) -> None:
    groups.make_exclusive(APP, LAST)
    with pytest.raises(NoCPUsError, match="no CPUs given"):
        groups.make_exclusive(APP, EMPTY)
    with pytest.raises(NoCPUsError, match="no CPUs given"):
        groups.set_shared(EMPTY)
    with pytest.raises(NoCPUsError, match="no CPUs given"):
        groups.make_exclusive(OTHER, EMPTY)
    assert (groups.group(APP).cpus(), groups.shared_cpus()) == (LAST, ALL)


@pytest.mark.parametrize("pid", [0, -1, 1 << 22], ids=["self", "everyone", "nobody"])
def test_a_process_that_is_not_there_cannot_be_attached(groups: ProcessGroups, pid: int) -> None:
    groups.make_exclusive(APP, LAST)
    with pytest.raises(GroupError, match=r"no (such )?process"):
        groups.group(APP).attach(pid)
    assert groups.group(APP).members() == []


def test_a_kernel_thread_cannot_be_attached(groups: ProcessGroups, kind: str) -> None:
    groups.make_exclusive(APP, LAST)
    kthreadd = 2
    if Path(f"/proc/{kthreadd}/comm").read_text() != "kthreadd\n":
        pytest.skip("kernel threads are not seen here")
    if kind == "affinity":
        pytest.skip("kthreadd is moved like any other")
    with pytest.raises(GroupError, match="EINVAL: a kernel thread"):
        groups.group(APP).attach(kthreadd)


def test_a_container_without_a_group_is_an_error(groups: ProcessGroups) -> None:
    with pytest.raises(NoGroupError, match="pod-1/app has no group"):
        groups.group(APP)
    groups.remove(APP)


def test_a_group_that_was_removed_is_an_error(groups: ProcessGroups) -> None:
    groups.make_exclusive(APP, LAST)
    group = groups.group(APP)
    groups.remove(APP)
    for ask in (group.members, group.cpus, group.joiner, lambda: group.attach(os.getpid())):
        with pytest.raises(GroupError):
            ask()


def test_quota_and_weight_are_set_for_shared_containers_only(groups: ProcessGroups, kind: str, name: str) -> None:
    if kind == "affinity":
        pytest.skip("affinity has neither")
    weight = "cpu.shares" if kind == "cgroup-v1" else "cpu.weight"
    quota = "cpu.cfs_quota_us" if kind == "cgroup-v1" else "cpu.max"
    one = Limit(request=500, limit=1500)
    groups.make_shared(APP, one)
    groups.make_shared(HELPER, Limit(request=1))
    expected = {"cpu.shares": "512", "cpu.weight": "20", "cpu.cfs_quota_us": "150000", "cpu.max": "150000 100000"}
    assert cgroup_file(kind, name, f"shared/pod-1/app/{weight}") == expected[weight]
    assert cgroup_file(kind, name, f"shared/pod-1/app/{quota}") == expected[quota]
    unlimited = {"cpu.cfs_quota_us": "-1", "cpu.max": "max 100000"}[quota]
    assert cgroup_file(kind, name, f"shared/pod-1/helper/{quota}") == unlimited
    assert cgroup_file(kind, name, f"shared/pod-1/{weight}") == {"cpu.shares": "514", "cpu.weight": "21"}[weight]
    groups.remove(HELPER)
    assert cgroup_file(kind, name, f"shared/pod-1/{weight}") == expected[weight]
    groups.make_shared(APP, NONE)
    assert cgroup_file(kind, name, f"shared/pod-1/app/{quota}") == unlimited
    groups.make_shared(HELPER, one)
    groups.make_exclusive(HELPER, LAST)
    least = {"cpu.shares": "2", "cpu.weight": "1"}[weight]
    assert cgroup_file(kind, name, f"shared/pod-1/{weight}") == least, "an exclusive container does not weigh here"
    groups.make_exclusive(OTHER, LAST)
    assert cgroup_file(kind, name, f"exclusive/{quota}") == unlimited
    assert not [path for path in (ROOT, *ROOT.iterdir()) if (path / name / "exclusive/pod-2/app" / quota).exists()]


def test_a_container_changes_its_pool_with_its_processes(groups: ProcessGroups, running: Workload) -> None:
    groups.set_shared(REST)
    groups.make_shared(APP, Limit(limit=500))
    pid, _ = running.start(THREADS, groups, APP)
    groups.make_exclusive(APP, LAST)
    assert (groups.found(), groups.group(APP).members(), allowed(pid)) == ({APP: True}, [pid], {str(LAST)})
    groups.make_shared(APP, NONE)
    assert (groups.found(), groups.group(APP).members(), allowed(pid)) == ({APP: False}, [pid], {str(REST)})


def test_making_again_changes_nothing(groups: ProcessGroups, running: Workload) -> None:
    groups.make_exclusive(APP, LAST)
    pid, _ = running.start(IDLE, groups, APP)
    groups.make_exclusive(APP, LAST)
    assert (groups.group(APP).members(), groups.group(APP).cpus()) == ([pid], LAST)


def test_a_group_with_processes_is_not_removed(groups: ProcessGroups, running: Workload) -> None:
    groups.make_exclusive(APP, LAST)
    groups.make_shared(OTHER, NONE)
    pids = {ref: running.start(IDLE, groups, ref)[0] for ref in (APP, OTHER)}
    for ref, pid in pids.items():
        with pytest.raises(GroupInUseError, match=f"{ref.pod}/{ref.name} still has processes: {pid}; end them first"):
            groups.remove(ref)
    assert sorted(groups.remove_empty()) == sorted(pids.values())
    assert groups.found() == {APP: True, OTHER: False}
    assert [groups.group(ref).members() for ref in pids] == [[pid] for pid in pids.values()]


def test_a_process_that_only_waits_to_be_reaped_is_ignored(groups: ProcessGroups, running: Workload) -> None:
    groups.make_exclusive(APP, LAST)
    pid, _ = running.start(["echo", "ready"], groups, APP)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert groups.group(APP).members() == []
    groups.remove(APP)
    assert groups.found() == {}


def test_a_daemon_that_starts_again_finds_its_containers(
    groups: ProcessGroups, kind: str, name: str, running: Workload
) -> None:
    groups.set_shared(REST)
    groups.make_exclusive(APP, LAST)
    groups.make_shared(OTHER, NONE)
    exclusive, shared = (running.start(THREADS, groups, ref)[0] for ref in (APP, OTHER))
    anew = again(groups, kind, name)
    assert anew.found() == {APP: True, OTHER: False}
    assert (anew.group(APP).members(), anew.group(OTHER).members()) == ([exclusive], [shared])
    assert (anew.group(APP).cpus(), anew.group(OTHER).cpus()) == (LAST, ALL)
    anew.make_exclusive(APP, FIRST)
    anew.set_shared(REST)
    assert (allowed(exclusive), allowed(shared)) == ({str(FIRST)}, {str(REST)})
    assert running.start(IDLE, anew, APP)[0] in anew.group(APP).members()


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text)[:12])
def test_hostile_names_stay_in_their_place_and_are_read_back(
    groups: ProcessGroups, kind: str, name: str, running: Workload, text: str
) -> None:
    refs = {ContainerRef(PodUID(text), "app"): True, ContainerRef(PodUID("pod-1"), text): False}
    for ref, exclusive in refs.items():
        make(groups, ref, exclusive=exclusive)
        running.start(IDLE, groups, ref)
    assert again(groups, kind, name).found() == refs


def test_a_name_that_is_too_long_is_an_error(groups: ProcessGroups, kind: str) -> None:
    if kind == "affinity":
        pytest.skip("any length will do")
    endless = ContainerRef(PodUID("pod-1"), "x" * 5000)
    with pytest.raises(GroupError, match="ENAMETOOLONG: the path is too long"):
        groups.make_exclusive(endless, LAST)
    with pytest.raises(NoGroupError):
        groups.group(endless)
    groups.remove(endless)


def test_two_of_one_name_are_told_apart(groups: ProcessGroups) -> None:
    groups.make_exclusive(ContainerRef(PodUID("a/b"), "c"), LAST)
    groups.make_exclusive(ContainerRef(PodUID("a%2Fb"), "c"), FIRST)
    groups.make_exclusive(ContainerRef(PodUID("a"), "b/c"), ALL)
    assert len(groups.found()) == 3
    assert groups.group(ContainerRef(PodUID("a/b"), "c")).cpus() == LAST


def test_v1_puts_back_a_cpu_that_the_groups_above_have_lost(name: str) -> None:
    groups = _only("cgroup-v1", name)
    # What the kernel does to every group of v1 when a CPU goes offline; nothing gives it back.
    for path in ("shared", "exclusive", ""):
        (ROOT / "cpuset" / name / path / "cpuset.cpus").write_text(str(FIRST))
    groups.make_exclusive(APP, LAST)
    groups.set_shared(ALL)
    assert (groups.group(APP).cpus(), groups.shared_cpus()) == (LAST, ALL)
    groups.remove(APP)
    groups.remove_empty()


@pytest.mark.parametrize("refs", [[APP], [APP, HELPER]], ids=["alone", "beside-another"])
def test_v1_brings_back_processes_whose_cpus_were_offline(
    name: str, running: Workload, refs: list[ContainerRef]
) -> None:
    groups = _only("cgroup-v1", name)
    pids = {}
    for ref in refs:
        groups.make_exclusive(ref, LAST)
        pids[ref] = running.start(IDLE, groups, ref)[0]
        # What the kernel does to a group of v1 whose last CPU goes offline.
        (ROOT / "cpuset" / name / "exclusive/pod-1/cgroup.procs").write_text(str(pids[ref]))
    groups.make_shared(OTHER, NONE)
    pids[OTHER] = running.start(IDLE, groups, OTHER)[0]
    (ROOT / "cpuset" / name / "cgroup.procs").write_text(str(pids[OTHER]))
    assert [groups.group(ref).members() for ref in pids] == [[pid] for pid in pids.values()]
    with pytest.raises(GroupInUseError):
        groups.remove(APP)
    groups.set_shared(FIRST)
    for ref in refs:
        groups.make_exclusive(ref, LAST)
        assert allowed(pids[ref]) == {str(LAST)}
    assert allowed(pids[OTHER]) == {str(FIRST)}
    running.end()
    for ref in pids:
        groups.remove(ref)
    groups.remove_empty()


@pytest.mark.parametrize("refs", [[APP], [APP, HELPER]], ids=["alone", "beside-another"])
def test_v1_brings_processes_whose_cpus_were_offline_into_the_pool(
    name: str, running: Workload, refs: list[ContainerRef]
) -> None:
    groups = _only("cgroup-v1", name)
    for ref in refs:
        groups.make_exclusive(ref, LAST)
    pid, _ = running.start(IDLE, groups, APP)
    (ROOT / "cpuset" / name / "exclusive/pod-1/cgroup.procs").write_text(str(pid))
    groups.set_shared(FIRST)
    try:
        groups.make_shared(APP, NONE)
        assert (groups.group(APP).members(), allowed(pid)) == ([pid], {str(FIRST)})
    finally:
        running.end()
        for ref in refs:
            groups.remove(ref)
        groups.remove_empty()


def test_v1_lets_exclusive_processes_have_real_time_priority(name: str, running: Workload) -> None:
    groups = _only("cgroup-v1", name)
    try:
        if any("real-time" in reason for reason in groups.weaker):
            pytest.skip("another group has the real-time budget")
        groups.make_exclusive(APP, LAST)
        pid, _ = running.start(IDLE, groups, APP)
        os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(1))
        running.end()
        groups.remove(APP)
    finally:
        groups.remove_empty()


def _only(kind: str, name: str) -> ProcessGroups:
    try:
        groups = choose(kind, name=name)
    except KindUnavailableError as error:
        pytest.skip(str(error))
    groups.prepare(ALL)
    return groups


def test_other_users_cannot_open_and_so_not_lock_the_top_group(groups: ProcessGroups, kind: str, name: str) -> None:
    groups.hold()
    tops = [path / name for path in (ROOT, *ROOT.iterdir()) if (path / name).is_dir()]
    assert kind == "affinity" or tops
    held = [top for top in tops if top.stat().st_mode & 0o777 == 0o711]
    assert kind == "affinity" or held
