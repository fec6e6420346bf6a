"""Coroutines that wait for nothing, run to their end without an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

_T = TypeVar("_T")


def now(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Return what a coroutine returns; fail if it would have to wait. Giving others their turn is no wait."""
    try:
        while coroutine.send(None) is None:
            pass
    except StopIteration as end:
        result: _T = end.value
        return result
    raise AssertionError(f"{coroutine} waits")
