"""Kubernetes quantities ("250m", "2", "1e3", "128Mi") as exact values; no floating point anywhere.

Does not know what is measured: callers read CPUs as whole milli CPUs and memory as whole bytes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple, Self

from pinfold.errors import ParseError

MAX_VALUE: Final = 2**63 - 1
_MAX_TEXT: Final = 64
_ONE: Final = 10**9
_MILLI: Final = 10**6
_MAX_NANO: Final = MAX_VALUE * _ONE
_DECIMAL: Final = {unit: 1000**step for step, unit in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"))}
_BINARY: Final = {f"{unit}i": 1024**step * _ONE for step, unit in enumerate("KMGTPE", start=1)}
_UNITS: Final = _DECIMAL | _BINARY
_FORM: Final = re.compile(r"([+-]?)(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+)|([KMGTPE]i|[numkMGTPE]))?")


class Quantity(NamedTuple):
    """An amount of 0 or more, in nano units: finer than that Kubernetes rounds up.

    >>> Quantity.parse("0.5") == Quantity.parse("500m")
    True
    >>> Quantity.parse("1.5").milli, Quantity.parse("1.5").value
    (1500, 2)
    """

    nano: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the amount written in *text*.

        >>> [Quantity.parse(text).value for text in ("2", "2.0", "1e3", "1k", "1Ki", "0.1")]
        [2, 2, 1000, 1000, 1024, 1]
        >>> Quantity.parse("2 CPUs")
        Traceback (most recent call last):
        pinfold.errors.ParseError: quantity: has an unknown unit at column 2 of "2 CPUs"
        """
        if len(text) > _MAX_TEXT:
            raise _fault(f"is longer than {_MAX_TEXT} characters", text, 0)
        return cls(_parse_nano(text))

    @classmethod
    def from_milli(cls, milli: int) -> Self:
        """Return the amount of *milli* thousandths."""
        return cls(milli * _MILLI)

    @property
    def milli(self) -> int:
        """Thousandths, rounded up: MilliValue() of Kubernetes."""
        return -(-self.nano // _MILLI)

    @property
    def value(self) -> int:
        """Whole units, rounded up: Value() of Kubernetes."""
        return -(-self.nano // _ONE)

    def format(self, *, binary: bool = False) -> str:
        """Return the amount as Kubernetes writes it: whole, in the largest unit that loses nothing.

        >>> Quantity.parse("1.5").format(), Quantity.parse("2000").format(), Quantity.parse("128Mi").format(binary=True)
        ('1500m', '2k', '128Mi')
        """
        whole = self.nano >= 1024 * _ONE and self.nano % _ONE == 0
        units = {"": _ONE, **_BINARY} if binary and whole else _DECIMAL
        unit = max((unit for unit in units if self.nano % units[unit] == 0), key=units.__getitem__)
        return f"{self.nano // units[unit]}{unit}" if self.nano else "0"

    def __str__(self) -> str:
        return self.format()


@lru_cache(maxsize=1024)  # thousands of pods have the same few amounts: 0.5 µs instead of 2
def _parse_nano(text: str) -> int:
    match = _FORM.match(text)
    if match is None:  # differs: Kubernetes reads "+", "." and "m" as 0
        raise _fault("has no digits", text, text.startswith(("+", "-")))
    sign, whole, fraction, exponent, unit = match.groups(default="")
    if match.end() != len(text):
        raise _fault("has an unknown unit", text, max(match.end(2), match.end(3)))
    nano = _scaled(int(whole + fraction), len(fraction), exponent, unit)
    if nano and sign == "-":
        raise _fault("is negative", text, 0)
    if nano > _MAX_NANO:  # differs: Kubernetes caps it, or keeps it and overflows later
        raise _fault("is above 2^63-1", text, match.start(2))
    return nano


def _scaled(digits: int, decimals: int, exponent: str, unit: str) -> int:
    """Return *digits* / 10^decimals x unit or 10^exponent in nano units, rounded up; never a huge number."""
    shift = int(exponent) + 9 - decimals if exponent else -decimals
    power: int = 10 ** min(abs(shift), 2 * _MAX_TEXT)
    units = digits if exponent else digits * _UNITS[unit]
    return units * power if shift > 0 else -(-units // power)


def _fault(problem: str, text: str, at: int) -> ParseError:
    return ParseError(problem, text=text, at=at, where="quantity")
