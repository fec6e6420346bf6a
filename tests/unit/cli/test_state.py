"""`pinfold state`: sound and damaged files, what a repair leaves, and the way to another directory and back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pinfold.cli.main import main
from pinfold.core.pods.pod import PodUID
from pinfold.daemon.directory import AlreadyRunning, StateDirectory
from pinfold.manager.saving.store import StateStore
from pinfold.manager.sources.kept import KeptWorkload, KeptWorkloads
from pinfold.manager.sources.workloads import WorkloadKind
from pinfold.runtimes.base import Main
from tests.now import now
from tests.unit.manager.sources.test_supervisor import APP
from tests.unit.manager.test_manager import ADMITTER, FIRST

if TYPE_CHECKING:
    from pathlib import Path

STATE, WORKLOADS = "cpu_manager_state", "workloads.json"
OTHER = replace(APP, uid=PodUID("other"), name="other")


class Files:
    """A state directory with a State and two workloads."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capsys = capsys
        now(StateStore(directory, ADMITTER.policy).save(ADMITTER.admit(FIRST, APP).state))
        rows = [KeptWorkload(WorkloadKind.POD, pod, {"app": Main(5, 6)}) for pod in (APP, OTHER)]
        now(KeptWorkloads(directory).save(rows))

    def say(self, *arguments: str) -> tuple[int, str]:
        """Run `pinfold state`, and return its exit code and what it printed."""
        code = main(["state", *arguments, "--state-dir", str(self.directory)])
        out, error = self._capsys.readouterr()
        return code, out + error

    def content(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.directory.iterdir() if path.name != "lock"}

    def damage(self, name: str, old: str, new: str) -> None:
        path = self.directory / name
        path.write_text(path.read_text().replace(old, new, 1))


@pytest.fixture
def files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Files:
    return Files(tmp_path, capsys)


def test_show_prints_the_assignments_and_the_workloads(files: Files) -> None:
    code, said = files.say("show")
    assert code == 0
    assert said.splitlines() == [
        f"{STATE}: policy static, shared CPUs 0-3,5-7",
        f"{STATE}: pod one container app: CPUs 4",
        f"{WORKLOADS}: pod default/{APP.name} (uid one): restart Always, app is process 5",
        f"{WORKLOADS}: pod default/other (uid other): restart Always, app is process 5",
    ]


def test_sound_files_are_verified_and_need_no_repair(files: Files) -> None:
    before = files.content()
    assert files.say("verify") == (0, f"{STATE}: sound\n{WORKLOADS}: sound\n")
    assert files.say("repair", "--write") == (0, "nothing to repair\n")
    assert files.content() == before


def test_a_damaged_file_is_named_and_nothing_is_written_without_being_asked(files: Files) -> None:
    files.damage(WORKLOADS, '"name": "other"', '"name": "otter"')
    before = files.content()
    code, said = files.say("verify")
    assert (code, f"{WORKLOADS}: damaged: a row does not match its checksum" in said) == (1, True)
    code, said = files.say("repair")
    assert code == 0
    assert f"-{WORKLOADS}: " not in said  # what cannot be read is no line that goes
    assert "nothing is written yet: add --write" in said
    assert files.content() == before


def test_a_repair_keeps_the_damaged_file_and_the_rows_that_are_sound(files: Files) -> None:
    files.damage(WORKLOADS, '"name": "other"', '"name": "otter"')
    files.damage(STATE, "{", "[")
    damaged = files.content()
    assert files.say("repair", "--write")[0] == 0
    after = files.content()
    assert (after[f"{STATE}.bad-1"], after[f"{WORKLOADS}.bad-1"]) == (damaged[STATE], damaged[WORKLOADS])
    assert STATE not in after  # the daemon rebuilds it from what runs
    rows, problem = KeptWorkloads(files.directory).load()
    assert ([row.pod.uid for row in rows], problem) == ([APP.uid], None)
    assert files.say("verify") == (0, f"{WORKLOADS}: sound\n")


def test_an_export_can_be_imported_elsewhere_after_its_differences_were_shown(files: Files, tmp_path: Path) -> None:
    export = tmp_path / "export.json"
    assert files.say("export", str(export)) == (0, "")
    exported = files.content()
    files.damage(WORKLOADS, "Always", "Never")
    (files.directory / STATE).unlink()
    code, said = files.say("import", str(export))
    assert (code, f"+{STATE}: pod one container app: CPUs 4" in said) == (0, True)
    assert STATE not in files.content()
    assert files.say("import", str(export), "--write")[0] == 0
    after = files.content()
    assert {name: after[name] for name in (STATE, WORKLOADS)} == {name: exported[name] for name in (STATE, WORKLOADS)}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "x", "files": {}}', '{"format": "pinfold-state-1"}'])
def test_what_is_no_export_is_refused(files: Files, tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text)
    code, said = files.say("import", str(tmp_path / "x"), "--write")
    assert (code, said.startswith("pinfold: error: ")) == (2, True)


@pytest.mark.parametrize("name", ["lock", STATE])
def test_an_export_with_other_or_damaged_files_is_refused(files: Files, tmp_path: Path, name: str) -> None:
    (tmp_path / "x").write_text(json.dumps({"format": "pinfold-state-1", "files": {name: "{"}}))
    before = files.content()
    assert files.say("import", str(tmp_path / "x"), "--write")[0] == 2
    assert files.content() == before


def test_nothing_is_written_while_a_daemon_runs(files: Files) -> None:
    files.damage(STATE, "{", "[")
    before = files.content()
    with StateDirectory(files.directory):
        assert files.say("repair", "--write")[0] == AlreadyRunning.exit_code
    assert files.content() == before
