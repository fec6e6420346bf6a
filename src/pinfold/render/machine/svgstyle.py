"""The colours and fonts of all SVG pictures, light and dark."""

from __future__ import annotations

from typing import Final

_SHAPES: Final = """\
text{font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI",Helvetica,Arial,"DejaVu Sans",sans-serif}
.title,.label{font-weight:600}
.cpus text{font-size:12px;text-anchor:middle;font-variant-numeric:tabular-nums}
.isolated{stroke-width:1.5;stroke-dasharray:3 2}
.offline{stroke-dasharray:3 2}
.hatch{fill:none;stroke-width:1.2}
"""
_LIGHT: Final = """\
.bg{fill:#ffffff}
text{fill:#1f2933}
.soft{fill:#5b6875}
.socket{fill:#f3f5f8;stroke:#c9d2dc}
.numa{fill:#e7effa;stroke:#b3c9e6}
.uncore{fill:#e3f3ee;stroke:#a3cfc1}
.core{fill:#ffffff;stroke:#c5ced8}
.cpu{fill:#d6e0eb}
.reserved{fill:#d6e0eb;stroke:#8a96a3}
.hatch{stroke:#9fadbb}
.isolated{fill:#fdf1d3;stroke:#b7791f}
.offline{fill:#ffffff;stroke:#8a96a3}
"""
_DARK: Final = """\
.bg{fill:#0e1318}
text{fill:#e4e9ee}
.soft{fill:#9aa7b4}
.socket{fill:#171d24;stroke:#37424e}
.numa{fill:#16253a;stroke:#2f4d74}
.uncore{fill:#132c27;stroke:#2a5c50}
.core{fill:#0e1318;stroke:#45525f}
.cpu{fill:#2d3b4a}
.reserved{fill:#2d3b4a;stroke:#788594}
.hatch{stroke:#566575}
.isolated{fill:#3a2e12;stroke:#d69e2e}
.offline{fill:#0e1318;stroke:#788594}
"""
# For light, then for dark. Chosen by a search for the largest difference between any two of them, as most readers see
# them and as colour-blind ones do, with a contrast of 4.5 to the text; a test measures both.
OWNERS: Final = (
    ("#56c0f5", "#146aa5"),
    ("#ebb48b", "#b43f1b"),
    ("#88ee60", "#0c7809"),
    ("#c57c83", "#bc135e"),
    ("#b476ee", "#4d0ea9"),
    ("#77e0c9", "#1c6671"),
    ("#b6ae2e", "#5e4a0f"),
    ("#f56fc2", "#a831a8"),
    # Then other shades of the same hues, for machines with more owners.
    ("#b3d1f5", "#152e50"),
    ("#da814b", "#451c05"),
    ("#43a62e", "#144515"),
    ("#d7a1af", "#50102c"),
    ("#a793d8", "#5c3a82"),
    ("#2ca2af", "#065542"),
    ("#efdba5", "#6b5c40"),
    ("#f598dc", "#9c437e"),
)
OWNER_COLOURS: Final = len(OWNERS)
"""The number of colours for owners; the next owner gets the first again."""


def style(*, owners: int = 0) -> str:
    """Return the style sheet of a picture with this many owners."""
    numbers = range(min(owners, OWNER_COLOURS))
    light = "".join(f".owner{i}{{fill:{OWNERS[i][0]}}}\n" for i in numbers)
    dark = "".join(f".owner{i}{{fill:{OWNERS[i][1]}}}\n" for i in numbers)
    return f"{_SHAPES}{_LIGHT}{light}@media (prefers-color-scheme:dark){{\n{_DARK}{dark}}}\n"
