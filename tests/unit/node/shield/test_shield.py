"""The shield on a host of files: what moves, what refuses, what comes back, and after which crash."""

from __future__ import annotations

import errno
import json
from itertools import count
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.shield import HostPlace, KeptCPUs, PlaceKind
from pinfold.errors import StateError
from pinfold.node.shield.host import Host
from tests.unit.node.shield.fake import KERNEL, ONLINE, FakeHost

if TYPE_CHECKING:
    from pathlib import Path


ROOM = KeptCPUs(CPUSet.parse("2-3"), ONLINE)
FREE = KeptCPUs(EMPTY, ONLINE)


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def test_everything_that_moves_leaves_kept_cpus_and_comes_back(host: FakeHost) -> None:
    before = host.where()
    assert "kernel thread 13 (migration/1)" not in before
    shield = host.shield()
    report = shield.apply(ROOM)
    assert set(host.where().values()) == {"0-1"}
    assert len(report.moved) == len(before)
    assert host.read("sys/devices/virtual/workqueue/cpumask") == "00000003"
    assert shield.has_changes
    shield.undo(ONLINE)
    assert host.where() == before
    assert not (host.state_dir / "shield.json").exists()


def test_cpus_come_back_one_container_after_the_other(host: FakeHost) -> None:
    shield = host.shield()
    shield.apply(ROOM)
    shield.apply(KeptCPUs(CPUSet.of(3), ONLINE))
    assert set(host.where().values()) == {"0-2"}


def test_a_dry_run_changes_and_writes_nothing(host: FakeHost) -> None:
    before = host.where()
    assert len(host.shield().plan(ROOM).shifts) == len(before)
    assert host.where() == before
    assert not list(host.state_dir.iterdir())


def test_groups_of_v2_are_set_at_the_top_and_inherit_again(host: FakeHost) -> None:
    host.v2("system.slice", "user.slice", "kubepods.slice")
    shield = host.shield()
    shield.apply(ROOM)
    assert host.read("sys/fs/cgroup/system.slice/cpuset.cpus") == "0-1"
    assert host.read("sys/fs/cgroup/kubepods.slice/cpuset.cpus") == ""
    shield.undo(ONLINE)
    assert host.read("sys/fs/cgroup/system.slice/cpuset.cpus") == ""


def test_groups_of_v1_leave_from_below_and_come_back_from_above(host: FakeHost) -> None:
    host.v1("system.slice", "system.slice/cron", "system.slice/cron/job", "pinfold")
    written: list[str] = []

    class Watched(Host):
        def write(self, place: HostPlace, cpus: CPUSet) -> None:
            written.append(place.id)
            super().write(place, cpus)

    shield = host.shield()
    shield.host = Watched(host.root, scheduler=host.scheduler)
    shield.apply(ROOM)
    shield.undo(ONLINE)
    groups = [name for name in written if name.startswith("system")]
    names = ["system.slice/cron/job", "system.slice/cron", "system.slice"]
    assert groups == [*names, *reversed(names)]
    assert host.read("sys/fs/cgroup/cpuset/pinfold/cpuset.cpus") == "0-3"


def test_systemd_sets_the_groups_where_it_rules(host: FakeHost, tmp_path: Path) -> None:
    host.v2("system.slice")
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    told = tmp_path / "told"
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(
        f'#!/bin/sh\necho "$*" >> {told}\nprintf 0-1 > {tmp_path}/sys/fs/cgroup/system.slice/cpuset.cpus\n'
    )
    systemctl.chmod(0o755)
    shield = host.shield(str(systemctl))
    shield.apply(ROOM)
    shield.undo(ONLINE)
    commands = [line.partition("-- ")[2] for line in told.read_text().splitlines()]
    assert commands == ["system.slice AllowedCPUs=0-1", "system.slice AllowedCPUs="]


def test_a_systemd_that_fails_is_reported(host: FakeHost, tmp_path: Path) -> None:
    host.v2("system.slice")
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    report = host.shield(str(tmp_path / "missing")).apply(ROOM)
    assert [str(one.place) for one in report.refused] == ["group system.slice"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EPERM], ids=["bound", "foreign"])
