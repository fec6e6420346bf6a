"""The settings of `pinfold serve`: flags over file over defaults, where each came from, all problems together."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from pinfold.cli.arguments.machine import read_machine
from pinfold.core.allocators.order import Fidelity
from pinfold.core.config import POLICIES, Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.machine.topology import Topology
from pinfold.errors import ConfigError
from pinfold.settings.places import MAX_SOCKET_PATH
from pinfold.settings.settings import (
    Groups,
    LogFormat,
    RuntimeName,
    Settings,
    add_arguments,
    read_settings,
    socket_path,
)
from pinfold.settings.table import SETTINGS

HOME = {"HOME": "/home/me"}
HEAD = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"


def parse(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_arguments(parser)
    return parser.parse_args(flags)


def read(*flags: str, machine: str = "laptop-4", environment: dict[str, str] = HOME, uid: int = 1000) -> Settings:
    return read_settings(parse(*flags), preset(machine), environment=environment, uid=uid)


def problems(*flags: str, machine: str = "laptop-4", environment: dict[str, str] = HOME) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(*flags, machine=machine, environment=environment)
    assert "\n" not in str(caught.value)
    return [str(problem) for problem in caught.value.problems]


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    return tmp_path / "kubelet.yaml"


def reserved(settings: Settings) -> str:
    return str(settings.config.reserved.cpus)


def test_local_memory_for_all_is_off_unless_asked_for() -> None:
    assert not read().local_memory
    assert read("--local-memory", "true").local_memory
    assert problems("--local-memory", "yes") == ['--local-memory: "yes" is unknown; allowed: true, false']


def test_names_that_may_be_asked_for_add_up() -> None:
    assert read().views.hosts == frozenset()
    chosen = read("--allow-host", "Node-7.example", "--allow-host", "pinfold,[::1]")
    assert chosen.views.hosts == {"node-7.example", "pinfold", "[::1]"}


@pytest.mark.parametrize("name", ["", "a:80", "http://a", "a/b", "-a", "a.", "a,,b", "*", "ä", "a" * 254, "a\nb"])
def test_what_is_no_name_of_a_host_is_refused(name: str) -> None:
    (said,) = problems(f"--allow-host={name}")
    assert said.startswith("--allow-host: ")
    assert "is not a host name" in said
    assert len(said) < 200


def test_with_nothing_said_a_laptop_is_served() -> None:
    settings = read()
    assert settings.config == Config("static", reserved=Reservation.of(CPUSet.of(0, 2)))
    assert (settings.reconcile_period, settings.cfs_quota, settings.cfs_period) == (10.0, True, 100_000)
    assert (settings.runtime, settings.groups) == (RuntimeName.PROCESSES, Groups.AUTO)
    assert (settings.sysroot, settings.preset, settings.log_format) == (Path("/"), None, LogFormat.TEXT)
    assert settings.config_file is None
    assert settings.warnings == ()
    assert settings.sources["policy"] == "default"
    assert set(settings.sources) == set(SETTINGS)


@pytest.mark.parametrize(
    ("machine", "cpus"),
    [
        pytest.param("laptop-4", "0,2", id="a core with both threads"),
        pytest.param("cores:2", "0", id="two CPUs without SMT"),
        pytest.param("threads:2", "0", id="one core: a CPU of it"),
        pytest.param("cores:1", "0", id="one CPU"),
        pytest.param("i7-12850hx", "0-1", id="hybrid"),
        pytest.param("epyc-9654-2s", "0,192", id="server"),
    ],
)
def test_one_core_is_reserved_by_default_but_never_the_only_one(machine: str, cpus: str) -> None:
    settings = read(machine=machine)
    assert reserved(settings) == cpus
    assert settings.config.build(preset(machine))


def test_the_core_of_the_lowest_online_cpu_is_reserved() -> None:
    machine = Topology.from_rows((cpu, cpu // 2 * 2, 0, 0, 0) for cpu in range(3, 8))
    settings = read_settings(parse(), machine, environment=HOME, uid=1000)
    assert reserved(settings) == "3"


def test_all_flags_of_a_kubelet_are_taken() -> None:
    settings = read(
        "--cpu-manager-policy=static",
        "--cpu-manager-policy-options=full-pcpus-only=true,align-by-socket=true",
        "--cpu-manager-reconcile-period=1m30s",
        "--kube-reserved=cpu=500m,memory=1Gi",
        "--system-reserved=cpu=500m",
        "--topology-manager-policy=restricted",
        "--topology-manager-scope=pod",
        "--topology-manager-policy-options=max-allowable-numa-nodes=16",
        "--feature-gates=CPUManagerPolicyAlphaOptions=true",
        "--cpu-cfs-quota=false",
        "--cpu-cfs-quota-period=5ms",
    )
    assert settings.config == Config(
        policy="static",
        options={"full-pcpus-only": "true", "align-by-socket": "true"},
        reserved=Reservation(1000),
        topology_policy="restricted",
        topology_options={"max-allowable-numa-nodes": "16"},
        topology_scope="pod",
        gates={"CPUManagerPolicyAlphaOptions": True},
    )
    assert (settings.reconcile_period, settings.cfs_quota, settings.cfs_period) == (90.0, False, 5000)
    assert settings.sources["reserved_cpus"] == "--kube-reserved, --system-reserved"


def test_our_own_flags_are_taken() -> None:
    settings = read(
        *(
            "--policy",
            "none",
            "--runtime",
            "simulated",
            "--state-dir",
            "state",
            "--socket",
            "/run/s",
            "--as",
            "kubelet",
        ),
        *("--log-format", "json", "--preset", "laptop-4"),
    )
    assert settings.config.policy == "none"
    assert settings.config.fidelity is Fidelity.KUBELET
    assert (settings.runtime, settings.preset, settings.log_format) == ("simulated", "laptop-4", "json")
    assert (settings.state_dir, settings.socket) == (Path("state"), Path("/run/s"))
    assert read("--groups", "affinity", "--sysroot", "/mnt").groups is Groups.AFFINITY


def test_the_machine_can_be_read_from_the_same_flags() -> None:
    assert read_machine(parse("--runtime", "simulated", "--preset", "cores:3")) == preset("cores:3")


@pytest.mark.parametrize(
    ("flags", "policy", "source"),
    [
        (("--policy", "none"), "none", "--policy"),
        (("--cpu-manager-policy", "none"), "none", "--cpu-manager-policy"),
        (("--policy", "none", "--cpu-manager-policy", "static"), "static", "--cpu-manager-policy"),
    ],
)
def test_the_last_of_two_names_counts_and_is_the_source(flags: tuple[str, ...], policy: str, source: str) -> None:
    settings = read(*flags)
    assert (settings.config.policy, settings.sources["policy"]) == (policy, source)


def test_a_flag_with_pairs_adds_up() -> None:
    settings = read("--policy-options", "full-pcpus-only=true", "--policy-options", "strict-cpu-reservation=true")
    assert set(settings.config.options) == {"full-pcpus-only", "strict-cpu-reservation"}


def test_a_bool_needs_no_value() -> None:
    assert read("--cpu-cfs-quota").cfs_quota
    assert not read("--cpu-cfs-quota", "false").cfs_quota


def test_a_file_is_used_unchanged(config_file: Path) -> None:
    config_file.write_text(f'{HEAD}cpuManagerPolicy: static\nreservedSystemCPUs: "1"\ncpuCFSQuotaPeriod: 10ms\n')
    settings = read("--config", str(config_file))
    assert settings.config == Config("static", reserved=Reservation.of(CPUSet.of(1)))
    assert settings.cfs_period == 10_000
    assert settings.config_file == config_file
    assert settings.sources["policy"] == f"{config_file}: cpuManagerPolicy"
    assert settings.sources["topology_policy"] == "kubelet's default"
    assert settings.sources["runtime"] == "default"


def test_what_a_file_does_not_say_has_the_kubelets_default(config_file: Path) -> None:
    config_file.write_text(HEAD)
    settings = read("--config", str(config_file))
    assert settings.config == Config()
    assert settings.warnings == (
        "policy none (kubelet's default) gives no container exclusive CPUs; --policy static does",
    )


def test_a_file_with_static_and_nothing_reserved_is_refused_as_by_a_kubelet(config_file: Path) -> None:
    config_file.write_text(f"{HEAD}cpuManagerPolicy: static\n")
    (problem,) = problems("--config", str(config_file))
    assert "unable to determine reserved CPU resources for static policy" in problem
    assert reserved(read("--config", str(config_file), "--reserved-cpus", "3")) == "3"


def test_a_file_and_the_flag_for_static_without_reserved_cpus_are_answered_with_the_flag_that_reserves_them(
    config_file: Path,
) -> None:
    config_file.write_text(HEAD)
    (problem,) = problems("--config", str(config_file), "--policy", "static")
    assert "name it with --reserved-cpus or reservedSystemCPUs" in problem


def test_flags_override_the_file(config_file: Path) -> None:
    config_file.write_text(f"""{HEAD}
