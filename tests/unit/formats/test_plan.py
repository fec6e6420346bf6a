"""A plan as table, data, picture and page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
import yaml

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.pods.pod import Container, Pod, PodUID
from pinfold.core.state import State
from pinfold.formats.kubelet.config import parse_kubelet_config
from pinfold.planning.compare import Compared, Variant, combinations, compare, needed_gates, ranked
from pinfold.planning.orders import OrderTally
from pinfold.planning.plan import Running, make_plan
from pinfold.planning.replay import Event, replay
from pinfold.render.machine.canvas import Look
from pinfold.render.machine.svg import RESERVED
from pinfold.render.plan.compare import comparison_data, format_comparison, format_recommendation
from pinfold.render.plan.data import format_json, format_yaml, plan_data
from pinfold.render.plan.html import format_html
from pinfold.render.plan.orders import format_orders, orders_data
from pinfold.render.plan.replay import format_replay, replay_data
from pinfold.render.plan.svg import OTHERS, format_plan_svg, owners
from pinfold.render.plan.table import format_plan
from pinfold.render.plan.view import plan as plan_view
from tests.property.strategies import guaranteed, pinned, pod_of

if TYPE_CHECKING:
    from pinfold.planning.plan import Plan

CACHES = preset("sockets:1,l3:2,cores:4,threads:2")
CONFIG = Config("static", reserved=Reservation.of(CPUSet.of(0, 8)))
SMT = Config("static", {"full-pcpus-only": "true"}, CONFIG.reserved)
PODS = [
    pod_of(pinned(4), uid="db"),
    pod_of(pinned(4, "big"), Container("small", guaranteed(500)), uid="web"),
    pod_of(pinned(2, "first"), pinned(20, "second"), uid="huge"),
]
HOSTILE = '"><script>alert(1)</script>&\x1b[31m\N{RIGHT-TO-LEFT OVERRIDE}'


def plan(*pods: Pod, config: Config = CONFIG) -> Plan:
    return make_plan(pods or PODS, CACHES, config)


def width(text: str) -> int:
    return max(len(line) for line in text.splitlines())


def test_the_table_has_every_container_and_what_became_of_it() -> None:
    assert format_plan(plan(), title="test") == (
        "test: 1 socket · 1 NUMA node · 2 L3 · 8 cores · 16 CPUs, SMT2\n"
        "policy static · no options · topology manager none\n"
        "\n"
        "CONTAINER    QOS         CPUS         CORES  L3    NUMA  SOCKET\n"
        "db/app       Guaranteed  1-2,9-10     2      0     0     0\n"
        "web/big      Guaranteed  3-4,11-12    2      0-1*  0     0\n"
        "web/small    Guaranteed  shared\n"
        "huge/first   Guaranteed  pod refused\n"
        "huge/second  Guaranteed  refused\n"
        "  20 CPUs are not available: 4 of 16 can be exclusive (CPUs 6-7,14-15; CPUs 1-5,\n"
        "  9-13 are taken; CPUs 0,8 are reserved). Would fit with 4 CPUs.\n"
        "  [UnexpectedAdmissionError: not enough cpus available to satisfy request:\n"
        "  requested=20, available=4]\n"
        "\n"
        "POOL        BEFORE    AFTER        CPUS\n"
        "shared      0-15      0,5-8,13-15     8\n"
        "reserved    0,8       0,8             2\n"
        "assignable  1-7,9-15  5-7,13-15       6\n"
        "exclusive   -         1-4,9-12        8\n"
        "\n"
        "3 pods: 2 fit, 1 refused\n"
        "* 1 container spread over more groups than necessary\n"
        "6 CPUs can still be given: at most 6 in one L3, 6 in one NUMA node; 67%\n"
        "  fragmented"
    )


@pytest.mark.parametrize("columns", [45, 60, 80, 140])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    long = [Pod(PodUID(str(i)), f"{'a-long-name-' * 8}{i}", containers=(pinned(i + 1),)) for i in range(12)]
    machine = preset("epyc-9654-2s")
    config = Config(
        "static",
        {"distribute-cpus-across-cores": "true"},
        CONFIG.reserved,
        gates={"CPUManagerPolicyAlphaOptions": True},
    )
    text = format_plan(make_plan([*long, pod_of(pinned(380))], machine, config), Look(width=columns), "a machine")
    assert width(text) <= columns
    assert "a-long" in text


def test_colours_are_only_there_if_asked_for() -> None:
    assert "\x1b[" not in format_plan(plan())
    coloured = format_plan(plan(), Look(colour=True))
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == format_plan(plan())


def test_ascii_terminals_get_ascii() -> None:
    assert format_plan(plan(pod_of(pinned(2), uid="x" * 90)), Look(ascii_only=True)).isascii()


def test_names_from_a_state_file_cannot_speak_to_the_terminal() -> None:
    pod = Pod(PodUID("1"), HOSTILE, containers=(Container(HOSTILE, guaranteed(2000)),))
    assert all(sign.isprintable() or sign == "\n" for sign in format_plan(plan(pod)))


def test_pods_that_were_there_are_counted_apart() -> None:
    old = pod_of(pinned(2), uid="old")
    state = State(CACHES.online - CPUSet.of(1, 9), {old.uid: {"app": CPUSet.of(1, 9)}})
    text = format_plan(make_plan(PODS, CACHES, CONFIG, Running(state, [old])))
    assert "4 pods: 1 already running, 2 fit, 1 refused" in text


def test_a_pod_refused_as_a_whole_is_explained_once() -> None:
    config = Config("static", {}, CONFIG.reserved, "single-numa-node", topology_scope="pod")
    text = format_plan(
        make_plan([pod_of(pinned(4, "a"), pinned(4, "b"))], preset("sockets:2,cores:3,threads:2"), config)
    )
    assert text.count("TopologyAffinityError") == 1


def test_the_data_is_what_other_programs_expect() -> None:
    data = json.loads(format_json(plan_data(plan())))
    keys = ("pod", "container", "qos", "exclusive", "cpus", "reason", "message")
    rows = [tuple(row[key] for key in keys) for row in data["placements"]]
    cause = "not enough cpus available to satisfy request: requested=20, available=4"
    message = f"Allocate failed due to {cause}, which is unexpected"
    assert rows == [
        ("db", "app", "Guaranteed", True, "1-2,9-10", None, None),
        ("web", "big", "Guaranteed", True, "3-4,11-12", None, None),
        ("web", "small", "Guaranteed", False, "0,5-8,13-15", None, None),
        ("huge", "first", "Guaranteed", False, None, "UnexpectedAdmissionError", message),
        ("huge", "second", "Guaranteed", False, None, "UnexpectedAdmissionError", message),
    ]
    assert (data["pools"]["shared"], data["pools"]["reserved"]) == ("0,5-8,13-15", "0,8")
    assert [row["advice"] is None for row in data["placements"]] == [True, True, True, True, False]
    assert data["placements"][1]["alignment"]["l3"] == {"ids": [0, 1], "fewest": 1}
    assert data["summary"] == {"pods": 3, "refused": 1, "containers": 5, "misaligned": 1}


def test_yaml_says_what_json_says() -> None:
    data = plan_data(plan(), "m")
    assert yaml.safe_load(format_yaml(data)) == json.loads(format_json(data))


def test_the_picture_colours_cpus_by_owner() -> None:
    assert owners(plan()) == {
        **dict.fromkeys((0, 8), RESERVED),
        **dict.fromkeys((1, 2, 9, 10), "db/app"),
        **dict.fromkeys((3, 4, 11, 12), "web/big"),
    }
    svg = format_plan_svg(plan(), "title")
    ET.fromstring(svg)  # noqa: S314 - our own text
    assert "db/app" in svg


def test_many_owners_are_named_by_pod_then_by_workload_then_only_the_largest() -> None:
    machine = preset("epyc-9654-2s")
    two = [pod_of(pinned(1, "a"), pinned(1, "b"), uid=f"p{i}") for i in range(12)]
    assert set(owners(make_plan(two, machine, CONFIG)).values()) == {RESERVED, *(f"p{i}" for i in range(12))}
    replicas = [pod_of(pinned(2), uid=f"web-{i}") for i in range(90)]
    assert set(owners(make_plan(replicas, machine, CONFIG)).values()) == {RESERVED, "web"}
    many = [pod_of(pinned(1 + (i < 3)), uid=f"p{i}x") for i in range(60)]
    named = set(owners(make_plan(many, machine, CONFIG)).values())
    assert {"p0x", "p1x", "p2x", OTHERS, RESERVED} <= named
    assert len(named) == 17


def test_long_names_of_owners_are_cut_and_stay_apart() -> None:
    long = [pod_of(pinned(1), uid=f"{'a' * 100}{i}{'b' * 100}") for i in range(3)]
    found = make_plan(long, CACHES, CONFIG)
    assert len(set(owners(found).values())) == 4
    ET.fromstring(format_plan_svg(found))  # noqa: S314 - our own text


class Page(HTMLParser):
    """Collects what a page would fetch or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.active: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.active += [
            (name, value)
            for name, value in attrs
            if name.startswith("on") or name in {"src", "href", "action", "data", "srcset", "xlink:href"}
        ]


