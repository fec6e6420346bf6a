from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.pods.pod import Amounts, Pod, QoS
from pinfold.errors import ParseError
from pinfold.formats.pods.trace import COLUMNS, parse_trace

HEAD = "time,event,pod,container,kind,cpu,cpu_limit,memory\n"
POD = {
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": 2, "memory": "1Gi"}}}]},
}


def line(**members: object) -> str:
    return json.dumps(members) + "\n"


def pods(text: str) -> list[Pod]:
    return [event.pod for event in parse_trace(text) if isinstance(event.pod, Pod)]


def test_rows_of_a_pod_stand_below_each_other() -> None:
    db, web = pods(
        f"{HEAD}0,add,db,setup,init,2,,1Gi\n0,add,db,app,,4,,1Gi\n0,add,db,log,sidecar,1,,1Gi\n0,add,web,,,,,\n"
    )
    assert [container.name for container in db.all_containers] == ["setup", "log", "app"]
    assert [container.sidecar for container in db.init] == [False, True]
    assert web.containers[0].name == "app"
    assert (db.qos, web.qos) == (QoS.GUARANTEED, QoS.BEST_EFFORT)


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_of_json_ends_only_where_json_lets_it(sign: str, end: str) -> None:
    pod = POD | {"metadata": {"name": "web", "annotations": {"note": f"one{sign}two"}}}
    lines = [{"time": 0, "event": "add", "pod": pod}, {"time": 1, "event": "remove", "pod": "web"}, {"time": 2}]
    text = end.join(json.dumps(one, ensure_ascii=False) for one in lines[:2]) + end
    assert sign in text
    assert [event.comes for event in parse_trace(text)] == [True, False]
    with pytest.raises(ParseError, match="line 3: "):
        parse_trace(text + json.dumps(lines[2]) + end)


def test_a_limit_that_is_left_out_is_the_request_and_a_dash_is_none() -> None:
    same, none, more = pods(f"{HEAD}0,add,a,,,2,,1Gi\n0,add,b,,,2,-,1Gi\n0,add,c,,,500m,2,1Gi\n")
    assert same.containers[0].resources.limits == Amounts(2000, 1 << 30)
    assert none.containers[0].resources.limits.cpu is None
    assert more.containers[0].resources.requests.cpu == 500


def test_a_pod_that_goes_is_the_one_that_came() -> None:
    came, went, again, gone = parse_trace(f"{HEAD}0,add,a\n1,remove,a\n2,add,a\n3,remove,a\n")
    assert isinstance(came.pod, Pod)
    assert isinstance(again.pod, Pod)
    assert (went.pod, gone.pod) == (came.pod.uid, again.pod.uid)
    assert came.pod.uid != again.pod.uid


def test_namespaces_keep_names_apart() -> None:
    events = parse_trace("time,event,namespace,pod\n0,add,x,a\n0,add,y,a\n0,add,,a\n1,remove,y,a\n")
    assert [event.pod.namespace for event in events if isinstance(event.pod, Pod)] == ["x", "y", "default"]


def test_times_are_seconds_or_dates() -> None:
    times = [
        event.time
        for event in parse_trace(
            f"{HEAD}-1.5,add,a\n0,add,b\n1970-01-01T00:01:00Z,add,c\n"
            "1970-01-01T01:01:01+01:00,add,d\n1970-01-01 00:01:02,add,e\n"
        )
    ]
    assert times == [-1.5, 0, 60, 61, 62]


def test_comments_and_empty_lines_are_passed_over() -> None:
    assert len(parse_trace(f"{HEAD}\n# a note\n0,add,a\n\n")) == 1


def test_json_lines_have_whole_pods() -> None:
    text = line(time=0, event="add", pod=POD) + "\n" + line(time="1970-01-01T00:00:05Z", event="remove", pod="web")
    came, went = parse_trace(text)
    assert isinstance(came.pod, Pod)
    assert came.pod.containers[0].resources.limits.cpu == 2000
    assert (went.time, went.pod) == (5, came.pod.uid)


