"""The daemon's own file of settings: every setting, under flags, over a kubelet's file, all problems together."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import yaml

from pinfold.core.machine.presets import preset
from pinfold.errors import ConfigError, ParseError
from pinfold.settings.ownfile import KEYS, parse_own_file, with_own_file
from pinfold.settings.sample import format_sample
from pinfold.settings.settings import Settings, add_arguments, read_settings

HOME = {"HOME": "/home/me"}
HEAD = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"
NOT_TOGETHER = {"preset", "sysroot", "groups", "reserved-cpus", "kube-reserved", "system-reserved", "config"}


def parse(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_arguments(parser)
    return parser.parse_args(flags)


def read(text: str, tmp_path: Path, *flags: str, environment: dict[str, str] = HOME) -> Settings:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    merged = with_own_file(parse("--settings", str(file), *flags), environment, 1000)
    return read_settings(merged, preset("laptop-4"), environment=environment, uid=1000)


def problems(text: str, tmp_path: Path, *flags: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text, tmp_path, *flags)
    return [str(problem).replace(f"{tmp_path}/", "") for problem in caught.value.problems]


def test_a_value_is_read_and_its_source_is_the_file_and_the_key(tmp_path: Path) -> None:
    settings = read("policy: none\nlog-size: 5\npolicy-options: {}\n", tmp_path)
    assert (settings.config.policy, settings.outputs.each) == ("none", 5 << 20)
    assert settings.sources["policy"] == f"{tmp_path}/config.yaml: policy"


def test_a_flag_overrides_the_file(tmp_path: Path) -> None:
    settings = read("policy: none\nlog-format: json\n", tmp_path, "--policy", "static")
    assert (settings.config.policy, settings.log_format) == ("static", "json")
    assert settings.sources["policy"] == "--policy"


def test_the_file_overrides_the_kubelets_file(tmp_path: Path) -> None:
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text(f'{HEAD}cpuManagerPolicy: static\nreservedSystemCPUs: "0"\n')
    settings = read(f"config: {kubelet}\npolicy: none\n", tmp_path)
    assert settings.config.policy == "none"
    assert str(settings.config.reserved.cpus) == "0"


def test_the_variable_overrides_the_socket_of_the_file(tmp_path: Path) -> None:
    settings = read("socket: /run/a.sock\n", tmp_path, environment={**HOME, "PINFOLD_SOCKET": "/run/b.sock"})
    assert settings.socket == Path("/run/b.sock")


def test_all_problems_of_file_flags_and_values_are_reported_together(tmp_path: Path) -> None:
    found = problems("policy: statik\nlog-size: many\n", tmp_path, "--journal-days", "0")
    assert sorted(text.partition(":")[0] for text in found) == ["--journal-days", "config.yaml", "config.yaml"]
    found = problems("polcy: static\ncpu-manager-policy: none\nbanana: 1\nlisten: [a, b]\n", tmp_path)
    assert found == [
        "config.yaml: polcy: unknown; did you mean policy?",
        "config.yaml: cpu-manager-policy: unknown; did you mean policy?",
        "config.yaml: banana: unknown; `pinfold config sample` lists all settings",
        "config.yaml: listen: a list where one value (HOST:PORT) is expected",
    ]


def test_unknown_keys_hide_no_problem_of_a_value_or_of_the_kubelets_file(tmp_path: Path) -> None:
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text(f"{HEAD}cpuManagerReconcilePeriod: 10\ncpuManagerPolcy: static\n")
    found = problems(f"polcy: static\nreserved-cpus: 99\nlog-format: xml\nconfig: {kubelet}\n", tmp_path)
    assert [text.partition(" ")[2].partition(" ")[0] for text in found] == [
        "polcy:",
        "cpuManagerReconcilePeriod:",
        "reserved-cpus:",
        "log-format:",
        "cpuManagerPolcy:",
    ]


def test_a_key_that_is_there_twice_hides_no_other_problem(tmp_path: Path) -> None:
    found = problems("policy: none\npolicy: static\nlog-format: xml\n", tmp_path)
    assert 'config.yaml: document 1: line 2: duplicate key "policy"' in found[0]
    assert "log-format" in found[1]


def test_lines_that_were_not_read_are_said_once(tmp_path: Path) -> None:
    (found,) = problems("a: b: c\nlog-size: 5\n", tmp_path)
    assert found.endswith("needs quotes); the rest of this document (to line 2) was not read")


def test_a_syntax_error_says_that_the_rest_of_its_file_was_not_checked(tmp_path: Path) -> None:
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text("kind: [\n")
    found = problems("a: b: c\n", tmp_path, "--config", str(kubelet), "--log-format", "xml")
    assert [text.endswith("; nothing else in this file was checked") for text in found] == [True, True, False]


@pytest.mark.parametrize("key", ["state-dir", "socket", "log-dir", "pod-resources-socket", "config"])
def test_an_empty_path_is_reported_with_the_key_of_the_file(key: str, tmp_path: Path) -> None:
    assert f"config.yaml: {key}: the path is empty" in problems(f"{key}: ''\n", tmp_path)


def test_conflicts_are_reported_with_the_keys_of_the_file(tmp_path: Path) -> None:
    found = problems("preset: laptop-4\nsysroot: /x\nshield: true\n", tmp_path)
    assert found == [
        "config.yaml: preset needs --runtime simulated",
        "config.yaml: preset and config.yaml: sysroot exclude each other; give one of them",
        "config.yaml: shield moves the rest of this host, which --sysroot and simulations lack",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a", "a list where a mapping of settings such as policy: static is expected"),
        ("kind: KubeletConfiguration", "this is a Kubernetes file"),
        ("a: 1\n---\nb: 2", "2 documents"),
        ("policy: !!python/object:os.system x", "tag"),
    ],
    ids=["a list", "a kubelet's file", "two documents", "a tag"],
)
def test_what_is_no_file_of_settings_is_refused(text: str, said: str) -> None:
    with pytest.raises(ParseError, match=said):
        parse_own_file(text, source="config.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [("policy:", "missing; one value"), ("policy-options: {'a=b,c': true}", "must not contain")],
    ids=["nothing", "smuggled pairs"],
)
def test_a_wrong_value_is_a_problem_and_is_not_used(text: str, said: str) -> None:
    texts, (problem,) = parse_own_file(text, source="config.yaml")
    assert texts == {}
    assert said in str(problem)


def test_a_file_that_was_named_must_be_there_and_none_reads_no_file(tmp_path: Path) -> None:
    merged = with_own_file(parse("--settings", str(tmp_path / "missing")), HOME, 1000)
    assert [str(problem) for problem in merged.problems] == [f"{tmp_path}/missing: No such file or directory"]
    assert with_own_file(parse("--settings", "none"), HOME, 1000).own_file is None


def test_the_users_own_file_is_read_if_it_is_there(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert with_own_file(parse(), home, 1000).own_file is None
    (tmp_path / ".config/pinfold").mkdir(parents=True)
    (tmp_path / ".config/pinfold/config.yaml").write_text("policy: none")
    assert with_own_file(parse(), home, 1000).policy == "none"


def test_the_sample_as_it_is_sets_nothing_and_names_every_setting() -> None:
    assert parse_own_file(format_sample(), source="sample") == ({}, ())
    lines = [line[1:] for line in format_sample().splitlines() if line.startswith("#") and line[1:2].isalpha()]
    assert [line.partition(":")[0] for line in lines] == list(KEYS)


def test_every_line_of_the_sample_is_valid_without_its_mark(tmp_path: Path) -> None:
    lines = [line[1:] for line in format_sample().splitlines() if line.startswith("#") and line[1:2].isalpha()]
    values = yaml.safe_load("\n".join(lines))
    assert {key for key, value in values.items() if value in (None, "")} == set()
    kept = [line for line in lines if line.partition(":")[0] not in NOT_TOGETHER | {"runtime"}]
    read("\n".join([*kept, "runtime: nri"]), tmp_path)
    for line in lines:
        if line.partition(":")[0] in NOT_TOGETHER - {"config"}:
            read(f"{line}\nruntime: {'simulated' if 'preset' in line else 'processes'}\n", tmp_path)
