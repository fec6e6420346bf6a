"""The events about running containers that get more, fewer or other CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.events.decisions import Moved, Resized, ResizeRefused
from pinfold.core.explaining.explanation import alignment_counts
from pinfold.core.moving.resizing import NotResized
from pinfold.core.trace import Recorder

if TYPE_CHECKING:
    from pinfold.core.admission import Asked
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.machine.topology import Topology
    from pinfold.core.moving.repack import Move
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.policies.base import Policy
    from pinfold.core.state import State
    from pinfold.errors import AdmissionError
    from pinfold.manager.manager import Rules
    from pinfold.manager.telling.telling import Telling


class Changes:
    """Reports what becomes of running containers."""

    def __init__(self, telling: Telling) -> None:
        self._telling = telling
        self._refused: dict[ContainerRef, tuple[int, object]] = {}
        """The last refusal of a resize of each container: the size, and the kind of refusal."""

    def resized(self, ref: ContainerRef, before: State, cpus: CPUSet, rules: Rules, asked: Asked) -> None:
        """Report a container that has more or fewer CPUs than *before*, under these rules."""
        self._refused.pop(ref, None)
        admitter, name, held = rules.admitter, self._telling.name(ref.pod), before.cpus(*ref) or cpus
        ruler = self._telling.ruler(rules.topology, admitter.policy)

        def event() -> Resized:
            recorder = Recorder()
            admitter.resize(before, ref, len(cpus), asked=asked, recorder=recorder)
            steps = recorder.trace().data()["steps"]
            return Resized(name, ref.name, held, cpus, steps, alignment_counts(ruler.measure(cpus)))

        self._telling.tell(event)

    def resize_refused(self, ref: ContainerRef, wanted: int, refusal: AdmissionError) -> None:
        """Report a size that a container cannot have; a kubelet asks again every second, which is reported once.

        The text has numbers, which change when other pods come and go; so the kind of refusal decides.
        """
        about = (wanted, type(refusal.refusal) if isinstance(refusal, NotResized) else str(refusal))
        if self._refused.get(ref) != about:
            self._refused[ref] = about
            event = ResizeRefused(self._telling.name(ref.pod), ref.name, wanted, refusal.reason, str(refusal))
            self._telling.tell(event)

    def moved(self, move: Move, policy: Policy, topology: Topology) -> None:
        """Report a container that has moved to other CPUs."""
        ruler, ref = self._telling.ruler(topology, policy), move.container
        steps = ({"what": f"moved from CPUs {move.before}", "took": str(move.after), "why": move.why},)
        alignment, name = alignment_counts(ruler.measure(move.after)), self._telling.name(ref.pod)
        cost, lowered = str(move.cost), str(move.lowered)
        self._telling.tell(Moved(name, ref.name, move.before, move.after, cost, lowered, steps, alignment))