def test_what_refuses_is_reported_once_and_not_asked_again(host: FakeHost, number: int) -> None:
    host.scheduler.refuses[12] = number
    shield = host.shield()
    report = shield.apply(ROOM)
    assert [one.place.name for one in report.refused] == ["kswapd0"]
    assert "12" in report.refused[0].why
    assert shield.apply(ROOM) == ((), ())
    assert [one.place.name for one in shield.refused] == ["kswapd0"]
    assert "12:5" not in (host.state_dir / "shield.json").read_text()


def test_an_irq_that_refuses_but_is_served_elsewhere_is_not_reported(host: FakeHost) -> None:
    for number, served in ((24, "0"), (25, "3")):
        affinity = host.root / f"proc/irq/{number}/smp_affinity_list"
        host.write(f"proc/irq/{number}/effective_affinity_list", served)
        affinity.unlink()
        affinity.symlink_to("elsewhere")  # O_NOFOLLOW refuses it

    class Refusing(Host):
        def read(self) -> dict[HostPlace, CPUSet]:
            return super().read() | {HostPlace(PlaceKind.IRQ, number): ONLINE for number in ("24", "25")}

    shield = host.shield()
    shield.host = Refusing(host.root, scheduler=host.scheduler)
    assert [one.place.id for one in shield.apply(ROOM).refused] == ["25"]


def test_a_change_that_the_kernel_takes_and_does_not_keep_is_reported_and_not_repeated(host: FakeHost) -> None:
    written: list[str] = []

    class Deaf(Host):
        def write(self, place: HostPlace, cpus: CPUSet) -> None:
            written.append(place.key)
            if place.id != "24":
                super().write(place, cpus)

    shield = host.shield()
    shield.host = Deaf(host.root, scheduler=host.scheduler)
    assert [one.why for one in shield.apply(ROOM).refused] == ["IRQ 24 (eth24): it still has CPUs 0-3"]
    shield.apply(ROOM)
    assert written.count("IRQ/24") == 1


def test_processes_of_containers_without_groups_are_not_moved(host: FakeHost) -> None:
    host.members = [1]
    host.shield().apply(ROOM)
    assert host.scheduler.cpus[1] == ONLINE
    assert host.scheduler.cpus[12] == CPUSet.parse("0-1")


def test_processes_of_another_pinfold_are_not_moved(host: FakeHost) -> None:
    shield = host.shield()
    shield.apply(ROOM)
    host.thread(30, "app", 0, "0-1", start=2000)
    host.write("proc/30/environ", "HOME=/\0PINFOLD_CONTAINER=default_web/app\0")
    shield.undo(ONLINE)
    assert host.scheduler.cpus[30] == CPUSet.parse("0-1")
    assert host.scheduler.cpus[1] == ONLINE


def test_another_process_with_the_number_of_an_earlier_one_keeps_its_cpus(host: FakeHost) -> None:
    host.shield().apply(ROOM)
    host.thread(1, "other", 0, "0-1", start=99)
    host.shield().undo(ONLINE)
    assert host.scheduler.cpus[1] == CPUSet.parse("0-1")
    assert host.scheduler.cpus[12] == ONLINE


def test_a_process_started_by_a_moved_one_gets_its_cpus_back_too(host: FakeHost) -> None:
    shield = host.shield()
    host.thread(20, "before", 0, "0-1")
    shield.apply(ROOM)
    host.thread(21, "child", 0, "0-1", start=2000)
    shield.apply(KeptCPUs(CPUSet.of(3), ONLINE))
    assert host.scheduler.cpus[21] == CPUSet.parse("0-2")
    host.thread(22, "late child", 0, "0-2", start=3000)
    host.shield().undo(ONLINE)
    assert [str(host.scheduler.cpus[number]) for number in (20, 21, 22)] == ["0-1", "0-3", "0-3"]