def test_the_page_fetches_and_runs_nothing() -> None:
    text = format_html(plan(), "title")
    page = Page(text)
    assert not page.active
    assert not {"script", "link", "iframe", "img", "object", "embed", "form", "base"} & set(page.tags)
    assert "url(" not in text
    assert "@import" not in text
    assert re.findall(r"https?://[^\"<> ]*", text) == ["http://www.w3.org/2000/svg"]
    assert "default-src 'none'" in text


def test_hostile_names_are_escaped_on_the_page() -> None:
    pod = Pod(
        PodUID("1"), HOSTILE, containers=(Container(HOSTILE, guaranteed(2000)), Container("x", guaranteed(40_000)))
    )
    fits = Pod(PodUID("2"), HOSTILE, containers=(Container(HOSTILE, guaranteed(2000)),))
    text = format_html(plan(pod, fits), HOSTILE)
    assert "script" not in Page(text).tags
    assert "\x1b" not in text
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in text
    assert not Page(text).active


def test_the_page_has_the_map_the_steps_and_the_refusal() -> None:
    text = format_html(plan())
    assert text.count("<svg") == 1
    assert "took" in text
    assert "Would fit with 4 CPUs." in text
    assert "its pod is refused" in text


def test_a_view_prints_itself_and_shows_itself_in_a_notebook() -> None:
    view = plan_view(PODS, CACHES, CONFIG)
    assert str(view) == format_plan(view)
    assert view._repr_svg_().startswith("<svg")
    assert view.data() == plan_data(view)


