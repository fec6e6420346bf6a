from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.events.entries import Entry
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.errors import ParseError
from pinfold.formats.journal.trace import JournalReader, read_document
from pinfold.formats.pods.document import pod_document
from tests.property.strategies import pinned, pod_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pinfold.planning.replay import Event

Told = tuple[str, dict[str, Any]]  # what, and its fields


def web(cpus: int = 2, uid: str = "u1", name: str = "web") -> Pod:
    return replace(pod_of(pinned(cpus), uid=uid), name=name)


def whole(what: str, pod: Pod, **fields: str) -> Told:
    names = {"pod": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    return what, {**names, "document": pod_document(pod), **fields}


def admitted(pod: Pod) -> Told:
    return whole("admitted", pod)


def refused(pod: Pod) -> Told:
    return whole("refused", pod, reason="UnexpectedAdmissionError")


def gone(pod: Pod) -> Told:
    return "gone", {"pod": pod.name, "namespace": pod.namespace, "uid": pod.uid}


def state(**owners: str) -> Told:
    return "state", {"shared": "0", "exclusive": {name.replace("__", "/"): cpus for name, cpus in owners.items()}}


def entries(told: Sequence[Told]) -> list[Entry]:
    return [Entry(number, number * 10.0, what, fields) for number, (what, fields) in enumerate(told, start=1)]


def read(*told: Told, since: float | None = None) -> tuple[list[Event], JournalReader]:
    reader = JournalReader(since)
    return list(reader.events(entries(told))), reader


def said(events: Sequence[Event]) -> list[str]:
    """Return events in short: +POD came and was let in, ?POD came and was refused, -UID went, by first letters."""
    signs = {"": "+", None: "#"}
    return [
        f"{signs.get(event.then, '?')}{event.pod.name}" if isinstance(event.pod, Pod) else f"-{event.pod.split('~')[0]}"
        for event in events
    ]


def test_pods_come_and_go_in_the_order_and_at_the_times_of_the_journal() -> None:
    pod, big = web(), web(9, "u2", "big")
    events, reader = read(state(), admitted(pod), refused(big), ("started", {"pod": "web"}), gone(pod))
    assert said(events) == ["+web", "?big", "-u1"]
    assert [event.time for event in events] == [20, 30, 50]
    assert events[1].then == "UnexpectedAdmissionError"
    assert reader.remarks == []


def test_a_uid_that_comes_again_is_another_pod() -> None:
    events, _ = read(admitted(web()), gone(web()), admitted(web()))
    first, end, second = (event.pod if isinstance(event.pod, str) else event.pod.uid for event in events)
    assert first == end != second


def test_a_pod_that_grows_is_one_pod() -> None:
    pod = web()
    more = replace(pod, containers=(*pod.containers, pinned(1, "log")))
    events, _ = read(admitted(pod), admitted(more), refused(more), gone(pod))
    assert said(events) == ["+web", "+web", "?web", "-u1"]
    assert len({event.pod if isinstance(event.pod, str) else event.pod.uid for event in events}) == 1


def test_times_do_not_go_back_with_the_clock() -> None:
    reader = JournalReader()
    told = [Entry(1, 50.0, *admitted(web())), Entry(2, 20.0, *gone(web()))]
    assert [event.time for event in reader.events(told)] == [50, 50]


class TestStatesTell:
    def test_a_pod_from_before_the_journal_comes_with_so_many_cpus(self) -> None:
        events, reader = read(state(default__old__app="2-5", default__old__log="6"), state())
        assert said(events) == ["+old", "-default/old"]
        pod = events[0].pod
        assert isinstance(pod, Pod)
        assert [(one.name, one.resources.requests.cpu) for one in pod.containers] == [("app", 4000), ("log", 1000)]
        assert reader.remarks == ["1 pod is known by its exclusive CPUs alone"]

    def test_the_state_before_an_admission_adds_no_other_pod(self) -> None:
        events, reader = read(state(), state(default__web__app="1-2"), admitted(web()), state(), gone(web()))
        assert said(events) == ["+web", "-u1"]
        assert reader.by_cpus == 0

    def test_a_pod_that_left_while_no_daemon_ran_leaves(self) -> None:
        owned = state(default__web__app="1-2")
        events, _ = read(owned, admitted(web()), state(u1__app="1-2"), owned, state(), ("weaker", {}))
        assert said(events) == ["+web", "-u1"]
        assert events[-1].time == 50

    @pytest.mark.parametrize(
        "why",
        [
            (("not-kept", {"pod": "u1", "container": "app"}), state(), ("weaker", {})),
            (state(), ("reconfigured", {"policy": "none"})),
        ],
        ids=["a restart", "a reload"],
    )
    def test_a_pod_that_lost_its_cpus_to_another_configuration_stays(self, why: tuple[Told, ...]) -> None:
        events, _ = read(state(default__web__app="1-2"), admitted(web()), *why)
        assert said(events) == ["+web"]

    def test_a_pod_from_before_the_journal_that_gets_another_container_is_one_pod(self) -> None:
        more = replace(web(), containers=(pinned(2), pinned(1, "log")))
        owned, then = {"default__web__app": "1-2"}, {"default__web__log": "3"}
        events, _ = read(state(**owned), ("weaker", {}), state(**owned, **then), admitted(more), state(), gone(more))
        assert said(events) == ["+web", "+web", "-default/web"]

    def test_a_container_of_a_pod_known_by_its_cpus_comes_later(self) -> None:
        owned, then = {"default__web__app": "1-2"}, {"default__web__log": "3"}
        events, reader = read(state(**owned), state(**owned, **then), state())
        assert said(events) == ["+web", "+web", "-default/web"]
        assert reader.by_cpus == 1

    def test_a_pod_that_is_named_only_later_does_not_come_twice(self) -> None:
        events, _ = read(state(u1__app="1-2"), state(default__web__app="1-2"), state())
        assert said(events) == ["+u1", "-u1", "+web", "-default/web"]


class TestRefusedPods:
    def test_they_are_left_out_before_the_time_that_is_asked_for(self) -> None:
        events, _ = read(refused(web()), admitted(web(1, "u2", "other")), refused(web()), since=30.0)
        assert said(events) == ["+other", "?web"]

    def test_one_that_asks_for_less_gives_back_what_it_may_have_got(self) -> None:
        events, _ = read(refused(web(9)), refused(web(9)), admitted(web(4)))
        assert said(events) == ["?web", "?web", "-u1", "+web"]

    def test_one_is_gone_when_another_of_its_name_comes(self) -> None:
        events, _ = read(refused(web()), admitted(web(uid="u2")))
        assert said(events) == ["?web", "-u1", "+web"]

    def test_a_pod_with_cpus_is_not_gone_when_another_of_its_name_comes(self) -> None:
        events, _ = read(state(default__web__app="1-2"), admitted(web()), admitted(web(uid="u2")))
        assert said(events) == ["+web", "+web"]


class TestWhatCannotBeUsed:
    def test_a_pod_without_a_document_comes_with_its_cpus(self) -> None:
        bare = {"pod": "web", "namespace": "default", "uid": "u1"}
        events, reader = read(state(default__web__app="1-3"), ("admitted", bare), ("refused", bare), state())
        assert said(events) == ["+web", "-default/web"]
        assert reader.remarks == [
            "2 pods are in the journal by name only",
            "1 pod is known by its exclusive CPUs alone",
        ]

    @pytest.mark.parametrize(
        "document",
        [
            7,
            {},
            {"metadata": {"name": "web", "uid": "u1"}},
            {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "app"}]}},
            {"metadata": {"name": "web", "uid": "u1"}, "spec": {"containers": [{"name": "a"}, {"name": "a"}]}},
            {"metadata": {"name": "web", "uid": "u1"}, "spec": {"containers": [{"name": "a", "resources": 1}]}},
        ],
    )
    def test_a_document_that_is_none_is_counted(self, document: object) -> None:
        events, reader = read(("admitted", {"pod": "web", "document": document}), admitted(web()))
        assert said(events) == ["+web"]
        assert reader.remarks == ["1 pod of the journal cannot be read"]

    def test_missing_entries_are_counted_but_not_those_before_the_first_file(self) -> None:
        reader = JournalReader()
        numbers = [3, 90, 91, 95]
        assert not list(reader.events(Entry(number, 0.0, *state()) for number in numbers))
        assert reader.remarks == ["3 entries of the journal are missing or damaged"]

    def test_another_configuration_is_told_of(self) -> None:
        _, reader = read(("reconfigured", {}))
        assert "1 time the daemon was reconfigured" in reader.remarks[0]


