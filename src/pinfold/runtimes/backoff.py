"""BackOff: how long to wait before connecting again."""

from __future__ import annotations

from typing import Final


class BackOff:
    """How long to wait after a connection ended: twice as long each time, and short again after success."""

    FIRST: Final = 0.1
    MOST: Final = 5.0

    def __init__(self, most: float = MOST) -> None:
        """*most*: the longest wait, in seconds."""
        self._most = most
        self._next = self.FIRST

    def after(self, lived: float) -> float:
        """Return the seconds to wait after a connection that was registered for *lived* seconds.

        >>> back_off = BackOff()
        >>> [back_off.after(lived) for lived in (0, 0, 0, 3600, 0)]
        [0.1, 0.2, 0.4, 0.1, 0.2]
        """
        # One that did not outlive the longest wait may be a runtime that drops us each time.
        wait = self.FIRST if lived > self._most else self._next
        self._next = min(2 * wait, self._most)
        return wait
