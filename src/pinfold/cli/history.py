"""`pinfold history`: past events, the CPUs of each container at a time, and the owners of a CPU."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, get_args

from pinfold.cli.arguments.when import parse_when, show_when
from pinfold.cli.asking.records import add_records, find_records
from pinfold.cli.output.terminal import look, unbroken
from pinfold.core.events import GROUPS
from pinfold.core.events.entries import Subject
from pinfold.core.machine.cpuset import MAX_CPU
from pinfold.errors import ParseError, PinfoldError, did_you_mean, excerpt
from pinfold.render.history import format_entry, format_moment, format_tenure
from pinfold.render.machine.canvas import wrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pinfold.cli.asking.records import Data, Records


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold history`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "A TIME is 03:12 (the last one that was), 10m ago, 2026-11-16T03:12:00 or seconds since the epoch.\n"
        "Who was on CPU 17 at 03:12: pinfold history --cpu 17 --at 03:12"
    )
    parser.add_argument("--container", metavar="NAME", help="only POD, POD/CONTAINER or NAMESPACE/POD/CONTAINER")
    parser.add_argument("--cpu", type=int, metavar="N", help="show the owners of this CPU")
    parser.add_argument("--at", metavar="TIME", help="how it was then: all CPUs, or with --cpu that one")
    parser.add_argument("--since", metavar="TIME", help="only entries since then, e.g. 1h")
    parser.add_argument("--until", metavar="TIME", help="only entries until then")
    parser.add_argument("--what", metavar="KIND,...", default="", help="only these kinds, e.g. assigned,refused")
    parser.add_argument("-n", "--last", type=int, metavar="N", help="only the last N")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="json: a line for each entry")
    add_records(parser)


def run(args: argparse.Namespace) -> int:
    """Print the entries, the State or the owners that the flags ask for."""
    query = _query(args)
    records = find_records(args)
    if args.cpu is not None:
        _print_hands(records, query, args)
    elif args.at is not None:
        _print_moment(records, query, args)
    else:
        entries = [*_last(_entries(records, query), args.last)] if args.container else _entries(records, query)
        if not entries:
            _say_none(records, args.container)
        _print_entries(_last(iter(entries), args.last), args.output)
    return 0


def _say_none(records: Records, container: str) -> None:
    """Say that nothing was found; raise if the journal has no entry at all of this name."""
    subject = Subject.parse(container)
    every = {one for entry in _entries(records, {}) for one in _names(entry)}
    if not any(subject.is_owner(name) for name in every):
        short = (name.split("/", 1)[1].rstrip("/") for name in every)
        meant = did_you_mean(container, {*short, *(name.split("/")[1] for name in every)})
        raise PinfoldError(f"the journal has no entry of {excerpt(container)}{meant}")
    print("no entries of this kind and time", file=sys.stderr)


def _names(entry: Data) -> list[str]:
    pod = entry.get("pod")
    return [f"{entry.get('namespace', 'default')}/{pod}/{entry.get('container', '')}"] if pod else []


def _query(args: argparse.Namespace) -> dict[str, str]:
    """Return the query for the daemon; raise if options contradict each other."""
    if args.cpu is not None and not 0 <= args.cpu <= MAX_CPU:
        raise ParseError(f"--cpu: {args.cpu} is not within 0 to {MAX_CPU}")
    if args.last is not None and args.last < 1:
        raise ParseError(f"-n: {args.last} is not 1 or more")
    if args.at is not None and (args.since or args.until):
        raise ParseError("--at is one time, --since and --until are two; use one or the other")
    if args.cpu is not None and (args.container or args.what):
        raise ParseError("--cpu asks for all owners of a CPU; leave out --container and --what")
    if args.at is not None and args.cpu is None and (args.last is not None or args.what):
        raise ParseError("--at asks how it was at one time; leave out -n and --what, or use --since and --until")
    if args.container is not None:
        try:
            Subject.parse(args.container)
        except ParseError as error:
            raise error.within("--container") from None
    _check_words(args.what)
    now = time.time()
    times = {"since": args.since or args.at, "until": args.until or args.at}
    flags = dict.fromkeys(times, "--at") if args.at is not None else {name: f"--{name}" for name in times}
    query = {name: f"{parse_when(text, now, flags[name]):.3f}" for name, text in times.items() if text}
    what = args.what or ("!state" if args.output == "text" else "")
    texts = {"container": args.container, "what": what, "cpu": None if args.cpu is None else str(args.cpu)}
    return query | {name: text for name, text in texts.items() if text}


def _check_words(text: str) -> None:
    """Raise if a kind of entry is unknown, with the nearest one."""
    known = [str(event.what) for group in GROUPS.values() for event in get_args(group)]
    for word in filter(None, text.split(",")):
        if word.removeprefix("!") not in known:
            meant = did_you_mean(word.removeprefix("!"), known) or "; docs/reference/events.md lists all"
            raise ParseError(f"--what: {excerpt(word)} is not a kind of entry{meant}")


def _entries(records: Records, query: dict[str, str]) -> Iterator[Data]:
    """Yield all requested entries, over as many answers as needed."""
    last = 0
    while True:
        answer = records.history({**query, "after": str(last)})
        entries = answer.get("entries") or []
        yield from entries
        if not answer.get("more") or not entries or entries[-1]["number"] <= last:
            return
        last = entries[-1]["number"]


def _last(entries: Iterator[Data], count: int | None) -> Iterable[Data]:
    return entries if count is None else deque(entries, maxlen=count)


def _print_entries(entries: Iterable[Data], output: str) -> None:
    shape = unbroken(sys.stdout)
    for entry in entries:
        print(json.dumps(entry) if output == "json" else format_entry(entry, show_when, shape))


def all_hands(records: Records, query: dict[str, str]) -> Data:
    """Return the owners of a CPU, over as many answers as needed."""
    answer, since = records.history(query), None
    tenures: list[Data] = []
    while True:
        tenures += answer.get("tenures") or []
        until = tenures[-1].get("until") if tenures else None
        if not answer.get("more") or until in {None, since}:
            return {**answer, "tenures": tenures, "more": False}
        since = until
        answer = records.history({**query, "since": repr(since)})


def _print_hands(records: Records, query: dict[str, str], args: argparse.Namespace) -> None:
    answer = all_hands(records, query)
    if args.output == "json":
        print(json.dumps(answer))
        return
    tenures: list[Data] = answer["tenures"]
    if args.last is not None:
        tenures = tenures[-args.last :]
    if not tenures:
        print(f"CPU {args.cpu}: not known; {_begins(answer)}")
    for tenure in tenures:
        text = f"CPU {args.cpu}: {format_tenure(tenure, show_when)}"
        print(*wrap(text, unbroken(sys.stdout).width, indent=4), sep="\n")


def _print_moment(records: Records, query: dict[str, str], args: argparse.Namespace) -> None:
    moment = records.at(float(query["since"]))
    if args.container is not None:
        wanted = Subject.parse(args.container)
        owners = {name: cpus for name, cpus in moment["exclusive"].items() if wanted.is_owner(name)}
        if moment["known"] and not owners:
            raise PinfoldError(f"{args.container} had no CPUs of its own at {show_when(moment['time'])}")
        moment = {**moment, "exclusive": owners}
    print(json.dumps(moment) if args.output == "json" else format_moment(moment, show_when, look(sys.stdout)))


def _begins(answer: Data) -> str:
    first = answer.get("first")
    return "the journal is empty" if first is None else f"the journal begins at {show_when(first)}"
