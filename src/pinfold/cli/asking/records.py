"""Sources of the history: a daemon, or the journal's files, also when no daemon runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlencode

from pinfold.cli.asking.client import Client, NoDaemon, add_socket
from pinfold.core.events.entries import Subject, entry_of
from pinfold.errors import PinfoldError
from pinfold.node.journal.files import DIRECTORY, Archive
from pinfold.node.journal.history import answer_at, answer_history, explain_kept, parse_question
from pinfold.settings.places import check_path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pinfold.core.events.entries import Entry

    Data = dict[str, Any]  # Any: JSON of the daemon


class Records(Protocol):
    """Answers questions about the past."""

    def history(self, query: Mapping[str, str]) -> Data:
        """Return entries, or the owners of a CPU."""
        ...

    def at(self, time: float) -> Data:
        """Return the State at a time."""
        ...

    def explain(self, container: str) -> Data:
        """Return why a container has its CPUs, or none."""
        ...

    def failure(self, container: str) -> Data | None:
        """Return how a container failed the last time: its exit code and last lines."""
        ...

    def containers(self, subject: Subject) -> list[str]:
        """Return the containers that run and belong to *subject*."""
        ...


class DaemonRecords:
    """Asks a daemon."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def history(self, query: Mapping[str, str]) -> Data:
        """Return entries, or the owners of a CPU."""
        return self._get("history", query)

    def at(self, time: float) -> Data:
        """Return the State at a time."""
        return self._get("at", {"time": f"{time:.3f}"})

    def explain(self, container: str) -> Data:
        """Return why a container has its CPUs, or none."""
        return self._get("explain", {"container": container})

    def failure(self, container: str) -> Data | None:
        """Return how a container failed the last time: its exit code and last lines."""
        return _failure(container, map(entry_of, self._client.get("/v1/events")))

    def containers(self, subject: Subject) -> list[str]:
        """Return the containers that run and belong to *subject*."""
        rows: list[Data] = self._client.get("/v1/containers")
        names = (f"{row['namespace']}/{row['pod']}/{row['container']}" for row in rows)
        return [name for name in names if subject.is_owner(name)]

    def _get(self, what: str, query: Mapping[str, str]) -> Data:
        answer = self._client.get(f"/v1/{what}?{urlencode(query)}")
        if not isinstance(answer, dict):
            raise PinfoldError("the daemon's answer has another form than expected; is the daemon of another version?")
        return answer


class FileRecords:
    """Reads the files in a state directory."""

    def __init__(self, state: Path) -> None:
        self._archive = Archive(state / DIRECTORY)
        if not self._archive.directory.is_dir():
            raise PinfoldError(f"--state-dir: there is no journal in {state}")

    def history(self, query: Mapping[str, str]) -> Data:
        """Return entries, or the owners of a CPU."""
        return answer_history(self._archive, parse_question(query))

    def at(self, time: float) -> Data:
        """Return the State at a time."""
        return answer_at(self._archive, {"time": f"{time:.3f}"})

    def explain(self, container: str) -> Data:
        """Return why a container has its CPUs, or none."""
        found = explain_kept(self._archive, Subject.parse(container))
        if found is None:
            raise PinfoldError(f"the journal has no decision on {container}")
        return found.data()

    def failure(self, container: str) -> Data | None:
        """Return how a container failed the last time: its exit code and last lines."""
        return _failure(container, self._archive.entries())

    def containers(self, subject: Subject) -> list[str]:
        """Return none: the files do not tell what runs."""
        del subject
        return []


def _failure(container: str, entries: Iterable[Entry]) -> Data | None:
    """Return the last failure of a container; none if it has been started again since then and has not failed."""
    subject, failed = Subject.parse(container), None
    for entry in entries:
        if entry.what == "ended" and subject.covers(entry):
            failed = entry.data() if entry.text("output") else None
    return failed


def add_records(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where to ask."""
    add_socket(parser)
    parser.add_argument("--state-dir", metavar="DIR", help="read the journal in this state directory; needs no daemon")


def find_records(args: argparse.Namespace) -> Records:
    """Return the source: the files if they are named; with --socket too, only if no daemon answers there."""
    if args.state_dir is None:
        return DaemonRecords(Client.of(args))
    if args.socket is not None:
        client = Client.of(args)
        try:
            client.get("/v1/node")
        except NoDaemon:
            pass
        else:
            return DaemonRecords(client)
    return FileRecords(check_path(args.state_dir, "--state-dir"))
