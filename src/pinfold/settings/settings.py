"""The settings of `pinfold serve`: flags over a KubeletConfiguration file over defaults, checked against the machine.

Reads only that file; callers pass environment, user and machine. `table` lists all settings. Before, `ownfile` adds
those of the daemon's own file to the flags.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from pinfold.core.admission import Scope
from pinfold.core.allocators.order import Fidelity
from pinfold.core.caching import overlaps
from pinfold.core.config import NOT_SAID, POLICIES, Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.moving.repack import Pace
from pinfold.core.topologymanager.options import TopologyPolicy
from pinfold.errors import ConfigError, ParseError, Problem
from pinfold.formats.cacheclasses import parse_cache_classes
from pinfold.formats.fields import DocumentError
from pinfold.formats.kubelet.config import KubeletConfig, parse_kubelet_config
from pinfold.formats.kubelet.flags import (
    check_option,
    check_topology_option,
    parse_bool,
    parse_cfs_period,
    parse_choice,
    parse_cpus,
    parse_gates,
    parse_key_values,
    parse_reconcile_period,
    parse_reserved,
    reservation,
    spell_out_gates,
)
from pinfold.settings.addresses import (
    DEFAULT_ADDRESS,
    Address,
    duration_within,
    parse_address,
    parse_hosts,
    parse_prefix,
    whole_number,
)
from pinfold.settings.filetext import read_text
from pinfold.settings.flags import add_arguments
from pinfold.settings.places import DEFAULT, SourcedPath, bindable, check_path, find_socket, find_state, socket_path
from pinfold.settings.table import CONTAINERS, OWN_FILE, SETTINGS, Groups, LogFormat, OnExit, OnRefusal, RuntimeName

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping

    from pinfold.core.caching import CacheClass
    from pinfold.core.machine.topology import Topology

__all__ = ["Groups", "LogFormat", "RuntimeName", "Settings", "add_arguments", "read_settings", "socket_path"]

_KUBELET_DEFAULT: Final = "kubelet's default"
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LAPTOP: Final = Config("static")
_ADDRESS: Final[Address | None] = DEFAULT_ADDRESS
_Value = TypeVar("_Value")
_Name = TypeVar("_Name", Fidelity, Groups, LogFormat, OnExit, OnRefusal, RuntimeName)


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """The settings for a container runtime."""

    nri_socket: str
    nri_index: str
    cri_socket: str | None
    pods_from: str
    hints_from: str
    service_account: Path
    on_refusal: OnRefusal
    publish_topology: bool
    cgroup_root: str | None
    kubelet_dir: Path
    take_over: bool


@dataclass(frozen=True, slots=True)
class ViewSettings:
    """The settings for the page, the API and the metrics."""

    listen: Address | None
    """None: pinfold does not listen on TCP."""
    listen_is_default: bool
    hosts: frozenset[str]
    """Further host names that HTTP clients may use."""
    metrics_prefix: str
    pod_resources: Path
    journal_bytes: int
    journal_seconds: float


@dataclass(frozen=True, slots=True)
class OutputSettings:
    """The settings for the output of containers."""

    directory: Path
    each: int
    """In bytes, as the next."""
    total: int


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of `pinfold serve`, checked."""

    config: Config
    reconcile_period: float
    """In seconds."""
    cfs_quota: bool
    cfs_period: int
    """In microseconds."""
    pace: Pace
    runtime: RuntimeName
    groups: Groups
    group_name: str
    end_workloads: bool
    on_exit: OnExit
    shield: bool
    local_memory: bool
    kubernetes: Kubernetes
    views: ViewSettings
    outputs: OutputSettings
    cache_classes: Mapping[str, CacheClass]
    state_dir: Path
    socket: Path
    socket_group: str | None
    sysroot: Path
    preset: str | None
    log_format: LogFormat
    config_file: Path | None
    watch_config: bool
    sources: Mapping[str, str]
    """The source of each setting: a flag, a file and its field, a variable, or a default."""
    values: Mapping[str, object]
    """Each setting as it was read, by the name of its row."""
    warnings: tuple[str, ...] = ()


