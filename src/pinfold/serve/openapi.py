"""What the read-only API offers, as an OpenAPI 3.1 document: every path, parameter and answer; served, and tested."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import pinfold
from pinfold.core.machine.cpuset import MAX_CPU

Schema = dict[str, Any]  # Any: JSON

_TEXT: Final[Schema] = {"type": "string"}
_CPUS: Final[Schema] = {"type": "string", "description": "CPUs as a Linux list, such as 0-3,8; empty: none"}
_NUMBER: Final[Schema] = {"type": "integer"}
_TIME: Final[Schema] = {"type": "number", "description": "seconds since the epoch"}
_FLAG: Final[Schema] = {"type": "boolean"}


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _object(optional: tuple[str, ...] = (), **fields: Schema) -> Schema:
    return {"type": "object", "properties": fields, "required": [name for name in fields if name not in optional]}


_ALIGNMENT: Final = _object(
    cores=_NUMBER, uncore_caches=_NUMBER, numa_nodes=_NUMBER, sockets=_NUMBER, fewest={"type": "object"}
)
_ENTRY: Final = _object(number=_NUMBER, time=_TIME, what=_TEXT)
_EXCLUSIVITY: Final = _object(
    seconds={"type": "number", "description": "since the container got its CPUs, or the daemon started"},
    foreign={"type": "number", "description": "seconds for which others have run on them"},
    interrupts=_NUMBER,
    preempted={"type": "integer", "description": "how often its threads had to leave their CPU for another thread"},
    throttled={"type": "number", "description": "seconds for which a quota has stopped it"},
)
_CONTAINER: Final = _object(
    namespace=_TEXT,
    pod=_TEXT,
    container=_TEXT,
    kind=_TEXT,
    qos=_TEXT,
    exclusive=_FLAG,
    cpus=_CPUS,
    allowed=_CPUS,
    state=_TEXT,
    pid=_or_null(_NUMBER),
    restarts=_NUMBER,
    code=_or_null(_NUMBER),
    since=_TIME,
    exclusivity=_or_null(_EXCLUSIVITY),
    alignment=_or_null(_ALIGNMENT),
    why=_TEXT,
    cache=_or_null(_object(occupancy=_or_null(_NUMBER), traffic=_or_null(_NUMBER))),
)
_POD: Final = _object(
    namespace=_TEXT,
    name=_TEXT,
    uid=_TEXT,
    qos=_TEXT,
    kind=_TEXT,
    containers=_list(_TEXT),
    refused={"type": "string", "description": "the reason word if the pod waits after a refusal, else empty"},
)
_POOLS: Final = _object(
    online=_CPUS,
    shared=_CPUS,
    reserved=_CPUS,
    assignable=_CPUS,
    exclusive=_CPUS,
    idle=_CPUS,
    allocatable=_CPUS,
    offline=_CPUS,
    isolated=_CPUS,
)
_BOX: Final = _object(
    label={"type": "string", "description": "the groups that the box stands for, such as Socket 0 · NUMA 0"},
    kind={"type": "string", "enum": ["socket", "numa", "uncore"]},
    boxes=_list({"$ref": "#/components/schemas/Box"}),
    cores={**_list(_list(_NUMBER)), "description": "the CPUs of each core; only in the innermost boxes"},
)
_LAYOUT: Final = _object(
    summary={"type": "string", "description": "the machine in one line"},
    depth={"type": "integer", "description": "how many levels of boxes there are"},
    threads={"type": "integer", "description": "the largest number of CPUs that a core has"},
    boxes=_list({"$ref": "#/components/schemas/Box"}),
    offline=_CPUS,
    memory_only={**_list(_NUMBER), "description": "NUMA nodes without CPUs"},
    devices={**_list(_TEXT), "description": "network cards, NVMe disks and GPUs, a line for each NUMA node"},
)
_CONFIG: Final = _object(
    version=_TEXT,
    host=_TEXT,
    policy=_TEXT,
    options={"type": "object"},
    topology_policy=_TEXT,
    topology_scope=_TEXT,
    topology_options={"type": "object"},
    fidelity=_TEXT,
    reserved=_CPUS,
    runtime=_TEXT,
    groups=_TEXT,
    weaker=_list(_TEXT),
    machine=_TEXT,
    link=_object(state=_TEXT, detail=_TEXT),
    read_only=_FLAG,
)
_HISTORY: Final = _object(
    ("entries", "cpu", "tenures"),
    entries=_list(_ENTRY),
    first=_or_null(_TIME),
    more=_FLAG,
    cpu=_NUMBER,
    tenures=_list({"type": "object"}),
)
_MOMENT: Final = _object(
    ("reserved", "offline"),
    time=_TIME,
    shared=_CPUS,
    exclusive={"type": "object", "additionalProperties": _CPUS},
    known=_FLAG,
    since=_or_null(_TIME),
    reserved=_CPUS,
    offline=_CPUS,
)
_REFUSAL: Final = _object(reason=_TEXT, message=_TEXT, need=_TEXT, room=_TEXT, fixes=_list(_TEXT))
_EXPLANATION: Final = _object(
    container=_TEXT,
    since=_or_null(_TIME),
    why=_TEXT,
    steps=_list(_TEXT),
    passed_over=_list(_TEXT),
    refusal=_or_null(_REFUSAL),
    cpus=_or_null(_CPUS),
    alignment=_or_null(_ALIGNMENT),
)
_ERROR: Final = _object(reason=_TEXT, message=_TEXT)
_WHO: Final = "NAMESPACE/POD/CONTAINER, POD/CONTAINER or POD"


def _parameter(name: str, description: str, schema: Schema, *, required: bool = False) -> Schema:
    return {"name": name, "in": "query", "required": required, "description": description, "schema": schema}


def _answer(description: str, schema: Schema | None, kind: str = "application/json") -> Schema:
    return {"description": description, "content": {kind: {"schema": schema or _TEXT}}}


_BAD: Final = _answer("a parameter is wrong", _ERROR)
_UNKNOWN: Final = _answer("there is no such thing", _ERROR)
_ELSEWHERE: Final = _answer("the Host or Origin header is not allowed", _ERROR)
_BUSY: Final = _answer("too many clients, or too much unread data", _ERROR)
_NOT_READY: Final = _answer("the disk or the container runtime cannot be used, or too many clients", _ERROR)


def _get(summary: str, schema: Schema, *parameters: Schema, missing: bool = False) -> Schema:
    answers = {
        "200": _answer(summary, schema),
        "400": _BAD,
        "403": _ELSEWHERE,
        "421": _ELSEWHERE,
        "429": _BUSY,
        "503": _BUSY,
    }
    if missing:
        answers["404"] = _UNKNOWN
    return {"get": {"summary": summary, "parameters": list(parameters), "responses": answers}}


def _plain(summary: str, kind: str, busy: Schema = _BUSY) -> Schema:
    answers = {
        "200": _answer(summary, None, kind),
        "400": _BAD,
        "403": _ELSEWHERE,
        "421": _ELSEWHERE,
        "429": _BUSY,
        "503": busy,
    }
    return {"get": {"summary": summary, "responses": answers}}


_SECONDS: Final[Schema] = {"type": "number", "minimum": -(10**15), "maximum": 10**15}
_SINCE: Final = _parameter("since", "seconds since the epoch", _SECONDS)
_UNTIL: Final = _parameter("until", "seconds since the epoch", _SECONDS)
_SUBJECT: Final[Schema] = {"type": "string", "pattern": "^[^/]+(/[^/]+){0,2}$"}
_KINDS: Final[Schema] = {"type": "string", "pattern": "^!?[a-z][a-z0-9-]{0,62}(,!?[a-z][a-z0-9-]{0,62})*$"}
_LIMIT: Final = _parameter(
    "limit",
    "at most so many, the earliest; an answer of 4 MiB may end before",
    {"type": "integer", "minimum": 1, "maximum": 10_000},
)
_ONLY: Final = _parameter("what", "kinds of entries, separated by commas; one with ! before it is left out", _KINDS)
_AFTER: Final = _parameter(
    "after", "only entries with a higher number", {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}
)
_NEWEST: Final = _parameter("newest", "if there are too many, the last ones instead of the earliest", _FLAG)
_BRIEF: Final = _parameter("brief", "without objects in entries, such as the owners of a State", _FLAG)
_CPU: Final = _parameter(
    "cpu", "return the owners of this CPU instead", {"type": "integer", "minimum": 0, "maximum": MAX_CPU}
)


_PATHS: Final[Schema] = {
    "/api/v1/topology": _get("sockets, NUMA nodes, caches, cores and CPUs", {"type": "object"}),
    "/api/v1/layout": _get("how sockets, NUMA nodes, caches and cores nest, for a picture", _LAYOUT),
    "/api/v1/pools": _get("the CPUs of each pool", _POOLS),
    "/api/v1/containers": _get("every container, its CPUs, and why these", _list(_CONTAINER)),
    "/api/v1/pods": _get("every pod", _list(_POD)),
    "/api/v1/config": _get("the configuration, and the guarantees that do not hold here", _CONFIG),
    "/api/v1/history": _get(
        "what happened",
        _HISTORY,
        _SINCE,
        _UNTIL,
        _LIMIT,
        _ONLY,
        _AFTER,
        _NEWEST,
        _BRIEF,
        _CPU,
        _parameter("container", _WHO, _SUBJECT),
        missing=True,
    ),
    "/api/v1/at": _get(
        "which container had which CPUs at a time",
        _MOMENT,
        _parameter("time", "seconds since the epoch", _SECONDS),
    ),
    "/api/v1/explain": _get(
        "why a container has its CPUs, or was refused",
        _EXPLANATION,
        _parameter("container", _WHO, _SUBJECT, required=True),
        missing=True,
    ),
    "/events": _plain("what happens, as server-sent events", "text/event-stream"),
    "/metrics": _plain("metrics, as Prometheus reads them", "text/plain"),
    "/healthz": _plain("whether it is alive", "text/plain"),
    "/readyz": _plain("whether it is ready", "text/plain", _NOT_READY),
}


@cache
def document() -> Schema:
    """Return the document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "pinfold",
            "version": pinfold.__version__,
            "description": "The state of a node, now and in the past, with reasons. Read-only.",
        },
        "paths": _PATHS,
        "components": {"schemas": {"Box": _BOX}},
    }
