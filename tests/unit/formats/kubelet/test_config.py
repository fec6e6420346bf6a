"""KubeletConfiguration files: every field about CPUs, the kubelet's defaults, errors with file, field and value."""

from __future__ import annotations

import json

import pytest

from pinfold.core.config import NOT_SAID, POLICIES, Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.errors import ParseError
from pinfold.formats.fields import DocumentError
from pinfold.formats.kubelet.config import FIELDS, KubeletConfig, parse_duration, parse_key_values, parse_kubelet_config
from pinfold.formats.kubelet.flags import (
    parse_cfs_period,
    parse_cpus,
    parse_gates,
    parse_nanoseconds,
    parse_reconcile_period,
    parse_reserved,
)

KNOWN = ", ".join(POLICIES)
HEAD = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"
FULL = f"""{HEAD}
address: 0.0.0.0
authentication: {{anonymous: {{enabled: false}}}}
cpuCFSQuota: false
cpuCFSQuotaPeriod: 5ms
cpuManagerPolicy: static
cpuManagerPolicyOptions:
  full-pcpus-only: "true"
  distribute-cpus-across-numa: "false"
cpuManagerReconcilePeriod: 1m30s
evictionHard: {{memory.available: 100Mi}}
featureGates: {{CPUManagerPolicyAlphaOptions: true, NodeSwap: false}}
kubeReserved: {{cpu: 500m, memory: 1Gi}}
maxPods: 110
systemReserved: {{cpu: "1", pid: "1000"}}
topologyManagerPolicy: single-numa-node
topologyManagerPolicyOptions: {{max-allowable-numa-nodes: "16", prefer-closest-numa-nodes: "true"}}
topologyManagerScope: pod
"""
# All other fields of a kubelet, some of them much like ours.
OTHERS = """enableServer staticPodPath podLogsDir syncFrequency fileCheckFrequency httpCheckFrequency staticPodURL
staticPodURLHeader address port readOnlyPort tlsCertFile tlsPrivateKeyFile tlsCipherSuites tlsMinVersion
tlsCurvePreferences rotateCertificates serverTLSBootstrap authentication authorization registryPullQPS registryBurst
imagePullCredentialsVerificationPolicy preloadedImagesVerificationAllowlist eventRecordQPS eventBurst
enableDebuggingHandlers enableContentionProfiling healthzPort healthzBindAddress oomScoreAdj clusterDomain clusterDNS
streamingConnectionIdleTimeout nodeStatusUpdateFrequency nodeStatusReportFrequency nodeLeaseDurationSeconds
imageMinimumGCAge imageMaximumGCAge imageGCHighThresholdPercent imageGCLowThresholdPercent volumeStatsAggPeriod
kubeletCgroups systemCgroups cgroupRoot cgroupsPerQOS cgroupDriver singleProcessOOMKill memoryManagerPolicy qosReserved
runtimeRequestTimeout hairpinMode maxPods podCIDR podPidsLimit resolvConf runOnce nodeStatusMaxImages maxOpenFiles
contentType kubeAPIQPS kubeAPIBurst serializeImagePulls maxParallelImagePulls evictionHard evictionSoft
evictionSoftGracePeriod evictionPressureTransitionPeriod evictionMaxPodGracePeriod evictionMinimumReclaim
mergeDefaultEvictionSettings podsPerCore enableControllerAttachDetach protectKernelDefaults makeIPTablesUtilChains
iptablesMasqueradeBit iptablesDropBit failSwapOn memorySwap containerLogMaxSize containerLogMaxFiles
containerLogMaxWorkers containerLogMonitorInterval configMapAndSecretChangeDetectionStrategy systemReservedCgroup
kubeReservedCgroup enforceNodeAllocatable allowedUnsafeSysctls volumePluginDir providerID kernelMemcgNotification
logging enableSystemLogHandler enableSystemLogQuery shutdownGracePeriod shutdownGracePeriodCriticalPods
shutdownGracePeriodByPodPriority crashLoopBackOff reservedMemory enableProfilingHandler enableDebugFlagsHandler
seccompDefault memoryThrottlingFactor memoryReservationPolicy registerWithTaints registerNode tracing
localStorageCapacityIsolation containerRuntimeEndpoint imageServiceEndpoint failCgroupV1 userNamespaces
showHiddenMetricsForVersion draManagerReconcilePeriod podHousekeepingPeriod"""


