"""Modules of Python that a daemon does without: they are a twentieth of its memory. Other commands import them."""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

_INSPECT: Final = "inspect"
_COROUTINE: Final = 0x80
"""The flag of a function that is a coroutine."""


def leave_out() -> None:
    """Let asyncio do without TLS, which the daemon never speaks, and import others only when they are needed.

    asyncio and dataclasses have `inspect` for texts to developers, and pathlib `urllib.parse` for addresses of files.
    """
    sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]  # documented: then it cannot be imported
    _stand_in(
        _INSPECT,
        iscoroutinefunction=_is_coroutine_function,
        isfunction=_is_function,
        signature=_signature,
        unwrap=_unwrap,
    )
    _stand_in("urllib.parse", quote_from_bytes=lambda *given: import_module("urllib.parse").quote(*given))


def _stand_in(name: str, **known: object) -> None:
    """Let a module have only the *known* functions; asking for another one loads it."""
    if name not in sys.modules:
        sys.modules[name] = _StandIn(name)
        vars(sys.modules[name]).update(known)


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of a module
        if name.startswith("__"):
            raise AttributeError(name)
        own = self.__name__
        if sys.modules.get(own) is self:
            del sys.modules[own]
        real = import_module(own)
        vars(self).update(vars(real))
        return getattr(real, name)


def _is_coroutine_function(found: object) -> bool:
    while isinstance(found, partial | MethodType):
        found = found.func if isinstance(found, partial) else found.__func__
    return isinstance(found, FunctionType) and bool(found.__code__.co_flags & _COROUTINE)


def _is_function(found: object) -> bool:
    return isinstance(found, FunctionType)


def _signature(found: object, **given: object) -> object:
    """Return nothing to dataclasses: they want it for the docstring of a class that has none."""
    if sys._getframe(1).f_globals.get("__name__") == "dataclasses":  # noqa: SLF001 - documented; there is no other way
        return ""
    return import_module(_INSPECT).Signature.from_callable(found, **given)


def _unwrap(found: object) -> object:
    while (inner := getattr(found, "__wrapped__", None)) is not None:
        found = inner
    return found
