"""Workloads on the simulated machine: in which order containers start, when they start again, and how they end."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from pinfold.core.pods.pod import Container, Pod, PodUID
from tests.unit.manager.sources.test_supervisor import APP, REF, Clock, Host, on_a_clock
from tests.unit.manager.test_manager import TroubledLauncher

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.core.pods.pod import ContainerRef


def container(name: str, *, sidecar: bool = False) -> Container:
    return Container(name, sidecar=sidecar, command=("true",))


def pod_with(*init: Container, policy: str = "Always", name: str = "web") -> Pod:
    return Pod(PodUID("u"), name, init=init, containers=(container("app"),), restart_policy=policy)


def running(host: Host) -> set[str]:
    return {ref.name for ref in host.launcher.mains}


def ref(pod: Pod, name: str) -> ContainerRef:
    return next(pod.ref(found) for found in pod.all_containers if found.name == name)


async def end(host: Host, clock: Clock, ended: ContainerRef, code: int = 0) -> None:
    host.launcher.end(ended, code)
    await clock.leap(0)


def test_init_containers_run_one_after_the_other_before_all_others(tmp_path: Path) -> None:
    pod = pod_with(container("one"), container("two"))

    async def scenario(host: Host, clock: Clock) -> None:
        await host.loop.submit(pod)
        await clock.leap(0)
        for name in ("one", "two"):
            assert running(host) == {name}
            await end(host, clock, ref(pod, name))
        assert running(host) == {"app"}
        await host.loop.delete(pod.name)

    on_a_clock(tmp_path, scenario)


def test_an_init_container_that_fails_is_tried_again(tmp_path: Path) -> None:
    pod = pod_with(container("one"))

    async def scenario(host: Host, clock: Clock) -> None:
        await host.loop.submit(pod)
        await clock.leap(0)
        await end(host, clock, ref(pod, "one"), code=1)
        assert running(host) == set()
        await clock.leap(1.1)
        assert running(host) == {"one"}
        await host.loop.delete(pod.name)

    on_a_clock(tmp_path, scenario)


def test_a_pod_that_is_never_restarted_ends_with_its_failed_init_container(tmp_path: Path) -> None:
    pod = pod_with(container("one"), policy="Never")

    async def scenario(host: Host, clock: Clock) -> None:
        await host.loop.submit(pod)
        await clock.leap(0)
        await end(host, clock, ref(pod, "one"), code=1)
        assert host.workloads == {}
        assert [entry.fields["container"] for entry in host.node.told("started")] == ["one"]

    on_a_clock(tmp_path, scenario)


def test_a_sidecar_starts_first_and_ends_with_its_pod(tmp_path: Path) -> None:
    pod = pod_with(container("log", sidecar=True), policy="Never")

    async def scenario(host: Host, clock: Clock) -> None:
        await host.loop.submit(pod)
        await clock.leap(0)
        assert [entry.fields["container"] for entry in host.node.told("started")] == ["log", "app"]
        assert running(host) == {"log", "app"}
        await end(host, clock, ref(pod, "app"))
        assert running(host) == set()
        assert host.workloads == {}

    on_a_clock(tmp_path, scenario)


def test_on_failure_only_a_container_that_failed_starts_again(tmp_path: Path) -> None:
    pod = pod_with(policy="OnFailure")

    async def scenario(host: Host, clock: Clock) -> None:
        await host.loop.submit(pod)
        await clock.leap(0)
        await end(host, clock, ref(pod, "app"), code=1)
        await clock.leap(1.1)
        assert running(host) == {"app"}
        await end(host, clock, ref(pod, "app"), code=0)
        assert host.workloads == {}

    on_a_clock(tmp_path, scenario)


def test_a_container_whose_log_cannot_be_written_does_not_start_and_is_tried_again(tmp_path: Path) -> None:
    pod = pod_with()
    log = tmp_path / "default_web_app.log"
    log.mkdir()

    async def scenario(host: Host, clock: Clock) -> None:
        await host.loop.submit(pod)
        await clock.leap(0)
        (told,) = host.node.told("cannot-start")
        assert told.fields["why"] == f"{log}: Is a directory"
        assert host.node.roster.containers["u/app"].code == 126
        log.rmdir()
        await clock.leap(1.1)
        assert running(host) == {"app"}
        await host.loop.delete(pod.name)

    on_a_clock(tmp_path, scenario)


def logs(directory: Path) -> list[Path]:
    return list(directory.glob("*.log"))


def test_names_too_long_for_a_file_still_have_a_log_each(tmp_path: Path) -> None:
    pods = [Pod(PodUID(end), "x" * 240 + end, containers=(container("app"),)) for end in ("a", "b")]

    async def scenario(host: Host, clock: Clock) -> None:
        for pod in pods:
            await host.loop.submit(pod)
        await clock.leap(0)
        assert len(logs(tmp_path)) == 2
        for pod in pods:
            await host.loop.delete(pod.name)

    on_a_clock(tmp_path, scenario)


class StubbornLauncher(TroubledLauncher):
    """Its processes end by SIGKILL alone."""

    sent: tuple[signal.Signals, ...] = ()

    def signal(self, ref: ContainerRef, number: signal.Signals) -> None:
        self.sent += (number,)
        if number is signal.SIGKILL:
            super().signal(ref, number)


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        await host.loop.submit(APP)
        await clock.leap(0)
        await host.loop.delete(APP.name)
        assert isinstance(host.launcher, StubbornLauncher)
        assert host.launcher.sent == (signal.SIGTERM, signal.SIGKILL)
        assert REF not in host.launcher.mains

    on_a_clock(tmp_path, scenario, StubbornLauncher)
