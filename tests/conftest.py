"""What all tests rely on: signals that end a program end it, also when the tests were started in the background."""

from __future__ import annotations

import signal

# A shell starts a background job with these ignored, and everything that is started from there inherits that.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
