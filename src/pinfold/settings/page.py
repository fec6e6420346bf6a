"""The page docs/reference/configuration.md, from the rows of `table`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.settings.table import GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pinfold.settings.table import Setting

_INTRODUCTION: Final = """\
<!-- Written by: python -m pinfold.settings.table > docs/reference/configuration.md -->

# Configuration

Every setting of `pinfold serve`.
Each has a flag, and most can also be set in a KubeletConfiguration file (`--config FILE`).

- A flag overrides the file.
- Some settings have two flags, the kubelet's and a short one; they mean the same, and the last one counts.
- A list of pairs in a flag replaces the list in the file, except for feature gates, which are merged.
  If such a flag is repeated, its lists are joined.
- Without `--config`, settings have the defaults below, which suit a laptop.
  With it, settings that the file leaves out have the kubelet's defaults: policy `none`, nothing reserved.
- The static policy needs at least one reserved CPU.
- pinfold ignores fields of the file that are not in these tables.
  It warns about a field whose name is almost one of these.
- pinfold reports all problems together, in one line, and does not start.

Durations are written as in Go: `10s`, `1m30s`, `500ms`.
Amounts are Kubernetes quantities: `500m`, `2`.
In the file, options and amounts are text: write `"true"` and `"2"` in quotes."""


def format_reference() -> str:
    """Return the page docs/reference/configuration.md."""
    parts = [_INTRODUCTION]
    for title, rows in GROUPS.items():
        parts += [f"\n## {title}\n", *_table(rows)]
    return "\n".join(parts) + "\n"


def _table(rows: Iterable[Setting]) -> Iterable[str]:
    yield "| our flag | kubelet flag | config field | default | meaning |"
    yield "|---|---|---|---|---|"
    for row in rows:
        names = (f"`{name}`" if name else "" for name in (row.ours, row.kubelet, row.field))
        choice = f"; one of {', '.join(row.form[1:-1].split(','))}" if row.form.startswith("{") else ""
        yield f"| {' | '.join((*names, row.default, row.meaning + choice))} |"
