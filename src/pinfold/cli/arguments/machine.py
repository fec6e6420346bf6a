"""The machine that a command is about: this host, another root directory, a file, or a built-in one.

Every verb that needs a Topology takes the same options, and gets it here.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.shapes import SHAPES
from pinfold.core.machine.topology import CPUInfo
from pinfold.errors import ParseError, PinfoldError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from pinfold.core.machine.topology import Group, Topology

_MAX_FILE: Final = 64 << 20
_GZIP: Final = b"\x1f\x8b"
_EXAMPLE: Final = SHAPES["epyc-7303-2s"]


class UnusableFile(PinfoldError):  # noqa: N818 - the fact, as the others in this family
    """A file that does not describe a machine in any known format."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.problem = problem


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which machine."""
    group = parser.add_argument_group("machine", "this host, unless one of these is given")
    source = group.add_mutually_exclusive_group()
    source.add_argument(
        "--sysroot", metavar="DIR", type=Path, help="root directory of another machine: DIR/sys is read"
    )
    source.add_argument(
        "--from", metavar="FILE", dest="file", help="lscpu -p, hwloc XML, cAdvisor or pinfold JSON; - is stdin"
    )
    source.add_argument("--preset", metavar="NAME|SHAPE", help=f"a built-in machine, or a shape such as {_EXAMPLE}")
    group.add_argument(
        "--as",
        dest="view",
        choices=("pinfold", "kubelet"),
        default="pinfold",
        help="as it is (pinfold, the default), or as a kubelet sees it, mistakes included",
    )


def read_machine(args: argparse.Namespace) -> Topology:
    """Return the machine that the options ask for."""
    as_kubelet = args.view == "kubelet"
    if args.file is not None:
        return _from_file(args.file, as_kubelet=as_kubelet)
    if args.preset is not None:
        named = getattr(args, "given", {}).get("preset", "--preset")
        return _from_preset(args.preset, named, as_kubelet=as_kubelet)
    return _from_root(args.sysroot or Path("/"), as_kubelet=as_kubelet)


def online_now(args: argparse.Namespace) -> CPUSet | None:
    """Return the CPUs of this host that are online now; None if the options name another machine."""
    if args.file is not None or args.preset is not None or args.sysroot is not None:
        return None
    from pinfold.node.machine.sysfs import SYSTEM  # noqa: PLC0415 - most commands do not ask
    from pinfold.node.machine.tree import Tree  # noqa: PLC0415

    mask = Tree(Path("/"), SYSTEM).mask(["cpu/online"], [])
    return None if mask is None else CPUSet(mask)


def machine_name(args: argparse.Namespace) -> str:
    """Return the machine's name for a title; empty for this host."""
    if args.preset is not None:
        return str(args.preset)
    path = args.file if args.file not in {None, "-"} else args.sysroot
    return "" if path is None else Path(path).name


# Each way to a machine imports only its own readers.
def _from_root(root: Path, *, as_kubelet: bool) -> Topology:
    from pinfold.node.machine.devices import Devices  # noqa: PLC0415
    from pinfold.node.machine.kubeletview import discover_as_kubelet  # noqa: PLC0415
    from pinfold.node.machine.sysfs import discover  # noqa: PLC0415

    found = discover_as_kubelet(root) if as_kubelet else discover(root)
    return replace(found, devices=tuple(Devices(root).shown()))


def _from_file(name: str, *, as_kubelet: bool) -> Topology:
    from pinfold.formats.machine.machinefile import parse_machine, parse_machine_as_kubelet  # noqa: PLC0415

    shown = "stdin" if name == "-" else name
    text = _decode(shown, _read(name, shown))
    try:
        return parse_machine_as_kubelet(text) if as_kubelet else parse_machine(text)
    except ParseError as error:
        raise error.within(shown) from None


def _read(name: str, shown: str) -> bytes:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(_MAX_FILE + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(_MAX_FILE + 1)
    except IsADirectoryError:
        raise UnusableFile(shown, "is a directory; for one that has sys/ in it use --sysroot") from None
    if len(data) > _MAX_FILE:
        raise UnusableFile(shown, f"is larger than {_MAX_FILE >> 20} MiB")
    return data


def _decode(shown: str, data: bytes) -> str:
    if data.startswith(_GZIP):
        hint = "unpack it, then use --sysroot with the directory that has sys/ in it, or --from with a file"
        raise UnusableFile(shown, f"is compressed; {hint}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnusableFile(shown, f"is not text (byte {error.start + 1} is not UTF-8)") from None
    if "\0" in text:
        raise UnusableFile(shown, "is not text (it has NUL bytes)")
    return text


def _from_preset(name: str, named: str, *, as_kubelet: bool) -> Topology:
    from pinfold.core.machine.presets import preset  # noqa: PLC0415 - most machines are read

    try:
        topology = preset(name)
    except ParseError as error:
        raise error.within(named) from None
    return _assumed(topology) if as_kubelet else topology


def _assumed(topology: Topology) -> Topology:
    """Return the machine with the unknown filled in, as decisions assume it; a kubelet knows no unknown."""
    kinds = (topology.cores, topology.sockets, topology.numa_nodes, topology.uncore_caches)
    core, socket, numa, uncore = map(_ids, kinds)
    rows = (CPUInfo(cpu, core[cpu], socket[cpu], numa[cpu], uncore[cpu]) for cpu in topology.online)
    return replace(topology, cpus=tuple(rows))


def _ids(groups: Iterable[Group]) -> dict[int, int]:
    return {cpu: group.id for group in groups for cpu in group.cpus}
