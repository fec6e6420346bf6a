"""`pinfold hand-back`: what a kubelet cannot know is undone before."""

from __future__ import annotations

from pinfold.cli.handback import without_idle
from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.pods.pod import PodUID
from pinfold.core.state import State
from pinfold.formats.kubelet.checkpoint import format_checkpoint, parse_checkpoint

STATE = State(CPUSet.parse("0,2,4,6"), {PodUID("p1"): {"app": CPUSet.of(1, 3)}}, {PodUID("p1"): CPUSet.of(1, 3)})


def test_idle_siblings_are_shared_in_the_kubelets_file() -> None:
    text = format_checkpoint("static", STATE, pod_level=True)
    found = parse_checkpoint(without_idle(text, CPUSet.of(5, 7)), policy="static", pod_level=True)
    assert found == STATE._replace(shared=CPUSet.parse("0,2,4-7"))


def test_without_idle_siblings_the_file_is_the_same() -> None:
    text = format_checkpoint("static", STATE, pod_level=True)
    assert without_idle(text, EMPTY) == text
