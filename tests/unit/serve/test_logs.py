"""Questions for the output of containers: the last lines of it, and of containers that have none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pinfold.node.outputs.outputs import DEFAULT_LIMITS, Outputs, earlier_half
from pinfold.serve.http.messages import HTTPError
from pinfold.serve.logs import answer_logs, last_lines
from tests.unit.serve.test_api import Stand

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("asked", "said"),
    [("probe", "was not started by apply, so its output is not kept"), ("prob", 'no output of "prob" is kept')],
)
def test_a_command_of_run_is_told_from_a_container_that_is_unknown(tmp_path: Path, asked: str, said: str) -> None:
    async def scenario() -> None:
        stand = Stand(tmp_path)
        await stand.host.reserve("probe", 1)
        with pytest.raises(HTTPError, match=said):
            answer_logs(stand.host.workbook, {"container": asked})

    asyncio.run(scenario())


@pytest.mark.parametrize("earlier", [b"", b"a\nb\n", b"a\nb"], ids=["one file", "two files", "a line in both"])
@pytest.mark.parametrize(
    "later", [b"", b"c\nd\n", b"c\n\nd", b"x" * 70_000 + b"\ny\n"], ids=["empty", "whole", "open", "long"]
)
@pytest.mark.parametrize("lines", range(7))
def test_the_last_lines_are_those_of_the_whole_output(tmp_path: Path, earlier: bytes, later: bytes, lines: int) -> None:
    name = "default_web_app.log"
    (tmp_path / earlier_half(name)).write_bytes(earlier)
    (tmp_path / name).write_bytes(later)
    files = Outputs(tmp_path, DEFAULT_LIMITS, drained=False)
    found = b"".join((tmp_path / half).read_bytes()[at:] for half, at in last_lines(files, name, lines))
    whole = (earlier + later).splitlines(keepends=True)
    assert found == b"".join(whole[len(whole) - min(lines, len(whole)) :])


@pytest.mark.parametrize("tail", ["-1", "", "x", "\u0663", "100001", "9" * 5000])
def test_a_number_of_lines_that_cannot_be_is_refused(tmp_path: Path, tail: str) -> None:
    async def scenario() -> None:
        stand = Stand(tmp_path)
        with pytest.raises(HTTPError, match="tail: expected a number from 0 to 100000, got"):
            answer_logs(stand.host.workbook, {"container": "probe", "tail": tail})

    asyncio.run(scenario())
