"""What was, and why: history, moments and explanations, also of the time before a restart."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from tests.e2e.api.client import Web
from tests.e2e.daemon import container, pod, wait_for

if TYPE_CHECKING:
    from tests.e2e.api.client import Data
    from tests.e2e.daemon import Daemon


def in_namespace(namespace: str, text: str) -> str:
    return text.replace("metadata: {", f"metadata: {{namespace: {namespace}, ", 1)


def test_history_is_that_of_the_command_line_and_its_numbers_go_up(node: Daemon, seen: Web) -> None:
    entries = seen.entries()
    assert entries == [json.loads(line) for line in node.say("history", "-o", "json").stdout.splitlines()]
    numbers = [entry["number"] for entry in entries]
    assert numbers == sorted(set(numbers))
    assert [entry["what"] for entry in seen.entries(container="web/app", what="assigned,released")] == ["assigned"]
    assert {entry["what"] for entry in seen.entries(container="default/gone/app")} >= {"assigned", "released"}


def test_history_comes_in_pieces_that_together_are_all_of_it(seen: Web) -> None:
    pieces: list[Data] = []
    more = True
    while more:
        answer = seen.get(f"history?limit=2&after={pieces[-1]['number'] if pieces else 0}")
        pieces += answer["entries"]
        more = answer["more"]
        assert len(answer["entries"]) == 2 or not more
    assert pieces == seen.entries()


def test_what_was_at_a_time_is_what_the_entries_say(node: Daemon, seen: Web) -> None:
    for entry in seen.entries(what="state"):
        moment = seen.get(f"at?time={entry['time'] + 0.0005:.4f}")
        assert moment["known"]
        assert (moment["shared"], moment["exclusive"]) == (entry["shared"], entry["exclusive"])
    now, pools = seen.get("at"), seen.get("pools")
    assert now["shared"] == pools["shared"]
    assert list(now["exclusive"]) == ["default/web/app"]
    assert now["exclusive"]["default/web/app"] == pools["exclusive"]
    assert json.loads(node.say("history", "--at", "0s ago", "-o", "json").stdout)["exclusive"] == now["exclusive"]


def test_nothing_is_known_of_the_time_before_the_journal(seen: Web) -> None:
    moment = seen.get("at?time=5")
    assert (moment["known"], moment["shared"], moment["exclusive"], moment["since"]) == (False, "", {}, None)


def test_a_cpu_was_in_these_hands(seen: Web) -> None:
    cpu = CPUSet.parse(seen.get("pools")["exclusive"]).lowest
    answer = seen.get(f"history?cpu={cpu}")
    owners = [tenure["owner"] for tenure in answer["tenures"]]
    assert owners[-1] == "default/web/app"
    assert answer["tenures"][-1]["until"] is None
    assert None in owners


@pytest.mark.parametrize("who", ["web/app", "default/web/app", "web", "db/sql", "big/app", "gone/app"])
def test_explanation_is_that_of_the_command_line(node: Daemon, seen: Web, who: str) -> None:
    told = json.loads(node.say("explain", who, "-o", "json").stdout)
    assert told.pop("failed") is None  # what a container printed last is only for those who may use the control socket
    assert told == seen.explain(who)


def test_explanations_tell_of_own_cpus_shared_ones_and_none(seen: Web) -> None:
    web, db, big = (seen.explain(name) for name in ("web/app", "db/sql", "big/app"))
    assert web["cpus"] == seen.get("pools")["exclusive"]
    assert web["steps"]
    assert (db["cpus"], db["refusal"]) == (None, None)
    assert "not Guaranteed" in db["why"]
    assert (big["cpus"], big["refusal"]["reason"]) == (None, "UnexpectedAdmissionError")


def test_refused_pod_is_told_what_would_help(seen: Web) -> None:
    refusal = seen.explain("big/app")["refusal"]
    assert refusal["need"].endswith(" not available")
    assert all(fix.startswith("would fit ") for fix in refusal["fixes"])
    if re.match(r"\d+ of \d+ can be exclusive", refusal["room"]):
        assert [fix for fix in refusal["fixes"] if re.fullmatch(r"would fit with \d+ CPUs?", fix)]


# -- over restarts


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_history_moments_and_explanations_outlive_the_daemon(daemon: Daemon, number: signal.Signals) -> None:
    daemon.apply(pod("web", container(cpus=4)), pod("big", container(cpus=500)))
    web = Web(daemon)
    entries, moment = web.entries(), web.get("at")
    told = {who: web.explain(who) for who in ("web/app", "big/app")}
    daemon.restart(number=number)
    web = Web(daemon)
    assert {who: web.explain(who) for who in told} == told
    again = web.entries()
    assert again[: len(entries)] == entries
    numbers = [entry["number"] for entry in again]
    assert numbers == sorted(set(numbers))
    then = web.get(f"at?time={moment['time']}")
    assert (then["shared"], then["exclusive"]) == (moment["shared"], moment["exclusive"])
    daemon.delete("web")
    assert web.get("at")["exclusive"] == {}
    assert web.get(f"at?time={moment['time']}") == then


def test_containers_keep_their_reason_over_a_restart(daemon: Daemon) -> None:
    daemon.apply(pod("web", container(cpus=4)), pod("db"))
    before = {row["pod"]: row["why"] for row in Web(daemon).get("containers")}
    daemon.flush()
    daemon.restart()
    assert {row["pod"]: row["why"] for row in Web(daemon).get("containers")} == before


def test_pods_of_the_same_name_in_two_namespaces_are_not_mixed_up(daemon: Daemon, web: Web) -> None:
    daemon.apply(*(in_namespace(name, pod("web", container(cpus=2))) for name in ("one", "two")))
    told = web.explain("one/web/app")
    assert told["container"] == "one/web/app"
    daemon.client.delete("/v1/pods/two/web")
    wait_for(lambda: [row["namespace"] for row in web.get("pods")] == ["one"], "one is left")
    assert web.explain("one/web/app") == told
    assert web.explain("two/web/app")["cpus"] is None
    mine = web.entries(container="one/web/app", what="assigned,released")
    assert [entry["what"] for entry in mine] == ["assigned"]
