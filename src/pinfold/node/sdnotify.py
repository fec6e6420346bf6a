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
