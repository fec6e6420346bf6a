"""Command line: CPU time of what a user waits for, beside the start of Python alone.

    python -m benchmarks cli [--rounds N] [--json]

Each command is started in turn, in several rounds; the figure is the least CPU time (user and system) of the process
that the user starts. `get` and `run` ask a private daemon with policy none, whose own time is not in the figure.
The floor is `python -c pass`: no command can take less.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks._targets import Target, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FLOOR = "python -c pass"
TARGETS = {"--help": 60.0, "completion": 60.0, "topology": 100.0, "get": 100.0, "run": 100.0, "plan": 180.0}
"""The milliseconds of CPU that a command may take."""
_PINFOLD = (sys.executable, "-m", "pinfold")
_POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: pod-{number}}}
spec:
  containers:
    - name: app
      resources:
        limits: {{cpu: 2, memory: 1Gi}}
"""


@contextmanager
def daemon(directory: Path) -> Iterator[Path]:
    """Start a daemon of our own; provide its socket."""
    socket = directory / "s"
    flags = ["--policy", "none", "--groups", "affinity", "--listen", "none", "--state-dir", str(directory / "state")]
    with subprocess.Popen(
        [*_PINFOLD, "serve", *flags, "--socket", str(socket)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            if process.stdout is None or not process.stdout.readline():
                sys.exit("the daemon did not start")
            yield socket
        finally:
            process.terminate()


def commands(directory: Path, socket: Path) -> Mapping[str, Sequence[str]]:
    """Return the command lines by name."""
    pods = directory / "pods.yaml"
    pods.write_text("---\n".join(_POD.format(number=number) for number in range(10)))
    return {
        FLOOR: (sys.executable, "-c", "pass"),
        "--help": (*_PINFOLD, "--help"),
        "completion": (*_PINFOLD, "completion", "bash"),
        "topology": (*_PINFOLD, "topology"),
        "get": (*_PINFOLD, "get", "--socket", str(socket)),
        "run": (*_PINFOLD, "run", "--socket", str(socket), "--cpus", "1", "--", "true"),
        "plan": (*_PINFOLD, "plan", str(pods), "--preset", "epyc-7303-2s"),
    }


def spent(command: Sequence[str]) -> float:
    """Return the milliseconds of CPU that a command takes."""
    # Compiled modules are kept in every environment: a user has them too.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    said = process.stderr.read() if process.stderr is not None else b""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)}: exit {process.returncode}: {said.decode()}")
    return (usage.ru_utime + usage.ru_stime) * 1000


def measure(rounds: int) -> dict[str, float]:
    """Return the least milliseconds of each command, taken in turn."""
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name, daemon(Path(name)) as socket:
        for _ in range(rounds):
            for command, words in commands(Path(name), socket).items():
                best[command] = min(best.get(command, float("inf")), spent(words))
    return best


def main(arguments: list[str]) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks cli", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print machine-readable figures")
    wanted = parser.parse_args(arguments)
    found = measure(wanted.rounds)
    if wanted.json:
        print(json.dumps([{"name": f"cli/{name}", "cpu_ms": value} for name, value in found.items()], indent=1))
    else:
        for name, value in found.items():
            print(f"{name:<16} {value:>6.1f} ms of CPU, {value - found[FLOOR]:>6.1f} ms beyond Python's start")
    return verdict(Target(f"{name}, ms of CPU", found[name], most) for name, most in TARGETS.items())
