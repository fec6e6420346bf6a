"""Host on the simulated runtime: what is lent, what comes back after a restart, and what cannot be ended."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pinfold.core.cpuset import CPUSet
from pinfold.core.pods import Amounts, Resources
from pinfold.manager.kept import FILE, Kept, KeptWorkloads
from pinfold.manager.workloads import Kind
from pinfold.node.origin import Origin
from pinfold.runtimes.base import ApplyError, Main
from tests.property.strategies import pinned, pod_of
from tests.unit.manager.test_manager import ALL_OF_IT, MACHINE, ONE, Clock, Host, on_a_clock

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.core.pods import Pod


def with_command(pod: Pod) -> Pod:
    return replace(pod, containers=tuple(replace(container, command=("true",)) for container in pod.containers))


APP = with_command(ONE)
REF = APP.ref(APP.containers[0])


# -- what is lent


@pytest.mark.parametrize("error", [ApplyError("no"), OSError("unheard of")], ids=["ours", "any other"])
def test_a_process_that_cannot_be_attached_leaves_no_reservation(tmp_path: Path, error: Exception) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        pod, _ = host.loop.reserve("x", 1, kind=Kind.ADOPTED)
        host.node.runtime.troubles["attach", pod.ref(pod.containers[0])] = error
        with pytest.raises(type(error)):
            host.loop.attach(pod.uid, 12345)
        assert host.loop.workloads == {}
        assert host.shared == MACHINE.online
        host.node.check()

    on_a_clock(tmp_path, scenario)


def test_an_adopted_process_is_given_back_when_its_pod_is_deleted(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        pod, _ = host.loop.reserve("x", 1, kind=Kind.ADOPTED)
        host.loop.attach(pod.uid, 12345)
        assert await host.loop.delete("x") == [12345]
        (told,) = (entry for entry in host.notes.after(0) if entry.what == "given-back")
        assert told.fields["pids"] == "12345"
        assert host.shared == MACHINE.online
        host.node.check()

    on_a_clock(tmp_path, scenario)


def test_a_command_of_run_is_not_lent(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        pod, _ = host.loop.reserve("x", 1, kind=Kind.RUN)
        host.loop.attach(pod.uid, 12345)
        assert await host.loop.delete("x") == []
        assert "given-back" not in host.told()

    on_a_clock(tmp_path, scenario)


# -- what cannot be ended


def test_what_cannot_be_ended_keeps_its_cpus_and_holds_up_nobody_else(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        host.loop.submit(APP)
        await clock.leap(0)
        pod, _ = host.loop.reserve("x", 1)
        host.node.runtime.troubles = dict.fromkeys(
            [("signal", REF), ("forget", REF)], ApplyError("process 1 belongs to another user")
        )
        with pytest.raises(ApplyError, match="another user"):
            await host.loop.delete(APP.name)
        await host.loop.delete(pod.name)
        for _ in range(3):
            host.loop.settle()
        assert host.told().count("not-ended") == 1
        assert len(host.shared) == 7
        host.node.runtime.troubles.clear()
        host.loop.settle()
        assert host.shared == MACHINE.online
        host.node.check()

    on_a_clock(tmp_path, scenario)


def test_of_a_pod_that_could_not_be_let_in_nothing_is_left(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        host.node.runtime.late = True
        with pytest.raises(ApplyError, match="too late"):
            host.loop.submit(APP)
        assert host.loop.workloads == {}
        assert REF not in host.node.runtime.known
        host.node.check()

    on_a_clock(tmp_path, scenario)


# -- restarts of containers


def test_pauses_between_restarts_grow_until_a_container_has_run_for_ten_minutes(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        host.loop.submit(APP)
        await clock.leap(0)
        status = host.loop.workloads[APP.uid].status[REF.name]
        pauses = []
        for ran in (1, 1, 1, 599, 601, 1):
            await clock.leap(ran)
            host.node.runtime.end(REF)
            await clock.leap(0)
            pauses.append(0)
            while status.state != "running":
                await clock.leap(0.5)
                pauses[-1] += 1
        assert [(pause + 1) // 2 for pause in pauses] == [1, 2, 4, 8, 1, 2]
        await host.loop.delete(APP.name)

    on_a_clock(tmp_path, scenario)


# -- restarts of the daemon


def test_a_pod_whose_cpus_are_written_down_nowhere_gets_some_again(tmp_path: Path) -> None:
    KeptWorkloads(tmp_path).save([Kept(Kind.POD, APP)])

    async def scenario(host: Host, _clock: Clock) -> None:
        host.loop.resume()
        assert len(host.node.manager.state.cpus(APP.uid, REF.name) or ()) == 1
        assert [note.fields["pod"] for note in host.node.told("assigned")] == [APP.name]
        assert "not-kept" not in host.told()
        host.node.check()
        await host.loop.leave()

    on_a_clock(tmp_path, scenario)


def test_a_pod_for_which_there_are_none_shares_and_that_is_told(tmp_path: Path) -> None:
    KeptWorkloads(tmp_path).save([Kept(Kind.POD, with_command(ALL_OF_IT))])

    async def scenario(host: Host, _clock: Clock) -> None:
        host.loop.resume()
        (told,) = (entry for entry in host.notes.after(0) if entry.what == "not-kept")
        assert (told.fields["pod"], told.fields["container"]) == (ALL_OF_IT.name, "app")
        assert "not enough cpus" in str(told.fields["why"])
        assert host.loop.pods.keys() == {ALL_OF_IT.uid}
        host.node.check()
        await host.loop.leave()

    on_a_clock(tmp_path, scenario)


def test_what_a_pod_has_done_already_gets_no_cpus_again(tmp_path: Path) -> None:
    pod = with_command(replace(pod_of(pinned(1), uid="one"), restart_policy="Never"))
    KeptWorkloads(tmp_path).save([Kept(Kind.POD, pod, {}, {"app": 0})])

    async def scenario(host: Host, _clock: Clock) -> None:
        host.loop.resume()
        assert host.shared == MACHINE.online
        await host.loop.leave()

    on_a_clock(tmp_path, scenario)


def test_where_a_lent_process_comes_from_is_written_down(tmp_path: Path) -> None:
    origin = Origin(("/user/1", "/"), CPUSet.parse("0-3"), {7: CPUSet.of(1)})
    kept = Kept(Kind.ADOPTED, APP, {"app": Main(5, 6)}, {}, {"app": origin})
    KeptWorkloads(tmp_path).save([kept])
    (found,), problem = KeptWorkloads(tmp_path).load()
    assert (found.mains, found.origins, problem) == (kept.mains, kept.origins, None)


def test_after_a_reboot_no_process_is_taken_for_one_of_before(tmp_path: Path) -> None:
    kept = Kept(Kind.POD, APP, {"app": Main(5, 6)}, {"init": 0})
    KeptWorkloads(tmp_path, "one").save([kept])
    assert KeptWorkloads(tmp_path, "one").load()[0][0].mains == {"app": Main(5, 6)}
    ((found,), problem) = KeptWorkloads(tmp_path, "two").load()
    assert (found.mains, found.done, problem) == ({}, {"init": 0}, None)


def test_a_list_from_before_boots_were_told_apart_is_read(tmp_path: Path) -> None:
    KeptWorkloads(tmp_path).save([Kept(Kind.POD, APP, {"app": Main(5, 6)})])
    data = json.loads((tmp_path / FILE).read_text())
    del data["boot"]
    for row in data["workloads"]:
        del row["origins"]
    (tmp_path / FILE).write_text(json.dumps(data))
    ((found,), problem) = KeptWorkloads(tmp_path).load()
    assert (found.mains, found.origins, problem) == ({"app": Main(5, 6)}, {}, None)


# -- other settings


def test_other_settings_of_the_quota_reach_what_runs(tmp_path: Path) -> None:
    half = replace(APP.containers[0], resources=Resources(limits=Amounts(cpu=500)))

    async def scenario(host: Host, _clock: Clock) -> None:
        host.loop.submit(replace(APP, containers=(half,)))
        host.loop.limit_anew(quota=True, period=100_000)
        host.loop.limit_anew(quota=True, period=20_000)
        host.loop.limit_anew(quota=False, period=20_000)
        limits = [(ref, limit.quota, limit.period) for ref, limit in host.node.runtime.limits]
        assert limits == [(REF, 50_000, 100_000), (REF, 10_000, 20_000), (REF, None, 20_000)]
        await host.loop.delete(APP.name)

    on_a_clock(tmp_path, scenario)
