"""Number: a number of a YAML or JSON text, not yet read, so that nothing is rounded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written."""

    text: str
