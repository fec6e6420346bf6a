"""Throws text at everything that parses what others have written: pods, settings, machines, State, journals, paths.

    python -m tests.fuzz.parsers --seconds 2            random changes of good texts, for each parser
    python -m tests.fuzz.parsers --atheris NAME ...     one parser, guided by coverage; libFuzzer's options follow

For any text, a parser returns, or raises a PinfoldError or one of the errors that its callers expect.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import h11

from pinfold.core.events.entries import Subject
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.pods.quantity import Quantity
from pinfold.core.state import State
from pinfold.errors import PinfoldError
from pinfold.formats.cacheclasses import parse_cache_class
from pinfold.formats.documents import parse_documents
from pinfold.formats.fleet.manifest import parse_fleet
from pinfold.formats.fleet.pods import parse_workloads as parse_fleet_pods
from pinfold.formats.journal.record import format_record, parse_records
from pinfold.formats.kubelet.checkpoint import format_checkpoint, parse_checkpoint
from pinfold.formats.kubelet.config import parse_kubelet_config
from pinfold.formats.kubelet.flags import parse_cpus, parse_duration, parse_gates, parse_key_values
from pinfold.formats.kubelet.gojson import parse_json
from pinfold.formats.machine.cadvisor import parse_cadvisor
from pinfold.formats.machine.hwloc import parse_hwloc
from pinfold.formats.machine.lscpu import parse_lscpu
from pinfold.formats.machine.machinefile import parse_machine
from pinfold.formats.machine.resources import parse_resources
from pinfold.formats.machine.topologyjson import format_topology_json, parse_topology_json
from pinfold.formats.pods.annotations import PREFIX, parse_annotations
from pinfold.formats.pods.manifest import SMALL, PodRoom, parse_pods
from pinfold.formats.pods.trace import parse_trace
from pinfold.formats.wire.criinfo import parse_info
from pinfold.kubernetes.pods.items import parse_object
from pinfold.manager.sources.kept import MOST_WORKLOADS, KeptWorkload, format_workloads, parse_workloads
from pinfold.manager.sources.workloads import WorkloadKind
from pinfold.node.podgroups.paths import parse_absolute, parse_cgroup_parent, parse_cgroups_path
from pinfold.node.processgroups.names import decode, parse
from pinfold.node.resctrl.schemata import parse_schemata
from pinfold.serve.http.messages import parse_target
from pinfold.settings.addresses import parse_address, parse_hosts
from pinfold.settings.ownfile import parse_own_file
from tests.fuzz import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

POD: Final = """apiVersion: v1
kind: Pod
metadata: {name: web, annotations: {a: "b"}}
spec:
  containers: [{name: app, command: [sh, -c, "sleep 1"], resources: {limits: {cpu: "2", memory: 1Gi}}}]