def read_settings(
    arguments: argparse.Namespace, topology: Topology, *, environment: Mapping[str, str], uid: int
) -> Settings:
    """Return the settings, or raise a ConfigError with all problems."""
    reader = _Reader(arguments)
    file = reader.file
    settings = Settings(
        config=_read_config(reader, topology),
        reconcile_period=reader.take("reconcile_period", parse_reconcile_period, file.reconcile_period),
        cfs_quota=reader.take("cfs_quota", parse_bool, file.cfs_quota),
        cfs_period=reader.take("cfs_period", parse_cfs_period, file.cfs_period),
        pace=_read_pace(reader),
        # A container runtime that starts pinfold as its plugin sets a variable, and gives no arguments.
        runtime=reader.choose(
            "runtime", RuntimeName.NRI if "NRI_PLUGIN_SOCKET" in environment else RuntimeName.PROCESSES
        ),
        groups=reader.choose("groups", Groups.AUTO),
        group_name=reader.take("group_name", str, "pinfold"),
        end_workloads=reader.take("end_workloads", parse_bool, otherwise=False),
        on_exit=reader.choose("on_exit", OnExit.KEEP),
        shield=reader.take("shield", parse_bool, otherwise=False),
        local_memory=reader.take("local_memory", parse_bool, otherwise=False),
        kubernetes=_read_kubernetes(reader),
        state_dir=reader.place("state_dir", lambda flag: find_state(environment, uid, flag)),
        socket=reader.place("socket", lambda flag: find_socket(environment, uid, flag)),
        socket_group=reader.take("socket_group", str, None),
        views=_read_views(reader, environment, uid),
        outputs=_read_outputs(reader, environment, uid),
        cache_classes=_read_cache_classes(reader),
        sysroot=reader.take("sysroot", Path, Path("/")),
        preset=reader.take("preset", str, None),
        log_format=reader.choose("log_format", LogFormat.TEXT),
        config_file=reader.take("config_file", Path, None),
        watch_config=reader.take("watch_config", parse_bool, otherwise=False),
        sources=MappingProxyType(reader.sources),
        values=MappingProxyType(reader.values),
        warnings=(*file.warnings, *reader.warnings),
    )
    return _checked(reader, settings)


def _checked(reader: _Reader, settings: Settings) -> Settings:
    """Return *settings*, or raise all problems that were found."""
    _check_runtime(reader, settings)
    if reader.problems:  # the warnings may be their cause
        raise ConfigError(*dict.fromkeys([*reader.problems, *map(Problem, reader.file.warnings)]))
    return settings


def _read_pace(reader: _Reader) -> Pace:
    usual = Pace()
    return Pace(
        moves=reader.take("repack_moves", whole_number(0, 1000), usual.moves),
        dwell=reader.take("repack_dwell", duration_within(86_400), usual.dwell),
        grace=reader.take("notice_grace", duration_within(60), usual.grace),
    )


def _read_views(reader: _Reader, environment: Mapping[str, str], uid: int) -> ViewSettings:
    listen = reader.take("listen", parse_address, _ADDRESS)
    others = reader.take("allow_remote_read", parse_bool, otherwise=False)
    if listen is not None and not listen.is_loopback and not others:
        said = f"{reader.flag('listen')}: other machines can reach {listen.host}"
        reader.problems.append(Problem(said, "add --allow-remote-read if they may read everything"))
    return ViewSettings(
        listen=listen,
        listen_is_default=not reader.is_given("listen"),
        hosts=reader.take("allow_host", parse_hosts, frozenset()),
        metrics_prefix=reader.take("metrics_prefix", parse_prefix, "kubelet_"),
        pod_resources=_read_pod_resources(reader, environment, uid),
        journal_bytes=reader.take("journal_size", whole_number(0, 1 << 20), 64) << 20,
        journal_seconds=reader.take("journal_days", whole_number(1, 36_500), 30) * 86_400.0,
    )


def _read_pod_resources(reader: _Reader, environment: Mapping[str, str], uid: int) -> Path:
    def find(flag: str | None) -> SourcedPath:
        if flag is not None:
            return bindable(SourcedPath(check_path(flag, "--pod-resources-socket"), "--pod-resources-socket"))
        beside = find_socket(environment, uid, reader.arguments.socket)
        return bindable(SourcedPath(beside.path.with_name("pod-resources.sock"), beside.source))

    return reader.place("pod_resources_socket", find)


def _read_outputs(reader: _Reader, environment: Mapping[str, str], uid: int) -> OutputSettings:
    def find(flag: str | None) -> SourcedPath:
        if flag is not None:
            # Files there are cut and removed, so they are apart from those of other programs and daemons.
            own = reader.arguments.group_name or "pinfold"
            return SourcedPath(check_path(flag, "--log-dir") / own, "--log-dir")
        state = find_state(environment, uid, reader.arguments.state_dir)
        return SourcedPath(state.path / "logs", state.source)

    return OutputSettings(
        reader.place("log_dir", find),
        reader.take("log_size", whole_number(1, 1 << 20), 20) << 20,
        reader.take("log_total", whole_number(1, 1 << 30), 1024) << 20,
    )