def test_a_process_started_while_all_is_given_back_is_given_back_too(host: FakeHost) -> None:
    shield = host.shield()
    shield.apply(ROOM)

    class Forking(Host):
        def write(self, place: HostPlace, cpus: CPUSet) -> None:
            if place.id == "1:5":
                host.thread(30, "child", 0, str(host.scheduler.cpus[1]), start=4000)
            super().write(place, cpus)

    shield.host = Forking(host.root, scheduler=host.scheduler)
    shield.undo(ONLINE)
    assert host.scheduler.cpus[30] == ONLINE
    assert not shield.has_changes


def test_a_moved_process_that_joins_a_container_gets_its_cpus_back_at_once(host: FakeHost) -> None:
    host.v1()
    shield = host.shield()
    shield.apply(ROOM)
    host.write("sys/fs/cgroup/cpuset/cgroup.procs", "12\n13")
    host.joined = {1: CPUSet.parse("0-1")}
    assert [str(shift.then) for shift in host.shield().plan(ROOM).shifts] == ["0-3"]  # also of the next daemon
    shield.apply(ROOM)
    assert host.scheduler.cpus[1] == ONLINE
    assert not shield.plan(ROOM).shifts


def test_a_child_of_a_moved_process_in_a_container_gets_the_cpus_of_its_group(host: FakeHost) -> None:
    host.v1()
    shield = host.shield()
    shield.apply(ROOM)
    for thread, cpus, start in ((20, "0-1", 2000), (21, "0", 2000), (22, "0-1", 5)):
        host.thread(thread, "sleep", 0, cpus, start=start)
    host.joined = dict.fromkeys((20, 21, 22), CPUSet.parse("0-1"))
    assert not shield.plan(ROOM).shifts  # it has all CPUs of its group
    host.joined = dict.fromkeys((20, 21, 22), CPUSet.parse("0-2"))
    shield.apply(KeptCPUs(CPUSet.of(3), ONLINE))
    assert [str(host.scheduler.cpus[thread]) for thread in (20, 21, 22)] == ["0-3", "0", "0-1"]


def test_a_child_of_a_moved_process_comes_back_before_its_container_gets_more_cpus(host: FakeHost) -> None:
    host.v1()
    shield = host.shield()
    shield.apply(ROOM)
    host.thread(20, "sleep", 0, "0-1", start=2000)
    host.joined = {20: CPUSet.parse("0-1")}
    shield.undo(ONLINE)
    assert host.scheduler.cpus[20] == ONLINE


def test_after_a_boot_the_file_means_nothing(host: FakeHost) -> None:
    host.shield(boot="then").apply(ROOM)
    host.scheduler.cpus[12] = CPUSet.of(1)
    host.shield(boot="now").undo(ONLINE)
    assert host.scheduler.cpus[12] == CPUSet.of(1)


class Crash(BaseException):
    """The daemon is killed."""


class Crashing(Host):
    """Dies at the write with this number, before or after it."""

    def __init__(self, fake: FakeHost, at: int, *, after: bool) -> None:
        super().__init__(fake.root, scheduler=fake.scheduler)
        self._left = at
        self._after = after

    def write(self, place: HostPlace, cpus: CPUSet) -> None:
        self._left -= 1
        if self._left < 0 and not self._after:
            raise Crash
        super().write(place, cpus)
        if self._left < 0:
            raise Crash


@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("groups", ["v1", "v2"])
def test_a_crash_at_any_write_is_undone_by_the_next_start(tmp_path: Path, groups: str, *, after: bool) -> None:
    for at in count():
        (tmp_path / str(at)).mkdir()
        fake = FakeHost(tmp_path / str(at))
        (fake.v1 if groups == "v1" else fake.v2)("system.slice", "user.slice")
        before = fake.where()
        shield = fake.shield()
        shield.host = Crashing(fake, at, after=after)
        try:
            shield.apply(ROOM)
            shield.apply(KeptCPUs(CPUSet.of(3), ONLINE))
            shield.undo(ONLINE)
        except Crash:
            fake.shield().undo(ONLINE)
            assert fake.where() == before, at
            assert not (fake.state_dir / "shield.json").exists()
        else:
            assert at >= 3 * len(before)
            return


