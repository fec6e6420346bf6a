"""Laws of reading a kubelet's settings: exact durations and sums, and no surprise on any file or flag."""

from __future__ import annotations

import argparse
import json
import re
from fractions import Fraction
from math import ceil
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, TypeVar

import yaml
from hypothesis import given
from hypothesis import settings as run_with
from hypothesis import strategies as st

from pinfold.core.admission import Admitter
from pinfold.core.machine.presets import preset
from pinfold.core.pods.quantity import Quantity
from pinfold.core.policies.options import OPTIONS
from pinfold.errors import ConfigError, ParseError, PinfoldError
from pinfold.formats.kubelet.config import KubeletConfig, parse_duration, parse_key_values, parse_kubelet_config
from pinfold.formats.kubelet.flags import parse_nanoseconds, reservation
from pinfold.settings import settings
from pinfold.settings.table import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable

_Found = TypeVar("_Found")
UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
GO_DURATION = re.compile(r"[-+]?(?:0|(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)")
TEXT = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
cpuManagerPolicyOptions: &options
  full-pcpus-only: "true"
cpuManagerReconcilePeriod: 10s
reservedSystemCPUs: "0-1"
kubeReserved: {cpu: 500m, memory: 1Gi}
systemReserved: {cpu: "1"}
topologyManagerPolicy: best-effort
topologyManagerScope: pod
topologyManagerPolicyOptions: {max-allowable-numa-nodes: "16"}
cpuCFSQuota: true
cpuCFSQuotaPeriod: 100ms
featureGates: {CPUManagerPolicyAlphaOptions: true}
maxPods: 110
"""
SPARKS = [
    "",
    "\t",
    "\n",
    "---\n",
    "- ",
    ": ",
    "&a ",
    "*options",
    "!!str ",
    "{",
    "}",
    "[",
    "]",
    '"',
    "\\",
    "#",
    "|",
    "-1",
]
numbers = st.tuples(st.integers(0, 10**5), st.text("0123456789", max_size=6), st.sampled_from(sorted(UNITS)))
amounts = st.integers(0, 10**13).map(Quantity)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.sampled_from(["2", "10s"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
PARSER = argparse.ArgumentParser()
settings.add_arguments(PARSER)
LAPTOP = preset("laptop-4")
unhurried = run_with(deadline=None)  # a file or a machine takes a while on a busy host


def outcome(read: Callable[..., _Found], *args: object, **named: object) -> _Found | PinfoldError:
    """Return what was read, or our error; any other fails the test."""
    try:
        return read(*args, **named)
    except PinfoldError as error:
        return error


@given(st.sampled_from(["", "+", "-"]), st.lists(numbers, min_size=1, max_size=3))
def test_a_duration_is_the_exact_sum_of_its_parts(sign: str, parts: list[tuple[int, str, str]]) -> None:
    text = sign + "".join(f"{whole}.{fraction}{unit}" for whole, fraction, unit in parts)
    exact = sum(int(Fraction(f"{whole}.{fraction or 0}") * UNITS[unit]) for whole, fraction, unit in parts)
    assert parse_nanoseconds(text) == (-exact if sign == "-" else exact)
    assert parse_duration(text) == float(Fraction(parse_nanoseconds(text), 10**9))


@given(st.text("0123456789.hmsnuµμ+- ", max_size=12) | st.text(max_size=12))
def test_any_text_is_a_duration_exactly_where_go_says_so(text: str) -> None:
    found = outcome(parse_nanoseconds, text)
    too_long = isinstance(found, ParseError) and found.problem == "is longer than 292 years"
    assert (isinstance(found, int) or too_long) == bool(GO_DURATION.fullmatch(text))


@given(st.lists(st.none() | amounts, max_size=4))
def test_a_reservation_is_the_sum_rounded_up_once(parts: list[Quantity | None]) -> None:
    said = [part for part in parts if part is not None]
    reserved = reservation(None, *parts)
    exact = sum(Fraction(part.nano, 10**9) for part in said)
    assert reserved.milli == (ceil(exact * 1000) if said else None)
    assert reserved.count == ceil(Fraction(ceil(exact * 1000), 1000))


names = st.text("abc-XY", min_size=1, max_size=5)


@given(st.dictionaries(names, st.text("abc=. ", max_size=4).map(str.strip), max_size=4))
def test_pairs_are_read_back(pairs: dict[str, str]) -> None:
    assert parse_key_values(",".join(f"{name}={value}" for name, value in pairs.items())) == pairs


def check(text: str) -> None:
    """Read *text*; any error but ours fails the test."""
    match outcome(parse_kubelet_config, text, source="f"):
        case PinfoldError() as error:
            assert str(error).startswith("f: ")
            assert str(error).isprintable()
        case KubeletConfig() as found:
            assert all(warning.isprintable() for warning in found.warnings)
            assert found.reconcile_period > 0
            assert 1000 <= found.cfs_period <= 1_000_000
            assert isinstance(outcome(found.config.build, LAPTOP), Admitter | ConfigError)


@unhurried
@given(st.integers(0, len(TEXT)), st.integers(0, 12), st.sampled_from(SPARKS) | st.text(max_size=8))
def test_a_file_with_a_piece_replaced_gives_a_configuration_or_our_error(at: int, length: int, piece: str) -> None:
    check(TEXT[:at] + piece + TEXT[at + length :])


@unhurried
@given(st.lists(st.sampled_from(TEXT.splitlines(keepends=True) + SPARKS), max_size=30).map("".join))
def test_lines_in_any_order_give_a_configuration_or_our_error(text: str) -> None:
    check(TEXT[: TEXT.index("cpuManager")] + text)


@unhurried
@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_text_gives_a_configuration_or_our_error(text: str) -> None:
    check(text)


@unhurried
@given(st.sampled_from(sorted(yaml.safe_load(TEXT))), values)
def test_a_field_of_any_type_gives_a_configuration_or_our_error(name: str, value: object) -> None:
    document = {**yaml.safe_load(TEXT), name: value}
    check(json.dumps(document))
    check(yaml.safe_dump(document, allow_unicode=True))


@unhurried
@given(st.integers(0, len(TEXT)), st.integers(0, 12), st.binary(max_size=8))
def test_a_damaged_file_on_disk_gives_settings_or_our_error(at: int, length: int, piece: bytes) -> None:
    data = TEXT.encode()
    with NamedTemporaryFile() as file:
        file.write(data[:at] + piece + data[at + length :])
        file.flush()
        arguments = PARSER.parse_args(["--config", file.name])
        found = outcome(settings.read_settings, arguments, LAPTOP, environment={}, uid=0)
        assert isinstance(found, settings.Settings | ConfigError)


words = st.sampled_from(["", "0", "0-1", "9", "1s", "true", "cpu=1", "cpu=500m", "static", "none", "pod", "x=y"])
option_lists = st.dictionaries(st.sampled_from(sorted(OPTIONS)), st.sampled_from(["true", "false"]), max_size=3).map(
    lambda options: ",".join(f"{name}={value}" for name, value in options.items())
)
flags = st.tuples(
    st.sampled_from([flag for setting in SETTINGS.values() for flag in setting.flags if flag != "--config"]),
    words | option_lists | st.text(max_size=8).filter(lambda text: "\0" not in text),
)


@unhurried
@given(st.lists(flags, max_size=6), st.sampled_from([0, 1000]), st.sampled_from(["laptop-4", "cores:1", "threads:2"]))
def test_any_flags_give_settings_or_our_error(given_flags: list[tuple[str, str]], uid: int, machine: str) -> None:
    arguments = PARSER.parse_args([f"{flag}={text}" for flag, text in given_flags])
    found = outcome(settings.read_settings, arguments, preset(machine), environment={"HOME": "/home/me"}, uid=uid)
    assert isinstance(found, settings.Settings | ConfigError)
    if isinstance(found, settings.Settings):
        assert found.config.build(preset(machine))
        assert set(found.sources) == set(SETTINGS)
