"""CPUs that go offline and come back: the kernel reports them at once, where it lets us listen."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

_UEVENTS: Final = 15  # NETLINK_KOBJECT_UEVENT
_FROM_THE_KERNEL: Final = 1
_MOST: Final = 1 << 16
_SIGNS: Final = (b"offline@/devices/system/cpu/cpu", b"online@/devices/system/cpu/cpu")


class Hotplug:
    """The kernel's uevents about CPUs. Where there are none, the caller must poll."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        with suppress(OSError):
            self._socket = _listening()

    def fileno(self) -> int | None:
        """Return the file descriptor to wait on; None if the kernel sends no uevents."""
        return None if self._socket is None else self._socket.fileno()

    def has_happened(self) -> bool:
        """Read the pending uevents; return whether one was about a CPU, or some were lost."""
        happened = False
        while self._socket is not None:
            try:
                message = self._socket.recv(_MOST)
            except BlockingIOError:
                break
            except OSError:  # the buffer overflowed
                happened = True
            else:
                happened |= message.startswith(_SIGNS)
        return happened

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _listening() -> socket.socket:
    listener = socket.socket(
        socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, _UEVENTS
    )
    try:
        listener.bind((0, _FROM_THE_KERNEL))
    except OSError:
        listener.close()
        raise
    return listener
