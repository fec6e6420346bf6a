"""The page docs/reference/pod-fields.md, from the tables of `formats.pods.known`."""

from __future__ import annotations

from typing import Final

from pinfold.formats.pods.known import TABLES, Use

_INTRODUCTION: Final = """\
<!-- Written by: tools/reference -->

# Fields of a pod

`pinfold plan` and a daemon on a node of Kubernetes read the fields about CPUs, and ignore all others.
`pinfold apply` runs pods as plain processes of a host, and does with each field what is said here.

- *Used*: as Kubernetes uses it.
- *Ignored, with a warning*: a plain process has no need for it. `image` is ignored too: the command is one of the host.
- *Refused*: without it the process would silently be something else than what the file asks for; nothing is started.
- A field that is empty, or that says what a plain process does anyway (`privileged: false`), is never refused.
- A field that is not in these tables is ignored; if its name is almost one of these, pinfold warns about it.

A relative `workingDir`, and relative paths in `command`, mean the directory in which `pinfold apply` is called.
A container runs as `runAsUser` and `runAsGroup`, with `supplementalGroups`; only a daemon of root can do that.
Without `runAsGroup` it has the primary group of its user. `runAsNonRoot` needs `runAsUser`."""


def format_reference() -> str:
    """Return the page."""
    parts = [_INTRODUCTION]
    for path, table in TABLES.items():
        parts += [f"\n## `{path}`\n", "| what is done | fields |", "|---|---|"]
        for use in Use:
            names = ", ".join(f"`{name}`" for name in sorted(table) if table[name] is use)
            parts += [f"| {use} | {names} |"] if names else []
    return "\n".join(parts) + "\n"
