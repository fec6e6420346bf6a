"""Any sysfs tree, also with wrong files, gives a sound Topology or a PinfoldError."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pinfold.core.machine.cpuset import cpus_of
from pinfold.errors import PinfoldError
from pinfold.node.machine.kubeletview import discover_as_kubelet
from pinfold.node.machine.sysfs import discover
from tests.machines.builder import write_sysfs
from tests.machines.catalogue import MACHINES

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.core.machine.topology import Topology

# Trees have hundreds of files each; a disk would take longer for them than all else here.
MEMORY = next((path for path in ["/dev/shm"] if os.access(path, os.W_OK)), None)  # noqa: S108 - only where it can be
CHOSEN = {
    "sibling-offline",
    "node-without-cpus",
    "only-maps",
    "no-online-file",
    "overlapping-nodes",
    "package-unknown-but-grouped",
    "cache-ids-collide",
}
BUILT = {machine.name: machine for machine in MACHINES if machine.name in CHOSEN}
PLACES = [
    "cpu",
    "cpu/*",
    "cpu/online",
    "cpu/present",
    "cpu/cpu*",
    "cpu/cpu*/online",
    "cpu/cpu*/topology",
    "cpu/cpu*/topology/*",
    "cpu/cpu*/topology/core_*",
    "cpu/cpu*/topology/*package*",
    "cpu/cpu*/cache",
    "cpu/cpu*/cache/*",
    "cpu/cpu*/cache/index3/*",
    "node",
    "node/online",
    "node/node*",
    "node/node*/*",
    "node/node*/cpulist",
    "node/node*/distance",
]
LONG = 1_000_000
CONTENTS = [
    b"", b"\n", b"0", b"1", b"-1", b"+1", b"2", b"3\n", b"7 ", b"65535", b"65536", b"-2147483648", b"4294967295",
    b"9" * 18, b"9" * 19, b"9" * 5000, b"0-1", b"0-3", b"0-7\n", b"2-5", b"0,2", b"0-1023", b"0-7:1/2", b"3-1", b"1,,2",
    b"f", b"ffffffff,ffffffff", b"0" * 40, b"10", b"10 20", b"20 10\n", b"10 -1", b"10 " * 3, b"zero", b"\0\0\0",
    b"1\0", "٣".encode(), b"\xff\xfe\x00", b"\n\n\n0\n",
    b"9" * LONG, b"0" * LONG, b"f" * LONG, b"0," * (LONG // 2), b"\0" * LONG, b"\xff" * LONG, b" " * LONG,
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Damage:
    """What becomes of the files at a place: of all that are there, or of one of them."""

    place: str
    which: int | None
    becomes: str
    content: bytes = b""

    def do(self, system: Path) -> None:
        paths = sorted(system.glob(self.place))
        for path in paths if self.which is None else paths[self.which % (len(paths) or 1) :][:1]:
            # Not through links of earlier damage: they lead out of the place.
            if path.parent.resolve() == path.parent:
                self._do_one(path)

    def _do_one(self, path: Path) -> None:
        if self.becomes in REPLACED:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            REPLACED[self.becomes](path, self.content)
        elif path.is_file():
            CHANGED[self.becomes](path, self.content)


REPLACED: dict[str, Callable[[Path, bytes], object]] = {
    "bytes": Path.write_bytes,
    "nothing": lambda _path, _content: None,
    "directory": lambda path, _content: path.mkdir(),
    "fifo": lambda path, _content: os.mkfifo(path),
    "loop": lambda path, _content: path.symlink_to(path.name),
    "parent": lambda path, _content: path.symlink_to(".."),
    "dangling": lambda path, _content: path.symlink_to("nowhere"),
}
CHANGED: dict[str, Callable[[Path, bytes], object]] = {
    "cut": lambda path, content: path.write_bytes(path.read_bytes()[: len(content)]),
    "unreadable": lambda path, _content: path.chmod(0),
}
contents = (
    st.sampled_from(CONTENTS) | st.binary(max_size=12) | st.text("0123456789,-:/ \n", max_size=12).map(str.encode)
)
which = st.none() | st.integers(0, 200)
damages = st.builds(Damage, st.sampled_from(PLACES), which, st.just("bytes"), contents) | st.builds(
    Damage,
    st.sampled_from(PLACES),
    which,
    st.sampled_from(sorted(REPLACED.keys() | CHANGED.keys())),
    st.binary(max_size=3),
)
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
damaged_machines = given(st.sampled_from(sorted(BUILT)), st.lists(damages, max_size=5))


def check(find: Callable[[Path], Topology], name: str, done: list[Damage]) -> None:
    with TemporaryDirectory(dir=MEMORY) as directory:
        root = Path(directory).resolve()
        write_sysfs(BUILT[name], root)
        for damage in done:
            damage.do(root / "sys/devices/system")
        try:
            topology = find(root)
        except PinfoldError as error:
            assert str(error).startswith(f"{root}: ")  # noqa: PT017 - either way is right
            assert "\n" not in str(error)  # noqa: PT017
        else:
            check_soundness(topology)
            assert find(root) == topology


def check_soundness(topology: Topology) -> None:
    online = [row.cpu for row in topology.cpus]
    assert online
    assert online == sorted(set(online)) == list(topology.online)
    for groups in (topology.cores, topology.sockets, topology.numa_nodes, topology.uncore_caches):
        assert sorted(cpu for group in groups for cpu in cpus_of(group.mask)) == online
    assert topology.offline.isdisjoint(topology.online)
    assert not any("\n" in warning for warning in topology.warnings)


def test_machines_to_damage_are_there() -> None:
    assert BUILT.keys() == CHOSEN


@untimed
@damaged_machines
def test_damaged_tree_gives_a_sound_topology_or_an_error(name: str, done: list[Damage]) -> None:
    check(discover, name, done)


@untimed
@damaged_machines
@example("overlapping-nodes", [])
def test_damaged_tree_gives_a_sound_kubelet_view_or_an_error(name: str, done: list[Damage]) -> None:
    check(discover_as_kubelet, name, done)
