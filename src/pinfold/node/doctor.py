"""What a host offers pinfold and what it lacks, each with its fix; read through a root directory, changes nothing."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_SOCKETS: Final = ("var/run/nri/nri.sock", "run/containerd/containerd.sock", "run/crio/crio.sock")
_KUBELET: Final = "var/lib/kubelet/config.yaml"
_POLICY: Final = re.compile(r"^\s*\"?cpuManagerPolicy\"?\s*:\s*\"?(\w+)", re.MULTILINE)
_THROTTLED: Final = re.compile(r"^nr_throttled (\d+)", re.MULTILINE)


class Health(StrEnum):
    """How good a finding is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    """One line about the host, and what to do if it is not ok."""

    health: Health
    what: str
    fix: str = ""


def examine(root: Path, uid: int) -> Iterator[Finding]:
    """Yield the findings about the host below *root*, for a daemon of the user *uid*."""
    for check in _CHECKS:
        yield from check(root)
    if uid == 0:
        yield Finding(Health.OK, "permission: root, so the daemon can make cgroups")
    else:
        what = f"permission: user {uid} may not make cgroups, so the daemon uses affinity only"
        yield Finding(Health.WARN, what, "start the daemon as root")


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _cgroups(root: Path) -> Iterator[Finding]:
    top = root / "sys/fs/cgroup"
    controllers = _text(top / "cgroup.controllers").split()
    if {"cpuset", "cpu"} <= set(controllers):
        yield Finding(Health.OK, f"cgroups: version 2, with {', '.join(controllers)}")
    elif (top / "cpuset").is_dir():
        fix = "boot with systemd.unified_cgroup_hierarchy=1 for version 2"
        yield Finding(Health.WARN, "cgroups: version 1, with cpuset; Kubernetes no longer develops for it", fix)
    else:
        fix = "mount cgroup2 at /sys/fs/cgroup, and do not disable cpuset at boot"
        yield Finding(Health.FAIL, "cgroups: no controller cpuset, so only affinity is possible", fix)


def _throttling(root: Path) -> Iterator[Finding]:
    top = root / "sys/fs/cgroup"
    files = [path for level in ("*", "*/*") for path in top.glob(f"{level}/cpu.stat")]
    throttled = [path.parent for path in files if any(map(int, _THROTTLED.findall(_text(path))))]
    if throttled:
        named = ", ".join(str(path.relative_to(top)) for path in throttled[:3])
        what = f"throttling: {len(throttled)} cgroups have been held back by their CPU limit, e.g. {named}"
        yield Finding(Health.WARN, what, "give containers that need low latency CPUs of their own, or no limit")
    else:
        yield Finding(Health.OK, "throttling: no cgroup has been held back by its CPU limit")


def _runtimes(root: Path) -> Iterator[Finding]:
    found = ", ".join(f"/{name}" for name in _SOCKETS if (root / name).exists())
    yield Finding(Health.OK, f"container runtime: {found or 'none found, so pinfold runs plain processes'}")


def _kubelet(root: Path) -> Iterator[Finding]:
    text = _text(root / _KUBELET)
    policy = found[1] if (found := _POLICY.search(text)) else "none"
    if text and policy != "none":
        fix = "set cpuManagerPolicy to none before pinfold takes over: docs/how-to/kubernetes.md"
        yield Finding(Health.WARN, f"kubelet: its own CPU Manager has policy {policy}", fix)
    else:
        yield Finding(Health.OK, f"kubelet: {'CPU Manager has policy none' if text else f'no /{_KUBELET}'}")


def _systemd(root: Path) -> Iterator[Finding]:
    runs = (root / "run/systemd/system").is_dir()
    yield Finding(Health.OK, f"systemd: {'it manages this host' if runs else 'not here'}")


def _isolated(root: Path) -> Iterator[Finding]:
    cpus = _text(root / "sys/devices/system/cpu/isolated")
    if cpus:
        what = f"isolated CPUs: {cpus}; the kernel does not spread shared processes over these"
        yield Finding(Health.WARN, what, "use them for exclusive containers alone: option prefer-isolated-cpus")
    else:
        yield Finding(Health.OK, "isolated CPUs: none")


def _resctrl(root: Path) -> Iterator[Finding]:
    if (root / "sys/fs/resctrl/schemata").exists():
        yield Finding(Health.OK, "resctrl: mounted")
    elif " cat_l3" in _text(root / "proc/cpuinfo"):
        fix = "mount -t resctrl resctrl /sys/fs/resctrl"
        yield Finding(Health.WARN, "resctrl: the CPU can divide its cache, but resctrl is not mounted", fix)
    else:
        yield Finding(Health.OK, "resctrl: the CPU does not offer to divide its cache")


_CHECKS: Final[tuple[Callable[[Path], Iterator[Finding]], ...]] = (
    _cgroups,
    _throttling,
    _runtimes,
    _kubelet,
    _systemd,
    _isolated,
    _resctrl,
)
