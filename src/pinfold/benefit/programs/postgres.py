"""PostgreSQL with pgbench in the same container, over a Unix socket; four clients, simple updates, no fsync.

python -m pinfold.benefit.programs.postgres SECONDS DATA
python -m pinfold.benefit.programs.postgres prepare DATA

PostgreSQL refuses to run as root: then it runs as the user `postgres`, or else `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pinfold.benefit.programs.account import switches, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLIENTS: Final = 4


def program(name: str) -> str | None:
    """Return where a program of PostgreSQL is: on the path, or where Debian has it."""
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(debian[-1]) if debian else None)


def _user() -> dict[str, Any]:
    """Return how to start a process as a user that PostgreSQL accepts."""
    if os.geteuid():
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = names.get("postgres") or names["nobody"]
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": [], "cwd": "/"}


def _run(name: str, *arguments: str) -> str:
    command = [program(name) or name, *arguments]
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, capture_output=True, text=True, check=False, **_user()
    )
    if done.returncode:
        sys.exit(f"{name}: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def _server(data: Path) -> Iterator[str]:
    """Start the server; yield the directory of its socket."""
    place = str(data.parent)
    command = [program("postgres") or "postgres", "-D", str(data), "-k", place, "-h", "", "-F"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL, **_user())
    try:
        while server.poll() is None and not Path(place, ".s.PGSQL.5432").exists():
            time.sleep(0.01)
        while server.poll() is None and _refuses(place):
            time.sleep(0.02)
        yield place
    finally:
        server.terminate()
        server.wait()


def _refuses(place: str) -> bool:
    ready = [program("pg_isready") or "pg_isready", "-q", "-h", place]
    return bool(subprocess.run(ready, check=False, **_user()).returncode)


def prepare(data: Path) -> None:
    """Make a database with the tables of pgbench."""
    user = _user()
    if user:
        os.chown(data.parent, user["user"], user["group"])
    _run("initdb", "-D", str(data), "-N", "-A", "trust", "-U", "pinfold")
    with _server(data) as place:
        _run("pgbench", "-h", place, "-U", "pinfold", "-i", "-q", "postgres")


def main(seconds: float, data: Path) -> None:
    """Start the server, load it, and print what pgbench has measured."""
    log = data.parent / "transactions"
    with _server(data) as place:
        said = _run(
            *("pgbench", "-h", place, "-U", "pinfold", "-n", "-N", "-l", "--log-prefix", str(log)),
            *("-c", str(_CLIENTS), "-T", str(max(1, round(seconds))), "postgres"),
        )
    took = []
    for path in data.parent.glob("transactions.*"):
        took += [int(line.split()[2]) * 1000 for line in path.read_text().splitlines()]
        path.unlink()
    rate = float(said.rpartition("tps = ")[2].split()[0])
    tell({"transaction": took}, {"transactions/s": rate}, {**switches(children=True), "migrations": None})


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare(Path(sys.argv[2]))
    else:
        main(float(sys.argv[1]), Path(sys.argv[2]))
