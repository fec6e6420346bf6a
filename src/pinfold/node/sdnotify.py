"""Messages to the service manager that started this process, as systemd wants them from services of Type=notify."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def notify(message: str, environment: Mapping[str, str]) -> None:
    """Send a message such as READY=1; do nothing if no service manager waits for one."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return
    path = f"\0{address[1:]}" if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(0)
        sender.sendto(message.encode(), path)


def watchdog_pause(environment: Mapping[str, str], pid: int) -> float | None:
    """Return how many seconds to wait between two WATCHDOG=1; None if no service manager waits for them.

    >>> watchdog_pause({"WATCHDOG_USEC": "30000000"}, pid=1), watchdog_pause({}, pid=1)
    (10.0, None)
    """
    every = environment.get("WATCHDOG_USEC", "")
    if environment.get("WATCHDOG_PID", str(pid)) != str(pid) or not every.isdecimal() or not int(every):
        return None
    return int(every) / 3_000_000
