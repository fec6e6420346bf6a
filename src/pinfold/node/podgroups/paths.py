"""Where the groups of Kubernetes pods are: the paths that a runtime, a kubelet or /proc names, as parts of a path.

    cgroupfs driver   /kubepods/burstable/podUID/ID
    systemd driver    kubepods-burstable-podUID.slice:cri-containerd:ID, which is
                      kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope

Both can be below another group (a kubelet's --cgroup-root). Knows only names, no files. Every path comes from outside:
one that could lead out of the hierarchy is an error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pinfold.errors import excerpt
from pinfold.node.grouperrors import GroupError

if TYPE_CHECKING:
    from collections.abc import Sequence

BURSTABLE: Final = "burstable"
BESTEFFORT: Final = "besteffort"
POOLED: Final = (BURSTABLE, BESTEFFORT)
"""The QoS classes that have a group of their own; Guaranteed pods are directly below kubepods."""

Parts = tuple[str, ...]
"""The components of a path below the root of a hierarchy."""

_KUBEPODS: Final = "kubepods"
_SLICE: Final = ".slice"
_SCOPE: Final = ".scope"
_ROOT_SLICE: Final = "-.slice"
_SYSTEM_SLICE: Final = "system.slice"
_OCI_FIELDS: Final = 3
_MAX_COMPONENT: Final = 255
_MAX_PATH: Final = 4095
_MAX_MEMBERSHIP: Final = 16 * _MAX_PATH
"""The kernel tells of at most 14 hierarchies."""
# The characters of a unit's name; a group with others is not systemd's, and not a safe argument for systemctl.
_UNIT: Final = re.compile(r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]*\.(?:slice|scope)")


class GroupPathError(GroupError):
    """A path that is not the name of a group."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"cgroup path {excerpt(path)}: {why}")
        self.path = path
        self.why = why


