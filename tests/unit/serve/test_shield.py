"""The shield on the control socket: its state, a dry run, on and off, and wrong requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pinfold.manager.shielding import ShieldSwitch
from pinfold.serve.http.messages import HTTPError
from pinfold.serve.shield import answer_shield
from tests.unit.manager.test_manager import ONE
from tests.unit.manager.test_shielding import ALL, Shielded

if TYPE_CHECKING:
    from pathlib import Path


def asked(node: Shielded, body: dict[str, object] | None = None) -> dict[str, object]:
    answer = asyncio.run(answer_shield(ShieldSwitch(node.manager), body))
    assert isinstance(answer.data, dict)
    return answer.data


def test_it_goes_on_and_off_while_a_container_runs(tmp_path: Path) -> None:
    node = Shielded(tmp_path, on=False)
    asyncio.run(node.manager.admit(ONE))
    kept = str(node.manager.state.exclusive)
    assert asked(node) == {"on": False, "cpus": "", "moves": [], "refused": []}
    answer = asked(node, {"on": True})
    assert (answer["on"], answer["cpus"]) == (True, kept)
    assert {"place": "IRQ 24 (eth24)", "cpus": ALL, "then": node.rest()} in answer["moves"]  # type: ignore[operator]
    assert node.irq == node.rest()
    assert asked(node, {"on": False})["cpus"] == ""
    assert node.irq == ALL


def test_a_dry_run_lists_what_would_move_and_moves_nothing(tmp_path: Path) -> None:
    node = Shielded(tmp_path, on=False)
    answer = asked(node, {"on": True, "dry_run": True, "cpus": "0,6-7"})
    assert {"place": "IRQ 24 (eth24)", "cpus": ALL, "then": "0-5"} in answer["moves"]  # type: ignore[operator]
    assert (node.irq, answer["on"]) == (ALL, False)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"on": 1}, "on: expected true or false"),
        ({"on": True, "dry_run": "yes"}, "dry_run: expected true or false"),
        ({"on": True, "dry_run": True, "cpus": 3}, "cpus: expected a CPU number"),
        ({"on": True, "dry_run": True, "cpus": "1-"}, "cpus: "),
        ({"on": True, "cpus": "1"}, "cpus: only with dry_run"),
    ],
    ids=["number", "text", "no list", "half a list", "not dry"],
)
def test_a_wrong_request_says_what_is_allowed(tmp_path: Path, body: dict[str, object], said: str) -> None:
    with pytest.raises(HTTPError, match=said):
        asked(Shielded(tmp_path, on=False), body)


def test_a_simulated_machine_has_no_host_to_move() -> None:
    with pytest.raises(HTTPError, match="it simulates"):
        asyncio.run(answer_shield(None))