@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
def test_a_crash_at_any_write_is_finished_by_the_next_start(tmp_path: Path, *, after: bool) -> None:
    for at in range(6):
        (tmp_path / str(at)).mkdir()
        fake = FakeHost(tmp_path / str(at))
        before = fake.where()
        shield = fake.shield()
        shield.host = Crashing(fake, at, after=after)
        with pytest.raises(Crash):
            shield.apply(ROOM)
        again = fake.shield()
        again.apply(ROOM)
        assert set(fake.where().values()) == {"0-1"}
        again.undo(ONLINE)
        assert fake.where() == before


def test_nothing_is_changed_that_cannot_be_written_down(host: FakeHost) -> None:
    before = host.where()
    (host.state_dir / "shield.json").mkdir()
    with pytest.raises(StateError, match="is a directory"):
        host.shield().apply(ROOM)
    assert host.where() == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"boot": "now"}',
        '{"boot": "now", "since": 0, "places": 3}',
        '{"boot": "now", "since": 0, "places": {"IRQ/24": ["0"]}}',
        '{"boot": "now", "since": 0, "places": {"IRQ/24": ["0", "0", "99999999"]}}',
        "\0" * 100,
        "[" * 100_000,
    ],
    ids=["empty", "half", "list", "no places", "number", "short", "large", "zeros", "deep"],
)
def test_a_damaged_file_is_kept_aside_and_reported_once(host: FakeHost, text: str) -> None:
    (host.state_dir / "shield.json").write_text(text)
    shield = host.shield()
    with pytest.raises(StateError, match=r"damaged.*kept as"):
        shield.undo(ONLINE)
    assert shield.undo(ONLINE) == ((), ())
    assert (host.state_dir / "shield.json.bad-1").read_text() == text


@pytest.mark.parametrize(
    "key", ["group/../../etc", "group/etc", "group//etc", "process/1:x", "IRQ/../default", "x/y", ""]
)
def test_a_file_with_foreign_keys_changes_nothing(host: FakeHost, key: str) -> None:
    before = host.where()
    places = {key: ["0-3", "0", "0"]}
    (host.state_dir / "shield.json").write_text(json.dumps({"boot": "now", "since": 0, "places": places}))
    host.shield().undo(ONLINE)
    assert host.where() == before


def test_files_with_garbage_are_left_alone(host: FakeHost) -> None:
    host.v2("system.slice")
    host.write("sys/fs/cgroup/system.slice/cpuset.cpus", "a lot of 9-1")
    host.write("proc/irq/24/smp_affinity_list", "-\0-")
    host.write("proc/irq/default_smp_affinity", "zz")
    host.write("proc/77/task/77/stat", "77 (a) b) S")
    host.write("sys/fs/cgroup/cgroup.procs", "1\n12\n77\n99999\n0")
    host.thread(12, ") R 1 (evil", KERNEL)
    host.shield().apply(ROOM)
    assert host.read("proc/irq/24/smp_affinity_list") == "-\0-"
    assert host.read("proc/irq/25/smp_affinity_list") == "0-1"
    assert host.scheduler.cpus[12] == CPUSet.parse("0-1")


def test_a_group_that_is_a_link_is_not_followed(host: FakeHost, tmp_path: Path) -> None:
    host.v2()
    host.write("elsewhere/cpuset.cpus", "0-3")
    (tmp_path / "sys/fs/cgroup/system.slice").symlink_to(tmp_path / "elsewhere")
    host.shield().apply(ROOM)
    assert host.read("elsewhere/cpuset.cpus") == "0-3"


def test_a_host_without_anything_is_fine(tmp_path: Path) -> None:
    shield_dir = tmp_path / "state"
    shield_dir.mkdir()
    assert Host(tmp_path / "nothing").read() == {}
    assert Host(tmp_path / "nothing").groups.kind == "no groups"
