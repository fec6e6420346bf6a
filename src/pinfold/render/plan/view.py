"""A Plan that prints as a table and shows as a picture in a notebook: the entry point of the library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pinfold.planning.plan import EMPTY_NODE, Plan, make_plan
from pinfold.render.plan.data import plan_data
from pinfold.render.plan.svg import format_plan_svg
from pinfold.render.plan.table import format_plan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pinfold.core.config import Config
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Pod
    from pinfold.planning.plan import Running


@dataclass(frozen=True)
class PlanView(Plan):
    """A Plan that shows itself."""

    def __str__(self) -> str:
        return format_plan(self)

    def _repr_svg_(self) -> str:
        """Return the picture that a notebook shows."""
        return format_plan_svg(self)

    def data(self) -> dict[str, object]:
        """Return the plan as plain data, as `pinfold plan -o json` writes it."""
        return plan_data(self)


def plan(pods: Iterable[Pod], topology: Topology, config: Config, running: Running = EMPTY_NODE) -> PlanView:
    """Return the plan of a node that gets *pods*, one after the other.

    >>> from pinfold.core.config import Config, Reservation
    >>> from pinfold.core.machine.presets import preset
    >>> plan([], preset("laptop-4"), Config("static", reserved=Reservation(milli=1000)))._repr_svg_()[:4]
    '<svg'
    """
    made = make_plan(pods, topology, config, running)
    return PlanView(made.topology, made.config, made.admitter, made.before, made.outcomes, made.after)
