"""The page of benchmarks: plots that are readable, and a page that names machine, date and every figure."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks._page import _TABLE, by_size, page
from benchmarks._plot import Series, duration, plot
from benchmarks.decide import REFERENCE

ONE = {"kind": "simulated", "floor": 2.0, "one": 3.0, "beside": 4.0, "answered": 3.5}
ADMISSIONS = ONE | {"in_turn": 9.0, "at_once": 8.0, "answered_in_turn": 10.0, "answered_at_once": 40.0}
CLIENTS = {"cpu": 1.2, "in_file": None}
OWN = {"name": "own, 300 share", "p50_ms": 15.0, "p99_ms": 18.0, "cpu_ms": 43.0, "floor_ms": 5.0, "plain_ms": 14.0}
SHARE = {"name": "share, 300 share", "p50_ms": 0.4, "p99_ms": 0.9, "cpu_ms": 1.0}
START = {"kind": "nri", "beside": 1000, "ready_ms": 700.0, "cpu_ms": 600.0}
REST = {"check_ms": 3.0, "worst_ms": 5.0, "rest_percent": 0.04}
DAEMON: dict[str, list[dict[str, Any]]] = {  # Any: as in the JSON of benchmarks
    "admissions": [ADMISSIONS | CLIENTS],
    "nri": [OWN, SHARE],
    "ready": [START | REST],
}


@pytest.mark.parametrize(
    ("ns", "text"), [(1, "1 ns"), (3_400, "3.4 µs"), (25e6, "25 ms"), (1.8e9, "1.8 s"), (0.5, "0.5 ns")]
)
def test_a_time_has_its_unit(ns: float, text: str) -> None:
    assert duration(ns) == text


def test_a_plot_is_valid_light_and_dark_and_as_wide_as_a_phone() -> None:
    lines = [Series("a & b", [(16, 5_000), (512, 8_000)]), Series("other", [(16, 1e5), (512, 1e7)])]
    text = plot("Cost", "CPUs", lines)
    root = ET.fromstring(text)  # noqa: S314 - our own
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    assert width <= 400
    assert "prefers-color-scheme:dark" in text
    circles = [each.attrib for each in root.iter() if each.tag.endswith("circle")]
    assert len(circles) == 4
    assert all(0 < float(each["cx"]) < width and 0 < float(each["cy"]) < height for each in circles)
    assert float(circles[0]["cy"]) > float(circles[2]["cy"])  # less time is lower


def test_the_page_has_all_scenarios_and_says_when_and_where() -> None:
    reference = json.loads(REFERENCE.read_text())
    decided = {
        name: {"name": name, "ns": 9_000.0, "reference_ns": ns, "ratio": ns / 9_000} for name, ns in reference.items()
    }
    ours, theirs = by_size(decided, "default", "half/req=2")
    assert [size for size, _ in ours.points] == [size for size, _ in theirs.points] == [16, 64, 128, 256, 512]
    plans = [{"name": "fill/cpus=64/default", "per_second": 60_000.0}]
    fleets = [{"nodes": 5, "containers": 9, "seconds": 1.0, "cpu_seconds": 1.5, "largest_process_mib": 30.0}]
    commands = [{"name": "cli/plan", "cpu_ms": 170.0}]
    others: dict[str, list[dict[str, Any]]] = {"plan": plans, "fleet": fleets, "cli": commands, **DAEMON}
    text = "\n".join(page(["Measured on a day"], decided, others))
    assert all(f"`{name}`" in text for name in (*_TABLE, "fill/cpus=64/default", "plan"))
    assert "- Measured on a day." in text
    assert "| simulated | 2.0 | 3.0 | 1.50 | 4.0 | 9.0 | 8.0 |" in text
    assert "| simulated | 3.5 | 10.0 | 40.0 |  | 1.20 |" in text
    assert (
        "| own, 300 share | 15.00 | 18.00 | 43.00 | 5.00 | 14.00 |\n| share, 300 share | 0.40 | 0.90 | 1.00 |  |  |"
        in text
    )
    assert "| nri, 1,000 | 700 | 600 | 3.0 | 5.0 | 0.040 % |" in text
