"""`pinfold serve`: the daemon."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from typing import TYPE_CHECKING

from pinfold.cli.arguments import machine
from pinfold.daemon.directory import AlreadyRunning, StateDirectory, is_held
from pinfold.daemon.serve import serve
from pinfold.node.processgroups.errors import GroupsHeldError
from pinfold.node.register import CPUsTakenError
from pinfold.settings import settings
from pinfold.settings.ownfile import with_own_file

if TYPE_CHECKING:
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.machine.topology import Topology
    from pinfold.settings.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold serve`."""
    settings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop."""
    # Until the daemon can read its files again: it would end the process.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    given = _Given(args)
    topology = given.machine()
    chosen = given.settings(topology)
    if chosen.stand_by and is_held(chosen.state_dir):
        from pinfold.daemon.standby import stand_by  # noqa: PLC0415 - only for an update without a gap

        print(f"pinfold: standing by; another daemon has the state directory {chosen.state_dir}", flush=True)
        if not asyncio.run(stand_by(chosen)):
            return 0
        topology = given.machine()  # both may have changed meanwhile
        chosen = given.settings(topology)
    with StateDirectory(chosen.state_dir):
        try:
            asyncio.run(serve(chosen, topology, given))
        except (GroupsHeldError, CPUsTakenError) as error:
            raise AlreadyRunning(str(error)) from error
    return 0


class _Given:
    """The command line's files and machine, read again each time."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._flags = self._args = args
        self._is_watched = False
        self._read: list[tuple[int, int] | None] = []

    def machine(self) -> Topology:
        """Return the machine as it is now; read the daemon's own file, which may name another, again first."""
        self._args = with_own_file(self._flags, os.environ, os.geteuid())
        return machine.read_machine(self._args)

    def online(self) -> CPUSet | None:
        """Return the CPUs that are online now; None for another machine than this host."""
        return machine.online_now(self._args)

    def settings(self, topology: Topology) -> Settings:
        """Return the settings for a machine."""
        self._read = self._stamp()
        chosen = settings.read_settings(self._args, topology, environment=os.environ, uid=os.geteuid())
        self._is_watched = chosen.watch_config
        return chosen

    def other(self, config: str | None) -> _Given:
        """Return the same, or the same with another configuration file."""
        other = {} if config is None else {"config_file": config}
        return _Given(argparse.Namespace(**{**vars(self._flags), **other}))

    def is_replaced(self) -> bool:
        """Whether the files are watched, and one of them is another one than when it was last read or seen."""
        return self._is_watched and self._stamp() != self._read

    def seen(self) -> None:
        """Do not take the files as they are now for replaced ones."""
        self._read = self._stamp()

    def _stamp(self) -> list[tuple[int, int] | None]:
        """Return what differs between one file of settings and the next at its place; None if there is none."""
        return [_stamp_of(name or "") for name in (self._args.config_file, self._args.own_file)]


def _stamp_of(name: str) -> tuple[int, int] | None:
    try:
        found = os.stat(name)  # noqa: PTH116 - an empty Path would be a directory
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
