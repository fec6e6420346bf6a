"""A KubeletConfiguration file → KubeletConfig.

Reads the fields about CPUs and ignores a kubelet's others. Knows nothing of the machine: `Config.build` checks whether
the reserved CPUs exist and the options fit each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pinfold.core.admission import Scope
from pinfold.core.config import POLICIES, Config
from pinfold.core.policies.options import OPTION_GATES, POD_LEVEL, RESIZE
from pinfold.core.topologymanager.options import TopologyPolicy
from pinfold.errors import ParseError
from pinfold.formats.documents import MAX_SETTINGS, Document, ValueRoom, parse_documents
from pinfold.formats.fields import DocumentError, Field, Problems, misspelt, shown
from pinfold.formats.kubelet.flags import (
    check_gate,
    check_option,
    check_reservable,
    check_topology_option,
    parse_amount,
    parse_cfs_period,
    parse_choice,
    parse_cpus,
    parse_duration,
    parse_key_values,
    parse_nanoseconds,
    parse_reconcile_period,
    reservation,
    spell_out_gates,
)
from pinfold.formats.number import Number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pinfold.core.pods.quantity import Quantity
    from pinfold.errors import Problem

__all__ = ["KubeletConfig", "parse_duration", "parse_key_values", "parse_kubelet_config"]

KIND: Final = "KubeletConfiguration"
VERSION: Final = "kubelet.config.k8s.io/v1beta1"
RECONCILE_PERIOD: Final = 10.0
CFS_PERIOD: Final = 100_000
FIELDS: Final = (
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "cpuManagerReconcilePeriod",
    "reservedSystemCPUs",
    "kubeReserved",
    "systemReserved",
    "topologyManagerPolicy",
    "topologyManagerScope",
    "topologyManagerPolicyOptions",
    "cpuCFSQuota",
    "cpuCFSQuotaPeriod",
    "featureGates",
)
GATES: Final = tuple(gate.name for gate in (*OPTION_GATES.values(), POD_LEVEL, RESIZE))
# Kubelet fields that pinfold does not read, but that look like a misspelt field that it reads.
_OTHER_FIELDS: Final = ("systemReservedCgroup", "kubeReservedCgroup", "draManagerReconcilePeriod")
_OTHER_GATES: Final = (
    "CPUManagerPolicyOptions",
    "InPlacePodVerticalScaling",
    "InPlacePodVerticalScalingExclusiveMemory",
    "PodLevelResources",
)
_DURATION: Final = 'a duration such as "10s", "1m30s" or "500ms"'

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class KubeletConfig:
    """A kubelet's settings about CPUs, with the kubelet's defaults."""

    config: Config = field(default_factory=Config)
    reconcile_period: float = RECONCILE_PERIOD
    """In seconds."""
    cfs_quota: bool = True
    cfs_period: int = CFS_PERIOD
    """In microseconds."""
    kube_reserved: Quantity | None = None
    system_reserved: Quantity | None = None
    gates: Mapping[str, bool] = field(default_factory=dict)
    """As written; in `config` AllAlpha and AllBeta are expanded."""
    said: frozenset[str] = frozenset()
    """The fields that the file sets."""
    warnings: tuple[str, ...] = ()
    misspelt: tuple[str, ...] = ()
    """Those of the warnings that are about fields that are ignored because they are probably misspelt."""


class KubeletFile(NamedTuple):
    """What a KubeletConfiguration says where it is right, and every problem."""

    found: KubeletConfig
    problems: tuple[ParseError, ...]
    is_decided: bool
    """Whether every field that decides which CPUs a container gets is right."""


def parse_kubelet_config(text: str, *, source: str = "") -> KubeletConfig:
    r"""Return the KubeletConfiguration in *text*, YAML or JSON; *source* names the file in errors.

    >>> head = f"kind: {KIND}\napiVersion: {VERSION}\n"
    >>> parse_kubelet_config(head + "cpuManagerPolicy: static\nkubeReserved: {cpu: 500m}").config.reserved.count
    1
    >>> parse_kubelet_config(head + "cpuManagerReconcilePeriod: 10", source="kubelet.yaml")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    pinfold.formats.fields.DocumentError: kubelet.yaml: cpuManagerReconcilePeriod: 10 where a duration such as "10s"...
    """
    found, problems, _ = check_kubelet_config(text, source=source)
    if problems:
        raise DocumentError(problems)
    return found


def check_kubelet_config(text: str, *, source: str = "") -> KubeletFile:
    """Return what the file says and its problems; raise if it is not a KubeletConfiguration."""
    problems = Problems()
    root = _find_root(text, source, problems)
    config, kube, system, gates = _read_config(root)
    is_decided = not problems.found
    _check_is(root, "apiVersion", VERSION)
    found = _read(root, KubeletConfig(config=config, kube_reserved=kube, system_reserved=system, gates=gates))
    return KubeletFile(found, tuple(problems.found), is_decided)


def _find_root(text: str, source: str, problems: Problems) -> Field:
    """Return the one KubeletConfiguration in *text*; other kinds are ignored, as in a file for kubeadm."""
    found = parse_documents(text, source=source, room=ValueRoom(MAX_SETTINGS), problems=problems)
    documents = [document for document in found if document.value is not None]
    ours = [document for document in documents if _kind(document) == KIND]
    if not ours:
        problems.check()  # it may be in what cannot be read
    if len(documents) > 1 and len(ours) != 1:
        raise ParseError(f"{len(ours)} documents of kind {KIND}; one is expected", where=source)
    number, value = (ours or documents or [Document(1, None)])[0]
    place = f"document {number}" if len(documents) > 1 else ""
    root = Field(value, problems, ": ".join(filter(None, (source, place))))
    if not isinstance(value, dict):
        root.expected(f"a {KIND}")
    elif not ours:
        root.child("kind").expected(KIND)
    if not ours:
        problems.check()
    return root


def _kind(document: Document) -> object:
    return document.value.get("kind") if isinstance(document.value, dict) else None


def _check_is(root: Field, key: str, expected: str) -> None:
    if root.get(key) != expected:
        root.child(key).expected(expected)


def _read_config(root: Field) -> tuple[Config, Quantity | None, Quantity | None, dict[str, bool]]:
    """Return what decides, then the amounts and gates in it as they are written."""
    kube, system = _read_reserved(root, "kubeReserved"), _read_reserved(root, "systemReserved")
    gates = _read_gates(root)
    config = Config(
        policy=_read_choice(root.child("cpuManagerPolicy"), POLICIES, "none"),
        options=_read_options(root.mapping("cpuManagerPolicyOptions"), check_option),
        reserved=reservation(_read_text(root.child("reservedSystemCPUs"), parse_cpus, None), kube, system),
        topology_policy=_read_choice(root.child("topologyManagerPolicy"), TopologyPolicy, "none"),
        topology_options=_read_options(root.mapping("topologyManagerPolicyOptions"), check_topology_option),
        topology_scope=_read_choice(root.child("topologyManagerScope"), Scope, "container"),
        gates=spell_out_gates(gates),
    )
    return config, kube, system, gates


def _read(root: Field, decided: KubeletConfig) -> KubeletConfig:
    """Return *decided* with everything else that the file says."""
    wrong = tuple(_misspelt(root))
    return replace(
        decided,
        reconcile_period=_read_duration(root.child("cpuManagerReconcilePeriod"), _period, RECONCILE_PERIOD),
        cfs_quota=_read_bool(root.child("cpuCFSQuota"), default=True),
        cfs_period=_read_duration(root.child("cpuCFSQuotaPeriod"), parse_cfs_period, CFS_PERIOD),
        said=frozenset(name for name in FIELDS if root.get(name) is not None),
        warnings=(*wrong, *_warnings(root)),
        misspelt=wrong,
    )


def _misspelt(root: Field) -> Iterator[str]:
    yield from misspelt(root, FIELDS, _OTHER_FIELDS)
    yield from misspelt(root.child("featureGates"), GATES, _OTHER_GATES)


def _warnings(root: Field) -> Iterator[str]:
    memory, topology = root.child("memoryManagerPolicy"), root.child("topologyManagerPolicy")
    if memory.value == "Static" and topology.value not in (None, "", TopologyPolicy.NONE):
        yield f"{memory.where}: a kubelet also has NUMA hints for memory; pinfold does not know them"


def _read_choice(field: Field, allowed: Iterable[str], default: str) -> str:
    if field.value is None or field.value == "":
        return default
    names = [str(name) for name in allowed]
    if not isinstance(field.value, str):
        field.refuse(f"{shown(field.value)} is unknown; allowed: {', '.join(names)}")
        return default
    return _parse(field, lambda text: parse_choice(text, names), default)


def _read_duration(field: Field, parse: Callable[[str], _Value], default: _Value) -> _Value:
    if field.value is None:
        return default
    if not isinstance(field.value, str):
        field.expected(_DURATION)
        return default
    return _parse(field, parse, default)


def _period(text: str) -> float:
    """Return the reconcile period; a kubelet treats 0 in its file as not set."""
    return parse_reconcile_period(text) if parse_nanoseconds(text) else RECONCILE_PERIOD


def _read_bool(field: Field, *, default: bool) -> bool:
    if isinstance(field.value, bool):
        return field.value
    if field.value is not None:
        field.expected("true or false without quotes")
    return default


def _read_options(mapping: Field, check: Callable[[str, str], list[Problem]]) -> dict[str, str]:
    options = {}
    for name in mapping.names:
        field = mapping.child(name)
        options[name] = text = _as_text(field)
        for problem in check(name, text) if isinstance(field.value, str) else ():
            field.refuse(str(problem))
    return options


def _read_reserved(root: Field, key: str) -> Quantity | None:
    mapping = root.mapping(key)
    for name in mapping.names:
        _check_name(mapping.child(name), check_reservable)
    return _read_text(mapping.child("cpu"), parse_amount, None)


def _read_gates(root: Field) -> dict[str, bool]:
    mapping = root.mapping("featureGates")
    for name in mapping.names:
        _check_name(mapping.child(name), check_gate)
        if mapping.get(name) is None:
            mapping.child(name).expected("true or false without quotes")
    return {name: _read_bool(mapping.child(name), default=False) for name in mapping.names}


def _check_name(field: Field, check: Callable[[str], object]) -> None:
    try:
        check(str(field.key))
    except ParseError as error:
        field.refuse(str(error))


def _read_text(field: Field, parse: Callable[[str], _Value], default: _Value) -> _Value:
    if field.value is None:
        return default
    _as_text(field)
    return _parse(field, parse, default) if isinstance(field.value, str) else default


def _as_text(field: Field) -> str:
    """Return the text of *field*; a kubelet, unlike YAML, distinguishes 1 from "1" and true from "true"."""
    if not isinstance(field.value, Number | bool):
        return field.as_text()
    written = shown(field.value)
    field.refuse(f'{written} is not text, and a kubelet takes nothing else here; write it in quotes: "{written}"')
    return ""


def _parse(field: Field, parse: Callable[[str], _Value], default: _Value) -> _Value:
    try:
        return parse(str(field.value))
    except ParseError as error:
        field.refuse(str(error))
        return default
