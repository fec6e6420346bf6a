"""Changed texts end no parser in a way that its callers do not expect; `make fuzz` tries for longer."""

from __future__ import annotations

import random
import re
import sys
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from pinfold.errors import PinfoldError
from pinfold.formats.journal.record import parse_records
from pinfold.formats.kubelet.config import parse_kubelet_config
from pinfold.formats.kubelet.gojson import parse_json
from pinfold.formats.machine.cadvisor import parse_cadvisor
from pinfold.formats.machine.lscpu import parse_lscpu
from pinfold.formats.machine.topologyjson import format_topology_json, parse_topology_json
from pinfold.formats.pods.manifest import parse_pods
from pinfold.node.podgroups.paths import parse_absolute, parse_cgroup_parent, parse_cgroups_path
from pinfold.node.podgroups.systemd import parse_span
from pinfold.node.processgroups.names import decode
from pinfold.node.resctrl.schemata import parse_schemata
from pinfold.serve.http.messages import parse_target
from pinfold.settings.addresses import parse_hosts
from tests.fuzz.parsers import MACHINE, MOST, PARSERS, POD, RECORD, hit, long_inputs, mutations, near

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fuzz.parsers import Parser


@pytest.mark.parametrize("name", PARSERS)
def test_changed_texts_are_read_or_refused(name: str) -> None:
    parser = PARSERS[name]
    assert all(hit(parser, seed) for seed in parser.seeds[:1])
    for text in islice(mutations(parser, random.Random(14)), 150):  # noqa: S311 - repeatable, not secret
        hit(parser, text)


@pytest.mark.parametrize("text", ["MB:0=1e9", "L3:", "L3:0", "=", "x"], ids=repr)
def test_a_file_of_the_kernel_that_is_damaged_is_refused(text: str) -> None:
    with pytest.raises(PinfoldError, match="schemata"):
        parse_schemata(text)


TOO_MUCH = {
    "path": (parse_absolute, "/" * MOST, "up to 4095 bytes"),
    "cgroupsPath": (parse_cgroups_path, ":" * MOST, "up to 4095 bytes"),
    "slice": (parse_cgroup_parent, "-" * MOST, "up to 4095 bytes"),
    "groups of a process": (PARSERS["process"].parse, "\n" * MOST, "1,000,000 characters; 65,520 are allowed"),
    "span of time": (parse_span, "9" * MOST + "s", "expected a span of time"),
    "target": (parse_target, "/" * MOST, "1,000,000 characters; 16,384 are allowed"),
    "schemata": (parse_schemata, "L3:0=f;" * 100_000, "700,000 characters; 65,536 are allowed"),
    "hosts": (parse_hosts, "a," * 500_000, "1,000,000 characters; 65,536 are allowed"),
    "devices": (near, "a," * 500_000, "1,000,000 characters; 4,096 are allowed"),
    "settings": (PARSERS["own-file"].parse, "---\n" * 250_000, "more than 10,000 values"),
    "kubelet's settings": (parse_kubelet_config, "- a\n" * 250_000, "more than 10,000 values"),
    "values of pods": (PARSERS["pods"].parse, "---\n" * 250_000, "more than 10,000 values"),
    "containers": (
        parse_pods,
        POD.replace("[{", f"[{'0,' * 20_000}{{"),
        "20,001 containers; 10,000 are allowed",
    ),
    "lines of lscpu": (parse_lscpu, "\n" * MOST, "1,000,000 lines; 8,192 CPUs and 100 comments are allowed"),
    "comments of lscpu": (parse_lscpu, "#\n" * 101, "line 101: more than 100 comments"),
    "cells of lscpu": (parse_lscpu, "," * MOST, "more than 64 cells"),
    "objects of cAdvisor": (
        parse_cadvisor,
        f'{{"topology":[{"{}," * 330_000}{{}}]}}',
        "MachineInfo with more than 32,768 objects",
    ),
    "nodes of cAdvisor": (
        parse_cadvisor,
        f'{{"topology":[{"{}," * 1024}{{}}]}}',
        "1,025 NUMA nodes; 1,024 are allowed",
    ),
    "values of a machine": (parse_topology_json, f'{{"cpus":[{"0," * 65_537}0]}}', "more than 65,536 values"),
    "CPUs of a machine": (parse_topology_json, f'{{"cpus":[{"0," * 8192}0]}}', "cpus: 8,193 items; 8,192 are allowed"),
    "distances": (
        lambda text: parse_topology_json(format_topology_json(MACHINE).replace('"0": {"0": 10}', text)),
        ",".join(f'"{node}": {{}}' for node in range(1025)),
        "distances: 1,025 NUMA nodes; 1,024 are allowed",
    ),
    "commas of a checkpoint": (parse_json, f"[{'0,' * 30_001}0]", "more than 30,000 commas"),
}


@pytest.mark.parametrize(("parse", "text", "problem"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_more_than_any_real_text_has_is_refused_with_the_bound(
    parse: Callable[[str], object], text: str, problem: str
) -> None:
    with pytest.raises(PinfoldError, match=re.escape(problem)):
        parse(text)


def test_a_name_longer_than_any_path_is_no_name_of_ours() -> None:
    assert decode("a" * 4096) is None
    assert decode("a" * 4095) == "a" * 4095


def test_lines_of_a_journal_that_are_no_records_are_counted() -> None:
    assert parse_records(RECORD.encode() + b"\n\n00000000 \n" + b"x" * 30 + b"\n").damaged == 4


@pytest.mark.parametrize("name", PARSERS)
def test_work_grows_with_the_text_and_not_with_its_square(name: str) -> None:
    parser = PARSERS[name]
    for small, large in zip(long_inputs(parser, 1000), long_inputs(parser, 4000), strict=True):
        assert calls(parser, large) <= 5 * calls(parser, small) + 2000, repr(large[-20:])


def test_only_texts_that_no_daemon_reads_may_take_long() -> None:
    commands = {"documents", "trace", "resources", "fleet", "fleet-pods"}
    assert {name for name, parser in PARSERS.items() if parser.command} == commands


def calls(parser: Parser, text: str) -> int:
    """Return how many functions a parser calls for a text."""
    count = 0

    def called(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(called)
    try:
        hit(parser, text)
    finally:
        sys.setprofile(None)
    return count
