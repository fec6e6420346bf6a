"""Every format gives a Topology or a PinfoldError, for any text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.errors import PinfoldError
from pinfold.formats.machine.cadvisor import parse_cadvisor, parse_cadvisor_as_kubelet
from pinfold.formats.machine.hwloc import parse_hwloc
from pinfold.formats.machine.lscpu import parse_lscpu
from tests.machines.builder import cadvisor_json, lscpu_text
from tests.machines.catalogue import MACHINES
from tests.machines.hwlocbuilder import hwloc_xml

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.core.machine.topology import Topology

    Parser = Callable[[str], Topology]

CHOSEN = [
    machine
    for machine in MACHINES
    if machine.name in {"laptop", "cache-spans-two-nodes", "node-without-cpus", "sibling-offline"}
]
VALID = {
    parse_lscpu: [lscpu_text(machine, style) for machine in CHOSEN for style in ("columns", "list", "all")],
    parse_hwloc: [hwloc_xml(machine, version) for machine in CHOSEN for version in (1, 2, 3)],
    parse_cadvisor: [cadvisor_json(machine) for machine in CHOSEN],
    parse_cadvisor_as_kubelet: [cadvisor_json(machine) for machine in CHOSEN],
}
parsers = pytest.mark.parametrize("parse", VALID, ids=lambda parse: parse.__name__)
TOKENS = [
    "", "-", "-1", "0", "1", "7", "65536", "9" * 30, "0x", "0xf...f", ",", ",,", ":", "\n", '"', "<", ">", "&x;", "/>",
    "NaN", "null", "[]", "{}", "true", "1e999", "nan", "\0", "\ud800", "٣",
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, texts: list[str]) -> str:
    """Draw a valid document with some pieces cut out, copied or replaced."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12) | st.just(len(text))))
        piece = draw(st.sampled_from(TOKENS) | st.just(text[start:end] * 2) | st.text(max_size=3))
        text = text[:start] + piece + text[end:]
    return text


def check(parse: Parser, text: str) -> None:
    try:
        topology = parse(text)
    except PinfoldError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either way is right
    else:
        assert sum(node.mask for node in topology.numa_nodes) == topology.online.mask


@parsers
@given(text=st.text())
def test_any_text_is_a_machine_or_an_error(parse: Parser, text: str) -> None:
    check(parse, text)


@parsers
@given(data=st.data())
def test_damaged_document_is_a_machine_or_an_error(parse: Parser, data: st.DataObject) -> None:
    check(parse, data.draw(damaged(VALID[parse])))  # type: ignore[index]  # its keys are the parsers
