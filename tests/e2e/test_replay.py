"""A daemon's journal, lived through once more: under the same rules every decision comes out the same."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.daemon import Daemon, container, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = 60
FRACTION = "{limits: {cpu: 1500m, memory: 1Mi}}"
SETTINGS = {
    "packed": ("--preset", "epyc-7303-2s", "--reserved-cpus", "0,32"),
    "whole-cores-on-one-node": (
        *("--preset", "xeon-2s-64", "--reserved-cpus", "0-1"),
        *("--policy-options", "full-pcpus-only=true", "--topology-manager-policy", "single-numa-node"),
    ),
    "aligned-by-pod": (
        *("--preset", "epyc-7303-2s", "--reserved-cpus", "0", "--topology-manager-policy", "restricted"),
        *("--policy-options", "prefer-align-cpus-by-uncorecache=true", "--topology-manager-scope", "pod"),
    ),
    "as-a-kubelet": ("--preset", "i7-12850hx", "--reserved-cpus", "0", "--as", "kubelet"),
    "nobody-alone": ("--preset", "cores:8", "--policy", "none"),
}
Fates = dict[str, Any]  # by pod: the CPUs of its containers, or the reason why it was refused


@pytest.fixture
def host(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    daemon = Daemon("--runtime", "simulated", *request.param, kind="affinity")
    daemon.groups = []
    with daemon:
        yield daemon.start()


def random_pod(rng: random.Random, name: str) -> str:
    """Return a pod of a few containers; most of them want CPUs of their own, and some of them too many."""

    def one(kind: str) -> str:
        if rng.random() < 0.1:  # it shares, beside others of its pod that do not
            return container(name=kind, resources=FRACTION)
        return container(name=kind, cpus=rng.choice((1, 2, 3, 4, 6, 12, 24)))

    if rng.random() < 0.2:  # all containers share
        return pod(name, container(resources=rng.choice(("", "{requests: {cpu: 300m}}"))))
    init = [one("setup")] if rng.random() < 0.3 else []
    return pod(name, *(one(kind) for kind in ("app", "log", "proxy")[: rng.randint(1, 3)]), init=init)


def live(host: Daemon, rng: random.Random, start: int, steps: int) -> Fates:
    """Let pods come and go, and return what became of each that came."""
    fates: Fates = {}
    there = sorted({row["pod"] for row in host.containers()})
    for number in range(start, start + steps):
        if there and rng.random() < 0.3:
            host.delete(there.pop(rng.randrange(len(there))))
            continue
        name = f"pod-{number}"
        (answer,) = host.apply(random_pod(rng, name))
        if "refused" in answer:
            fates[name] = answer["refused"]["reason"]
        else:
            fates[name] = answer["cpus"]
            there.append(name)
    host.flush()
    return fates


def relived(host: Daemon, *settings: str) -> tuple[Fates, dict[str, Any]]:
    """Return what becomes of each pod in a replay of the daemon's journal, and all that is told of it."""
    answer = host.say("plan", "--journal", str(host.state_dir), "-o", "json", *settings)
    assert answer.returncode in {0, 1}, answer.stderr
    data = json.loads(answer.stdout)
    fates: Fates = {}
    for row in data["placements"]:
        if row["reason"] is not None:
            fates[row["pod"]] = row["reason"]
        else:
            own = {row["container"]: row["cpus"]} if row["exclusive"] else {}
            fates[row["pod"]] = fates.get(row["pod"], {}) | own
    return fates, data


@pytest.mark.parametrize(
    ("host", "settings"), [(rows, rows) for rows in SETTINGS.values()], ids=SETTINGS, indirect=["host"]
)
def test_the_same_rules_give_exactly_the_decisions_of_the_daemon(host: Daemon, settings: tuple[str, ...]) -> None:
    rng = random.Random(7)  # noqa: S311 - no secret
    decided = live(host, rng, 0, STEPS)
    found, data = relived(host, *settings)
    assert found == decided
    refused = sum(isinstance(fate, str) for fate in decided.values())
    assert "none" in settings or 0 < refused < len(decided)
    assert data["then"] == {
        "tries": len(decided),
        "refused_then": refused,
        "refused_now": refused,
        "changes": [],
        "staying": 0,
    }
    assert data["pools"]["shared"] == str(host.pools()["shared"])
    assert data["remarks"] == []


@pytest.mark.parametrize("host", [SETTINGS["packed"]], indirect=True)
def test_a_journal_goes_on_after_a_crash(host: Daemon) -> None:
    rng = random.Random(3)  # noqa: S311 - no secret
    decided = live(host, rng, 0, 20)
    host.restart()
    decided |= live(host, rng, 20, 20)
    found, data = relived(host, *SETTINGS["packed"])
    assert found == decided
    assert data["pools"]["shared"] == str(host.pools()["shared"])


@pytest.mark.parametrize("host", [SETTINGS["packed"]], indirect=True)
def test_on_a_larger_machine_the_refused_get_in(host: Daemon) -> None:
    host.apply(pod("web", container(cpus=40)), pod("big", container(cpus=60)))
    host.flush()
    answer = host.say("plan", "--journal", str(host.state_dir), "--preset", "epyc-9754", "-o", "json")
    data = json.loads(answer.stdout)
    assert (answer.returncode, answer.stderr) == (0, "")
    (change,) = data["then"]["changes"]
    assert (change["pod"], change["then"], change["now"]) == ("big", "UnexpectedAdmissionError", None)
    assert data["then"]["staying"] == 1
    shown = host.say("plan", "--journal", str(host.state_dir / "journal"), "--preset", "epyc-9754").stdout
    assert "of 2 tries, 1 refused then, 0 now" in shown
