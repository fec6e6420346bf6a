"""Names of groups: a container as two path components, and as marks in the environment of its processes.

Every name of a pod or container becomes a path component that a cgroup file system takes, and can be read back.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

SHARED: Final = "shared"
EXCLUSIVE: Final = "exclusive"
CONTAINER_MARK: Final = "PINFOLD_CONTAINER"
GROUP_MARK: Final = "PINFOLD_GROUP"

_UNSAFE: Final = re.compile(rb"[^A-Za-z0-9._-]")
_ESCAPED: Final = re.compile(rb"%([0-9A-F]{2})")
# The kernel's own files stand beside our groups: cpu.max, cgroup.procs and, on v1, three without a dot.
_LIKE_A_FILE: Final = re.compile(rb"([a-z_]*)\.|(?=(?:tasks|notify_on_release|release_agent)$)")
_TREE: Final = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,200}")
_EMPTY: Final = "%"
_LONGEST: Final = 4095
"""Characters of the longest component; names come from environments of processes, which can be large."""
_MOST: Final = 4096
"""Names that are remembered: each check reads those of all containers."""


def encode(name: str) -> str:
    """Return *name* as one path component: percent-encoded where it is not made of letters, digits, ".", "_" and "-".

    Names that could be taken for a file of the kernel, "." and ".." are encoded too.

    >>> [encode(name) for name in ("web-1", "a/b", "..", "cpu.max", "tasks", "1.2")]
    ['web-1', 'a%2Fb', '%2E.', 'cpu%2Emax', '%74asks', '1.2']
    """
    raw = _UNSAFE.sub(_escape, name.encode("utf-8", "surrogatepass"))
    clash = _LIKE_A_FILE.match(raw)
    if clash:
        at = max(clash.end() - 1, 0)
        raw = raw[:at] + _escape(raw[at : at + 1]) + raw[at + 1 :]
    return raw.decode("ascii") or _EMPTY


@lru_cache(_MOST)
def decode(component: str) -> str | None:
    """Return the name that `encode` turns into *component*; None if no name does: pinfold did not make the group.

    >>> decode("a%2Fb"), decode("cpu.max")
    ('a/b', None)
    """
    if len(component) > _LONGEST:
        return None
    try:
        raw = b"" if component == _EMPTY else component.encode("ascii")
        name = _ESCAPED.sub(lambda match: bytes([int(match[1], 16)]), raw).decode("utf-8", "surrogatepass")
    except UnicodeError:
        return None
    return name if encode(name) == component else None


def checked_name(tree: str) -> str:
    """Return *tree* if it can be the name of our subtree, else raise."""
    if not _TREE.fullmatch(tree):
        raise ConfigError(
            f'"{encode(tree)}" cannot be the name of a group; '
            'use up to 200 letters, digits, "_", "-" and ".", and no "." as the first'
        )
    return tree


def show(ref: ContainerRef) -> str:
    """Return the container as "pod/container", encoded: printable, and the path of its group below its pool."""
    return f"{encode(ref.pod)}/{encode(ref.name)}"


def parse(text: str) -> ContainerRef | None:
    """Return the container that `show` writes as *text*, None if there is none.

    >>> parse("u1/a%2Fb")
    ContainerRef(pod='u1', name='a/b')
    """
    pod, slash, name = (decode(part) if part != "/" else part for part in text.partition("/"))
    return ContainerRef(PodUID(pod), name) if slash and pod is not None and name is not None else None


def marks(tree: str, ref: ContainerRef, *, exclusive: bool) -> dict[str, str]:
    """Return the environment variables that mark a process of the container; *tree* is the name of our subtree.

    >>> marks("pinfold", ContainerRef(PodUID("u1"), "app"), exclusive=True)
    {'PINFOLD_CONTAINER': 'u1/app', 'PINFOLD_GROUP': 'pinfold/exclusive'}
    """
    return {CONTAINER_MARK: show(ref), GROUP_MARK: f"{tree}/{EXCLUSIVE if exclusive else SHARED}"}


def read_marks(tree: str, environment: Iterable[bytes]) -> tuple[ContainerRef, bool] | None:
    """Return the container that an environment names, and whether it is exclusive; None if it names none of *tree*."""
    marked = [entry for entry in environment if entry.startswith(b"PINFOLD_")]
    if not marked:  # as most processes of a host
        return None
    found = dict(entry.partition(b"=")[::2] for entry in marked)
    ref = parse(found.get(CONTAINER_MARK.encode(), b"").decode("ascii", "replace"))
    name, _, kind = found.get(GROUP_MARK.encode(), b"").decode("utf-8", "replace").rpartition("/")
    return (ref, kind == EXCLUSIVE) if ref is not None and name == tree else None


def _escape(match: re.Match[bytes] | bytes) -> bytes:
    return b"%%%02X" % ord(match if isinstance(match, bytes) else match[0])