def _read_cache_classes(reader: _Reader) -> Mapping[str, CacheClass]:
    none: dict[str, CacheClass] = {}
    table = reader.take("cache_classes", lambda text: parse_cache_classes(parse_key_values(text)), none)
    reader.problems += overlaps(table)
    return table


def _read_kubernetes(reader: _Reader) -> Kubernetes:
    return Kubernetes(
        nri_socket=reader.take("nri_socket", str, "/var/run/nri/nri.sock"),
        nri_index=reader.take("nri_index", str, "10"),
        cri_socket=reader.take("cri_socket", str, None),
        pods_from=reader.take("pods_from", str, "auto"),
        hints_from=reader.take("hints_from", str, "auto"),
        service_account=reader.take("service_account", Path, _SERVICE_ACCOUNT),
        on_refusal=reader.choose("on_refusal", OnRefusal.RETRY),
        publish_topology=reader.take("publish_topology", parse_bool, otherwise=False),
        cgroup_root=reader.take("cgroup_root", str, None),
        kubelet_dir=reader.take("kubelet_dir", Path, Path("/var/lib/kubelet")),
        take_over=reader.take("take_over", parse_bool, otherwise=False),
    )


def default_reservation(topology: Topology) -> Reservation:
    """Return the core of the lowest CPU that is not isolated; only that CPU if the machine has no other core.

    >>> from pinfold.core.machine.presets import preset
    >>> print(default_reservation(preset("laptop-4")).cpus, default_reservation(preset("threads:2")).cpus)
    0,2 0
    """
    usable = (topology.online - topology.isolated or topology.online).mask
    lowest = CPUSet(usable & -usable)
    core = topology.siblings(lowest)
    return Reservation.of(core if core < topology.online else lowest)


