"""The page docs/reference/configuration.md, from the rows of `table`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.settings.table import GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pinfold.settings.table import Setting

_INTRODUCTION: Final = """\
<!-- Written by: tools/reference -->

# Configuration

Every setting of `pinfold serve`.
Each has a flag, and a key in the daemon's own file: the first flag of its row without the dashes.
Those with a config field are also read from a KubeletConfiguration file (`--config FILE`).

```yaml
# /etc/pinfold/config.yaml
policy: static
policy-options: {full-pcpus-only: true}
reserved-cpus: 0-1
config: /var/lib/kubelet/config.yaml
runtime: nri
```

- A flag overrides the daemon's own file, and that overrides the KubeletConfiguration.
- `pinfold config check` checks all of them as `pinfold serve` would and reports all problems.
  `pinfold config show` prints each setting in force and its source.
  `pinfold config sample` prints a file with every setting explained.
- In the daemon's own file an unknown key is an error.
  Lists of pairs may be written as mappings, and values need no quotes.
- `SIGHUP` reads all files again. The settings of CPU Manager, Topology Manager and policy dynamic change at once.
  The others change at the next start; a warning names them.
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
