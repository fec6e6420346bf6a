"""Register: daemons of one user know of each other, and no other user can keep them from it."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.node.processgroups.errors import GroupsHeldError
from pinfold.node.register import CPUsTakenError, Register, Registered

if TYPE_CHECKING:
    from pathlib import Path

CPUS = CPUSet.parse("1-3")


def test_a_name_is_taken_until_its_daemon_has_ended(tmp_path: Path) -> None:
    assert Register(tmp_path).enter("a")
    with pytest.raises(GroupsHeldError):
        Register(tmp_path).enter("a")
    assert Register(tmp_path).enter("b")
    child = os.fork()
    if not child:
        os._exit(0 if Register(tmp_path).enter("c") else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert Register(tmp_path).enter("c")


def test_daemons_see_each_others_cpus_and_not_those_that_have_ended(tmp_path: Path) -> None:
    one, other = Register(tmp_path), Register(tmp_path)
    one.enter("one")
    other.enter("other")
    other.tell(CPUS)
    (tmp_path / "ended.daemon").write_text("1 0-7\n")
    assert one.others() == [Registered("other", str(os.getpid()), CPUS)]
    assert not (tmp_path / "ended.daemon").exists()
    other.tell(CPUSet.of(2))
    assert one.others()[0].cpus == CPUSet.of(2)


def test_what_the_others_know_is_not_written_again(tmp_path: Path) -> None:
    register, file = Register(tmp_path), tmp_path / "one.daemon"
    register.enter("one")
    register.tell(CPUS)
    os.utime(file, (0, 0))
    register.tell(CPUS)
    assert file.stat().st_mtime == 0
    register.tell(EMPTY)
    assert file.stat().st_mtime > 0


@pytest.mark.parametrize("text", ["", "x", "1 0-", "1 \udcff"])
def test_a_file_that_says_nothing_useful_is_no_daemon(tmp_path: Path, text: str) -> None:
    other = Register(tmp_path)
    other.enter("other")
    (tmp_path / "other.daemon").write_text(text, errors="surrogateescape")
    assert all(not found.cpus for found in Register(tmp_path).others())


def test_a_directory_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert not Register(tmp_path).enter("a")
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_place_of_a_name_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir(mode=0o700)
    (tmp_path / "r/a.daemon").symlink_to(tmp_path / "elsewhere")
    assert not Register(tmp_path / "r").enter("a")
    assert not (tmp_path / "elsewhere").exists()


def test_a_name_that_another_program_has_as_an_abstract_socket_can_be_taken(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as squatter:
        squatter.bind(f"\0pinfold-{os.geteuid()}-a")
        assert Register(tmp_path).enter("a")


def test_a_daemon_that_can_give_cpus_of_another_away_is_refused_and_takes_none(tmp_path: Path) -> None:
    one, other, third = Register(tmp_path), Register(tmp_path), Register(tmp_path)
    one.enter("one")
    one.claim(CPUS)
    other.enter("other")
    with pytest.raises(CPUsTakenError, match=rf"process {os.getpid()}, groups one\) can give CPUs 3 to containers too"):
        other.claim(CPUSet.parse("3-5"))
    assert [found for found in one.others() if found.cpus] == []
    third.enter("third")
    third.claim(CPUSet.parse("4-5"))


def test_of_two_daemons_that_start_together_never_both_go_on(tmp_path: Path) -> None:
    registers = [Register(tmp_path) for _ in range(2)]
    for place, register in enumerate(registers):
        register.enter(f"daemon-{place}")
    for _ in range(5):

        def claims(register: Register) -> bool:
            try:
                register.claim(CPUS)
            except CPUsTakenError:
                return False
            return True

        with ThreadPoolExecutor() as pool:
            assert sum(pool.map(claims, registers)) <= 1
        for register in registers:
            register.tell(EMPTY)
