import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.layout import layout
from pinfold.core.machine.presets import preset, preset_names
from pinfold.core.machine.topology import Topology
from pinfold.render.machine.arrange import Fit, Frame, Measures, Placed, Rect, Size, arrange
from pinfold.render.machine.svg import RESERVED, format_svg

SVG = "{http://www.w3.org/2000/svg}"
NAMES = [*preset_names(), "cores:1,threads:2", "sockets:2,numa:4,l3:8,cores:4,threads:2", "sockets:1,l3:0,cores:2"]
IDS = st.none() | st.integers(0, 3)
ROWS = st.lists(st.tuples(IDS, IDS, IDS, IDS), min_size=1, max_size=24)


def parse(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - our own text


def numbers(root: ET.Element) -> list[int]:
    (cpus,) = (group for group in root.iter(f"{SVG}g") if group.get("class") == "cpus")
    return sorted(int(text.text or "") for text in cpus.iter(f"{SVG}text"))


@pytest.mark.parametrize("name", NAMES)
def test_every_cpu_is_drawn_once(name: str) -> None:
    topology = preset(name)
    assert numbers(parse(format_svg(topology))) == list(topology.online)


@pytest.mark.parametrize("name", NAMES)
def test_picture_is_16_to_9(name: str) -> None:
    x, y, w, h = map(float, (parse(format_svg(preset(name), title=name)).get("viewBox") or "").split())
    assert (x, y) == (0, 0)
    assert w / h == pytest.approx(16 / 9, rel=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_boxes_stay_on_the_page(name: str) -> None:
    root = parse(format_svg(preset(name), title=name))
    (group,) = (g for g in root.iter(f"{SVG}g") if g.get("transform"))
    match = re.fullmatch(r"translate\((\S+) (\S+)\) scale\((\S+)\)", group.get("transform") or "")
    assert match is not None
    left, top, scale = map(float, match.groups())
    rects = [[float(rect.get(a) or 0) for a in ("x", "y", "width", "height")] for rect in group.iter(f"{SVG}rect")]
    assert left > 0
    assert left + scale * max(x + w for x, _, w, _ in rects) < float(root.get("width") or 0)
    assert top + scale * max(y + h for _, y, _, h in rects) < float(root.get("height") or 0)


@settings(deadline=None)
@given(ROWS)
def test_any_odd_machine_is_drawn_whole(rows: list[tuple[int | None, ...]]) -> None:
    topology = Topology.from_rows([(cpu, *row) for cpu, row in enumerate(rows)])
    assert numbers(parse(format_svg(topology))) == list(topology.online)


def overlap(a: Rect, b: Rect) -> bool:
    return a.x < b.x + b.w and b.x < a.x + a.w and a.y < b.y + b.h and b.y < a.y + a.h


def assert_nested(placed: Placed) -> None:
    inner = [*(box.rect for box in placed.boxes), *placed.cells]
    x, y, w, h = placed.rect
    assert all(x < r.x and y < r.y and r.x + r.w < x + w and r.y + r.h < y + h for r in inner)
    assert not any(overlap(a, b) for i, a in enumerate(inner) for b in inner[:i])
    for box in placed.boxes:
        assert_nested(box)


@settings(deadline=None)
@given(ROWS, st.booleans())
def test_boxes_lie_inside_their_box_and_beside_each_other(rows: list[tuple[int | None, ...]], merge: bool) -> None:  # noqa: FBT001 - hypothesis passes it
    machine = layout(Topology.from_rows([(cpu, *row) for cpu, row in enumerate(rows)]), merge=merge)
    frames = tuple(Frame(3, 9, 3, 3, Size(2, 2), least=20) for _ in machine.levels)

    def cost(fit: Fit) -> tuple[float, ...]:
        return (max(fit.size.w, 2 * fit.size.h),)

    picture = arrange(machine, Measures(frames, Size(5, 4), Size(1, 1)), cost)
    for placed in picture.boxes:
        assert_nested(placed)
    assert picture.size.w == max(placed.rect.x + placed.rect.w for placed in picture.boxes)
    assert picture.size.h == max(placed.rect.y + placed.rect.h for placed in picture.boxes)


def test_title_is_escaped_and_the_picture_is_ascii() -> None:
    text = format_svg(preset("cores:2"), title='<b>&"é\x00\udc80')
    assert text.isascii()
    title = parse(text).find(f"{SVG}title")
    assert title is not None
    assert (title.text or "").startswith('<b>&"é??: 1 socket · ')


def test_nothing_is_fetched_or_run() -> None:
    text = format_svg(preset("epyc-7303-2s"), title="x", owners={0: "web"})
    links = re.findall(r"https?://[^\"]*", text)
    assert links == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"script|href|url\(|@import|onload", text)


def test_light_and_dark_are_both_there() -> None:
    text = format_svg(preset("cores:2"))
    assert text.count("@media (prefers-color-scheme:dark)") == 1
    light, dark = text.split("@media")
    shapes, _, light = light.partition(".bg{")
    assert ".hatch{fill:none" in shapes
    assert re.findall(r"\.(\w+){(?:fill|stroke)", f".bg{{{light}") == re.findall(r"\.(\w+){(?:fill|stroke)", dark)


def test_reserved_cpus_are_hatched_also_in_the_legend() -> None:
    text = format_svg(preset("cores:4"), owners={0: RESERVED, 1: "web"})
    assert text.count('<rect class="reserved"') == text.count('<path class="hatch"') == 2
    assert 'class="owner0"' in text
    assert 'class="hatch"' not in format_svg(preset("cores:4"), owners={1: "web"})


def test_owners_get_a_colour_and_a_place_in_the_legend() -> None:
    text = format_svg(preset("cores:4"), owners={0: "web", 1: "web", 2: "<db>"})
    assert text.count('class="owner1"') == 3
    assert text.count('class="owner0"') == 2
    assert ">&lt;db&gt;</text>" in text
    assert ".owner1{fill" in text


def test_many_owners_share_the_colours_there_are() -> None:
    topology = preset("cores:40")
    root = parse(format_svg(topology, owners={cpu: f"pod-{cpu:02}" for cpu in topology.online}))
    used = {rect.get("class") for rect in root.iter(f"{SVG}rect")}
    assert {"owner0", "owner15"} < used
    assert "owner16" not in used


def test_legend_appears_only_when_needed() -> None:
    plain = format_svg(preset("cores:4"))
    marked = format_svg(Topology(preset("cores:4").cpus, offline=CPUSet.of(4, 5), isolated=CPUSet.of(1)))
    assert "Isolated" not in plain
    assert "Offline" not in plain
    assert marked.count('class="cpu isolated"') == 1
    assert ">Isolated: 1<" in marked
    assert ">Offline: 4-5 (location unknown)<" in marked


def test_machine_without_cpus_is_a_page_with_a_title() -> None:
    assert numbers(parse(format_svg(Topology(())))) == []
