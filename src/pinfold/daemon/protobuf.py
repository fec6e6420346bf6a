"""protobuf without its messages in pure Python: they are 1.9 MB of a daemon's memory, and C (upb) does their work."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Final

_IN_PYTHON: Final = "google.protobuf.internal.python_message"
"""protobuf imports it always, in all versions from 4.25 to 7.36, and uses it only where there is no upb."""


_WELL_KNOWN: Final = "google.protobuf.internal.well_known_types"
"""The methods of Timestamp, Duration and their like, which no message of ours has; it imports datetime and calendar."""


def leave_out_python() -> None:
    """Let protobuf find an empty module in place of its messages in Python, if it has those in C."""
    from google.protobuf.internal import api_implementation  # noqa: PLC0415 - only a node of Kubernetes has messages

    if api_implementation.Type() == "upb":
        sys.modules.setdefault(_IN_PYTHON, ModuleType(_IN_PYTHON))
        if _WELL_KNOWN not in sys.modules:
            sys.modules[_WELL_KNOWN] = ModuleType(_WELL_KNOWN)
            vars(sys.modules[_WELL_KNOWN])["WKTBASES"] = {}
