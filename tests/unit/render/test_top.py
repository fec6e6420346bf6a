"""The screen of `pinfold top`: it fits any window, and says without colours whose each CPU is."""

from __future__ import annotations

import re

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.machine.shapes import SHAPES
from pinfold.render.machine.canvas import Look
from pinfold.render.top import SIGNS, Choices, Glance, Sort, format_screen, give_signs

SIZES = [(80, 24), (140, 40), (200, 50), (40, 12)]


def container(pod: str, cpus: str = "", **changes: object) -> dict[str, object]:
    told = {"namespace": "default", "pod": pod, "container": "app", "qos": "Guaranteed", "state": "running"}
    return {**told, "cpus": cpus, "exclusive": bool(cpus), **changes}


def glance(machine: str, *rows: dict[str, object], loads: float | None = 0.5) -> Glance:
    topology = preset(machine)
    owned = CPUSet()
    for row in rows:
        owned |= CPUSet.parse(str(row["cpus"]))
    reserved = CPUSet.of(topology.online.lowest)
    pools = {"online": str(topology.online), "shared": str(topology.online - owned), "reserved": str(reserved)}
    busy = {} if loads is None else dict.fromkeys(topology.online, loads)
    return Glance(topology, {"policy": "static", "pools": pools}, rows, busy, give_signs({}, rows))


def owners(machine: str, number: int) -> list[dict[str, object]]:
    cpus = list(preset(machine).online)[1:]
    each = max(len(cpus) // number, 1)
    return [container(f"pod-{i}", str(CPUSet.from_cpus(cpus[i * each : (i + 1) * each]))) for i in range(number)]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("machine", [*SHAPES, "sockets:2,numa:4,l3:4,cores:8,threads:2"])
def test_the_whole_screen_fits_any_window_with_the_map_and_the_list(machine: str, size: tuple[int, int]) -> None:
    width, height = size
    found = glance(machine, *owners(machine, 2), container("batch"))
    lines, _ = format_screen(found, Choices(), Look(width=width), height)
    assert len(lines) == height
    assert max(map(len, lines)) <= width
    assert lines[-1].startswith("q quit")
    assert any(line.startswith("A  pod-0") for line in lines)
    drawn = "".join(lines[2 : [line.startswith("A-Z") for line in lines].index(True)])
    assert "A" in drawn  # a sign on the map leads to the row


def test_without_colour_the_sign_on_the_map_is_the_one_in_the_list() -> None:
    found = glance("cores:4", container("db", "1"), container("web", "2-3"), loads=None)
    lines, _ = format_screen(found, Choices(), Look(), 24)
    assert "│ 0#  1A  2B  3B             │" in lines
    assert [line.split()[:2] for line in lines if line[:1] in {"A", "B"} and "A-Z" not in line] == [
        ["A", "db"],
        ["B", "web"],
    ]
    assert not any("\x1b" in line for line in lines)


def test_the_load_of_each_cpu_is_beside_it() -> None:
    found = glance("cores:4", container("db", "1"), loads=0.95)
    lines, _ = format_screen(found, Choices(), Look(), 24)
    assert any("0#█  1A█  2.█  3.█" in line for line in lines)
    assert any(line.split() == ["A", "db", "app", "1", "95%", "running"] for line in lines)
    plain, _ = format_screen(found, Choices(), Look(ascii_only=True), 24)
    assert any("0#9  1A9  2.9  3.9" in line for line in plain)


def test_the_list_scrolls_and_says_where_it_is() -> None:
    found = glance("xeon-2s-64", *owners("xeon-2s-64", 30))
    lines, choices = format_screen(found, Choices(first=1 << 30), Look(), 24)
    shown = [line for line in lines if "pod-" in line]
    assert choices.first == 30 - len(shown)
    assert any(line.endswith(f"{choices.first + 1}-30 of 30") for line in lines)
    coloured, _ = format_screen(found, Choices(first=1 << 30), Look(colour=True), 24)
    bare = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in coloured]
    assert [line for line in bare if " of 30" in line] == [line for line in lines if " of 30" in line]
    up = choices.press("up")
    assert up is not None
    assert up.first == choices.first - 1


def test_it_sorts_and_filters() -> None:
    rows = [container("a", "1"), container("b", "2-3", state="waiting"), container("c")]

    def pods(choices: Choices) -> str:
        lines, _ = format_screen(glance("cores:4", *rows), choices, Look(), 24)
        return "".join(line.split()[1] for line in lines if line[1:3] == "  " and line[3:4] in {"a", "b", "c"})

    assert pods(Choices()) == "abc"
    assert pods(Choices(sort=Sort.CPUS)) == "bac"
    assert pods(Choices(sort=Sort.STATE)) == "acb"
    assert pods(Choices(filter="exclusive running")) == "a"
    assert pods(Choices(filter="3")) == "b"
    assert pods(Choices(filter="none")) == ""
    assert pods(Choices(filter="9" * 4000)) == ""


def test_owners_without_a_sign_of_their_own_share_one() -> None:
    rows = [container(f"p{i}", str(i)) for i in range(len(SIGNS) + 2)]
    signs = give_signs({}, rows)
    assert len(set(signs.values())) == len(SIGNS) + 1
    assert not set("".join(signs.values())) & set("0123456789")


def test_names_cannot_speak_to_the_terminal() -> None:
    found = glance("cores:4", container("a\x1b[2J", "1"))
    lines, _ = format_screen(found, Choices(filter="\x1b"), Look(), 24)
    assert all(line.isprintable() for line in lines if line)
