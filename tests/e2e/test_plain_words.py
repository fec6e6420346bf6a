"""What the program says to common mistakes and questions; each test is named after what the user needs to hear."""

from __future__ import annotations

import argparse
import importlib
import json
from typing import TYPE_CHECKING

import pytest

from pinfold.cli.main import VERBS, main
from tests.e2e.daemon import ONLINE, SPARE, Daemon, needs_two_cpus, pod

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.daemon import Rows

EPYC = ["--preset", "epyc-7303-2s"]
NO_DATA = {"run", "serve", "completion", "demo", "config", "shield"}
"""Verbs that print what a command prints, that print nothing, or that have an output of their own."""


@needs_two_cpus
def test_history_is_right_about_the_first_assignment_after_the_first_start() -> None:
    with Daemon() as daemon:
        daemon.start()
        daemon.run("first", "sleep", "1000", options=["--cpus", str(SPARE)])
        daemon.flush()
        cpu = str(daemon.state().exclusive.lowest)
        found = json.loads(daemon.verb("history", "--cpu", cpu, "-o", "json").stdout)
        tenures: Rows = found["tenures"]
        assert [(each["pool"], each["owner"]) for each in tenures[-2:]] == [
            ("shared", None),
            ("exclusive", "default/first/main"),
        ]


