"""CPUSet: an immutable set of CPU numbers on one int, and the text forms Linux uses for it.

Knows nothing of machines: any number from 0 to 65535 can be in a set.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Self

from pinfold.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_CPU: Final = 65535
_FULL: Final = (1 << MAX_CPU + 1) - 1
# All 65,536 numbers written one by one, with room for zeros and spaces; more text than this is not a CPU list.
_MAX_TEXT: Final = 1 << 19
_CHUNK_BITS: Final = 32
_RANGE: Final = re.compile(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+)/([0-9]+))?)?")
_PREFIX: Final = "0x"
# How kernels really print: full chunks, which can be read in one go.
_KERNEL_MASK: Final = re.compile(r"[0-9a-f]{1,8}(?:,[0-9a-f]{8})*")
_MAX_MASK: Final = (MAX_CPU + 1) // _CHUNK_BITS * 9 - 1
_CHUNK: Final = re.compile(r"[0-9a-fA-F]+")


class CPUSet:
    """A set of CPUs. Sets are equal when they hold the same CPUs.

    >>> a, b = CPUSet.parse("0-3,8"), CPUSet.of(2, 3, 4)
    >>> print(a | b, a & b, a - b, sep=" ; ")
    0-4,8 ; 2-3 ; 0-1,8
    >>> 8 in a, len(a), list(b)
    (True, 5, [2, 3, 4])
    """

    __slots__ = ("mask",)

    mask: int

    def __init__(self, mask: int = 0) -> None:
        if not 0 <= mask <= _FULL:
            raise ParseError(f"CPU numbers go from 0 to {MAX_CPU}")
        _set_mask(self, mask)

    @classmethod
    def of(cls, *cpus: int) -> Self:
        """Return the set of these CPUs."""
        return cls.from_cpus(cpus)

    @classmethod
    def from_cpus(cls, cpus: Iterable[int]) -> Self:
        """Return the set of these CPUs, given in any order."""
        mask = 0
        for cpu in cpus:
            if not 0 <= cpu <= MAX_CPU:
                shown = cpu if cpu.bit_length() <= MAX_CPU.bit_length() ** 2 else "of that size"
                raise ParseError(f"CPU number {shown} is not within 0 to {MAX_CPU}")
            mask |= 1 << cpu
        return cls(mask)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the set written in the Linux list format.

        >>> print(CPUSet.parse("0-3,8"), CPUSet.parse("0-31:2/8"))
        0-3,8 0-1,8-9,16-17,24-25
        >>> CPUSet.parse("3-1")
        Traceback (most recent call last):
        pinfold.errors.ParseError: range 3-1 runs backwards at column 1 of "3-1"
        """
        return cls(_parse_list(_trimmed(text, "list")))

    @classmethod
    def parse_mask(cls, text: str) -> Self:
        """Return the set written as a hex mask, in comma-separated 32-bit chunks as the kernel prints it.

        >>> print(CPUSet.parse_mask("f,00000003"), CPUSet.parse_mask("0xff"))
        0-1,32-35 0-7
        """
        return cls(_parse_mask(_trimmed(text, "mask")))

    def format(self) -> str:
        """Return the set in the Linux list format; the empty set is the empty text."""
        return format_list(self.mask)

    def format_mask(self, width: int = _CHUNK_BITS) -> str:
        """Return the set as the kernel prints masks on a machine with *width* possible CPUs.

        >>> CPUSet.of(0, 33).format_mask(width=40)
        '02,00000001'
        """
        digits = -(-max(width, self.mask.bit_length()) // 4)
        hexed = f"{self.mask:0{digits}x}"
        head = len(hexed) % 8 or 8
        return ",".join([hexed[:head], *(hexed[i : i + 8] for i in range(head, len(hexed), 8))])

    @property
    def lowest(self) -> int:
        """The lowest CPU of the set; -1 if it is empty."""
        return (self.mask & -self.mask).bit_length() - 1

    def isdisjoint(self, other: CPUSet) -> bool:
        """Whether no CPU is in both."""
        return not self.mask & other.mask

    def __setattr__(self, name: str, value: object) -> None:
        message = f"CPUSet is immutable: cannot set {name}"
        raise AttributeError(message)

    def __delattr__(self, name: str) -> None:
        message = f"CPUSet is immutable: cannot delete {name}"
        raise AttributeError(message)

    def __reduce__(self) -> tuple[type[Self], tuple[int]]:
        return type(self), (self.mask,)

    def __iter__(self) -> Iterator[int]:
        return iter(cpus_of(self.mask))

    def __contains__(self, cpu: object) -> bool:
        return isinstance(cpu, int) and cpu >= 0 and bool(self.mask >> cpu & 1)

    def __len__(self) -> int:
        return self.mask.bit_count()

    def __bool__(self) -> bool:
        return self.mask != 0

    def __eq__(self, other: object) -> bool:
        return self.mask == other.mask if isinstance(other, CPUSet) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.mask)

    def __le__(self, other: CPUSet) -> bool:
        return not self.mask & ~other.mask

    def __lt__(self, other: CPUSet) -> bool:
        return self <= other and self.mask != other.mask

    def __ge__(self, other: CPUSet) -> bool:
        return other <= self

    def __gt__(self, other: CPUSet) -> bool:
        return other < self

    def __or__(self, other: CPUSet) -> CPUSet:
        return CPUSet(self.mask | other.mask)

    def __and__(self, other: CPUSet) -> CPUSet:
        return CPUSet(self.mask & other.mask)

    def __sub__(self, other: CPUSet) -> CPUSet:
        return CPUSet(self.mask & ~other.mask)

    def __xor__(self, other: CPUSet) -> CPUSet:
        return CPUSet(self.mask ^ other.mask)

    def __str__(self) -> str:
        return format_list(self.mask)

    def __repr__(self) -> str:
        return f'CPUSet.parse("{self}")'


