"""The flags of `pinfold serve`: one for each name in a row of `table`; their text is kept as given."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pinfold.settings.table import GROUPS, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pinfold.settings.table import Setting


class _Keep(argparse.Action):
    """Keeps the text of a flag, and in `given` the name that the user wrote."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest)
        adds_up = before is not None and SETTINGS[self.dest].adds_up
        setattr(namespace, self.dest, f"{before},{values}" if adds_up else values)
        namespace.given = {**namespace.given, self.dest: option_string}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every setting; `machine.read_machine` understands those about the machine."""
    parser.set_defaults(given={}, file=None)
    for title, rows in GROUPS.items():
        group = parser.add_argument_group(title)
        for setting in rows:
            _add_argument(group, setting)


def _add_argument(group: argparse._ArgumentGroup, setting: Setting) -> None:
    shown = f" (default: {setting.default})" if setting.default else ""
    group.add_argument(
        *setting.flags,
        dest=setting.name,
        action=_Keep,
        metavar=setting.form,
        help=f"{setting.meaning}{shown}",
        nargs="?" if setting.form == "BOOL" else None,
        const="true",
        type=Path if setting.name == "sysroot" else str,
    )