def rows(*configs: Config) -> list[Compared]:
    return list(compare([Variant(f"v{i}", CACHES, config) for i, config in enumerate(configs)], PODS))


def test_a_comparison_shows_what_differs_side_by_side() -> None:
    uncore = Config("static", {"prefer-align-cpus-by-uncorecache": "true"}, CONFIG.reserved)
    text = format_comparison(rows(CONFIG, uncore), Look())
    assert re.search(r"A +v0 +2 +1 +1 ", text)
    assert re.search(r"B +v1 +2 +1 +0 ", text)
    assert re.search(r"web/big +spread: 2 L3 +1 L3", text)
    assert "same result everywhere: 4 containers" in text


def test_a_comparison_without_a_difference_says_so() -> None:
    assert "All containers have the same result." in format_comparison(rows(CONFIG, CONFIG), Look())


def test_a_variant_that_cannot_start_is_told_and_the_others_are_compared() -> None:
    broken = rows(CONFIG)[0]._replace(plan=None, problem="no such State")
    text = format_comparison([broken, *rows(CONFIG)], Look())
    assert "A: no such State" in text
    assert comparison_data([broken])["variants"] == [{"variant": "v0", "problem": "no such State"}]


def test_a_recommendation_says_what_is_better_and_how_to_get_it() -> None:
    found = list(compare(combinations(CONFIG, CACHES), PODS))
    text = format_recommendation(ranked(found, CONFIG), found[0], Look())
    assert "best: prefer-align-cpus-by-uncorecache" in text
    assert "why: spread containers: 0 instead of 1" in text
    assert "set: --policy-options prefer-align-cpus-by-uncorecache=true" in text
    assert "1 pod would still be refused (huge)" in text
    assert width(text) <= 80


