"""A terminal that shows whole screens and tells which keys are pressed; it is as before when the block ends."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENTER: Final = "\x1b[?1049h\x1b[?25l"  # another screen, without a cursor
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_NAMED: Final = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b[H": "home",
    b"\x1bOH": "home",
    b"\x1b[1~": "home",
    b"\x1b[F": "end",
    b"\x1bOF": "end",
    b"\x1b[4~": "end",
    b"\x1b": "escape",
    b"\r": "enter",
    b"\n": "enter",
    b"\x7f": "backspace",
    b"\b": "backspace",
}


class Screen:
    """Stdout as a screen; keys are read if stdin is a terminal too."""

    def __init__(self) -> None:
        self._keys = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._before: list[Any] = []  # Any: as termios has it
        self._handlers: dict[int, Any] = {}  # Any: a function, or a number of the signal module

    def __enter__(self) -> Self:
        self._open()
        self._handlers = {
            signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)),
            signal.SIGTSTP: signal.signal(signal.SIGTSTP, self._rest),
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._close()

    def show(self, lines: Sequence[str]) -> None:
        """Draw over the last screen."""
        text = f"{_END_OF_LINE}\r\n".join(lines)
        print(f"{_HOME}{text}{_END_OF_LINE}{_BELOW}", end="", flush=True)

    def keys(self, seconds: float) -> list[str]:
        """Return the keys that are pressed within so many seconds, as soon as there is one."""
        if self._keys is None:
            time.sleep(seconds)
            return []
        readable, _, _ = select.select([self._keys], [], [], seconds)
        return keys_of(os.read(self._keys, 1024)) if readable else []

    def _open(self) -> None:
        if self._keys is not None:
            self._before = termios.tcgetattr(self._keys)
            tty.setcbreak(self._keys)
        print(_ENTER, end="", flush=True)

    def _close(self) -> None:
        print(_LEAVE, end="", flush=True)
        if self._keys is not None:
            termios.tcsetattr(self._keys, termios.TCSADRAIN, self._before)

    def _rest(self, *_: object) -> None:
        """Give the terminal back while Ctrl-Z holds us."""
        self._close()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._open()


def keys_of(data: bytes) -> list[str]:
    r"""Return the keys in what a terminal has sent; what is no known key is left out.

    >>> keys_of(b"\x1b[Aq"), keys_of(b"/w\xc3\xa9\r"), keys_of(b"\x1b"), keys_of(b"\x1b[24~")
    (['up', 'q'], ['/', 'w', 'é', 'enter'], ['escape'], [])
    """
    found: list[str] = []
    while data:
        name = max((known for known in _NAMED if data.startswith(known)), key=len, default=b"")
        if name == b"\x1b" and len(data) > 1:  # a key that has no name here
            return found
        if name:
            found.append(_NAMED[name])
            data = data[len(name) :]
            continue
        sign = data.decode(errors="ignore")[:1]
        if sign.isprintable() and sign:
            found.append(sign)
        data = data[len(sign.encode()) or len(data) :]
    return found