cpuManagerPolicy: none
cpuManagerPolicyOptions: {{strict-cpu-reservation: "true"}}
cpuManagerReconcilePeriod: 5s
kubeReserved: {{cpu: "1"}}
systemReserved: {{cpu: "1"}}
topologyManagerScope: pod
featureGates: {{CPUManagerPolicyAlphaOptions: true, PodLevelResourceManagers: true}}
""")
    settings = read(
        *("--config", str(config_file), "--policy", "static", "--policy-options", "full-pcpus-only=true"),
        *("--kube-reserved", "cpu=2", "--feature-gates", "PodLevelResourceManagers=false"),
    )
    assert settings.config == Config(
        policy="static",
        options={"full-pcpus-only": "true"},
        reserved=Reservation(3000),
        topology_scope="pod",
        gates={"CPUManagerPolicyAlphaOptions": True, "PodLevelResourceManagers": False},
    )
    assert settings.reconcile_period == 5.0
    assert settings.sources["policy_options"] == "--policy-options"
    assert settings.sources["reserved_cpus"] == f"--kube-reserved, {config_file}: systemReserved"
    assert settings.sources["feature_gates"] == f"--feature-gates, {config_file}: featureGates"


def test_a_gate_of_the_file_that_is_named_stands_against_all_of_a_flag(config_file: Path) -> None:
    config_file.write_text(f"{HEAD}featureGates: {{CPUManagerPolicyAlphaOptions: true}}\n")
    gates = read("--config", str(config_file), "--feature-gates", "AllAlpha=false").config.gates
    assert gates["CPUManagerPolicyAlphaOptions"]
    assert not gates["PodLevelResourceManagers"]


def test_a_gate_in_a_flag_allows_an_option_of_the_file(config_file: Path) -> None:
    options = 'cpuManagerPolicyOptions: {align-by-socket: "true"}'
    config_file.write_text(f"{HEAD}cpuManagerPolicy: static\nreservedSystemCPUs: '0'\n{options}\n")
    (problem,) = problems("--config", str(config_file))
    assert "--feature-gates CPUManagerPolicyAlphaOptions=true" in problem
    assert read("--config", str(config_file), "--feature-gates", "AllAlpha=true").config.options


def test_a_gate_that_is_nearly_one_of_ours_is_warned_of_by_name() -> None:
    found = read("--feature-gates", "CPUManagerPolicyAlphaOption=true,CPUManagerPolicyOptions=true,DynamicThing=true")
    (warning,) = [each for each in found.warnings if "gates" in each]
    assert warning == (
        "--feature-gates: CPUManagerPolicyAlphaOption changes nothing about CPUs; "
        "was CPUManagerPolicyAlphaOptions meant?"
    )


def test_listed_cpus_go_before_amounts_and_a_flag_without_effect_is_named(config_file: Path) -> None:
    config_file.write_text(f"{HEAD}cpuManagerPolicy: static\nreservedSystemCPUs: '0'\n")
    settings = read("--config", str(config_file), "--kube-reserved", "cpu=2")
    assert reserved(settings) == "0"
    assert settings.warnings == (f"--kube-reserved is not used: {config_file}: reservedSystemCPUs names the CPUs",)
    assert read("--config", str(config_file), "--kube-reserved", "cpu=2", "--reserved-cpus", "").config.reserved == (
        Reservation(2000)
    )


def test_a_misspelt_field_of_the_file_is_a_warning(config_file: Path) -> None:
    config_file.write_text(f"{HEAD}cpuManagerPolcy: static\n")
    assert "was cpuManagerPolicy meant?" in read("--config", str(config_file), "--policy", "none").warnings[0]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--policy", "statik"), f'--policy: "statik" is unknown; allowed: {", ".join(POLICIES)}'),
        (("--reserved-cpus", "0,9"), "--reserved-cpus: CPU 9 is not online; the machine has CPUs 0-3"),
        (("--reserved-cpus", "2-5"), "--reserved-cpus: CPUs 4-5 are not online; the machine has CPUs 0-3"),
        (
            ("--reserved-cpus", "0,,1"),
            '--reserved-cpus: expected a CPU number at column 3 of "0,,1"; a list such as 0-1,8 is expected',
        ),
        (
            ("--kube-reserved", "500m"),
            '--kube-reserved: expected NAME=VALUE, or several joined by commas, at column 1 of "500m"',
        ),
        (
            ("--system-reserved", "cpu=x"),
            '--system-reserved: "x" has no digits; 0 or more is expected, e.g. 500m or 2',
        ),
        (("--cpu-cfs-quota", "maybe"), '--cpu-cfs-quota: "maybe" is unknown; allowed: true, false'),
        (("--runtime", "docker"), '--runtime: "docker" is unknown; allowed: processes, nri, cri, simulated'),
        (("--as", "me"), '--as: "me" is unknown; allowed: pinfold, kubelet'),
        (
            ("--cpu-manager-policy-options", "full-pcpus-only=yes"),
            (
                '--cpu-manager-policy-options: bad value for option "full-pcpus-only": strconv.ParseBool: parsing '
                '"yes": invalid syntax; allowed: true, false'
            ),
        ),
        (
            ("--feature-gates", "CPUManagerPolicyAlphaOptions=on"),
            '--feature-gates: "on" is unknown; allowed: true, false',
        ),
        (("--state-dir", ""), "--state-dir: the path is empty"),
        (("--config", ""), "--config: the path is empty"),
        (("--config", "/"), "/: Is a directory"),
        (("--config", "/no/such/file"), "/no/such/file: No such file or directory"),
        (
            ("--preset", "laptop-4"),
            "--preset needs --runtime simulated",
        ),
        (
            ("--preset", "laptop-4", "--sysroot", "/mnt", "--runtime", "simulated"),
            "--preset and --sysroot exclude each other; give one of them",
        ),
        (
            ("--groups", "affinity", "--runtime", "simulated"),
            "--groups needs --runtime processes",
        ),
    ],
)
def test_a_wrong_flag_is_named_with_its_value_and_what_is_allowed(flags: tuple[str, ...], problem: str) -> None:
    assert problems(*flags) == [problem]


def test_an_unknown_option_is_named_with_the_nearest() -> None:
    (problem,) = problems("--policy-options", "full-cpus=true")
    assert problem.startswith(
        '--policy-options: unknown CPU Manager Policy option: "full-cpus"; did you mean full-pcpus-only?'
    )


def test_more_than_the_machine_has_cannot_be_reserved() -> None:
    (problem,) = problems("--kube-reserved", "cpu=99")
    assert problem.endswith("; the machine has CPUs 0-3")


def test_options_that_exclude_each_other_are_refused() -> None:
    (problem,) = problems(
        *("--policy-options", "full-pcpus-only=true,distribute-cpus-across-cores=true"),
        *("--feature-gates", "CPUManagerPolicyAlphaOptions=true"),
    )
    assert "can not be used at the same time" in problem


def test_all_problems_of_flags_and_file_are_reported_together_each_once(config_file: Path) -> None:
    config_file.write_text(f"{HEAD}cpuManagerPolicy: statik\ncpuCFSQuota: 1\n")
    flags = ("--policy", "x", "--policy-options", "x=true", "--reserved-cpus", "9", "--runtime", "x", "--groups", "x")
    found = problems("--config", str(config_file), *flags, environment={})
    starts = [problem.split(":")[0] for problem in found]
    assert starts[:2] == [str(config_file)] * 2
    assert starts[2:7] == ["--policy", "--policy-options", "--reserved-cpus", "--runtime", "--groups"]
    assert [start.split()[1] for start in starts[7:]] == ["state", "control"]


def test_a_file_that_is_no_text_or_too_large_is_refused(config_file: Path) -> None:
    config_file.write_bytes(b"\xff\xfe")
    assert problems("--config", str(config_file)) == [f"{config_file}: is not text (byte 1 is not UTF-8)"]
    config_file.write_bytes(b" " * ((1 << 20) + 1))
    assert problems("--config", str(config_file)) == [f"{config_file}: is larger than 1 MiB"]


def test_a_named_pipe_in_place_of_a_configuration_does_not_hang(tmp_path: Path) -> None:
    pipe = tmp_path / "config.yaml"
    os.mkfifo(pipe)
    assert problems("--config", str(pipe)) == [f"{pipe}: is a named pipe, which cannot be read again"]


@pytest.mark.parametrize(
    ("environment", "uid", "state", "socket"),
    [
        pytest.param({}, 0, "/var/lib/pinfold", "/run/pinfold/pinfold.sock", id="root"),
        pytest.param(
            {"XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": "/r", "HOME": "/h"},
            1,
            "/s/pinfold",
            "/r/pinfold/pinfold.sock",
            id="XDG",
        ),
        pytest.param(
            {"HOME": "/h"}, 1, "/h/.local/state/pinfold", "/h/.local/state/pinfold/pinfold.sock", id="only a home"
        ),
        pytest.param(
            {"XDG_STATE_HOME": "s", "XDG_RUNTIME_DIR": "", "HOME": "/h"},
            1,
            "/h/.local/state/pinfold",
            "/h/.local/state/pinfold/pinfold.sock",
            id="relative or empty is as good as not set",
        ),
        pytest.param(
            {"PINFOLD_SOCKET": "/p", "HOME": "/h", "XDG_RUNTIME_DIR": "/r"},
            1,
            "/h/.local/state/pinfold",
            "/p",
            id="named",
        ),
        pytest.param({"XDG_STATE_HOME": "/s", "PINFOLD_SOCKET": "/p"}, 0, "/var/lib/pinfold", "/p", id="named by root"),
    ],
)
def test_state_and_socket_are_where_the_user_may_have_them(
    environment: dict[str, str], uid: int, state: str, socket: str
) -> None:
    settings = read(environment=environment, uid=uid)
    assert (str(settings.state_dir), str(settings.socket)) == (state, socket)
    assert socket_path(environment, uid) == settings.socket


def test_the_flag_for_the_socket_goes_before_the_variable() -> None:
    assert socket_path({"PINFOLD_SOCKET": "/p"}, 0, "/f") == Path("/f")
    assert read("--socket", "/f", environment={"PINFOLD_SOCKET": "/p", **HOME}).sources["socket"] == "--socket"


def test_commands_find_the_socket_with_any_state_directory() -> None:
    assert read("--state-dir", "/elsewhere").socket == socket_path(HOME, 1000)


def test_a_socket_path_is_measured_in_bytes() -> None:
    longest = "/" + "x" * (MAX_SOCKET_PATH - 1)
    assert socket_path({}, 0, longest) == Path(longest)
    with pytest.raises(ConfigError, match=r"--socket: .* has 108 bytes, and a unix socket's path at most 107; name a"):
        socket_path({}, 0, longest + "x")
    with pytest.raises(ConfigError, match="has 121 bytes"):
        socket_path({"PINFOLD_SOCKET": "/" + "ä" * 60}, 0)


def test_without_a_home_directories_have_to_be_named() -> None:
    found = problems(environment={})
    assert [problem.split("; ")[1] for problem in found] == [
        "name one with --state-dir",
        "name one with --socket or $PINFOLD_SOCKET",
    ]
    assert read("--state-dir", "/s", "--socket", "/p", environment={}).state_dir == Path("/s")
