"""The settings of a plugin that a container runtime starts: it gives no arguments, so they are in NRI's directory.

The file is the one that NRI itself reads for a plugin: NN-NAME.conf, else NAME.conf. It holds the flags of
`pinfold serve` as on a command line, on any number of lines, with comments after #.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Mapping

DIRECTORY: Final = Path("/etc/nri/conf.d")


def plugin_flags(environment: Mapping[str, str], directory: Path = DIRECTORY) -> list[str]:
    """Return the flags in the plugin's file, none if it has no file; *environment* is what the runtime has set."""
    name, index = environment.get("NRI_PLUGIN_NAME", ""), environment.get("NRI_PLUGIN_IDX", "")
    paths = (directory / f"{index}-{name}.conf", directory / f"{name}.conf")
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        return []
    try:
        return shlex.split(path.read_text(encoding="utf-8"), comments=True)
    except ValueError as error:  # an open quote, or not UTF-8
        raise ParseError(str(error), where=str(path)) from error
