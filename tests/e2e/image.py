"""Builds the container image as users do."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.needs import needs

_BUILD: Final = Path(__file__).resolve().parents[2] / "deploy/image/build"
_PATIENCE: Final = 1200
_BUILT: Final = "PINFOLD_IMAGE"
"""The variable that names an archive of this tree; without it one is built, which takes minutes."""

needs_image: Final = needs(
    "root, debootstrap and buildah", met=os.geteuid() == 0 and all(map(shutil.which, ("debootstrap", "buildah")))
)


def build_image(directory: Path) -> Path:
    """Return an OCI archive with the image `localhost/pinfold:latest`."""
    if built := os.environ.get(_BUILT):
        return Path(built)
    path = directory / "pinfold.tar"
    done = subprocess.run([_BUILD, path], capture_output=True, text=True, check=False, timeout=_PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return path