class _Reader:
    """Reads settings from flags or the file, and records sources and problems."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.problems: list[Problem] = []
        own: list[Problem] = getattr(arguments, "problems", [])
        """Those of the daemon's own file, if it was read."""
        self.values: dict[str, object] = {}
        self.warnings: list[str] = []
        self.sources: dict[str, str] = {}
        self.has_file = arguments.config_file is not None
        self.file = self.read_file() if self.has_file else KubeletConfig()
        self.readable = not self.problems
        self.problems[:0] = own
        self.take(OWN_FILE, str, getattr(arguments, "own_file", None))

    def read_file(self) -> KubeletConfig:
        name = self.arguments.config_file
        try:
            check_path(name, "--config")
            return parse_kubelet_config(read_text(name), source=name)
        except ConfigError as error:
            self.problems += error.problems
        except DocumentError as error:
            self.problems += [Problem(str(problem)) for problem in error.problems]
        except ParseError as error:
            self.problems.append(Problem(str(error)))
        return KubeletConfig()

    def flag(self, name: str) -> str:
        """Return the flag of a setting, as the user wrote it if given."""
        return str(self.arguments.given.get(name, SETTINGS[name].flags[0]))

    def is_given(self, name: str) -> bool:
        return getattr(self.arguments, name) is not None

    def take(self, name: str, parse: Callable[[str], _Value], otherwise: _Value) -> _Value:
        """Return the value of the flag, or *otherwise*, from the file or a default."""
        self.values[name] = otherwise
        if not self.is_given(name):
            self.sources[name] = self._otherwise(name)
            return otherwise
        self.sources[name] = self.flag(name)
        try:
            value = parse(getattr(self.arguments, name))
        except ParseError as error:
            self.problems.append(Problem(f"{self.flag(name)}: {error}"))
            return otherwise
        self.values[name] = value
        return value

    def choose(self, name: str, default: _Name) -> _Name:
        kind = type(default)
        return kind(self.take(name, _one_of(kind), str(default)))

    def options(
        self, name: str, check: Callable[[str, str], list[Problem]], otherwise: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Return options as `take` does, without the wrong ones."""
        found = self.take(name, parse_key_values, dict(otherwise))
        wrong = {option: check(option, text) for option, text in found.items()} if self.is_given(name) else {}
        for said, advice in (problem for problems in wrong.values() for problem in problems):
            self.problems.append(Problem(f"{self.flag(name)}: {said}", advice))
        return {option: text for option, text in found.items() if not wrong.get(option)}

    def place(self, name: str, find: Callable[[str | None], SourcedPath]) -> Path:
        try:
            place = find(getattr(self.arguments, name))
        except ConfigError as error:
            self.problems += error.problems
            return Path()
        self.sources[name] = self.flag(name) if self.is_given(name) else place.source
        self.values[name] = place.path
        return place.path

    def _otherwise(self, name: str) -> str:
        field = SETTINGS[name].field
        if not (self.has_file and field):
            return DEFAULT
        return f"{self.arguments.config_file}: {field}" if field in self.file.said else _KUBELET_DEFAULT


def _read_config(reader: _Reader, topology: Topology) -> Config:
    file = reader.file
    base = file.config if reader.has_file else _LAPTOP
    policy = reader.take("policy", _one_of(POLICIES), base.policy)
    config = Config(
        policy=policy,
        options=reader.options("policy_options", check_option, base.options),
        reserved=_read_reserved(reader, policy, topology),
        topology_policy=reader.take("topology_policy", _one_of(TopologyPolicy), base.topology_policy),
        topology_options=reader.options("topology_options", check_topology_option, base.topology_options),
        topology_scope=reader.take("topology_scope", _one_of(Scope), base.topology_scope),
        gates=spell_out_gates(_read_gates(reader)),
        fidelity=reader.choose("view", Fidelity.PINFOLD),
    )
    if policy == "none" and not reader.is_given("policy"):
        source = reader.sources["policy"]
        reader.warnings.append(f"policy none ({source}) gives no container exclusive CPUs; --policy static does")
    if reader.readable:
        reader.problems += _problems_on(topology, config)
    return config


def _one_of(names: Iterable[str]) -> Callable[[str], str]:
    allowed = [str(name) for name in names]
    return lambda text: parse_choice(text, allowed)


def _read_reserved(reader: _Reader, policy: str, topology: Topology) -> Reservation:
    file = reader.file
    before = len(reader.problems)
    cpus = reader.take("reserved_cpus", parse_cpus, file.config.reserved.cpus)
    amounts = {
        "kube_reserved": reader.take("kube_reserved", parse_reserved, file.kube_reserved),
        "system_reserved": reader.take("system_reserved", parse_reserved, file.system_reserved),
    }
    if cpus is None:
        said = [reader.sources[name] for name, amount in amounts.items() if amount is not None]
        reader.sources["reserved_cpus"] = ", ".join(said) or reader.sources["reserved_cpus"]
    else:
        source = reader.sources["reserved_cpus"]
        reader.warnings += [
            f"{reader.flag(name)} is not used: {source} names the CPUs" for name in amounts if reader.is_given(name)
        ]
        if policy != "none" and cpus == topology.online:
            problem = f"{source}: all CPUs of the machine are reserved, so none can be exclusive"
            reader.problems.append(Problem(problem, "leave some out"))
        if outside := cpus - topology.online:
            reader.problems.append(
                Problem(f"{source}: {_not_online(outside)}", f"the machine has CPUs {topology.online}")
            )
    found = reservation(cpus, *amounts.values())
    is_wrong = len(reader.problems) > before
    is_open = found == NOT_SAID and policy != "none" and not reader.has_file
    chosen = default_reservation(topology) if is_wrong or is_open else found
    reader.values["reserved_cpus"] = chosen.cpus
    return chosen


def _not_online(cpus: CPUSet) -> str:
    return f"CPU {cpus} is not online" if len(cpus) == 1 else f"CPUs {cpus} are not online"


def _read_gates(reader: _Reader) -> dict[str, bool]:
    before = reader.file.gates
    gates = {**before, **reader.take("feature_gates", parse_gates, {})}
    if before and reader.is_given("feature_gates"):
        reader.sources["feature_gates"] += f", {reader.arguments.config_file}: {SETTINGS['feature_gates'].field}"
    return gates


def _problems_on(topology: Topology, config: Config) -> tuple[Problem, ...]:
    """Return conflicts between settings of *config*, and with the machine."""
    try:
        config.build(topology)
    except ConfigError as error:
        return error.problems
    return ()


def _check_runtime(reader: _Reader, settings: Settings) -> None:
    simulated = settings.runtime is RuntimeName.SIMULATED
    if reader.is_given("preset") and settings.runtime is not RuntimeName.SIMULATED:
        reader.problems.append(Problem(f"--preset needs --runtime {RuntimeName.SIMULATED}"))
    if reader.is_given("preset") and reader.is_given("sysroot"):
        reader.problems.append(Problem("--preset and --sysroot exclude each other", "give one of them"))
    containers = settings.runtime in {RuntimeName.NRI, RuntimeName.CRI}
    for name in (setting.name for setting in CONTAINERS):
        if reader.is_given(name) and not containers:
            said = f"{reader.flag(name)} needs --runtime {RuntimeName.NRI} or {RuntimeName.CRI}"
            reader.problems.append(Problem(said))
    if settings.shield and (simulated or settings.sysroot != Path("/")):
        reader.problems.append(Problem("--shield moves the rest of this host, which --sysroot and simulations lack"))
    if reader.is_given("groups") and (simulated or containers):
        reader.problems.append(Problem(f"--groups needs --runtime {RuntimeName.PROCESSES}"))