"""
CONFIG: Final = """kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
reservedSystemCPUs: "0,1"
featureGates: {CPUManagerPolicyAlphaOptions: true}
cpuManagerReconcilePeriod: 1m30s
"""
LSCPU: Final = "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n0,0,0,0,,0,0,0,0\n1,1,0,0,,1,1,1,0\n"
HWLOC: Final = (
    '<?xml version="1.0"?><!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology version="2.0"><object type="Machine" '
    'os_index="0" cpuset="0x3"><object type="PU" os_index="0" cpuset="0x1"/></object></topology>'
)
MACHINE: Final = from_shape("cores:4,threads:2")
RESOURCES: Final = "numaNodes:\n  0: {nvidia.com/gpu: 4, memory: 64Gi}\n  1: {hugepages-1Gi: 16Gi}\n"
FLEET: Final = "nodes: [{name: small, count: 3, machine: laptop-4}]\nworkloads: [{pods: pods.yaml, replicas: 2}]\n"
TRACE: Final = "time,event,pod,container,cpu,memory\n0,add,web,app,2,1Gi\n60,remove,web,,,\n"

RECORD: Final = format_record({"number": 1, "time": 1, "what": "serving"}).decode()
KEPT: Final = [KeptWorkload(WorkloadKind.POD, pod) for pod in parse_pods(POD).pods]
MOST: Final = 1_000_000
"""Bytes of the longest input."""
CORPUS: Final = Path("build/fuzz")
"""Where atheris keeps the texts that have led it further, for the next time."""


class Parser(NamedTuple):
    """A parser of texts, and good texts for it."""

    parse: Callable[[str], object]
    seeds: tuple[str, ...]
    expected: tuple[type[Exception], ...] = (PinfoldError,)
    command: str = ""
    """The commands that read such texts, if no daemon does: good ones of 1 MB may take longer than 100 ms."""
    whole: bool = False
    """Whether a part of a good text is never good: lengths are written in it."""
    hard: Callable[[int], Iterator[str]] = lambda _size: iter(())
    """Texts of a size that are hard for this parser alone."""


PARSERS: Final = {
    "cpus": Parser(CPUSet.parse, ("0-3,8,10-12", "0")),
    "quantity": Parser(Quantity.parse, ("1500m", "1e3", "0.5Gi", "-1")),
    "documents": Parser(parse_documents, (POD, CONFIG, '{"a": [1, 2.5e3, true, null]}'), command="plan, fleet, apply"),
    "pods": Parser(
        lambda text: parse_pods(text, room=PodRoom.small(), to_run=True),
        (POD,),
        hard=lambda size: hard_pods(size),  # noqa: PLW0108 - defined below
    ),
    "annotations": Parser(lambda text: _each(text, near, _annotated), ("eth0,gpu0", "cpus.app")),
    "trace": Parser(parse_trace, (TRACE,), command="plan"),
    "kubelet-config": Parser(parse_kubelet_config, (CONFIG,)),
    "own-file": Parser(lambda text: parse_own_file(text, source="x"), ("reserved-cpus: 0\n",)),
    "checkpoint": Parser(
        lambda text: parse_checkpoint(text, policy="static"),
        (format_checkpoint("static", State(MACHINE.online), pod_level=False),),
    ),
    "json": Parser(parse_json, ('{"a":{"b":[1,2,"\\u00e4"]},"c":-1.5e3}',), (PinfoldError, ValueError)),
    "flags": Parser(
        lambda text: _each(text, parse_duration, parse_gates, parse_key_values, parse_cpus), ("1m30s", "A=true,B=false")
    ),
    "lscpu": Parser(parse_lscpu, (LSCPU,)),
    "hwloc": Parser(parse_hwloc, (HWLOC,)),
    "cadvisor": Parser(parse_cadvisor, ('{"topology":[{"node_id":0,"cores":[{"core_id":0,"thread_ids":[0,1]}]}]}',)),
    "topology-json": Parser(parse_topology_json, (format_topology_json(MACHINE),)),
    "machine": Parser(parse_machine, (LSCPU, HWLOC, format_topology_json(MACHINE))),
    "journal": Parser(lambda text: parse_records(text.encode("utf-8", "replace")), (RECORD,)),
    "workloads": Parser(parse_workloads, (format_workloads("boot", KEPT),), hard=lambda size: hard_rows(size)),  # noqa: PLW0108 - defined below
    "cri-info": Parser(parse_info, ('{"pid":1,"runtimeSpec":{"linux":{"resources":{"cpu":{"cpus":"0"}}}}}',)),
    "api-object": Parser(
        lambda text: parse_object(text.encode("utf-8", "replace"), "x"), ('{"kind":"Pod","metadata":{"name":"a"}}',)
    ),
    "paths": Parser(
        lambda text: _each(text, parse_absolute, parse_cgroups_path, parse_cgroup_parent, parse, decode),
        ("/kubepods/burstable/pod1/abc", "kubepods-pod1.slice:cri-containerd:abc", "u1/a%2Fb"),
    ),
    "schemata": Parser(parse_schemata, ("L3:0=fff;1=fff\nMB:0=100;1=100\n",)),
    "target": Parser(parse_target, ("/v1/pods?name=a%20b&x=1",), (PinfoldError,)),
    "resources": Parser(lambda text: parse_resources(text, [0, 1]), (RESOURCES,), command="plan"),
    "fleet": Parser(lambda text: parse_fleet(text, lambda _name: POD), (FLEET,), command="fleet"),
    "fleet-pods": Parser(parse_fleet_pods, (POD,), command="fleet"),
    "classes": Parser(lambda text: _each(text, parse_cache_class, Subject.parse), ("L3:ff0/MB:50", "web/app")),
    "cri": Parser(wire.read_cri, wire.cri_answers(), whole=True),
    "pod-resources": Parser(wire.read_pod_resources, (wire.pod_resources(),), whole=True),
    "pods-api": Parser(wire.read_pods_api, (wire.told_pod(),), whole=True),
    "http": Parser(wire.read_request, (wire.REQUEST,), (PinfoldError, h11.RemoteProtocolError)),
    "systemd": Parser(wire.read_systemd, (wire.SHOWN,)),
    "process": Parser(wire.read_process, (wire.environment(), wire.MEMBERSHIP)),
    "addresses": Parser(lambda text: _each(text, parse_address, parse_hosts), ("127.0.0.1:80", "[::1]:9", "a,b:1")),
}


def near(text: str) -> object:
    """Return what a list of devices in an annotation asks for."""
    return parse_annotations({f"{PREFIX}near": text})


def _annotated(text: str) -> object:
    return parse_annotations({f"{PREFIX}{text}": text})


def _each(text: str, *parsers: Callable[[str], object]) -> None:
    """Give a text to several parsers."""
    for one in parsers:
        with suppress(PinfoldError):
            one(text)


def hit(parser: Parser, text: str) -> bool:
    """Give a text to a parser, and return whether it was good; raise if it ends in a way that no caller expects."""
    try:
        parser.parse(text)
    except parser.expected:
        return False
    return True


def mutations(parser: Parser, dice: random.Random) -> Iterator[str]:
    """Yield changed good texts, for ever."""
    odd = (
        "\0",
        "\ud800",
        "\u2028",
        "-",
        "9" * 40,
        "{",
        "[",
        '"',
        "\\",
        "%",
        "&a",
        "*a",
        "<",
        "\n",
        ":",
        ",",
        "=",
        "1e999",
    )
    while True:
        text = dice.choice(parser.seeds)
        for _ in range(dice.randint(1, 6)):
            at = dice.randrange(len(text) + 1)
            end = min(len(text), at + dice.choice([0, 1, 1, 3, 20]))
            middle = dice.choice(
                [text[at:end] * dice.choice([2, 50]), dice.choice(odd), chr(dice.randrange(0x3000)), ""]
            )
            text = text[:at] + middle + text[end:]
        yield text[:MOST]


PARTS: Final = (
    *(
        "0",
        "9",
        "a",
        " ",
        "[",
        "{",
        '"',
        "\\",
        ".",
        "_",
        "-",
        ",",
        "0,",
        "\n",
        "a: ",
        "- ",
        "<a>",
        "&a ",
        "%25",
        "/",
        "=",
    ),
    *(
        ";",
        ":",
        "0=f;",
        "a=1,",
        "#\n",
        "a\n",
        "a:\n",
        "- a\n",
        "{}\n",
        "0,0,0,0\n",
        "---\n",
        "00000000 {\n",
        "u/",
        "1h",
        "- {}\n",
        "- &a b\n",
        "kind: A\n---\n",
        "a: b: c\n---\n",
        "\n---\na: b: c",
    ),
)
"""What hostile texts repeat."""


def long_inputs(parser: Parser, size: int = MOST) -> Iterator[str]:
    """Yield hard inputs of about *size*: one part again and again, many keys and items, deep nesting, long numbers."""
    for part in PARTS:
        yield part * (size // len(part))
        yield parser.seeds[0] + part * ((size - len(parser.seeds[0])) // len(part))
    for seed in parser.seeds:
        yield seed * (size // len(seed)) if parser.whole else (seed * (size // len(seed) + 1))[:size]
        yield (f"{seed}," * (size // len(seed) + 1))[:size]
        for char in "a01":
            yield seed.replace(char, "7" * (size // (seed.count(char) + 1)))[:size]
        for opened, items in (("{", _members(size)), ("[", "0," * (size // 2)), ("[", "{}," * (size // 3))):
            if opened in seed:
                head, _, tail = seed.partition(opened)
                yield head + opened + items + tail
    yield from parser.hard(size)
    yield f"{{{_members(size)[:-1]}}}"
    yield "\n".join(f"k{number}: 0" for number in range(size // 10))
    yield ",".join(f"{number}" for number in range(0, size // 4, 2))
    yield "".join(f"{number},{number},0,0\n" for number in range(size // 16))
    yield '{"a":' * (size // 6) + "1" + "}" * (size // 6)


def _members(size: int) -> str:
    """Return the members of an object, each with a comma after it."""
    return "".join(f'"k{number}":0,' for number in range(size // 11))


def hard_pods(size: int) -> Iterator[str]:
    """Yield pods with much of something, as JSON and as YAML: as much as a daemon reads, and as much as fits."""
    pod = '{"kind": "Pod", "metadata": {"name": "a%s"%s}, "spec": {"containers": [%s]%s}}'
    kinds = {
        '{"kind": "List", "items": [%s]}': pod % ("%d", "", '{"name": "a"}', ""),
        pod % ("", "", "%s", ""): '{"name": "a%d"}',
        pod % ("", "", '{"name": "a", "env": [%s]}', ""): '{"name": "A%d"}',
        pod % ("", "", '{"name": "a", "args": [%s]}', ""): '"%d"',
        pod % ("", "", '{"name": "a", "resources": {"limits": {%s}}}', ""): '"a/b%d": 1',
        pod % ("", ', "labels": {%s}', '{"name": "a"}', ""): '"a%d": ""',
        pod % ("", "", '{"name": "a"}', ", %s"): '"restartPolicyofthepod%d": 0',
    }
    for head, item in kinds.items():
        values = 1 + sum(map(item.count, ",[{"))
        for count in (size // len(item), min(size // len(item), (SMALL - 50) // values)):
            text = head % ", ".join(item % number for number in range(count))
            yield from (text, f"# YAML\n{text}")
    yield (
        f"{{kind: Deployment, metadata: {{name: a}}, spec: {{replicas: {min(5000, size // 10)}, "
        "template: {spec: {containers: [{name: a}]}}}}"
    )


def hard_rows(size: int) -> Iterator[str]:
    """Yield files of workloads: whole ones, and rows that are damaged or have no checksum."""
    whole = format_workloads("boot", KEPT)
    row = whole[whole.index("[") + 1 : -2]
    bare = f"{row.rpartition(', ')[0]}}}"
    for one in (row, row.replace("web", "w"), bare, '{"mains": {}}', '{"mains": {}, "checksum": 1}', "0"):
        for count in (size // len(one), min(size // len(one), MOST_WORKLOADS)):
            yield f'{{"boot": "boot", "workloads": [{", ".join([one] * count)}]}}'


def throw(name: str, seconds: float, seed: int) -> str:
    """Throw changed texts at a parser for a while, and return how many."""
    parser, end, thrown, good = PARSERS[name], time.monotonic() + seconds, 0, 0
    for text in mutations(parser, random.Random(seed)):  # noqa: S311 - repeatable, not secret
        good += hit(parser, text)
        thrown += 1
        if time.monotonic() > end:
            break
    return f"{name}: {thrown:,} inputs, {good:,} of them good, nothing unexpected"


def slowest(name: str) -> tuple[float, str]:
    """Return the seconds of CPU time that the slowest long input takes, and its end."""
    parser, found = PARSERS[name], (0.0, "")
    for text in long_inputs(parser):
        took = _timed(parser, text)
        if took > found[0]:  # other programs may have slowed it down
            took = min(took, _timed(parser, text), _timed(parser, text))
        found = max(found, (took, ascii(text[-8:])))
    return found


def _timed(parser: Parser, text: str) -> float:
    gc.collect()
    start = time.process_time()
    hit(parser, text)
    return time.process_time() - start


def guided(name: str, options: list[str]) -> None:
    """Let atheris choose the texts; does not return."""
    # Optional: a large package that few need.
    import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]

    atheris.instrument_all()
    parser = PARSERS[name]
    corpus = CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(parser.seeds):
        (corpus / f"seed{number}").write_bytes(wire.as_bytes(seed))
    atheris.Setup([sys.argv[0], str(corpus), *options], lambda data: hit(parser, wire.as_text(data)) and None)
    atheris.Fuzz()


def main(arguments: list[str]) -> int:
    """Run until the time is over, or for as long as libFuzzer likes."""
    options = argparse.ArgumentParser(prog="tests.fuzz.parsers", description="fuzz every parser")
    options.add_argument("--seconds", type=float, default=2.0, help="for each parser")
    options.add_argument("--seed", type=int, default=0, help="the same seed throws the same texts")
    options.add_argument("--list", action="store_true", help="print the names of the parsers")
    options.add_argument("--atheris", metavar="NAME", choices=PARSERS, help="guided by coverage")
    given, further = options.parse_known_args(arguments)
    if given.atheris:
        guided(given.atheris, further)
    for name in PARSERS:
        if given.list:
            print(name)  # noqa: T201 - the result
        else:
            print(throw(name, given.seconds, given.seed))  # noqa: T201 - the result
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