def parse(fields: str) -> KubeletConfig:
    return parse_kubelet_config(HEAD + fields)


def problems(fields: str, head: str = HEAD, source: str = "") -> list[str]:
    with pytest.raises(ParseError) as caught:
        parse_kubelet_config(head + fields, source=source)
    error = caught.value
    return [str(problem) for problem in error.problems] if isinstance(error, DocumentError) else [str(error)]


def test_every_field_about_cpus_is_read_and_every_other_ignored() -> None:
    found = parse_kubelet_config(FULL)
    assert found.config == Config(
        policy="static",
        options={"full-pcpus-only": "true", "distribute-cpus-across-numa": "false"},
        reserved=Reservation(1500),
        topology_policy="single-numa-node",
        topology_options={"max-allowable-numa-nodes": "16", "prefer-closest-numa-nodes": "true"},
        topology_scope="pod",
        gates={"CPUManagerPolicyAlphaOptions": True, "NodeSwap": False},
    )
    assert (found.reconcile_period, found.cfs_quota, found.cfs_period) == (90.0, False, 5000)
    assert found.warnings == ()
    assert {"cpuManagerPolicy", "featureGates"} <= found.said
    assert "reservedSystemCPUs" not in found.said


def test_what_is_read_can_be_built() -> None:
    assert parse_kubelet_config(FULL).config.build(preset("epyc-7303-2s")).policy.name == "static"


def test_without_fields_the_defaults_are_the_kubelets() -> None:
    found = parse("")
    assert found == KubeletConfig()
    assert found.config == Config("none", topology_policy="none", topology_scope="container")
    assert (found.reconcile_period, found.cfs_quota, found.cfs_period) == (10.0, True, 100_000)


@pytest.mark.parametrize("value", ["", "null", "~"])
def test_fields_without_a_value_have_their_default(value: str) -> None:
    assert parse("".join(f"{name}: {value}\n" for name in FIELDS)) == KubeletConfig()


def test_empty_names_have_their_default_as_in_a_kubelet() -> None:
    assert parse('cpuManagerPolicy: ""\ntopologyManagerPolicy: ""\ntopologyManagerScope: ""').config == Config()


