"""Tells systemd the settings of groups that are its units, so that it does not take them back.

With the systemd cgroup driver of a kubelet, pods are slices and containers are scopes. A value written into one of
their files holds until systemd applies what it knows of the unit: when another pod starts, or when a property changes.
So the drivers write the kernel's files first, which takes effect at once, and `Systemd` tells systemd after, by
systemctl.

On cgroup v1 systemd knows quotas, but no cpusets; `GroupSetting.properties` is empty where there is nothing to tell.
"""

from __future__ import annotations

import asyncio
import os
import re
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import CPUSet
from pinfold.errors import ParseError, excerpt
from pinfold.node.grouperrors import GroupError
from pinfold.node.podgroups.paths import unit_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pinfold.node.podgroups.settings import GroupSetting

SYSTEMCTL: Final = "systemctl"
_SECONDS: Final = 10.0
_UNITS_AT_ONCE: Final = 100
ENVIRONMENT: Final = {"LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}
_SPAN: Final = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,6})[0-9]{0,12})?(us|ms|s|min|h|d|w|month|y)")
_MICROSECONDS: Final = {
    "us": 1,
    "ms": 1000,
    "s": 10**6,
    "min": 60 * 10**6,
    "h": 3600 * 10**6,
    "d": 86_400 * 10**6,
    "w": 7 * 86_400 * 10**6,
    "month": 2_629_800 * 10**6,
    "y": 31_557_600 * 10**6,
}
_MICRO: Final = 10**6
_PER_PERCENT: Final = 10_000
_DEFAULT_PERIOD: Final = 100_000


class SystemdError(GroupError):
    """A command to systemd that failed; *said* is what it printed."""

    def __init__(self, command: Sequence[str], said: str) -> None:
        super().__init__(f"{excerpt(' '.join(command))}: {said}")
        self.command = tuple(command)
        self.said = said


class Unit(NamedTuple):
    """A unit of systemd, and the properties that it is to have."""

    name: str
    group: Path
    properties: Mapping[str, str]


def runs(root: Path = Path("/")) -> bool:
    """Whether systemd manages this machine and can be reached, so that slices and scopes are its units.

    The rule is that of sd_booted(3): in a pod, process 1 is pinfold, but the host's /run/systemd can be mounted.
    """
    return (root / "run/systemd/system").is_dir()


def units(settings: Iterable[GroupSetting]) -> list[Unit]:
    """Return the groups that are units, each with all its properties, in the order of the settings."""
    found: dict[str, Unit] = {}
    for setting in settings:
        name = unit_of(setting.group.name)
        if name is not None and setting.properties:
            before = found.get(name, Unit(name, setting.group, {}))
            new = dict(entry.partition("=")[::2] for entry in setting.properties)
            found[name] = Unit(name, setting.group, {**before.properties, **new})
    return list(found.values())


def set_command(unit: Unit, *, systemctl: str = SYSTEMCTL) -> list[str]:
    """Return the command that sets the unit's properties until the machine is started anew.

    >>> unit = Unit("kubepods.slice", Path("kubepods.slice"), {"AllowedCPUs": "0-3", "CPUQuota": ""})
    >>> print(*set_command(unit))
    systemctl --no-ask-password --runtime set-property -- kubepods.slice AllowedCPUs=0-3 CPUQuota=
    """
    properties = (f"{name}={value}" for name, value in unit.properties.items())
    return [systemctl, "--no-ask-password", "--runtime", "set-property", "--", unit.name, *properties]


def show_command(names: Iterable[str], *, systemctl: str = SYSTEMCTL) -> list[str]:
    """Return the command that prints what systemd has for these units."""
    wanted = ",".join(("Id", *(shown for shown, _, _ in _PROPERTIES.values())))
    return [systemctl, "--no-ask-password", "--no-pager", "show", f"--property={wanted}", "--", *names]


def parse_shown(text: str) -> dict[str, dict[str, str]]:
    r"""Return the properties of each unit, from what systemctl show prints: NAME=VALUE, units apart by an empty line.

    >>> parse_shown("Id=a.slice\nAllowedCPUs=0-3 8\n\nId=b.slice\nAllowedCPUs=\n")
    {'a.slice': {'AllowedCPUs': '0-3 8'}, 'b.slice': {'AllowedCPUs': ''}}
    """
    found = {}
    for block in filter(None, text.split("\n\n")):
        properties = dict(line.partition("=")[::2] for line in block.splitlines())
        name = properties.pop("Id", "")
        if name:
            found[name] = properties
    return found


