"""The container image, built by deploy/image/build: small, nothing but Python and pinfold, and it runs as any user."""

from __future__ import annotations

import json
import subprocess
import tarfile
from typing import TYPE_CHECKING, Any, Final

import pytest

import pinfold
from tests.e2e.image import needs_image

if TYPE_CHECKING:
    from pathlib import Path

SMALL: Final = 80_000_000

pytestmark = [pytest.mark.slow, needs_image]


def read(archive: Path, digest: str) -> Any:  # noqa: ANN401 - JSON of the image
    """Return a part of the image that is JSON."""
    with tarfile.open(archive) as parts:
        found = parts.extractfile(f"blobs/{digest.replace(':', '/')}" if ":" in digest else digest)
        assert found is not None
        return json.load(found)


def manifest(archive: Path) -> Any:  # noqa: ANN401 - JSON of the image
    return read(archive, read(archive, "index.json")["manifests"][0]["digest"])


def unpacked(archive: Path, directory: Path) -> Path:
    """Return the root directory of the image, from its only layer."""
    (layer,) = manifest(archive)["layers"]
    with tarfile.open(archive) as parts:
        parts.extract(f"blobs/{layer['digest'].replace(':', '/')}", directory, filter="data")
    root = directory / "root"
    root.mkdir()
    subprocess.run(["tar", "-C", root, "-xzf", directory / "blobs" / layer["digest"].replace(":", "/")], check=True)
    return root


def test_the_image_is_small_and_runs_pinfold_without_root_by_default(archive: Path) -> None:
    assert archive.stat().st_size < SMALL
    config = read(archive, manifest(archive)["config"]["digest"])["config"]
    assert (config["User"], config["Entrypoint"]) == ("65532:65532", ["/usr/local/bin/pinfold"])


def test_the_image_has_no_shell_no_package_manager_and_no_setuid_program_and_still_works(
    archive: Path, tmp_path: Path
) -> None:
    root = unpacked(archive, tmp_path)
    names = {path.name for path in (root / "usr/bin").iterdir()}
    assert not names & {"sh", "bash", "dash", "perl", "apt", "dpkg", "mount", "su"}
    assert not [
        path for path in root.rglob("*") if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o6000
    ]
    pods = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: app}]}\n"
    for arguments, expected in ((["--version"], pinfold.__version__), (["plan", "--preset", "laptop-4", "-"], "app")):
        command = ["chroot", "--userspec=65532:65532", str(root), "/usr/local/bin/pinfold", *arguments]
        done = subprocess.run(
            command, input=pods, env={"PATH": "/usr/sbin:/usr/bin"}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
