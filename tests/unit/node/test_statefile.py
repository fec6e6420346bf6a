"""The State's file on a real disk: whole at every instant, also when a step of writing fails."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import PodUID
from pinfold.core.state import State
from pinfold.formats.kubelet.checkpoint import format_checkpoint, parse_checkpoint
from pinfold.node.reserve import COUNT, DIRECTORY, SIZE, keep_reserve
from pinfold.node.statefile import MAX_FILE, StateFileError, leftover_of, read_state_file, write_atomically
from tests.needs import lacking, needs_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCE = Path(__file__).parents[3] / "src"
OLD, NEW = b"old", b"new" * 1000

# Writes one State after the other until it is killed, and a line after each.
WRITER = """
import sys
from pathlib import Path
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.state import State
from pinfold.formats.kubelet.checkpoint import format_checkpoint
from pinfold.node.statefile import write_atomically

for count in range(1, 100_000):
    pods = {f"pod-{index}": {"c": CPUSet.of(index)} for index in range(1 + count % 200)}
    write_atomically(Path(sys.argv[1]), format_checkpoint("static", State(CPUSet.of(0), pods)).encode())
    print(count, flush=True)
"""

# Writes more than this process may have in a file: the kernel takes a part of it, then refuses.
LIMITED = """
import resource, sys
from pathlib import Path
from pinfold.node.statefile import StateFileError, write_atomically

resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    write_atomically(Path(sys.argv[1]), b"x" * 10_000)
except StateFileError as error:
    print(error.cause)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cpu_manager_state"


def start(program: str, path: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True, env=environment
    )


@contextmanager
def tmpfs(directory: Path, size: str = "64k") -> Iterator[Path]:
    """A small file system of its own, where that is allowed."""
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        lacking("permission to mount")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def refused(path: Path, cause: str, data: bytes = NEW) -> None:
    """Assert that *data* cannot be written, and that nothing is left of it."""
    before = sorted(path.parent.iterdir()) if path.parent.is_dir() else None
    with pytest.raises(StateFileError) as caught:
        write_atomically(path, data)
    assert str(caught.value).startswith(f"{path}: not written; the old content is unchanged: ")
    assert cause in caught.value.cause
    assert (sorted(path.parent.iterdir()) if path.parent.is_dir() else None) == before


def test_the_content_is_replaced_and_nothing_else_is_left(path: Path) -> None:
    for data in (OLD, NEW, b""):
        write_atomically(path, data)
        assert path.read_bytes() == data
        assert list(path.parent.iterdir()) == [path]


def test_only_the_owner_may_read_and_write(path: Path) -> None:
    path.touch(0o644)
    write_atomically(path, NEW)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_reader_keeps_the_content_it_has_opened(path: Path) -> None:
    write_atomically(path, OLD)
    with path.open("rb") as reader:
        write_atomically(path, NEW)
        assert reader.read() == OLD


def test_what_a_crash_left_behind_is_removed_at_the_next_write(path: Path) -> None:
    leftover_of(path).write_bytes(b"half a st")
    write_atomically(path, NEW)
    assert list(path.parent.iterdir()) == [path]


def test_no_user_can_keep_us_from_writing_by_a_lock_on_the_directory(path: Path) -> None:
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        write_atomically(path, NEW)
    finally:
        os.close(directory)
    assert path.read_bytes() == NEW


def test_a_leftover_that_others_could_lock_is_replaced(path: Path) -> None:
    leftover = leftover_of(path)
    leftover.touch(0o644)
    with leftover.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        write_atomically(path, NEW)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("make", [lambda at: at.symlink_to("elsewhere"), os.mkfifo], ids=["link", "named pipe"])
def test_a_leftover_that_is_no_file_is_replaced_and_not_followed(path: Path, make: Callable[[Path], None]) -> None:
    make(leftover_of(path))
    write_atomically(path, NEW)
    assert list(path.parent.iterdir()) == [path]


def test_more_than_can_be_read_again_is_not_written(path: Path) -> None:
    write_atomically(path, OLD)
    refused(path, f"{MAX_FILE + 1:,} bytes; at most {MAX_FILE:,} can be read again", b" " * (MAX_FILE + 1))
    assert path.read_bytes() == OLD


def test_a_missing_directory_is_named(path: Path) -> None:
    refused(path.parent / "missing" / path.name, f"there is no directory {path.parent / 'missing'}; create it first")


def test_a_file_in_place_of_the_directory_is_refused(path: Path) -> None:
    path.parent.joinpath("file").touch()
    refused(path.parent / "file" / path.name, "Not a directory")


def test_a_directory_in_place_of_the_file_is_refused(path: Path) -> None:
    path.mkdir()
    refused(path, "it is a directory, not a file")
    assert path.is_dir()


def test_a_link_is_neither_followed_nor_replaced(path: Path) -> None:
    target = path.with_name("elsewhere")
    target.write_bytes(OLD)
    path.symlink_to(target)
    refused(path, "it is a symbolic link, not a file")
    assert path.is_symlink()
    assert target.read_bytes() == OLD


def test_a_named_pipe_is_refused_without_waiting_for_a_writer(path: Path) -> None:
    os.mkfifo(path)
    refused(path, "it is a named pipe, not a file")
    with pytest.raises(StateFileError, match="it is a named pipe, not a file"):
        read_state_file(path)


def test_a_name_that_no_file_can_have_is_refused(path: Path) -> None:
    refused(path.with_name("x" * 300), "File name too long")
    refused(path.with_name("x\0y"), "null")


