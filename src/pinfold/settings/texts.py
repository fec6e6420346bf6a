"""Values of settings as users write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.pods.quantity import Quantity

if TYPE_CHECKING:
    from pinfold.settings.table import Setting


def as_text(row: Setting, value: object) -> str:
    """Return the value of a setting as its flag has it.

    >>> from pinfold.settings.table import SETTINGS
    >>> as_text(SETTINGS["cfs_period"], 100_000), as_text(SETTINGS["feature_gates"], {"A": True, "B": False})
    ('100ms', 'A=true,B=false')
    """
    match value:
        case None | frozenset():
            return ",".join(sorted(value or ()))
        case bool():
            return "true" if value else "false"
        case dict():
            return ",".join(f"{name}={as_text(row, one)}" for name, one in value.items())
        case Quantity():
            return f"cpu={value.milli}m"
        case int() | float() if row.form == "DURATION":
            return f"{value / 1000:g}ms" if isinstance(value, int) else f"{value:g}s"
    return str(value)
