"""Topology from sysfs: real machines recorded outside of this repository, this host, and trees that are damaged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.node.machine.kubeletview import discover_as_kubelet
from pinfold.node.machine.sysfs import discover
from pinfold.node.machine.tree import NoCPUs
from tests.machines.builder import write_sysfs
from tests.machines.catalogue import MACHINES
from tests.machines.machine import Files, Machine, expected
from tests.needs import needs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pinfold.core.machine.topology import CPUInfo, Topology

    Discover = Callable[[Path], Topology]

TOPOLOGIES = Path(__file__).parents[4] / "shared/topologies"
MEMORY = next((path for path in ["/dev/shm"] if os.access(path, os.W_OK)), None)  # noqa: S108 - only where it can be
SIZES = {
    "coherency_line_size",
    "meminfo",
    "number_of_sets",
    "physical_line_partition",
    "size",
    "ways_of_associativity",
}
COLUMNS = {"core": 1, "socket": 2, "node": 3, "l3": 4}
both_ways = pytest.mark.parametrize("find", [discover, discover_as_kubelet], ids=lambda find: find.__name__)

Facts = dict[str, Any]  # JSON of the recordings, which are trusted


@dataclass(frozen=True)
class Recorded:
    root: Path
    facts: Facts

    @cached_property
    def topology(self) -> Topology:
        return discover(self.root)

    def column(self, name: str) -> dict[int, object]:
        """Return what is stated of each CPU; CPUs of which nothing is stated are left out."""
        return {row[0]: row[COLUMNS[name]] for row in self.facts["cpus"] if row[COLUMNS[name]] is not None}


@pytest.fixture
def root() -> Iterator[Path]:
    """Give an empty directory; in memory, because trees have thousands of files and disks take seconds for them."""
    with TemporaryDirectory(dir=MEMORY) as name:
        yield Path(name)


def grouping(labels: Iterable[tuple[int, object]]) -> set[frozenset[int]]:
    groups: dict[object, set[int]] = {}
    for cpu, label in labels:
        groups.setdefault(label, set()).add(cpu)
    return {frozenset(group) for group in groups.values()}


def machine_called(name: str) -> Machine:
    return next(machine for machine in MACHINES if machine.name == name)


# Recorded machines.


def unpack(archive: Path, root: Path) -> None:
    """Write out the files of a recording, except those that tell how large a cache or memory is."""
    with tarfile.open(archive) as files:
        for member in files:
            path = root / member.name
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif member.issym():
                path.symlink_to(member.linkname)
            elif path.name not in SIZES and (data := files.extractfile(member)):
                path.write_bytes(data.read())


# There are none, and so no tests, where the recordings are not at hand.
@pytest.fixture(
    scope="module", params=sorted(TOPOLOGIES.glob("*.tar.gz")), ids=lambda path: path.name.removesuffix(".tar.gz")
)
def recorded(request: pytest.FixtureRequest) -> Iterator[Recorded]:
    """Give a recorded machine, unpacked."""
    archive: Path = request.param
    facts = json.loads(Path(str(archive).replace(".tar.gz", ".json")).read_text())
    with TemporaryDirectory(dir=MEMORY) as name:
        unpack(archive, Path(name))
        yield Recorded(Path(name), facts)


@pytest.mark.parametrize("column", COLUMNS)
def test_recorded_machine_has_the_groups_that_are_stated(recorded: Recorded, column: str) -> None:
    topology = recorded.topology
    rows: dict[int, CPUInfo] = {row.cpu: row for row in topology.cpus}
    stated = recorded.column(column)
    found = {cpu: rows[cpu][COLUMNS[column]] for cpu in stated}
    allowed = [grouping(stated.items())]
    if alternative := recorded.facts.get("either", {}).get(column):
        allowed.append(grouping(zip(stated, alternative["alternative"], strict=True)))
    assert grouping(found.items()) in allowed
    if not stated:
        assert {row[COLUMNS[column]] for row in topology.cpus} == {None}


def test_recorded_machine_has_the_cpus_that_are_stated(recorded: Recorded) -> None:
    topology, facts = recorded.topology, recorded.facts
    assert [row.cpu for row in topology.cpus] == [row[0] for row in facts["cpus"]]
    assert (str(topology.online), str(topology.offline)) == (facts["online"], facts["offline"])
    assert str(topology.isolated) == (facts["isolated"] or "")


def test_recorded_machine_has_the_socket_and_node_ids_that_are_stated(recorded: Recorded) -> None:
    rows = {row.cpu: row for row in recorded.topology.cpus}
    numbers = {cpu: label for cpu, label in recorded.column("socket").items() if isinstance(label, int)}
    assert {cpu: rows[cpu].socket for cpu in numbers} == numbers
    nodes = recorded.column("node")
    assert {cpu: rows[cpu].numa for cpu in nodes} == nodes


def test_recorded_machine_has_the_nodes_and_distances_that_are_stated(recorded: Recorded) -> None:
    topology, facts = recorded.topology, recorded.facts
    found = {row.numa: CPUSet.from_cpus(r.cpu for r in topology.cpus if r.numa == row.numa) for row in topology.cpus}
    nodes = {str(node): str(cpus) for node, cpus in found.items() if node is not None}
    assert nodes | {str(node): "" for node in topology.memory_only} == facts["nodes"]
    distances = {str(a): {str(b): far for b, far in row.items()} for a, row in topology.distances.items()}
    assert distances == facts["distances"]


def test_kubelet_view_of_a_recorded_machine_is_what_the_kubelet_computed(recorded: Recorded) -> None:
    kubelet = recorded.facts["kubelet"]
    if "error" in kubelet:
        with pytest.raises(NoCPUs, match="the kubelet finds no CPUs here"):
            discover_as_kubelet(recorded.root)
    else:
        assert [list(row) for row in discover_as_kubelet(recorded.root).cpus] == kubelet["cpus"]


def test_kubelet_view_of_a_recorded_machine_warns_of_exactly_the_cpus_it_misses(recorded: Recorded) -> None:
    kubelet = recorded.facts["kubelet"]
    if "error" not in kubelet:
        missing = kubelet["missing"]
        warnings = (f"CPUs {missing}: online, but the kubelet does not see them",) if missing else ()
        found = discover_as_kubelet(recorded.root).warnings
        assert tuple(warning for warning in found if "the kubelet" in warning) == warnings


# This host.


@needs("lscpu", met=shutil.which("lscpu") is not None)
@pytest.mark.parametrize("column", [1, 2, 3], ids=["core", "socket", "node"])
def test_this_host_has_the_groups_that_lscpu_prints(column: int) -> None:
    output = subprocess.run(["lscpu", "-p=CPU,CORE,SOCKET,NODE"], check=True, capture_output=True, text=True).stdout
    lines = [line.split(",") for line in output.splitlines() if not line.startswith("#")]
    stated = {int(cells[0]): cells[column] for cells in lines if cells[column]}
    topology = discover(Path("/"))
    rows = {row.cpu: row for row in topology.cpus}
    assert [*rows] == [int(cells[0]) for cells in lines]
    assert grouping((cpu, rows[cpu][column]) for cpu in stated) == grouping(stated.items())


# Nothing there.


@both_ways
def test_empty_directory_has_no_cpus_and_the_error_names_it(find: Discover, root: Path) -> None:
    with pytest.raises(NoCPUs) as caught:
        find(root)
    assert str(caught.value).startswith(f"{root}: ")
    assert caught.value.root == root


@both_ways
def test_missing_directory_has_no_cpus_and_the_error_names_it(find: Discover, root: Path) -> None:
    with pytest.raises(NoCPUs) as caught:
        find(root / "nowhere")
    assert str(caught.value).startswith(f"{root / 'nowhere'}: ")


@both_ways
def test_file_in_place_of_a_directory_has_no_cpus_and_the_error_names_it(find: Discover, root: Path) -> None:
    path = root / "file"
    path.write_text("0-3\n")
    with pytest.raises(NoCPUs) as caught:
        find(path)
    assert str(caught.value).startswith(f"{path}: ")


@both_ways
def test_path_that_cannot_be_has_no_cpus(find: Discover) -> None:
    with pytest.raises(NoCPUs):
        find(Path("no\0where"))


@both_ways
@pytest.mark.parametrize("place", ["cpu", "cpu/online", "node"])
def test_directory_that_is_a_loop_of_links_is_survived(find: Discover, place: str, root: Path) -> None:
    write_sysfs(machine_called("laptop"), root)
    path = root / "sys/devices/system" / place
    shutil.move(path, root / "away")
    path.symlink_to(path.name)
    if place == "cpu":
        with pytest.raises(NoCPUs):
            find(root)
    else:
        assert str(find(root).online) == "0-7"


# Files that are missing or garbled, on a machine of two sockets, two nodes, two caches and eight cores of two CPUs.


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Files (patterns below sys/devices/system), what is written there (None: nothing is), and what comes of it."""

    files: tuple[str, ...]
    content: bytes | None = None
    warnings: tuple[str, ...] = ()
    changes: Callable[[Topology], object] | None = None
    """What of the machine is no longer as before..."""
    into: object = None
    """... and what it is then."""

    def do(self, root: Path) -> None:
        for pattern in self.files:
            paths = sorted((root / "sys/devices/system").glob(pattern))
            assert paths, pattern
            for path in paths:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                if self.content is not None:
                    path.write_bytes(self.content)


