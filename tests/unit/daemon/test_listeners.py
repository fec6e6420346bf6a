"""Unix sockets to listen at: sockets in use are kept, sockets of ended processes are replaced."""

from __future__ import annotations

import os
import socket
import stat
from typing import TYPE_CHECKING

import pytest

from pinfold.daemon.listeners import SocketTaken, bind_unix
from pinfold.errors import ConfigError
from tests.needs import needs_root

if TYPE_CHECKING:
    from pathlib import Path

FLAG = "--socket"


def test_a_socket_can_be_used_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "s"
    bound = bind_unix(path, FLAG)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    bound.remove()
    assert not path.exists()
    bound.listener.close()


def test_the_group_of_a_socket_can_reach_it_in_a_directory_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "new" / "s"
    bound = bind_unix(path, FLAG, os.getegid())
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o710
    bound.listener.close()
    bind_unix(path, FLAG, os.getegid()).listener.close()


@needs_root
def test_a_directory_of_another_group_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    with pytest.raises(ConfigError, match=f"members cannot enter {tmp_path}, which belongs to group 0; name another"):
        bind_unix(tmp_path / "s", FLAG, 60)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o750


def test_a_socket_in_use_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as kubelet, socket.socket(socket.AF_UNIX) as client:
        kubelet.bind(str(path))
        kubelet.listen()
        with pytest.raises(SocketTaken, match=f"--socket: {path} is in use by another daemon or a kubelet") as taken:
            bind_unix(path, FLAG)
        assert taken.value.exit_code == 5
        client.connect(str(path))


def test_a_socket_of_a_busy_process_is_left_alone_too(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as client:
        busy.bind(str(path))
        busy.listen(0)
        client.connect(str(path))
        with pytest.raises(SocketTaken):
            bind_unix(path, FLAG)
        assert path.is_socket()


def test_a_socket_that_no_process_listens_at_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    bound = bind_unix(path, FLAG)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    bound.listener.close()


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="exists and is not a socket"):
        bind_unix(path, FLAG)
    assert path.read_text() == "mine"


def test_a_place_that_cannot_be_used_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=f"--socket: {tmp_path}/file/s: ") as refused:
        bind_unix(tmp_path / "file" / "s", FLAG)
    assert "\n" not in str(refused.value)


def test_the_socket_of_a_later_daemon_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    ours = bind_unix(path, FLAG)
    path.unlink()
    theirs = bind_unix(path, FLAG)
    ours.remove()
    assert path.is_socket()
    theirs.remove()
    assert not path.exists()
    theirs.remove()
    for bound in (ours, theirs):
        bound.listener.close()
