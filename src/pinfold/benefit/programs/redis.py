"""redis-server with redis-benchmark in the same container, over a Unix socket.

python -m pinfold.benefit.programs.redis SECONDS
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from pinfold.benefit.programs.account import migrations, switches, tell

RATE: Final = 20_000
"""Requests for each second that was asked for; redis-benchmark can only be told a number."""
_CLIENTS: Final = 20


def main(seconds: float) -> None:
    """Start the server, load it, and print what redis-benchmark has measured."""
    with tempfile.TemporaryDirectory(prefix="pinfold-redis-") as directory:
        socket = Path(directory, "s")
        quiet = ["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no"]
        command = ["redis-server", *quiet, "--unixsocket", str(socket), "--dir", directory]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while not socket.exists() and server.poll() is None:
                time.sleep(0.01)
            load = ["redis-benchmark", "-s", str(socket), "-t", "get", "-n", str(int(RATE * seconds))]
            load += ["-c", str(_CLIENTS), "--csv"]
            text = subprocess.run(load, capture_output=True, text=True, check=True).stdout
            moved = migrations(server.pid)
        finally:
            server.terminate()
            server.wait()
    found = next(csv.DictReader(text.splitlines()))
    rates = {"requests/s": float(found["rps"])}
    rates |= {f"{name} ms": float(found[f"{name}_latency_ms"]) for name in ("p50", "p99", "max")}
    tell({}, rates, {**switches(children=True), "migrations": moved})


if __name__ == "__main__":
    main(float(sys.argv[1]))
