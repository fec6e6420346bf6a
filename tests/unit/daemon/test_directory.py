"""The state directory: one daemon at a time, and no other user may write into it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pinfold.daemon.directory import AlreadyRunning, NotMade, NotOurs, StateDirectory, check_ours
from tests.unit.node.test_statefile import tmpfs

if TYPE_CHECKING:
    from pathlib import Path

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")


def test_a_directory_that_cannot_be_made_says_which_flag_names_another(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotMade) as caught, StateDirectory(tmp_path / "file/state"):
        pass
    assert str(caught.value) == (
        f"the state directory {tmp_path}/file/state cannot be made: Not a directory; name another one with --state-dir"
    )


def test_a_second_daemon_is_refused_and_the_first_is_named(tmp_path: Path) -> None:
    with (
        StateDirectory(tmp_path),
        pytest.raises(AlreadyRunning, match=f"process {os.getpid()}"),
        StateDirectory(tmp_path),
    ):
        pass
    with StateDirectory(tmp_path):
        pass


def test_a_daemon_that_was_killed_while_it_started_a_process_is_waited_for(tmp_path: Path) -> None:
    """Until that process runs its own program, it has the daemon's files, with their locks."""
    daemon = """
import os, sys, time
from pathlib import Path
from pinfold.daemon.directory import StateDirectory
with StateDirectory(Path(sys.argv[1])):
    if os.fork():
        os.kill(os.getpid(), 9)
    print("forked", flush=True)
    time.sleep(0.5)
    os.execlp("sleep", "sleep", "0")
"""
    killed = subprocess.Popen([sys.executable, "-c", daemon, tmp_path], stdout=subprocess.PIPE)
    assert killed.stdout is not None
    assert killed.stdout.readline() == b"forked\n"
    killed.wait()
    with StateDirectory(tmp_path):
        pass
    killed.communicate()


@NEEDS_ROOT
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(NotOurs, match="belongs to user 12345; change its owner to 0"), StateDirectory(tmp_path):
        pass


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777], ids=oct)
def test_a_directory_into_which_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(NotOurs, match=f"mode {mode:04o}.*chmod go-w"), StateDirectory(tmp_path):
        pass


def test_a_directory_that_others_may_only_read_is_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with StateDirectory(tmp_path):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("precious")
    (tmp_path / "lock").symlink_to(other)
    with pytest.raises(NotOurs, match="lock is a symbolic link; remove it"), StateDirectory(tmp_path):
        pass
    assert other.read_text() == "precious"


def test_a_read_only_disk_without_a_lock_file_is_used(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small") as directory:
        directory.chmod(0o700)
        subprocess.run(["mount", "-o", "remount,ro", str(directory)], check=True)
        with StateDirectory(directory):
            pass


def test_a_read_only_disk_with_a_lock_file_has_one_daemon(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small") as directory:
        directory.chmod(0o700)
        with StateDirectory(directory):
            pass
        subprocess.run(["mount", "-o", "remount,ro", str(directory)], check=True)
        with StateDirectory(directory), pytest.raises(AlreadyRunning), StateDirectory(directory):
            pass


@NEEDS_ROOT
def test_a_link_of_another_user_is_refused_although_what_it_leads_to_is_ours(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    with StateDirectory(tmp_path / "link"):
        pass
    os.chown(tmp_path / "link", 12345, -1, follow_symlinks=False)
    with pytest.raises(NotOurs, match="link belongs to user 12345"), StateDirectory(tmp_path / "link"):
        pass


@NEEDS_ROOT
def test_a_directory_for_output_of_another_user_is_refused_and_a_missing_one_is_fine(tmp_path: Path) -> None:
    check_ours("log", tmp_path / "missing")
    check_ours("log", tmp_path)
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(NotOurs, match=r"the log directory .* belongs to user 12345; change its owner to 0"):
        check_ours("log", tmp_path)
    os.chown(tmp_path, 0, -1)
    tmp_path.chmod(0o777)
    with pytest.raises(NotOurs, match=r"other users may write into the log directory .* \(mode 0777\)"):
        check_ours("log", tmp_path)