@pytest.mark.parametrize("name", ["web", "default/web", {"metadata": {"name": "web"}}])
def test_json_names_who_goes_in_several_ways(name: object) -> None:
    assert not parse_trace(line(time=0, event="add", pod=POD) + line(time=1.5, event="remove", pod=name))[1].comes


def test_an_empty_trace_of_the_right_columns_is_empty() -> None:
    assert parse_trace(",".join(COLUMNS)) == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1: no column time; the first line names the columns: time,event,"),
        ("time,event\n", "line 1: no column pod"),
        ("time,event,pod,cpus\n", 'line 1: column "cpus" is unknown'),
        ("time,event,pod,pod\n", 'line 1: column "pod" appears twice'),
        ("time,event,pod\n0,add,a,b\n", "line 2: 4 cells, but 3 columns"),
        ("time,event,pod\nsoon,add,a\n", 'line 2: time: "soon" is neither seconds'),
        ("time,event,pod\n0,start,a\n", 'line 2: event: "start" is not one of add, remove'),
        ("time,event,pod\n0,add,A_b\n", 'line 2: pod: "A_b" is not a valid name'),
        ("time,event,pod\n0,add,\n", 'line 2: pod: "" is not a valid name'),
        ("time,event,pod\n5,add,a\n4,add,b\n", "line 3: time: the time is before"),
        ("time,event,pod\n0,add,a\n1,add,a\n", 'line 3: pod "default/a" is added, but it already exists'),
        ("time,event,pod\n0,remove,a\n", 'line 2: pod "default/a" is removed, but it does not exist'),
        (f"{HEAD}0,add,a,x,main,1\n", 'line 2: kind: "main" is not one of app, init, sidecar'),
        (f"{HEAD}0,add,a,x,,1\n0,add,a,x,,1\n", 'line 3: container: pod "a" has two containers called "x"'),
        (f"{HEAD}0,add,a,x,init,1\n", 'line 2: pod "a" has init containers only'),
        (f"{HEAD}0,add,a,x,,many\n", "line 2: cpu:"),
        (f"{HEAD}0,add,a,x,,-1\n", "line 2: cpu:"),
        (f"{HEAD}0,add,a,x,,2,1\n", "line 2: cpu: is more than its limit"),
        (f"{HEAD}0,add,a,X,,2\n", 'line 2: container: "X" is not a valid name'),
        ('time,event,pod\n0,add,"a\n', "not CSV"),
        ("{\n", "line 1: not JSON"),
        (line(event="add", pod=POD), 'line 1: time: "" is neither seconds'),
        (line(time=True, event="add", pod=POD), "line 1: time: true where text in quotes is expected"),
        (line(time=0, event="add"), "line 1: pod: expected one Kubernetes object"),
        (line(time=0, event="add", pod={"kind": "Service"}), "line 1: pod: expected one Kubernetes object"),
        (line(time=0, event="add", pod={"kind": "Pod"}), "line 1: pod: document 1: metadata.name"),
        (line(time=0, event="remove", pod=5), "line 1: pod: 5 where a pod or its name in quotes is expected"),
        (line(time=0, event="add", pod=POD) + "[]\n", "line 2: a list where an object"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(ParseError) as raised:
        parse_trace(text, source="week.csv")
    assert str(raised.value).startswith("week.csv: ")
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


@given(st.text() | st.lists(st.sampled_from([*COLUMNS, "0", "add", "a", ",", "\n", '"', "{}", "remove"])).map("".join))
def test_any_text_gives_events_or_a_parse_error(text: str) -> None:
    with suppress(ParseError):
        parse_trace(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["time", "event", "pod", "metadata", "name", "kind", "spec"]), inner)
        ),
    )
)
def test_any_json_gives_events_or_a_parse_error(value: object) -> None:
    with suppress(ParseError):
        parse_trace(json.dumps({"time": 0, "event": "add", "pod": value}))


def test_json_that_is_nested_too_deeply_is_refused() -> None:
    for depth in (500, 5_000, 500_000):
        deep = f'{{"time": 0, "event": "add", "pod": {"[" * depth}{"]" * depth}}}'
        with pytest.raises(ParseError, match="line 1"):
            parse_trace(deep)
