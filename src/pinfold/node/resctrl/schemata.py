"""The limits of resctrl: how its files write them, and what the hardware can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.caching import SHARED
from pinfold.errors import ParseError
from pinfold.node.resctrl.files import MOUNT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pinfold.core.caching import CacheClass
    from pinfold.node.resctrl.files import Files

    Schemata = dict[str, dict[int, int]]

KINDS: Final = ("L3", "L3CODE", "L3DATA")
"""The ways of the L3 cache; with CDP those for code and for data."""
BANDWIDTH: Final = "MB"
_PERCENT: Final = 100
_LONGEST: Final = 1 << 16


def problems_of(files: Files, table: Mapping[str, CacheClass]) -> Iterator[str]:
    """Yield what the hardware cannot do of a table."""
    whole = whole_schemata(files)
    if not whole:
        yield f"resctrl is not mounted, or the hardware has nothing to divide: mount -t resctrl resctrl /{MOUNT}"
        return
    closids = min(int(files.read(f"info/{kind}/num_closids")) for kind in whole)
    own = [name for name in table if name != SHARED]
    if len(own) >= closids:
        yield f"{len(own)} cache classes are too many: the hardware has {closids} groups, and one is for all the rest"
    for name, row in table.items():
        yield from (f"cache class {name}: {problem}" for problem in _wrong_row(files, row, whole))


def _wrong_row(files: Files, row: CacheClass, whole: Schemata) -> Iterator[str]:
    if row.ways is not None:
        kind = next((kind for kind in KINDS if kind in whole), None)
        if kind is None:
            yield "the hardware cannot divide its L3 cache"
        elif problem := _wrong_ways(row.ways, int(files.read(f"info/{kind}/cbm_mask"), 16), files, kind):
            yield problem
    if row.bandwidth is not None:
        least = int(files.read(f"info/{BANDWIDTH}/min_bandwidth")) if BANDWIDTH in whole else _PERCENT + 1
        if not least <= row.bandwidth <= _PERCENT:
            allowed = (
                f"{least} to {_PERCENT} percent" if BANDWIDTH in whole else "absent: the hardware cannot divide it"
            )
            yield f"memory bandwidth {row.bandwidth} must be {allowed}"


def _wrong_ways(ways: int, full: int, files: Files, kind: str) -> str:
    least = int(files.read(f"info/{kind}/min_cbm_bits"))
    lowest = ways & -ways
    adjacent = ways and not (ways // lowest) & (ways // lowest + 1)
    if adjacent and not ways & ~full and ways.bit_count() >= least:
        return ""
    return f"ways {ways:#x} must be {least} or more adjacent bits of {full:#x}"


def whole_schemata(files: Files) -> Schemata:
    """Return the limits that limit nothing; none if resctrl is not mounted."""
    if "info" not in files.names(""):
        return {}
    found = {}
    for kind, domains in parse_schemata(files.read("schemata")).items():
        if kind in KINDS or kind == BANDWIDTH:
            most = _PERCENT if kind == BANDWIDTH else int(files.read(f"info/{kind}/cbm_mask"), 16)
            found[kind] = dict.fromkeys(domains, most)
    return found


def parse_schemata(text: str) -> Schemata:
    r"""Return the limits in a file `schemata`: by kind and by cache, ways as a mask and bandwidth in percent.

    >>> parse_schemata("    MB:0=100;1=50\n    L3:0=ff0;1=f\n")
    {'MB': {0: 100, 1: 50}, 'L3': {0: 4080, 1: 15}}
    """
    if len(text) > _LONGEST:
        raise ParseError(f"{len(text):,} characters; {_LONGEST:,} are allowed", where="resctrl schemata")
    found = {}
    for line in text.split():
        kind, _, rest = line.partition(":")
        pairs = [part.partition("=") for part in rest.split(";")]
        base = 10 if kind == BANDWIDTH else 16
        try:
            found[kind] = {int(cache): int(value, base) for cache, _, value in pairs}
        except ValueError as error:
            raise ParseError("expected KIND:CACHE=VALUE;...", text=line, where="resctrl schemata") from error
    return found


def format_schemata(limits: Schemata) -> str:
    r"""Return limits as the file takes them.

    >>> format_schemata({"L3": {0: 4080, 1: 4080}, "MB": {0: 50, 1: 50}})
    'L3:0=ff0;1=ff0\nMB:0=50;1=50\n'
    """
    lines = [
        f"{kind}:" + ";".join(f"{cache}={value if kind == BANDWIDTH else f'{value:x}'}" for cache, value in row.items())
        for kind, row in limits.items()
    ]
    return "".join(f"{line}\n" for line in lines)
