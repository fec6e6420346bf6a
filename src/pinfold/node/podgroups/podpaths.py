"""PodPaths: what the path of a group says: whether it is a pod's or a container's, and which groups are above it.

Computes and asks nothing: a path need not exist. `tree` knows which groups exist, `paths` how their names are made up.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pinfold.node.podgroups import paths
from pinfold.node.podgroups.paths import NotInAPodError

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper
    from pathlib import Path

_MOST: Final = 2048
_SPARE: Final = 64
_ASKED: Final = 32
"""So many paths are asked for again and again in one change."""


class PodPaths:
    """The paths of pods and containers below the *root* of a cgroup hierarchy."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # Each check asks for those of all pods and containers.
        self.container: _lru_cache_wrapper[Path] = lru_cache(_MOST)(self._container_at)
        """Returns the group of a container, by the cgroupsPath that its runtime has for it; it need not exist."""
        self.pod: _lru_cache_wrapper[Path] = lru_cache(_MOST)(self._pod_at)
        """Returns the group of a pod, by the cgroup parent that its sandbox was made with; it need not exist."""
        self.parts: _lru_cache_wrapper[paths.Parts] = lru_cache(_ASKED)(self._parts_of)
        """Returns the components of a group's path below the hierarchy; one that is not below it is an error."""

    def trim(self, pods: int, containers: int) -> None:
        """Forget all paths if most are of pods or containers that are gone; there are so many now."""
        for kept, there in ((self.pod, pods), (self.container, containers)):
            if kept.cache_info().currsize > 2 * there + _SPARE:
                kept.cache_clear()

    def _container_at(self, cgroups_path: str) -> Path:
        return self._container(paths.parse_cgroups_path(cgroups_path))

    def container_around(self, group: Path) -> Path | None:
        """Return the group of the container that *group* is, or is inside of; None if there is none."""
        parts = self.parts(group)
        depth = paths.pod_depth(parts)
        return None if depth is None or len(parts) == depth else self._container(parts)

    def _pod_at(self, cgroup_parent: str) -> Path:
        return self.checked_pod(self.parent(cgroup_parent))

    def parent(self, cgroup_parent: str) -> Path:
        """Return the group that a cgroup parent names, as a path or a slice."""
        return self._path(paths.parse_cgroup_parent(cgroup_parent))

    def checked_pod(self, group: Path) -> Path:
        """Return the group, if it is a pod's."""
        if self.levels(group) != 1:
            raise NotInAPodError(str(group), "pod")
        return group

    def checked_container(self, group: Path) -> Path:
        """Return the group, if it is a container's."""
        if self.levels(group) != 0:
            raise NotInAPodError(str(group), "pod's container")
        return group

    def checked(self, group: Path) -> Path:
        """Return the group, if it is a pod's or a container's."""
        return self.checked_pod(group) if self.levels(group) == 1 else self.checked_container(group)

    def is_pooled(self, group: Path) -> bool:
        """Whether the group is below that of all Burstable or of all BestEffort pods."""
        return paths.is_pooled(self.parts(group))

    def above(self, group: Path) -> list[Path]:
        """Return the groups above, from kubepods down to the one that *group* is in; none outside of kubepods."""
        above = group.parts[:-1]
        inside = range(len(self.root.parts), len(above)) if group.is_relative_to(self.root) else ()
        top = next((depth for depth in inside if paths.is_kubepods(above[depth])), len(above))
        return list(reversed(group.parents[: len(above) - top]))

    def levels(self, group: Path) -> int:
        """Return how many levels below the group the containers are: 0 if it is one, 2 if it is that of a class."""
        parts = self.parts(group)
        depth = paths.pod_depth(parts)
        return 2 if depth is None else 1 + depth - len(parts)

    def _parts_of(self, group: Path) -> paths.Parts:
        path = str(group)
        if not path.startswith(f"{self.root}/"):
            raise paths.GroupPathError(path, f"is not below {self.root}")
        return paths.parse_absolute(path.removeprefix(str(self.root)))

    def _path(self, parts: paths.Parts) -> Path:
        return self.root.joinpath(*parts)

    def _container(self, parts: paths.Parts) -> Path:
        depth = paths.pod_depth(parts)
        if depth is None or depth == len(parts):
            raise NotInAPodError(str(self._path(parts)), "pod's container")
        return self._path(parts[: depth + 1])
