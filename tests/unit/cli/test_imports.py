"""How much a command imports: what it loads is what a user waits for. Modules are counted, not milliseconds."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

COUNT = """
import sys
before = set(sys.modules)
from pinfold.cli.main import main
code = main(sys.argv[1:])
loaded = set(sys.modules) - before
print(*sorted(loaded), file=sys.stderr)
"""
HEAVY = {"asyncio", "yaml", "google", "h2", "h11", "hypothesis", "pinfold.daemon", "pinfold.manager", "pinfold.serve"}


def loaded(*arguments: str) -> set[str]:
    command = [sys.executable, "-I", "-c", COUNT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PINFOLD_SOCKET": "/none"})
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("arguments", "ours", "all_of_them"),
    [
        (["--help"], 6, 110),
        (["get", "pools"], 20, 150),
        (["run", "--", "true"], 20, 150),
        (["topology"], 45, 150),
        (["completion", "bash"], 8, 110),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_imports_only_what_it_needs(arguments: list[str], ours: int, all_of_them: int) -> None:
    found = loaded(*arguments)
    assert not found & HEAVY
    mine = sorted(name for name in found if name.partition(".")[0] == "pinfold")
    assert len(mine) <= ours, mine
    assert len(found) <= all_of_them, sorted(found)


def test_a_plan_imports_neither_events_nor_sockets_nor_other_questions(tmp_path: Path) -> None:
    pods = tmp_path / "pods.yaml"
    pods.write_text("{kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}")
    found = loaded("plan", str(pods), "--preset", "laptop-4")
    assert not found & {
        "ssl",
        "http.client",
        "socket",
        "asyncio",
        "pinfold.core.events",
        "pinfold.cli.planning.journal",
    }
    assert len([name for name in found if name.partition(".")[0] == "pinfold"]) <= 130
    assert len(found) <= 250


def test_importing_pinfold_alone_loads_no_part_of_it() -> None:
    code = "import sys, pinfold; print(*(name for name in sys.modules if name.startswith('pinfold')))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["pinfold"]