@needs_two_cpus
def test_history_of_a_cpu_that_the_machine_does_not_have_is_an_error() -> None:
    with Daemon() as daemon:
        daemon.start()
        done = daemon.say("history", "--cpu", "4711")
    assert done.returncode == 2
    assert done.stderr == f"pinfold: error: --cpu: 4711 is not a CPU of this machine; it has CPUs {ONLINE}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["history", "--what", "asigned"], "did you mean assigned?"),
        (["run", "--cpu", "1", "--", "true"], "did you mean --cpus?"),
        (["get", "podz"], "did you mean pods?"),
        (["wait", "web", "--for", "runing"], "did you mean running?"),
        (["aply", "pods.yaml"], "did you mean apply?"),
        (["plan", "x.yaml", "--preset", "xeon-2s-46"], "try xeon-2s-64"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_misspelt_word_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(arguments) == (125 if arguments[0] == "run" else 2)
    assert said in capsys.readouterr().err


@needs_two_cpus
def test_two_daemons_with_different_sockets_do_not_collide_on_the_pod_resources_socket() -> None:
    with Daemon("--runtime", "simulated") as one, Daemon("--runtime", "simulated") as other:
        for daemon in (one, other):
            daemon.groups = []
            place = daemon.socket.with_name("pod-resources.sock")
            daemon.start("--pod-resources-socket", str(place))
            assert place.is_socket()
        assert one.socket.parent != other.socket.parent


def test_reserving_every_cpu_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text(pod("a"))
    assert main(["plan", str(file), "--preset", "cores:2", "--reserved-cpus", "0-1"]) == 2
    assert "all CPUs of the machine are reserved, so none can be exclusive; leave some out" in capsys.readouterr().err


def test_a_bad_state_file_of_a_kubelet_gets_advice_for_a_kubelet(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pods, state = tmp_path / "pods.yaml", tmp_path / "cpu_manager_state"
    pods.write_text(pod("a"))
    state.write_text('{"policyName": "static", "defaultCpuSet": "0-3", "checksum": 1}')
    assert main(["plan", str(pods), *EPYC, "--state", str(state)]) == 2
    said = capsys.readouterr().err
    assert "checksum is 1, but the content has" in said
    assert "drain the node, stop the kubelet, remove the file and start the kubelet" in said
    assert "pinfold serve" not in said


@needs_two_cpus
@pytest.mark.parametrize("verb", ["plan", "apply"])
def test_all_yaml_problems_of_a_file_are_listed(verb: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(
        "{kind: Pod, metadata: {name: UP}, spec: {containers: [{name: a, resources: {limits: {cpu: 1x}}}, {name: a}]}}"
    )
    with Daemon() as daemon:
        daemon.start()
        done = daemon.say(verb, str(file))
    assert done.returncode == 2
    for place in ("metadata.name", "containers[0].resources.limits.cpu", "containers[1].name"):
        assert sum(place in line for line in done.stderr.splitlines()) == 1, done.stderr
    assert "more)" not in done.stderr


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - NO_DATA))
def test_every_verb_that_tells_something_tells_it_as_json(verb: str) -> None:
    parser = argparse.ArgumentParser(verb)
    importlib.import_module(VERBS[verb].module).add_arguments(parser)
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001
    parsers = [actions[0].choices[name] for name in ("show", "verify")] if actions else [parser]
    for one in parsers:
        outputs = [action for action in one._actions if "-o" in action.option_strings]  # noqa: SLF001
        assert outputs, verb
        assert "json" in (outputs[0].choices or ())


@needs_two_cpus
def test_a_misspelt_name_of_a_pod_is_answered_with_the_nearest() -> None:
    with Daemon() as daemon:
        daemon.start()
        daemon.apply(pod("kafka"))
        daemon.flush()
        for call in (
            ["get", "pods", "kafak"],
            ["delete", "kafak"],
            ["wait", "kafak"],
            ["resize", "kafak/main", "--cpus", "1"],
            ["explain", "kafak"],
            ["logs", "kafak"],
            ["history", "--container", "kafak"],
        ):
            done = daemon.say(*call)
            assert (done.returncode, done.stdout) == (2, ""), call
            assert done.stderr.endswith("; did you mean kafka?\n"), done.stderr


@needs_two_cpus
def test_a_missed_pinning_is_told_again_for_an_unchanged_pod() -> None:
    missed = pod("missed", "{name: app, command: [sleep, '1000'], resources: {limits: {cpu: 1}}}")
    with Daemon() as daemon:
        daemon.start()
        for done in ("started", "unchanged"):
            answer = daemon.verb("apply", "-", text=missed)
            assert answer.stdout.startswith(f"pod missed: {done}; ")
            assert "missed/app asks for 1 whole CPU but will share: it has no memory limit" in answer.stderr


@needs_two_cpus
def test_wait_says_what_came_and_for_what_it_waited_in_vain() -> None:
    with Daemon() as daemon:
        daemon.start()
        daemon.apply(pod("web"))
        done = daemon.say("wait", "web", "--for", "running", "--timeout", "20")
        assert (done.returncode, done.stdout) == (0, "pod web: running\n")
        done = daemon.say("wait", "web", "--timeout", "0.1")
        assert (done.returncode, done.stderr) == (1, "pinfold: error: waited 0.1 s for web; not ended yet\n")
        daemon.verb("delete", "web")
        assert daemon.say("wait", "web").stdout == "pod web: ended\n"


@needs_two_cpus
def test_explain_of_a_pod_tells_of_each_container_and_of_one_that_has_failed() -> None:
    with Daemon() as daemon:
        daemon.start()
        daemon.apply(
            "{kind: Pod, metadata: {name: two}, spec: {containers: [{name: a, command: [sleep, '1000']},"
            " {name: b, command: [sleep, '1000']}]}}",
            "{kind: Pod, metadata: {name: bad}, spec: {restartPolicy: Never, containers: [{name: c,"
            " command: [sh, -c, 'echo oops; exit 3']}]}}",
        )
        daemon.verb("wait", "bad", "--timeout", "20")
        said = daemon.verb("explain", "two").stdout
        assert "default/two/a has no exclusive CPUs" in said
        assert "default/two/b has no exclusive CPUs" in said
        said = daemon.verb("explain", "bad").stdout
        assert "it shared CPUs, and has ended" in said
        assert "with code 3; its last lines\n  oops" in said


@needs_two_cpus
def test_get_takes_names_as_kubectl_does() -> None:
    with Daemon() as daemon:
        daemon.start()
        daemon.apply(pod("web"), pod("batch"))
        for arguments in (
            ["get", "pod", "web"],
            ["get", "pod/web"],
            ["get", "po", "web", "-n", "default"],
            ["get", "pod", "-n", "default", "web"],
        ):
            done = daemon.say(*arguments)
            assert (done.returncode, done.stderr) == (0, "")
            assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["web"], arguments
        done = daemon.say("get", "pod", "nothing")
        assert (done.returncode, done.stderr) == (
            2,
            "pinfold: error: there is no pod nothing in namespace default\n",
        )
        assert daemon.say("get", "pools", "web").returncode == 2
