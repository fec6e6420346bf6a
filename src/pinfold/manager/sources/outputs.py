"""Keeps the output of containers within bounds, beside the program that writes it: removes old files."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from pinfold.node.reserve import keep_reserve
from pinfold.node.waiting import OUTPUTS, in_thread

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.manager.sources.workbook import Workbook
    from pinfold.node.outputs.outputs import Outputs

_EVERY: Final = 10.0
"""Seconds between two looks …"""
_LEAST: Final = 1.0
"""… or from the end of the program to the next one: it may end again at once."""


async def bound_outputs(outputs: Outputs, workbook: Workbook, state_dir: Path) -> None:
    """Remove the output of containers long gone, and see that the rest is written and cut, for ever.

    The reserve in *state_dir* is made again as soon as there is room for it.
    """
    while True:
        news = await in_thread(partial(_tend, outputs, state_dir), OUTPUTS)
        ended = await in_thread(partial(outputs.look, workbook.outputs()), OUTPUTS) if news else ()
        for name in ended:
            if name not in workbook.outputs():  # a pod of this name may have started meanwhile
                await in_thread(partial(outputs.remove, name), OUTPUTS)
        if await outputs.drain_ends(within=_EVERY):
            await asyncio.sleep(_LEAST)


def _tend(outputs: Outputs, state_dir: Path) -> bool:
    """Keep the reserve, and return whether there is more to do: one turn of a thread for both, each time."""
    keep_reserve(state_dir)
    return outputs.has_news()