def parse_span(text: str) -> int | None:
    """Return a span of time in microseconds; None if it is infinite.

    >>> parse_span("1min 30s"), parse_span("1.500000s"), parse_span("infinity")
    (90000000, 1500000, None)
    """
    if text == "infinity":
        return None
    total = 0
    for word in text.split() or [""]:
        match = _SPAN.fullmatch(word)
        if match is None:
            raise ParseError("expected a span of time such as 100ms or infinity", text=text)
        whole, fraction, unit = match.groups()
        micros = int(whole) * _MICRO + int((fraction or "").ljust(6, "0"))
        total += micros * _MICROSECONDS[unit] // _MICRO
    return total


def differing(unit: Unit, shown: Mapping[str, str]) -> Unit:
    """Return the unit with only the properties for which systemd has another value."""
    return unit._replace(
        properties={name: value for name, value in unit.properties.items() if not _same(name, value, shown)}
    )


class Systemd:
    """The systemd of this machine, reached by *systemctl*; each command may take up to *seconds*."""

    def __init__(self, systemctl: str = SYSTEMCTL, *, seconds: float = _SECONDS) -> None:
        self._systemctl = systemctl
        self._seconds = seconds

    async def keep(self, settings: Iterable[GroupSetting]) -> tuple[str, ...]:
        """Tell systemd the settings that it does not know yet; return the units it was told of.

        A unit whose group is gone is skipped. While systemd is told of one unit, it can write its old values into
        another that it was not told of yet: read the groups back after this, not before.
        """
        told = []
        wanted = units(settings)
        shown = await self.show([unit.name for unit in wanted])
        for unit in wanted:
            missing = differing(unit, shown.get(unit.name, {}))
            if missing.properties and await self._tell(missing):
                told.append(unit.name)
        return tuple(told)

    async def show(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the properties that systemd has for these units."""
        found = {}
        for start in range(0, len(names), _UNITS_AT_ONCE):
            batch = names[start : start + _UNITS_AT_ONCE]
            found.update(parse_shown(await self._run(show_command(batch, systemctl=self._systemctl))))
        return found

    async def _tell(self, unit: Unit) -> bool:
        try:
            await self._run(set_command(unit, systemctl=self._systemctl))
        except SystemdError:
            if unit.group.is_dir():
                raise
            return False
        return True

    async def _run(self, command: Sequence[str]) -> str:
        environment = {**os.environ, **ENVIRONMENT}
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=environment
            )
        except OSError as error:
            raise SystemdError(command, f"cannot be run: {error.strerror}") from error
        try:
            out, err = await asyncio.wait_for(process.communicate(), self._seconds)
        except TimeoutError as error:
            raise SystemdError(command, f"no answer within {self._seconds:g} s") from error
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode:
            said = excerpt(err.decode("utf-8", "replace").strip()) if err.strip() else "nothing said"
            raise SystemdError(command, f"exit code {process.returncode}: {said}")
        return out.decode("utf-8", "replace")


def _same(name: str, value: str, shown: Mapping[str, str]) -> bool:
    shown_name, wanted, has = _PROPERTIES[name]
    try:
        return shown_name in shown and has(shown[shown_name]) == wanted(value)
    except ParseError:
        return False


def _parse_cpus(text: str) -> CPUSet:
    return CPUSet.parse(",".join(re.split(r"[\s,]+", text)))


def _parse_percent(text: str) -> int | None:
    return int(text.removesuffix("%")) * _PER_PERCENT if text else None


def _parse_period(text: str) -> int:
    span = parse_span(text)
    return _DEFAULT_PERIOD if span is None else span


# For each property: the name it is shown by, and how to read the value set and the value shown.
_PROPERTIES: Final[Mapping[str, tuple[str, Callable[[str], object], Callable[[str], object]]]] = {
    "AllowedCPUs": ("AllowedCPUs", _parse_cpus, _parse_cpus),
    "AllowedMemoryNodes": ("AllowedMemoryNodes", _parse_cpus, _parse_cpus),
    "CPUQuota": ("CPUQuotaPerSecUSec", _parse_percent, parse_span),
    "CPUQuotaPeriodSec": ("CPUQuotaPeriodUSec", _parse_period, _parse_period),
}
