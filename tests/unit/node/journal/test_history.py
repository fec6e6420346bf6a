"""Questions to a journal: which entries are meant, how much one answer holds, and how it was at a time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pinfold.core.events.entries import Entry, Subject
from pinfold.errors import ParseError
from pinfold.node.journal.files import Archive
from pinfold.node.journal.history import MOST_BYTES, answer_at, answer_history, explain_kept, parse_question
from pinfold.node.journal.journal import Journal

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_700_000_000.0


def opened(directory: Path) -> Journal:
    return Journal(directory, clock=lambda: NOW, tell=print)


def state(number: int, *owners: str, **pools: str) -> Entry:
    exclusive = {f"default/{owner}/app": str(index + 1) for index, owner in enumerate(owners)}
    return Entry(number, NOW + number, "state", {"shared": "0", "exclusive": exclusive, **pools})


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    journal = opened(tmp_path)
    names = {"namespace": "default", "pod": "web", "container": "app"}
    journal.append(state(1))
    journal.append(state(2, "web"))
    journal.append(
        Entry(3, NOW + 3, "assigned", {**names, "cpus": "1", "steps": [{"what": "took CPU 1", "took": "1"}]})
    )
    refused = {"namespace": "prod", "pod": "big", "reason": "R", "message": "M", "fixes": ["would fit with 2 CPUs"]}
    journal.append(Entry(4, NOW + 4, "refused", refused))
    journal.close()
    return Archive(tmp_path)


def numbers(archive: Archive, **query: str) -> list[object]:
    entries = answer_history(archive, parse_question(query))["entries"]
    assert isinstance(entries, list)
    return [entry["number"] for entry in entries]


def test_entries_are_chosen_by_container_kind_time_and_number(archive: Archive) -> None:
    assert numbers(archive) == [1, 2, 3, 4]
    assert numbers(archive, container="web/app") == [3]
    assert numbers(archive, container="prod/big/x") == [4]
    assert numbers(archive, what="assigned,refused") == [3, 4]
    assert numbers(archive, what="!state,!refused") == [3]
    assert numbers(archive, since=str(NOW + 2), until=str(NOW + 3)) == [2, 3]
    assert numbers(archive, after="3") == [4]


def test_an_answer_says_whether_there_is_more_and_where_the_journal_begins(archive: Archive) -> None:
    answer = answer_history(archive, parse_question({"limit": "2"}))
    assert (answer["more"], answer["first"]) == (True, NOW + 1)
    assert answer_history(archive, parse_question({"limit": "4"}))["more"] is False


def test_the_journal_begins_when_its_first_entry_says(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.append(Entry(1, NOW + 0.123456, "note", {}))
    answer = answer_history(journal, parse_question({}))
    assert (answer["first"], answer["entries"]) == (NOW + 0.123, [{"number": 1, "time": NOW + 0.123, "what": "note"}])
    journal.close()


def test_of_too_many_the_newest_can_be_asked_for(archive: Archive) -> None:
    answer = answer_history(archive, parse_question({"limit": "3", "newest": "true"}))
    assert (numbers(archive, limit="3", newest="true"), answer["more"]) == ([2, 3, 4], True)
    assert numbers(archive, limit="2", newest="true", what="!refused") == [2, 3]
    assert numbers(archive, limit="2", newest="true", after="3") == [4]
    assert answer_history(archive, parse_question({"limit": "4", "newest": "true"}))["more"] is False


def test_in_brief_entries_have_no_objects_in_them(archive: Archive) -> None:
    entries = answer_history(archive, parse_question({"brief": "true"}))["entries"]
    assert isinstance(entries, list)
    assert entries[1] == {"number": 2, "time": NOW + 2, "what": "state", "shared": "0"}
    assert "steps" not in entries[2]
    assert entries[2]["cpus"] == "1"
    assert entries[3]["fixes"] == ["would fit with 2 CPUs"]


def test_an_answer_ends_when_it_is_long_and_the_next_one_goes_on(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    owners = [f"pod-{number}-{'x' * 40}" for number in range(200)]
    for number in range(1, 1001):
        journal.append(state(number, *owners[: number % 200]))
    journal.close()
    answers, found = 0, [0]
    while True:
        answer = answer_history(journal, parse_question({"limit": "10000", "after": str(found[-1])}))
        entries = answer["entries"]
        assert isinstance(entries, list)
        assert 0 < len(json.dumps(entries)) < MOST_BYTES * 1.1
        answers += 1
        found += [entry["number"] for entry in entries]
        if not answer["more"]:
            break
    assert found[1:] == list(range(1, 1001))
    assert answers > 1
    newest = numbers(journal, limit="10000", newest="true")
    assert newest == list(range(1001 - len(newest), 1001))
    assert len(newest) < 1000


def test_hands_of_a_cpu_end_too_when_the_answer_is_long(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    names = [f"pod-{number}-{'x' * 200}" for number in range(2)]
    for number in range(1, 15_001):
        journal.append(state(number, names[number % 2]))
    journal.close()
    answer = answer_history(journal, parse_question({"cpu": "1"}))
    assert answer["more"] is True
    assert len(json.dumps(answer)) < MOST_BYTES * 1.1
    tenures = answer["tenures"]
    assert isinstance(tenures, list)
    rest = answer_history(journal, parse_question({"cpu": "1", "since": repr(tenures[-1]["until"])}))
    assert isinstance(rest["tenures"], list)
    assert rest["tenures"][0]["since"] == tenures[-1]["until"]
    assert (len(tenures) + len(rest["tenures"]), rest["more"]) == (15_000, False)


def test_a_state_tells_what_was_reserved_and_offline_if_that_was_kept(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.append(state(1, "old"))
    journal.append(state(2, "old", reserved="0", offline="7,6"))
    journal.append(state(3, "old", reserved="", offline=""))
    journal.append(state(4, "old", reserved="all of them", offline="7"))
    journal.close()

    def pools(time: float) -> dict[str, object]:
        return {
            name: value
            for name, value in answer_at(journal, {"time": str(time)}).items()
            if name in {"reserved", "offline"}
        }

    assert pools(NOW) == pools(NOW + 1) == pools(NOW + 4) == {}
    assert pools(NOW + 2) == {"reserved": "0", "offline": "6-7"}
    assert pools(NOW + 3) == {"reserved": "", "offline": ""}
    assert answer_at(journal, {"time": str(NOW)})["known"] is False


def test_the_hands_of_a_cpu_and_the_state_at_a_time_are_told(archive: Archive) -> None:
    answer = answer_history(archive, parse_question({"cpu": "1", "since": str(NOW + 3), "until": str(NOW + 3)}))
    assert answer["tenures"] == [
        {"pool": "exclusive", "owner": "default/web/app", "since": NOW + 2, "until": None, "why": "took CPU 1"}
    ]
    assert answer_at(archive, {"time": str(NOW + 1.5)})["exclusive"] == {}


def test_the_last_decision_on_a_container_is_explained(archive: Archive) -> None:
    found = explain_kept(archive, Subject.parse("web/app"))
    assert found is not None
    assert (found.container, str(found.cpus), found.why) == ("default/web/app", "1", "took CPU 1")
    refused = explain_kept(archive, Subject.parse("big"))
    assert refused is not None
    assert refused.why == "R: M"
    assert explain_kept(archive, Subject.parse("nobody")) is None


@pytest.mark.parametrize(
    "query",
    [
        {"since": "yesterday"},
        {"until": "1e99"},
        {"limit": "0"},
        {"limit": "10001"},
        {"after": "-1"},
        {"cpu": "65536"},
        {"what": "a b"},
        {"container": "a/b/c/d"},
        {"cpu": "٣"},
        {"newest": "yes"},
        {"brief": ""},
    ],
    ids=str,
)
def test_a_question_that_means_nothing_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(ParseError):
        parse_question(query)


def test_a_time_is_needed_for_a_state(archive: Archive) -> None:
    with pytest.raises(ParseError, match="time: expected seconds"):
        answer_at(archive, {})
