"""The shield's file in the state directory: what each changed HostPlace had before, on the disk before it is changed.

Valid for one boot: after the next one the kernel has forgotten all changes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.shield import ChangedPlace
from pinfold.errors import ParseError, StateError
from pinfold.node.procfs import PROC
from pinfold.node.statefile import keep_aside, read_state_file, write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE: Final = "shield.json"


class ShieldRecord:
    """The Origins in a state directory."""

    def __init__(self, directory: Path, boot: str | None = None) -> None:
        self._path = directory / FILE
        self._boot = PROC.boot() if boot is None else boot
        self.since: int | None = None
        """When the first thread was moved, in clock ticks since boot; None if it is not known."""

    def load(self) -> dict[str, ChangedPlace]:
        """Return the Origins of this boot; raise if the file is damaged, and keep it aside."""
        text = read_state_file(self._path)
        if text is None:
            return {}
        try:
            data = json.loads(text)
            if data["boot"] != self._boot:
                return {}
            found = {key: _origin(value) for key, value in data["places"].items()}
            self.since = data["since"] if type(data["since"]) is int else None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ParseError) as error:
            aside = keep_aside(self._path)
            said = f"{self._path}: is damaged ({type(error).__name__}: {error}), kept as {aside}"
            raise StateError(f"{said}; what the shield had changed before stays so until the next boot") from error
        return found

    def save(self, origins: Mapping[str, ChangedPlace]) -> None:
        """Make the Origins durable, or raise."""
        if not origins:
            self.since = None
            self._path.unlink(missing_ok=True)
            return
        places = {key: [*map(str, origin)] for key, origin in origins.items()}
        data = {"boot": self._boot, "since": self.since, "places": places}
        write_atomically(self._path, json.dumps(data).encode())


def _origin(value: object) -> ChangedPlace:
    if not isinstance(value, list) or [type(text) for text in value] != [str] * 3:
        raise TypeError("expected three lists of CPUs")
    return ChangedPlace(*map(CPUSet.parse, value))
