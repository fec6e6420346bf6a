"""The places of State and control socket: for root in the system's directories, otherwise in the user's own.

Every verb that talks to the daemon uses this module. Callers pass the environment and the user.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT: Final = "default"
MAX_SOCKET_PATH: Final = 107
"""The most bytes in the path of a unix socket on Linux, without the final NUL."""


class SourcedPath(NamedTuple):
    """A path and its source."""

    path: Path
    source: str


def socket_path(environment: Mapping[str, str], uid: int, flag: str | None = None) -> Path:
    """Return the control socket: the *flag* --socket, else $PINFOLD_SOCKET, else the default place of this user.

    >>> print(socket_path({"XDG_RUNTIME_DIR": "/run/user/1000"}, uid=1000))
    /run/user/1000/pinfold/pinfold.sock
    """
    return find_socket(environment, uid, flag).path


def find_state(environment: Mapping[str, str], uid: int, flag: str | None, named: str = "--state-dir") -> SourcedPath:
    """Return the state directory: the *flag*, which the user gave as *named*, else the default one of this user."""
    if flag is not None:
        return SourcedPath(check_path(flag, named), named)
    if place := _default_state(environment, uid):
        return place
    said = "no state directory: neither $XDG_STATE_HOME nor $HOME is an absolute path"
    raise ConfigError(Problem(said, "name one with --state-dir"))


def find_socket(environment: Mapping[str, str], uid: int, flag: str | None, named: str = "--socket") -> SourcedPath:
    """Return the control socket and its source; the user gave the *flag* as *named*."""
    if flag is not None:
        return bindable(SourcedPath(check_path(flag, named), named))
    if path := environment.get("PINFOLD_SOCKET"):
        return bindable(SourcedPath(Path(path), "$PINFOLD_SOCKET"))
    if uid == 0:
        return SourcedPath(Path("/run/pinfold/pinfold.sock"), DEFAULT)
    if directory := _directory(environment, "XDG_RUNTIME_DIR"):
        return bindable(SourcedPath(directory / "pinfold/pinfold.sock", "$XDG_RUNTIME_DIR"))
    # In the default state directory even with --state-dir, so that commands find it without that flag.
    if state := _default_state(environment, uid):
        return bindable(SourcedPath(state.path / "pinfold.sock", state.source))
    said = "no control socket: none of $XDG_RUNTIME_DIR, $XDG_STATE_HOME and $HOME is an absolute path"
    raise ConfigError(Problem(said, "name one with --socket or $PINFOLD_SOCKET"))


def find_own_file(environment: Mapping[str, str], uid: int, flag: str | None) -> SourcedPath | None:
    """Return the daemon's own file of settings: the *flag* --settings, else the usual one of this user if it is there.

    >>> find_own_file({}, uid=0, flag="none") is None
    True
    """
    if flag is not None:
        return None if flag == "none" else SourcedPath(check_path(flag, "--settings"), "--settings")
    if uid == 0:
        usual = Path("/etc/pinfold/config.yaml")
    elif directory := _directory(environment, "XDG_CONFIG_HOME"):
        usual = directory / "pinfold/config.yaml"
    elif home := _directory(environment, "HOME"):
        usual = home / ".config/pinfold/config.yaml"
    else:
        return None
    # Not `usual.exists()`: with the home of another user, as under sudo, that would raise.
    return SourcedPath(usual, DEFAULT) if os.path.exists(usual) else None  # noqa: PTH110


def check_path(text: str, flag: str) -> Path:
    """Return the path in a flag; raise if it is empty, as from an unset variable: it would be the current directory."""
    if not text:
        raise ConfigError(Problem(f"{flag}: the path is empty"))
    return Path(text)


def _default_state(environment: Mapping[str, str], uid: int) -> SourcedPath | None:
    if uid == 0:
        return SourcedPath(Path("/var/lib/pinfold"), DEFAULT)
    for variable, below in (("XDG_STATE_HOME", "pinfold"), ("HOME", ".local/state/pinfold")):
        if directory := _directory(environment, variable):
            return SourcedPath(directory / below, f"${variable}")
    return None


def bindable(place: SourcedPath, settable: str = "--socket or $PINFOLD_SOCKET") -> SourcedPath:
    """Return *place*, unless it is too long for a socket; *settable* is what names another one."""
    size = len(os.fsencode(place.path))
    if size > MAX_SOCKET_PATH:
        said = f"{place.source}: {place.path} has {size} bytes, and a unix socket's path at most {MAX_SOCKET_PATH}"
        raise ConfigError(Problem(said, f"name a shorter one with {settable}"))
    return place


def _directory(environment: Mapping[str, str], variable: str) -> Path | None:
    """Return the directory in *variable*; relative ones are ignored, as the XDG specification demands."""
    path = Path(environment.get(variable, ""))
    return path if path.is_absolute() else None
