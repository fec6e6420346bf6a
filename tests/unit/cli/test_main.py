from __future__ import annotations

import json
from pathlib import Path

import pytest

import pinfold
from pinfold.cli.main import main
from pinfold.core.machine.presets import preset_names


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--cpus", "1", "--", "true"], id="no daemon"),
        pytest.param(["--cpus", "1"], id="no command"),
        pytest.param(["--cpus", "x", "--", "true"], id="a wrong amount"),
        pytest.param(["--cpus"], id="a wrong call"),
        pytest.param(["--color", "--", "true"], id="an unknown option"),
    ],
)
def test_a_failure_of_run_itself_is_125(arguments: list[str], tmp_path: Path) -> None:
    assert main(["run", "--socket", str(tmp_path / "none"), *arguments]) == 125


def test_help_is_understood_as_a_verb_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    assert capsys.readouterr().out.startswith("usage: pinfold [-h]")
    assert main(["help", "logs"]) == 0
    assert capsys.readouterr().out.startswith("usage: pinfold logs")
    assert main(["help", "lgs"]) == 2
    assert 'unknown verb "lgs"; did you mean logs?' in capsys.readouterr().err


def test_a_failure_of_another_verb_has_its_own_code(tmp_path: Path) -> None:
    assert main(["get", "--socket", str(tmp_path / "none")]) == 3
    assert main(["get", "--socket"]) == 2


def test_help_of_run_is_no_failure() -> None:
    assert main(["run", "--help"]) == 0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (["run", "--cpu", "1", "--", "true"], "pinfold run: error: unknown option --cpu; did you mean --cpus?"),
        (["get", "--outptu=json"], "pinfold get: error: unknown option --outptu=json; did you mean --output?"),
        (["plan", "--nosuch"], "pinfold plan: error: unknown option --nosuch"),
        (["config", "sample", "extra"], 'pinfold config sample: error: unexpected: "extra"'),
        (
            ["config", "check", "--setings", "x"],
            "pinfold config check: error: unknown option --setings; did you mean --settings?",
        ),
        (["top", "--cpu", "1"], "pinfold top: error: unknown option --cpu"),
        (
            ["top", "--interval", "0"],
            'pinfold top: error: --interval: "0" is not a number of seconds from 0.1 to 86400',
        ),
        (["toplogy"], 'pinfold: error: unknown verb "toplogy"; did you mean topology?'),
        (["xyzzy"], 'pinfold: error: unknown verb "xyzzy"; pinfold --help lists all'),
        (["get", "podss"], 'pinfold get: error: unknown word "podss"; did you mean pods?'),
        (["completion", "ksh"], 'pinfold completion: error: unknown shell "ksh"; did you mean zsh?'),
        (["get", "-o", "yml"], 'pinfold get: error: --output: "yml" is unknown; allowed: table, wide, json'),
        (["adopt", "abc"], 'pinfold adopt: error: PID: "abc" is not a whole number'),
        (["wait", "a", "--timeout", "x"], 'pinfold wait: error: --timeout: "x" is not a number'),
        (["get", "--socket"], "pinfold get: error: --socket: a value must follow"),
    ],
)
def test_a_wrong_call_is_one_line_and_where_to_read_on(
    call: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(call) == (125 if call[0] == "run" else 2)
    program = said.partition(": error")[0]
    assert capsys.readouterr().err == f"{said}\nsee: {program} --help\n"


@pytest.mark.parametrize(
    ("call", "usage"),
    [
        (["serve"], "pinfold serve [OPTION ...]"),
        (["plan"], "pinfold plan [OPTION ...] [PODS ...]"),
        (["config", "check"], "pinfold config check [OPTION ...]"),
        (["delete"], "pinfold delete [-h]"),
    ],
    ids=["serve", "plan", "config check", "delete"],
)
def test_the_help_of_a_verb_with_many_options_begins_with_a_short_usage(
    call: list[str], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*call, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: {usage}")


def test_a_missing_argument_is_named_with_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion"]) == 2
    assert capsys.readouterr().err == (
        "usage: pinfold completion [-h] {bash,zsh,fish}\npinfold completion: error: shell: missing\n"
    )


def test_version_says_which_kubernetes_is_equalled(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"pinfold {pinfold.__version__}\ndecides as {pinfold.KUBERNETES}\n"
    assert main(["version", "--verbose", "-o", "json"]) == 0
    assert {"pinfold", "decides as", "python", "yaml", "kernel"} == json.loads(capsys.readouterr().out).keys()


@pytest.mark.parametrize("page", ["README.md", "docs/reference/parity.md", "docs/reference/kubernetes-versions.md"])
def test_the_pages_say_the_same_kubernetes(page: str) -> None:
    assert pinfold.KUBERNETES in (Path(__file__).parents[3] / page).read_text()


def test_presets_lists_all_machines_or_those_with_some_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert names == preset_names()
    assert main(["presets", "epyc", "no SMT"]) == 0
    found = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert found == [name for name in names if name.startswith("epyc") and name.endswith("nosmt")]
    assert main(["presets", "abacus"]) == 2


def test_all_problems_of_a_file_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("{kind: Pod, metadata: {name: UP}, spec: {containers: [{name: a}, {name: a}, {name: b c}]}}")
    assert main(["plan", str(file), "--preset", "cores:2"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[4] for line in lines] == [
        "metadata.name",
        "spec.containers[2].name",
        "spec.containers[1].name",
    ]


def test_reserving_every_cpu_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    pods = Path(__file__).parents[3] / "examples/pods/database.yaml"
    assert main(["plan", str(pods), "--preset", "cores:2", "--reserved-cpus", "0-1"]) == 2
    said = "--reserved-cpus: all CPUs of the machine are reserved, so none can be exclusive; leave some out"
    assert said in capsys.readouterr().err


def test_an_unknown_kind_of_event_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--what", "asigned"]) == 2
    assert capsys.readouterr().err == (
        'pinfold: error: --what: "asigned" is not a kind of entry; did you mean assigned?\n'
    )
