"""Reads one setting: from its flag, the kubelet's file, or a default; records its source, and what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from pinfold.core.allocators.order import Fidelity
from pinfold.errors import ConfigError, ParseError, Problem
from pinfold.formats.kubelet.config import KubeletConfig, check_kubelet_config
from pinfold.formats.kubelet.flags import parse_choice, parse_key_values
from pinfold.settings.filetext import problems_before_end, read_settings_file
from pinfold.settings.places import DEFAULT, SourcedPath, check_path
from pinfold.settings.table import (
    OWN_FILE,
    SETTINGS,
    CpusetPartition,
    Groups,
    LogFormat,
    OnExit,
    OnRefusal,
    OtherDaemons,
    RuntimeName,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping

_KUBELET_DEFAULT: Final = "kubelet's default"
_Value = TypeVar("_Value")
_Name = TypeVar("_Name", Fidelity, CpusetPartition, Groups, LogFormat, OnExit, OnRefusal, OtherDaemons, RuntimeName)


class SettingsReader:
    """Reads settings from flags or the file, and records sources and problems."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.problems: list[Problem] = []
        own: list[Problem] = getattr(arguments, "problems", [])
        """Those of the daemon's own file, if it was read."""
        self.values: dict[str, object] = {}
        self.warnings: list[str] = []
        self.sources: dict[str, str] = {}
        self.has_file = arguments.config_file is not None
        self.readable = not self.has_file
        """Whether everything in the kubelet's file that decides about CPUs is right."""
        self.file = self._read_file() if self.has_file else KubeletConfig()
        self.problems[:0] = own
        self.take(OWN_FILE, str, getattr(arguments, "own_file", None))

    def _read_file(self) -> KubeletConfig:
        name = self.arguments.config_file
        try:
            check_path(name, self.flag("config_file"))
            text = read_settings_file(name)
        except ConfigError as error:
            self.problems += error.problems
            return KubeletConfig()
        except ParseError as error:
            self.problems.append(Problem(str(error)))
            return KubeletConfig()
        try:
            found, problems, self.readable = check_kubelet_config(text, source=name)
        except ParseError as error:
            self.problems += problems_before_end(error)
            return KubeletConfig()
        self.problems += map(Problem, map(str, problems))
        return found

    def flag(self, name: str) -> str:
        """Return the flag of a setting, as the user wrote it if given."""
        return str(self.arguments.given.get(name, SETTINGS[name].flags[0]))

    def is_given(self, name: str) -> bool:
        """Return whether a flag or the daemon's own file has the setting."""
        return getattr(self.arguments, name) is not None

    def take(self, name: str, parse: Callable[[str], _Value], otherwise: _Value) -> _Value:
        """Return the value of the flag, or *otherwise*, from the file or a default."""
        self.values[name] = otherwise
        if not self.is_given(name):
            self.sources[name] = self._otherwise(name)
            return otherwise
        self.sources[name] = self.flag(name)
        try:
            value = parse(getattr(self.arguments, name))
        except ParseError as error:
            self.problems.append(Problem(f"{self.flag(name)}: {error}"))
            return otherwise
        self.values[name] = value
        return value

    def choose(self, name: str, default: _Name) -> _Name:
        """Return the choice by the name that was given, or *default*."""
        kind = type(default)
        return kind(self.take(name, one_of(kind), str(default)))

    def options(
        self, name: str, check: Callable[[str, str], list[Problem]], otherwise: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Return options as `take` does, without the wrong ones."""
        found = self.take(name, parse_key_values, dict(otherwise))
        wrong = {option: check(option, text) for option, text in found.items()} if self.is_given(name) else {}
        for said, advice in (problem for problems in wrong.values() for problem in problems):
            self.problems.append(Problem(f"{self.flag(name)}: {said}", advice))
        return {option: text for option, text in found.items() if not wrong.get(option)}

    def place(self, name: str, find: Callable[[str | None], SourcedPath]) -> Path:
        """Return the path that *find* gives for the flag, with its source."""
        try:
            place = find(getattr(self.arguments, name))
        except ConfigError as error:
            self.problems += error.problems
            return Path()
        self.sources[name] = self.flag(name) if self.is_given(name) else place.source
        self.values[name] = place.path
        return place.path

    def _otherwise(self, name: str) -> str:
        field = SETTINGS[name].field
        if not (self.has_file and field):
            return DEFAULT
        return f"{self.arguments.config_file}: {field}" if field in self.file.said else _KUBELET_DEFAULT


def one_of(names: Iterable[str]) -> Callable[[str], str]:
    """Return a function that accepts only these names."""
    allowed = [str(name) for name in names]
    return lambda text: parse_choice(text, allowed)