# The slot itself: bypasses our __setattr__, and is twice as fast as object's.
_set_mask: Final = CPUSet.__dict__["mask"].__set__
EMPTY: Final = CPUSet()


def cpus_of(mask: int) -> list[int]:
    """Return the CPUs of *mask*, ascending."""
    cpus = []
    while mask:
        low = mask & -mask
        cpus.append(low.bit_length() - 1)
        mask ^= low
    return cpus


@lru_cache(256)
def format_list(mask: int) -> str:
    """Return *mask* in the Linux list format; most groups of a node have the same."""
    parts = []
    first = 0
    while mask:
        gap = (mask & -mask).bit_length() - 1
        first += gap
        mask >>= gap
        run = (~mask & (mask + 1)).bit_length() - 1
        parts.append(str(first) if run == 1 else f"{first}-{first + run - 1}")
        first += run
        mask >>= run
    return ",".join(parts)


def _parse_list(text: str) -> int:
    mask = at = 0
    while at < len(text):
        match = _RANGE.match(text, at)
        if match is None:
            raise ParseError("expected a CPU number", text=text, at=at)
        mask |= _range_mask(match, text)
        at = match.end()
        if at == len(text):
            return mask
        if text[at] == "-" and match[2] is None:
            raise ParseError("expected a CPU number", text=text, at=at + 1)
        if text[at] != ",":
            raise ParseError('expected "," or "-"', text=text, at=at)
        at += 1
    if text:
        raise ParseError("expected a CPU number", text=text, at=at)
    return mask


def _range_mask(match: re.Match[str], text: str) -> int:
    first = _number(match, 1, text)
    if match[2] is None:
        return 1 << first
    last = _number(match, 2, text)
    if last < first:
        raise ParseError(f"range {first}-{last} runs backwards", text=text, at=match.start())
    run = (1 << last - first + 1) - 1
    if match[3] is not None:
        run &= _stride(_number(match, 3, text), _number(match, 4, text), last - first + 1, match, text)
    return run << first


def _stride(used: int, group: int, width: int, match: re.Match[str], text: str) -> int:
    """Return the mask of the kernel's ":used/group": the first *used* of every *group* CPUs."""
    if not 0 < used <= group:
        raise ParseError(f"stride {used}/{group} must use 1 to {group} of each group", text=text, at=match.start(3))
    mask = (1 << used) - 1
    step = group
    while step < width:  # doubling, so that a wide range costs a few shifts and not one for every group
        mask |= mask << step
        step *= 2
    return mask


def _number(match: re.Match[str], group: int, text: str) -> int:
    digits = match[group].lstrip("0") or "0"
    if len(digits) > len(str(MAX_CPU)) or int(digits) > MAX_CPU:
        raise ParseError(f"number is above {MAX_CPU}, the highest CPU allowed", text=text, at=match.start(group))
    return int(digits)


def _parse_mask(text: str) -> int:
    if _KERNEL_MASK.fullmatch(text) and len(text) <= _MAX_MASK:
        return int(text.replace(",", ""), 16)
    at = len(_PREFIX) if text[: len(_PREFIX)].lower() == _PREFIX else 0
    if "," not in text:
        return _parse_chunk(text, at, MAX_CPU + 1)
    mask = 0
    while at <= len(text):
        mask = mask << _CHUNK_BITS | _parse_chunk(text, at, _CHUNK_BITS)
        if mask.bit_length() > MAX_CPU + 1:
            raise ParseError(f"mask has CPUs above {MAX_CPU}, the highest allowed", text=text)
        at = text.find(",", at) + 1 or len(text) + 1
    return mask


def _parse_chunk(text: str, at: int, bits: int) -> int:
    """Return the hex number of at most *bits* bits that goes from *at* to the next comma."""
    match = _CHUNK.match(text, at)
    if match is None:
        raise ParseError("expected hex digits", text=text, at=at)
    if text[match.end() : match.end() + 1] not in {"", ","}:
        raise ParseError('expected hex digits or ","', text=text, at=match.end())
    chunk = int(match[0], 16)
    if chunk.bit_length() > bits:
        raise ParseError(f"at most {bits} bits are allowed here", text=text, at=at)
    return chunk


def _trimmed(text: str, kind: str) -> str:
    """Return *text* without white space around it; a text that is too long is not even copied."""
    if len(text) > _MAX_TEXT:
        raise ParseError(f"CPU {kind} of {len(text):,} characters; {_MAX_TEXT:,} are allowed", text=text)
    return text.strip(" \t\r\n")
