"""Every setting of `pinfold serve` as a row of one table: the flags and docs/reference/configuration.md come from it.

Does not know how settings become flags (`flags`), values (`settings`) or the page (`page`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.admission import Scope
from pinfold.core.allocators.order import Fidelity
from pinfold.core.config import POLICIES
from pinfold.core.machine.shapes import SHAPES
from pinfold.core.policies.options import OPTIONS, Values
from pinfold.core.topologymanager.options import TopologyOption, TopologyPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable


class RuntimeName(StrEnum):
    """The runtime of the containers."""

    PROCESSES = "processes"
    NRI = "nri"
    CRI = "cri"
    SIMULATED = "simulated"


class Groups(StrEnum):
    """How processes are kept on their CPUs."""

    AUTO = "auto"
    CGROUP_V2 = "cgroup-v2"
    CGROUP_V1 = "cgroup-v1"
    AFFINITY = "affinity"


class OnExit(StrEnum):
    """What becomes of CPUs when the daemon stops."""

    KEEP = "keep"
    WIDEN = "widen"


class OtherDaemons(StrEnum):
    """What a daemon does if another one can give the same CPUs away."""

    WARN = "warn"
    REFUSE = "refuse"


class CpusetPartition(StrEnum):
    """What the group of an exclusive container is to the kernel, as cpuset.cpus.partition says it."""

    MEMBER = "member"
    ROOT = "root"
    ISOLATED = "isolated"


class OnRefusal(StrEnum):
    """What becomes of a pod that is refused."""

    RETRY = "retry"
    FAIL = "fail"


class LogFormat(StrEnum):
    """How the daemon writes its log."""

    TEXT = "text"
    JSON = "json"


class Setting(NamedTuple):
    """A row: one setting with all of its names."""

    name: str
    meaning: str
    default: str = ""
    ours: str = ""
    kubelet: str = ""
    field: str = ""
    form: str = ""
    """The placeholder for the value in the help; the allowed names if only some are allowed."""
    adds_up: bool = False
    """Whether a repeated flag adds to the one before; otherwise the last one counts."""

    @property
    def key(self) -> str:
        """The name in the daemon's own file: the first flag without its dashes."""
        return self.flags[0].removeprefix("--")

    @property
    def is_pairs(self) -> bool:
        """Whether the value is a list of NAME=VALUE."""
        return "=" in self.form

    @property
    def flags(self) -> tuple[str, ...]:
        """All flags, ours first."""
        return tuple(filter(None, (self.ours, self.kubelet)))


def _one_of(names: Iterable[str]) -> str:
    return f"{{{','.join(names)}}}"


def _by_values() -> dict[Values, list[str]]:
    """Return the policy options by the values that they can have."""
    return {values: [option.name for option in OPTIONS.values() if option.values is values] for values in Values}


_PAIRS: Final = "NAME=VALUE,..."

