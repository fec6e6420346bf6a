"""The map of a daemon's node, drawn again and again, also after the daemon has gone."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from pinfold.cli.asking.client import Client
from pinfold.cli.main import main
from pinfold.cli.top import Watcher
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.errors import excerpt
from pinfold.formats.machine.topologyjson import format_topology_json
from pinfold.render.machine.canvas import Look
from pinfold.render.top import format_once
from tests.unit.cli.answering import answering
from tests.unit.cli.test_get import answers, row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pinfold.core.machine.topology import Topology

PATIENCE: Final = 30.0
FOUR: Final = preset("cores:4")


def node(topology: Topology, *rows: dict[str, object]) -> dict[str, object]:
    """Return what a daemon on this machine says."""
    return {**answers(*rows), "topology": json.loads(format_topology_json(topology))}


def glance(client: Client) -> str:
    """Return what is shown now."""
    found, problem = Watcher(client).glance()
    return problem if found is None else format_once(found, Look())


def test_a_cpu_that_went_offline_is_seen_at_the_next_look(tmp_path: Path) -> None:
    client = Client(tmp_path / "s")
    less = replace(FOUR, cpus=FOUR.cpus[:3], offline=CPUSet.of(3))
    told = node(FOUR, row("1"))
    with answering(client.path, told):
        assert "offline" not in glance(client)
        told |= node(less, row("1"))
        _, pools, *_ = glance(client).splitlines()
    assert pools == "exclusive 1-3  shared 0  reserved 0  assignable -  offline 3"


def test_names_with_numbers_are_sorted_as_people_count(tmp_path: Path) -> None:
    client = Client(tmp_path / "s")
    rows = [row(str(cpu), pod=f"app-{name}") for cpu, name in ((1, 10), (2, 9), (3, "x"))]
    with answering(client.path, node(FOUR, *rows)):
        shown = glance(client)
    assert re.findall("app-[^ ]+", shown) == ["app-9", "app-10", "app-x"]


def test_isolated_cpus_stand_beside_the_pools(tmp_path: Path) -> None:
    client = Client(tmp_path / "s")
    with answering(client.path, node(replace(FOUR, isolated=CPUSet.of(2, 3)))):
        _, pools, *_ = glance(client).splitlines()
    assert pools.endswith("  isolated 2-3")


def test_a_daemon_that_is_away_for_a_while_is_waited_for(tmp_path: Path) -> None:
    client = Client(tmp_path / "s")
    assert glance(client).startswith("no daemon; waiting\n\nno daemon answers at")
    for _ in range(2):
        with answering(client.path, node(FOUR, row("1"))):
            assert "A  web  app        1     running" in glance(client)
        assert glance(client).startswith("no daemon; waiting\n")


def test_once_without_a_daemon_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--socket", str(tmp_path / "s")]) == 3
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("pinfold: error: no daemon answers at ")


def test_namespaces_are_shown_if_there_are_several_and_names_are_harmless(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(tmp_path / "s", node(FOUR, row("1"), row("2", namespace="test", pod="a\x1b[2J"))) as path:
        assert main(["top", "--once", "--socket", path]) == 0
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
    words = [line.split() for line in out.splitlines()[3:6]]
    assert [line[:5] for line in words] == [
        ["NAMESPACE", "POD", "CONTAINER", "CPUS", "LOAD"],
        ["A", "default", "web", "app", "1"],
        ["B", "test", r"a\x1b[2J", "app", "2"],
    ]


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "0", "-1", "1e300", "x", ""])
def test_an_interval_that_makes_no_sense_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert main(["top", f"--interval={text}", "--socket", str(tmp_path / "s")]) == 2
    assert f"{excerpt(text)} is not a number of seconds from 0.1 to 86400" in capsys.readouterr().err


class Screen:
    """A terminal in which `pinfold top` runs."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal

    def wait_for(self, text: str) -> None:
        """Return when this is drawn after all that was waited for."""
        seen = b""
        until = time.monotonic() + PATIENCE
        while text.encode() not in seen:
            readable, _, _ = select.select([self._terminal], [], [], max(until - time.monotonic(), 0))
            assert readable, f"{text!r} is not drawn: {seen[-500:]!r}"
            seen += os.read(self._terminal, 65_536)

    def press(self, keys: bytes) -> None:
        os.write(self._terminal, keys)


@contextmanager
def top(socket: Path, *, keys: bool = False) -> Iterator[tuple[Screen, subprocess.Popen[bytes]]]:
    """Run it, with or without a keyboard."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    command = [sys.executable, "-m", "pinfold", "top", "--interval", "0.1", "--socket", str(socket)]
    environment = {**os.environ, "TERM": "xterm", "PYTHONUTF8": "1"}
    for name in ("COLUMNS", "LINES"):
        environment.pop(name, None)
    stdin = slave if keys else subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=stdin, stdout=slave, stderr=slave, env=environment, start_new_session=True
    ) as process:
        try:
            yield Screen(master), process
        finally:
            process.kill()
            os.close(slave)
            os.close(master)


def test_it_goes_on_while_the_daemon_is_started_again(tmp_path: Path) -> None:
    with top(tmp_path / "s") as (screen, _):
        screen.wait_for("no daemon; waiting")
        for name in ("first", "second"):
            with answering(tmp_path / "s", node(FOUR, row("1", pod=name))):
                screen.wait_for(name)
            screen.wait_for("no daemon; waiting")


def test_keys_sort_filter_and_end_it_and_the_terminal_is_as_before(tmp_path: Path) -> None:
    rows = [row("1", pod="alpha"), row("2", pod="beta")]
    with answering(tmp_path / "s", node(FOUR, *rows)), top(tmp_path / "s", keys=True) as (screen, process):
        screen.wait_for("\x1b[?1049h")
        screen.wait_for("sort: name")
        screen.press(b"s")
        screen.wait_for("sort: CPUs")
        screen.press(b"/bet")
        screen.wait_for("filter: bet_")
        screen.press(b"\r")
        screen.wait_for("(Esc clear)")
        screen.press(b"\x1b")
        screen.wait_for("alpha")
        screen.press(b"q")
        screen.wait_for("\x1b[?25h\x1b[?1049l")
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_leaves_the_terminal_as_it_was(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with answering(tmp_path / "s", node(FOUR)), top(tmp_path / "s", keys=True) as (screen, process):
        screen.wait_for("no containers")
        process.send_signal(number)
        screen.wait_for("\x1b[?25h\x1b[?1049l")
        assert process.wait(PATIENCE) == code


def test_as_json_it_has_the_load_of_each_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(tmp_path / "s", node(FOUR, row("1"))) as path:
        assert main(["top", "-o", "json", "--socket", path]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["pod"] for row in found["containers"]] == ["web"]
    assert found["loads"].keys() == {str(cpu) for cpu in range(os.cpu_count() or 1)}
    assert all(0 <= load <= 1 for load in found["loads"].values())
