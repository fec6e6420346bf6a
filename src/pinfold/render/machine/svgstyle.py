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
# Most colour-blind readers can distinguish the first eight side by side; for light, then for dark.
_OWNERS: Final = (
    ("#9ecbf2", "#1f5f99"),
    ("#f7c48b", "#8f5313"),
    ("#a9dba0", "#2f6b2a"),
    ("#f2a9b5", "#8f2f42"),
    ("#cbb5ec", "#5d3f99"),
    ("#8fd9d6", "#17676a"),
    ("#efe08a", "#75661a"),
    ("#d9bfa9", "#6b4a33"),
    # Then stronger shades of them, for machines with more owners.
    ("#5aa2de", "#3d85c6"),
    ("#e8964a", "#b9722c"),
    ("#6fbf62", "#4f9147"),
    ("#e0748a", "#bd5067"),
    ("#a283dc", "#8263c4"),
    ("#4fbab6", "#2f8f92"),
    ("#d3bd3f", "#a08d2c"),
    ("#b58f70", "#93694b"),
)
OWNER_COLOURS: Final = len(_OWNERS)
"""The number of colours for owners; the next owner gets the first again."""


def style(*, owners: int = 0) -> str:
    """Return the style sheet of a picture with this many owners."""
    numbers = range(min(owners, OWNER_COLOURS))
    light = "".join(f".owner{i}{{fill:{_OWNERS[i][0]}}}\n" for i in numbers)
    dark = "".join(f".owner{i}{{fill:{_OWNERS[i][1]}}}\n" for i in numbers)
    return f"{_SHAPES}{_LIGHT}{light}@media (prefers-color-scheme:dark){{\n{_DARK}{dark}}}\n"
