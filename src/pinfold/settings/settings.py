"""The settings of `pinfold serve`: flags over a KubeletConfiguration file over defaults, checked against the machine.

Reads only that file; callers pass environment, user and machine. `table` lists all settings. Before, `ownfile` adds
those of the daemon's own file to the flags.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pinfold.core.caching import overlaps
from pinfold.core.moving.repacking import Pace
from pinfold.core.values import value
from pinfold.errors import ConfigError, Problem
from pinfold.formats.cacheclasses import parse_cache_classes
from pinfold.formats.kubelet.flags import (
    parse_bool,
    parse_cfs_period,
    parse_key_values,
    parse_reconcile_period,
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
from pinfold.settings.config import read_config
from pinfold.settings.flags import add_arguments
from pinfold.settings.places import SourcedPath, bindable, check_path, find_socket, find_state, socket_path
from pinfold.settings.reader import SettingsReader
from pinfold.settings.table import (
    CONTAINERS,
    CpusetPartition,
    Groups,
    LogFormat,
    OnExit,
    OnRefusal,
    OtherDaemons,
    RuntimeName,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from pinfold.core.caching import CacheClass
    from pinfold.core.config import Config
    from pinfold.core.machine.topology import Topology

__all__ = ["Groups", "LogFormat", "RuntimeName", "Settings", "add_arguments", "read_settings", "socket_path"]

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ADDRESS: Final[Address | None] = DEFAULT_ADDRESS


@value()
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


@value()
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


@value()
class OutputSettings:
    """The settings for the output of containers."""

    directory: Path
    each: int
    """In bytes, as the next."""
    total: int


@value()
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
    cpuset_partition: CpusetPartition
    other_daemons: OtherDaemons
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
    stand_by: bool
    sources: Mapping[str, str]
    """The source of each setting: a flag, a file and its field, a variable, or a default."""
    values: Mapping[str, object]
    """Each setting as it was read, by the name of its row."""
    warnings: tuple[str, ...] = ()
    misspelt: tuple[str, ...] = ()
    """Those of the warnings that are about misspelt fields of the kubelet's file."""


def _default_runtime(environment: Mapping[str, str]) -> RuntimeName:
    """Return the runtime: one that starts pinfold as its plugin sets a variable, and gives no arguments."""
    return RuntimeName.NRI if "NRI_PLUGIN_SOCKET" in environment else RuntimeName.PROCESSES


def read_settings(
    arguments: argparse.Namespace, topology: Topology | None, *, environment: Mapping[str, str], uid: int
) -> Settings:
    """Return the settings, or raise a ConfigError with all problems; with no machine, of the settings themselves."""
    reader = SettingsReader(arguments)
    file = reader.file
    settings = Settings(
        config=read_config(reader, topology),
        reconcile_period=reader.take("reconcile_period", parse_reconcile_period, file.reconcile_period),
        cfs_quota=reader.take("cfs_quota", parse_bool, file.cfs_quota),
        cfs_period=reader.take("cfs_period", parse_cfs_period, file.cfs_period),
        pace=_read_pace(reader),
        runtime=reader.choose("runtime", _default_runtime(environment)),
        groups=reader.choose("groups", Groups.AUTO),
        group_name=reader.take("group_name", str, "pinfold"),
        end_workloads=reader.take("end_workloads", parse_bool, otherwise=False),
        cpuset_partition=reader.choose("cpuset_partition", CpusetPartition.MEMBER),
        other_daemons=reader.choose("other_daemons", OtherDaemons.WARN),
        on_exit=reader.choose("on_exit", OnExit.KEEP),
        shield=reader.take("shield", parse_bool, otherwise=False),
        local_memory=reader.take("local_memory", parse_bool, otherwise=False),
        kubernetes=_read_kubernetes(reader),
        state_dir=reader.place("state_dir", lambda flag: find_state(environment, uid, flag, reader.flag("state_dir"))),
        socket=reader.place("socket", lambda flag: find_socket(environment, uid, flag, reader.flag("socket"))),
        socket_group=reader.take("socket_group", str, None),
        views=_read_views(reader, environment, uid),
        outputs=_read_outputs(reader, environment, uid),
        cache_classes=_read_cache_classes(reader),
        sysroot=reader.take("sysroot", Path, Path("/")),
        preset=reader.take("preset", str, None),
        log_format=reader.choose("log_format", LogFormat.TEXT),
        config_file=reader.take("config_file", Path, None),
        watch_config=reader.take("watch_config", parse_bool, otherwise=False),
        stand_by=reader.take("stand_by", parse_bool, otherwise=False),
        sources=MappingProxyType(reader.sources),
        values=MappingProxyType(reader.values),
        warnings=(*file.warnings, *reader.warnings),
    )
    return _checked(reader, settings)


