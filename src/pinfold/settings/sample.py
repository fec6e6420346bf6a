"""The sample of the daemon's own file, from the rows of `table`: every setting, explained and commented out."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from pinfold.settings.table import GROUPS, OWN_FILE, RELOADED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pinfold.settings.table import Setting

EXAMPLES: Final = {
    "policy_options": "{full-pcpus-only: true}",
    "reserved_cpus": "0-1",
    "kube_reserved": "{cpu: 500m}",
    "system_reserved": "{cpu: 500m}",
    "feature_gates": "{CPUManagerPolicyAlphaOptions: true}",
    "topology_options": "{prefer-closest-numa-nodes: true}",
    "config_file": "/var/lib/kubelet/config.yaml",
    "state_dir": "/var/lib/pinfold",
    "cache_classes": "{fast: L3:ff0}",
    "log_dir": "/var/log/pinfold",
    "socket": "/run/pinfold/pinfold.sock",
    "socket_group": "pinfold",
    "preset": "laptop-4",
    "cri_socket": "/run/containerd/containerd.sock",
    "cgroup_root": "/",
    "listen": "127.0.0.1:9440",
    "allow_host": "[node-7.example]",
    "pod_resources_socket": "/run/pinfold/pod-resources.sock",
}
"""A value for each setting whose default is not a value itself."""
_INTRODUCTION: Final = """\
# Settings of `pinfold serve`. Written by: pinfold config sample
# Remove the # before a line to set it. A flag on the command line overrides this file.
# Check it with `pinfold config check`; `pinfold config show` prints what is in force and where it comes from.
# "At once" settings change with SIGHUP (systemctl reload pinfold), the others with the next start.
"""
_WIDTH: Final = 110


def format_sample() -> str:
    """Return the sample."""
    parts = [_INTRODUCTION]
    for title, rows in GROUPS.items():
        parts.append(f"\n### {title}\n")
        parts += ["\n".join((*_about(row), f"#{row.key}: {example(row)}\n")) for row in rows if row.name != OWN_FILE]
    return "\n".join(parts)


def example(row: Setting) -> str:
    """Return a value for a setting: its default, if that is a value.

    >>> from pinfold.settings.table import SETTINGS
    >>> example(SETTINGS["policy"]), example(SETTINGS["reserved_cpus"])
    ('static', '0-1')
    """
    return EXAMPLES.get(row.name, row.default)


def _about(row: Setting) -> Iterator[str]:
    allowed = f" One of {row.form[1:-1].replace(',', ', ')}." if row.form.startswith("{") else ""
    default = f" Default: {row.default}." if row.default else ""
    when = " At once." if row.name in RELOADED else ""
    said = f"{row.meaning[0].upper()}{row.meaning[1:]}.{allowed}{default}{when}"
    yield from textwrap.wrap(said, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