def test_json_says_the_same() -> None:
    head = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}
    text = json.dumps({**head, "cpuManagerPolicy": "static", "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}})
    assert parse_kubelet_config(text) == parse(
        'cpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: "true"}'
    )


def test_a_list_of_reserved_cpus_overrides_the_amounts() -> None:
    found = parse('reservedSystemCPUs: "0-1,8"\nkubeReserved: {cpu: "7"}')
    assert found.config.reserved == Reservation.of(CPUSet.of(0, 1, 8))


def test_an_empty_list_of_reserved_cpus_leaves_the_amounts() -> None:
    assert parse('reservedSystemCPUs: ""\nkubeReserved: {cpu: "7"}').config.reserved == Reservation(7000)


@pytest.mark.parametrize(
    ("kube", "system", "reserved"),
    [
        pytest.param("cpu: 500m", "cpu: 500m", Reservation(1000), id="two halves are one"),
        pytest.param("cpu: 500m", "cpu: 501m", Reservation(1001), id="a little more counts as two"),
        pytest.param('cpu: "0.0005"', 'cpu: "0.0005"', Reservation(1), id="summed before rounding"),
        pytest.param('cpu: "0.1"', 'cpu: "0.2"', Reservation(300), id="without floating point"),
        pytest.param('cpu: "0"', "memory: 1Gi", Reservation(0), id="0 is said"),
        pytest.param("memory: 1Gi", "", NOT_SAID, id="memory says nothing of CPUs"),
    ],
)
def test_reserved_amounts_are_summed_exactly(kube: str, system: str, reserved: Reservation) -> None:
    assert parse(f"kubeReserved: {{{kube}}}\nsystemReserved: {{{system}}}").config.reserved == reserved


def test_a_reconcile_period_of_0_is_the_default_as_in_a_kubelet() -> None:
    assert parse("cpuManagerReconcilePeriod: 0s").reconcile_period == 10.0


def test_the_gates_of_a_maturity_open_ours_except_those_named() -> None:
    gates = parse("featureGates: {AllAlpha: true, PodLevelResourceManagers: false, AllBeta: false}").config.gates
    assert gates["CPUManagerPolicyAlphaOptions"]
    assert not gates["PodLevelResourceManagers"]
    assert not gates["CPUManagerPolicyBetaOptions"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ("cpuManagerPolicy: statik", f'cpuManagerPolicy: "statik" is unknown; allowed: {KNOWN}'),
        ("cpuManagerPolicy: off", f"cpuManagerPolicy: false is unknown; allowed: {KNOWN}"),
        ("cpuManagerPolicy: [static]", f"cpuManagerPolicy: a list is unknown; allowed: {KNOWN}"),
        ("topologyManagerScope: node", 'topologyManagerScope: "node" is unknown; allowed: container, pod'),
        (
            "topologyManagerPolicy: strict",
            'topologyManagerPolicy: "strict" is unknown; allowed: none, best-effort, restricted, single-numa-node',
        ),
        (
            "cpuManagerPolicyOptions: {full-pcpus-only: true}",
            (
                "cpuManagerPolicyOptions.full-pcpus-only: true is not text, and a kubelet takes nothing else here; "
                'write it in quotes: "true"'
            ),
        ),
        (
            "topologyManagerPolicyOptions: {max-allowable-numa-nodes: 16}",
            (
                "topologyManagerPolicyOptions.max-allowable-numa-nodes: 16 is not text, and a kubelet takes nothing "
                'else here; write it in quotes: "16"'
            ),
        ),
        (
            "reservedSystemCPUs: 0",
            'reservedSystemCPUs: 0 is not text, and a kubelet takes nothing else here; write it in quotes: "0"',
        ),
        (
            "kubeReserved: {cpu: 2}",
            'kubeReserved.cpu: 2 is not text, and a kubelet takes nothing else here; write it in quotes: "2"',
        ),
        (
            'cpuManagerPolicyOptions: {full-pcpus-only: "yes"}',
            (
                'cpuManagerPolicyOptions.full-pcpus-only: bad value for option "full-pcpus-only": strconv.ParseBool: '
                'parsing "yes": invalid syntax; allowed: true, false'
            ),
        ),
        ("cpuManagerPolicyOptions: static", 'cpuManagerPolicyOptions: "static" where a mapping is expected'),
        (
            "cpuManagerPolicyOptions: {full-pcpus-only: }",
            "cpuManagerPolicyOptions.full-pcpus-only: missing; text is expected",
        ),
        (
            'topologyManagerPolicyOptions: {max-allowable-numa-nodes: "4"}',
            (
                "topologyManagerPolicyOptions.max-allowable-numa-nodes: the minimum value of "
                '"max-allowable-numa-nodes" should not be less than 8'
            ),
        ),
        (
            "cpuManagerReconcilePeriod: 10",
            'cpuManagerReconcilePeriod: 10 where a duration such as "10s", "1m30s" or "500ms" is expected',
        ),
        (
            "cpuManagerReconcilePeriod: 10sec",
            (
                "cpuManagerReconcilePeriod: duration: has an unknown unit (known: ns, us, ms, s, m, h) "
                'at column 3 of "10sec"'
            ),
        ),
        ("cpuManagerReconcilePeriod: -1s", 'cpuManagerReconcilePeriod: "-1s" is too short; 10ms or more is expected'),
        ("cpuCFSQuotaPeriod: 2s", 'cpuCFSQuotaPeriod: "2s" is not within 1ms and 1s'),
        ('cpuCFSQuota: "true"', 'cpuCFSQuota: "true" where true or false without quotes is expected'),
        (
            'featureGates: {CPUManagerPolicyAlphaOptions: "true"}',
            'featureGates.CPUManagerPolicyAlphaOptions: "true" where true or false without quotes is expected',
        ),
        (
            "featureGates: {CPU Manager: true}",
            'featureGates.CPU Manager: "CPU Manager" is not a feature gate; letters and digits are expected',
        ),
        (
            "reservedSystemCPUs: 3-1",
            'reservedSystemCPUs: range 3-1 runs backwards at column 1 of "3-1"; a list such as 0-1,8 is expected',
        ),
        (
            "kubeReserved: {cpus: 500m}",
            'kubeReserved.cpus: "cpus" cannot be reserved; allowed: cpu, memory, ephemeral-storage, pid',
        ),
        (
            'systemReserved: {cpu: "-1"}',
            'systemReserved.cpu: "-1" is negative; 0 or more is expected, e.g. 500m or 2',
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_field_and_what_is_allowed(fields: str, problem: str) -> None:
    assert problems(fields) == [problem]


def test_an_unknown_option_is_named_with_the_nearest() -> None:
    (problem,) = problems('cpuManagerPolicyOptions: {full-cpus: "true"}')
    assert problem.startswith(
        'cpuManagerPolicyOptions.full-cpus: unknown CPU Manager Policy option: "full-cpus"; did you mean'
    )
    assert "full-pcpus-only" in problem


def test_an_option_whose_gate_is_closed_is_left_to_the_machine() -> None:
    config = parse('cpuManagerPolicyOptions: {align-by-socket: "true"}').config
    assert config.options == {"align-by-socket": "true"}


def test_all_problems_are_reported_together_with_the_file() -> None:
    found = problems("cpuManagerPolicy: x\ncpuCFSQuota: 1\nkubeReserved: {cpu: x}", source="/etc/kubelet.yaml")
    assert len(found) == 3
    assert all(problem.startswith("/etc/kubelet.yaml: ") for problem in found)


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ("", "f: missing; a KubeletConfiguration is expected"),
        ("- a\n", "f: a list where a KubeletConfiguration is expected"),
        ("apiVersion: kubelet.config.k8s.io/v1beta1\n", "f: kind: missing; KubeletConfiguration is expected"),
        ("kind: KubeletConfiguration\n", "f: apiVersion: missing; kubelet.config.k8s.io/v1beta1 is expected"),
        (
            HEAD.replace("v1beta1", "v1"),
            'f: apiVersion: "kubelet.config.k8s.io/v1" where kubelet.config.k8s.io/v1beta1 is expected',
        ),
        (HEAD.replace("KubeletC", "C"), 'f: kind: "Configuration" where KubeletConfiguration is expected'),
        (f"{HEAD}---\n{HEAD}", "f: 2 documents of kind KubeletConfiguration; one is expected"),
        ("kind: A\n---\nkind: B\n", "f: 0 documents of kind KubeletConfiguration; one is expected"),
        (f"{HEAD}kind: KubeletConfiguration\n", 'f: document 1: line 3: duplicate key "kind"'),
    ],
)
def test_what_is_no_kubelet_configuration_is_refused(head: str, problem: str) -> None:
    assert problems("", head, source="f") == [problem]


def test_a_file_for_kubeadm_has_other_kinds_beside_it() -> None:
    text = f"kind: ClusterConfiguration\n---\n{HEAD}cpuManagerPolicy: static\n---\n"
    assert parse_kubelet_config(text).config.policy == "static"
    assert problems("", f"kind: X\n---\n{HEAD}cpuManagerPolicy: x\n") == [
        f'document 2: cpuManagerPolicy: "x" is unknown; allowed: {KNOWN}'
    ]


@pytest.mark.parametrize(
    ("field", "meant"),
    [
        ("cpuManagerPolcy", "cpuManagerPolicy"),
        ("cpumanagerpolicy", "cpuManagerPolicy"),
        ("cpu-manager-policy-options", "cpuManagerPolicyOptions"),
        ("reservedSystemCpus", "reservedSystemCPUs"),
        ("reservedCPUs", "reservedSystemCPUs"),
        ("featureGate", "featureGates"),
        ("kubeReserve", "kubeReserved"),
    ],
)
def test_a_misspelt_field_is_a_warning(field: str, meant: str) -> None:
    found = parse_kubelet_config(f"{HEAD}{field}: 1", source="f")
    assert found.warnings == (f"f: {field}: unknown and ignored; was {meant} meant?",)


def test_a_misspelt_gate_is_a_warning() -> None:
    found = parse("featureGates: {CPUManagerPolicyAlphaOption: true, PodLevelResources: true}")
    assert found.warnings == (
        "featureGates.CPUManagerPolicyAlphaOption: unknown and ignored; was CPUManagerPolicyAlphaOptions meant?",
    )


def test_no_other_field_of_a_kubelet_is_taken_for_a_misspelt_one() -> None:
    assert parse("".join(f"{name}: 1\n" for name in OTHERS.split())).warnings == ()


def test_of_very_many_fields_only_the_first_are_compared_with_ours() -> None:
    text = "".join(f"cpuManagerPolicy{number}: 1\n" for number in range(9_000))
    assert len(parse(text).warnings) == 200 - len(HEAD.splitlines())


def test_a_long_name_or_value_is_cut_in_the_error() -> None:
    found = problems(f'cpuManagerPolicyOptions: {{{"x" * 500}: "true", full-pcpus-only: {"y" * 5000}}}')
    assert len(found) == 2
    assert all(len(problem) < 500 for problem in found)


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("0", 0),
        ("-0", 0),
        ("0s", 0),
        ("10s", 10 * 10**9),
        ("+1m30s", 90 * 10**9),
        ("500ms", 500 * 10**6),
        ("1.5h", 5400 * 10**9),
        (".5s", 500 * 10**6),
        ("1.s", 10**9),
        ("-1us", -1000),
        ("1\u00b5s1\u03bcs", 2000),
        ("0.3s", 300_000_000),
        ("1.9ns", 1),
        ("2562047h47m16.854775807s", 2**63 - 1),
    ],
)
def test_durations_are_read_as_go_does(text: str, nano: int) -> None:
    assert parse_nanoseconds(text) == nano
    assert parse_duration(text) == nano / 10**9


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+",
        "-",
        "1",
        "1h0",
        "s",
        ".s",
        "1 s",
        " 1s",
        "1s ",
        "1d",
        "1S",
        "1h-1m",
        "1e3s",
        "٣s",
        "1..5s",
        "00",
        "1s\n",
        "9" * 50 + "h",
        "1s" * 100,
        "2562047h47m16.854775808s",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="duration: "):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("a=true", {"a": "true"}),
        ("a=true,b=false", {"a": "true", "b": "false"}),
        (" a = true , b=", {"a": "true", "b": ""}),
        ("a=b=c,,", {"a": "b=c"}),
        ("a=1,a=2", {"a": "2"}),
    ],
)
def test_pairs_are_read_as_the_kubelets_flags_do(text: str, pairs: dict[str, str]) -> None:
    assert parse_key_values(text) == pairs


@pytest.mark.parametrize("text", ["a", "a,b=1", "=1", "b=1, ", "x=" + "1" * 70_000])
def test_what_are_no_pairs_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_key_values(text)


def test_flags_of_single_settings_are_read() -> None:
    assert parse_cpus("0-1") == CPUSet.of(0, 1)
    assert parse_cpus(" ") is None
    assert parse_gates("A=true,B=0") == {"A": True, "B": False}
    amount = parse_reserved("cpu=500m,memory=1Gi")
    assert amount is not None
    assert amount.milli == 500
    assert parse_reserved("memory=1Gi") is None
    assert parse_reconcile_period("10ms") == 0.01
    assert (parse_cfs_period("1ms"), parse_cfs_period("1s"), parse_cfs_period("1.0009ms")) == (1000, 1_000_000, 1000)


@pytest.mark.parametrize("text", ["0", "0s", "9.999ms", "1ns"])
def test_a_reconcile_period_that_would_never_rest_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="10ms or more"):
        parse_reconcile_period(text)
