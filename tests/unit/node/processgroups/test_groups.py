"""Choosing a kind of groups, and what the kubelet makes of CPU amounts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pinfold.core.reconcile import Limit
from pinfold.errors import ConfigError
from pinfold.node.grouperrors import KindUnavailableError
from pinfold.node.processgroups.errors import GroupInUseError
from pinfold.node.processgroups.groups import choose
from tests.needs import needs_root

SOURCE = Path(__file__).parents[4] / "src"

# A user without any privilege: groups by affinity, for its own processes only.
UNPRIVILEGED = """
import asyncio, os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.node.grouperrors import GroupError, KindUnavailableError
from pinfold.core.reconcile import Limit
from pinfold.node.processgroups.groups import choose
from pinfold.node.processgroups.joiner import Joiner
from pinfold.node.starting.starter import NewProcess, Starter

starter = Starter()  # before it is another user, who may not reach this interpreter

async def start(request, files, joiner):
    begun = await starter.begin(request, files, joiner)
    await begun.runs()
    return begun.pid

def run(request, files, joiner):
    os.waitpid(asyncio.run(start(request, files, joiner)), 0)

with Joiner(CPUSet.from_cpus(os.sched_getaffinity(0))) as joiner:
    run(NewProcess(["true"], dict(os.environ)), (0, 1, 2), joiner)
os.chdir("/")
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
for kind in ("cgroup-v2", "cgroup-v1"):
    try:
        choose(kind, name="pinfold-test-nobody")
    except KindUnavailableError as error:
        print(error)
groups = choose(name="pinfold-test-nobody")
print(groups.kind, "|", groups.weaker[-3])
mine = CPUSet.from_cpus(os.sched_getaffinity(0))
last = CPUSet.of(max(mine))
app = ContainerRef(PodUID("u1"), "app")
groups.prepare(mine)
groups.make_exclusive(app, last)
status = ["grep", "Cpus_allowed_list", "/proc/self/status"]
reader, writer = os.pipe()
with groups.group(app).joiner() as joiner:
    request = NewProcess(status, dict(os.environ), identity=(65534, 65534, ()))
    run(request, (0, writer, 2), joiner)
print(os.read(reader, 999).decode().split() == ["Cpus_allowed_list:", str(last)])
try:
    groups.group(app).attach(os.getppid())
except GroupError as error:
    print(error)
print(groups.group(app).members())
idle = subprocess.Popen(["sleep", "100"], env=groups.group(app).environment())
anew = choose("affinity", name="pinfold-test-nobody")
print(anew.found() == {app: True}, anew.group(app).members() == [idle.pid])
idle.kill()
idle.wait()
"""


@pytest.mark.parametrize(
    ("limit", "shares", "weight", "quota"),
    [
        (Limit(), 2, 1, None),
        (Limit(request=1, limit=1), 2, 1, 1000),
        (Limit(request=1000, limit=1000), 1024, 39, 100_000),
        (Limit(request=1500, limit=0), 1536, 59, None),
        (Limit(request=10_000_000, limit=64_000), 262_144, 10_000, 6_400_000),
    ],
    ids=["nothing", "least", "one-cpu", "limit-0-is-none", "most"],
)
def test_amounts_are_what_the_kubelet_makes_of_them(limit: Limit, shares: int, weight: int, quota: int | None) -> None:
    assert (limit.shares, limit.weight, limit.quota) == (shares, weight, quota)


def test_an_unknown_kind_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(
        ConfigError, match='"cgroup" is not a kind of groups; expected one of cgroup-v2, cgroup-v1, aff'
    ):
        choose("cgroup")


@pytest.mark.parametrize("kind", ["cgroup-v2", "cgroup-v1"])
def test_a_kind_that_is_not_there_is_refused_with_the_reason(kind: str, tmp_path: Path) -> None:
    with pytest.raises(KindUnavailableError, match=rf"{kind.replace('-', ' ')} cannot be used: .*{tmp_path}"):
        choose(kind, cgroup_root=tmp_path)


def test_without_cgroups_affinity_is_chosen(tmp_path: Path) -> None:
    groups = choose(cgroup_root=tmp_path)
    assert groups.kind == "affinity"
    assert groups.weaker[0].startswith("affinity is used because cgroup v2 cannot be used: ")
    assert f"; cgroup v1 cannot be used: no cpuset controller is mounted below {tmp_path}" in groups.weaker[0]
    assert not any("because" in reason for reason in choose("affinity").weaker)
    assert choose(cgroup_root=tmp_path / "missing").kind == "affinity"


def test_cgroup_v1_needs_a_second_controller(tmp_path: Path) -> None:
    (tmp_path / "cpuset").mkdir()
    for name in ("tasks", "cpuset.cpus"):
        (tmp_path / "cpuset" / name).write_text("")
    with pytest.raises(KindUnavailableError, match="must be mounted beside cpuset: cpu, cpuacct, freezer"):
        choose("cgroup-v1", cgroup_root=tmp_path)
    (tmp_path / "freezer").mkdir()
    (tmp_path / "freezer" / "tasks").write_text("")
    groups = choose("cgroup-v1", cgroup_root=tmp_path)
    assert "CPU limits and weights are not applied: there is no cpu controller" in groups.weaker
    assert not list(tmp_path.rglob("pinfold"))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 201])
@pytest.mark.parametrize("kind", ["cgroup-v2", "cgroup-v1", "affinity"])
def test_a_name_that_is_no_name_is_refused(kind: str, name: str, tmp_path: Path) -> None:
    for file in ("cgroup.controllers", "cpuset/tasks", "cpuset/cpuset.cpus", "freezer/tasks"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("cpuset" if file == "cgroup.controllers" else "")
    with pytest.raises(ConfigError, match="cannot be the name of a group"):
        choose(kind, cgroup_root=tmp_path, name=name)


def test_many_processes_are_counted_and_not_all_listed() -> None:
    error = GroupInUseError("pod/app", range(100, 112))
    assert str(error) == (
        "pod/app still has processes: 100, 101, 102, 103, 104, 105, 106, 107, 108, 109 and 2 more; end them first"
    )


@needs_root
def test_without_privileges_affinity_is_chosen_and_works_on_ones_own_processes() -> None:
    command = [sys.executable, "-I", "-S", "-c", UNPRIVILEGED, str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert done.stderr == ""
    assert all(line.startswith("cgroup v") for line in lines[:2]), lines
    assert any("not permitted" in line for line in lines[:2]), lines
    assert lines[2] == "affinity | processes of other users are not moved"
    assert lines[3] == "True"
    assert "not permitted; it belongs to another user" in lines[4]
    assert lines[5:] == ["[]", "True True"]
