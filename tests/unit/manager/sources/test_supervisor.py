"""Supervisor on the simulated machine: what is lent, what comes back after a restart, and what cannot be ended."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import Amounts, PodUID, Resources
from pinfold.core.reconcile import Limit
from pinfold.manager.admitting import Refusal
from pinfold.manager.node import Node
from pinfold.manager.sources.kept import FILE, KeptWorkload, KeptWorkloads
from pinfold.manager.sources.resumption import Resumption
from pinfold.manager.sources.supervisor import Supervisor
from pinfold.manager.sources.workbook import PodExists, UnknownPod, Workbook
from pinfold.manager.sources.workloads import BEGUN, WorkloadKind
from pinfold.node.outputs.outputs import Outputs
from pinfold.node.processgroups.origin import Origin
from pinfold.runtimes.base import ApplyError, Main, StillRunning
from tests.now import now
from tests.property.strategies import pinned, pod_of
from tests.unit.manager.test_manager import ALL_OF_IT, MACHINE, ONE, Stand, TroubledLauncher

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from pinfold.core.pods.pod import Container, Pod
    from pinfold.core.reconcile import Wanted
    from pinfold.manager.sources.workloads import Workload

T = TypeVar("T")


# -- a clock that tests set


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time goes on by itself, and by leaps; threads are always done."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead

    def run_in_executor(self, _executor: object, func: Callable[..., T], *args: object) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - as a thread would
            done.set_exception(error)
        return done

    async def leap(self, seconds: float) -> None:
        """Let so much time pass at once, and see to what is due."""
        self.ahead += seconds
        for _ in range(10):
            await asyncio.sleep(0)


def limit_of(container: Container, period: int = 100_000, *, quota: bool = True) -> Limit:
    amounts = container.resources
    return Limit(amounts.requests.cpu or 0, amounts.limits.cpu if quota else None, period)


class Host:
    """A Supervisor with all that is around it."""

    def __init__(self, directory: Path, launcher: type[TroubledLauncher] = TroubledLauncher) -> None:
        self.node = Stand()
        self.node.roster.limit_by(limit_of)
        self.bus = self.node.bus
        self.launcher = launcher(self.node.applier)
        self.kept = KeptWorkloads(directory)
        self.here = Node(self.node.manager, self.node.roster, self.bus)
        workbook = Workbook(self.node.roster, self.launcher, self.kept, self.bus, Outputs(directory))
        self.loop = Supervisor(self.here, self.launcher, workbook, self.bus)

    @property
    def workloads(self) -> dict[PodUID, Workload]:
        return self.loop.workbook.workloads

    async def resume(self) -> None:
        await Resumption(self.loop, self.here, self.bus).resume(*self.kept.load())

    @property
    def shared(self) -> CPUSet:
        return self.node.manager.state.shared

    def told(self) -> list[str]:
        return [entry.what for entry in self.bus.after(0)]


def on_a_clock(
    directory: Path,
    scenario: Callable[[Host, Clock], Coroutine[None, None, None]],
    launcher: type[TroubledLauncher] = TroubledLauncher,
) -> None:
    clock = Clock()

    async def play() -> None:
        host = Host(directory, launcher)
        events = asyncio.create_task(host.loop.follow())
        await scenario(host, clock)
        events.cancel()

    with asyncio.Runner(loop_factory=lambda: clock) as runner:
        runner.run(play())


def with_command(pod: Pod) -> Pod:
    return replace(pod, containers=tuple(replace(container, command=("true",)) for container in pod.containers))


APP = with_command(ONE)
REF = APP.ref(APP.containers[0])


# -- names


def test_of_two_workloads_with_one_name_the_other_is_found_when_one_has_left(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        workbook = host.loop.workbook
        left = [workbook.new(replace(APP, uid=PodUID(uid)), WorkloadKind.FOUND) for uid in ("u1", "u2")]
        for workload in left:  # as a daemon that starts takes what an earlier one has left
            workbook.take(workload)
        assert workbook.find(APP.name, APP.namespace) is left[0]
        assert workbook.applied(APP) is None
        workbook.drop(left[0])
        assert workbook.find(APP.name, APP.namespace) is left[1]
        with pytest.raises(PodExists, match="there is a pod one already; delete it first, or choose another name"):
            workbook.check_new(APP)
        workbook.drop(left[1])
        workbook.check_new(APP)
        with pytest.raises(UnknownPod):
            workbook.find(APP.name, APP.namespace)

    on_a_clock(tmp_path, scenario)


# -- what is lent


@pytest.mark.parametrize("error", [ApplyError("no"), OSError("unheard of")], ids=["ours", "any other"])
def test_a_process_that_cannot_be_attached_leaves_no_reservation(tmp_path: Path, error: Exception) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        pod, _ = await host.loop.reserve("x", 1, kind=WorkloadKind.ADOPTED)
        host.node.applier.troubles["attach", pod.ref(pod.containers[0])] = error
        with pytest.raises(type(error)):
            await host.loop.attach(pod.uid, 12345)
        assert host.workloads == {}
        assert host.shared == MACHINE.online
        host.node.check()

    on_a_clock(tmp_path, scenario)


def test_an_adopted_process_is_given_back_when_its_pod_is_deleted(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        pod, _ = await host.loop.reserve("x", 1, kind=WorkloadKind.ADOPTED)
        await host.loop.attach(pod.uid, 12345)
        assert await host.loop.delete("x") == [12345]
        (told,) = (entry for entry in host.bus.after(0) if entry.what == "given-back")
        assert told.fields["pids"] == "12345"
        assert host.shared == MACHINE.online
        host.node.check()

    on_a_clock(tmp_path, scenario)


def test_a_command_of_run_is_not_lent(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        pod, _ = await host.loop.reserve("x", 1, kind=WorkloadKind.RUN)
        await host.loop.attach(pod.uid, 12345)
        assert await host.loop.delete("x") == []
        assert "given-back" not in host.told()

    on_a_clock(tmp_path, scenario)


# -- what cannot be ended


def test_what_cannot_be_ended_keeps_its_cpus_and_delays_no_other_pod(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        await host.loop.submit(APP)
        await clock.leap(0)
        pod, _ = await host.loop.reserve("x", 1)
        host.node.applier.troubles = dict.fromkeys(
            [("signal", REF), ("vacate", REF)], ApplyError("process 1 belongs to another user")
        )
        with pytest.raises(ApplyError, match="another user"):
            await host.loop.delete(APP.name)
        await host.loop.delete(pod.name)
        for _ in range(3):
            await host.here.settle()
        assert host.told().count("not-ended") == 1
        assert len(host.shared) == 7
        host.node.applier.troubles.clear()
        await host.here.settle()
        assert host.shared == MACHINE.online
        host.node.check()

    on_a_clock(tmp_path, scenario)


def test_processes_that_were_killed_get_a_moment_before_it_is_reported_once(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        await host.loop.submit(APP)
        await clock.leap(0)
        host.node.applier.troubles["vacate", REF] = StillRunning([1, 2])
        await host.loop.delete(APP.name)
        assert "not-ended" not in host.told()
        host.here.releases.clock = lambda: time.monotonic() + 2
        for pids in ([1, 2], [2]):
            host.node.applier.troubles["vacate", REF] = StillRunning(pids)
            await host.here.settle()
        assert host.told().count("not-ended") == 1

    on_a_clock(tmp_path, scenario)


def test_a_release_that_fails_again_and_again_is_reported_once(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        await host.loop.submit(APP)
        await clock.leap(0)
        host.node.applier.fail = "the disk is full"
        await host.loop.delete(APP.name)
        for _ in range(3):
            await host.here.settle()
        assert host.told().count("not-released") == 1
        host.node.applier.fail = None
        await host.here.settle()
        assert host.shared == MACHINE.online

    on_a_clock(tmp_path, scenario)


def test_of_a_pod_that_could_not_be_let_in_nothing_is_left(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        host.node.applier.late = True
        with pytest.raises(ApplyError, match="too late"):
            await host.loop.submit(APP)
        assert host.workloads == {}
        assert REF not in host.launcher.known
        host.node.check()

    on_a_clock(tmp_path, scenario)


def test_a_pod_that_could_not_be_applied_is_off_the_disk_before_its_client_hears_of_it(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        host.node.applier.late = True
        with pytest.raises(ApplyError, match="too late"):
            await host.loop.submit(APP)
        assert KeptWorkloads(tmp_path).load() == ([], None)

    on_a_clock(tmp_path, scenario)


def test_a_pod_is_on_the_disk_before_it_is_applied_and_a_refused_one_never(tmp_path: Path) -> None:
    """So an answer waits for the slower of State and workloads, not for one after the other."""

    async def scenario(host: Host, _clock: Clock) -> None:
        seen: list[str] = []
        apply = host.node.applier.apply

        def look_and_apply(want: Wanted) -> None:
            seen.extend(row.pod.name for row in KeptWorkloads(tmp_path).load()[0])
            apply(want)

        host.node.applier.apply = look_and_apply  # type: ignore[method-assign]  # it looks, and changes nothing
        refused = replace(with_command(ALL_OF_IT), name="too-large")
        found = await asyncio.gather(host.loop.submit(refused), host.loop.submit(APP), return_exceptions=True)
        assert [isinstance(one, Refusal) for one in found] == [True, False]
        assert {*seen} == {APP.name}

    on_a_clock(tmp_path, scenario)


def test_pods_that_come_together_have_their_answers_before_the_first_is_started(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        pods = [with_command(pod_of(pinned(1), uid=uid)) for uid in ("one", "two")]
        await asyncio.gather(*map(host.loop.submit, pods))
        assert not host.launcher.mains
        await clock.leap(0.0)
        assert {ref.pod for ref in host.launcher.mains} == {"one", "two"}

    on_a_clock(tmp_path, scenario)


def test_a_pod_that_is_deleted_before_it_is_started_never_runs(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        await host.loop.submit(APP)
        await host.loop.delete(APP.name)
        await clock.leap(0.0)
        assert "started" not in host.told()

    on_a_clock(tmp_path, scenario)


def test_a_pod_without_a_command_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        with pytest.raises(ApplyError, match="no command to run: one/app; pinfold starts commands of this host"):
            await host.loop.submit(ONE)
        assert host.workloads == {}

    on_a_clock(tmp_path, scenario)


def test_all_containers_without_a_command_are_named(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        pods = [replace(ONE, uid=PodUID(f"u{number}"), name=f"web-{number}") for number in range(10)]
        with pytest.raises(ApplyError, match=r"web-0/app, web-1/app, .*web-7/app and 2 more; "):
            host.loop.check([APP, *pods])

    on_a_clock(tmp_path, scenario)


def test_a_pod_with_more_annotations_than_kubernetes_allows_is_refused(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        large = replace(APP, annotations={"note": "x" * (256 << 10)})
        with pytest.raises(
            ApplyError, match=r"the annotations of pod .* have 262,148 bytes; Kubernetes allows 262,144"
        ):
            await host.loop.submit(large)
        assert host.workloads == {}

    on_a_clock(tmp_path, scenario)


def test_a_pod_whose_predecessor_has_not_ended_is_refused_until_it_has(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        await host.loop.submit(APP)
        await clock.leap(0)
        host.node.applier.troubles["vacate", REF] = ApplyError("process 1 does not end")
        await host.loop.delete(APP.name)
        with pytest.raises(PodExists, match="an earlier pod one has not ended yet; try again in a moment"):
            await host.loop.submit(APP)
        host.node.applier.troubles.clear()
        await host.loop.submit(APP)
        await host.loop.delete(APP.name)
        host.node.check()

    on_a_clock(tmp_path, scenario)


def test_a_pod_that_is_not_there_cannot_be_deleted(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        with pytest.raises(UnknownPod, match="there is no pod web in namespace default"):
            await host.loop.delete("web")

    on_a_clock(tmp_path, scenario)


def test_two_pods_cannot_have_the_same_uid(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        await host.loop.submit(APP)
        with pytest.raises(PodExists, match="pod one has the uid one already; delete it first"):
            await host.loop.submit(replace(APP, name="other"))
        await host.loop.delete(APP.name)

    on_a_clock(tmp_path, scenario)


def test_a_list_of_workloads_that_cannot_be_written_is_told_and_the_pod_runs_on(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        await host.loop.submit(APP)
        (tmp_path / FILE).unlink()
        (tmp_path / FILE).mkdir()
        await clock.leap(0)
        await clock.leap(0.1)
        assert "not-saved" in host.told()
        assert REF in host.launcher.mains
        (tmp_path / FILE).rmdir()
        await host.loop.delete(APP.name)

    on_a_clock(tmp_path, scenario)


def test_what_no_client_waits_for_is_written_soon_or_with_what_one_waits_for(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        await host.loop.submit(APP)
        await clock.leap(1)
        saves, done = host.loop.workbook.saves, host.workloads[APP.uid].done
        done[REF.name] = 3
        saves.save()
        await clock.leap(0.01)
        assert [row.done for row in host.kept.load()[0]] == [{}]
        await clock.leap(0.02)
        assert [row.done for row in host.kept.load()[0]] == [{REF.name: 3}]
        done[REF.name] = 4
        saves.save()
        await host.loop.reserve("x", 1)
        assert [row.done for row in host.kept.load()[0]] == [{REF.name: 4}, {}]

    on_a_clock(tmp_path, scenario)


# -- restarts of containers


def test_pauses_between_restarts_grow_until_a_container_has_run_for_ten_minutes(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        await host.loop.submit(APP)
        await clock.leap(0)
        container = f"{REF.pod}/{REF.name}"
        pauses = []
        for ran in (1, 1, 1, 599, 601, 1):
            await clock.leap(ran)
            host.launcher.end(REF)
            await clock.leap(0)
            pauses.append(0)
            while host.node.roster.containers[container].phase != "running":
                await clock.leap(0.5)
                pauses[-1] += 1
        assert [(pause + 1) // 2 for pause in pauses] == [1, 2, 4, 8, 1, 2]
        await host.loop.delete(APP.name)

    on_a_clock(tmp_path, scenario)


# -- restarts of the daemon


def test_a_pod_whose_cpus_are_in_no_file_gets_cpus_again(tmp_path: Path) -> None:
    now(KeptWorkloads(tmp_path).save([KeptWorkload(WorkloadKind.POD, APP)]))

    async def scenario(host: Host, _clock: Clock) -> None:
        await host.resume()
        assert len(host.node.manager.state.cpus(APP.uid, REF.name) or ()) == 1
        assert [entry.fields["pod"] for entry in host.node.told("assigned")] == [APP.name]
        assert "not-kept" not in host.told()
        host.node.check()
        await host.loop.leave()

    on_a_clock(tmp_path, scenario)


def test_a_pod_for_which_there_are_none_shares_and_that_is_told(tmp_path: Path) -> None:
    now(KeptWorkloads(tmp_path).save([KeptWorkload(WorkloadKind.POD, with_command(ALL_OF_IT))]))

    async def scenario(host: Host, _clock: Clock) -> None:
        await host.resume()
        (told,) = (entry for entry in host.bus.after(0) if entry.what == "not-kept")
        assert (told.fields["pod"], told.fields["container"]) == (ALL_OF_IT.name, "app")
        assert "not enough cpus" in str(told.fields["why"])
        assert host.node.roster.known_pods().keys() == {ALL_OF_IT.uid}
        host.node.check()
        await host.loop.leave()

    on_a_clock(tmp_path, scenario)


def test_what_a_pod_has_done_already_gets_no_cpus_again(tmp_path: Path) -> None:
    pod = with_command(replace(pod_of(pinned(1), uid="one"), restart_policy="Never"))
    now(KeptWorkloads(tmp_path).save([KeptWorkload(WorkloadKind.POD, pod, {}, {"app": 0})]))

    async def scenario(host: Host, _clock: Clock) -> None:
        await host.resume()
        assert host.shared == MACHINE.online
        await host.loop.leave()

    on_a_clock(tmp_path, scenario)


def test_where_a_lent_process_comes_from_is_written_down(tmp_path: Path) -> None:
    origin = Origin(("/user/1", "/"), CPUSet.parse("0-3"), {7: CPUSet.of(1)})
    kept = KeptWorkload(WorkloadKind.ADOPTED, APP, {"app": Main(5, 6)}, {}, {"app": origin})
    now(KeptWorkloads(tmp_path).save([kept]))
    (found,), problem = KeptWorkloads(tmp_path).load()
    assert (found.mains, found.origins, problem) == (kept.mains, kept.origins, None)


def test_after_a_reboot_no_process_is_taken_for_one_of_before(tmp_path: Path) -> None:
    kept = KeptWorkload(WorkloadKind.POD, APP, {"app": Main(5, 6)}, {"init": 0})
    now(KeptWorkloads(tmp_path, "one").save([kept]))
    assert KeptWorkloads(tmp_path, "one").load()[0][0].mains == {"app": Main(5, 6)}
    ((found,), problem) = KeptWorkloads(tmp_path, "two").load()
    assert (found.mains, found.done, problem) == ({"app": BEGUN}, {"init": 0}, None)


def test_a_list_from_before_boots_were_told_apart_is_read(tmp_path: Path) -> None:
    now(KeptWorkloads(tmp_path).save([KeptWorkload(WorkloadKind.POD, APP, {"app": Main(5, 6)})]))
    data = json.loads((tmp_path / FILE).read_text())
    del data["boot"]
    for row in data["workloads"]:
        del row["origins"], row["checksum"]
    (tmp_path / FILE).write_text(json.dumps(data))
    ((found,), problem) = KeptWorkloads(tmp_path).load()
    assert (found.mains, found.origins, problem) == ({"app": Main(5, 6)}, {}, None)


# -- other settings


def test_other_settings_of_the_quota_reach_what_runs(tmp_path: Path) -> None:
    half = replace(APP.containers[0], resources=Resources(limits=Amounts(cpu=500)))

    async def scenario(host: Host, _clock: Clock) -> None:
        await host.loop.submit(replace(APP, containers=(half,)))
        for period, quota in ((100_000, True), (20_000, True), (20_000, False)):
            host.node.roster.limit_by(partial(limit_of, period=period, quota=quota))
            await host.node.manager.decide(lambda state: state)
        limits = [want.sharing[REF] for want in host.node.applier.applied if REF in want.sharing]
        found = [(limit.quota, limit.period) for limit in limits]
        assert found == [(50_000, 100_000), (10_000, 20_000), (None, 20_000)]
        await host.loop.delete(APP.name)

    on_a_clock(tmp_path, scenario)


# -- what is reserved


def test_cpus_of_a_run_that_never_attached_are_shared_again(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        await host.loop.reserve("x", 1)
        assert len(host.shared) == 7
        await clock.leap(20)
        assert len(host.shared) == 7
        await clock.leap(20)
        assert host.shared == MACHINE.online
        assert host.workloads == {}
        assert "never-attached" in host.told()
        host.node.check()

    on_a_clock(tmp_path, scenario)


def test_cpus_of_a_process_that_was_attached_stay(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        pod, _ = await host.loop.reserve("x", 1)
        await host.loop.attach(pod.uid, 12345)
        await clock.leap(100)
        assert len(host.shared) == 7
        host.launcher.end(pod.ref(pod.containers[0]))
        await clock.leap(1)
        assert host.shared == MACHINE.online
        host.node.check()

    on_a_clock(tmp_path, scenario)


def test_a_reservation_is_not_given_up_for_an_earlier_one_of_its_name(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        pod, _ = await host.loop.reserve("x", 1)
        await host.loop.attach(pod.uid, 12345)
        host.launcher.end(pod.ref(pod.containers[0]))
        await clock.leap(25)
        await host.loop.reserve("x", 1)
        await clock.leap(10)
        assert len(host.shared) == 7
        assert "never-attached" not in host.told()

    on_a_clock(tmp_path, scenario)


def test_a_reservation_has_one_process_and_a_process_one_reservation(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        first, _ = await host.loop.reserve("x", 1)
        second, _ = await host.loop.reserve("y", 1)
        await host.loop.attach(first.uid, 12345)
        with pytest.raises(PodExists, match="pod x has its process already"):
            await host.loop.attach(first.uid, 54321)
        with pytest.raises(ApplyError, match="process 12345 is the main process of another container"):
            await host.loop.attach(second.uid, 12345)
        assert host.workloads.keys() == {first.uid}
        host.node.check()

    on_a_clock(tmp_path, scenario)


def test_a_process_cannot_be_attached_where_nothing_is_reserved(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        with pytest.raises(UnknownPod):
            await host.loop.attach(PodUID("run-x"), 12345)

    on_a_clock(tmp_path, scenario)


def test_a_name_can_be_used_again_when_its_owner_is_gone(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        await host.loop.reserve("x", 1)
        with pytest.raises(PodExists):
            await host.loop.reserve("x", 1)
        await host.loop.delete("x")
        await host.loop.reserve("x", 1)
        await host.loop.delete("x")
        assert host.shared == MACHINE.online
        host.node.check()

    on_a_clock(tmp_path, scenario)
