"""Events: each has a word of its own, and the fields that the log, the event stream and the journal always had."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest

from pinfold.core.events import GROUPS, Event, Measured, Told
from pinfold.core.events.about import Audience, PodName
from pinfold.core.events.daemon import Failed, NotKept, StateNotUsable, TakenOver
from pinfold.core.events.decisions import Admitted, Assigned, Gone, Refused, Released, StateChanged
from pinfold.core.events.entries import Entry
from pinfold.core.events.fields import entry_fields, fields_of, is_for
from pinfold.core.events.repairs import Drifted, Hotplugged, NotRepaired
from pinfold.core.events.running import Ended, GivenBack, RanUnpinned
from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.pods.pod import Pod, PodUID
from pinfold.core.reconcile import Cause

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE = Path(__file__).parents[3] / "src/pinfold"
WEB = PodName("shop", "web", "1a2b")
UNKNOWN = PodName.of_uid(PodUID("9f"))
TWO = CPUSet.parse("2-3")
STEP = {"what": "took a core", "took": "2-3", "why": ""}
DOCUMENT = {"metadata": {"name": "web"}, "spec": {"containers": []}}


def test_every_event_has_a_word_of_its_own() -> None:
    words = [cls.what for cls in get_args(Told)]
    assert len(set(words)) == len(words)


def test_every_event_is_in_one_group_or_is_only_counted() -> None:
    grouped = [cls for group in GROUPS.values() for cls in get_args(group)]
    assert len(set(grouped)) == len(grouped)
    assert {*grouped, *get_args(Measured)} == set(get_args(Event))


def test_every_event_is_told_somewhere() -> None:
    texts = [path.read_text() for path in SOURCE.rglob("*.py") if path.parent != SOURCE / "core/events"]
    made = set(re.findall(r"\b([A-Z]\w+)\(", "\n".join(texts)))
    assert {cls.__name__ for cls in get_args(Event)} <= made


@pytest.mark.parametrize("cls", get_args(Event), ids=lambda cls: cls.__name__)
def test_events_are_frozen_slotted_and_say_what_they_mean(cls: type) -> None:
    assert "__slots__" in vars(cls)
    with pytest.raises(FrozenInstanceError):
        vars(cls)["__setattr__"](object.__new__(cls), "pod", UNKNOWN)
    assert cls.__doc__ is not None
    assert "\n" not in cls.__doc__


@pytest.mark.parametrize("cls", get_args(Told), ids=lambda cls: cls.__name__)
def test_no_field_hides_the_number_the_time_or_the_word_of_its_entry(cls: type) -> None:
    assert not {field.name for field in fields_of(cls)} & {"number", "time", "what"}


def test_an_event_cannot_be_changed() -> None:
    event = Gone(WEB)
    with pytest.raises(FrozenInstanceError):
        event.pod = UNKNOWN  # type: ignore[misc]  # that is the claim


CASES: Mapping[str, tuple[Told, dict[str, object], dict[str, object], dict[str, object]]] = {
    "admitted": (Admitted(WEB, DOCUMENT), {"pod": "web"}, {}, {"document": DOCUMENT}),
    "assigned": (
        Assigned(WEB, "app", TWO, steps=[STEP], alignment={"cores": 1}),
        {"pod": "web", "container": "app", "cpus": "2-3"},
        {},
        {"steps": [STEP], "alignment": {"cores": 1}},
    ),
    "refused": (
        Refused(pod=WEB, reason="R", message="M", need="n", room="", fixes=("end x",), document={}, container="app"),
        {"pod": "web", "reason": "R", "message": "M"},
        {"container": "app"},
        {"need": "n", "room": "", "fixes": ["end x"], "document": {}},
    ),
    "given back": (
        GivenBack(WEB, "app", (12, 7)),
        {"pod": "web", "container": "app", "pids": "12 7"},
        {},
        {},
    ),
    "ended": (Ended(WEB, "app", 0), {"pod": "web", "container": "app", "code": 0}, {}, {}),
    "ended, code unknown": (Ended(WEB, "app"), {"pod": "web", "container": "app"}, {}, {}),
    "ran unpinned": (
        RanUnpinned(WEB, "app", 0.12345),
        {"pod": "web", "container": "app", "seconds": 0.123},
        {},
        {},
    ),
    "drift of a container": (
        Drifted(pod=WEB, container="app", cause=Cause.CPUS, found=EMPTY, wanted=TWO),
        {"pod": "web", "container": "app", "cause": "cpus", "found": "none", "wanted": "2-3"},
        {},
        {},
    ),
    "not kept, and shares": (
        NotKept(WEB, "app", EMPTY, "no room"),
        {"pod": "web", "container": "app", "cpus": "", "why": "no room"},
        {},
        {},
    ),
}
TOLD_ABOUT_WEB = {"namespace": "shop"}, {"uid": "1a2b"}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_about_a_pod_the_stream_adds_its_namespace_and_the_journal_its_uid(
    case: tuple[Told, dict[str, object], dict[str, object], dict[str, object]],
) -> None:
    event, log, stream, journal = case
    namespace, uid = TOLD_ABOUT_WEB
    assert entry_fields(event, Audience.LOG) == log
    assert entry_fields(event, Audience.STREAM) == {**log, **namespace, **stream}
    assert entry_fields(event, Audience.JOURNAL) == {**log, **namespace, **stream, **uid, **journal}


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (
            Drifted(pool="shared", cause=Cause.LIMIT, found=TWO, wanted=EMPTY, why="cpu.max is 1"),
            {"pool": "shared", "cause": "limit", "found": "2-3", "wanted": "", "why": "cpu.max is 1"},
        ),
        (NotRepaired(why="busy"), {"why": "busy"}),
        (Hotplugged(TWO, EMPTY), {"offline": "2-3", "online": ""}),
        (TakenOver("/var/x", TWO), {"from": "/var/x", "exclusive": "2-3"}),
        (StateNotUsable("torn", "x.bad"), {"why": "torn", "aside": "x.bad"}),
        (Failed(where="GET /", why="KeyError: 1"), {"where": "GET /", "why": "KeyError: 1"}),
        (Failed(why="KeyError: 1"), {"why": "KeyError: 1"}),
    ],
    ids=["drift of a pool", "not repaired", "hotplug", "taken over", "not usable", "failed somewhere", "failed"],
)
@pytest.mark.parametrize("audience", Audience)
def test_about_the_node_all_are_told_the_same(event: Told, told: dict[str, object], audience: Audience) -> None:
    assert entry_fields(event, audience) == told


def test_a_pod_of_which_only_the_uid_is_known_is_called_by_it() -> None:
    assert entry_fields(Released(UNKNOWN, "app"), Audience.LOG) == {"pod": "9f", "container": "app"}
    assert entry_fields(Released(UNKNOWN, "app"), Audience.JOURNAL) == {"pod": "9f", "uid": "9f", "container": "app"}


def test_a_pod_is_called_as_it_is() -> None:
    assert PodName.of(Pod(PodUID("1a2b"), "web", "shop")) == WEB


def test_a_decision_without_steps_has_no_field_for_them() -> None:
    event = Assigned(WEB, "app", TWO, steps=[], defects=[])
    assert entry_fields(event, Audience.JOURNAL).keys() == {"namespace", "pod", "uid", "container", "cpus"}


def test_a_state_is_for_the_journal_alone() -> None:
    event = StateChanged(TWO, EMPTY, EMPTY, {"shop/web/app": CPUSet.of(5)}, verified=3, milliseconds=1.23456)
    assert [is_for(event, audience) for audience in Audience] == [False, False, True]
    pools = {"shared": "2-3", "reserved": "", "offline": ""}
    applied = {"verified": 3, "milliseconds": 1.235}
    assert entry_fields(event, Audience.JOURNAL) == {**pools, "exclusive": {"shop/web/app": "5"}, **applied}


def test_what_failed_does_not_hide_that_it_failed() -> None:
    event = Failed(where="GET /", why="KeyError: 1")
    data = Entry(1, 0.0, event.what, entry_fields(event, Audience.STREAM)).data()
    assert data == {"number": 1, "time": 0.0, "what": "failed", "where": "GET /", "why": "KeyError: 1"}
