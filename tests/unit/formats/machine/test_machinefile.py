import pytest

from pinfold.core.machine.presets import preset
from pinfold.errors import ParseError
from pinfold.formats.machine.lscpu import format_lscpu
from pinfold.formats.machine.machinefile import MachineFormat, detect_format, parse_machine, parse_machine_as_kubelet
from pinfold.formats.machine.topologyjson import format_topology_json

CADVISOR = """{"num_cores": 2, "num_sockets": 1, "topology": [{"node_id": 0, "cores": [
  {"core_id": 0, "thread_ids": [0, 1], "socket_id": 0}]}]}"""
HWLOC = """<?xml version="1.0" encoding="UTF-8"?>
<topology version="2.0"><object type="Machine" os_index="0" cpuset="0x1" complete_cpuset="0x1" allowed_cpuset="0x1">
<object type="Package" os_index="0" cpuset="0x1"><object type="Core" os_index="0" cpuset="0x1">
<object type="PU" os_index="0" cpuset="0x1"/></object></object></object></topology>"""
OURS = format_topology_json(preset("cores:2"))
LSCPU = format_lscpu(preset("cores:2"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (HWLOC, MachineFormat.HWLOC),
        (CADVISOR, MachineFormat.CADVISOR),
        (OURS, MachineFormat.PINFOLD),
        (LSCPU, MachineFormat.LSCPU),
        ("", MachineFormat.LSCPU),
    ],
    ids=["hwloc", "cadvisor", "pinfold", "lscpu", "empty"],
)
@pytest.mark.parametrize("before", ["", " \n\t"], ids=["at once", "after blanks"])
def test_content_tells_the_format(text: str, found: MachineFormat, before: str) -> None:
    assert detect_format(before + text) is found


@pytest.mark.parametrize("text", [HWLOC, CADVISOR, OURS, LSCPU], ids=["hwloc", "cadvisor", "pinfold", "lscpu"])
@pytest.mark.parametrize("before", ["", "\ufeff"], ids=["plain", "byte order mark"])
def test_every_format_is_read(text: str, before: str) -> None:
    assert 0 in parse_machine(before + text).online


def test_cadvisor_can_be_seen_as_the_kubelet_does() -> None:
    assert parse_machine_as_kubelet(CADVISOR).cpus[1].uncore == 0


@pytest.mark.parametrize(
    ("text", "name"),
    [(HWLOC, "hwloc XML"), (OURS, "pinfold JSON"), (LSCPU, "lscpu text")],
    ids=["hwloc", "pinfold", "lscpu"],
)
def test_others_cannot_be_seen_as_the_kubelet_does(text: str, name: str) -> None:
    with pytest.raises(ParseError, match=f"needs cAdvisor JSON, not {name}$"):
        parse_machine_as_kubelet(text)


@pytest.mark.parametrize(
    "text",
    ['{"lscpu": []}', '{"cpus": [{"cpu": 0, "node": 0, "socket": 0, "core": 0, "online": true}]}'],
    ids=["lscpu -J", "lscpu -J -e"],
)
def test_json_of_lscpu_is_refused_with_what_to_do_instead(text: str) -> None:
    with pytest.raises(ParseError, match="save the output of lscpu -p=CPU,CORE,SOCKET,NODE,CACHE,ONLINE"):
        parse_machine(text)


def test_broken_json_says_where() -> None:
    with pytest.raises(ParseError, match=r"^line 2, column 3: not JSON"):
        parse_machine('{"cpus":\n  }')