class NotInAPodError(GroupError):
    """A group that is not a pod's or a container's: pinfold does not change it."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: is not the group of a {what} below kubepods")
        self.path = path


def parse_absolute(path: str) -> Parts:
    """Return the components of a path that begins with "/".

    >>> parse_absolute("/kubepods/pod1/app")
    ('kubepods', 'pod1', 'app')
    >>> parse_absolute("/kubepods/../system.slice")
    Traceback (most recent call last):
    pinfold.node.podgroups.paths.GroupPathError: cgroup path "/kubepods/../system.slice": ".." is not allowed in it
    """
    if not path.startswith("/"):
        raise GroupPathError(path, 'does not begin with "/"')
    _check_length(path)
    return _checked(path, path[1:].split("/"))


def parse_cgroups_path(path: str) -> Parts:
    """Return where a container with this cgroupsPath (OCI runtime specification) has its group, in either form.

    >>> parse_cgroups_path("kubepods-pod1.slice:cri-containerd:app")
    ('kubepods.slice', 'kubepods-pod1.slice', 'cri-containerd-app.scope')
    """
    if path.startswith("/"):
        return parse_absolute(path)
    _check_length(path)
    fields = path.split(":")
    if len(fields) != _OCI_FIELDS or not fields[2]:
        raise GroupPathError(path, "expected /PATH, or SLICE:PREFIX:NAME for the systemd cgroup driver")
    parent, prefix, name = fields
    unit = name if name.endswith(_SLICE) else f"{f'{prefix}-' if prefix else ''}{name}{_SCOPE}"
    return _checked(path, [*expand_slice(parent or _SYSTEM_SLICE), unit])


def parse_cgroup_parent(path: str) -> Parts:
    """Return where a pod with this cgroup parent has its group: an absolute path, or a slice by its name alone.

    >>> parse_cgroup_parent("kubepods-burstable-pod1.slice")
    ('kubepods.slice', 'kubepods-burstable.slice', 'kubepods-burstable-pod1.slice')
    """
    if path.startswith("/"):
        return parse_absolute(path)
    return _checked(path, expand_slice(path))


def expand_slice(unit: str) -> Parts:
    """Return the slices from the top down to this one: each "-" in its name is one level.

    >>> expand_slice("a-b.slice")
    ('a.slice', 'a-b.slice')
    """
    if unit == _ROOT_SLICE:
        return ()
    _check_length(unit)
    name = unit.removesuffix(_SLICE)
    levels = name.split("-")
    if name == unit or not all(levels) or "/" in name:
        raise GroupPathError(unit, 'is not a slice of systemd: expected NAME.slice or NAME-NAME.slice, without "/"')
    if len(unit) > _MAX_COMPONENT:
        raise GroupPathError(unit, f"a name longer than {_MAX_COMPONENT} bytes is not allowed in it")
    return tuple(f"{'-'.join(levels[: depth + 1])}{_SLICE}" for depth in range(len(levels)))


def parse_membership(text: str, *, unified: bool) -> Parts | None:
    """Return the group that /proc/PID/cgroup says a process is in: cgroup v2's, or v1's of the cpuset controller.

    None if there is no such line, or the group is the top one.
    """
    if len(text) > _MAX_MEMBERSHIP:
        raise GroupPathError(text, f"{len(text):,} characters; {_MAX_MEMBERSHIP:,} are allowed")
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if (number == "0" and not controllers) if unified else "cpuset" in controllers.split(","):
            if path.startswith("/.."):
                raise GroupPathError(path, "is outside of our cgroup namespace; run in that of the host")
            return None if path in {"", "/"} else parse_absolute(path.removesuffix(" (deleted)"))
    return None


def is_kubepods(name: str) -> bool:
    """Whether a group of this name holds all pods of a kubelet.

    >>> [is_kubepods(name) for name in ("kubepods", "kubepods.slice", "kubelet-kubepods.slice", "kubepods-x.slice")]
    [True, True, True, False]
    """
    return name in {_KUBEPODS, f"{_KUBEPODS}{_SLICE}"} or name.endswith(f"-{_KUBEPODS}{_SLICE}")


def qos_name(kubepods: str, qos: str) -> str:
    """Return the name of the group below *kubepods* that holds the pods of a class.

    >>> qos_name("kubepods", "burstable"), qos_name("kubepods.slice", "burstable")
    ('burstable', 'kubepods-burstable.slice')
    """
    return f"{kubepods.removesuffix(_SLICE)}-{qos}{_SLICE}" if kubepods.endswith(_SLICE) else qos


def pod_depth(parts: Sequence[str]) -> int | None:
    """Return how many components the path of the group's pod has; None if the group is not a pod or in one.

    >>> pod_depth(("kubepods", "burstable", "pod1", "app")), pod_depth(("kubepods", "pod1")), pod_depth(("a", "pod1"))
    (3, 2, None)
    """
    top = next((depth for depth, name in enumerate(parts) if is_kubepods(name)), None)
    if top is None:
        return None
    classes = {qos_name(parts[top], qos) for qos in POOLED}
    depth = top + 2 if len(parts) > top + 1 and parts[top + 1] in classes else top + 1
    return depth + 1 if depth < len(parts) and is_pod(parts[depth - 1], parts[depth]) else None


def is_pod(above: str, name: str) -> bool:
    """Whether a group of this name, below kubepods or the group of a class, is a pod's.

    >>> is_pod("burstable", "pod1"), is_pod("kubepods.slice", "kubepods-pod1.slice"), is_pod("kubepods", "burstable")
    (True, True, False)
    """
    prefix, suffix = (f"{above.removesuffix(_SLICE)}-pod", _SLICE) if above.endswith(_SLICE) else ("pod", "")
    return name.startswith(prefix) and name.endswith(suffix) and len(name) > len(prefix) + len(suffix)


def is_pooled(parts: Sequence[str]) -> bool:
    """Whether the group is below burstable or besteffort, so that it can only have CPUs of the shared pool."""
    top = next((depth for depth, name in enumerate(parts) if is_kubepods(name)), len(parts))
    return len(parts) > top + 1 and parts[top + 1] in {qos_name(parts[top], qos) for qos in POOLED}


def unit_of(name: str) -> str | None:
    """Return the unit of systemd that has this name for its group; None if no unit can.

    >>> unit_of("kubepods.slice"), unit_of("kubepods"), unit_of("-x*.slice")
    ('kubepods.slice', None, None)
    """
    return name if _UNIT.fullmatch(name) else None


def _check_length(path: str) -> None:
    """Raise if a path is longer than the kernel allows, before any other work is done with it."""
    if len(path) > _MAX_PATH + 1:
        raise GroupPathError(path, f"up to {_MAX_PATH} bytes are allowed")


def _checked(path: str, parts: Sequence[str]) -> Parts:
    for part in parts:
        if part in {"", ".", ".."}:
            raise GroupPathError(path, f'"{part}" is not allowed in it' if part else "has an empty name in it")
        if not part.isprintable() or "/" in part:
            raise GroupPathError(path, "an unprintable character is not allowed in it")
        if len(part.encode()) > _MAX_COMPONENT:
            raise GroupPathError(path, f"a name longer than {_MAX_COMPONENT} bytes is not allowed in it")
    if not parts or sum(len(part) + 1 for part in parts) > _MAX_PATH:
        raise GroupPathError(path, f"up to {_MAX_PATH} bytes are allowed" if parts else "names no group")
    return tuple(parts)
