"""What the daemon does, and what it cannot do."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pinfold.core.values import value

if TYPE_CHECKING:
    from pinfold.core.events.about import PodName
    from pinfold.core.machine.cpuset import CPUSet


@value()
class Serving:
    """The daemon is ready."""

    what: ClassVar = "serving"
    version: str
    policy: str
    runtime: str
    pid: int


@value()
class Stopped:
    """The daemon has stopped; its workloads keep running."""

    what: ClassVar = "stopped"
    pods: int


@value()
class Widened:
    """The daemon leaves the node: every group has these CPUs again, except owners on `kept` CPUs."""

    what: ClassVar = "widened"
    cpus: CPUSet
    kept: CPUSet


@value()
class NotWidened:
    """The daemon could not give all groups their CPUs back; `pinfold leave` tries again."""

    what: ClassVar = "not-widened"
    why: str


@value()
class Reconfigured:
    """The daemon has a new configuration, or other CPUs."""

    what: ClassVar = "reconfigured"
    policy: str
    shared: CPUSet


@value()
class ReloadRefused:
    """The new configuration is wrong or cannot be applied; the daemon keeps the old one."""

    what: ClassVar = "reload-refused"
    why: str


@value()
class NotKept:
    """A container could not keep its CPUs after a reload or restart; `assigned` follows if it gets others."""

    what: ClassVar = "not-kept"
    pod: PodName
    container: str
    cpus: CPUSet
    why: str = ""


@value()
class StateNotUsable:
    """The State of an earlier daemon cannot be read; the file is kept as `aside`."""

    what: ClassVar = "state-not-usable"
    why: str
    aside: str | None = None


@value()
class WorkloadsNotUsable:
    """The list of workloads of an earlier daemon cannot be read; the file is kept aside."""

    what: ClassVar = "workloads-not-usable"
    why: str


@value()
class NotSaved:
    """A file could not be written; the daemon tries again."""

    what: ClassVar = "not-saved"
    why: str


@value(kw_only=True)
class NotRecorded:
    """The container runtime has not recorded a container's CPUs; the kernel has them."""

    what: ClassVar = "not-recorded"
    pod: PodName | None = None
    container: str
    why: str


@value()
class HistoryLost:
    """The journal could not write entries: they are missing in the history."""

    what: ClassVar = "journal"
    why: str


@value()
class LogDropped:
    """Lines of the log were dropped because its reader did not keep up; the journal has them."""

    what: ClassVar = "log-dropped"
    lines: int


@value()
class RuntimeLinked:
    """The connection to the container runtime has changed."""

    what: ClassVar = "runtime"
    link: str
    detail: str


@value()
class RuntimeHangs:
    """The container runtime does not continue after it has registered pinfold."""

    what: ClassVar = "runtime-hangs"
    detail: str
    why: str


@value()
class NRIFailed:
    """pinfold could not answer a request of the container runtime."""

    what: ClassVar = "nri-failed"
    method: str
    why: str


@value()
class PodsNotRead:
    """A source of whole pods (`--pods-from`) does not answer; pinfold asks the next one."""

    what: ClassVar = "pods-not-read"
    why: str


@value()
class HintsNotRead:
    """The kubelet (`--hints-from`) does not tell the devices and memory of pods; they are no hints for CPUs."""

    what: ClassVar = "hints-not-read"
    why: str


@value()
class PodInParts:
    """No source knows the whole pod: pinfold decides its containers one by one, none as an init container."""

    what: ClassVar = "pod-in-parts"
    pod: PodName
    why: str


@value()
class PodFailed:
    """The API server has set a refused pod to Failed; `owner` is the controller that will make another one."""

    what: ClassVar = "pod-failed"
    pod: PodName
    reason: str
    owner: str


@value()
class PodNotFailed:
    """A refused pod could not be set to Failed; the kubelet goes on trying to start it."""

    what: ClassVar = "pod-not-failed"
    pod: PodName
    why: str


@value()
class TopologyNotPublished:
    """The node's NodeResourceTopology object could not be written or removed; the daemon tries again."""

    what: ClassVar = "topology-not-published"
    why: str


@value()
class ReadOnly:
    """A kubelet manages the CPUs here; pinfold only watches."""

    what: ClassVar = "read-only"
    why: str


@value()
class SecondManager:
    """Another daemon can give the same CPUs away; reserve them in one of the two, with `--reserved-cpus`."""

    what: ClassVar = "second-manager"
    group: str
    pid: str
    cpus: CPUSet


@value()
class TakenOver:
    """The daemon has taken over the kubelet's State."""

    what: ClassVar = "taken-over"
    from_: str
    exclusive: CPUSet


@value()
class Weaker:
    """A promise that pinfold cannot keep on this host; at the start the main one of *count*, and what shows all."""

    what: ClassVar = "weaker"
    promise: str
    count: int = 1
    list: str = ""


@value()
class Warned:
    """Something about how the daemon was started is probably not intended."""

    what: ClassVar = "warning"
    text: str


@value(kw_only=True)
class Failed:
    """An unexpected error; please report it."""

    what: ClassVar = "failed"
    where: str = ""
    why: str


@value()
class NoticeFailed:
    """A file that tells a container of its CPUs was not written, or its `ack` was too large; the CPUs are set."""

    what: ClassVar = "notice-failed"
    why: str


DaemonEvent = (
    Serving
    | Stopped
    | Widened
    | NotWidened
    | Reconfigured
    | ReloadRefused
    | NotKept
    | StateNotUsable
    | WorkloadsNotUsable
    | NotSaved
    | NotRecorded
    | HistoryLost
    | LogDropped
    | NoticeFailed
    | RuntimeLinked
    | RuntimeHangs
    | NRIFailed
    | PodsNotRead
    | HintsNotRead
    | PodInParts
    | PodFailed
    | PodNotFailed
    | TopologyNotPublished
    | ReadOnly
    | SecondManager
    | TakenOver
    | Weaker
    | Warned
    | Failed
)
