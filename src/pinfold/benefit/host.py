"""Daemons and containers of this host, by the command line: started, asked, ended."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pinfold.errors import PinfoldError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pinfold.benefit.catalogue import Neighbours, PolicyFlags

_PINFOLD: Final = (sys.executable, "-m", "pinfold")
_PROGRAM: Final = (sys.executable, "-m")
_PROGRAMS: Final = "pinfold.benefit.programs"
_PATIENCE: Final = 30.0
_BUSY: Final = 0.5
"""A load above it disturbs the figures."""


def conditions() -> list[str]:
    """Return when this is, on what kind of machine, and how busy it was before."""
    names = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    flags = next((line for line in _lines("/proc/cpuinfo") if line.startswith("flags")), "")
    kind = "virtual machine" if " hypervisor" in flags else "no hypervisor seen"
    load = os.getloadavg()[0]
    busy = "; other programs used the machine, so repeat it on a quiet one" if load > _BUSY else ""
    return [
        f"Measured on {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC",
        f"{names[0] if names else platform.machine()}, {kind}, Linux {platform.release()}",
        f"Load in the minute before: {load:.2f}{busy}",
    ]


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


class BenefitError(PinfoldError):
    """The measurement cannot be made on this host."""


class Daemon(NamedTuple):
    """A private daemon with its own socket, directory and cgroups."""

    rules: PolicyFlags
    socket: Path
    ready: str
    """What it said when it was ready: policy, kind of groups, pools."""


@contextmanager
def daemons(directory: Path, chosen: Sequence[PolicyFlags]) -> Iterator[list[Daemon]]:
    """Start one daemon for each row of rules, all at once; end them and everything they run."""
    with ExitStack() as stack:
        started = [stack.enter_context(_started(directory / str(place), rules)) for place, rules in enumerate(chosen)]
        yield [_await(directory / str(place), daemon, rules) for place, (daemon, rules) in enumerate(started)]


@contextmanager
def _started(place: Path, rules: PolicyFlags) -> Iterator[tuple[subprocess.Popen[str], PolicyFlags]]:
    place.mkdir()
    flags = [*rules.flags, "--end-workloads", "--listen", "none", "--journal-size", "0"]
    flags += ["--group-name", f"pinfold-benefit-{os.getpid()}-{place.name}"]
    flags += ["--state-dir", str(place / "state"), "--socket", str(place / "s"), "--on-exit", "widen"]
    with (place / "log").open("w") as log:
        daemon = subprocess.Popen(
            [*_PINFOLD, "serve", *flags], stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
    try:
        yield daemon, rules
    finally:
        daemon.terminate()
        daemon.wait(_PATIENCE)


def _await(place: Path, daemon: subprocess.Popen[str], rules: PolicyFlags) -> Daemon:
    if daemon.stdout is None or not (ready := daemon.stdout.readline()):
        log = (place / "log").read_text().strip().splitlines()
        problem = f"the daemon with policy {rules.name} did not start: {log[-1] if log else 'it said nothing'}"
        raise BenefitError(problem)
    return Daemon(rules, place / "s", ready.strip().removeprefix("pinfold: ready; ").partition("; socket")[0])


def _in_container(daemon: Daemon, amount: Sequence[str], program: Sequence[str]) -> list[str]:
    """Return the command line that runs a program of ours in a container."""
    run = [*_PINFOLD, "run", "--socket", str(daemon.socket), *amount, "--"]
    return [*run, *_PROGRAM, f"{_PROGRAMS}.{program[0]}", *program[1:]]


@contextmanager
def noise(daemon: Daemon, neighbours: Neighbours, cpus: int) -> Iterator[None]:
    """Run neighbours in the shared pool; they request all but one of the machine's CPUs, and have no limit."""
    if not neighbours.per_cpu:
        yield
        return
    amount = ("--qos", "burstable", "--cpus", str(max(cpus - 1, 1)))
    command = _in_container(daemon, amount, ("neighbours", neighbours.kind, str(neighbours.per_cpu * cpus)))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        if process.stdout is None or process.stdout.readline().strip() != "ready":
            problem = f"the neighbours ({neighbours.name}) did not start under policy {daemon.rules.name}"
            raise BenefitError(problem)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_PATIENCE)


def measured(daemon: Daemon, program: Sequence[str]) -> Mapping[str, Any]:
    """Run a program in a container of one CPU, and return what it has printed."""
    command = _in_container(daemon, ("--cpus", "1"), program)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        problem = f"{program[0]} under policy {daemon.rules.name}: {said[-1] if said else f'exit {done.returncode}'}"
        raise BenefitError(problem)
    printed: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


def prepared(directory: Path, name: str) -> str:
    """Make what a program needs before it is measured; return where that is."""
    place = directory / name
    place.mkdir()
    data = place / "data"
    done = subprocess.run(
        [*_PROGRAM, f"{_PROGRAMS}.{name}", "prepare", str(data)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenefitError(done.stderr.strip().splitlines()[-1])
    return str(data)
