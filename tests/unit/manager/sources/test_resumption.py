"""Resumption on the simulated machine: what a new daemon makes of the processes of an earlier one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pinfold.core.pods.pod import ContainerRef, Identity, PodUID
from pinfold.manager.sources.kept import FILE, KeptWorkload, KeptWorkloads
from pinfold.manager.sources.workbook import TooManyPods
from pinfold.manager.sources.workloads import WorkloadKind
from pinfold.runtimes.base import Main
from tests.now import now
from tests.unit.manager.sources.test_supervisor import APP, REF, Clock, Host, on_a_clock
from tests.unit.manager.test_manager import MACHINE, TroubledLauncher

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from pinfold.node.processgroups.origin import Origin

MAIN = Main(4711, 6)
ONCE = replace(APP, restart_policy="Never")
STRAY = ContainerRef(PodUID("stray"), "main")
LENT = ContainerRef(PodUID("adopted-lent"), "main")


class SurvivingLauncher(TroubledLauncher):
    """Finds the processes of these containers again, and groups without processes of the others that are known."""

    survivors: frozenset[ContainerRef] = frozenset({REF})
    groups: frozenset[ContainerRef] = frozenset()

    @property
    def known(self) -> Collection[ContainerRef]:
        return {*super().known, *self.groups}

    def find_again(self, ref: ContainerRef, main: Main | None, origin: Origin | None = None) -> bool:
        if ref not in self.survivors:
            return False
        self.attach(ref, self.expect(ref, (main or MAIN).pid, lent=origin is not None))
        return True


class StrangersLauncher(SurvivingLauncher):
    """Finds groups that no file mentions: of one the processes have ended."""

    survivors = frozenset({STRAY, LENT})
    groups = frozenset({STRAY, LENT, REF})


def test_a_pod_that_runs_on_is_not_started_again(tmp_path: Path) -> None:
    now(KeptWorkloads(tmp_path).save([KeptWorkload(WorkloadKind.POD, APP, {"app": MAIN})]))

    async def scenario(host: Host, clock: Clock) -> None:
        await host.resume()
        await clock.leap(0)
        assert host.launcher.mains[REF].pid == MAIN.pid
        assert "started" not in host.told()
        host.launcher.end(REF)
        await clock.leap(0)
        await clock.leap(1.1)
        assert "started" in host.told()
        await host.loop.delete(APP.name)

    on_a_clock(tmp_path, scenario, SurvivingLauncher)


def test_a_pod_whose_process_has_ended_meanwhile_is_started_in_a_new_group(tmp_path: Path) -> None:
    now(KeptWorkloads(tmp_path).save([KeptWorkload(WorkloadKind.POD, APP, {"app": MAIN})]))

    async def scenario(host: Host, clock: Clock) -> None:
        await host.resume()
        await clock.leap(0)
        assert host.launcher.mains[REF].pid != MAIN.pid
        assert "started" in host.told()
        host.node.check()
        await host.loop.delete(APP.name)

    on_a_clock(tmp_path, scenario)


def test_what_runs_once_and_goes_on_is_kept_until_its_end_is(tmp_path: Path) -> None:
    now(KeptWorkloads(tmp_path).save([KeptWorkload(WorkloadKind.POD, ONCE, {"app": MAIN})]))

    async def scenario(host: Host, clock: Clock) -> None:
        await host.resume()
        await clock.leap(0)
        host.launcher.end(REF)
        await host.loop.workbook.saves.write()  # for another pod, before the end was looked at
        (row,), _ = host.kept.load()
        assert "app" in row.mains
        await clock.leap(0)
        assert host.workloads == {}

    on_a_clock(tmp_path, scenario, SurvivingLauncher)


def test_what_runs_once_and_ends_while_the_daemon_starts_is_not_started_again(tmp_path: Path) -> None:
    now(KeptWorkloads(tmp_path).save([KeptWorkload(WorkloadKind.POD, ONCE, {"app": MAIN})]))

    async def scenario(host: Host, clock: Clock) -> None:
        await host.resume()
        host.launcher.end(REF)
        await clock.leap(0)
        assert host.workloads == {}
        assert "started" not in host.told()
        assert "ended" in host.told()

    on_a_clock(tmp_path, scenario, SurvivingLauncher)


@pytest.mark.parametrize("kind", [WorkloadKind.RUN, WorkloadKind.ADOPTED])
def test_what_others_started_and_has_ended_meanwhile_is_forgotten(tmp_path: Path, kind: WorkloadKind) -> None:
    now(KeptWorkloads(tmp_path).save([KeptWorkload(kind, APP, {"app": MAIN})]))

    async def scenario(host: Host, _clock: Clock) -> None:
        await host.resume()
        assert host.workloads == {}
        assert host.shared == MACHINE.online
        host.node.check()

    on_a_clock(tmp_path, scenario)


def test_an_adopted_process_that_runs_on_is_lent_still(tmp_path: Path) -> None:
    now(KeptWorkloads(tmp_path).save([KeptWorkload(WorkloadKind.ADOPTED, APP, {"app": MAIN})]))

    async def scenario(host: Host, _clock: Clock) -> None:
        await host.resume()
        assert await host.loop.delete(APP.name) == [MAIN.pid]
        assert "given-back" in host.told()

    on_a_clock(tmp_path, scenario, SurvivingLauncher)


def test_processes_that_no_file_mentions_are_shown_until_they_end(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        await host.resume()
        kinds = {uid: workload.kind for uid, workload in host.workloads.items()}
        assert kinds == {STRAY.pod: WorkloadKind.FOUND, LENT.pod: WorkloadKind.ADOPTED}
        assert {entry.fields["pod"] for entry in host.node.told("found")} == {STRAY.pod, LENT.pod}
        host.launcher.end(STRAY)
        await clock.leap(0)
        assert host.workloads.keys() == {LENT.pod}

    on_a_clock(tmp_path, scenario, StrangersLauncher)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param({"mains": []}, "mains, done and origins are objects", id="a list of processes"),
        pytest.param({"kind": "strange"}, "'strange' is not a valid WorkloadKind", id="an unknown kind"),
        pytest.param(
            {"origins": {"app": {"groups": {}, "threads": {}, "cpus": ""}}},
            "groups is a list, threads an object",
            id="an origin of the wrong form",
        ),
    ],
)
def test_a_row_that_cannot_be_read_is_told_and_the_others_are_used(
    tmp_path: Path, change: dict[str, object], problem: str
) -> None:
    now(KeptWorkloads(tmp_path).save([KeptWorkload(WorkloadKind.POD, APP)] * 2))
    data = json.loads((tmp_path / FILE).read_text())
    data["workloads"][0].update({**change, "checksum": None})
    (tmp_path / FILE).write_text(json.dumps(data))
    rows, told = KeptWorkloads(tmp_path).load()
    assert [row.pod.uid for row in rows] == [APP.uid]
    assert told is not None
    assert problem in told
    assert (tmp_path / f"{FILE}.bad-1").exists()


def test_a_pod_that_runs_as_another_user_is_there_after_a_restart(tmp_path: Path) -> None:
    identity = Identity(1000, 1001, (7, 8))
    pod = replace(APP, containers=tuple(replace(one, identity=identity) for one in APP.containers))
    now(KeptWorkloads(tmp_path).save([KeptWorkload(WorkloadKind.POD, pod)]))
    assert KeptWorkloads(tmp_path).load() == ([KeptWorkload(WorkloadKind.POD, pod)], None)
    data = json.loads((tmp_path / FILE).read_text())
    del data["workloads"][0]["checksum"]
    (tmp_path / FILE).write_text(json.dumps(data))
    assert KeptWorkloads(tmp_path).load() == ([KeptWorkload(WorkloadKind.POD, pod)], None)


def test_more_rows_than_a_daemon_writes_are_not_read(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"boot": "", "workloads": [{}] * 5001}))
    rows, told = KeptWorkloads(tmp_path).load()
    assert rows == []
    assert told == f"ValueError: 5,001 workloads; at most 5,000 are read; the file is kept as {FILE}.bad-1"


def test_rows_without_a_checksum_are_read_up_to_a_bound(tmp_path: Path) -> None:
    now(KeptWorkloads(tmp_path).save([KeptWorkload(WorkloadKind.POD, APP)]))
    data = json.loads((tmp_path / FILE).read_text())
    data["workloads"] = [{**data["workloads"][0], "checksum": None, "note": "x" * 100_000}] * 3
    (tmp_path / FILE).write_text(json.dumps(data))
    rows, told = KeptWorkloads(tmp_path).load()
    assert len(rows) == 2
    assert told is not None
    assert "more than 250,000 characters of rows without a checksum" in told


def test_no_more_workloads_are_taken_than_can_be_read_again(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        one = host.loop.workbook.new(APP, WorkloadKind.POD)
        host.workloads.update({PodUID(f"u{number}"): one for number in range(5000)})
        with pytest.raises(TooManyPods, match="there are 5,000 pods, and no room for more; delete some first"):
            await host.loop.submit(replace(APP, uid=PodUID("late"), name="late"))
        host.workloads.clear()

    on_a_clock(tmp_path, scenario)


def test_a_file_that_cannot_be_read_is_kept_aside_and_told(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")

    async def scenario(host: Host, _clock: Clock) -> None:
        await host.resume()
        (told,) = host.node.told("workloads-not-usable")
        assert f"the file is kept as {FILE}.bad-1" in str(told.fields["why"])
        assert host.workloads == {}

    on_a_clock(tmp_path, scenario)


@pytest.mark.parametrize("damage", [('"name": "one"', '"name": "two"'), ("[5, 6]", "[7, 6]")], ids=["name", "process"])
def test_a_row_that_does_not_match_its_checksum_is_not_used(tmp_path: Path, damage: tuple[str, str]) -> None:
    other = replace(APP, uid=PodUID("other"), name="other")
    rows = [KeptWorkload(WorkloadKind.POD, pod, {"app": Main(5, 6 + len(pod.name))}) for pod in (APP, other)]
    now(KeptWorkloads(tmp_path).save([rows[0]._replace(mains={"app": Main(5, 6)}), rows[1]]))
    (tmp_path / FILE).write_text((tmp_path / FILE).read_text().replace(*damage))
    found, problem = KeptWorkloads(tmp_path).load()
    assert [row.pod for row in found] == [other]
    assert problem == f"ValueError: a row does not match its checksum; the file is kept as {FILE}.bad-1"
