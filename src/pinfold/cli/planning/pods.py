"""The pods of a plan: those that run already, those of files, and the changes of a what-if."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.cli.planning.arguments import BadQuestion
from pinfold.errors import ParseError, excerpt
from pinfold.formats.pods.manifest import MAX_PODS
from pinfold.planning.whatif import Scenario, UnknownPodName

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from pinfold.core.pods.pod import Pod

_MOST_REPLICAS: Final = MAX_PODS
_MOST_CPUS: Final = 65_536


class Filed(NamedTuple):
    """A pod and the file that it is in."""

    source: str
    pod: Pod


def make_scenario(args: argparse.Namespace, there: Scenario, filed: Sequence[Filed]) -> Scenario:
    """Return the running pods and those of files, with all what-ifs applied."""
    scenario = _joined(args.without, there, filed)
    for text in args.resize:
        scenario = _what_if("--resize", scenario, text, _resize)
    for text in args.replicas:
        scenario = _what_if("--replicas", scenario, text, _replicate)
    return scenario


def _joined(without: Sequence[str], there: Scenario, filed: Sequence[Filed]) -> Scenario:
    """Return the scenario of running pods and pods in files, without those to be left out.

    Names match running pods first, then pods in files: a pod in a file can replace a running one of its name.
    """
    for name in without:
        try:
            there = there.without(name)
        except UnknownPodName:
            joined = _followed(there, filed)
            left = _what_if("--without", joined, name, Scenario.without).arriving[len(there.arriving) :]
            kept = {pod.uid for pod in left}
            filed = [one for one in filed if one.pod.uid in kept]
    _check_new(there, filed)
    return _followed(there, filed)


def _followed(there: Scenario, filed: Sequence[Filed]) -> Scenario:
    return replace(there, arriving=(*there.arriving, *(one.pod for one in filed)))


def _check_new(there: Scenario, filed: Sequence[Filed]) -> None:
    """Raise if a pod of a file runs already: a daemon would refuse it."""
    known: dict[object, Pod] = {}
    for pod in (*there.running, *there.arriving):
        known |= {pod.uid: pod, (pod.namespace, pod.name): pod}
    for source, pod in filed:
        twin = known.get((pod.namespace, pod.name)) or known.get(pod.uid)
        if twin is not None:
            who, name = excerpt(f"{pod.namespace}/{pod.name}"), f"{twin.namespace}/{twin.name}"
            is_who = "" if (pod.namespace, pod.name) == (twin.namespace, twin.name) else f" as {excerpt(name)}"
            helps = f"to plan it instead of the running one, add --without {name}"
            raise BadQuestion(f"{source}: pod {who} runs already{is_who}; {helps}")


def _what_if(flag: str, scenario: Scenario, text: str, change: Callable[[Scenario, str], Scenario]) -> Scenario:
    try:
        return change(scenario, text)
    except ParseError as error:
        raise error.within(flag) from None
    except UnknownPodName as error:
        raise BadQuestion(f"{flag}: {error}") from None


def _resize(scenario: Scenario, text: str) -> Scenario:
    who, cpus = _split(text, "POD/CONTAINER", 1, _MOST_CPUS)
    pod, slash, container = who.rpartition("/")
    if not slash:
        raise ParseError(f"expected POD/CONTAINER=N, found {excerpt(text)}")
    return scenario.resize(pod, container, cpus)


def _replicate(scenario: Scenario, text: str) -> Scenario:
    return scenario.replicas(*_split(text, "POD", 0, _MOST_REPLICAS))


def _split(text: str, what: str, least: int, most: int) -> tuple[str, int]:
    """Return the name and the number of NAME=N."""
    name, equals, number = text.rpartition("=")
    digits = number.strip()
    if not (name and equals and digits.isdecimal() and len(digits) <= len(str(most)) and least <= int(digits) <= most):
        raise ParseError(f"expected {what}=N with N from {least} to {most:,}, found {excerpt(text)}")
    return name.strip(), int(digits)
