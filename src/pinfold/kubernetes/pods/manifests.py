"""Manifests in a directory as a source of whole pods."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pinfold.errors import ParseError
from pinfold.node.podsource import PodDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pinfold.core.pods.pod import Pod
    from pinfold.formats.pods.runtime import RuntimePod
    from pinfold.kubernetes.pods.base import Found


class Manifests:
    """Reads manifests in another thread, those that have changed; they have names, and seldom UIDs."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._directory = PodDirectory(path)

    def is_there(self) -> bool:
        """Return whether the directory exists."""
        return self._path.is_dir()

    async def find(self, pods: Sequence[RuntimePod]) -> Found:
        """Return those of *pods* that have a manifest; if none has, raise the problems in reading them."""
        known, problems = await asyncio.to_thread(self._directory.read)
        found = {pod.id: whole for pod in pods if (whole := known.find(pod)) is not None}
        if problems and not found:
            raise ParseError("; ".join(problems))
        return found

    def known(self, _pod: RuntimePod) -> Pod | None:
        """Return None: files that have changed are read when a pod is asked for."""
        return None

    async def follow(self, failed: Callable[[str], object]) -> None:
        """Return: there is nothing to follow."""
