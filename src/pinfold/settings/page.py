"""The page docs/reference/configuration.md, from the rows of `settingstable`."""

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
It can be given by a flag, and most of them in a KubeletConfiguration file (`--config FILE`), which is read as it is.

- A flag overrides the file.
- A setting with two flags has a kubelet's name and a short one of ours; they mean the same, and the last one counts.
- A list of pairs in a flag replaces the list in the file, except for feature gates, which are merged.
  Given several times, such a flag adds up.
- Without `--config`, what is not said has the default below, which makes sense on a laptop.
  With it, what the file does not say has the kubelet's default: policy `none`, and nothing reserved.
- The static policy needs at least one reserved CPU.
- Fields of the file that are not in these tables are left alone.
  One that is spelled almost like them is named in a warning.
- All problems are reported together, in one line, and nothing is started.

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