CPU_MANAGER: Final = (
    Setting(
        "policy",
        "which containers get exclusive CPUs: none, or those of Guaranteed pods that ask for whole CPUs (static); with "
        "dynamic these may change while a container runs",
        "static",
        "--policy",
        "--cpu-manager-policy",
        "cpuManagerPolicy",
        _one_of(POLICIES),
    ),
    Setting(
        "policy_options",
        "; ".join(f"{values} for {', '.join(names)}" for values, names in _by_values().items()),
        "",
        "--policy-options",
        "--cpu-manager-policy-options",
        "cpuManagerPolicyOptions",
        _PAIRS,
        adds_up=True,
    ),
    Setting(
        "reconcile_period",
        "how often the actual state is checked, in addition to events; 10ms or more",
        "10s",
        kubelet="--cpu-manager-reconcile-period",
        field="cpuManagerReconcilePeriod",
        form="DURATION",
    ),
    Setting(
        "reserved_cpus",
        "the CPUs that are never exclusive, e.g. 0-1,8; overrides the amounts below",
        "the core of the lowest CPU that is not isolated; one CPU of it if there is no other core",
        kubelet="--reserved-cpus",
        field="reservedSystemCPUs",
        form="CPUS",
    ),
    Setting(
        "kube_reserved",
        "amount of CPU reserved for Kubernetes; added to the next, rounded up to whole CPUs",
        kubelet="--kube-reserved",
        field="kubeReserved",
        form="cpu=AMOUNT",
        adds_up=True,
    ),
    Setting(
        "system_reserved",
        "amount of CPU reserved for the system",
        kubelet="--system-reserved",
        field="systemReserved",
        form="cpu=AMOUNT",
        adds_up=True,
    ),
    Setting(
        "cfs_quota",
        "whether the CPU limit of a container without exclusive CPUs is enforced",
        "true",
        kubelet="--cpu-cfs-quota",
        field="cpuCFSQuota",
        form="BOOL",
    ),
    Setting(
        "cfs_period",
        "the period over which a CPU limit is enforced, 1ms to 1s",
        "100ms",
        kubelet="--cpu-cfs-quota-period",
        field="cpuCFSQuotaPeriod",
        form="DURATION",
    ),
    Setting(
        "feature_gates",
        "feature gates of options that are not stable yet; a gate in the flag overrides only the same gate in the file",
        kubelet="--feature-gates",
        field="featureGates",
        form="NAME=BOOL,...",
        adds_up=True,
    ),
)
TOPOLOGY_MANAGER: Final = (
    Setting(
        "topology_policy",
        "how strictly the Topology Manager aligns CPUs to NUMA nodes",
        "none",
        kubelet="--topology-manager-policy",
        field="topologyManagerPolicy",
        form=_one_of(TopologyPolicy),
    ),
    Setting(
        "topology_scope",
        "what is aligned: each container by itself, or the pod as a whole",
        "container",
        kubelet="--topology-manager-scope",
        field="topologyManagerScope",
        form=_one_of(Scope),
    ),
    Setting(
        "topology_options",
        f"values for {', '.join(TopologyOption)}",
        kubelet="--topology-manager-policy-options",
        field="topologyManagerPolicyOptions",
        form=_PAIRS,
        adds_up=True,
    ),
)
DYNAMIC: Final = (
    Setting(
        "repack_moves",
        "with policy dynamic: how many running containers may be moved to better CPUs in a minute; 0 is off",
        "6",
        "--repack-moves",
        form="N",
    ),
    Setting(
        "repack_dwell",
        "with policy dynamic: how long a container stays at least where it was moved to",
        "1m",
        "--repack-dwell",
        form="DURATION",
    ),
    Setting(
        "notice_grace",
        "with policy dynamic: how long a container has to get ready before its CPUs change, at most 1m",
        "2s",
        "--notice-grace",
        form="DURATION",
    ),
)
OWN_FILE: Final = "settings_file"
DAEMON: Final = (
    Setting(
        OWN_FILE,
        "the daemon's own file, YAML, with any of these settings under the names of the flags; none reads no file",
        "/etc/pinfold/config.yaml as root, else $XDG_CONFIG_HOME/pinfold/config.yaml or ~/.config/pinfold/config.yaml; "
        "only if it is there",
        "--settings",
        form="FILE",
    ),
    Setting("config_file", "a KubeletConfiguration file, YAML or JSON", kubelet="--config", form="FILE"),
    Setting(
        "watch_config",
        "read both files again when one is replaced, as at SIGHUP; checked at each reconcile; for a mounted ConfigMap",
        "false",
        "--watch-config",
        form="BOOL",
    ),
    Setting(
        "stand_by",
        "wait for a daemon that has the state directory to end, then take over, instead of giving up; meanwhile "
        "/healthz and /readyz answer on --listen; for updates in which the next daemon starts before the last one ends",
        "false",
        "--stand-by",
        form="BOOL",
    ),
    Setting("runtime", "what runs the containers", "processes", "--runtime", form=_one_of(RuntimeName)),
    Setting(
        "groups",
        "how processes are kept on their CPUs; auto takes the strongest method that works on this host",
        "auto",
        "--groups",
        form=_one_of(Groups),
    ),
    Setting(
        "group_name",
        "the name of the cgroup of all processes that pinfold starts",
        "pinfold",
        "--group-name",
        form="NAME",
    ),
    Setting(
        "cpuset_partition",
        "what the cgroup of an exclusive container is, in the kernel's words: member (a plain cpuset); root (a "
        "scheduler partition: the kernel keeps all other processes of the host off its CPUs); isolated (the same, "
        "without load balancing between its CPUs). Needs cgroup v2 and Linux 6.7; where the kernel refuses, it stays a "
        "plain cpuset, and the event `weaker` says why",
        "member",
        "--cpuset-partition",
        form=_one_of(CpusetPartition),
    ),
    Setting(
        "other_daemons",
        "what to do if another daemon on this host can give the same CPUs to containers: start and warn, or do not "
        "start. Daemons with CPUs of their own (--reserved-cpus) can always run beside each other",
        "warn",
        "--other-daemons",
        form=_one_of(OtherDaemons),
    ),
    Setting(
        "end_workloads",
        "end all processes when the daemon stops; else they keep running, and the next daemon adopts them",
        "false",
        "--end-workloads",
        form="BOOL",
    ),
    Setting(
        "on_exit",
        "what becomes of CPUs when the daemon stops: keep leaves every group as it is, for the next daemon; "
        "widen gives every group all CPUs back, as `pinfold leave` does",
        "keep",
        "--on-exit",
        form=_one_of(OnExit),
    ),
    Setting(
        "shield",
        "keep the rest of the host off exclusive CPUs: services and users' sessions, kernel threads, IRQs and "
        "workqueues use the other CPUs until the container has gone, or the daemon stops",
        "false",
        "--shield",
        form="BOOL",
    ),
    Setting(
        "local_memory",
        "exclusive containers get memory only from the NUMA nodes of their CPUs, and of the memory that the kubelet "
        'has assigned; for one pod: the annotation pinfold.dev/local-memory, where "false" opts out',
        "false",
        "--local-memory",
        form="BOOL",
    ),
    Setting(
        "state_dir",
        "where the checkpoint and the journal are kept",
        "/var/lib/pinfold as root, else $XDG_STATE_HOME/pinfold or ~/.local/state/pinfold",
        "--state-dir",
        form="DIR",
    ),
    Setting(
        "cache_classes",
        "ways of the L3 cache and memory bandwidth for exclusive containers, through resctrl; read at the start",
        "",
        "--cache-classes",
        form="NAME=L3:MASK/MB:PERCENT,...",
        adds_up=True,
    ),
    Setting(
        "log_dir",
        "where the output of containers that pinfold starts is kept, in a directory called like the cgroup",
        "logs in the state directory",
        "--log-dir",
        form="DIR",
    ),
    Setting("log_size", "how much output of one container is kept, in MiB", "20", "--log-size", form="MIB"),
    Setting(
        "log_total", "how much output of all containers together is kept, in MiB", "1024", "--log-total", form="MIB"
    ),
    Setting(
        "socket",
        "the control socket, at most 107 bytes; $PINFOLD_SOCKET sets it too, here and for the other commands",
        "/run/pinfold/pinfold.sock as root, else $XDG_RUNTIME_DIR/pinfold/pinfold.sock, "
        "or pinfold.sock in the default state directory",
        "--socket",
        form="PATH",
    ),
    Setting(
        "socket_group",
        "members of this group may use the control socket too: to read everything, and to run, adopt and delete "
        "processes of their own; they may not apply pods or change what others run",
        "",
        "--socket-group",
        form="GROUP",
    ),
    Setting(
        "sysroot", "root directory of the machine: DIR/sys is read, its cgroups are used", "/", "--sysroot", form="DIR"
    ),
    Setting(
        "preset",
        f"a built-in machine, or a shape such as {SHAPES['laptop-4']}; only with --runtime {RuntimeName.SIMULATED}",
        "this host",
        "--preset",
        form="NAME|SHAPE",
    ),
    Setting(
        "view",
        "always sound decisions, or exactly the kubelet's with its defects",
        "pinfold",
        "--as",
        form=_one_of(Fidelity),
    ),
    Setting(
        "log_format", "key=value lines, or one JSON object to a line", "text", "--log-format", form=_one_of(LogFormat)
    ),
)
CONTAINERS: Final = (
    Setting(
        "nri_socket",
        "where the container runtime listens for NRI plugins",
        "/var/run/nri/nri.sock",
        "--nri-socket",
        form="PATH",
    ),
    Setting("nri_index", "two digits: the runtime calls plugins in this order", "10", "--nri-index", form="NN"),
    Setting(
        "cri_socket",
        "where the container runtime listens for CRI; with --runtime nri it is used to list what NRI did not report",
        "/run/containerd/containerd.sock or /run/crio/crio.sock; with --runtime nri only if the same runtime answers",
        "--cri-socket",
        form="PATH",
    ),
    Setting(
        "pods_from",
        "source of whole pods, with init containers, sidecars and pod-level resources: auto asks all that are found, "
        "none asks no source; api-server, a directory of manifests, the socket of the kubelet's Pods API or the URL of "
        "the kubelet's pods, such as http://127.0.0.1:10255/pods, asks only that one",
        "auto",
        "--pods-from",
        form="SOURCE",
    ),
    Setting(
        "hints_from",
        "source of the NUMA nodes of devices, memory and hugepages, with which the Topology Manager aligns CPUs: auto "
        "asks the kubelet's PodResources API if its socket is there, none asks no source; or the path of that socket",
        "auto",
        "--hints-from",
        form="SOURCE",
    ),
    Setting(
        "service_account",
        "directory with the token and the ca.crt for the API server and the kubelet",
        "/var/run/secrets/kubernetes.io/serviceaccount",
        "--service-account",
        form="DIR",
    ),
    Setting(
        "on_refusal",
        "what becomes of a refused pod: the kubelet tries to start it again and again, or the API server sets it to "
        "Failed with the kubelet's reason, for which pinfold needs the right to patch pods/status and create events",
        "retry",
        "--on-refusal",
        form=_one_of(OnRefusal),
    ),
    Setting(
        "publish_topology",
        "publish the free CPUs of each NUMA node in the node's NodeResourceTopology object, for schedulers",
        "false",
        "--publish-topology",
        form="BOOL",
    ),
    Setting(
        "cgroup_root",
        "the parent of the kubelet's cgroup kubepods; needed on a host with more than one kubelet",
        "the only kubepods on the host",
        kubelet="--cgroup-root",
        form="PATH",
    ),
    Setting(
        "kubelet_dir",
        "the kubelet's directory, with the state file of its CPU Manager",
        "/var/lib/kubelet",
        "--kubelet-dir",
        form="DIR",
    ),
    Setting(
        "take_over",
        "take over the State of a stopped kubelet with a static policy; without this, pinfold only watches the node",
        "false",
        "--take-over",
        form="BOOL",
    ),
)
VIEWS: Final = (
    Setting(
        "listen",
        "address of the page, the read-only API and the metrics; port 0 takes a free port and logs it, none is off",
        "127.0.0.1:9440; off if that port is in use",
        "--listen",
        form="HOST:PORT",
    ),
    Setting(
        "allow_remote_read",
        "allow an address in --listen that other machines can reach; they can read everything, but change nothing",
        "false",
        "--allow-remote-read",
        form="BOOL",
    ),
    Setting(
        "allow_host",
        "another host name that HTTP clients may use, such as that of a Service; can be given again; "
        "requests for other names are refused",
        "",
        "--allow-host",
        form="NAME",
        adds_up=True,
    ),
    Setting(
        "metrics_prefix",
        "prefix of the kubelet's metric names",
        "kubelet_",
        "--metrics-prefix",
        form="TEXT",
    ),
    Setting(
        "pod_resources_socket",
        "where the PodResources API (gRPC) is served, at most 107 bytes",
        "pod-resources.sock beside the control socket",
        "--pod-resources-socket",
        form="PATH",
    ),
    Setting("journal_size", "the journal's maximum size in MiB; 0 turns it off", "64", "--journal-size", form="MIB"),
    Setting("journal_days", "how many days the journal goes back", "30", "--journal-days", form="DAYS"),
)
GROUPS: Final = {
    "CPU Manager": CPU_MANAGER,
    "Topology Manager": TOPOLOGY_MANAGER,
    "Policy dynamic": DYNAMIC,
    "Daemon": DAEMON,
    "Containers": CONTAINERS,
    "Views": VIEWS,
}
RELOADED: Final = frozenset(
    {"view", "config_file", *(row.name for rows in (CPU_MANAGER, TOPOLOGY_MANAGER, DYNAMIC) for row in rows)}
)
"""What SIGHUP changes; the other settings are read at the start."""
SETTINGS: Final = {setting.name: setting for rows in GROUPS.values() for setting in rows}