EVEN, ODD = "0,2,4,6,8,10,12,14", "1,3,5,7,9,11,13,15"
SIBLINGS = ("cpu/cpu*/topology/core_cpus*", "cpu/cpu*/topology/thread_siblings*")
PACKAGES = ("cpu/cpu*/topology/package_cpus*", "cpu/cpu*/topology/core_siblings*")
FROM_DIRECTORIES = "cpu/online: missing; taken from cpuN/online, or every cpuN directory"
FROM_CORE_IDS = "CPUs 0-15: no file names the CPUs of their core; taken from core_id, package and NUMA node"
NOT_A_LIST = 'expected a CPU number at column 1 of "zero"; ignored'
NOT_A_NUMBER = 'expected a number, found "zero"; ignored'


def sizes(topology: Topology) -> tuple[int, ...]:
    groups = topology.sockets, topology.numa_nodes, topology.uncore_caches, topology.cores
    return tuple(map(len, groups))


DAMAGES = {
    "cpu/online missing": Damage(files=("cpu/online",), warnings=(FROM_DIRECTORIES,)),
    "cpu/online garbled": Damage(
        files=("cpu/online",), content=b"zero\n", warnings=(f"cpu/online: {NOT_A_LIST}", FROM_DIRECTORIES)
    ),
    "cpu/online binary": Damage(
        files=("cpu/online",), content=b"\xff\xfe0-7", warnings=("cpu/online: not text; ignored", FROM_DIRECTORIES)
    ),
    "cpu/online too long": Damage(
        files=("cpu/online",),
        content=b"0" * 1_000_000,
        warnings=("cpu/online: more than 524,288 bytes; ignored", FROM_DIRECTORIES),
    ),
    "cpu/online and one cpuN/online garbled": Damage(
        files=("cpu/online", "cpu/cpu3/online"),
        content=b"zero",
        warnings=(f"cpu/online: {NOT_A_LIST}", FROM_DIRECTORIES, f"cpu/cpu3/online: {NOT_A_NUMBER}"),
    ),
    "cpu/present garbled": Damage(files=("cpu/present",), content=b"zero\n", warnings=(f"cpu/present: {NOT_A_LIST}",)),
    "cpu/possible missing": Damage(files=("cpu/possible",)),
    "core_cpus_list of one CPU garbled": Damage(
        files=("cpu/cpu0/topology/core_cpus_list",),
        content=b"zero\n",
        warnings=(f"cpu/cpu0/topology/core_cpus_list: {NOT_A_LIST}",),
    ),
    "core lists missing, maps there": Damage(
        files=("cpu/cpu*/topology/core_cpus_list", "cpu/cpu*/topology/thread_siblings_list")
    ),
    "core_cpus_list of one CPU leaves it out": Damage(
        files=("cpu/cpu0/topology/core_cpus_list",),
        content=b"1\n",
        warnings=("cpu/cpu0/topology/core_cpus_list: leaves out its own CPU; ignored",),
    ),
    "core lists empty, maps there": Damage(
        files=("cpu/cpu*/topology/core_cpus_list", "cpu/cpu*/topology/thread_siblings_list"),
        content=b"\n",
        warnings=(
            "cpu/cpu0/topology/core_cpus_list: names no CPU; ignored",
            "cpu/cpu0/topology/thread_siblings_list: names no CPU; ignored",
        ),
    ),
    "a core claims a CPU of another": Damage(
        files=("cpu/cpu1/topology/core_cpus_list",),
        content=b"0-1,9\n",
        warnings=("core also claims CPUs 0, which another core has; the first one keeps them",),
    ),
    "core files missing, core_id there": Damage(files=SIBLINGS, warnings=(FROM_CORE_IDS,)),
    "core files missing, core_id garbled": Damage(
        files=("cpu/cpu*/topology/core_id", *SIBLINGS),
        content=b"zero",
        warnings=(
            f"cpu/cpuN/topology/core_id (CPUs 0-15): {NOT_A_NUMBER}",
            "CPUs 0-15: on an unknown core; each is taken for a core of its own",
        ),
        changes=lambda topology: [core.mask for core in topology.cores],
        into=[1 << cpu for cpu in range(16)],
    ),
    "core files and core_id of two CPUs missing": Damage(
        files=("cpu/cpu[19]/topology/core*", "cpu/cpu[19]/topology/thread*"),
        warnings=("CPUs 1,9: on an unknown core; each is taken for a core of its own",),
        changes=lambda topology: [str(core.cpus) for core in topology.cores if core.id in {0, 1, 9}],
        into=["0,8", "1", "9"],
    ),
    "package files missing, ids there": Damage(files=PACKAGES),
    "one physical_package_id garbled": Damage(
        files=("cpu/cpu1/topology/physical_package_id",),
        content=b"zero",
        warnings=(f"cpu/cpu1/topology/physical_package_id: {NOT_A_NUMBER}",),
    ),
    "one package_cpus_list leaves out its CPU": Damage(
        files=("cpu/cpu1/topology/package_cpus_list",),
        content=b"0\n",
        warnings=("cpu/cpu1/topology/package_cpus_list: leaves out its own CPU; ignored",),
    ),
    "package ids missing but for one CPU of each": Damage(
        files=("cpu/cpu[2-9]/topology/physical_package_id", "cpu/cpu1?/topology/physical_package_id")
    ),
    "package ids missing, files there": Damage(files=("cpu/cpu*/topology/physical_package_id",)),
    "package ids -1 as some kernels print it": Damage(
        files=("cpu/cpu*/topology/physical_package_id",), content=b"4294967295\n"
    ),
    "package ids and files missing": Damage(
        files=("cpu/cpu*/topology/physical_package_id", *PACKAGES),
        warnings=("CPUs 0-15: in no known socket; one common socket is assumed",),
        changes=lambda topology: ([str(socket.cpus) for socket in topology.sockets], sizes(topology)),
        into=(["0-15"], (1, 2, 2, 8)),
    ),
    "a node's cpulist garbled": Damage(
        files=("node/node1/cpulist",), content=b"zero", warnings=(f"node/node1/cpulist: {NOT_A_LIST}",)
    ),
    "cpulist and cpumap missing, links there": Damage(files=("node/node*/cpulist", "node/node*/cpumap")),
    "a node missing": Damage(
        files=("node/node1",),
        warnings=(f"CPUs {ODD}: in no NUMA node",),
        changes=lambda topology: ([str(node.cpus) for node in topology.numa_nodes], {*topology.distances}),
        into=([EVEN, ODD], {0}),
    ),
    "all nodes missing": Damage(
        files=("node",),
        changes=lambda topology: ([str(node.cpus) for node in topology.numa_nodes], topology.distances),
        into=(["0-15"], {}),
    ),
    "node/online missing": Damage(files=("node/online",)),
    "a distance missing": Damage(
        files=("node/node0/distance",), changes=lambda topology: {*topology.distances}, into={1}
    ),
    "a distance too short": Damage(
        files=("node/node0/distance",),
        content=b"10\n",
        warnings=('node/node0/distance: expected 2 numbers, found "10"; ignored',),
        changes=lambda topology: {*topology.distances},
        into={1},
    ),
    "a distance garbled": Damage(
        files=("node/node0/distance",),
        content=b"10 zero\n",
        warnings=('node/node0/distance: expected 2 numbers, found "10 zero"; ignored',),
        changes=lambda topology: {*topology.distances},
        into={1},
    ),
    "shared_cpu_list garbled": Damage(
        files=("cpu/cpu0/cache/index3/shared_cpu_list",),
        content=b"zero",
        warnings=(f"cpu/cpu0/cache/index3/shared_cpu_list: {NOT_A_LIST}",),
    ),
    "a cache claims a CPU of another": Damage(
        files=("cpu/cpu1/cache/index3/shared_cpu_list",),
        content=f"0,{ODD}\n".encode(),
        warnings=(
            "cpu/cpu1/cache/index3: shared_cpu_list and shared_cpu_map name different CPUs; the list is used",
            "uncore cache 1 also claims CPUs 0, which another uncore cache has; the first one keeps them",
        ),
    ),
    "sharing CPUs missing": Damage(
        files=("cpu/cpu*/cache/index3/shared_cpu_*",),
        warnings=("cpu/cpuN/cache/index3 (CPUs 0-15): no file says which CPUs share this cache; the cache is unknown",),
        changes=lambda topology: {row.uncore for row in topology.cpus},
        into={None},
    ),
    "cache ids missing": Damage(files=("cpu/cpu*/cache/index3/id",)),
    "a cache id garbled": Damage(
        files=("cpu/cpu1/cache/index3/id",),
        content=b"zero",
        warnings=(f"cpu/cpu1/cache/index3/id: {NOT_A_NUMBER}",),
    ),
    "cache levels garbled": Damage(
        files=("cpu/cpu*/cache/index3/level",),
        content=b"zero",
        warnings=(f"cpu/cpuN/cache/index3/level (CPUs 0-15): {NOT_A_NUMBER}",),
        changes=lambda topology: ({row.uncore for row in topology.cpus}, sizes(topology)),
        into=({None}, (2, 2, 2, 8)),
    ),
    "cache directories missing": Damage(
        files=("cpu/cpu*/cache",),
        changes=lambda topology: ({row.uncore for row in topology.cpus}, sizes(topology)),
        into=({None}, (2, 2, 2, 8)),
    ),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_missing_and_garbled_files_are_warned_of_and_the_next_file_is_asked(damage: Damage, root: Path) -> None:
    machine = machine_called("two-sockets-smt")
    write_sysfs(machine, root)
    damage.do(root)
    topology = discover(root)
    assert {*damage.warnings} <= {*topology.warnings}
    assert bool(damage.warnings) == bool(topology.warnings)
    if damage.changes is None:
        assert topology == expected(machine)
    else:
        assert damage.changes(topology) == damage.into


def test_machine_without_damage_has_no_warning(root: Path) -> None:
    write_sysfs(machine_called("two-sockets-smt"), root)
    assert discover(root).warnings == ()


@pytest.mark.parametrize("place", ["cpu/online", "cpu/cpu0/topology/core_cpus_list", "node/node0/cpulist"])
def test_directory_in_place_of_a_file_is_warned_of(place: str, root: Path) -> None:
    machine = machine_called("two-sockets-smt")
    write_sysfs(machine, root)
    path = root / "sys/devices/system" / place
    path.unlink()
    path.mkdir()
    topology = discover(root)
    assert f"{place}: Is a directory; ignored" in topology.warnings
    assert topology == expected(machine)


@pytest.mark.parametrize(("tickless", "isolated"), [("3,5-6\n", "2-3,5-6"), ("\n", "2-3"), ("(null)\n", "2-3")])
def test_tickless_cpus_are_isolated_too(root: Path, tickless: str, isolated: str) -> None:
    write_sysfs(machine_called("isolated-cpus"), root)
    (root / "sys/devices/system/cpu/isolated").write_text("2-3\n")
    (root / "sys/devices/system/cpu/nohz_full").write_text(tickless)
    topology = discover(root)
    assert str(topology.isolated) == isolated
    assert topology.warnings == ()


def test_isolated_cpus_that_are_garbled_are_none(root: Path) -> None:
    write_sysfs(machine_called("isolated-cpus"), root)
    (root / "sys/devices/system/cpu/isolated").write_text("2-\n")
    topology = discover(root)
    assert topology.isolated == EMPTY
    assert topology.warnings == ('cpu/isolated: expected a CPU number at column 3 of "2-"; ignored',)


@pytest.mark.parametrize(("cpu", "sibling"), [(8, 0), (0, 8)])
def test_cpu_that_does_not_name_its_core_is_on_the_one_whose_other_cpu_names_it(
    cpu: int, sibling: int, root: Path
) -> None:
    write_sysfs(machine_called("two-sockets-smt"), root)
    topology = f"cpu/cpu{cpu}/topology"
    Damage(files=(f"{topology}/core_cpus*", f"{topology}/thread_siblings*")).do(root)
    assert discover(root).siblings(CPUSet.of(sibling)) == CPUSet.of(cpu, sibling)


@pytest.mark.parametrize("cpu", [2, 0])
def test_cpu_that_does_not_name_its_cache_has_the_one_whose_other_cpus_name_it(cpu: int, root: Path) -> None:
    machine = machine_called("two-sockets-smt")
    write_sysfs(machine, root)
    Damage(files=(f"cpu/cpu{cpu}/cache",)).do(root)
    assert discover(root) == expected(machine)


def test_cache_is_unknown_where_only_a_cache_above_it_names_its_cpus(root: Path) -> None:
    write_sysfs(machine_called("laptop"), root)
    for cache in (root / "sys/devices/system/cpu").glob("cpu[0-9]/cache"):
        shutil.copytree(cache / "index3", cache / "index4")
        (cache / "index4/level").write_text("4\n")
    Damage(files=("cpu/cpu*/cache/index3/shared_cpu_*",)).do(root)
    assert {row.uncore for row in discover(root).cpus} == {None}


def test_cpu_that_no_node_lists_is_in_the_node_that_its_directory_links_to(root: Path) -> None:
    machine = machine_called("two-sockets-smt")
    write_sysfs(machine, root)
    system = root / "sys/devices/system"
    (system / "node/node1/cpulist").write_text("\n")
    for cpu in CPUSet.parse(ODD):
        (system / f"cpu/cpu{cpu}/node1").symlink_to("../../node/node1")
    topology = discover(root)
    assert topology == expected(machine)
    assert topology.warnings == (f"CPUs {ODD}: no NUMA node lists them; taken from the node link of each CPU",)


def test_an_empty_file_of_online_cpus_counts_as_missing(root: Path) -> None:
    machine = machine_called("two-sockets-smt")
    write_sysfs(machine, root)
    (root / "sys/devices/system/cpu/online").write_text("")
    assert discover(root) == expected(machine)


# What the kubelet would see.


def test_kubelet_takes_the_package_for_the_node_where_there_are_no_nodes(root: Path) -> None:
    write_sysfs(machine_called("large-package-ids"), root)
    shutil.rmtree(root / "sys/devices/system/node")
    assert [row.numa for row in discover_as_kubelet(root).cpus] == [36, 36, 8442, 8442]


def test_kubelet_takes_the_socket_for_the_cache_that_has_no_id(root: Path) -> None:
    write_sysfs(machine_called("cache-ids-missing"), root)
    assert {row.uncore for row in discover_as_kubelet(root).cpus} == {0}


@pytest.mark.parametrize("name", ["cache-maps-zero", "cache-lists-of-other-cpus"])
def test_kubelet_takes_the_cache_by_its_id_and_ignores_its_list(name: str, root: Path) -> None:
    write_sysfs(machine_called(name), root)
    assert {row.uncore for row in discover_as_kubelet(root).cpus} == {0, 1}


def test_kubelet_counts_the_cpus_of_a_cache_in_its_map(root: Path) -> None:
    write_sysfs(machine_called("several-caches-in-a-node"), root)
    Damage(files=("cpu/cpu*/cache/index3/shared_cpu_map",), content=b"0f0f\n").do(root)
    assert {row.uncore for row in discover_as_kubelet(root).cpus} == {0, 1}


def test_kubelet_takes_the_package_id_of_each_cpu_and_ignores_the_package_files(root: Path) -> None:
    write_sysfs(machine_called("package-files-span-two-sockets"), root)
    assert [row.socket for row in discover_as_kubelet(root).cpus] == [0, 0, 0, 0, 1, 1]


def test_kubelet_on_s390_takes_a_cache_that_has_no_id_for_cache_0(root: Path) -> None:
    halves = {0: "0-1", 1: "2-3"}
    machine = Machine(
        name="z", cores="0 1 2 3", sockets={3: "0-3"}, nodes={0: "0-3"}, uncore=halves, files=Files(cache_ids=())
    )
    write_sysfs(machine, root)
    assert {row.uncore for row in discover_as_kubelet(root).cpus} == {3}
    for cpu in (root / "sys/devices/system/cpu").glob("cpu[0-9]"):
        (cpu / "polarization").write_text("horizontal\n")
        (cpu / "topology/book_id").write_text("0\n")
        (cpu / "topology/drawer_id").write_text("0\n")
    assert {row.uncore for row in discover_as_kubelet(root).cpus} == {0}


def test_kubelet_does_not_see_cpus_in_no_node(root: Path) -> None:
    write_sysfs(machine_called("cpu-in-no-node"), root)
    topology = discover_as_kubelet(root)
    assert str(topology.online) == "0-1"
    assert topology.warnings[-1] == "CPUs 2: online, but the kubelet does not see them"


def test_kubelet_does_not_see_cpus_without_core_id(root: Path) -> None:
    write_sysfs(machine_called("laptop"), root)
    Damage(files=("cpu/cpu3/topology/core_id",)).do(root)
    topology = discover_as_kubelet(root)
    assert str(topology.online) == "0-2,4-7"
    assert topology.warnings == ("CPUs 3: online, but the kubelet does not see them",)


def test_kubelet_sees_a_cpu_of_two_nodes_once(root: Path) -> None:
    write_sysfs(machine_called("overlapping-nodes"), root)
    assert [(row.cpu, row.numa) for row in discover_as_kubelet(root).cpus] == [(0, 0), (1, 0), (2, 1), (3, 1)]