def _checked(reader: SettingsReader, settings: Settings) -> Settings:
    """Return *settings*, or raise all problems that were found."""
    _check_runtime(reader, settings)
    if reader.problems:  # the warnings may be their cause
        raise ConfigError(*dict.fromkeys([*reader.problems, *map(Problem, reader.file.warnings)]))
    return replace(settings, misspelt=reader.file.misspelt)


def _read_pace(reader: SettingsReader) -> Pace:
    usual = Pace()
    return Pace(
        moves=reader.take("repack_moves", whole_number(0, 1000), usual.moves),
        dwell=reader.take("repack_dwell", duration_within(86_400), usual.dwell),
        grace=reader.take("notice_grace", duration_within(60), usual.grace),
    )


def _read_views(reader: SettingsReader, environment: Mapping[str, str], uid: int) -> ViewSettings:
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


def _read_pod_resources(reader: SettingsReader, environment: Mapping[str, str], uid: int) -> Path:
    def find(flag: str | None) -> SourcedPath:
        if flag is not None:
            named = reader.flag("pod_resources_socket")
            return bindable(SourcedPath(check_path(flag, named), named), "--pod-resources-socket")
        beside = find_socket(environment, uid, reader.arguments.socket, reader.flag("socket"))
        return bindable(SourcedPath(beside.path.with_name("pod-resources.sock"), beside.source))

    return reader.place("pod_resources_socket", find)


def _read_outputs(reader: SettingsReader, environment: Mapping[str, str], uid: int) -> OutputSettings:
    def find(flag: str | None) -> SourcedPath:
        if flag is not None:
            # Files there are cut and removed, so they are apart from those of other programs and daemons.
            own = reader.arguments.group_name or "pinfold"
            named = reader.flag("log_dir")
            return SourcedPath(check_path(flag, named) / own, named)
        state = find_state(environment, uid, reader.arguments.state_dir, reader.flag("state_dir"))
        return SourcedPath(state.path / "logs", state.source)

    return OutputSettings(
        reader.place("log_dir", find),
        reader.take("log_size", whole_number(1, 1 << 20), 20) << 20,
        reader.take("log_total", whole_number(1, 1 << 30), 1024) << 20,
    )


def _read_cache_classes(reader: SettingsReader) -> Mapping[str, CacheClass]:
    none: dict[str, CacheClass] = {}
    table = reader.take("cache_classes", lambda text: parse_cache_classes(parse_key_values(text)), none)
    reader.problems += overlaps(table)
    return table


def _read_kubernetes(reader: SettingsReader) -> Kubernetes:
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


def _check_runtime(reader: SettingsReader, settings: Settings) -> None:
    simulated = settings.runtime is RuntimeName.SIMULATED
    if reader.is_given("preset") and settings.runtime is not RuntimeName.SIMULATED:
        reader.problems.append(Problem(f"{reader.flag('preset')} needs --runtime {RuntimeName.SIMULATED}"))
    if reader.is_given("preset") and reader.is_given("sysroot"):
        said = f"{reader.flag('preset')} and {reader.flag('sysroot')} exclude each other"
        reader.problems.append(Problem(said, "give one of them"))
    containers = settings.runtime in {RuntimeName.NRI, RuntimeName.CRI}
    for name in (setting.name for setting in CONTAINERS):
        if reader.is_given(name) and not containers:
            said = f"{reader.flag(name)} needs --runtime {RuntimeName.NRI} or {RuntimeName.CRI}"
            reader.problems.append(Problem(said))
    if settings.shield and (simulated or settings.sysroot != Path("/")):
        said = f"{reader.flag('shield')} moves the rest of this host, which --sysroot and simulations lack"
        reader.problems.append(Problem(said))
    if reader.is_given("groups") and (simulated or containers):
        reader.problems.append(Problem(f"{reader.flag('groups')} needs --runtime {RuntimeName.PROCESSES}"))
