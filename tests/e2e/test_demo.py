"""The demonstration of `make run` on this machine's real kernel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.needs import needs

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,  # as root it shields a CPU from all processes of the machine, also from those of other tests
    needs("two CPUs", met=(os.cpu_count() or 1) >= 2),
    needs("the virtual environment that make sets up", met=(ROOT / ".venv/bin/pinfold").exists()),
]


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose name leaves room for a socket in it."""
    with tempfile.TemporaryDirectory(prefix="pf-") as directory:
        yield Path(directory)


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGTERM,
    ],
    ids=lambda number: number.name,
)
def test_the_demonstration_leaves_nothing_behind_however_it_is_ended(short: Path, number: signal.Signals) -> None:
    name = f"pinfold-demo-{uuid.uuid4().hex[:8]}"
    demo = subprocess.Popen(
        [sys.executable, ROOT / "tools" / "demo", "--group-name", name, "--listen", "127.0.0.1:0"],
        env={**os.environ, "TMPDIR": str(short)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with demo:
        assert demo.stdout is not None
        assert any(line.startswith("Ctrl-C ends it") for line in demo.stdout)
        demo.send_signal(number)
        assert demo.wait(60) == 0
    assert list(short.iterdir()) == []
    assert not [pid for pid in Path("/proc").glob("[0-9]*") if bytes(short) in environment_of(pid)]


def environment_of(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_measurement_that_is_interrupted_leaves_nothing_behind(short: Path, number: signal.Signals) -> None:
    command = [str(ROOT / ".venv/bin/pinfold"), "demo", "benefit", "--short", "--socket", str(short / "none")]
    environment = {**os.environ, "TMPDIR": str(short)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as measuring:
        assert measuring.stderr is not None
        assert measuring.stderr.readline() == "round 1 of 2\n"
        measuring.send_signal(number)
        assert measuring.wait(60) == 130
    assert list(short.iterdir()) == []
    assert not [pid for pid in Path("/proc").glob("[0-9]*") if bytes(short) in environment_of(pid)]
