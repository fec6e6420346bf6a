"""Questions for the output of containers that have none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pinfold.serve.http.messages import HTTPError
from pinfold.serve.logs import answer_logs
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
