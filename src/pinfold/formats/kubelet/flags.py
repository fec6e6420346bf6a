"""The text forms of a kubelet's settings, the same in its flags and its file: durations, pairs, amounts, names.

Each `parse_` takes the text of one setting; the ParseError says what is allowed. Does not know the text's source.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pinfold.core.config import NOT_SAID, Reservation
from pinfold.core.gosyntax import go_bool
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.quantity import Quantity
from pinfold.core.policies.options import OPTION_GATES, POD_LEVEL, RESIZE, Maturity, parse_options
from pinfold.core.topologymanager.options import read_options
from pinfold.errors import ParseError, excerpt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pinfold.errors import Problem

_LONGEST: Final = 64
_LONGEST_PAIRS: Final = 1 << 16
_MAX_NANO: Final = 2**63 - 1
_SECOND: Final = 10**9
_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,  # with the micro sign
    "\u03bcs": 10**3,  # with the Greek letter
    "ms": 10**6,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
}
_KNOWN_UNITS: Final = "known: ns, us, ms, s, m, h"
_PART: Final = re.compile(r"(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")

_LEAST_PERIOD: Final = 10**7
_LEAST_CFS, _MOST_CFS = 10**6, _SECOND
_RESERVABLE: Final = ("cpu", "memory", "ephemeral-storage", "pid")
_GATE: Final = re.compile(r"[A-Za-z0-9]{1,100}")
_ALL_OPEN: Final = {gate.name: True for gate in OPTION_GATES.values()}
_BY_MATURITY: Final = {
    "AllAlpha": (OPTION_GATES[Maturity.ALPHA].name, POD_LEVEL.name, RESIZE.name),
    "AllBeta": (OPTION_GATES[Maturity.BETA].name,),
}


def parse_duration(text: str) -> float:
    """Return the seconds of a duration as Go writes it.

    >>> [parse_duration(text) for text in ("10s", "1m30s", "500ms", "1.5h", "0", "-1s")]
    [10.0, 90.0, 0.5, 5400.0, 0.0, -1.0]
    >>> parse_duration("10")
    Traceback (most recent call last):
    pinfold.errors.ParseError: duration: has no unit (known: ns, us, ms, s, m, h) at column 3 of "10"
    """
    return parse_nanoseconds(text) / _SECOND


def parse_nanoseconds(text: str) -> int:
    """Return the nanoseconds of a duration as Go writes it, exactly; each number is cut to nanoseconds."""
    if len(text) > _LONGEST:
        raise _no_duration(f"is longer than {_LONGEST} characters", text, 0)
    start = at = int(text.startswith(("+", "-")))
    if text[start:] == "0":
        return 0
    nano = 0
    while at == start or at < len(text):
        more, at = _part(text, at)
        nano += more
    if nano > _MAX_NANO:
        raise _no_duration("is longer than 292 years", text, start)
    return -nano if text.startswith("-") else nano


def parse_key_values(text: str) -> dict[str, str]:
    """Return the pairs of a flag such as --feature-gates; a repeated name has its last value, as in a kubelet.

    >>> parse_key_values("full-pcpus-only=true, align-by-socket=false")
    {'full-pcpus-only': 'true', 'align-by-socket': 'false'}
    >>> parse_key_values("full-pcpus-only")
    Traceback (most recent call last):
    pinfold.errors.ParseError: expected NAME=VALUE, or several joined by commas, at column 1 of "full-pcpus-only"
    """
    if len(text) > _LONGEST_PAIRS:
        raise ParseError(f"text of {len(text):,} characters; {_LONGEST_PAIRS:,} are allowed")
    pairs = {}
    at = 0
    for pair in text.split(","):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if pair and not (name and equals):
            raise ParseError("expected NAME=VALUE, or several joined by commas,", text=text, at=at)
        if pair:
            pairs[name] = value
        at += len(pair) + 1
    return pairs


def parse_choice(text: str, allowed: Iterable[str]) -> str:
    """Return *text*, which must be one of the names *allowed*.

    >>> parse_choice("pods", ("container", "pod"))
    Traceback (most recent call last):
    pinfold.errors.ParseError: "pods" is unknown; allowed: container, pod
    """
    if text not in allowed:
        raise ParseError(f"{excerpt(text)} is unknown; allowed: {', '.join(allowed)}")
    return text


def parse_bool(text: str) -> bool:
    """Return *text* as a bool, as Go reads it."""
    try:
        return go_bool(text)
    except ValueError:
        raise ParseError(f"{excerpt(text)} is unknown; allowed: true, false") from None


def parse_cpus(text: str) -> CPUSet | None:
    """Return the CPUs of a list; None if it is empty, which means not set."""
    try:
        return CPUSet.parse(text) or None
    except ParseError as error:
        raise ParseError(f"{error}; a list such as 0-1,8 is expected") from None


def parse_amount(text: str) -> Quantity:
    """Return an amount of CPU."""
    try:
        return Quantity.parse(text)
    except ParseError as error:
        raise ParseError(f"{excerpt(text, error.at)} {error.problem}; 0 or more is expected, e.g. 500m or 2") from None


def parse_reserved(text: str) -> Quantity | None:
    """Return the CPUs in a flag such as "cpu=500m,memory=1Gi"; None if there are none."""
    pairs = parse_key_values(text)
    for name in pairs:
        check_reservable(name)
    return parse_amount(pairs["cpu"]) if "cpu" in pairs else None


def check_reservable(name: str) -> None:
    """Raise unless *name* is a resource that a kubelet reserves."""
    if name not in _RESERVABLE:
        raise ParseError(f"{excerpt(name)} cannot be reserved; allowed: {', '.join(_RESERVABLE)}")


def parse_gates(text: str) -> dict[str, bool]:
    """Return the feature gates in a flag such as "CPUManagerPolicyAlphaOptions=true"."""
    pairs = parse_key_values(text)
    for name in pairs:
        check_gate(name)
    return {name: parse_bool(value) for name, value in pairs.items()}


def check_gate(name: str) -> None:
    """Raise unless *name* could be a feature gate: a kubelet has many, only some about CPUs."""
    if not _GATE.fullmatch(name):
        raise ParseError(f"{excerpt(name)} is not a feature gate; letters and digits are expected")


def parse_reconcile_period(text: str) -> float:
    """Return the seconds from one reconcile to the next."""
    if parse_nanoseconds(text) < _LEAST_PERIOD:  # differs: a kubelet accepts less, and would then only reconcile
        raise ParseError(f"{excerpt(text)} is too short; 10ms or more is expected")
    return parse_duration(text)


def parse_cfs_period(text: str) -> int:
    """Return the period of CPU quotas in microseconds."""
    nano = parse_nanoseconds(text)
    # differs: for values other than 100ms a kubelet needs the feature gate CustomCPUCFSQuotaPeriod.
    if not _LEAST_CFS <= nano <= _MOST_CFS:
        raise ParseError(f"{excerpt(text)} is not within 1ms and 1s")
    return nano // 1000


def check_option(name: str, text: str) -> list[Problem]:
    """Return what is wrong with one option of the CPU Manager, without its gate and the other options."""
    return parse_options({_cut(name): _cut(text)}, _ALL_OPEN)[1]


def check_topology_option(name: str, text: str) -> list[Problem]:
    """Return what is wrong with one option of the Topology Manager."""
    return read_options({_cut(name): _cut(text)})[1]


def reservation(cpus: CPUSet | None, *amounts: Quantity | None) -> Reservation:
    """Return the reservation: the listed CPUs, or else the exact sum of the amounts.

    >>> reservation(None, Quantity.parse("0.0005"), Quantity.parse("0.0005")).milli
    1
    """
    if cpus is not None:
        return Reservation.of(cpus)
    said = [amount.nano for amount in amounts if amount is not None]
    return Reservation(Quantity(sum(said)).milli) if said else NOT_SAID


def spell_out_gates(gates: Mapping[str, bool]) -> dict[str, bool]:
    """Return *gates* with AllAlpha and AllBeta applied to pinfold's gates that are not named.

    >>> spell_out_gates({"AllBeta": False})
    {'CPUManagerPolicyBetaOptions': False, 'AllBeta': False}
    """
    implied = {name: gates[every] for every, names in _BY_MATURITY.items() if every in gates for name in names}
    return {**implied, **gates}


def _part(text: str, at: int) -> tuple[int, int]:
    """Return the nanoseconds of the number and unit that start at *at*, and where they end."""
    match = _PART.match(text, at)
    if match is None:
        raise _no_duration("has no digits", text, at)
    whole, fraction, unit = match.groups(default="")
    if not unit:
        raise _no_duration(f"has no unit ({_KNOWN_UNITS})", text, match.end())
    if unit not in _UNITS:
        raise _no_duration(f"has an unknown unit ({_KNOWN_UNITS})", text, match.start(3))
    nano = int(whole or "0") * _UNITS[unit] + int(fraction or "0") * _UNITS[unit] // 10 ** len(fraction)
    return nano, match.end()


def _no_duration(problem: str, text: str, at: int) -> ParseError:
    return ParseError(problem, text=text, at=at, where="duration")


def _cut(text: str) -> str:
    """Return *text*, cut if it is too long, so that an error stays readable."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
