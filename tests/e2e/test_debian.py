"""The Debian package, built by deploy/debian/build, in a clean Debian system: install, upgrade, remove, purge."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import pinfold
from pinfold.cli.main import VERBS
from tests.needs import needs

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).resolve().parents[2]
WALK: Final = Path(__file__).with_name("debian_walk.sh")
MIRROR: Final = "http://deb.debian.org/debian"
NEXT: Final = "99.0"
PATIENCE: Final = 900
MOST_EXPOSED: Final = 4.5

pytestmark = [
    pytest.mark.slow,
    needs(
        "root, debootstrap and dpkg-deb", met=os.geteuid() == 0 and all(map(shutil.which, ("debootstrap", "dpkg-deb")))
    ),
]


def run(*command: str | Path) -> str:
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("package")
    run(ROOT / "deploy/debian/build", directory)
    (package,) = directory.glob("pinfold_*.deb")
    return package


@pytest.fixture(scope="module")
def seen(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What is seen on the way through a clean Debian system."""
    place = tmp_path_factory.mktemp("debian")
    run("dpkg-deb", "--raw-extract", package, place / "next")
    control = place / "next/DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {pinfold.__version__}", f"Version: {NEXT}"))
    module = place / "next/usr/lib/pinfold/pinfold/__init__.py"
    module.write_text(module.read_text().replace(f'"{pinfold.__version__}"', f'"{NEXT}"'))
    run("dpkg-deb", "--root-owner-group", "-Znone", "--build", place / "next", place / "next.deb")
    run("debootstrap", "--variant=minbase", "--include=python3", "bookworm", place / "root", MIRROR)
    out = run("unshare", "--mount", "--pid", "--fork", WALK, place / "root", package, place / "next.deb")
    shutil.rmtree(place / "root")
    return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


def test_it_installs_in_a_clean_debian_and_works(seen: Mapping[str, str]) -> None:
    assert seen["installed"] == f"pinfold {pinfold.__version__}"
    assert "no problem" in seen["check"]
    assert seen["group"] == "pinfold"
    assert int(seen["manual"]) == len(VERBS) + 1


def test_members_of_the_group_may_use_the_daemon_and_others_may_not(seen: Mapping[str, str]) -> None:
    assert seen["socket"] == "root:pinfold:660"
    assert seen["member"] == "may"
    assert "permission denied; ask root or join group pinfold" in seen["stranger"]


def test_an_upgrade_leaves_workloads_daemon_and_settings_as_they_are(seen: Mapping[str, str]) -> None:
    assert seen["upgraded"] == f"pinfold {NEXT}"
    assert seen["kept"] == "listen: none"
    assert seen["own_after_upgrade"] == seen["own"] != seen["all"]
    assert seen["daemon_after_upgrade"] == "serves"


def test_removing_gives_all_cpus_back_and_workloads_keep_running(seen: Mapping[str, str]) -> None:
    assert seen["own_after_remove"] == seen["own_after_purge"] == seen["all"]
    assert seen["settings_after_remove"] == "kept"


def test_a_purge_leaves_nothing_behind(seen: Mapping[str, str]) -> None:
    assert seen["left"].strip() == ""
    assert seen["group_after_purge"] == "none"


def test_the_same_sources_give_the_same_package(package: Path, tmp_path: Path) -> None:
    run(ROOT / "deploy/debian/build", tmp_path)
    assert (tmp_path / package.name).read_bytes() == package.read_bytes()


@needs("systemd-analyze", met=bool(shutil.which("systemd-analyze")))
def test_the_service_is_hardened(package: Path, tmp_path: Path) -> None:
    run("dpkg-deb", "--extract", package, tmp_path)
    unit = tmp_path / "lib/systemd/system/pinfold.service"
    rating = run("systemd-analyze", "security", "--offline=true", "--no-pager", unit).splitlines()[-1]
    assert float(rating.partition(": ")[2].split()[0]) <= MOST_EXPOSED