def test_a_recommendation_ends_with_a_file_for_the_kubelet_that_gives_the_same_settings() -> None:
    found = list(compare(combinations(CONFIG, CACHES), PODS))
    best = ranked(found, CONFIG)
    text = format_recommendation(best, found[0], Look())
    snippet = text[text.index("apiVersion: kubelet.config.k8s.io/v1beta1") :]
    read = parse_kubelet_config(snippet, source="snippet").config
    wanted = best[0].variant.config
    assert (read.policy, read.options) == (wanted.policy, wanted.options)
    assert best[0].plan is not None
    assert read.reserved.cpus == best[0].plan.reserved
    assert needed_gates(wanted) <= tuple(name for name, on in read.gates.items() if on)


def test_a_recommendation_can_be_to_stay() -> None:
    found = list(compare(combinations(CONFIG, CACHES), []))
    assert "best: no options (the current settings)" in format_recommendation(ranked(found, CONFIG), found[0], Look())


def test_orders_are_shown_worst_first_with_a_histogram() -> None:
    found = OrderTally(10, (0, 3, 9), (1, 0, 0), (1, 6, 3, 0))
    text = format_orders(found, PODS, 7, Look())
    assert text.index("huge") < text.index("web") < text.index("db ")
    assert re.search(r"huge +90.0% +0.0% +█+", text)
    assert re.search(r"1 +6 +60.0% +█+", text)
    assert "seed 7" in text
    assert orders_data(found, PODS, 7)["refused_at_once"] == [1, 6, 3, 0]
    assert format_orders(found, PODS, 7, Look(ascii_only=True)).isascii()


def test_orders_in_which_all_is_well_say_so() -> None:
    assert "In every order, all pods fit" in format_orders(OrderTally(10, (0,), (0,), (10, 0)), PODS[:1], 1, Look())


def test_histograms_of_many_pods_stay_short() -> None:
    many = [pod_of(pinned(1), uid=f"p{i}") for i in range(99)]
    text = format_orders(OrderTally(100, (1,) * 99, (0,) * 99, (1,) * 100), many, 1, Look())
    assert "19+" in text
    assert len(text.splitlines()) < 75


def test_a_replay_tells_who_was_refused_when_and_how_full_it_was() -> None:
    events = [Event(3600.0 * i, pod) for i, pod in enumerate(PODS)]
    found = replay(events, CACHES, CONFIG)
    text = format_replay(found, Look(), "m")
    assert re.search(r"2h00m +huge +UnexpectedAdmissionError", text)
    assert "fullest after 1h00m: 8 exclusive CPUs, 2 pods" in text
    assert width(text) <= 80
    data = replay_data(found)
    assert [row["time"] for row in json.loads(json.dumps(data))["placements"]] == [0, 3600, 3600, 7200, 7200]


def test_an_empty_replay_is_shown() -> None:
    assert "0 pods came: all fit" in format_replay(replay([], CACHES, CONFIG), Look())
