"""ProcessLauncher by affinity, which needs no root: what cannot be started, whose a process is, what is found again."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import Limit, Wanted
from pinfold.node.processgroups.groups import choose
from pinfold.node.processgroups.joiner import Joiner
from pinfold.node.procfs import PROC
from pinfold.runtimes.base import LaunchError, Main, Start
from pinfold.runtimes.processes.applier import ProcessApplier
from pinfold.runtimes.processes.launcher import ProcessLauncher
from pinfold.runtimes.processes.pids import OutOfFiles
from tests.e2e.test_hostile import frozen, needs_freezer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

REF = ContainerRef(PodUID("u"), "app")


def launching(directory: Path, scenario: Callable[[ProcessLauncher], Coroutine[None, None, None]]) -> None:
    """Play a scenario with one container in the shared pool; what runs is ended."""

    async def play() -> None:
        cpus = PROC.allowed(os.getpid())
        applier = ProcessApplier(choose("affinity", name=f"pinfold-test-{uuid.uuid4().hex[:12]}"), directory)
        applier.prepare(cpus)
        applier.apply(Wanted(cpus, {}, {REF: Limit()}))
        launcher = ProcessLauncher(applier)
        try:
            await scenario(launcher)
        finally:
            await launcher.clear([REF], 20)
            applier.vacate(REF)

    asyncio.run(play())


async def spawn(launcher: ProcessLauncher, *command: str, directory: str = "") -> int:
    return await launcher.spawn(REF, Start(command, dict(os.environ), directory), lambda: Path(os.devnull).open("wb"))


@pytest.mark.parametrize(
    ("command", "code"), [("/nowhere/to/be/found", 127), ("/", 126)], ids=["missing", "a directory"]
)
def test_a_command_that_cannot_be_run_is_named_and_has_the_code_of_a_shell(
    tmp_path: Path, command: str, code: int
) -> None:
    async def scenario(launcher: ProcessLauncher) -> None:
        with pytest.raises(LaunchError, match=command) as refused:
            await spawn(launcher, command)
        assert refused.value.code == code
        assert REF not in launcher.mains

    launching(tmp_path, scenario)


class Left:
    """A group that is removed while a process is about to join it."""

    def places(self) -> list[Path]:
        return [Path("/gone")]

    def environment(self) -> dict[str, str]:
        return {}

    def joiner(self) -> Joiner:
        joiner = Joiner(PROC.allowed(os.getpid()))
        joiner.files.append(os.open("/dev/full", os.O_WRONLY))
        return joiner


def test_a_container_that_changes_groups_while_it_starts_is_started_in_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(launcher: ProcessLauncher) -> None:
        groups = launcher._groups  # noqa: SLF001 - no other way to change groups at that instant
        looks, group = [Left(), Left()], groups.group
        monkeypatch.setattr(groups, "group", lambda ref: looks.pop() if looks else group(ref))
        pid = await spawn(launcher, "sleep", "60")
        assert (looks, launcher.mains[REF].pid) == ([], pid)

    launching(tmp_path, scenario)


def test_a_directory_that_is_missing_is_named_instead_of_the_command(tmp_path: Path) -> None:
    async def scenario(launcher: ProcessLauncher) -> None:
        with pytest.raises(LaunchError, match="/nowhere: No such file"):
            await spawn(launcher, "true", directory="/nowhere")

    launching(tmp_path, scenario)


def test_a_process_belongs_to_the_container_that_it_was_started_for(tmp_path: Path) -> None:
    async def scenario(launcher: ProcessLauncher) -> None:
        pid = await spawn(launcher, "sleep", "60")
        assert launcher.holder(pid) == REF
        assert launcher.is_ours(os.getpid())
        assert launcher.holder(1) is None

    launching(tmp_path, scenario)


def test_a_process_of_before_is_found_again_only_if_it_is_the_same(tmp_path: Path) -> None:
    async def scenario(launcher: ProcessLauncher) -> None:
        pid = await spawn(launcher, "sleep", "60")
        main = launcher.mains[REF]
        assert main.pid == pid
        assert not launcher.find_again(REF, Main(pid, main.started - 1))
        assert not launcher.find_again(REF, Main((1 << 22) - 1, 1))

    launching(tmp_path, scenario)


@pytest.mark.parametrize("known", [True, False], ids=["by its number", "by its group"])
def test_a_process_of_before_is_not_forgotten_when_no_file_is_left_to_look_at_it(
    tmp_path: Path, *, known: bool
) -> None:
    async def scenario(launcher: ProcessLauncher) -> None:
        await spawn(launcher, "sleep", "60")
        main, (soft, hard) = launcher.mains[REF], resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            with pytest.raises(OutOfFiles, match="cannot be watched"):
                launcher.find_again(REF, main if known else None)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    launching(tmp_path, scenario)


@needs_freezer
def test_a_process_that_was_killed_and_has_not_ended_yet_is_not_found_again(tmp_path: Path) -> None:
    async def scenario(launcher: ProcessLauncher) -> None:
        pid = await spawn(launcher, "sleep", "60")
        main = launcher.mains[REF]
        with frozen(pid):
            os.kill(pid, signal.SIGKILL)
            assert not launcher.find_again(REF, main)
            assert not launcher.find_again(REF, None)
        assert await launcher.gone([REF], within=20)

    launching(tmp_path, scenario)


def test_waiting_for_a_process_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    async def scenario(launcher: ProcessLauncher) -> None:
        await spawn(launcher, "sleep", "60")
        assert not await launcher.gone([REF], within=0.01)

    launching(tmp_path, scenario)