def test_a_document_is_read_as_it_was_written() -> None:
    limit_only = Container("half", Resources(limits=Amounts(2000, 1 << 30)))
    init = (Container("setup", Resources(Amounts(1500))), replace(pinned(1, "proxy"), sidecar=True))
    level = Resources(Amounts(4000, 1 << 30), Amounts(4000, 1 << 30))
    pod = Pod(PodUID("u1"), "web", "prod", init, (limit_only,), level, Amounts(100))
    assert read_document(pod_document(pod)) == pod
    assert read_document(pod_document(replace(pod, containers=(), resources=None))).init == init


def test_a_document_that_is_wrong_says_where() -> None:
    with pytest.raises(ParseError, match=r"document: spec\.containers\[0\]\.name"):
        read_document({"metadata": {}, "spec": {"containers": [{"name": ["x"]}]}})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["1-2", "default/web/app", "2"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "spec", "containers", "name", "uid", "resources", "requests", "cpu", "a/b/c"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
KINDS = ("state", "admitted", "refused", "gone", "not-kept", "reconfigured")
FIELDS = st.dictionaries(st.sampled_from(["pod", "namespace", "uid", "document", "exclusive", "reason"]), JSON)


@given(st.lists(st.tuples(st.sampled_from(KINDS), FIELDS), max_size=8))
def test_no_entry_does_any_harm(told: list[Told]) -> None:
    events, _ = read(*told)
    assert all(event.pod for event in events)


@given(st.data())
def test_exactly_those_who_own_cpus_are_there_at_any_time(data: st.DataObject) -> None:
    """States correct the trace where entries about pods are missing."""
    pods = {name: web(index + 1, f"u{index}", name) for index, name in enumerate("abc")}
    there: dict[str, str] = {}
    told: list[Told] = [state()]
    for _ in range(data.draw(st.integers(1, 10))):
        name = data.draw(st.sampled_from("abc"))
        is_told = data.draw(st.booleans())
        if name in there:
            del there[name]
            told += [state(**owned(there)), *([gone(pods[name])] if is_told else [])]
        else:
            there[name] = str(CPUSet.from_cpus(range(10 * ord(name), 10 * ord(name) + 1 + "abc".index(name))))
            told += [state(**owned(there)), *([admitted(pods[name])] if is_told else [])]
    events, _ = read(*told)
    found: dict[str, str] = {}
    for event in events:
        if isinstance(event.pod, Pod):
            found[event.pod.uid] = event.pod.name
        else:
            del found[event.pod]
    assert sorted(found.values()) == sorted(there)


def owned(there: dict[str, str]) -> dict[str, str]:
    return {f"default__{name}__app": cpus for name, cpus in there.items()}