def test_a_full_disk_leaves_the_old_content(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small") as directory:
        path = directory / "state"
        write_atomically(path, OLD)
        refused(path, "No space left on device", b"x" * 100_000)
        assert path.read_bytes() == OLD
        write_atomically(path, NEW)
        assert path.read_bytes() == NEW


def test_a_disk_without_room_for_another_file_leaves_the_old_content(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", size="64k,nr_inodes=2") as directory:
        path = directory / "state"
        path.write_bytes(OLD)
        refused(path, "No space left on device")
        assert path.read_bytes() == OLD


def test_a_read_only_disk_leaves_the_old_content(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small") as directory:
        path = directory / "state"
        write_atomically(path, OLD)
        subprocess.run(["mount", "-o", "remount,ro", str(directory)], check=True)
        refused(path, "Read-only file system")
        assert read_state_file(path) == OLD.decode()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_is_not_ours_leaves_the_old_content(path: Path) -> None:
    write_atomically(path, OLD)
    path.parent.chmod(0o500)
    try:
        refused(path, "Permission denied")
    finally:
        path.parent.chmod(0o700)
    assert path.read_bytes() == OLD


def test_a_write_that_stops_half_way_leaves_the_old_content(path: Path) -> None:
    write_atomically(path, OLD)
    output, _ = start(LIMITED, path).communicate(timeout=30)
    assert output == "File too large\n"
    assert path.read_bytes() == OLD
    assert list(path.parent.iterdir()) == [path]


def test_a_writer_killed_at_any_instant_leaves_a_whole_file(path: Path) -> None:
    for lines in range(1, 7):
        with start(WRITER, path) as writer:
            assert writer.stdout is not None
            for _ in range(lines):
                writer.stdout.readline()
            # Every other time in the middle of a write.
            while lines % 2 and not leftover_of(path).exists():
                assert writer.poll() is None
            writer.send_signal(signal.SIGKILL)
        assert_whole(path)
        assert set(path.parent.iterdir()) <= {path, leftover_of(path)}
    write_atomically(path, NEW)
    assert list(path.parent.iterdir()) == [path]


def test_a_reader_finds_a_whole_file_while_others_write(path: Path) -> None:
    write_atomically(path, format_checkpoint("static", State(CPUSet.of(0))).encode())
    writers = [start(WRITER, path) for _ in range(2)]
    try:
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        for _ in range(300):
            assert_whole(path)
        assert [writer.poll() for writer in writers] == [None, None]
    finally:
        for writer in writers:
            with writer:
                writer.kill()


def test_threads_write_one_after_the_other(path: Path) -> None:
    contents = [f"{index}".encode() * 5000 for index in range(8)]
    threads = [threading.Thread(target=write_atomically, args=(path, content)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert list(path.parent.iterdir()) == [path]


def assert_whole(path: Path) -> None:
    text = read_state_file(path)
    assert text is not None
    state = parse_checkpoint(text, policy="static")
    pods = [PodUID(f"pod-{index}") for index in range(len(state.assignments))]
    assert sorted(state.assignments) == sorted(pods)


def test_no_file_is_no_text(path: Path) -> None:
    assert read_state_file(path) is None
    assert read_state_file(path.parent / "missing" / "state") is None


def test_bytes_that_are_no_text_are_for_the_reader_to_judge(path: Path) -> None:
    path.write_bytes(b'{"policyName":"st\xff\xe2\x82"}')
    assert read_state_file(path) == '{"policyName":"st\udcff\udce2\udc82"}'


def test_a_file_too_large_to_be_a_state_is_not_read(path: Path) -> None:
    path.touch()
    os.truncate(path, MAX_FILE + 1)
    with pytest.raises(StateFileError, match="it has more than 16,777,216 bytes"):
        read_state_file(path)


def test_a_directory_or_a_link_is_not_read(path: Path) -> None:
    with pytest.raises(StateFileError, match="it is a directory, not a file"):
        read_state_file(path.parent)
    path.symlink_to(path.parent / "elsewhere")
    with pytest.raises(StateFileError, match="it is a symbolic link, not a file"):
        read_state_file(path)


def fill(path: Path) -> None:
    """Append to a file until the disk is full."""
    with suppress(OSError), path.open("ab", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass


@needs_root
def test_without_a_free_inode_the_reserve_is_given_up_for_the_state(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", size="16m,nr_inodes=40") as directory:
        path = directory / "state"
        path.write_bytes(OLD)
        keep_reserve(directory)
        with suppress(OSError):
            for number in range(40):
                (directory / f"filler{number}").touch()
        for data in (NEW, OLD, NEW):
            write_atomically(path, data)
            assert path.read_bytes() == data
            with suppress(OSError):
                (directory / f"next{len(list(directory.iterdir()))}").touch()  # takes the inode of the old content
        assert len(list((directory / DIRECTORY).iterdir())) == COUNT - 3


def test_on_a_full_disk_the_reserve_is_given_up_for_the_state(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", tmp_path], check=True)
    try:
        keep_reserve(tmp_path)
        fill(tmp_path / "filler")
        for number in range(COUNT):
            write_atomically(tmp_path / "state", b"y" * (SIZE - number))
            assert (tmp_path / "state").read_bytes() == b"y" * (SIZE - number)
            fill(tmp_path / "filler")
        with pytest.raises(StateFileError, match="No space left"):
            write_atomically(tmp_path / "state", b"z" * SIZE)
        assert (tmp_path / "state").stat().st_size == SIZE - COUNT + 1
        (tmp_path / "filler").unlink()
        keep_reserve(tmp_path)
        assert len(list((tmp_path / DIRECTORY).iterdir())) == COUNT
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)
